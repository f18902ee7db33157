use std::{
    fs, io,
    os::unix::{fs::PermissionsExt as _, net::UnixListener},
    path::{Path, PathBuf},
};

use super::{CounterServer, client, declared, directory};

base::counters! {
    /// What these tests count.
    struct TestCounters: "test" {
        sent_packets: Packets, "packets that left";
        held_bytes: Bytes, "bytes that did not";
    }
}

/// A directory of this test alone, gone when the test ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tl-{}-{name}", std::process::id()));
        drop(fs::remove_dir_all(&path));
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

#[test]
fn another_process_reads_what_a_session_published() {
    let scratch = Scratch::new("read");
    let pid = std::process::id();
    let server = CounterServer::start_in(&scratch.0, "towline pub").unwrap();
    let slot = server.slot("publisher", "239.192.0.1:7500");
    let counters = TestCounters {
        sent_packets: 7,
        held_bytes: 9,
    };
    assert!(slot.publish(|snapshot| snapshot.add(&counters)));
    slot.rename("239.192.0.1:7500 from 1.2.3");

    assert_eq!(client::processes_in(&scratch.0).unwrap(), [pid]);
    let document = client::read_in(&scratch.0, pid).unwrap();
    assert_eq!(
        (document.command.as_str(), document.sessions.len()),
        ("towline pub", 1)
    );
    let session = &document.sessions[0];
    assert_eq!(session.name, "239.192.0.1:7500 from 1.2.3");
    assert_eq!(session.value_of("sent_packets"), Some(7));
    assert_eq!(session.value_of("test.held_bytes"), Some(9));
    assert_eq!(session.value_of("other.held_bytes"), None);

    drop(slot);
    assert!(
        client::read_in(&scratch.0, pid)
            .unwrap()
            .sessions
            .is_empty()
    );
    drop(server);
    let error = client::read_in(&scratch.0, pid).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}

#[test]
fn what_a_dead_process_left_is_cleared_away() {
    let scratch = Scratch::new("stale");
    directory::create(&scratch.0).unwrap();
    let path = directory::socket(&scratch.0, 1);
    drop(UnixListener::bind(&path).unwrap());
    assert!(client::processes_in(&scratch.0).unwrap().is_empty());
    assert!(!path.exists());
}

#[test]
fn a_directory_open_to_others_is_closed_and_a_link_is_refused() {
    let scratch = Scratch::new("mode");
    fs::create_dir(&scratch.0).unwrap();
    fs::set_permissions(&scratch.0, fs::Permissions::from_mode(0o755)).unwrap();
    directory::create(&scratch.0).unwrap();
    let mode = fs::metadata(&scratch.0).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);

    let link = scratch.0.join("link");
    std::os::unix::fs::symlink(&scratch.0, &link).unwrap();
    let error = directory::create(&link).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
}

#[test]
fn every_set_of_the_product_is_declared_once_in_the_reference() {
    let names: Vec<&str> = declared().iter().map(|(name, _)| *name).collect();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = Vec::new();
    collect_sets(&crates, &mut found);
    assert!(found.len() > 5, "the search is broken: {found:?}");
    for name in found {
        let count = names.iter().filter(|&&listed| listed == name).count();
        assert_eq!(count, 1, "counters::declared() names {name} {count} times");
    }
}

/// Collects the names of the public sets that `counters!` declares beneath `directory`. The sets of
/// tests are not public, and those of examples are in comments.
fn collect_sets(directory: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(directory).expect("a directory of the workspace") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect_sets(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("a source file");
            for line in text.lines().map(str::trim) {
                let Some(declared) = line.strip_prefix("pub struct ") else {
                    continue;
                };
                // The rest of the line is `Name: "set" {`, with more behind the brace in some
                // files.
                let mut quoted = declared.split('"');
                if quoted
                    .next()
                    .is_some_and(|name| name.ends_with("Counters: "))
                {
                    found.extend(quoted.next().map(str::to_owned));
                }
            }
        }
    }
}
