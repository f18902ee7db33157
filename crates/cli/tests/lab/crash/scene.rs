//! A transfer that is going to be disturbed: its tree, its ends, and how far it is.

use std::{
    fs,
    ops::Range,
    path::{Path, PathBuf},
    process::{Command, id},
    thread,
    time::{Duration, Instant},
};

use lab::{Lab, LabSpec};
use serde_json::Value;

use super::watch::Watch;
use crate::ends::{End, towline};

/// A sender on host 0 and receivers `r1`, `r2`, ... on the hosts of their numbers.
pub(super) struct Scene {
    pub(super) lab: Lab,
    pub(super) root: PathBuf,
    /// Bytes of content.
    pub(super) bytes: u64,
}

impl Scene {
    /// `receivers` receivers, and a tree of a little over `mib` MiB.
    pub(super) fn new(name: &str, receivers: u8, mib: u64) -> Self {
        let root = std::env::temp_dir().join(format!("towline-{name}-{}", id()));
        drop(fs::remove_dir_all(&root));
        fs::create_dir_all(&root).unwrap();
        let bytes = make_tree(&root.join("tree"), mib, 1);
        Self {
            lab: Lab::new(&LabSpec::new(receivers + 1)).unwrap(),
            root,
            bytes,
        }
    }

    /// Adds `count` files of a few bytes each, all in one directory, and gives its name.
    pub(super) fn add_small_files(&mut self, count: u64) -> &'static str {
        let directory = self.root.join("tree/many");
        fs::create_dir(&directory).unwrap();
        for number in 0..count {
            let text = format!("{number:04}");
            fs::write(directory.join(&text), &text).unwrap();
            self.bytes += text.len() as u64;
        }
        "tree/many"
    }

    /// Where a receiver receives into.
    pub(super) fn directory(&self, number: usize) -> PathBuf {
        self.root.join(number.to_string())
    }

    /// The command of a receiver.
    pub(super) fn receiving(&self, number: usize, more: &str) -> Command {
        let directory = self.directory(number);
        let words = format!(
            "recv {} {GROUP} --from 10.77.0.0/24 --name r{number} {more}",
            directory.display()
        );
        towline(self.lab.host(number), &words)
    }

    /// A running receiver.
    pub(super) fn receive(&self, number: usize, more: &str) -> End {
        End::start(self.receiving(number, more))
    }

    /// Receivers 1 to `count`, which listen.
    pub(super) fn receive_all(&self, count: usize) -> Vec<End> {
        self.receive_all_from(1..count + 1)
    }

    pub(super) fn receive_all_from(&self, numbers: Range<usize>) -> Vec<End> {
        let ends = numbers.map(|number| self.receive(number, "")).collect();
        // A sender that comes first is heard just as well, a little later.
        thread::sleep(Duration::from_millis(300));
        ends
    }

    /// The command of the sender.
    pub(super) fn sending(&self, more: &str) -> Command {
        let words = format!("send {} {GROUP} {more}", self.root.join("tree").display());
        towline(self.lab.host(0), &words)
    }

    pub(super) fn send(&self, more: &str) -> End {
        End::start(self.sending(more))
    }

    /// Looks at what is seen at a receiver from now on.
    pub(super) fn watch(&self, number: usize) -> Watch {
        Watch::start(&self.root.join("tree"), &self.directory(number), None)
    }

    pub(super) fn watch_all(&self, count: usize) -> Vec<Watch> {
        (1..=count).map(|number| self.watch(number)).collect()
    }

    /// Waits until a receiver has noted that it holds this share of the content. False when it had
    /// all of it in place before anybody noticed.
    pub(super) fn await_share(&self, number: usize, percent: u64) -> bool {
        let end = Instant::now() + LIMIT;
        while self.held(number) * 100 < self.bytes * percent {
            if self.is_seen(number) {
                return false;
            }
            assert!(
                Instant::now() < end,
                "r{number} does not come to {percent} %"
            );
            thread::sleep(Duration::from_millis(2));
        }
        !self.is_seen(number)
    }

    /// Bytes that a receiver's journals say it holds: what a restart goes on from.
    pub(super) fn held(&self, number: usize) -> u64 {
        held_below(&self.directory(number))
    }

    /// True when something is there under a final name.
    pub(super) fn is_seen(&self, number: usize) -> bool {
        self.directory(number).join("tree").exists()
    }

    /// Asserts that a receiver has exactly the tree, and nothing else.
    pub(super) fn assert_whole(&self, number: usize) {
        let directory = self.directory(number);
        assert_equal(&self.root.join("tree"), &directory.join("tree"));
        let left = directory.join(".towline");
        assert!(!left.exists(), "{} is left", left.display());
    }

    /// Asserts that a receiver was sent at most what it lacked and 8 MiB, by the sender's ledger,
    /// and prints both.
    pub(super) fn assert_economy(&self, sent: &Value, number: usize, held: u64, what: &str) {
        let row = row(sent, number);
        let again = row["bytes_sent_since_join"].as_u64().unwrap();
        let resumed = row["bytes_resumed"].as_u64().unwrap();
        let bytes = self.bytes;
        println!(
            "{what}: r{number} held {held} of {bytes} bytes, said {resumed}, was sent {again} more"
        );
        assert!(resumed >= held, "{sent:#}");
        assert!(again <= self.bytes - held + SLACK, "{sent:#}");
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // Left for who looks into a failure.
        if !thread::panicking() {
            drop(fs::remove_dir_all(&self.root));
        }
    }
}

/// A command's exit code and report.
pub(super) fn ended(end: End) -> (Option<i32>, Value) {
    let (status, text) = end.finish(LIMIT);
    let report = serde_json::from_str(&text);
    let report = report.unwrap_or_else(|error| panic!("{status}: {error}: {text:?}"));
    (status.code(), report)
}

/// The reports of a service, each on a line of its own.
pub(super) fn reports(text: &str) -> Vec<Value> {
    let reports = text.lines().map(serde_json::from_str);
    reports.collect::<Result<_, _>>().unwrap()
}

/// The sender's line about a receiver.
pub(super) fn row(sent: &Value, number: usize) -> &Value {
    let name = format!("r{number}");
    let rows = sent["receivers"].as_array().unwrap();
    let mut rows = rows.iter().filter(|row| row["name"] == name.as_str());
    let row = rows.next();
    assert!(rows.next().is_none(), "two lines for {name}: {sent:#}");
    row.unwrap_or_else(|| panic!("no {name} in {sent:#}"))
}

/// Asserts that the sender ended with a proof from everybody.
pub(super) fn assert_proven(code: Option<i32>, sent: &Value) {
    assert_eq!(
        (code, &sent["is_proven"]),
        (Some(0), &true.into()),
        "{sent:#}"
    );
}

/// Asserts that the sender ended without a proof from one receiver, named with words about why, and
/// gives the bytes it is said to hold.
pub(super) fn assert_failed(
    (code, sent): &(Option<i32>, Value),
    number: usize,
    words: &[&str],
) -> u64 {
    assert_eq!(
        (*code, &sent["is_proven"]),
        (Some(1), &false.into()),
        "{sent:#}"
    );
    let row = row(sent, number);
    assert_eq!(row["state"], "failed", "{sent:#}");
    let error = row["error"].as_str().unwrap();
    for word in words {
        assert!(error.contains(word), "{word} in {error:?}");
    }
    println!("r{number}: {} bytes: {error}", row["bytes"]);
    row["bytes"].as_u64().unwrap()
}

pub(super) fn assert_equal(one: &Path, other: &Path) {
    let mut diff = Command::new("diff");
    diff.args(["--recursive", "--no-dereference", "--brief"]);
    let status = diff.args([one, other]).status().unwrap();
    assert!(status.success(), "{} differs", other.display());
}

/// Makes a tree of one long file and some short ones, and gives its bytes of content.
pub(super) fn make_tree(root: &Path, mib: u64, seed: u64) -> u64 {
    fs::create_dir_all(root.join("deep/empty")).unwrap();
    let mut state = seed;
    let mut word = || {
        // A Weyl sequence, mixed: no two blocks are alike.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)).to_le_bytes()
    };
    let mut sum = 0;
    let files = [("long", mib << 20), ("deep/short", 70_001), ("none", 0)];
    for (name, bytes) in files {
        let words = (0..bytes.div_ceil(8)).flat_map(|_| word());
        let content: Vec<u8> = words.take(usize::try_from(bytes).unwrap()).collect();
        fs::write(root.join(name), content).unwrap();
        sum += bytes;
    }
    std::os::unix::fs::symlink("short", root.join("deep/link")).unwrap();
    sum
}

/// The journals of what is staged beneath a directory, one for each plan.
pub(super) fn journals(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory.join(".towline"));
    let entries = entries.into_iter().flatten().filter_map(Result::ok);
    let journals = entries.map(|entry| entry.path().join("journal"));
    journals.filter(|path| path.exists()).collect()
}

/// Bytes that the journals beneath a directory say are held.
pub(super) fn held_below(directory: &Path) -> u64 {
    let journals = journals(directory);
    journals.iter().map(|path| held_in(path)).sum()
}

/// Bytes that a journal says are in their files: a header of 64 bytes, then records of 24, as
/// `towline-net` describes them.
fn held_in(journal: &Path) -> u64 {
    let bytes = fs::read(journal).unwrap_or_default();
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    let records = bytes.get(64..).unwrap_or_default().chunks_exact(24);
    let mut ranges: Vec<Range<u64>> = records
        .map(|record| (number(&record[..8]), number(&record[8..16])))
        .filter(|&(start, _)| start != u64::MAX)
        .map(|(start, len)| start..start + len)
        .collect();
    ranges.sort_by_key(|range| range.start);
    let mut at = 0;
    let mut sum = 0;
    for range in ranges {
        sum += range.end.max(at) - range.start.max(at);
        at = at.max(range.end);
    }
    sum
}

pub(super) const GROUP: &str = "-g 239.192.0.1:7500 --json";
pub(super) const LIMIT: Duration = Duration::from_secs(60);
/// What may be sent again beyond what is missing.
pub(super) const SLACK: u64 = 8 << 20;
