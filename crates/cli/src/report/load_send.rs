//! The report of `load send`.

use schemars::JsonSchema;
use serde::Serialize;

use super::{
    CensusReport, Counters, Document, LimitedBy, UsageReport, quantity,
    text::{Rows, rates},
};
use crate::args::SizeRange;

/// The report of `load send`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct LoadSendReport {
    pub(crate) group: String,
    pub(crate) interface: String,
    pub(crate) size_bytes: SizeRange,
    pub(crate) seed: u64,
    pub(crate) messages: u64,
    /// Payload bytes.
    pub(crate) bytes: u64,
    /// Seconds from the first message until the last packet had left.
    pub(crate) seconds: f64,
    pub(crate) messages_per_s: f64,
    /// Payload bits each second.
    pub(crate) bits_per_s: f64,
    /// Why the command did not finish its work.
    pub(crate) failure: Option<String>,
    /// At least one receiver has confirmed everything, and no receiver that has joined or is
    /// expected lacks anything. False when no receiver reports, because nobody can confirm.
    pub(crate) is_confirmed: bool,
    /// A signal ended the command.
    pub(crate) is_interrupted: bool,
    pub(crate) receivers: u64,
    /// Receivers that were dropped, or that left before they had everything.
    pub(crate) given_up: u64,
    /// With an automatic rate: the most recent receiver that limited the rate.
    pub(crate) limited_by: Option<LimitedBy>,
    /// With `--poll-interval`: the result of the last count of receivers by polls.
    pub(crate) census: Option<CensusReport>,
    pub(crate) usage: UsageReport,
    /// Packets that the session dropped, by reason; reasons that did not occur are left out.
    pub(crate) drops: Counters,
    pub(crate) counters: Counters,
}

impl Document for LoadSendReport {
    const SCHEMA: &'static str = "towline.load-send";
    const IS_DATA: bool = true;

    fn text(&self) -> String {
        let mut table = Rows::default();
        table.row("group", &format!("{} by {}", self.group, self.interface));
        table.interrupted(self.is_interrupted);
        table.row("messages", &self.messages);
        table.row("payload", &quantity::bytes(self.bytes));
        table.row("time", &quantity::seconds(self.seconds));
        table.row("rate", &rates(self.messages, self.bytes, self.seconds));
        table.row("packets", &self.counters.packets_told());
        let mut receivers = format!("{} reporting, ", self.receivers);
        receivers += match (self.is_confirmed, self.receivers) {
            (true, _) => "confirmed",
            (false, 0) => "none could confirm",
            (false, _) => "NOT confirmed by all",
        };
        if self.given_up > 0 {
            receivers += &format!(", {} given up", self.given_up);
        }
        table.row("receivers", &receivers);
        if let Some(failure) = &self.failure {
            table.row("failure", failure);
        }
        if let Some(limited_by) = &self.limited_by {
            table.row("last", limited_by);
        }
        if let Some(census) = &self.census {
            table.row("counted", census);
        }
        table.usage(&self.usage);
        table.row("drops", &self.drops.drops_told());
        table.text
    }
}
