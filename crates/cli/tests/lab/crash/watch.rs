//! An eye on what is seen at a receiver while a transfer is disturbed.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use lab::Disk;

/// Looks all the time whether anything is under a final name that is not whole. A file must have
/// its length and its content as soon as it is there; what is no file of the tree must not be there
/// at all, but for what is staged.
pub(super) struct Watch {
    is_over: Arc<AtomicBool>,
    looks: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Compares what is received into `directory` with `tree`; on `disk`, if it lies on one.
    pub(super) fn start(tree: &Path, directory: &Path, disk: Option<Arc<Disk>>) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let looks = Arc::new(AtomicU64::new(0));
        let mut eye = Eye {
            tree: tree.to_path_buf(),
            directory: directory.to_path_buf(),
            known: BTreeSet::new(),
        };
        let (over, count) = (Arc::clone(&is_over), Arc::clone(&looks));
        let mut watch = move || {
            while !over.load(Ordering::Relaxed) {
                eye.look();
                count.fetch_add(1, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(2));
            }
            eye.look();
        };
        let thread = thread::spawn(move || match disk {
            Some(disk) => disk.enter(watch).unwrap(),
            None => watch(),
        });
        Self {
            is_over,
            looks,
            thread: Some(thread),
        }
    }

    /// Ends it.
    ///
    /// **Panics**: when something half-written was seen.
    pub(super) fn finish(mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let thread = self.thread.take().unwrap();
        thread
            .join()
            .expect("nothing half-written under a final name");
        assert!(self.looks.load(Ordering::Relaxed) > 0);
    }

    pub(super) fn finish_all(watches: Vec<Self>) {
        watches.into_iter().for_each(Self::finish);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

struct Eye {
    tree: PathBuf,
    directory: PathBuf,
    /// Compared already.
    known: BTreeSet<PathBuf>,
}

impl Eye {
    fn look(&mut self) {
        let root = self.tree.file_name().unwrap().to_owned();
        for name in names(&self.directory) {
            assert!(
                name == root || name == ".towline",
                "{} is not of the tree",
                self.directory.join(name).display()
            );
        }
        let mut to_look = vec![PathBuf::new()];
        while let Some(path) = to_look.pop() {
            let seen = self.directory.join(&root).join(&path);
            for name in names(&seen) {
                let below = path.join(name);
                if self.is_directory(&below, &seen.join(below.file_name().unwrap())) {
                    to_look.push(below);
                }
            }
        }
    }

    /// Compares one name; true when there is more below it.
    fn is_directory(&mut self, path: &Path, seen: &Path) -> bool {
        let source = self.tree.join(path);
        let expected = fs::symlink_metadata(&source);
        let expected = expected.unwrap_or_else(|_| panic!("{} is of no tree", seen.display()));
        let found = fs::symlink_metadata(seen).unwrap();
        assert_eq!(
            found.file_type(),
            expected.file_type(),
            "{}",
            seen.display()
        );
        if !found.is_file() {
            return found.is_dir();
        }
        assert_eq!(found.len(), expected.len(), "{}", seen.display());
        if self.known.insert(path.to_path_buf()) {
            let is_same = fs::read(seen).unwrap() == fs::read(&source).unwrap();
            assert!(is_same, "{} is not whole", seen.display());
        }
        false
    }
}

/// The names in a directory; none when it is not there.
fn names(directory: &Path) -> Vec<std::ffi::OsString> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    entries
        .filter_map(Result::ok)
        .map(|entry| entry.file_name())
        .collect()
}
