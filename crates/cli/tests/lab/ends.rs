//! Programs that run on lab hosts, and what they report.

use std::{
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use lab::Host;
use serde_json::Value;

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
}

impl End {
    pub(crate) fn start(mut command: Command) -> Self {
        let what = format!("{command:?}");
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        Self { child, what }
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

    /// Waits for the end and gives the exit status and what was printed.
    pub(crate) fn finish(self, limit: Duration) -> (ExitStatus, String) {
        let (status, out) = self.finish_raw(limit);
        (status, String::from_utf8_lossy(&out).into_owned())
    }

    /// As [`End::finish`], for output that is not text.
    pub(crate) fn finish_raw(mut self, limit: Duration) -> (ExitStatus, Vec<u8>) {
        let mut stdout = self.child.stdout.take().unwrap();
        let mut stderr = self.child.stderr.take().unwrap();
        let out = thread::spawn(move || read(&mut stdout));
        let err = thread::spawn(move || read(&mut stderr));
        let end = Instant::now() + limit;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > end {
                self.child.kill().unwrap();
                let err = err.join().unwrap();
                panic!(
                    "{}: not done in {limit:?}: {}",
                    self.what,
                    String::from_utf8_lossy(&err)
                );
            }
            thread::sleep(Duration::from_millis(10));
        };
        let (out, err) = (out.join().unwrap(), err.join().unwrap());
        if !err.is_empty() {
            eprintln!("{}: {}", self.what, String::from_utf8_lossy(&err));
        }
        (status, out)
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

fn read(stream: &mut impl std::io::Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    bytes
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
