//! The raw result file: every message of a measurement, written while it runs, read for every plot.
//!
//! ```text
//!   "towline-rtt 1\n"
//!   block*            kind u8 | length u32 LE | payload
//!
//!   kind 1  manifest  JSON, once, first: host, kernel, command line, ... (Manifest)
//!   kind 2  run       JSON: what differs between runs (Setup); later blocks belong to this run
//!   kind 3  samples   per message: slots skipped | late | rtt + 1, or 0 when lost
//!   kind 4  splits    per stamped message: sequence gap | queue | device | link | wake
//!   kind 5  disturbance  JSON: something that happened to the measurement (Disturbance)
//!   kind 6  run end   JSON: its accounts (End)
//! ```
//! Numbers of kinds 3 and 4 are LEB128, nanoseconds. A run with a schedule stores how late each
//! message left; one without (ping-pong) stores the time since the message before it. A file that
//! ends in the middle is a measurement that was killed, or one whose disk was full: wherever it
//! ends, all whole blocks are read, and [`File::cut`] says what is missing. Unknown kinds are
//! skipped.
//!
//! The length of a run is bounded by the disk, not by memory: the writer holds one block.

use std::io;

use serde::{Deserialize, Serialize};

use crate::{Counts, Disturbance, Link, Repairs, Sample, Schedule, Split, StampCounts, Transport};

mod leb128;

mod reader;
pub use reader::{RawError, read};

mod writer;
pub use writer::Writer;

/// What was measured, where, and with which command: travels with the samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Manifest {
    /// Release of Towline.
    pub towline: String,
    /// The command line, as given.
    pub command: Vec<String>,
    /// When it began: seconds since 1970.
    pub began_unix_s: u64,
    /// The machine that measured.
    pub host: Host,
    /// The far end, as it was addressed.
    pub target: String,
    /// Name of the interface that leads there, when known.
    pub interface: Option<String>,
    /// Driver of that interface.
    pub driver: Option<String>,
    /// The link, when its speed is known.
    pub link: Option<Link>,
    /// What the random numbers came from.
    pub seed: u64,
    /// What the system refused and what was used instead, in words.
    pub remarks: Vec<String>,
}

/// A machine, as far as it matters to times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Kernel release and build.
    pub kernel: String,
    /// How the kernel preempts: `none`, `voluntary`, `full`, `lazy`, `rt`, or what is known of it.
    pub preemption: String,
    /// Its processors, as they call themselves.
    pub processor: String,
    /// How many.
    pub cpu_count: u32,
    /// What the kernel's clock runs on.
    pub clock_source: String,
    /// The frequency governor, where there is one.
    pub governor: Option<String>,
}

/// What is particular to one run of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// Groups runs that belong together: slices of one variant have one label.
    pub label: String,
    /// Messages each second; `None` for ping-pong.
    pub per_second: Option<u64>,
    /// Payload bytes of each message.
    pub size: usize,
    /// What carried it.
    pub transport: Transport,
    /// Over IPv6.
    pub is_ipv6: bool,
    /// Scheduling class that held, in words: `fifo:50`, `other`.
    pub sched: String,
    /// Which calls move the packets.
    pub engine: String,
    /// How the engine waits.
    pub wait: String,
    /// Processor it was bound to.
    pub cpu: Option<u32>,
    /// Most messages without an answer at a time; `None`: any number.
    pub window: Option<u32>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct End {
    /// How long messages were sent.
    pub lasted_ns: u64,
    /// The accounts.
    pub counts: Counts,
    /// Processor seconds that a hypervisor took during the run.
    pub steal_s: Option<f64>,
    /// Processor seconds of this process.
    pub process_cpu_s: Option<f64>,
    /// The far end stopped answering, or the user stopped the run.
    pub is_cut: bool,
    /// What PGM repaired; `None` over another transport.
    pub repairs: Option<Repairs>,
    /// Whose stamps the splits are from.
    pub stamps: StampCounts,
}

/// A result that was read.
#[derive(Clone, Debug)]
pub struct File {
    /// What, where, how.
    pub manifest: Manifest,
    /// The runs, in their order.
    pub runs: Vec<Run>,
    /// Where it ends too early; `None` for a file that is whole.
    pub cut: Option<FileCut>,
}

/// Where a file ends that was cut short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileCut {
    /// Bytes at its end that are the begin of a block, and are left out for that.
    pub left_out: u64,
    /// How many bytes that block lacks, when its length is known.
    pub missing: Option<u64>,
}

/// One run that was read.
#[derive(Clone, Debug)]
pub struct Run {
    /// What was particular to it.
    pub setup: Setup,
    /// Its messages, by number.
    pub samples: Vec<Sample>,
    /// Where the time of some went.
    pub splits: Vec<Split>,
    /// What happened meanwhile.
    pub disturbances: Vec<Disturbance>,
    /// Its accounts; `None` when the file ends before.
    pub end: Option<End>,
}

impl Setup {
    /// The schedule, unless the next message leaves when the answer has come.
    #[must_use]
    pub fn schedule(&self) -> Option<Schedule> {
        self.per_second.and_then(|rate| Schedule::new(rate).ok())
    }
}

/// The values that a sample's fields are relative to, kept alike by writer and reader.
#[derive(Clone, Copy, Debug)]
struct Base {
    schedule: Option<Schedule>,
    next_sequence: u64,
    sent_ns: u64,
    split_sequence: u64,
}

impl Base {
    const fn new(schedule: Option<Schedule>) -> Self {
        Self {
            schedule,
            next_sequence: 0,
            sent_ns: 0,
            split_sequence: 0,
        }
    }

    /// The three numbers of a sample.
    const fn encode(&mut self, sample: &Sample) -> [u64; 3] {
        let skipped = sample.sequence.saturating_sub(self.next_sequence);
        let time = match self.schedule {
            Some(_) => sample.late_ns(),
            None => sample.sent_ns.saturating_sub(self.sent_ns),
        };
        self.next_sequence = sample.sequence + 1;
        self.sent_ns = sample.sent_ns;
        let rtt = match sample.rtt_ns {
            Some(rtt) => rtt.saturating_add(1),
            None => 0,
        };
        [skipped, time, rtt]
    }

    const fn decode(&mut self, [skipped, time, rtt]: [u64; 3]) -> Sample {
        let sequence = self.next_sequence.saturating_add(skipped);
        let (intended_ns, sent_ns) = match self.schedule {
            Some(schedule) => {
                let due = schedule.due_ns(sequence);
                (due, due.saturating_add(time))
            }
            None => {
                let sent = self.sent_ns.saturating_add(time);
                (sent, sent)
            }
        };
        self.next_sequence = sequence.saturating_add(1);
        self.sent_ns = sent_ns;
        Sample {
            sequence,
            intended_ns,
            sent_ns,
            rtt_ns: rtt.checked_sub(1),
        }
    }
}

const MAGIC: &[u8] = b"towline-rtt 1\n";
const MANIFEST: u8 = 1;
const RUN: u8 = 2;
const SAMPLES: u8 = 3;
const SPLITS: u8 = 4;
const DISTURBANCE: u8 = 5;
const RUN_END: u8 = 6;
/// A block is written when it has grown to this.
const BLOCK_BYTES: usize = 32 * 1024;
/// No block is longer, so that a hostile file cannot make a reader use more memory.
const BLOCK_BYTES_MAX: usize = 1 << 20;

/// What writing to memory or disk gives.
type Written = io::Result<()>;

#[cfg(test)]
mod tests;
