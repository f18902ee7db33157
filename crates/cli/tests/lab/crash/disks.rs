//! Disks that are full or not to be written, files that are there already or change meanwhile.

use std::{fs, os::unix::fs::FileExt as _, path::Path, process::Command, sync::Arc};

use lab::{Access, Disk, isolated};

use super::{
    scene::{Scene, assert_failed, ended, row},
    watch::Watch,
};
use crate::ends::End;

/// Two receivers, the first on a disk of 4 MiB that `spoil` is called for once it waits: it fails
/// for the reason in `words`, before anything is sent, and leaves nothing.
fn on_a_bad_disk(name: &str, words: &[&str], spoil: impl FnOnce(&Path) + Send) {
    let scene = Scene::new(name, 2, 16);
    let directory = scene.directory(1);
    fs::create_dir_all(&directory).unwrap();
    let disk = Arc::new(Disk::new(&directory, 4 << 20, Access::ReadWrite).unwrap());
    let tree = scene.root.join("tree");
    let watches = vec![
        Watch::start(&tree, &directory, Some(Arc::clone(&disk))),
        scene.watch(2),
    ];
    let mut command = scene.receiving(1, "");
    disk.give_to(&mut command);
    let victim = End::start(command);
    let other = scene.receive_all_from(2..3).remove(0);
    disk.enter(|| spoil(&directory)).unwrap();
    let end = ended(scene.send("--receivers 2"));
    let said = assert_failed(&end, 1, words);
    assert_eq!(said, 0, "room is taken before anything is sent");
    assert_eq!(row(&end.1, 2)["state"], "proven", "{:#}", end.1);
    let (code, report) = ended(victim);
    assert_eq!(code, Some(1), "{report:#}");
    let error = report["error"].as_str().unwrap();
    assert!(words.iter().all(|word| error.contains(word)), "{error}");
    assert_eq!(ended(other).0, Some(0));
    scene.assert_whole(2);
    let left = disk.enter(|| fs::read_dir(&directory).unwrap().count());
    assert_eq!(left.unwrap(), 0, "nothing is left on the disk");
    Watch::finish_all(watches);
}

#[test]
fn a_full_disk_is_named_before_anything_is_sent_to_it() {
    isolated(|| {
        let words = ["16847217 bytes in 3 files are needed", "make room"];
        on_a_bad_disk("full", &words, |_| {});
    });
}

#[test]
fn a_disk_that_becomes_read_only_is_named() {
    isolated(|| {
        let words = ["Read-only file system", "may write"];
        on_a_bad_disk("read-only", &words, |directory| {
            let mut mount = Command::new("mount");
            mount.args(["-o", "remount,bind,ro"]).arg(directory);
            assert!(mount.status().unwrap().success());
        });
    });
}

#[test]
fn a_directory_that_cannot_be_written_is_said_before_anybody_is_waited_for() {
    isolated(|| {
        let scene = Scene::new("read-only-before", 2, 1);
        let directory = scene.directory(1);
        fs::create_dir_all(&directory).unwrap();
        let disk = Disk::new(&directory, 4 << 20, Access::ReadOnly).unwrap();
        let mut command = scene.receiving(1, "");
        disk.give_to(&mut command);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        for word in ["Read-only file system", "may write", "/1"] {
            assert!(said.contains(word), "{word} in {said}");
        }
        // The sender names who did not come, and serves the other.
        let other = scene.receive_all_from(2..3).remove(0);
        let (code, sent) = ended(scene.send("--expect r1,r2 --join-timeout 1s"));
        assert_eq!(code, Some(1), "{sent:#}");
        assert_eq!(sent["missing_names"], serde_json::json!(["r1"]), "{sent:#}");
        assert_eq!(ended(other).0, Some(0));
        scene.assert_whole(2);
    });
}

#[test]
fn a_file_that_changes_while_it_is_sent_ends_the_transfer_by_name() {
    isolated(|| {
        let scene = Scene::new("changed", 2, 16);
        let receivers = scene.receive_all(2);
        let sender = scene.send("--receivers 2 --rate 4MB/s");
        assert!(scene.await_share(1, 30));
        let long = fs::OpenOptions::new()
            .write(true)
            .open(scene.root.join("tree/long"))
            .unwrap();
        long.write_all_at(b"changed", (16 << 20) - 7).unwrap();
        let (code, sent) = ended(sender);
        assert_eq!(
            (code, &sent["is_proven"]),
            (Some(1), &false.into()),
            "{sent:#}"
        );
        let why = sent["failure"].as_str().unwrap();
        println!("file changed: {why}");
        assert!(why.contains("long") && why.contains("changed"), "{why}");
        for (receiver, number) in receivers.into_iter().zip(1..) {
            let row = row(&sent, number);
            assert_eq!(row["state"], "failed", "{sent:#}");
            assert!(row["bytes"].as_u64().unwrap() > 0, "{sent:#}");
            let (code, report) = ended(receiver);
            assert_eq!(code, Some(1), "{report:#}");
            let error = report["error"].as_str().unwrap();
            assert!(error.contains("long"), "{error}");
            assert!(!scene.is_seen(number), "half old, half new");
        }
    });
}

#[test]
fn what_is_there_already_is_kept_and_the_others_are_served() {
    isolated(|| {
        let scene = Scene::new("exists", 2, 16);
        let mine = scene.directory(1).join("tree/deep/short");
        fs::create_dir_all(mine.parent().unwrap()).unwrap();
        fs::write(&mine, "mine").unwrap();
        let watch = scene.watch(2);
        let receivers = scene.receive_all(2);
        let end = ended(scene.send("--receivers 2"));
        let said = assert_failed(&end, 1, &["exist", "--overwrite"]);
        assert_eq!(said, 0, "found before anything was sent");
        let codes = receivers.into_iter().map(|receiver| ended(receiver).0);
        assert_eq!(codes.collect::<Vec<_>>(), [Some(1), Some(0)]);
        assert_eq!(fs::read_to_string(&mine).unwrap(), "mine");
        let tree = fs::read_dir(scene.directory(1).join("tree")).unwrap();
        assert_eq!(tree.count(), 1);
        scene.assert_whole(2);
        watch.finish();
    });
}
