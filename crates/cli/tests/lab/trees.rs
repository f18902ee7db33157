//! What trees keep beside names, content, modes and times, where it is asked for: each option as
//! processes of two hosts, into an empty directory and again over what is there.

use std::{
    fs,
    os::unix::fs::{FileExt as _, MetadataExt as _},
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
