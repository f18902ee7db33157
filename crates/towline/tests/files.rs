//! Files that go elsewhere than into a directory, and what a receiver is told of them.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    collections::VecDeque,
    fs,
    net::TcpStream,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use towline::{
    Delete, Existing, Expectation, FileReceiver, FileSender, FileSet, Manifest, MemoryFiles,
    ObjectReceiverEvent, RangeSet, SessionBuilder, Store, StoreEvent, Target,
    TransferReceiverEvent,
};

/// Groups differ between tests, so that they can run side by side.
fn session(last: u8) -> SessionBuilder {
    let port = 17_800 + u16::from(last);
    let group = format!("239.192.80.{last}@lo:{port}");
    SessionBuilder::new(group.parse().unwrap())
}

/// A directory of this test alone, with two files beneath.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("towline-{name}-{}", std::process::id()));
        drop(fs::remove_dir_all(&path));
        fs::create_dir_all(path.join("tree/below")).unwrap();
        fs::write(path.join("tree/large"), [7; 300_000]).unwrap();
        fs::write(path.join("tree/below/small"), b"small").unwrap();
        Self(path)
    }

    fn sender(&self, session: &SessionBuilder) -> FileSender {
        let files = FileSet::builder().path(self.0.join("tree")).read().unwrap();
        let expectation = Expectation::default().receivers(1);
        FileSender::open(session, files, &expectation).unwrap()
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// Drives both ends to the end; gives the paths that the receiver knew, and the lines of its sums,
/// when all was delivered.
fn run(sender: &mut FileSender, receiver: &mut FileReceiver) -> Option<(Vec<PathBuf>, Vec<u8>)> {
    let end = Instant::now() + Duration::from_secs(30);
    let (mut is_sending, mut is_receiving) = (true, true);
    let mut told = None;
    while is_sending || is_receiving {
        assert!(Instant::now() < end, "{:?}", sender.outcome());
        is_sending = is_sending && sender.turn().unwrap();
        is_receiving = is_receiving && receiver.turn().unwrap();
        while let Some(event) = receiver.pop_event() {
            if let ObjectReceiverEvent::Transfer {
                transfer,
                event: TransferReceiverEvent::Delivered { .. },
            } = event
            {
                let entries = receiver.entries(transfer).unwrap();
                let paths = entries.map(|entry| entry.path.to_path_buf()).collect();
                told = Some((paths, receiver.sums(transfer).unwrap().lines()));
            }
        }
    }
    told
}

#[test]
fn files_arrive_in_memory_and_the_receiver_knows_their_names_and_sums() {
    let tree = Tree::new("memory");
    let files = MemoryFiles::new(1 << 20);
    let target = Target::Memory(files.clone());
    let mut receiver = FileReceiver::builder(session(1), target).open().unwrap();
    let mut sender = tree.sender(&session(1));
    let (paths, sums) = run(&mut sender, &mut receiver).unwrap();
    assert!(sender.outcome().is_proven());
    let expected = ["tree", "tree/below", "tree/below/small", "tree/large"];
    assert_eq!(paths, expected.map(PathBuf::from));
    assert_eq!(sums, sender.sums().unwrap().lines());
    let mut arrived = files.take();
    arrived.sort_by(|a, b| a.path.cmp(&b.path));
    let arrived: Vec<_> = arrived.iter().map(|it| (&*it.path, &*it.content)).collect();
    let expected = [
        (Path::new("tree/below/small"), &b"small"[..]),
        (Path::new("tree/large"), &[7; 300_000]),
    ];
    assert_eq!(arrived, expected);
    assert!(files.take().is_empty());
}

#[test]
fn what_changes_after_it_was_found_is_skipped_and_the_rest_is_proven() {
    let tree = Tree::new("skip");
    let kept = tree.0.join("in");
    let mut receiver = FileReceiver::open(&session(5), &kept).unwrap();
    for (name, len) in [("gone", 9), ("grown", 1_500_000), ("large2", 2_000_000)] {
        fs::write(tree.0.join("tree").join(name), vec![1; len]).unwrap();
    }
    let set = FileSet::builder().skip_changed(true);
    let files = set.path(tree.0.join("tree")).read().unwrap();
    fs::remove_file(tree.0.join("tree/gone")).unwrap();
    fs::write(tree.0.join("tree/grown"), vec![1; 1_500_001]).unwrap();
    let expectation = Expectation::default().receivers(1);
    let mut sender = FileSender::open(&session(5), files, &expectation).unwrap();
    let (_, sums) = run(&mut sender, &mut receiver).unwrap();
    let outcome = sender.outcome();
    assert!(outcome.is_proven(), "{outcome:?}");
    let mut unsent = outcome.unsent.iter().map(|unsent| &unsent.path[..]);
    assert_eq!(unsent.next(), Some(&b"tree/gone"[..]));
    assert_eq!(unsent.next(), Some(&b"tree/grown"[..]));
    assert_eq!((unsent.next(), sender.file_count()), (None, 3));
    assert_eq!(sums, sender.sums().unwrap().lines());
    let mut names: Vec<_> = fs::read_dir(kept.join("tree"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["below", "large", "large2"]);
}

#[test]
fn what_the_sender_has_not_is_deleted_once_all_of_it_is_there() {
    let tree = Tree::new("delete");
    let kept = tree.0.join("in");
    fs::create_dir_all(kept.join("tree/old")).unwrap();
    fs::write(kept.join("tree/old/file"), b"old").unwrap();
    fs::write(kept.join("beside"), b"old").unwrap();
    let target = Target::Directory {
        path: kept.clone(),
        existing: Existing::Replace,
    };
    let receiver = FileReceiver::builder(session(7), target).delete(Delete::Surplus);
    let mut receiver = receiver.open().unwrap();
    let mut sender = tree.sender(&session(7));
    run(&mut sender, &mut receiver).unwrap();
    assert!(sender.outcome().is_proven());
    assert!(!kept.join("tree/old").exists() && kept.join("tree/large").exists());
    assert!(kept.join("beside").exists());
}

#[test]
fn a_store_of_ones_own_learns_what_is_withdrawn() {
    let tree = Tree::new("own-skip");
    let withdrawn = Arc::new(Mutex::new(None));
    let shared = Arc::clone(&withdrawn);
    let target = Target::Own(Box::new(move |_sender, _offer| {
        let withdrawn = Arc::clone(&shared);
        Ok(Box::new(Counting {
            withdrawn,
            ..Counting::default()
        }))
    }));
    let mut receiver = FileReceiver::builder(session(6), target).open().unwrap();
    let set = FileSet::builder().skip_changed(true);
    let files = set.path(tree.0.join("tree")).read().unwrap();
    fs::write(tree.0.join("tree/below/small"), b"other").unwrap();
    fs::remove_file(tree.0.join("tree/large")).unwrap();
    let expectation = Expectation::default().receivers(1);
    let mut sender = FileSender::open(&session(6), files, &expectation).unwrap();
    run(&mut sender, &mut receiver).unwrap();
    assert!(sender.outcome().is_proven());
    assert_eq!(withdrawn.lock().unwrap().as_deref(), Some(&[0, 1][..]));
}

#[test]
fn what_does_not_fit_into_memory_is_refused_at_both_ends() {
    let tree = Tree::new("memory-small");
    let files = MemoryFiles::new(1000);
    let target = Target::Memory(files.clone());
    let mut receiver = FileReceiver::builder(session(2), target).open().unwrap();
    let mut sender = tree.sender(&session(2));
    assert_eq!(run(&mut sender, &mut receiver), None);
    let outcome = sender.outcome();
    assert!(!outcome.is_proven(), "{outcome:?}");
    assert!(files.take().is_empty());
}

#[test]
fn who_connects_again_and_again_does_not_keep_a_sender_from_its_end() {
    let tree = Tree::new("held");
    let files = MemoryFiles::new(1 << 20);
    let builder = FileReceiver::builder(session(40), Target::Memory(files));
    let mut receiver = builder.open().unwrap();
    let port = 17_990;
    let mut sender = tree.sender(&session(40).control_port(port));
    let is_over = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&is_over);
    let attack = thread::spawn(move || {
        let mut held = Vec::new();
        while !seen.load(Ordering::Relaxed) {
            held.extend(TcpStream::connect(("127.0.0.1", port)));
            thread::sleep(Duration::from_millis(50));
        }
        held.len()
    });
    // The attack goes on until the sender has ended.
    let told = run(&mut sender, &mut receiver);
    is_over.store(true, Ordering::Relaxed);
    assert!(told.is_some() && sender.outcome().is_proven());
    assert!(attack.join().unwrap() > 0);
}

/// A store of the test's own, which counts what it is given.
#[derive(Default)]
struct Counting {
    manifest: Option<Arc<Manifest>>,
    content: Vec<u8>,
    events: VecDeque<StoreEvent>,
    committed: Arc<Mutex<Option<usize>>>,
    withdrawn: Arc<Mutex<Option<Vec<usize>>>>,
}

impl Store for Counting {
    fn prepare(&mut self, manifest: &Arc<Manifest>) {
        self.content = vec![0; usize::try_from(manifest.content_bytes()).unwrap()];
        self.manifest = Some(Arc::clone(manifest));
        let held = RangeSet::new(1);
        self.events.push_back(StoreEvent::Prepared { held });
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> bool {
        let start = usize::try_from(offset).unwrap();
        self.content[start..start + bytes.len()].copy_from_slice(bytes);
        true
    }

    fn hash_slab(&mut self, slab: u32) -> bool {
        let at = self.manifest.as_ref().unwrap().slab(slab);
        let start = usize::try_from(at.start).unwrap();
        let mut hasher = at.hasher();
        hasher.update(&self.content[start..start + at.len as usize]);
        let hash = hasher.finish();
        self.events.push_back(StoreEvent::Hashed { slab, hash });
        true
    }

    fn commit(&mut self, withdrawn: &[usize]) {
        *self.withdrawn.lock().unwrap() = Some(withdrawn.to_vec());
        *self.committed.lock().unwrap() = Some(self.content.len());
        self.events.push_back(StoreEvent::Committed);
    }

    fn abandon(&mut self) {}

    fn poll_event(&mut self) -> Option<StoreEvent> {
        self.events.pop_front()
    }
}

#[test]
fn a_store_of_ones_own_gets_every_byte() {
    let tree = Tree::new("own");
    let committed = Arc::new(Mutex::new(None));
    let shared = Arc::clone(&committed);
    let target = Target::Own(Box::new(move |_sender, _offer| {
        let committed = Arc::clone(&shared);
        let store = Counting {
            committed,
            ..Counting::default()
        };
        Ok(Box::new(store))
    }));
    let mut receiver = FileReceiver::builder(session(3), target).open().unwrap();
    let mut sender = tree.sender(&session(3));
    run(&mut sender, &mut receiver).unwrap();
    assert!(sender.outcome().is_proven());
    assert_eq!(*committed.lock().unwrap(), Some(300_005));
}

#[test]
fn a_receiver_that_was_cancelled_is_not_done() {
    let tree = Tree::new("cancelled-phase");
    let files = MemoryFiles::new(1 << 20);
    // So slow that it is still under way.
    let slow = session(4).set("rate", "100kB/s").unwrap();
    let mut receiver = FileReceiver::builder(session(4), Target::Memory(files))
        .open()
        .unwrap();
    let mut sender = tree.sender(&slow);
    let end = Instant::now() + Duration::from_secs(20);
    let mut phase = None;
    while Instant::now() < end && phase != Some(towline::Phase::Failed) {
        sender.turn().unwrap();
        receiver.turn().unwrap();
        if let Some((number, progress)) = receiver.progress().first().copied() {
            if phase.is_none() && progress.numbers.held > 0 {
                receiver.cancel_transfer(number, "seen enough");
                phase = Some(progress.phase);
            } else if phase.is_some() {
                phase = Some(progress.phase);
            }
        } else if phase.is_some() {
            break;
        }
        assert_ne!(phase, Some(towline::Phase::Done));
    }
    assert!(phase.is_some(), "nothing arrived");
}
