//! Files that the sender could not read: they get no name, and an older file of that name stays.

use std::{fs::Permissions, os::unix::fs::PermissionsExt as _};

use wire::object::ManifestHeader;

use super::*;

#[test]
fn what_is_withdrawn_is_not_put_in_place_and_the_rest_is() {
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.path("d")).unwrap();
    fs::write(scratch.path("d/old"), "older").unwrap();
    let entries = vec![
        Entry::directory("d"),
        Entry::file("d/new", 5),
        Entry::file("d/old", 200_000),
        Entry::directory("e"),
        Entry::file("e/f", 3),
        Entry::file("e/large", 200_000),
    ];
    let manifest = manifest(entries);
    let (mut store, _) = prepared(&scratch.0, Existing::Replace, &manifest);
    write(&mut store, 0, &content(&manifest)[..200_008]);
    // The others: a part of `e/large` came, and all of `d/old`.
    write(&mut store, 200_008, &[1; 1000]);
    store.commit(&[1, 3]);
    assert_eq!(outcome(&mut store), StoreEvent::Committed);
    drop(store);
    assert_eq!(fs::read(scratch.path("d/new")).unwrap().len(), 5);
    assert_eq!(fs::read(scratch.path("d/old")).unwrap(), b"older");
    let names = fs::read_dir(scratch.path("e")).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["f"]);
    assert!(!scratch.path(STAGING).exists());
}

#[test]
fn what_vanishes_while_it_is_looked_for_is_skipped_where_that_is_allowed() {
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.path("tree/gone")).unwrap();
    fs::write(scratch.path("tree/kept"), "kept").unwrap();
    let read = |may_skip| {
        let source = crate::TreeSource::Path(scratch.path("tree"));
        let options = crate::TreeOptions {
            may_skip,
            ..crate::TreeOptions::default()
        };
        Tree::select(vec![source], options, |path, _| {
            if path.ends_with("gone") {
                drop(fs::remove_dir(scratch.path("tree/gone")));
            }
            true
        })
    };
    let tree = read(true).unwrap();
    let paths: Vec<_> = tree.manifest.entries().map(|entry| entry.path).collect();
    assert_eq!(paths, [&b"tree"[..], b"tree/kept"]);
    assert_eq!(tree.unsent.len(), 1);
    assert_eq!(tree.unsent[0].path, b"tree/gone");
    assert!(
        tree.unsent[0].text.contains("tree/gone"),
        "{:?}",
        tree.unsent
    );
    assert!(tree.manifest.has_flag(ManifestHeader::INCOMPLETE));
    fs::create_dir(scratch.path("tree/gone")).unwrap();
    let refused = read(false).unwrap_err().to_string();
    assert!(refused.contains("tree/gone"), "{refused}");
}

#[test]
fn a_file_that_cannot_be_read_is_announced_where_it_may_be_left_out() {
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.path("tree")).unwrap();
    fs::write(scratch.path("tree/kept"), "kept").unwrap();
    let closed = scratch.path("tree/closed");
    let read = |may_skip| {
        fs::write(&closed, "closed").unwrap();
        fs::set_permissions(&closed, Permissions::from_mode(0o000)).unwrap();
        let source = crate::TreeSource::Path(scratch.path("tree"));
        let options = crate::TreeOptions {
            may_skip,
            ..crate::TreeOptions::default()
        };
        Tree::select(vec![source], options, |path, _| {
            // The file is removed, because its mode alone would not keep a superuser from reading
            // it.
            if path.ends_with("closed") {
                fs::remove_file(&closed).unwrap();
            }
            true
        })
    };
    let tree = read(true).unwrap();
    let files: Vec<_> = tree.manifest.files().iter().collect();
    let paths: Vec<_> = files
        .iter()
        .map(|file| tree.manifest.path_of(file))
        .collect();
    assert_eq!(paths, [&b"tree/closed"[..], b"tree/kept"]);
    assert_eq!(tree.unsent.len(), 1, "{:?}", tree.unsent);
    assert_eq!(tree.unsent[0].path, b"tree/closed");
    // All that is there has a name in the manifest.
    assert!(!tree.manifest.has_flag(ManifestHeader::INCOMPLETE));
    let refused = read(false).unwrap_err().to_string();
    assert!(refused.contains("tree/closed"), "{refused}");
}
