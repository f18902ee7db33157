//! The report of `sub`; its messages are [`super::MessageLine`].

use schemars::JsonSchema;
use serde::Serialize;

use super::{
    Counters, Document, quantity,
    text::{clauses, interrupted, rate},
};

/// How the sessions of a group's senders went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct SenderEnds {
    pub(crate) found: u64,
    pub(crate) ended: u64,
    pub(crate) expired: u64,
    pub(crate) reset: u64,
    /// The number of senders that gave up on this receiver.
    pub(crate) dropped: u64,
}

impl SenderEnds {
    /// Returns true when at least one sender was found and all of them are gone.
    pub(crate) const fn is_over(&self) -> bool {
        self.found > 0 && self.ended + self.broken() >= self.found
    }

    /// Returns how many senders left without ending their sessions: nobody knows what they still
    /// had to send.
    pub(crate) const fn broken(&self) -> u64 {
        self.expired + self.reset + self.dropped
    }

    /// Lists the counts for a person.
    pub(super) fn told(&self) -> String {
        let mut text = format!("{} found, {} ended", self.found, self.ended);
        let others = [
            (self.expired, "vanished"),
            (self.reset, "broke off"),
            (self.dropped, "dropped this receiver"),
        ];
        for (count, fate) in others.iter().filter(|(count, _)| *count > 0) {
            text += &format!(", {count} {fate}");
        }
        text
    }
}

/// The report of `sub`: what came, and how the command ended.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct SubscribeReport {
    pub(crate) group: String,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    /// Packets that could not be repaired.
    pub(crate) lost_packets: u64,
    /// With `--block=no`: messages thrown away because the output was slow.
    pub(crate) discarded: u64,
    pub(crate) senders: SenderEnds,
    /// A signal ended the command.
    pub(crate) is_interrupted: bool,
    /// Seconds from the first message to the last.
    pub(crate) seconds: f64,
    /// Why the command did not finish its work.
    pub(crate) failure: Option<String>,
    /// Packets that the session dropped, by reason; reasons that did not occur are left out.
    pub(crate) drops: Counters,
    pub(crate) counters: Counters,
}

impl Document for SubscribeReport {
    const SCHEMA: &'static str = "towline.sub";
    const IS_DATA: bool = false;

    fn text(&self) -> String {
        // All messages may have come at one moment.
        let time = quantity::seconds(self.seconds);
        let time = if self.seconds > 0.0 {
            format!(", in {time}")
        } else {
            String::new()
        };
        let mut lost = format!("{} lost", quantity::count(self.lost_packets, "packet"));
        if self.senders.broken() > 0 {
            let senders = quantity::count(self.senders.broken(), "sender");
            lost += &format!(", not counting what {senders} still had to send");
        }
        let mut told = vec![
            format!(
                "{}{}, {}{time}{}",
                interrupted(self.is_interrupted),
                quantity::count(self.messages, "message"),
                quantity::bytes(self.bytes),
                rate(self.messages, self.bytes, self.seconds),
            ),
            lost,
        ];
        if self.discarded > 0 {
            let discarded = quantity::count(self.discarded, "message");
            told.push(format!("{discarded} dropped (output slow)"));
        }
        told.push(format!("senders: {}", self.senders.told()));
        told.push(format!("dropped: {}", self.drops.drops_told()));
        let mut text = String::new();
        clauses(&mut text, &format!("{}:", self.group), &told);
        text
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_subscriber_tells_what_was_dropped() {
        let mut report = SubscribeReport {
            group: "239.192.0.1:7500".into(),
            messages: 0,
            bytes: 0,
            lost_packets: 0,
            discarded: 0,
            senders: SenderEnds::default(),
            is_interrupted: false,
            seconds: 0.0,
            failure: None,
            drops: Counters::default(),
            counters: Counters::default(),
        };
        let text = report.text();
        assert!(
            text.ends_with("senders: 0 found, 0 ended;\n                  dropped: none\n"),
            "{text}"
        );
        (report.messages, report.bytes, report.seconds) = (2_000, 250_000, 2.0);
        let text = report.text();
        assert!(
            text.contains("in 2 s, 1 k/s, 1 Mbit/s;\n") && text.contains("  0 packets lost"),
            "{text}"
        );
        let counters = [
            ("drop.no_room", 1),
            ("drop.stale", 0),
            ("drop.ended", 6),
            ("udp.kernel_drops", 7),
        ];
        let counters = counters.map(|(name, count)| (name.to_owned(), count));
        report.drops = Counters(BTreeMap::from(counters)).drops();
        let text = report.text();
        assert!(text.ends_with(" dropped: kernel 7, no_room 1\n"), "{text}");
        let json = serde_json::to_value(&report).expect("plain data");
        assert_eq!(
            json["drops"],
            serde_json::json!({"kernel": 7, "no_room": 1, "ended": 6})
        );
    }
}
