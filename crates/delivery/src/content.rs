//! The content that a sender sends, and how it is read.

use std::task::Poll;

use wire::object::ErrorCode;

use crate::Manifest;

/// The content of a manifest's files (object 1 of the protocol), on the sender's side.
pub trait Content {
    /// Fills `out` with the content from position `offset` on; the range lies within the content
    /// and may span files.
    ///
    /// Never waits for a disk. Where it would have to, returns [`Poll::Pending`], begins to fetch
    /// the bytes, and wakes the session's thread once they are there: ask again then. `out` may
    /// have changed.
    ///
    /// # Errors
    /// When a file is gone, unreadable, shorter or changed. The transfer ends with this error, or
    /// goes on without the file that the error names: see [`Content::withdraw`].
    fn read(
        &mut self,
        manifest: &Manifest,
        offset: u64,
        out: &mut [u8],
    ) -> Result<Poll<()>, ContentError>;

    /// Replaces the contents of `out` by `len` bytes of the content from position `offset` on. An
    /// implementation that has these bytes in memory may hand that memory over instead of copying.
    /// [`Poll::Pending`] means what it means for [`Content::read`].
    ///
    /// # Errors
    /// Those of [`Content::read`].
    fn read_into(
        &mut self,
        manifest: &Manifest,
        offset: u64,
        len: usize,
        out: &mut Vec<u8>,
    ) -> Result<Poll<()>, ContentError> {
        out.resize(len, 0);
        self.read(manifest, offset, out)
    }

    /// Fills `out` like [`Content::read`] and returns true, if the bytes are in memory. Otherwise,
    /// and after an error, returns false and fetches nothing. `out` may then have changed, and
    /// [`Content::read`] gives the bytes or the error.
    fn read_cached(&mut self, _manifest: &Manifest, _offset: u64, _out: &mut [u8]) -> bool {
        false
    }

    /// Stops sending a file that could not be read; `file` is its index among [`Manifest::files`].
    /// From then on its bytes read as zeros, and reading them is never an error.
    fn withdraw(&mut self, file: usize);
}

/// Why content could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct ContentError {
    /// The kind of error, for the program.
    pub code: ErrorCode,
    /// Operation, file and cause, for a person.
    pub text: String,
    /// The file that the error is about, by its index among [`Manifest::files`]; `None` when the
    /// error is about the whole content.
    pub file: Option<usize>,
}

impl ContentError {
    /// Makes an error of kind `code`, at first without a `file`. `text` names the operation, the
    /// file and the cause.
    #[must_use]
    pub fn new(code: ErrorCode, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
            file: None,
        }
    }

    /// Makes this an error about one file; `file` is its index among [`Manifest::files`].
    #[must_use]
    pub const fn of_file(mut self, file: usize) -> Self {
        self.file = Some(file);
        self
    }
}
