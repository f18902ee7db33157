//! Disks that are full or not to be written, files that are there already or change meanwhile.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use lab::{Access, Disk, isolated};

use super::{
    scene::{GROUP, Scene, assert_equal, assert_failed, assert_proven, ended, held_below, row},
    watch::Watch,
};
use crate::ends::{End, towline};

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
        let words = ["needs 16847217 bytes, and the disk has ", "make room"];
        on_a_bad_disk("full", &words, |_| {});
    });
}

/// Another program on a disk that writes all the time, and so gets whatever room is left or given
/// free.
struct Hog {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
    path: PathBuf,
}

impl Hog {
    fn start(disk: &Arc<Disk>, path: PathBuf) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let (disk, over, place) = (Arc::clone(disk), Arc::clone(&is_over), path.clone());
        let write = move || {
            let mut file = fs::File::create(&place).unwrap();
            while !over.load(Ordering::Relaxed) {
                if file.write(&[1; 4096]).is_err() {
                    thread::sleep(Duration::from_micros(200));
                }
            }
        };
        let thread = thread::spawn(move || disk.enter(write).unwrap());
        Self {
            is_over,
            thread,
            path,
        }
    }

    /// It ends, and its room is free again.
    fn stop(self, disk: &Disk) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        disk.enter(|| fs::remove_file(&self.path).unwrap()).unwrap();
    }
}

/// Files take their room when their content comes: another program may be faster.
#[test]
fn a_disk_that_fills_amid_the_transfer_is_named_and_goes_on_once_there_is_room() {
    isolated(|| {
        let mut scene = Scene::new("fills", 2, 0);
        let many = scene.root.join("tree/many");
        fs::create_dir(&many).unwrap();
        for number in 0..400_u16 {
            let content: Vec<u8> = (0..30_000_u16)
                .flat_map(|n| (n ^ number).to_le_bytes())
                .collect();
            fs::write(many.join(number.to_string()), &content).unwrap();
            scene.bytes += content.len() as u64;
        }
        let mount = scene.root.join("disk");
        let directory = mount.join("in");
        fs::create_dir(&mount).unwrap();
        let disk = Arc::new(Disk::new(&mount, 40 << 20, Access::ReadWrite).unwrap());
        let receiving = || {
            let words = format!(
                "recv {} {GROUP} --from 10.77.0.0/24 --name r1",
                directory.display()
            );
            let mut command = towline(scene.lab.host(1), &words);
            disk.give_to(&mut command);
            End::start(command)
        };
        let tree = scene.root.join("tree");
        let watches = vec![
            Watch::start(&tree, &directory, Some(Arc::clone(&disk))),
            scene.watch(2),
        ];
        let victim = receiving();
        let other = scene.receive_all_from(2..3).remove(0);
        let sender = scene.send("--receivers 2 --rate 4MB/s");
        assert!(scene.await_share(2, 20));
        let hog = Hog::start(&disk, mount.join("hog"));
        let end = ended(sender);
        let words = ["make room", "in/tree/many/"];
        let said = assert_failed(&end, 1, &words);
        assert!(said > 0 && said < scene.bytes, "{:#}", end.1);
        assert_eq!(row(&end.1, 2)["state"], "proven", "{:#}", end.1);
        assert_eq!(ended(other).0, Some(0));
        scene.assert_whole(2);
        let (code, report) = ended(victim);
        assert_eq!(code, Some(1), "{report:#}");
        let error = report["error"].as_str().unwrap();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
        let held = report["bytes_held"].as_u64().unwrap();
        assert!(held > 0 && held < scene.bytes, "{report:#}");
        let is_seen = disk.enter(|| directory.join("tree").exists()).unwrap();
        assert!(!is_seen, "half a tree under its name");

        hog.stop(&disk);
        let held = disk.enter(|| held_below(&directory)).unwrap();
        assert!(held > 0);
        let again = receiving();
        let (code, sent) = ended(scene.send("--expect r1"));
        assert_proven(code, &sent);
        scene.assert_economy(&sent, 1, held, "disk filled");
        assert_eq!(ended(again).0, Some(0));
        disk.enter(|| assert_equal(&tree, &directory.join("tree")))
            .unwrap();
        Watch::finish_all(watches);
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
        for word in ["Read-only file system", "not mounted read-only", "/1"] {
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
        let said = assert_failed(&end, 1, &["exist", "replace"]);
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
