//! Tests which manifests are made, and which are refused.

use proptest::prelude::*;
use wire::object::Mtime;

use super::*;

const ME: [u8; 16] = [1; 16];

fn build(entries: Vec<Entry>) -> Result<Manifest, ManifestError> {
    Manifest::build(ME, entries, &ManifestLimits::default())
}

fn fault(entries: Vec<Entry>) -> PathFault {
    match build(entries) {
        Err(ManifestError::Path { fault, .. }) => fault,
        other => panic!("no path fault but {other:?}"),
    }
}

fn sample() -> Manifest {
    build(vec![
        Entry::file("d/b", 3 << 20),
        Entry::file("a", 5),
        Entry::directory("d"),
        Entry::file("d-e", 0),
        Entry::file("d/a", 0),
        Entry::symlink("d/l", "../a"),
        Entry::file("z", 1),
    ])
    .unwrap()
}

#[test]
fn content_is_the_files_in_depth_first_order() {
    let manifest = sample();
    let paths: Vec<_> = manifest
        .entries()
        .map(|e| String::from_utf8(e.path.to_vec()).unwrap())
        .collect();
    assert_eq!(paths, ["a", "d", "d/a", "d/b", "d/l", "d-e", "z"]);
    let starts: Vec<_> = manifest
        .files()
        .iter()
        .map(|f| (f.start, f.size_bytes, f.first_slab))
        .collect();
    let mib = 1 << 20;
    assert_eq!(
        starts,
        [
            (0, 5, 0),
            (5, 0, 1),
            (5, 3 * mib, 1),
            (5 + 3 * mib, 0, 4),
            (5 + 3 * mib, 1, 4)
        ]
    );
    assert_eq!(
        (manifest.slab_count(), manifest.content_bytes()),
        (5, 6 + 3 * mib)
    );
    let slab = manifest.slab_at(5 + mib);
    assert_eq!((slab.index, slab.file_offset, slab.len), (2, mib, 1 << 20));
    assert!(!slab.is_whole_file && manifest.slab(0).is_whole_file);
    let pieces: Vec<_> = manifest.pieces(3..6 + 3 * mib).collect();
    assert_eq!(
        pieces,
        [
            (0, 3, 3..5),
            (2, 0, 5..5 + 3 * mib),
            (4, 0, 5 + 3 * mib..6 + 3 * mib)
        ]
    );
}

#[test]
fn slabs_tile_the_content() {
    let manifest = sample();
    let mut at = 0;
    for index in 0..manifest.slab_count() {
        let slab = manifest.slab(index);
        assert_eq!(slab.start, at);
        assert_eq!(manifest.slab_at(at), slab);
        at = slab.range().end;
        assert_eq!(manifest.slab_at(at - 1), slab);
    }
    assert_eq!(at, manifest.content_bytes());
}

#[test]
fn a_manifest_gives_the_same_plan_again() {
    let manifest = sample();
    let again =
        Manifest::from_bytes(manifest.bytes().to_vec(), &ManifestLimits::default()).unwrap();
    assert_eq!(again.id(), manifest.id());
    assert_eq!(again.files(), manifest.files());
    let mut other = manifest.bytes().to_vec();
    *other.last_mut().unwrap() ^= 1;
    assert_ne!(Manifest::id_of(&other), manifest.id());
}

#[test]
fn the_id_depends_on_the_sender_and_the_tree_only() {
    let tree = || vec![Entry::file("b", 1), Entry::file("a", 2)];
    let limits = ManifestLimits::default();
    let manifest = Manifest::build(ME, tree(), &limits).unwrap();
    let shuffled = Manifest::build(ME, tree().into_iter().rev().collect(), &limits).unwrap();
    assert_eq!(manifest.id(), shuffled.id());
    assert_ne!(
        manifest.id(),
        Manifest::build([2; 16], tree(), &limits).unwrap().id()
    );
}

#[test]
fn forbidden_names_are_refused() {
    let long = "x".repeat(256);
    let deep = vec!["d"; 300].join("/");
    let cases = [
        ("", PathFault::Empty),
        ("/etc/passwd", PathFault::Absolute),
        ("a//b", PathFault::Empty),
        ("a/", PathFault::Empty),
        ("..", PathFault::Dots),
        ("../a", PathFault::Dots),
        ("a/../b", PathFault::Dots),
        (".", PathFault::Dots),
        ("a\0b", PathFault::Nul),
        (long.as_str(), PathFault::NameTooLong),
        (deep.as_str(), PathFault::TooDeep),
        (".towline", PathFault::Reserved),
        (".towline/x", PathFault::Reserved),
        ("x/y", PathFault::Parent),
    ];
    for (path, expected) in cases {
        assert_eq!(fault(vec![Entry::file(path, 1)]), expected, "{path:?}");
    }
}

#[test]
fn trees_that_are_none_are_refused() {
    let twice = vec![Entry::file("a", 1), Entry::file("a", 1)];
    assert_eq!(fault(twice), PathFault::Duplicate);
    let kinds = vec![Entry::file("a", 1), Entry::directory("a")];
    assert_eq!(fault(kinds), PathFault::Duplicate);
    let below_file = vec![Entry::file("a", 1), Entry::file("a/b", 1)];
    assert_eq!(fault(below_file), PathFault::Parent);
    let below_link = vec![Entry::symlink("a", "b"), Entry::file("a/b", 1)];
    assert_eq!(fault(below_link), PathFault::Parent);
    let mut sized = Entry::directory("d");
    sized.size_bytes = 1;
    assert_eq!(fault(vec![sized]), PathFault::Size);
    let mut aimed = Entry::file("f", 0);
    aimed.target = b"x".to_vec();
    assert_eq!(fault(vec![aimed]), PathFault::Target);
    assert_eq!(fault(vec![Entry::symlink("l", "")]), PathFault::NoTarget);
}

#[test]
fn links_stay_inside() {
    let tree = |target: &str| {
        vec![
            Entry::directory("d"),
            Entry::directory("d/e"),
            Entry::symlink("d/e/l", target),
        ]
    };
    for target in ["x", "../x", "../../x", "./x", "../../", "x/y//z", "."] {
        assert!(build(tree(target)).is_ok(), "{target}");
    }
    for target in [
        "/x",
        "../../../x",
        "x/../y",
        "x/..",
        "../x/../../..",
        "x/./..",
    ] {
        assert_eq!(fault(tree(target)), PathFault::LinkOut, "{target}");
    }
    assert_eq!(fault(tree("a\0b")), PathFault::TargetNul);
    for target in ["../../.towline", ".././../.towline/x"] {
        assert_eq!(fault(tree(target)), PathFault::LinkReserved, "{target}");
    }
    assert!(build(tree("../.towline")).is_ok(), "d/.towline is nobody's");
    let link = vec![Entry::symlink("l", "./.towline")];
    assert_eq!(fault(link), PathFault::LinkReserved);
}

fn linked() -> Vec<Entry> {
    vec![
        Entry::directory("d"),
        Entry::file("d/one", 5),
        Entry::hard_link("d/two", "d/one"),
        Entry::file("e", 0),
        Entry::hard_link("z", "d/one"),
    ]
}

#[test]
fn a_hard_link_to_a_path_with_a_nul_byte_for_its_slash_is_refused() {
    let entries = |target| {
        vec![
            Entry::directory("d"),
            Entry::file("d/one", 5),
            Entry::hard_link("d/two", target),
        ]
    };
    assert!(build(entries("d/one")).is_ok());
    assert!(build(entries("d\0one")).is_err());
    let manifest = build(entries("d/one")).unwrap();
    assert_eq!(manifest.file_called(b"d/one"), Some(0));
    assert_eq!(manifest.file_called(b"d\0one"), None);
}

#[test]
fn hard_links_are_further_names_of_a_file_and_have_its_sum() {
    let manifest = build(linked()).unwrap();
    let paths = |file| manifest.paths_of(file).collect::<Vec<_>>();
    assert_eq!(paths(0), [&b"d/one"[..], b"d/two", b"z"]);
    assert_eq!(paths(1), [b"e"]);
    assert_eq!((manifest.files().len(), manifest.content_bytes()), (2, 5));
    let mut hashes = SlabHashes::unknown(&manifest);
    let mut hasher = manifest.slab(0).hasher();
    hasher.update(b"hello");
    hashes.set(&manifest.slab(0), &hasher.finish());
    let roots: Vec<_> = manifest.file_roots(&hashes).collect();
    let (hello, empty) = (hash_bytes(b"hello"), hash_bytes(b""));
    let expected = [
        (&b"d/one"[..], hello),
        (b"d/two", hello),
        (b"z", hello),
        (b"e", empty),
    ];
    assert_eq!(roots, expected);
    let mut lines = Vec::new();
    for path in ["d/one", "d/two", "e", "z"] {
        let root = if path == "e" { &empty } else { &hello };
        write_sum_line(&mut lines, root, path.as_bytes());
    }
    assert_eq!(manifest.tree_root(&hashes), hash_bytes(&lines));
    // A file that is withdrawn is so under all of its names.
    hashes.withdraw(&manifest, 0);
    let roots: Vec<_> = manifest.file_roots(&hashes).collect();
    assert_eq!(roots, [(&b"e"[..], empty)]);
}

#[test]
fn a_hard_link_is_to_an_earlier_file_of_the_transfer_and_says_nothing_else() {
    let with = |link: Entry| {
        let mut entries = linked();
        entries.push(Entry::symlink("l", "e"));
        entries.push(link);
        fault(entries)
    };
    // Later, itself, nowhere, outside, or no file.
    for (path, target) in [
        ("a", "d/one"),
        ("y", "y"),
        ("y", "x"),
        ("y", "../e"),
        ("y", "/etc/passwd"),
        ("y", "d"),
        ("y", "l"),
        ("y", "d/two"),
    ] {
        let link = Entry::hard_link(path, target);
        assert_eq!(with(link), PathFault::HardLink, "{path} to {target}");
    }
    assert_eq!(with(Entry::hard_link("y", "")), PathFault::NoTarget);
    let mut link = Entry::hard_link("y", "e");
    link.mode = 0o644;
    assert_eq!(with(link.clone()), PathFault::Attributes);
    (link.mode, link.mtime.seconds) = (0, 1);
    assert_eq!(with(link.clone()), PathFault::Attributes);
    (link.mtime.seconds, link.size_bytes) = (0, 1);
    assert_eq!(with(link), PathFault::Size);
}

#[test]
fn owners_are_those_of_the_entries_and_hard_links_have_none() {
    let owned = |entry: Entry, user, group| Entry {
        owner: Some(Owner { user, group }),
        ..entry
    };
    let entries = || {
        vec![
            owned(Entry::file("b", 1), 7, 9),
            owned(Entry::file("a", 1), 1000, 9),
            Entry::hard_link("c", "a"),
        ]
    };
    let mut names = OwnerNames::default();
    names.users.insert(7, b"ann".to_vec());
    names.users.insert(8, b"nobody's".to_vec());
    names.groups.insert(9, b"not:a:name".to_vec());
    let limits = ManifestLimits::default();
    let made = |entries| Manifest::build_with(0, &names, ME, entries, &limits);
    let manifest = made(entries()).unwrap();
    let owners = manifest.sections().owners.unwrap();
    let users: Vec<_> = owners.users().map(|it| (it.number, it.name)).collect();
    assert_eq!(users, [(7, &b"ann"[..]), (1000, b"")]);
    let groups: Vec<_> = owners.groups().map(|it| (it.number, it.name)).collect();
    assert_eq!(groups, [(9, &b""[..])]);
    assert_eq!(
        [0, 1, 2].map(|entry| owners.of(entry)),
        [(1, 0), (0, 0), (0, 0)]
    );
    // A hard link that has one.
    let mut bytes = manifest.bytes().to_vec();
    let last = bytes.len() - 3;
    bytes[last] = 1;
    let error = Manifest::from_bytes(bytes, &limits).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("\"c\": a hard link must not have an owner"),
        "{error}"
    );
    // Only some.
    let mut some = entries();
    some[0].owner = None;
    assert!(matches!(made(some), Err(ManifestError::Owners(_))));
    assert_eq!(build(linked()).unwrap().sections().owners, None);
}

#[test]
fn attributes_are_those_of_the_entries_and_links_have_none() {
    let attribute = |name: &str, value: &str| Attribute {
        name: name.into(),
        value: value.into(),
    };
    let with = |entry: Entry, attributes: &[Attribute]| Entry {
        attributes: Some(attributes.to_vec()),
        ..entry
    };
    let pair = [attribute("user.b", "2"), attribute("user.a", "1")];
    let entries = || {
        vec![
            with(Entry::file("c", 1), &pair),
            with(Entry::directory("a"), &pair[..1]),
            with(Entry::file("b", 1), &pair),
            with(Entry::symlink("d", "c"), &[]),
            Entry::hard_link("e", "b"),
        ]
    };
    let manifest = build(entries()).unwrap();
    let attributes = manifest.sections().attributes.unwrap();
    // Numbered by first use, in the manifest's order.
    assert_eq!(
        [0, 1, 2, 3, 4].map(|entry| attributes.of(entry)),
        [1, 2, 2, 0, 0]
    );
    let sets: Vec<Vec<_>> = attributes
        .sets()
        .map(|set| set.map(|it| (it.name, it.value)).collect())
        .collect();
    assert_eq!(sets[0], [(&b"user.b"[..], &b"2"[..])]);
    assert_eq!(sets[1], [(&b"user.a"[..], &b"1"[..]), (b"user.b", b"2")]);
    // None at all is said, too: then the version is 2 although there are none.
    let none = build(vec![with(Entry::file("a", 1), &[])]).unwrap();
    assert_eq!(none.sections().attributes.unwrap().sets().count(), 0);
    assert_eq!(build(linked()).unwrap().sections().attributes, None);
    // Bytes that give a link some, at the last and at the last but one entry.
    for (back, path) in [(1, "\"e\""), (5, "\"d\"")] {
        let mut bytes = manifest.bytes().to_vec();
        let at = bytes.len() - back;
        bytes[at] = 1;
        let error = Manifest::from_bytes(bytes, &ManifestLimits::default()).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains(path) && text.contains("extended attributes"),
            "{text}"
        );
    }
    let long = "x".repeat(65_537);
    for wrong in [
        with(Entry::symlink("d", "c"), &pair),
        with(Entry::file("d", 1), &[attribute("", "1")]),
        with(Entry::file("d", 1), &[attribute("user.\0", "1")]),
        with(Entry::file("d", 1), &[attribute("user.a", &long)]),
        with(
            Entry::file("d", 1),
            &[attribute("user.a", "1"), attribute("user.a", "2")],
        ),
    ] {
        let error = build(vec![wrong]).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("\"d\"") && text.contains("extended attribute"),
            "{text}"
        );
    }
}

#[test]
fn attributes_have_a_bound_in_all() {
    let value = vec![0; 65_536];
    let entries = (0..260).map(|number| Entry {
        attributes: Some(vec![Attribute {
            name: format!("user.{number}").into_bytes(),
            value: value.clone(),
        }]),
        ..Entry::file(&format!("{number:03}"), 1)
    });
    let error = build(entries.collect()).unwrap_err();
    assert!(error.to_string().contains("16 MiB"), "{error}");
    // Files that have the same ones share them.
    let entries = (0..260).map(|number| Entry {
        attributes: Some(vec![Attribute {
            name: b"user.same".to_vec(),
            value: value.clone(),
        }]),
        ..Entry::file(&format!("{number:03}"), 1)
    });
    let manifest = build(entries.collect()).unwrap();
    assert!(manifest.bytes().len() < 100_000);
}

#[test]
fn a_newer_manifest_is_refused_with_what_to_do() {
    let mut bytes = build(linked()).unwrap().bytes().to_vec();
    bytes[4] = 3;
    let error = Manifest::from_bytes(bytes, &ManifestLimits::default()).unwrap_err();
    let (version, known) = (3, 2);
    assert_eq!(error, ManifestError::Version { version, known });
    assert!(error.to_string().contains("update the receiver"), "{error}");
}

#[test]
fn sizes_and_counts_are_bounded() {
    let half = 1 << 62;
    let error = build(vec![Entry::file("a", half), Entry::file("b", half)]).unwrap_err();
    assert!(matches!(
        error,
        ManifestError::TooManySlabs { .. } | ManifestError::ContentTooLong
    ));
    let error = build(vec![Entry::file("a", u64::MAX), Entry::file("b", 1)]).unwrap_err();
    assert_eq!(error, ManifestError::ContentTooLong);
    let limits = ManifestLimits {
        entries_max: 3,
        manifest_bytes_max: 200,
        slabs_max: 4,
    };
    let files = |count: usize, size| {
        (0..count)
            .map(|n| Entry::file(&n.to_string(), size))
            .collect()
    };
    let built = |count, size| Manifest::build(ME, files(count, size), &limits);
    assert!(built(3, 1).is_ok());
    assert!(matches!(
        built(4, 1),
        Err(ManifestError::TooManyEntries { .. })
    ));
    let long = vec![Entry::file(&"x".repeat(200), 1)];
    let error = Manifest::build(ME, long, &limits).unwrap_err();
    assert!(matches!(error, ManifestError::ManifestTooLong { .. }));
    let larger = built(1, 9 << 20).unwrap();
    assert_eq!(
        (larger.slab_bytes(), larger.slab_count()),
        (4 << 20, 3),
        "slabs grow"
    );
}

#[test]
fn a_header_that_lies_about_the_content_is_refused() {
    let mut manifest = sample().bytes().to_vec();
    manifest[23] ^= 1;
    let error = Manifest::from_bytes(manifest, &ManifestLimits::default()).unwrap_err();
    assert!(matches!(error, ManifestError::ContentMismatch { .. }));
}

#[test]
fn witnesses_merge_into_what_the_whole_file_hashes_to() {
    let mib = 1_usize << 20;
    for size in [
        0,
        1,
        1024,
        mib - 1,
        mib,
        mib + 1,
        2 * mib,
        3 * mib + 17,
        5 * mib,
        8 * mib - 1,
    ] {
        let data: Vec<u8> = (0..size).map(|at| (at * 31 + at / 997) as u8).collect();
        let manifest = build(vec![Entry::file("pad", 7), Entry::file("x", size as u64)]).unwrap();
        let mut hashes = SlabHashes::unknown(&manifest);
        let first = manifest.files()[1].first_slab;
        for index in first..manifest.slab_count() {
            let slab = manifest.slab(index);
            let from = usize::try_from(slab.file_offset).unwrap();
            let mut hasher = slab.hasher();
            for piece in data[from..from + slab.len as usize].chunks(100_000) {
                hasher.update(piece);
            }
            hashes.set(&slab, &hasher.finish());
        }
        assert_eq!(
            manifest.root_of(1, &hashes),
            hash_bytes(&data),
            "{size} bytes"
        );
    }
}

proptest! {
    #[test]
    fn hostile_manifests_never_panic_and_never_pass_a_bad_path(
        flips in proptest::collection::vec((0..400_usize, any::<u8>()), 1..8),
    ) {
        let mut manifest = match flips.len() % 2 {
            0 => sample().bytes().to_vec(),
            _ => build(linked()).unwrap().bytes().to_vec(),
        };
        for (at, value) in flips {
            let len = manifest.len();
            manifest[at % len] = value;
        }
        if let Ok(manifest) = Manifest::from_bytes(manifest, &ManifestLimits::default()) {
            for entry in manifest.entries() {
                prop_assert!(!entry.path.starts_with(b"/"));
                prop_assert!(entry.path.split(|&b| b == b'/').all(|n| n != b".." && !n.is_empty()));
            }
            let sum: u64 = manifest.files().iter().map(|file| file.size_bytes).sum();
            prop_assert_eq!(sum, manifest.content_bytes());
            for link in manifest.hard_links() {
                let file = manifest.files()[link.file as usize];
                prop_assert!(file.entry < link.entry);
                let link = manifest.entry(link.entry as usize);
                prop_assert_eq!(link.target, manifest.path_of(&file));
            }
        }
    }

    #[test]
    fn entries_survive_the_manifest(
        names in proptest::collection::btree_set("[a-c]{1,3}", 1..10),
        seconds in any::<i64>(),
    ) {
        let entries: Vec<_> = names.iter().map(|name| {
            let mut entry = Entry::file(name, name.len() as u64);
            entry.mtime = Mtime { seconds, nanoseconds: 7 };
            entry
        }).collect();
        let manifest = build(entries.clone()).unwrap();
        let read: Vec<_> = manifest.entries().collect();
        let mut sorted = entries;
        sorted.sort_by(|a, b| path_order(&a.path, &b.path));
        prop_assert_eq!(read, sorted.iter().map(Entry::as_ref).collect::<Vec<_>>());
    }
}
