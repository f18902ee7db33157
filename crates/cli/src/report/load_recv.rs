//! The report of `load recv`.

use std::time::Duration;

use gauge::load::{LoadTally, Percentiles};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    Counters, Document, SenderEnds, UsageReport,
    quantity::{self, per_second},
    text::{Rows, rates},
};

/// The report of `load recv`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct LoadRecvReport {
    pub(crate) group: String,
    pub(crate) interface: String,
    pub(crate) seed: u64,
    /// Intact messages, each counted once.
    pub(crate) messages: u64,
    /// Payload bytes of the intact messages.
    pub(crate) bytes: u64,
    pub(crate) missing: u64,
    pub(crate) corrupt: u64,
    pub(crate) duplicates: u64,
    pub(crate) out_of_order: u64,
    /// Packets that the protocol reported as lost.
    pub(crate) lost_packets: u64,
    pub(crate) senders: SenderEnds,
    /// A signal ended the command.
    pub(crate) is_interrupted: bool,
    /// Time from the first message to the last.
    pub(crate) seconds: f64,
    pub(crate) messages_per_s: f64,
    /// Payload bits per second.
    pub(crate) bits_per_s: f64,
    /// With `--stamp`: the time from when each message was due until it was delivered.
    pub(crate) delay: Option<DelayReport>,
    pub(crate) usage: UsageReport,
    /// Packets that the session dropped, by reason; reasons that did not occur are left out.
    pub(crate) drops: Counters,
    pub(crate) counters: Counters,
}

/// One-way delays by the wall clocks of both ends, which agree to within `clock_error_ns_max`.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct DelayReport {
    #[serde(flatten)]
    pub(crate) percentiles: Percentiles,
    /// A message counts as late when its delay is longer than this.
    pub(crate) late_ns: u64,
    /// How many messages were late.
    pub(crate) messages_late: u64,
    /// How many messages came before they were due, which means that the clocks disagree.
    pub(crate) negative: u64,
    /// How far the clocks of a sender and of this host may be apart: the greatest error of a
    /// sender's clock plus the error of this host's clock, as the clock daemons (such as chrony)
    /// state them. Null when no stamped message came, or when one of these clocks has no daemon. A
    /// sender on this host reads the same clock, so its delays have no such error.
    pub(crate) clock_error_ns_max: Option<u64>,
}

impl LoadRecvReport {
    /// Returns true when any message or packet was lost, or any message was damaged, duplicated or
    /// out of order.
    pub(crate) const fn has_damage(&self) -> bool {
        self.has_loss() || self.corrupt + self.duplicates + self.out_of_order > 0
    }

    /// Returns true when messages or packets are missing.
    pub(crate) const fn has_loss(&self) -> bool {
        self.missing + self.lost_packets > 0
    }

    /// Adds the counts in `tally`, and computes the rates again.
    pub(crate) fn count(&mut self, tally: &LoadTally) {
        self.messages += tally.received;
        self.bytes += tally.bytes;
        self.missing = self.missing.saturating_add(tally.missing);
        self.corrupt += tally.corrupt;
        self.duplicates += tally.duplicates;
        self.out_of_order += tally.out_of_order;
        self.messages_per_s = per_second(self.messages, self.seconds);
        self.bits_per_s = per_second(self.bytes, self.seconds) * 8.0;
    }
}

impl Document for LoadRecvReport {
    const SCHEMA: &'static str = "towline.load-recv";
    const IS_DATA: bool = true;

    fn text(&self) -> String {
        let mut table = Rows::default();
        table.row("group", &format!("{} by {}", self.group, self.interface));
        table.interrupted(self.is_interrupted);
        table.row("messages", &self.messages);
        table.row("payload", &quantity::bytes(self.bytes));
        table.row("missing", &self.missing);
        table.row("corrupt", &self.corrupt);
        table.row("duplicates", &self.duplicates);
        table.row("out of order", &self.out_of_order);
        table.row("lost packets", &self.lost_packets);
        table.row("time", &quantity::seconds(self.seconds));
        table.row("rate", &rates(self.messages, self.bytes, self.seconds));
        if let Some(delay) = &self.delay {
            table.row("delay", &delays(delay));
            table.row("clock error", &clock_error(delay));
        }
        table.row("senders", &self.senders.told());
        table.usage(&self.usage);
        table.row("drops", &self.drops.drops_told());
        table.text
    }
}

fn delays(delay: &DelayReport) -> String {
    let time = |ns| quantity::time(Duration::from_nanos(ns));
    let at = &delay.percentiles;
    let mut text = format!(
        "p50 {}, p99 {}, p99.9 {}, max {}; {} of {} later than {}",
        time(at.p50_ns),
        time(at.p99_ns),
        time(at.p999_ns),
        time(at.max_ns),
        delay.messages_late,
        at.count,
        time(delay.late_ns),
    );
    if delay.negative > 0 {
        text += &format!(
            "; {} arrived before they were due: the clocks disagree",
            delay.negative
        );
    }
    text
}

fn clock_error(delay: &DelayReport) -> String {
    match delay.clock_error_ns_max {
        Some(error_ns) => {
            let error = quantity::time(Duration::from_nanos(error_ns));
            format!("up to {error} between two hosts, none on one host")
        }
        None if delay.percentiles.count + delay.negative == 0 => {
            "unknown: no stamped message came".to_owned()
        }
        None => "unknown between two hosts: a clock is not synchronised".to_owned(),
    }
}
