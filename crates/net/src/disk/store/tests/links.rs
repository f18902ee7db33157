//! Hard links: one file of a transfer under several names, and never a link to anything else.

use super::*;
use crate::TreeOptions;

fn linked() -> Arc<Manifest> {
    manifest(vec![
        Entry::directory("a"),
        Entry::file("a/one", 70_000),
        Entry::hard_link("a/two", "a/one"),
        Entry::directory("b"),
        Entry::hard_link("b/three", "a/one"),
        Entry::file("other", 0),
    ])
}

fn inode(path: PathBuf) -> u64 {
    let metadata = fs::symlink_metadata(&path);
    metadata
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        .ino()
}

/// Asserts that all three names are one file, which has no other name.
fn assert_linked(scratch: &Scratch, manifest: &Manifest) {
    assert_whole(&scratch.0, manifest);
    let one = inode(scratch.path("a/one"));
    assert_eq!(inode(scratch.path("a/two")), one);
    assert_eq!(inode(scratch.path("b/three")), one);
    assert_eq!(fs::metadata(scratch.path("a/one")).unwrap().nlink(), 3);
    assert!(!scratch.path(STAGING).exists());
}

/// Receives the missing content. Returns the last outcome, and the number of bytes sent.
fn receive(directory: &Path, existing: Existing, manifest: &Arc<Manifest>) -> (StoreEvent, u64) {
    let (store, held) = prepared(directory, existing, manifest);
    finish(store, manifest, held, 1000)
}

#[test]
fn names_of_one_file_arrive_as_names_of_one_file_and_again_nothing_changes() {
    let scratch = Scratch::new();
    let manifest = linked();
    let (event, sent) = receive(&scratch.0, Existing::Refuse, &manifest);
    assert_eq!((event, sent), (StoreEvent::Committed, 70_000));
    assert_linked(&scratch, &manifest);
    let before = inode(scratch.path("a/one"));

    let (event, sent) = receive(&scratch.0, Existing::SkipUnchanged, &manifest);
    assert_eq!((event, sent), (StoreEvent::Committed, 0));
    assert_linked(&scratch, &manifest);
    assert_eq!(inode(scratch.path("a/one")), before, "it was not touched");

    // A name that has become a file of its own, one that is missing, and one that is a link.
    fs::remove_file(scratch.path("a/two")).unwrap();
    fs::copy(scratch.path("a/one"), scratch.path("a/two")).unwrap();
    fs::remove_dir_all(scratch.path("b")).unwrap();
    let (event, sent) = receive(&scratch.0, Existing::SkipUnchanged, &manifest);
    assert_eq!((event, sent), (StoreEvent::Committed, 0));
    assert_linked(&scratch, &manifest);
    fs::remove_file(scratch.path("b/three")).unwrap();
    symlink("../other", scratch.path("b/three")).unwrap();
    let (event, _) = receive(&scratch.0, Existing::Replace, &manifest);
    assert_eq!(event, StoreEvent::Committed);
    assert_linked(&scratch, &manifest);
    assert_ne!(inode(scratch.path("a/one")), before, "it was replaced");
}

#[test]
fn what_stood_there_before_gets_no_name_and_loses_none_of_its_content() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("a")).unwrap();
    fs::write(scratch.path("mine"), "mine").unwrap();
    fs::hard_link(scratch.path("mine"), scratch.path("a/one")).unwrap();
    fs::hard_link(scratch.path("mine"), scratch.path("a/two")).unwrap();
    let manifest = linked();
    let mut store = open(&scratch.0, Existing::Refuse);
    store.prepare(&manifest);
    assert_eq!(failure(outcome(&mut store)).0, ErrorCode::Exists);
    drop(store);
    for existing in [Existing::Replace, Existing::SkipUnchanged] {
        let (event, _) = receive(&scratch.0, existing, &manifest);
        assert_eq!(event, StoreEvent::Committed);
        assert_linked(&scratch, &manifest);
        assert_eq!(fs::read(scratch.path("mine")).unwrap(), b"mine");
        assert_eq!(fs::metadata(scratch.path("mine")).unwrap().nlink(), 1);
    }
    // A free name for the file, and a taken one for its link.
    let second = Scratch::new();
    fs::create_dir(second.path("b")).unwrap();
    fs::write(second.path("b/three"), "mine").unwrap();
    let mut store = open(&second.0, Existing::Refuse);
    store.prepare(&manifest);
    assert_eq!(failure(outcome(&mut store)).0, ErrorCode::Exists);
    assert_eq!(fs::read(second.path("b/three")).unwrap(), b"mine");
}

#[test]
fn a_link_in_place_of_the_file_leads_nowhere() {
    let scratch = Scratch::new();
    let (inside, outside) = (scratch.path("in"), scratch.path("out"));
    fs::create_dir_all(inside.join("a")).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("canary"), "alive").unwrap();
    symlink(outside.join("canary"), inside.join("a/one")).unwrap();
    symlink(&outside, inside.join("b")).unwrap();
    let manifest = linked();
    for existing in [Existing::Refuse, Existing::Replace, Existing::SkipUnchanged] {
        let mut store = open(&inside, existing);
        failure(deliver(&mut store, &manifest, 1000));
    }
    fs::remove_file(inside.join("b")).unwrap();
    let (event, _) = receive(&inside, Existing::SkipUnchanged, &manifest);
    assert_eq!(event, StoreEvent::Committed);
    assert_eq!(inode(inside.join("b/three")), inode(inside.join("a/one")));
    assert_eq!(fs::read(outside.join("canary")).unwrap(), b"alive");
    assert_eq!(fs::metadata(outside.join("canary")).unwrap().nlink(), 1);
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
}

#[test]
fn a_withdrawn_file_gets_none_of_its_names() {
    let scratch = Scratch::new();
    let manifest = linked();
    fs::create_dir(scratch.path("b")).unwrap();
    fs::write(scratch.path("b/three"), "older").unwrap();
    let (mut store, _) = prepared(&scratch.0, Existing::Replace, &manifest);
    write(&mut store, 0, &content(&manifest));
    store.commit(&[0]);
    assert_eq!(outcome(&mut store), StoreEvent::Committed);
    drop(store);
    assert!(!scratch.path("a/one").exists() && !scratch.path("a/two").exists());
    assert_eq!(fs::read(scratch.path("b/three")).unwrap(), b"older");
    assert!(scratch.path("other").exists());
}

#[test]
fn links_that_cannot_be_made_are_an_error_and_the_next_attempt_goes_on() {
    let scratch = Scratch::new();
    let manifest = linked();
    let fault = |call, after, errno| DiskFault { call, after, errno };
    // The second link is refused; then the third rename, when one of the names may be given.
    let eperm = fault(DiskCall::MakeLink, 1, 1);
    let eio = fault(DiskCall::Rename, 2, 5);
    for (fault, word) in [
        (eperm, "send without hard links"),
        (eio, "input/output error"),
    ] {
        let options = StoreOptions {
            fault: Some(fault),
            ..StoreOptions::default()
        };
        let mut store = FileStore::new(&scratch.0, options);
        store.prepare(&manifest);
        let StoreEvent::Prepared { held } = outcome(&mut store) else {
            panic!("it does not prepare");
        };
        let (event, _) = finish(store, &manifest, held, 1000);
        let (_, text) = failure(event);
        assert!(text.to_lowercase().contains(word), "{text}");
    }
    let (event, sent) = receive(&scratch.0, Existing::Refuse, &manifest);
    assert_eq!((event, sent), (StoreEvent::Committed, 0));
    assert_linked(&scratch, &manifest);
}

#[test]
fn a_walk_finds_the_names_of_a_file_also_below_another_source() {
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.path("t/z")).unwrap();
    fs::write(scratch.path("t/z/file"), "content").unwrap();
    fs::hard_link(scratch.path("t/z/file"), scratch.path("t/z.name")).unwrap();
    fs::hard_link(scratch.path("t/z/file"), scratch.path("u")).unwrap();
    fs::hard_link(scratch.path("t/z/file"), scratch.path("elsewhere")).unwrap();
    fs::write(scratch.path("v"), "content").unwrap();
    let read = |hard_links| {
        let sources = ["u", "t", "v"].map(|name| crate::TreeSource::Path(scratch.path(name)));
        let options = TreeOptions {
            hard_links,
            ..TreeOptions::default()
        };
        Tree::select(sources.into(), options, |_, _| true).unwrap()
    };
    let without = read(false).manifest;
    assert_eq!((without.files().len(), without.bytes()[4]), (4, 1));
    let tree = read(true);
    assert_eq!(tree.manifest.bytes()[4], 2);
    let names: Vec<_> = tree.manifest.paths_of(0).collect();
    // `z/` comes before `z.`: the order is that of a manifest.
    assert_eq!(names, [&b"t/z/file"[..], b"t/z.name", b"u"]);
    assert_eq!(tree.manifest.content_bytes(), 14);
    // Without hard links the manifest has version 1, which older receivers take.
    fs::remove_file(scratch.path("u")).unwrap();
    fs::remove_file(scratch.path("t/z.name")).unwrap();
    fs::write(scratch.path("u"), "content").unwrap();
    assert_eq!(read(true).manifest.bytes()[4], 1);
}
