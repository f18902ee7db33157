//! Counts the messages that reach the accepting ends of control connections: all of them, and the
//! reports in the busiest second. A run can thus check the bounds of reports.

use std::collections::BTreeMap;

use base::Instant;
use wire::object::{Decoder, Message};

/// Messages that reached the accepting ends of control connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControlCounts {
    /// Messages of every kind.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Messages that say where a receiver stands: POS and PROGRESS.
    pub reports: u64,
    /// The most reports of one kind, POS or PROGRESS, in one second.
    pub reports_a_second_max: u64,
    /// The most reports on one connection, which stands for one receiver.
    pub reports_each_max: u64,
}

/// The tally of one world.
#[derive(Debug, Default)]
pub(crate) struct ControlTally {
    counts: ControlCounts,
    /// The decoder of each connection, and how many reports came on it.
    streams: BTreeMap<usize, (Decoder, u64)>,
    /// The second being counted, and its reports of each kind.
    second: (u64, [u64; 2]),
}

impl ControlTally {
    /// Counts `bytes` of connection `stream`, and each message that they complete. Bytes that are
    /// no message count as bytes only.
    pub(crate) fn received(&mut self, now: Instant, stream: usize, bytes: &[u8]) {
        self.counts.bytes += bytes.len() as u64;
        let fresh = || (Decoder::new(BODY_BYTES_MAX), 0);
        let (decoder, reports) = self.streams.entry(stream).or_insert_with(fresh);
        decoder.push(bytes);
        let second = now.as_nanos() / 1_000_000_000;
        if self.second.0 != second {
            self.second = (second, [0; 2]);
        }
        while let Ok(Some(message)) = decoder.next_message() {
            self.counts.messages += 1;
            let kind = match message {
                Message::Pos(_) => 0,
                Message::Progress(_) => 1,
                _ => continue,
            };
            *reports += 1;
            self.counts.reports += 1;
            self.second.1[kind] += 1;
            let max = &mut self.counts.reports_a_second_max;
            *max = (*max).max(self.second.1[kind]);
        }
        let max = &mut self.counts.reports_each_max;
        *max = (*max).max(*reports);
    }

    pub(crate) const fn counts(&self) -> ControlCounts {
        self.counts
    }
}

const BODY_BYTES_MAX: usize = 1 << 24;
