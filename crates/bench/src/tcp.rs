//! One file to one host over TCP alone: `towline send --to` beside iperf3 with sendfile, nc and an
//! rsync daemon, and beside the parts of its work: a copy of the file, and a hash of it.
//!
//! iperf3 only moves bytes: its receiver throws them away. Ours are read, hashed at both ends,
//! written, synced and proven, so that the processor time of its parts says how far it can come on
//! a machine with so many cores.

use std::{process::Command, thread, time::Duration};

use lab::{Host, Lab, LabSpec};

use crate::{
    files::{Load, timed},
    machine::Ticks,
    peer::Peer,
    program::{self, Running, printed},
    record,
    sample::{Sample, Series},
};

/// Compares over a cable, over a line that loses one segment in a hundred, and over a long path.
pub(crate) fn run(
    pairs: usize,
    compare: impl Fn(&Lab, &[Box<dyn Peer + '_>], usize, &str) -> Result<Vec<Series>, String>,
) -> Result<(), String> {
    let load = Load::make("tcp", 1, 2_000_000_000)?.for_one_receiver();
    let lab = Lab::new(&LabSpec::new(2).direct()).map_err(|error| error.to_string())?;
    let peers: [Box<dyn Peer + '_>; 7] = [
        Box::new(Ours::new(&load)),
        Box::new(Iperf { load: &load }),
        Box::new(Netcat { load: &load }),
        Box::new(Rsync { load: &load }),
        Box::new(Part::copy(&load)),
        Box::new(Part::hash(&load)),
        Box::new(Ours::again(&load)),
    ];
    let title = format!("one file of 2 GB over TCP, {pairs} pairs");
    let series = compare(&lab, &peers, pairs, "MB/s")?;
    record::keep("tcp", &title, "MB/s", &series)?;
    drop(lab);
    let load = Load::make("tcp-line", 1, 500_000_000)?.for_one_receiver();
    let peers: [Box<dyn Peer + '_>; 3] = [
        Box::new(Ours::new(&load)),
        Box::new(Iperf { load: &load }),
        Box::new(Ours::again(&load)),
    ];
    let lab = Lab::new(&LabSpec::new(2).segments_at_switch()).map_err(|e| e.to_string())?;
    let lost = lab.host(1).set_segment_loss(10, 1_000);
    lost.map_err(|error| error.to_string())?;
    let title = format!("one file of 500 MB over TCP, 1 % of segments lost, {pairs} pairs");
    let series = compare(&lab, &peers, pairs, "MB/s")?;
    record::keep("tcp-loss", &title, "MB/s", &series)?;
    let lab = Lab::new(&LabSpec::new(2)).map_err(|error| error.to_string())?;
    let _path = lab
        .lengthen(1, ONE_WAY)
        .map_err(|error| error.to_string())?;
    let title = format!("one file of 500 MB over TCP, a path of 50 ms, {pairs} pairs");
    let series = compare(&lab, &peers, pairs, "MB/s")?;
    record::keep("tcp-far", &title, "MB/s", &series)
}

/// `towline send --to` and `recv --listen` with their defaults.
#[derive(Debug)]
pub(crate) struct Ours<'a> {
    name: &'static str,
    load: &'a Load,
}

impl<'a> Ours<'a> {
    pub(crate) const fn new(load: &'a Load) -> Self {
        let name = "towline send --to";
        Self { name, load }
    }

    /// The same again, which shows the noise.
    const fn again(load: &'a Load) -> Self {
        let name = "towline send --to (again)";
        Self { name, load }
    }
}

impl Peer for Ours<'_> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn run(&self, lab: &Lab) -> Result<Sample, String> {
        let program = program::ours()?;
        let mut recv = lab.host(1).command(&program);
        recv.arg("recv").arg(self.load.target(1)?);
        recv.args(["--listen", PORT, "--from", "any", "--json"]);
        let receiver = Running::start(&mut recv)?;
        timed(self.load, vec![receiver], &mut [], || {
            let mut send = lab.host(0).command(&program);
            send.arg("send").args(self.load.entries()?);
            send.args(["--json", "--to", &at(lab.host(1))]);
            Running::start(&mut send)
        })
    }
}

/// iperf3 with sendfile: as many bytes, from memory to nowhere.
#[derive(Debug)]
struct Iperf<'a> {
    load: &'a Load,
}

impl Peer for Iperf<'_> {
    fn name(&self) -> &'static str {
        "iperf3 -Z"
    }

    fn run(&self, lab: &Lab) -> Result<Sample, String> {
        let mut server = lab.host(1).command("iperf3");
        let server = Running::start(server.args(["-s", "-1"]))?;
        thread::sleep(SETTLE);
        let before = Ticks::read();
        let mut client = lab.host(0).command("iperf3");
        let bytes = self.load.bytes();
        client.args(["-Z", "-J", "-n", &bytes.to_string()]);
        client.args(["-c", &lab.host(1).ipv4().to_string()]);
        let (said, peak_kib) = Running::start(&mut client)?.finish_with(vec![server], LIMIT)?;
        let report = program::document(&said[0])?;
        let bits = report["end"]["sum_received"]["bits_per_second"].as_f64();
        Ok(Sample {
            rate_per_s: bits.ok_or("iperf3 tells no rate")? / 8e6,
            bytes: bytes as f64,
            peak_kib,
            ..Sample::since(before)
        })
    }
}

/// nc at both ends, into a file.
#[derive(Debug)]
struct Netcat<'a> {
    load: &'a Load,
}

impl Peer for Netcat<'_> {
    fn name(&self) -> &'static str {
        "nc"
    }

    fn run(&self, lab: &Lab) -> Result<Sample, String> {
        printed(Command::new("nc").arg("-h"))?;
        let target = self.load.target(1)?.join("00000");
        let receiver = Running::start(&mut shell(
            lab.host(1),
            &format!("exec nc -l {PORT} > {}", target.display()),
        ))?;
        timed(self.load, vec![receiver], &mut [], || {
            let [file] = &self.load.entries()?[..] else {
                return Err("nc sends one file".to_owned());
            };
            let host = lab.host(1).ipv4();
            let line = format!("exec nc -N {host} {PORT} < {}", file.display());
            Running::start(&mut shell(lab.host(0), &line))
        })
    }
}

/// rsync to a daemon, whole files.
#[derive(Debug)]
struct Rsync<'a> {
    load: &'a Load,
}

impl Peer for Rsync<'_> {
    fn name(&self) -> &'static str {
        "rsync --fsync to a daemon"
    }

    fn run(&self, lab: &Lab) -> Result<Sample, String> {
        let target = self.load.target(1)?;
        let config = target.with_extension("rsyncd");
        let text = format!(
            "use chroot = no\nuid = 0\ngid = 0\n[in]\npath = {}\nread only = no\n",
            target.display()
        );
        std::fs::write(&config, text).map_err(|error| format!("{}: {error}", config.display()))?;
        let mut daemon = lab.host(1).command("rsync");
        daemon.args(["--daemon", "--no-detach", "--port", PORT, "--config"]);
        let mut daemon = [Running::start(daemon.arg(&config))?];
        timed(self.load, Vec::new(), &mut daemon, || {
            let mut send = lab.host(0).command("rsync");
            send.args(["--whole-file", "--times", "--fsync"])
                .args(self.load.entries()?);
            Running::start(send.arg(format!("rsync://{}/in/", at(lab.host(1)))))
        })
    }
}

/// A part of the work, without a network.
#[derive(Debug)]
struct Part<'a> {
    name: &'static str,
    load: &'a Load,
    line: &'static str,
}

impl<'a> Part<'a> {
    /// The file copied and synced.
    const fn copy(load: &'a Load) -> Self {
        Self {
            name: "cp and sync (a part)",
            load,
            line: "cp \"$1\"/* \"$2\" && sync \"$2\"/*",
        }
    }

    /// The file hashed, by one thread.
    const fn hash(load: &'a Load) -> Self {
        Self {
            name: "b3sum, one thread (a part, twice)",
            load,
            line: "b3sum --num-threads 1 --no-mmap \"$1\"/*",
        }
    }
}

impl Peer for Part<'_> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn run(&self, lab: &Lab) -> Result<Sample, String> {
        let target = self.load.target(1)?;
        let mut command = shell(lab.host(1), self.line);
        command.arg("sh").arg(self.load.source()).arg(&target);
        let before = Ticks::read();
        let started = std::time::Instant::now();
        let (_, peak_kib) = Running::start(&mut command)?.finish_with(Vec::new(), LIMIT)?;
        let bytes = self.load.bytes() as f64;
        Ok(Sample {
            rate_per_s: bytes / 1e6 / started.elapsed().as_secs_f64(),
            bytes,
            peak_kib,
            ..Sample::since(before)
        })
    }
}

fn shell(host: &Host, line: &str) -> Command {
    let mut command = host.command("sh");
    command.args(["-c", line]);
    command
}

fn at(host: &Host) -> String {
    format!("{}:{PORT}", host.ipv4())
}

const PORT: &str = "7500";
/// How long a packet is under way on the long path.
const ONE_WAY: Duration = Duration::from_millis(25);
const SETTLE: Duration = Duration::from_millis(500);
const LIMIT: Duration = Duration::from_secs(120);
