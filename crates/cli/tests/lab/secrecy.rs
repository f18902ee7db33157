//! What somebody reads who records everything on the wire: with a key, nothing of content or names.
//!
//! Skipped, with the reason printed, where tcpdump is missing.

use std::{
    collections::BTreeSet, fs, os::unix::fs::PermissionsExt as _, path::Path, time::Duration,
};

use lab::{Host, Lab, LabSpec};

use crate::{
    addresses::groups,
    ends::{End, alone, towline},
    tshark::{is_there, record},
};

const LIMIT: Duration = Duration::from_secs(60);
/// As long as what nobody may find again.
const WINDOW: usize = 16;
const NAME: &str = "a receiver with a name of its own";
const FILE: &str = "the plans of the new machine.txt";

/// Text that no protocol has by chance.
fn text(seed: u32) -> String {
    let line = |n: u32| {
        format!(
            "line {n} of secret {seed} says {}\n",
            n.wrapping_mul(2_654_435_761)
        )
    };
    (0..2_000).map(line).collect()
}

/// Pieces of `secrets`, every one that begins anywhere, that stand in the recording.
fn found(recording: &Path, secrets: &[&str]) -> usize {
    let bytes = fs::read(recording).unwrap();
    let windows = secrets
        .iter()
        .flat_map(|secret| secret.as_bytes().windows(WINDOW));
    let pieces: BTreeSet<&[u8]> = windows.collect();
    let seen: BTreeSet<&[u8]> = bytes
        .windows(WINDOW)
        .filter(|piece| pieces.contains(piece))
        .collect();
    assert!(bytes.len() > 100_000, "{} bytes were recorded", bytes.len());
    seen.len()
}

/// Records a transfer of a file and messages of the same kind to a group, with these further words.
fn played(lab: &Lab, root: &Path, (source, group): &(String, String), more: &str) -> usize {
    let recording = root.join("all.pcap");
    drop(fs::remove_file(&recording));
    // A message is a line.
    let (file, said) = (text(1), text(2).replace('\n', "; "));
    fs::write(root.join(FILE), &file).unwrap();
    let recorder = record(lab.host(1), &recording, &["udp", "or", "tcp"]);
    let (from, to): (&Host, &Host) = (lab.host(0), lab.host(1));
    let directory = root.join("in").display().to_string();
    let mut command = towline(
        to,
        &format!("recv {directory} -g {source} --from any {more} --name"),
    );
    let receiver = End::start({
        command.arg(NAME);
        command
    });
    let mut command = towline(from, &format!("send -g {group} --receivers 1 {more}"));
    let sender = End::start({
        command.arg(root.join(FILE));
        command
    });
    assert!(sender.finish(LIMIT).0.success());
    assert!(receiver.finish(LIMIT).0.success());
    let arrived = fs::read_to_string(root.join("in").join(FILE)).unwrap();
    assert_eq!(arrived, file);
    fs::remove_dir_all(root.join("in")).unwrap();

    let listener = End::start(towline(
        to,
        &format!("sub -g {source} --once {more} --name {NAME_SHORT}"),
    ));
    let mut command = towline(from, &format!("pub -g {group} --receivers 1 {more}"));
    let publisher = End::start({
        command.arg(&said);
        command
    });
    assert!(publisher.finish(LIMIT).0.success());
    let (status, heard) = listener.finish_raw(LIMIT);
    assert!(status.success() && heard == format!("{said}\n").as_bytes());

    recorder.signal("-INT");
    recorder.finish(LIMIT);
    found(&recording, &[&file, &said, NAME, FILE, NAME_SHORT])
}

const NAME_SHORT: &str = "receiver-of-messages-9";

#[test]
fn a_recording_of_a_session_with_a_key_holds_nothing_of_content_or_names() {
    if !is_there("tcpdump") {
        println!("skipped: tcpdump is missing");
        return;
    }
    alone(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        let root = std::env::temp_dir().join(format!("towline-secrecy-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        let key = root.join("key");
        fs::write(&key, (100..=131).collect::<Vec<u8>>()).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        for group in groups(&lab) {
            let open = played(&lab, &root, &group, "");
            assert!(
                open > 50_000,
                "without a key, {open} pieces are there for all to read"
            );
            let hidden = played(
                &lab,
                &root,
                &group,
                &format!("--key-file {}", key.display()),
            );
            assert_eq!(hidden, 0, "pieces of content and names, to {}", group.1);
        }
        fs::remove_dir_all(&root).unwrap();
    });
}
