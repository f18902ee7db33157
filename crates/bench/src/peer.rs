//! Who is compared: ours at its defaults, libpgm at its best, and bare UDP as the ceiling.

use std::{path::PathBuf, process::Command, thread, time::Duration};

use lab::{Host, Lab};
use serde_json::Value;

use crate::{
    machine::Ticks,
    program::{self, Running, number_after},
    sample::Sample,
};

/// Something that sends messages from host 0 to host 1.
pub(crate) trait Peer {
    /// The row's title.
    fn name(&self) -> &'static str;

    /// One run.
    fn run(&self, lab: &Lab) -> Result<Sample, String>;
}

/// `towline load` at its defaults.
#[derive(Debug)]
pub(crate) struct Towline {
    program: PathBuf,
    size: usize,
}

impl Towline {
    pub(crate) fn new(size: usize) -> Result<Self, String> {
        let program = program::root().join("target/release/towline");
        if !program.exists() {
            return Err(format!(
                "{} is missing: cargo build --release",
                program.display()
            ));
        }
        Ok(Self { program, size })
    }
}

impl Peer for Towline {
    fn name(&self) -> &'static str {
        "towline load"
    }

    fn run(&self, lab: &Lab) -> Result<Sample, String> {
        let mut recv = lab.host(1).command(&self.program);
        recv.args([
            "load",
            "recv",
            "--group",
            GROUP_AND_PORT,
            "--iface",
            "e0",
            "--json",
        ]);
        let mut send = lab.host(0).command(&self.program);
        send.args([
            "load",
            "send",
            "--group",
            GROUP_AND_PORT,
            "--iface",
            "e0",
            "--json",
        ]);
        send.args(["--receivers", "1", "--seconds", "3", "--size"])
            .arg(self.size.to_string());
        let (sent, received, mut sample) = run_pair(&mut recv, &mut send)?;
        let [sent, received] = [sent, received].map(|text| {
            serde_json::from_str::<Value>(&text).map_err(|error| format!("{error} in {text}"))
        });
        let (sent, received) = (sent?, received?);
        let count = |document: &Value, key: &str| document[key].as_f64().unwrap_or(f64::NAN);
        sample.rate = count(&received, "messages_per_s");
        sample.bytes = count(&received, "bytes");
        let bad = ["missing", "corrupt", "duplicates", "out_of_order"];
        let bad: f64 = bad.iter().map(|key| count(&received, key)).sum();
        let missing = count(&sent, "messages") - count(&received, "messages") + bad;
        sample.missing = if missing == 0.0 {
            0
        } else {
            missing.abs().max(1.0) as u64
        };
        Ok(sample)
    }
}

/// The C library of OpenPGM 5.3, in its own bench program, at the highest rate that loses nothing.
#[derive(Debug)]
pub(crate) struct Libpgm {
    program: PathBuf,
    size: usize,
}

impl Libpgm {
    pub(crate) fn new(size: usize) -> Result<Self, String> {
        let flags = program::pkg_config("openpgm-5.3")?;
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        Ok(Self {
            program: program::compile("pgmbench.c", &flags)?,
            size,
        })
    }
}

impl Peer for Libpgm {
    fn name(&self) -> &'static str {
        "libpgm 5.3 (OpenPGM)"
    }

    fn run(&self, lab: &Lab) -> Result<Sample, String> {
        let count = LIBPGM_MESSAGES.to_string();
        let size = self.size.to_string();
        let mut recv = lab.host(1).command(&self.program);
        // By address: libpgm looks a name up in the DNS first, and fails where there is none.
        recv.args(["recv", &lab.host(1).ipv4().to_string(), GROUP, "9"]);
        let mut send = lab.host(0).command(&self.program);
        send.args([
            "send",
            &lab.host(0).ipv4().to_string(),
            GROUP,
            &size,
            &count,
            "400000000",
        ]);
        let (_, received, mut sample) = run_pair(&mut recv, &mut send)?;
        let got = number_after(&received, "received").ok_or("no count in libpgm's output")?;
        sample.rate = number_after(&received, "s:").ok_or("no rate in libpgm's output")?;
        sample.bytes = got * self.size as f64;
        sample.missing = (LIBPGM_MESSAGES as f64 - got) as u64;
        Ok(sample)
    }
}

/// Bare datagrams of the same size in GSO runs, received with GRO: no protocol at all.
#[derive(Debug)]
pub(crate) struct RawUdp {
    program: PathBuf,
    datagram: usize,
}

impl RawUdp {
    pub(crate) fn new(size: usize) -> Result<Self, String> {
        let program = program::compile("udplimit.c", &[])?;
        Ok(Self {
            program,
            datagram: size + PGM_HEADER_BYTES,
        })
    }
}

impl Peer for RawUdp {
    fn name(&self) -> &'static str {
        "bare UDP, GSO and GRO (received)"
    }

    fn run(&self, lab: &Lab) -> Result<Sample, String> {
        let address = |host: &Host| host.ipv4().to_string();
        let mut recv = lab.host(1).command(&self.program);
        recv.args(["recv", &address(lab.host(1)), GROUP, "4.5", "gro"]);
        let mut send = lab.host(0).command(&self.program);
        let size = self.datagram.to_string();
        send.args(["send", &address(lab.host(0)), GROUP, &size, "3", "gso"]);
        let (_, received, mut sample) = run_pair(&mut recv, &mut send)?;
        sample.rate = number_after(&received, "received").ok_or("no rate from udplimit")?;
        sample.bytes = sample.rate * 3.0 * (self.datagram - PGM_HEADER_BYTES) as f64;
        Ok(sample)
    }
}

/// Starts the receiver, then the sender; gives what both printed and the machine's cost.
fn run_pair(recv: &mut Command, send: &mut Command) -> Result<(String, String, Sample), String> {
    let before = Ticks::read();
    let receiver = Running::start(recv)?;
    thread::sleep(Duration::from_millis(500));
    let sent = Running::start(send)?.finish(RUN_LIMIT)?;
    let received = receiver.finish(RUN_LIMIT)?;
    let after = Ticks::read();
    let sample = Sample {
        cpu_seconds: after.busy_seconds_since(before),
        steal_permille: after.steal_permille_since(before),
        ..Sample::default()
    };
    Ok((sent, received, sample))
}

const GROUP: &str = "239.192.7.1";
const GROUP_AND_PORT: &str = "239.192.7.1:7500";
const PGM_HEADER_BYTES: usize = 24;
const LIBPGM_MESSAGES: u64 = 300_000;
const RUN_LIMIT: Duration = Duration::from_secs(60);
