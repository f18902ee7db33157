//! A receiver's store that keeps files in memory.

use std::{
    collections::VecDeque,
    ffi::OsStr,
    fmt,
    os::unix::ffi::OsStrExt as _,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use delivery::{Manifest, RangeSet, Store, StoreEvent};
use wire::object::ErrorCode;

/// A place in memory for a receiver's files. Clones share the same files.
///
/// The files of a transfer appear together, when all of them are verified. A tree's files are kept
/// with their paths; its directories and symbolic links are not kept. A transfer that fails leaves
/// nothing for a later attempt.
///
/// ```no_run
/// # fn main() -> Result<(), towline::Error> {
/// use towline::{FileReceiver, MemoryFiles, SessionBuilder, Target};
/// let session = SessionBuilder::new("239.192.0.1@lo:7500".parse()?);
/// let files = MemoryFiles::new(64 << 20);
/// let target = Target::Memory(files.clone());
/// let mut receiver = FileReceiver::builder(session, target).open()?;
/// while receiver.turn()? {
///     receiver.wait(None);
/// }
/// for file in files.take() {
///     println!("{}: {} bytes", file.path.display(), file.content.len());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MemoryFiles {
    files: Arc<Mutex<Vec<MemoryFile>>>,
    bytes_max: u64,
}

/// A file that has arrived and is verified.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryFile {
    /// The file's path, as the sender gave it.
    pub path: PathBuf,
    /// The file's bytes.
    pub content: Vec<u8>,
}

impl MemoryFiles {
    /// Makes an empty place for transfers of at most `bytes_max` bytes each; larger ones are
    /// refused. A file that is sent with several names (hard links) is kept once for each name, and
    /// each copy counts toward `bytes_max`.
    #[must_use]
    pub fn new(bytes_max: u64) -> Self {
        Self {
            files: Arc::default(),
            bytes_max,
        }
    }

    /// Takes the files that have arrived so far.
    #[must_use]
    pub fn take(&self) -> Vec<MemoryFile> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<MemoryFile>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for MemoryFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryFiles")
            .field("files", &self.lock().len())
            .field("bytes_max", &self.bytes_max)
            .finish_non_exhaustive()
    }
}

/// A store for the content of one transfer.
pub(super) struct MemoryStore {
    files: MemoryFiles,
    staged: Option<(Arc<Manifest>, Vec<u8>)>,
    events: VecDeque<StoreEvent>,
}

impl MemoryStore {
    pub(super) const fn new(files: MemoryFiles) -> Self {
        Self {
            files,
            staged: None,
            events: VecDeque::new(),
        }
    }
}

impl Store for MemoryStore {
    fn prepare(&mut self, manifest: &Arc<Manifest>) {
        let copies = manifest.hard_links().iter();
        let copies = copies.map(|link| manifest.files()[link.file as usize].size_bytes);
        let bytes = copies.fold(manifest.content_bytes(), u64::saturating_add);
        let bytes_max = self.files.bytes_max;
        let len = usize::try_from(bytes).ok().filter(|_| bytes <= bytes_max);
        let Some(len) = len else {
            let text = format!(
                "cannot keep {bytes} bytes in memory: {bytes_max} are allowed; send less, or have \
                 the receiver allow more"
            );
            let code = ErrorCode::Limit;
            return self.events.push_back(StoreEvent::Failed { code, text });
        };
        // The content is staged once. The copies for hard links count toward the limit, too, but
        // are made only in `commit`.
        let staged = usize::try_from(manifest.content_bytes()).unwrap_or(len);
        self.staged = Some((Arc::clone(manifest), vec![0; staged]));
        let held = RangeSet::new(1);
        self.events.push_back(StoreEvent::Prepared { held });
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> bool {
        let Some((_, content)) = &mut self.staged else {
            return false;
        };
        let start = usize::try_from(offset).expect("the content fits into memory");
        content[start..start + bytes.len()].copy_from_slice(bytes);
        true
    }

    fn hash_slab(&mut self, slab: u32) -> bool {
        let Some((manifest, content)) = &self.staged else {
            return false;
        };
        let at = manifest.slab(slab);
        let mut hasher = at.hasher();
        let start = usize::try_from(at.start).expect("the content fits into memory");
        hasher.update(&content[start..start + at.len as usize]);
        let hash = hasher.finish();
        self.events.push_back(StoreEvent::Hashed { slab, hash });
        true
    }

    fn commit(&mut self, withdrawn: &[usize]) {
        let Some((manifest, content)) = self.staged.take() else {
            return;
        };
        let files = manifest.files().iter().enumerate();
        let sent = files.filter(|(index, _)| !withdrawn.contains(index));
        let files = sent.flat_map(|(index, file)| {
            let start = usize::try_from(file.start).expect("the content fits into memory");
            let size = usize::try_from(file.size_bytes).expect("the content fits into memory");
            let content = &content[start..start + size];
            manifest.paths_of(index).map(|path| MemoryFile {
                path: PathBuf::from(OsStr::from_bytes(path)),
                content: content.to_vec(),
            })
        });
        self.files.lock().extend(files);
        self.events.push_back(StoreEvent::Committed);
    }

    fn abandon(&mut self) {
        self.staged = None;
    }

    fn poll_event(&mut self) -> Option<StoreEvent> {
        self.events.pop_front()
    }
}
