//! Where a sender's bytes come from.

use wire::object::ErrorCode;

use crate::Manifest;

/// The bytes of object 1 of a manifest, on the sender's side.
pub trait Content {
    /// Fills `out` with the content from position `offset` on; the range lies within the content
    /// and may span files.
    ///
    /// # Errors
    /// When the bytes cannot be had or are not those that were planned: a file is gone, unreadable,
    /// shorter or changed. The transfer ends with this error, or goes on without the file that it
    /// names: see [`Content::withdraw`].
    fn read(
        &mut self,
        manifest: &Manifest,
        offset: u64,
        out: &mut [u8],
    ) -> Result<(), ContentError>;

    /// A file (its index among [`Manifest::files`]) that could not be read is not sent any more:
    /// from here on its bytes read as zeros, and never as an error.
    fn withdraw(&mut self, file: usize);
}

/// Why content could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct ContentError {
    /// For the program.
    pub code: ErrorCode,
    /// For a person: operation, file, cause.
    pub text: String,
    /// Which file it is about, by its index among [`Manifest::files`]; `None` when it is about all.
    pub file: Option<usize>,
}

impl ContentError {
    /// An error of kind `code`, in words.
    #[must_use]
    pub fn new(code: ErrorCode, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
            file: None,
        }
    }

    /// The same, about one file by its index among [`Manifest::files`].
    #[must_use]
    pub const fn of_file(mut self, file: usize) -> Self {
        self.file = Some(file);
        self
    }
}
