//! The record of a run for a person: a line for everything that happened, and a pcap of the wire.
//!
//! Runs are not recorded at first. A failed seed is run again with recording on, which gives the
//! same run.

use std::fmt::Write as _;

use base::Instant;

use crate::{frame::Frame, pcap::Pcap};

/// The record of one run.
#[derive(Clone, Debug)]
pub struct Trace {
    started: Instant,
    describe: fn(&[u8]) -> String,
    text: String,
    pcap: Pcap,
    left_out: u64,
}

impl Trace {
    /// Makes an empty record; `describe` turns a datagram into one line.
    #[must_use]
    pub fn new(started: Instant, describe: fn(&[u8]) -> String) -> Self {
        Self {
            started,
            describe,
            text: String::new(),
            pcap: Pcap::new(),
            left_out: 0,
        }
    }

    pub(crate) fn line(&mut self, now: Instant, line: &str) {
        if self.text.len() > TEXT_BYTES_MAX {
            self.left_out += 1;
            return;
        }
        let ns = now.since(self.started).as_nanos();
        let (ms, rest) = (ns / 1_000_000, ns % 1_000_000);
        writeln!(self.text, "{ms:>6}.{rest:06} {line}").expect("a String takes everything");
    }

    pub(crate) fn datagram(&mut self, now: Instant, frame: &Frame) {
        if self.pcap.bytes().len() < PCAP_BYTES_MAX {
            self.pcap
                .push(now, frame.source, frame.to, frame.hops, &frame.bytes);
        }
        let what = (self.describe)(&frame.bytes);
        self.line(now, &format!("{} -> {}: {what}", frame.source, frame.to));
    }

    /// Returns the text. Its last line says how many lines were left out, if any were.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = self.text.clone();
        if self.left_out > 0 {
            writeln!(text, "... and {} lines more", self.left_out)
                .expect("a String takes everything");
        }
        text
    }

    /// Returns the datagrams that reached the switch, as a pcap file.
    #[must_use]
    pub fn pcap(&self) -> &[u8] {
        self.pcap.bytes()
    }
}

const TEXT_BYTES_MAX: usize = 256 << 20;
const PCAP_BYTES_MAX: usize = 256 << 20;
