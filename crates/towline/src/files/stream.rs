//! A receiver's store for a single file. It writes the file to a stream once the whole file is
//! verified.
//!
//! ```text
//!   blocks --> file without a name --all verified--> a thread writes it to the stream, in order
//! ```
//!
//! The transfer is proved when the stream has taken every byte. A manifest that holds anything
//! except one single file is refused. Nothing is kept for a later attempt.

use std::{
    collections::VecDeque,
    fmt, fs,
    io::{self, Seek as _, Write},
    os::unix::fs::FileExt as _,
    path::PathBuf,
    sync::{Arc, mpsc},
    thread,
};

use delivery::{Manifest, RangeSet, Store, StoreEvent};
use wire::object::{EntryKind, ErrorCode};

use super::Spool;

/// A store that keeps one file and writes it to a stream.
pub struct StreamStore {
    out: Option<Box<dyn Write + Send>>,
    place: PathBuf,
    notify: Arc<dyn Fn() + Send + Sync>,
    staged: Option<(Arc<Manifest>, fs::File)>,
    events: VecDeque<StoreEvent>,
    committing: Option<mpsc::Receiver<StoreEvent>>,
}

impl fmt::Debug for StreamStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamStore").finish_non_exhaustive()
    }
}

impl StreamStore {
    /// Makes a store that writes to `out`. The thread that writes calls `notify` when the store has
    /// an event. Until `out` has taken the file, the file's bytes lie in the directory `place`;
    /// without `place`, in the system's directory for temporary files.
    pub(super) fn new(
        out: Box<dyn Write + Send>,
        place: Option<PathBuf>,
        notify: Arc<dyn Fn() + Send + Sync>,
    ) -> Self {
        Self {
            out: Some(out),
            place: place.unwrap_or_else(std::env::temp_dir),
            notify,
            staged: None,
            events: VecDeque::new(),
            committing: None,
        }
    }

    fn stage(&self, manifest: &Arc<Manifest>) -> Result<fs::File, (ErrorCode, String)> {
        let first = manifest.entries().next().map(|entry| entry.kind);
        let other = match (first, manifest.entries().len()) {
            (Some(EntryKind::File), 1) => None,
            (Some(EntryKind::Directory), 1) => Some("a directory".to_owned()),
            (_, 1) => Some("a link".to_owned()),
            (_, count) => Some(format!("{count} files, directories and links")),
        };
        if let Some(other) = other {
            let text = format!(
                "the receiver takes one file, and this transfer brings {other}; receive it into a \
                 directory"
            );
            return Err((ErrorCode::ManifestRefused, text));
        }
        let spool =
            Spool::below(&self.place).map_err(|error| (ErrorCode::Io, error.to_string()))?;
        let file = spool.into_file();
        // The file has this length but takes no disk space yet: a manifest without data costs
        // nothing.
        file.set_len(manifest.content_bytes()).map_err(|error| {
            let text = format!(
                "cannot keep a copy of {} bytes in {}: {}",
                manifest.content_bytes(),
                self.place.display(),
                sys::with_usual_remedy(&error)
            );
            (code_of(&error), text)
        })?;
        Ok(file)
    }

    fn fail(&mut self, doing: &str, error: &io::Error) {
        let code = code_of(error);
        let cause = match code {
            ErrorCode::DiskFull => format!("{error}; make room there"),
            _ if error.kind() == io::ErrorKind::WouldBlock => {
                format!("{error}; {}", sys::THREAD_REMEDY)
            }
            _ => sys::with_usual_remedy(error),
        };
        let text = format!("cannot {doing}: {cause}");
        self.events.push_back(StoreEvent::Failed { code, text });
    }
}

impl Store for StreamStore {
    fn prepare(&mut self, manifest: &Arc<Manifest>) {
        match self.stage(manifest) {
            Ok(file) => {
                self.staged = Some((Arc::clone(manifest), file));
                let held = RangeSet::new(1);
                self.events.push_back(StoreEvent::Prepared { held });
            }
            Err((code, text)) => self.events.push_back(StoreEvent::Failed { code, text }),
        }
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> bool {
        let Some((_, file)) = &self.staged else {
            return false;
        };
        match file.write_all_at(bytes, offset) {
            Ok(()) => true,
            Err(error) => {
                self.fail(
                    &format!("write the file's copy in {}", self.place.display()),
                    &error,
                );
                false
            }
        }
    }

    fn hash_slab(&mut self, slab: u32) -> bool {
        let Some((manifest, file)) = &self.staged else {
            return false;
        };
        let at = manifest.slab(slab);
        let mut bytes = vec![0; at.len as usize];
        match file.read_exact_at(&mut bytes, at.start) {
            Ok(()) => {
                let mut hasher = at.hasher();
                hasher.update(&bytes);
                let hash = hasher.finish();
                self.events.push_back(StoreEvent::Hashed { slab, hash });
            }
            Err(error) => {
                self.fail(
                    &format!("read the file's copy in {}", self.place.display()),
                    &error,
                );
            }
        }
        true
    }

    fn commit(&mut self, withdrawn: &[usize]) {
        if !withdrawn.is_empty() {
            let text = "the sender could not read the file to its end, or the file changed \
                        meanwhile; send it again"
                .to_owned();
            let code = ErrorCode::SourceChanged;
            return self.events.push_back(StoreEvent::Failed { code, text });
        }
        let (Some((manifest, mut file)), Some(mut out)) = (self.staged.take(), self.out.take())
        else {
            return;
        };
        let (sender, receiver) = mpsc::channel();
        let notify = Arc::clone(&self.notify);
        // This runs in a thread: the stream's reader may be slow and must not delay the session's
        // timers.
        let write = move || {
            let event = match copy(&mut file, manifest.content_bytes(), &mut out) {
                Ok(()) => StoreEvent::Committed,
                Err(error) => StoreEvent::Failed {
                    code: code_of(&error),
                    text: format!(
                        "cannot write the file to the output: {}",
                        sys::with_usual_remedy(&error)
                    ),
                },
            };
            // If the transfer was given up, nobody receives the event, so a failure is ignored.
            drop(sender.send(event));
            notify();
        };
        match thread::Builder::new().name("output".into()).spawn(write) {
            Ok(_) => self.committing = Some(receiver),
            Err(error) => self.fail("start the thread that writes the output", &error),
        }
    }

    fn abandon(&mut self) {
        self.staged = None;
    }

    fn poll_event(&mut self) -> Option<StoreEvent> {
        let outcome = self.committing.as_ref().map(mpsc::Receiver::try_recv);
        match outcome {
            Some(Ok(event)) => {
                self.committing = None;
                self.events.push_back(event);
            }
            Some(Err(mpsc::TryRecvError::Disconnected)) => {
                self.committing = None;
                let error = sys::panicked("that writes it");
                self.fail("write the file to the output", &error);
            }
            Some(Err(mpsc::TryRecvError::Empty)) | None => {}
        }
        self.events.pop_front()
    }
}

fn copy(file: &mut fs::File, bytes: u64, out: &mut impl Write) -> io::Result<()> {
    file.rewind()?;
    let copied = io::copy(&mut io::Read::take(file, bytes), out)?;
    if copied != bytes {
        let text = "the copy of the file was cut short; receive it again";
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
    }
    out.flush()
}

fn code_of(error: &io::Error) -> ErrorCode {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorCode::DiskFull,
        io::ErrorKind::PermissionDenied => ErrorCode::Permission,
        _ => ErrorCode::Io,
    }
}
