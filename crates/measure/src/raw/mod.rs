//! The raw result file: it holds every message of a measurement, is written while the measurement
//! runs, and is read for every plot.
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
//!   kind 6  run end   JSON: the counts of the run (End)
//! ```
//! Numbers of kinds 3 and 4 are LEB128; times are nanoseconds. A run with a schedule stores how
//! late each message left. A run without one (ping-pong) stores the time since the message before.
//! A file ends early when the measurement was killed or the disk was full. Then the reader reads
//! all complete blocks, and [`File::cut`] says what is missing. Unknown kinds are skipped.
//!
//! The writer holds two blocks in memory, so only the disk limits the length of a run.

use std::io;

use serde::{Deserialize, Serialize};

use crate::{Counts, Disturbance, Link, Repairs, Sample, Schedule, Split, StampCounts, Transport};

mod leb128;

mod reader;
pub use reader::{RawError, read};

mod writer;
pub use writer::Writer;

/// What was measured, where, and with which command. It stands in the same file as the samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Manifest {
    /// The release of Towline that measured.
    pub towline: String,
    /// The command line of the measurement.
    pub command: Vec<String>,
    /// When the measurement began, in seconds since 1970.
    pub began_unix_s: u64,
    /// The machine that measured.
    pub host: Host,
    /// The far end, as the user wrote it.
    pub target: String,
    /// Name of the interface that leads to the target, when known.
    pub interface: Option<String>,
    /// Driver of the interface.
    pub driver: Option<String>,
    /// The interface's link, when its speed is known.
    pub link: Option<Link>,
    /// The number from which the tokens of the runs count up.
    pub seed: u64,
    /// What the system refused and what was used instead, in words.
    pub remarks: Vec<String>,
}

/// The facts about a machine that matter to times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    /// The host's name.
    pub name: String,
    /// Kernel release and build.
    pub kernel: String,
    /// The kernel's preemption model: `none`, `voluntary`, `full`, `lazy`, `rt`, or as much as is
    /// known.
    pub preemption: String,
    /// The processor's model, as the processor names it.
    pub processor: String,
    /// Number of processors.
    pub cpu_count: u32,
    /// The hardware counter that the kernel's clock uses.
    pub clock_source: String,
    /// The governor of the processor's frequency, when there is one.
    pub governor: Option<String>,
}

/// The settings of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// Runs with the same label belong together: they are slices of one variant.
    pub label: String,
    /// Messages each second; `None` for ping-pong.
    pub per_second: Option<u64>,
    /// Payload bytes of each message.
    #[serde(alias = "size")]
    pub size_bytes: usize,
    /// What carried the messages.
    pub transport: Transport,
    /// True when the messages went over IPv6.
    pub is_ipv6: bool,
    /// The scheduling class in force, in words: `fifo:50`, `other`.
    pub sched: String,
    /// Which system calls moved the packets.
    pub engine: String,
    /// How the measuring thread waited.
    pub wait: String,
    /// The processor that the measuring thread was bound to.
    pub cpu: Option<u32>,
    /// The most messages that may be without an answer at a time; `None` for any number.
    #[serde(alias = "window")]
    pub window_messages: Option<u32>,
}

/// The counts at the end of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct End {
    /// For how many nanoseconds messages were sent.
    pub lasted_ns: u64,
    /// The counts of messages.
    pub counts: Counts,
    /// Processor seconds that the hypervisor took during the run.
    pub steal_s: Option<f64>,
    /// Processor seconds of this process.
    pub process_cpu_s: Option<f64>,
    /// True when the run ended early: the far end stopped answering, or the user stopped the run.
    pub is_cut: bool,
    /// What PGM repaired; `None` over another transport.
    pub repairs: Option<Repairs>,
    /// How many messages the kernel or the device stamped.
    pub stamps: StampCounts,
    /// Datagrams that the kernel dropped at the measuring end's sockets, mostly because a receive
    /// buffer was full; `None` over TCP, and in results that do not have it.
    pub socket_drops: Option<u64>,
}

/// A result file after reading.
#[derive(Clone, Debug)]
pub struct File {
    /// What was measured, where, and how.
    pub manifest: Manifest,
    /// The runs, in the order of the file.
    pub runs: Vec<Run>,
    /// What is missing when the file ends too early; `None` for a complete file.
    pub cut: Option<FileCut>,
}

/// What is missing from a file that ends too early.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileCut {
    /// Bytes at the end of the file that belong to a block that is not whole. The reader leaves
    /// them out.
    pub left_out: u64,
    /// How many bytes that block lacks, when its length is known.
    pub missing: Option<u64>,
}

/// One run after reading.
#[derive(Clone, Debug)]
pub struct Run {
    /// The settings of the run.
    pub setup: Setup,
    /// The messages, by number.
    pub samples: Vec<Sample>,
    /// Where the time of the stamped messages went.
    pub splits: Vec<Split>,
    /// What disturbed the measurement.
    pub disturbances: Vec<Disturbance>,
    /// The counts at the end of the run; `None` when the file ends before them.
    pub end: Option<End>,
}

impl Setup {
    /// Returns the schedule; `None` for ping-pong, where a message leaves when the answer has come.
    #[must_use]
    pub fn schedule(&self) -> Option<Schedule> {
        self.per_second.and_then(|rate| Schedule::new(rate).ok())
    }
}

/// The values that a sample's numbers are relative to. Writer and reader compute them alike.
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

    /// Returns the three numbers that a samples block holds for a sample.
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
/// A block is written when it has reached this length.
const BLOCK_BYTES: usize = 32 * 1024;
/// No block is longer than this, so that a hostile file cannot make a reader use more memory.
const BLOCK_BYTES_MAX: usize = 1 << 20;

/// The result of writing to memory or disk.
type Written = io::Result<()>;

#[cfg(test)]
mod tests;
