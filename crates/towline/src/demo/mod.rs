//! The main job, whole, on this machine: one sender, several receivers that lose packets at random,
//! and another tool's word that everything arrived.
//!
//! Every end is a process of its own, the shipped program with its usual flags, on a host of its
//! own (a network namespace) where the machine permits it, else on a loopback address of its own.
//!
//! ```text
//!   tree (found or given) --send--> switch --+--> recv, loses 5 %  --> directory 1
//!                                            +--> recv, loses 5 %  --> directory 2 ...
//!   then: b3sum (or sha256sum) over the tree and over each directory; all must agree
//! ```

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::Error;

mod check;
pub use check::{Checksums, Tool};

mod place;
pub use place::{Place, isolate};

mod tree;
pub use tree::Tree;

/// What a demo is to do.
#[derive(Clone, Debug)]
pub struct Demo {
    /// The program that sends and receives: normally the one that runs.
    pub program: PathBuf,
    /// What to send.
    pub tree: Tree,
    /// How many receivers.
    pub receivers: u32,
    /// Packets that each receiver loses at random, in per cent.
    pub loss_percent: f64,
    /// Seed of the losses.
    pub seed: u64,
    /// The sender's rate limit as its flag takes it.
    pub rate: Option<String>,
    /// Where the receivers' directories stay; `None` removes them.
    pub keep: Option<PathBuf>,
    /// Whether the sender shows its progress on our standard error.
    pub shows_progress: bool,
}

/// What a demo did.
#[derive(Debug)]
pub struct DemoReport {
    /// Where the ends ran, in words.
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
    /// True when the sender has proof of every receiver and the other tool agrees.
    #[must_use]
    pub fn is_proven(&self) -> bool {
        self.sent["is_proven"] == Value::Bool(true) && self.checksums.agree()
    }
}

impl Demo {
    /// Runs it. `say` is told each step in a sentence.
    ///
    /// # Errors
    /// When a process cannot be started or prints no report, or a directory cannot be written.
    pub fn run(&self, place: &Place, say: &mut dyn FnMut(&str)) -> Result<DemoReport, Error> {
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
            "{} receivers wait, each loses {} % at random",
            self.receivers, self.loss_percent
        ));
        let started = Instant::now();
        let sender = Process::start(&mut self.sender(place), self.shows_progress)?;
        let sent = sender.report("send")?;
        let time = started.elapsed();
        let mut received = Vec::new();
        for receiver in receivers {
            received.push(receiver.report("recv")?);
        }
        let tool = Tool::find()?;
        say(&format!("checking with {}", tool.name()));
        let checksums = Checksums::take(tool, &self.tree, &staging.directories)?;
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
        command.args(["--group", GROUP, "--json", "--timeout", "60s"]);
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

/// A running end; killed when given up.
struct Process(Option<Child>);

impl Process {
    fn start(command: &mut Command, shows_progress: bool) -> Result<Self, Error> {
        let stderr = if shows_progress {
            Stdio::inherit()
        } else {
            Stdio::piped()
        };
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .map_err(|error| net::NetError::system("start", "a process of the demo", &error))?;
        Ok(Self(Some(child)))
    }

    /// Waits for the end and reads the report, also of a process that did not succeed.
    fn report(mut self, what: &'static str) -> Result<Value, Error> {
        let child = self.0.take().ok_or(Error::Closed)?;
        let output = child
            .wait_with_output()
            .map_err(|error| net::NetError::system("wait for", what, &error))?;
        let text = String::from_utf8_lossy(&output.stdout);
        serde_json::from_str(&text).map_err(|_| {
            let said = String::from_utf8_lossy(&output.stderr);
            let cause = format!("it ended with {} and said: {}", output.status, said.trim());
            net::NetError::refused("read the report of", what, cause).into()
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // Both fail only when it is gone already.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// The receivers' directories.
struct Staging {
    root: PathBuf,
    directories: Vec<PathBuf>,
    is_kept: bool,
}

impl Staging {
    fn new(keep: Option<&Path>, receivers: u32, bytes: u64) -> Result<Self, Error> {
        let root = keep.map_or_else(
            || {
                temporary(bytes * u64::from(receivers))
                    .join(format!("towline-demo-{}", std::process::id()))
            },
            Path::to_path_buf,
        );
        if keep.is_none() {
            // Others may write where it lies: what they have put there is not ours to use.
            fs::create_dir(&root)
                .map_err(|error| net::NetError::system("make", root.display(), &error))?;
        }
        let mut directories = Vec::new();
        for number in 1..=receivers {
            let directory = root.join(format!("receiver-{number}"));
            fs::create_dir_all(&directory)
                .map_err(|error| net::NetError::system("make", directory.display(), &error))?;
            directories.push(directory);
        }
        Ok(Self {
            root,
            directories,
            is_kept: keep.is_some(),
        })
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if !self.is_kept {
            // What cannot be removed is in the system's own directory for such things.
            drop(fs::remove_dir_all(&self.root));
        }
    }
}

/// A directory in memory when it has ample room, so that the demo shows the network and not the
/// disk; the system's own for such things otherwise.
fn temporary(bytes: u64) -> PathBuf {
    let memory = Path::new("/dev/shm");
    let space = sys::file::Directory::open(memory).and_then(|directory| directory.space());
    match space {
        Ok(space) if space.available_bytes > bytes.saturating_mul(2) => memory.to_path_buf(),
        _ => std::env::temp_dir(),
    }
}

const GROUP: &str = "239.192.77.77:7577";
