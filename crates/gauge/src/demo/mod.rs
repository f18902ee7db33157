//! A complete file transfer on this machine: one sender, several receivers that lose packets at
//! random, and another tool that checks that everything arrived.
//!
//! Every end is a process: the shipped program with its usual flags. Each process has its own host
//! (a network namespace) where the machine permits it, and otherwise its own loopback address.
//!
//! ```text
//!   tree (found or given) --send--> switch --+--> recv, loses 5 %  --> directory 1
//!                                            +--> recv, loses 5 %  --> directory 2 ...
//!   then: b3sum (or sha256sum) over the tree and over each directory; all must agree
//! ```

use std::{
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::Error;

mod check;
pub use check::{Checksums, Tool};

mod place;
pub use place::{Place, isolate};

mod staging;
use staging::Staging;

mod tree;
pub use tree::Tree;

/// The task of a demo.
#[derive(Clone, Debug)]
pub struct Demo {
    /// The program that sends and receives: normally the running one.
    pub program: PathBuf,
    /// The files to send.
    pub tree: Tree,
    /// How many receivers.
    pub receivers: u32,
    /// Packets that each receiver loses at random, in per cent.
    pub loss_percent: f64,
    /// Seed of the losses.
    pub seed: u64,
    /// The sender's rate limit, as text for its `--rate`.
    pub rate: Option<String>,
    /// Where to keep the receivers' directories; `None` removes them at the end.
    pub keep: Option<PathBuf>,
    /// True when the sender shows its progress on our standard error.
    pub shows_progress: bool,
}

/// The results of a demo.
#[derive(Debug)]
pub struct DemoReport {
    /// Where the processes ran, in words.
    pub place: String,
    /// What the sender reported: its JSON document.
    pub sent: Value,
    /// What each receiver reported, in order.
    pub received: Vec<Value>,
    /// The other tool's hashes.
    pub checksums: Checksums,
    /// From the sender's start to its end.
    pub time: Duration,
}

impl DemoReport {
    /// Returns true when every receiver has proved delivery to the sender and the other tool's
    /// hashes are equal.
    #[must_use]
    pub fn is_proven(&self) -> bool {
        self.sent["is_proven"] == Value::Bool(true) && self.checksums.agree()
    }
}

impl Demo {
    /// Runs the demo. Tells `say` each step in a sentence. While it waits for a process, asks
    /// `is_interrupted` at least ten times a second, and ends when the answer is true. Leaves
    /// nothing behind but the directories that [`Demo::keep`] names, also after an error.
    ///
    /// # Errors
    /// [`Error::Interrupted`]; or when no checking tool is installed or the tool fails, when a
    /// process cannot be started or prints no report, or when a directory cannot be written.
    pub fn run(
        &self,
        place: &Place,
        say: &mut dyn FnMut(&str),
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<DemoReport, Error> {
        let result = self.steps(place, say, is_interrupted);
        // A signal to the process group also ends the children: nobody needs their errors.
        if is_interrupted() {
            return Err(Error::Interrupted);
        }
        result
    }

    fn steps(
        &self,
        place: &Place,
        say: &mut dyn FnMut(&str),
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<DemoReport, Error> {
        // The tool comes first, because without it nothing can be proved.
        let tool = Tool::find()?;
        let staging = Staging::new(self.keep.as_deref(), self.receivers, self.tree.bytes)?;
        say(&format!("receiving into {}", staging.root.display()));
        let mut receivers = Vec::new();
        for (index, directory) in staging.directories.iter().enumerate() {
            receivers.push(Process::start(
                &mut self.receiver(place, index, directory),
                false,
            )?);
        }
        say(&format!(
            "receivers waiting: {}; each loses {} % at random",
            self.receivers, self.loss_percent
        ));
        let started = Instant::now();
        let sender = Process::start(&mut self.sender(place), self.shows_progress)?;
        let sent = sender.report("the sender", is_interrupted)?;
        let time = started.elapsed();
        let mut received = Vec::new();
        for receiver in receivers {
            received.push(receiver.report("a receiver", is_interrupted)?);
        }
        say(&format!("checking with {}", tool.name()));
        let checksums = Checksums::take(tool, &self.tree, &staging.directories, is_interrupted)?;
        Ok(DemoReport {
            place: place.describe(),
            sent,
            received,
            checksums,
            time,
        })
    }

    fn receiver(&self, place: &Place, index: usize, directory: &Path) -> Command {
        let mut command = place.command(index + 1, &self.program);
        command.arg("recv").arg(directory);
        command.args([
            "--group",
            GROUP,
            "--json",
            "--timeout",
            "60s",
            "--from",
            "any",
        ]);
        command.args(["--iface", &place.interface(index + 1)]);
        command.args(["--name", &format!("receiver-{}", index + 1)]);
        let seed = self.seed + index as u64;
        command.args([
            "--faults",
            &format!("loss={}%,seed={seed}", self.loss_percent),
        ]);
        command
    }

    fn sender(&self, place: &Place) -> Command {
        let mut command = place.command(0, &self.program);
        command.arg("send").args(&self.tree.paths);
        command.args(["--group", GROUP, "--json", "--timeout", "30s"]);
        command.args(["--iface", &place.interface(0)]);
        command.args(["--receivers", &self.receivers.to_string()]);
        if let Some(rate) = &self.rate {
            command.args(["--rate", rate]);
        }
        command
    }
}

/// A running process of the demo; dropping this kills the process. Threads read its output all the
/// time, so the process never waits for a reader.
struct Process {
    child: Child,
    stdout: Option<JoinHandle<Vec<u8>>>,
    stderr: Option<JoinHandle<Vec<u8>>>,
}

impl Process {
    fn start(command: &mut Command, shows_progress: bool) -> Result<Self, Error> {
        let program = Path::new(command.get_program()).display().to_string();
        let stderr = if shows_progress {
            Stdio::inherit()
        } else {
            Stdio::piped()
        };
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .map_err(|error| net::SystemError::system("start", program, &error))?;
        let stdout = child.stdout.take().map(read);
        let stderr = child.stderr.take().map(read);
        Ok(Self {
            child,
            stdout,
            stderr,
        })
    }

    /// Waits until the process ends, and reads its report, even when the process failed.
    fn report(
        mut self,
        what: &'static str,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Value, Error> {
        let status = self.end(what, is_interrupted)?;
        let printed = text(self.stdout.take());
        serde_json::from_str(&printed).map_err(|_| {
            let said = text(self.stderr.take());
            let cause = match said.trim() {
                "" => format!("it printed no report and ended with {status}"),
                said => format!("it ended with {status} and said: {said}"),
            };
            net::SystemError::refused("read the report of", what, cause).into()
        })
    }
}

impl Process {
    /// Waits until the process ends, or the caller interrupts the demo.
    fn end(
        &mut self,
        what: &'static str,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<ExitStatus, Error> {
        loop {
            let status = self.child.try_wait();
            let status =
                status.map_err(|error| net::SystemError::system("wait for", what, &error))?;
            match status {
                Some(status) => return Ok(status),
                None if is_interrupted() => return Err(Error::Interrupted),
                None => thread::sleep(POLL),
            }
        }
    }

    /// Waits until the process ends, and returns what it printed.
    fn output(
        mut self,
        what: &'static str,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<(ExitStatus, Vec<u8>), Error> {
        let status = self.end(what, is_interrupted)?;
        let bytes = self.stdout.take().and_then(|thread| thread.join().ok());
        Ok((status, bytes.unwrap_or_default()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both calls fail only when the process has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn read(mut stream: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // When reading fails, the output so far is kept.
        stream.read_to_end(&mut bytes).unwrap_or_default();
        bytes
    })
}

fn text(stream: Option<JoinHandle<Vec<u8>>>) -> String {
    let bytes = stream.and_then(|thread| thread.join().ok());
    String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
}

const GROUP: &str = "239.192.77.77:7577";
/// How long to wait between looks at a running process.
const POLL: Duration = Duration::from_millis(10);
