//! What trees keep beside names, content, modes and times, where it is asked for: each option as
//! processes of two hosts, into an empty directory and again over what is there.

use std::{
    fs,
    os::unix::fs::{FileExt as _, MetadataExt as _, chown},
    path::{Path, PathBuf},
    time::Duration,
};

use lab::{Lab, LabSpec, isolated};
use serde_json::Value;

use crate::ends::{End, towline};

const LIMIT: Duration = Duration::from_secs(60);
const GROUP: &str = "-g 239.192.0.1:7500 --json";

/// Two hosts, and the places `tree` and `in`.
struct Ends {
    lab: Lab,
    root: PathBuf,
}

impl Ends {
    fn new(name: &str) -> Self {
        let path = format!("towline-trees-{name}-{}", std::process::id());
        let root = std::env::temp_dir().join(path);
        drop(fs::remove_dir_all(&root));
        fs::create_dir_all(root.join("tree")).unwrap();
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        Self { lab, root }
    }

    fn tree(&self, name: &str) -> PathBuf {
        self.root.join("tree").join(name)
    }

    fn received(&self, name: &str) -> PathBuf {
        self.root.join("in/tree").join(name)
    }

    /// Runs one transfer; the exit codes and reports of both ends.
    fn transfer(&self, send: &str, recv: &str) -> [(Option<i32>, Value); 2] {
        let (tree, target) = (self.root.join("tree"), self.root.join("in"));
        let words = format!("recv {} {GROUP} --from any {recv}", target.display());
        let receiver = End::start(towline(self.lab.host(1), &words));
        let words = format!("send {} {GROUP} --receivers 1 {send}", tree.display());
        let sender = End::start(towline(self.lab.host(0), &words));
        [sender, receiver].map(|end| {
            let (status, text) = end.finish(LIMIT);
            let report = serde_json::from_str(&text);
            let report = report.unwrap_or_else(|error| panic!("{error}: {text:?}"));
            (status.code(), report)
        })
    }

    /// As [`Ends::transfer`] where all is well; the sender's report.
    fn proven(&self, send: &str, recv: &str) -> Value {
        let [(sent_code, sent), (code, report)] = self.transfer(send, recv);
        assert_eq!((sent_code, code), (Some(0), Some(0)), "{sent:#}{report:#}");
        assert_eq!(report["root"], sent["root"]);
        sent
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.root));
    }
}

fn inode(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino()
}

#[test]
fn hard_links_are_sent_once_and_stay_one_file() {
    isolated(|| {
        let ends = Ends::new("links");
        fs::create_dir(ends.tree("d")).unwrap();
        fs::write(ends.tree("d/first"), vec![7; 300_000]).unwrap();
        fs::hard_link(ends.tree("d/first"), ends.tree("d/second")).unwrap();
        fs::hard_link(ends.tree("d/first"), ends.tree("third")).unwrap();
        fs::write(ends.tree("alone"), "alone").unwrap();
        let sent = ends.proven("--hard-links --hash", "");
        assert_eq!(sent["bytes"], 300_005, "{sent:#}");
        assert_eq!(sent["files"], 4, "{sent:#}");
        // Each name has its line, as `b3sum` prints it.
        assert_eq!(sent["sums"].as_array().unwrap().len(), 4, "{sent:#}");
        let names = ["d/first", "d/second", "third"].map(|name| ends.received(name));
        let first = inode(&names[0]);
        assert!(names.iter().all(|name| inode(name) == first), "{names:?}");
        assert_eq!(fs::metadata(&names[0]).unwrap().nlink(), 3);
        assert!(fs::read(&names[2]).unwrap() == vec![7; 300_000]);

        // Over what is there nothing is sent and nothing changes; a name that was lost comes back.
        let again = "--existing skip-unchanged";
        let sent = ends.proven("-H", again);
        assert_eq!(sent["receivers"][0]["bytes_resumed"], 300_005, "{sent:#}");
        assert_eq!(inode(&names[0]), first);
        fs::remove_file(&names[1]).unwrap();
        ends.proven("-H", again);
        assert!(names.iter().all(|name| inode(name) == first), "{names:?}");
        // Without the option each name is a file of its own.
        let sent = ends.proven("", "--overwrite");
        assert_eq!(sent["bytes"], 900_005, "{sent:#}");
        assert_eq!(fs::metadata(&names[0]).unwrap().nlink(), 1);
    });
}

#[test]
fn a_sparse_file_takes_no_more_room_than_its_data() {
    isolated(|| {
        let ends = Ends::new("sparse");
        let (whole, data) = (64 << 20, vec![9; 100_000]);
        let file = fs::File::create(ends.tree("image")).unwrap();
        file.set_len(whole).unwrap();
        file.write_all_at(&data, 33 << 20).unwrap();
        let room = |path: &Path| fs::metadata(path).unwrap().blocks() * 512;
        if room(&ends.tree("image")) > 1 << 20 {
            return println!("skipped: no holes on this filesystem");
        }
        let is_same = || fs::read(ends.tree("image")).unwrap() == fs::read(image(&ends)).unwrap();
        ends.proven("--sparse", "");
        assert!(is_same());
        let sparse = room(&image(&ends));
        assert!(sparse <= 1 << 20, "{sparse} bytes on the disk");

        let sent = ends.proven("--sparse", "--existing skip-unchanged");
        assert_eq!(sent["receivers"][0]["bytes_resumed"], whole, "{sent:#}");
        assert_eq!(room(&image(&ends)), sparse);
        ends.proven("", "--overwrite");
        assert!(is_same());
        assert!(room(&image(&ends)) >= whole, "nobody asked for holes");
        // The receiver may want them whatever the sender says.
        ends.proven("", "--overwrite --sparse");
        assert!(is_same());
        assert!(room(&image(&ends)) <= 1 << 20);
    });
}

fn image(ends: &Ends) -> PathBuf {
    ends.received("image")
}

#[test]
fn owners_are_those_of_the_sender_where_both_ends_ask_for_it() {
    isolated(|| {
        let ends = Ends::new("owner");
        fs::write(ends.tree("given"), "given").unwrap();
        fs::write(ends.tree("own"), "own").unwrap();
        if chown(ends.tree("given"), Some(61_234), Some(62_345)).is_err() {
            return println!("skipped: files cannot be given away here");
        }
        let own = owner(&ends.tree("own"));
        // Each end alone changes nothing; an older receiver would refuse the first.
        for (send, recv) in [("--owner", ""), ("", "--owner --overwrite")] {
            ends.proven(send, recv);
            assert_eq!(owner(&ends.received("given")), own, "{send} {recv}");
        }
        // Over what is there, and new.
        let inode_before = inode(&ends.received("given"));
        ends.proven("--owner", "--owner --existing skip-unchanged");
        assert_eq!(owner(&ends.received("given")), (61_234, 62_345));
        assert_eq!(owner(&ends.received("own")), own);
        assert_eq!(inode(&ends.received("given")), inode_before);
        fs::remove_dir_all(ends.root.join("in")).unwrap();
        ends.proven("--owner", "--owner=numbers");
        assert_eq!(owner(&ends.received("given")), (61_234, 62_345));
    });
}

#[test]
fn owners_that_cannot_be_set_are_named_once_with_exit_code_1() {
    isolated(|| {
        let ends = Ends::new("unset");
        for name in ["one", "two"] {
            fs::write(ends.tree(name), name).unwrap();
            if chown(ends.tree(name), Some(61_234), None).is_err() {
                return println!("skipped: files cannot be given away here");
            }
        }
        let words = format!(
            "send {} {GROUP} --receivers 1 --owner",
            ends.root.join("tree").display()
        );
        let sender = End::start(towline(ends.lab.host(0), &words));
        // The superuser without the right to give files away.
        let words = format!(
            "recv {} {GROUP} --from any --owner",
            ends.root.join("in").display()
        );
        let mut command = ends.lab.host(1).command("setpriv");
        command
            .args(["--bounding-set", "-chown", "--inh-caps", "-chown"])
            .arg(env!("CARGO_BIN_EXE_towline"))
            .args(words.split_whitespace());
        let (status, text) = End::start(command).finish(LIMIT);
        let report: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(status.code(), Some(1), "{report:#}");
        assert_eq!(report["is_complete"], true, "{report:#}");
        let unset = report["unset"].as_array().unwrap();
        assert_eq!(
            (unset.len(), &unset[0]["entries"]),
            (1, &2.into()),
            "{report:#}"
        );
        let what = unset[0]["what"].as_str().unwrap();
        assert!(what.starts_with("user 61234: "), "{what}");
        assert!(fs::read(ends.received("two")).unwrap() == b"two");
        assert!(sender.finish(LIMIT).0.success());
    });
}

fn owner(path: &Path) -> (u32, u32) {
    let metadata = fs::symlink_metadata(path).unwrap();
    (metadata.uid(), metadata.gid())
}

#[test]
fn extended_attributes_are_those_of_the_sender_where_both_ends_ask_for_them() {
    isolated(|| {
        let ends = Ends::new("xattrs");
        fs::write(ends.tree("one"), "one").unwrap();
        fs::write(ends.tree("two"), "two").unwrap();
        let value = |path: &Path| {
            let file = fs::File::open(path).unwrap();
            sys::file::attribute(&file, b"user.note").unwrap()
        };
        let set = |path: &Path, text: &[u8]| {
            sys::file::set_attribute(&fs::File::open(path).unwrap(), b"user.note", text)
        };
        if let Err(error) = set(&ends.tree("one"), b"seen") {
            return println!("skipped: no attributes of users here: {error}");
        }
        // Each end alone changes nothing; an older receiver would refuse the first.
        for (send, recv) in [("--xattrs", ""), ("", "--xattrs --overwrite")] {
            ends.proven(send, recv);
            assert_eq!(value(&ends.received("one")), None, "{send} {recv}");
        }
        // Over what is there, and new; what the sender has not goes.
        set(&ends.received("two"), b"old").unwrap();
        let inode_before = inode(&ends.received("one"));
        ends.proven("-X", "-X --existing skip-unchanged");
        assert_eq!(value(&ends.received("one")).as_deref(), Some(&b"seen"[..]));
        assert_eq!(value(&ends.received("two")), None);
        assert_eq!(inode(&ends.received("one")), inode_before);
        fs::remove_dir_all(ends.root.join("in")).unwrap();
        ends.proven("--xattrs --owner", "--xattrs --owner");
        assert_eq!(value(&ends.received("one")).as_deref(), Some(&b"seen"[..]));
    });
}
