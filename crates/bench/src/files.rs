//! Files to three receivers, 1 % of packets lost at each: Towline compared with uftp and udpcast.
//!
//! The receivers are waiting when the sender starts. The time runs from the sender's start to the
//! end of the last program, set-up and proof included. All files lie in memory, so that disks play
//! no part. Afterwards the files that arrived are compared byte by byte.

use std::{
    fs,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use lab::Lab;

use crate::{
    machine::Ticks,
    peer::{Datagrams, Peer},
    program::{self, Running},
    sample::Sample,
};

/// The files to send and the directories of the receivers; all are removed at the end.
#[derive(Debug)]
pub(crate) struct Load {
    root: PathBuf,
    bytes: u64,
    receivers: RangeInclusive<usize>,
}

impl Load {
    /// Makes `files` files of `bytes` bytes each.
    pub(crate) fn make(name: &str, files: usize, bytes: usize) -> Result<Self, String> {
        let root = Path::new("/dev/shm").join(format!("towline-bench-{}", std::process::id()));
        let root = root.join(name);
        let source = root.join("source");
        create(&source)?;
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut content = vec![0; bytes];
        for number in 0..files {
            fill(&mut content, &mut state);
            let path = source.join(format!("{number:05}"));
            fs::write(&path, &content).map_err(|e| format!("{}: {e}", path.display()))?;
        }
        let bytes = files as u64 * bytes as u64;
        Ok(Self {
            root,
            bytes,
            receivers: RECEIVERS,
        })
    }

    /// Gives the load one receiver instead of three.
    pub(crate) const fn for_one_receiver(mut self) -> Self {
        self.receivers = 1..=1;
        self
    }

    /// Returns the number of bytes in all files.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the directory of the files.
    pub(crate) fn source(&self) -> PathBuf {
        self.root.join("source")
    }

    /// Returns the paths of the files, sorted.
    pub(crate) fn entries(&self) -> Result<Vec<PathBuf>, String> {
        entries(&self.source())
    }

    /// Makes an empty directory for a receiver, and returns its path.
    pub(crate) fn target(&self, receiver: usize) -> Result<PathBuf, String> {
        let path = self.root.join(format!("target-{receiver}"));
        // Before the first run there is no such directory.
        drop(fs::remove_dir_all(&path));
        create(&path)?;
        Ok(path)
    }

    /// Returns how many receivers lack something that was sent.
    fn wrong(&self) -> u64 {
        let is_wrong = |receiver: &usize| {
            let target = self.root.join(format!("target-{receiver}"));
            let directory = target.join("source");
            let target = if directory.is_dir() {
                directory
            } else {
                target
            };
            !is_equal(&self.source(), &target).unwrap_or(false)
        };
        self.receivers.clone().filter(is_wrong).count() as u64
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // A file that is left over lies in memory, in a directory with this program's name.
        drop(fs::remove_dir_all(&self.root));
        if let Some(parent) = self.root.parent() {
            drop(fs::remove_dir(parent));
        }
    }
}

/// `towline send` and `recv` with their defaults.
#[derive(Debug)]
pub(crate) struct Ours<'a> {
    name: &'static str,
    load: &'a Load,
    /// The command line names each file, not their directory.
    is_one_by_one: bool,
    /// All ends share the key in this file.
    key: Option<PathBuf>,
}

impl<'a> Ours<'a> {
    /// Sends every file by its name.
    pub(crate) const fn files(name: &'static str, load: &'a Load) -> Self {
        let is_one_by_one = true;
        Self {
            name,
            load,
            is_one_by_one,
            key: None,
        }
    }

    /// Sends every file by its name, encrypted and authenticated.
    pub(crate) fn keyed(name: &'static str, load: &'a Load) -> Result<Self, String> {
        let key = Some(program::key_file()?);
        Ok(Self {
            key,
            ..Self::files(name, load)
        })
    }

    /// Sends the directory that the files are in.
    pub(crate) const fn directory(name: &'static str, load: &'a Load) -> Self {
        let is_one_by_one = false;
        Self {
            name,
            load,
            is_one_by_one,
            key: None,
        }
    }
}

impl Ours<'_> {
    fn key_options(&self) -> impl Iterator<Item = &Path> {
        let key = self.key.iter();
        key.flat_map(|key| [Path::new("--key-file"), key])
    }
}

impl Peer for Ours<'_> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn run(&self, lab: &Lab) -> Result<Sample, String> {
        let program = program::ours()?;
        let session = ["--group", "239.192.7.2:7500", "--iface", "e0", "--json"];
        let mut receivers = Vec::new();
        for receiver in RECEIVERS {
            let mut recv = lab.host(receiver).command(&program);
            recv.arg("recv").arg(self.load.target(receiver)?);
            recv.args(["--from", &lab.host(0).ipv4().to_string()]);
            recv.args(self.key_options());
            receivers.push(Running::start(recv.args(session))?);
        }
        timed(self.load, receivers, &mut [], || {
            let mut send = lab.host(0).command(&program);
            send.arg("send").args(self.key_options());
            if self.is_one_by_one {
                send.args(self.load.entries()?);
            } else {
                send.arg(self.load.source());
            }
            Running::start(send.args(session).args(["--receivers", "3"]))
        })
    }
}

/// uftp without a rate limit; its receivers are daemons, which stay.
#[derive(Debug)]
pub(crate) struct Uftp<'a> {
    pub(crate) load: &'a Load,
}

impl Peer for Uftp<'_> {
    fn name(&self) -> &'static str {
        "uftp 4.10"
    }

    fn run(&self, lab: &Lab) -> Result<Sample, String> {
        let mut daemons = Vec::new();
        for receiver in RECEIVERS {
            let mut recv = lab.host(receiver).command("uftpd");
            recv.args(["-d", "-I", "e0", "-B", "4194304", "-D"]);
            daemons.push(Running::start(recv.arg(self.load.target(receiver)?))?);
        }
        timed(self.load, Vec::new(), &mut daemons, || {
            let mut send = lab.host(0).command("uftp");
            send.args(["-I", "e0", "-R", "-1", "-B", "4194304", "-b", "1400"]);
            Running::start(send.args(self.load.entries()?))
        })
    }
}

/// udpcast with a confirmed window, as fast as the receivers follow. It sends a single file.
#[derive(Debug)]
pub(crate) struct Udpcast<'a> {
    pub(crate) load: &'a Load,
}

impl Peer for Udpcast<'_> {
    fn name(&self) -> &'static str {
        "udpcast 2012"
    }

    fn run(&self, lab: &Lab) -> Result<Sample, String> {
        let file = "00000";
        let mut receivers = Vec::new();
        for receiver in RECEIVERS {
            let mut recv = lab.host(receiver).command("udp-receiver");
            recv.args(["--interface", "e0", "--nokbd", "--file"]);
            let path = self.load.target(receiver)?.join(file);
            receivers.push(Running::start(recv.arg(path))?);
        }
        timed(self.load, receivers, &mut [], || {
            let mut send = lab.host(0).command("udp-sender");
            send.args(["--interface", "e0", "--nokbd", "--full-duplex"]);
            send.args(["--min-receivers", "3"]);
            send.args(["--mcast-data-address", "239.192.7.3", "--file"]);
            Running::start(send.arg(self.load.source().join(file)))
        })
    }
}

/// Bare datagrams to the three hosts for some seconds, with gaps: what the kernel carries over
/// these cables.
#[derive(Debug)]
pub(crate) struct Ceiling {
    datagrams: Datagrams,
}

impl Ceiling {
    pub(crate) fn new() -> Result<Self, String> {
        let datagrams = Datagrams::new(*RECEIVERS.end(), DATAGRAM_BYTES)?;
        Ok(Self { datagrams })
    }
}

impl Peer for Ceiling {
    fn name(&self) -> &'static str {
        "bare UDP (received, with gaps)"
    }

    fn run(&self, lab: &Lab) -> Result<Sample, String> {
        let bytes = DATAGRAM_BYTES as f64;
        let mut sample = self.datagrams.run(lab, bytes)?;
        sample.rate_per_s *= bytes / 1e6;
        Ok(sample)
    }
}

/// Starts the sender, waits for all programs but the daemons, and compares the files.
pub(crate) fn timed(
    load: &Load,
    receivers: Vec<Running>,
    daemons: &mut [Running],
    sender: impl FnOnce() -> Result<Running, String>,
) -> Result<Sample, String> {
    thread::sleep(SETTLE);
    let before = Ticks::read();
    let started = Instant::now();
    let (_, peak_kib) = sender()?.finish_with(receivers, RUN_LIMIT)?;
    let seconds = started.elapsed().as_secs_f64();
    let sample = Sample::since(before);
    daemons.iter_mut().for_each(Running::look_at_memory);
    let held: u64 = daemons.iter().map(Running::peak_kib).sum();
    Ok(Sample {
        peak_kib: peak_kib + held,
        rate_per_s: load.bytes as f64 / 1e6 / seconds,
        missing: load.wrong(),
        bytes: load.bytes as f64,
        ..sample
    })
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |error| format!("{}: {error}", directory.display());
    let entries = fs::read_dir(directory).map_err(failed)?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths)
}

fn is_equal(source: &Path, target: &Path) -> Result<bool, String> {
    for path in entries(source)? {
        let copy = target.join(path.file_name().unwrap_or_default());
        if fs::read(&path).ok() != fs::read(copy).ok() {
            return Ok(false);
        }
    }
    Ok(true)
}

fn create(path: &Path) -> Result<(), String> {
    fs::create_dir_all(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Fills `content` with bytes that no peer can compress.
fn fill(content: &mut [u8], state: &mut u64) {
    for word in content.chunks_mut(8) {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        word.copy_from_slice(&state.to_ne_bytes()[..word.len()]);
    }
}

const RECEIVERS: RangeInclusive<usize> = 1..=3;
const DATAGRAM_BYTES: usize = 1400;
/// Time for receivers to start listening. It does not count.
const SETTLE: Duration = Duration::from_secs(1);
const RUN_LIMIT: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_of_one_byte_is_found() {
        let load = Load::make("test", 3, 1000).unwrap();
        for receiver in RECEIVERS {
            let target = load.target(receiver).unwrap();
            for path in entries(&load.source()).unwrap() {
                fs::copy(&path, target.join(path.file_name().unwrap())).unwrap();
            }
        }
        assert_eq!(load.wrong(), 0);
        let path = load.root.join("target-2/00001");
        let mut content = fs::read(&path).unwrap();
        content[999] ^= 1;
        fs::write(&path, content).unwrap();
        assert_eq!(load.wrong(), 1);
    }
}
