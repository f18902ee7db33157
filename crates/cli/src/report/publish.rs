//! The report of `pub`. Field names carry their units, here and in the other reports.

use std::{fmt, time::Duration};

use schemars::JsonSchema;
use serde::Serialize;
use towline::Census;

use super::{
    Counters, Document, quantity,
    text::{clauses, interrupted, rate},
};

/// The report of `pub`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct PublishReport {
    pub(crate) group: String,
    /// Messages that the session took. When a signal ended the command, some of them may not have
    /// left.
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    /// With `--block=no`: messages thrown away because the session could not take them yet.
    pub(crate) discarded: u64,
    pub(crate) seconds: f64,
    /// Why the command did not finish its work.
    pub(crate) failure: Option<String>,
    /// At least one receiver has confirmed everything, and no receiver that has joined or is
    /// expected lacks anything. False when no receiver reports, because nobody can confirm.
    pub(crate) is_confirmed: bool,
    /// A signal ended the command.
    pub(crate) is_interrupted: bool,
    pub(crate) receivers: u64,
    /// Receivers that were dropped, or left without having everything.
    pub(crate) given_up: u64,
    /// Names of receivers that joined and have not confirmed everything: they lack messages, lost
    /// some for good, or reported what was never sent.
    pub(crate) unconfirmed: Vec<String>,
    /// With an automatic rate: the receiver that limited the rate last.
    pub(crate) limited_by: Option<LimitedBy>,
    /// With `--poll-interval`: the result of the last count of receivers by polls.
    pub(crate) census: Option<CensusReport>,
    /// Packets that the session dropped, by reason; reasons that did not occur are left out.
    pub(crate) drops: Counters,
    pub(crate) counters: Counters,
}

/// The receiver that limits an automatic rate.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct LimitedBy {
    pub(crate) receiver: String,
    /// `network` or `host`.
    pub(crate) cause: String,
    pub(crate) bits_per_s: u64,
}

impl fmt::Display for LimitedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = quantity::bits(self.bits_per_s as f64);
        let Self {
            receiver, cause, ..
        } = self;
        write!(f, "limited to {rate} by {receiver} (its {cause})")
    }
}

/// The receivers that a sender has counted by polls. Any host can reply to a poll, and receivers
/// need not reply: the count is no proof.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct CensusReport {
    /// About how many receivers there are, those that do not report included.
    pub(crate) receivers: u64,
    /// True when each receiver was asked to reply; otherwise `receivers` is an estimate from a
    /// sample.
    pub(crate) is_complete: bool,
    /// The longest round trip among at most about 64 receivers; null when no round trip was
    /// measured.
    pub(crate) farthest_round_trip_ns: Option<u64>,
}

impl From<Census> for CensusReport {
    fn from(census: Census) -> Self {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self {
            receivers: census.receivers,
            is_complete: census.is_complete,
            farthest_round_trip_ns: census.farthest_round_trip.map(nanos),
        }
    }
}

impl CensusReport {
    /// Returns true when there are other receivers now than at the count `before`, and not only
    /// another sample of the same ones: two estimates of the same number can differ by half of it.
    pub(crate) const fn is_other_than(&self, before: &Self) -> bool {
        if self.is_complete && before.is_complete {
            return self.receivers != before.receivers;
        }
        let (now, before) = (self.receivers, before.receivers);
        now > before.saturating_mul(2) || before > now.saturating_mul(2)
    }
}

impl fmt::Display for CensusReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let about = if self.is_complete { "" } else { "about " };
        let receivers = quantity::count(self.receivers, "receiver");
        write!(f, "{about}{receivers} found by polls")?;
        if let Some(nanos) = self.farthest_round_trip_ns {
            let time = quantity::time(Duration::from_nanos(nanos));
            write!(f, ", the longest round trip {time}")?;
        }
        Ok(())
    }
}

impl Document for PublishReport {
    const SCHEMA: &'static str = "towline.pub";
    const IS_DATA: bool = false;

    fn text(&self) -> String {
        // After a signal, some of the messages that the session took may not have left.
        let did = if self.is_interrupted { "took" } else { "sent" };
        let mut told = vec![format!(
            "{}{did} {}, {}, in {}{}",
            interrupted(self.is_interrupted),
            quantity::count(self.messages, "message"),
            quantity::bytes(self.bytes),
            quantity::seconds(self.seconds),
            rate(self.messages, self.bytes, self.seconds),
        )];
        if self.discarded > 0 {
            told.push(format!("{} dropped (window full)", self.discarded));
        }
        if self.receivers > 0 {
            let is_confirmed = self.is_confirmed && self.given_up == 0;
            let state = if is_confirmed { "" } else { "NOT " };
            let receivers = match self.receivers {
                1 => "the receiver".to_owned(),
                receivers => format!("all {receivers} receivers"),
            };
            told.push(format!(
                "{state}confirmed by {receivers}{}",
                lacking(&self.unconfirmed)
            ));
        } else {
            told.push("no receiver reported".to_owned());
        }
        if self.given_up > 0 {
            told.push(format!("{} given up", self.given_up));
        }
        if let Some(limited_by) = &self.limited_by {
            told.push(format!("last {limited_by}"));
        }
        told.extend(self.census.iter().map(CensusReport::to_string));
        told.push(format!("dropped: {}", self.drops.drops_told()));
        let mut text = String::new();
        clauses(&mut text, &format!("{}:", self.group), &told);
        text
    }
}

/// Returns a note on the receivers that lack something, to append to a sentence:
/// ` (a, b lack something)`. The note is empty if `names` is empty.
pub(crate) fn lacking(names: &[String]) -> String {
    if names.is_empty() {
        return String::new();
    }
    let more = match names.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let verb = if names.len() == 1 { "lacks" } else { "lack" };
    let named = &names[..names.len().min(NAMED_MAX)];
    format!(" ({}{more} {verb} something)", named.join(", "))
}

/// The most receivers that a line names.
const NAMED_MAX: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_sample_of_the_same_receivers_is_no_change() {
        let [complete, estimate] = [true, false].map(|is_complete| {
            move |receivers| CensusReport {
                receivers,
                is_complete,
                farthest_round_trip_ns: None,
            }
        });
        assert!(complete(99).is_other_than(&complete(100)));
        assert!(!complete(100).is_other_than(&complete(100)));
        assert!(!estimate(1_504).is_other_than(&estimate(992)));
        assert!(!estimate(640).is_other_than(&complete(500)));
        assert!(!complete(500).is_other_than(&estimate(640)));
        assert!(estimate(2_000).is_other_than(&estimate(992)));
        assert!(estimate(992).is_other_than(&estimate(2_000)));
        assert!(complete(0).is_other_than(&estimate(600)));
    }
}
