//! Programs that run on lab hosts, and what they report.

use std::{
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use lab::{Host, isolated};
use serde_json::Value;

/// Runs a test that needs the whole machine: inside a lab's isolation, one at a time.
pub(crate) fn alone<F: FnOnce() + Send>(body: F) {
    static MACHINE: Mutex<()> = Mutex::new(());
    let _turn = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    isolated(body);
}

/// The program under test on `host`, its arguments given as words of one line.
pub(crate) fn towline(host: &Host, words: &str) -> Command {
    let mut command = host.command(env!("CARGO_BIN_EXE_towline"));
    command.args(words.split_whitespace());
    command
}

/// A running program; killed when dropped.
#[derive(Debug)]
pub(crate) struct End {
    child: Child,
    what: String,
    out: Option<JoinHandle<Printed>>,
    err: Option<JoinHandle<()>>,
    /// What it has said so far.
    said: Arc<Mutex<Vec<u8>>>,
}

impl End {
    pub(crate) fn start(mut command: Command) -> Self {
        let what = format!("{command:?}");
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        // Read from the start: a receiver that waits for its reader takes nothing from the network.
        let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let said = Arc::<Mutex<Vec<u8>>>::default();
        let heard = Arc::clone(&said);
        Self {
            child,
            what,
            out: Some(thread::spawn(move || read(stdout))),
            err: Some(thread::spawn(move || hear(stderr, &heard))),
            said,
        }
    }

    /// Waits until it has said `words`.
    pub(crate) fn await_said(&self, words: &str) {
        let end = Instant::now() + AWAIT_TIME_MAX;
        while !self.said().contains(words) {
            assert!(Instant::now() < end, "{}: {}", self.what, self.said());
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn said(&self) -> String {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&said).into_owned()
    }

    /// The number of its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args([signal, &pid])
                .status()
                .unwrap()
                .success()
        );
    }

    /// Memory in use now, in KiB, as the kernel counts it.
    pub(crate) fn resident_kib(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let text = std::fs::read_to_string(path).unwrap();
        let line = text.lines().find(|line| line.starts_with("VmRSS:"));
        // A program that has just ended uses none.
        line.map_or(0, |line| {
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        })
    }

    /// A counter as `towline stat` gives it; `None` while, or when, there is no session.
    pub(crate) fn counter(&self, name: &str) -> Option<u64> {
        let pid = self.child.id().to_string();
        let mut stat = Command::new(env!("CARGO_BIN_EXE_towline"));
        let output = stat.args(["stat", &pid, name]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().parse().ok()
    }

    /// Waits until a counter is at least `least`.
    pub(crate) fn await_counter(&self, name: &str, least: u64) {
        let end = Instant::now() + AWAIT_TIME_MAX;
        while self.counter(name).is_none_or(|value| value < least) {
            assert!(Instant::now() < end, "{}: {name} < {least}", self.what);
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until its session is open: it takes what is sent from then on.
    pub(crate) fn await_session(&self) {
        self.await_counter("driver.turns", 1);
    }

    /// Waits until a counter has stayed the same for `time`.
    ///
    /// **Panics**: when the program ends before that.
    pub(crate) fn await_stillness(&self, name: &str, time: Duration) {
        let end = Instant::now() + AWAIT_TIME_MAX;
        let (mut since, mut last) = (Instant::now(), None);
        while since.elapsed() < time {
            let value = self.counter(name);
            let value = value.unwrap_or_else(|| panic!("{}: no {name}", self.what));
            if last.replace(value) != Some(value) {
                since = Instant::now();
            }
            assert!(Instant::now() < end, "{}: {name} moves on", self.what);
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits for the end, and gives the last value seen of a counter, 0 when none was: an ended
    /// program tells none.
    ///
    /// **Panics**: as [`End::finish`] does, when the program still runs after `limit`.
    pub(crate) fn watch_counter(&mut self, name: &str, limit: Duration) -> u64 {
        let (end, mut last) = (Instant::now() + limit, 0);
        while self.is_running() {
            self.assert_before(end, limit);
            last = self.counter(name).unwrap_or(last);
            thread::sleep(Duration::from_millis(50));
        }
        last
    }

    /// **Panics**: after `end`, with what the program has said. `limit` is the time that it had.
    fn assert_before(&mut self, end: Instant, limit: Duration) {
        if Instant::now() > end {
            self.child.kill().unwrap();
            let (_, err) = self.texts();
            panic!("{}: not done in {limit:?}: {err}", self.what);
        }
    }

    /// True until the program has ended.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for the end and gives the exit status and what was printed.
    pub(crate) fn finish(self, limit: Duration) -> (ExitStatus, String) {
        let (status, out) = self.finish_raw(limit);
        (status, String::from_utf8_lossy(&out).into_owned())
    }

    /// As [`End::finish`], for output that is not text.
    pub(crate) fn finish_raw(self, limit: Duration) -> (ExitStatus, Vec<u8>) {
        let what = self.what.clone();
        let (status, out, err) = self.finish_all(limit);
        if !err.is_empty() {
            eprintln!("{what}: {err}");
        }
        (status, out)
    }

    /// Waits for the end and gives the exit status, what was printed and what was said.
    pub(crate) fn finish_all(self, limit: Duration) -> (ExitStatus, Vec<u8>, String) {
        let (status, printed, said) = self.finish_timed(limit);
        (status, printed.bytes, said)
    }

    /// As [`End::finish_all`], with the time that passed while it printed.
    pub(crate) fn finish_timed(mut self, limit: Duration) -> (ExitStatus, Printed, String) {
        let end = Instant::now() + limit;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            self.assert_before(end, limit);
            thread::sleep(Duration::from_millis(10));
        };
        let (printed, err) = self.texts();
        (status, printed, err)
    }

    /// What was printed and said, once the program has ended.
    fn texts(&mut self) -> (Printed, String) {
        let out = self.out.take().unwrap().join().unwrap();
        self.err.take().unwrap().join().unwrap();
        (out, self.said())
    }

    /// Waits for the end and reads the JSON report.
    pub(crate) fn report(self, limit: Duration) -> Value {
        let what = self.what.clone();
        let (status, text) = self.finish(limit);
        serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("{what}: {status}: {error} in {text:?}"))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // Both fail only when it is gone already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// What a program has printed.
#[derive(Debug, Default)]
pub(crate) struct Printed {
    pub(crate) bytes: Vec<u8>,
    /// From the first byte to the last.
    pub(crate) took: Duration,
}

fn read(mut stream: impl std::io::Read) -> Printed {
    let mut printed = Printed::default();
    let mut piece = vec![0; 1 << 16];
    let mut begun = None;
    while let count @ 1.. = stream.read(&mut piece).unwrap() {
        let now = Instant::now();
        printed.took = now.duration_since(*begun.get_or_insert(now));
        printed.bytes.extend_from_slice(&piece[..count]);
    }
    printed
}

fn hear(mut stream: impl std::io::Read, said: &Mutex<Vec<u8>>) {
    let mut piece = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut piece) {
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        said.extend_from_slice(&piece[..count]);
    }
}

/// Asserts that a `load recv` report holds exactly `count` messages, whole and in order.
pub(crate) fn assert_complete(report: &Value, count: u64) {
    for key in [
        "missing",
        "corrupt",
        "duplicates",
        "out_of_order",
        "lost_packets",
    ] {
        assert_eq!(report[key], 0, "{key} in {report:#}");
    }
    assert_eq!(report["messages"], count, "{report:#}");
}

const AWAIT_TIME_MAX: Duration = Duration::from_secs(120);
