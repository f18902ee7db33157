//! `--every`: one line for each interval of a measurement.

use std::time::Duration;

use gauge::{
    rtt::{Passage, Percentiles},
    udp::TrialPassage,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Document, quantity};

/// `--every`: one interval of a measurement. Rates are those of this interval.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Interval {
    /// What is measured: a group, sources of packets, a rate or a trial.
    of: String,
    what: Counted,
    /// When the interval began: seconds after the start of the load, capture, run or trial.
    from_s: f64,
    to_s: f64,
    count: u64,
    count_per_s: f64,
    /// Bytes of what was counted; headers are included only for captured packets.
    bytes: u64,
    bits_per_s: f64,
    /// What did not arrive: messages missing or damaged, frames lost or not sent, packets lost,
    /// round trips without an answer in time. Null where this end does not know.
    lost: Option<u64>,
    /// Round-trip times, counted from when each message was due.
    round_trip: Option<Percentiles>,
}

/// What an interval counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Counted {
    MessagesSent,
    MessagesReceived,
    FramesSent,
    FramesReceived,
    DatagramsSent,
    DatagramsReceived,
    PacketsCaptured,
    RoundTrips,
}

/// The counts of an interval, or since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) count: u64,
    pub(crate) bytes: u64,
    pub(crate) lost: Option<u64>,
}

impl Done {
    /// Returns the counts since `before`. If `lost` has fallen, because a missing message came
    /// late, the returned `lost` is 0.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let lost = self.lost.zip(before.lost);
        Self {
            count: self.count - before.count,
            bytes: self.bytes - before.bytes,
            lost: lost.map(|(now, before)| now.saturating_sub(before)),
        }
    }
}

impl Interval {
    pub(crate) fn new(
        of: &str,
        what: Counted,
        (from, to): (Duration, Duration),
        done: Done,
    ) -> Self {
        let seconds = to.saturating_sub(from).as_secs_f64();
        Self {
            of: of.to_owned(),
            what,
            from_s: from.as_secs_f64(),
            to_s: to.as_secs_f64(),
            count: done.count,
            count_per_s: quantity::per_second(done.count, seconds),
            bytes: done.bytes,
            bits_per_s: quantity::per_second(done.bytes, seconds) * 8.0,
            lost: done.lost,
            round_trip: None,
        }
    }

    /// Makes the interval of round trips with messages of `size` bytes.
    pub(crate) fn of_round_trips(passage: &Passage, size: usize) -> Self {
        let count = passage.round_trips.count;
        let done = Done {
            count,
            bytes: count.saturating_mul(size as u64),
            lost: Some(passage.sent - count),
        };
        let [from, to] = [passage.from_ns, passage.to_ns].map(Duration::from_nanos);
        Self {
            round_trip: Some(passage.round_trips),
            ..Self::new(&passage.label, Counted::RoundTrips, (from, to), done)
        }
    }

    /// Makes the intervals of a trial: what was sent, what was received, or both.
    pub(crate) fn of_trial(passage: &TrialPassage) -> impl Iterator<Item = Self> {
        let counts = [
            (Counted::DatagramsSent, passage.sent),
            (Counted::DatagramsReceived, passage.received),
        ];
        counts.into_iter().filter_map(|(what, count)| {
            let count = count?;
            let done = Done {
                count,
                bytes: count.saturating_mul(passage.size_bytes as u64),
                lost: None,
            };
            let times = (passage.from, passage.to);
            Some(Self::new(&passage.trial, what, times, done))
        })
    }
}

impl Document for Interval {
    const SCHEMA: &'static str = "towline.interval";
    const IS_DATA: bool = false;

    fn text(&self) -> String {
        let mut text = format!(
            "{:.1}-{:.1} s  {}: {} {}, {}",
            self.from_s,
            self.to_s,
            self.of,
            self.count,
            self.what.words(),
            quantity::whole_rate(self.count_per_s),
        );
        match &self.round_trip {
            Some(trips) if trips.count > 0 => {
                let us = |ns: u64| ns as f64 / 1e3;
                text += &format!(
                    "; median {:.1} us, 99 % {:.1} us, max {:.1} us",
                    us(trips.p50_ns),
                    us(trips.p99_ns),
                    us(trips.max_ns)
                );
            }
            Some(_) => {}
            None => text += &format!(", {}", quantity::bits(self.bits_per_s)),
        }
        match self.lost {
            Some(lost) if lost > 0 => text += &format!("; {lost} lost"),
            _ => {}
        }
        text + "\n"
    }
}

impl Counted {
    const fn words(self) -> &'static str {
        match self {
            Self::MessagesSent => "messages sent",
            Self::MessagesReceived => "messages received",
            Self::FramesSent => "frames sent",
            Self::FramesReceived => "frames received",
            Self::DatagramsSent => "datagrams sent",
            Self::DatagramsReceived => "datagrams received",
            Self::PacketsCaptured => "packets captured",
            Self::RoundTrips => "round trips",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_rates_of_its_stretch() {
        let done = |count, lost| Done {
            count,
            bytes: count * 1_000,
            lost: Some(lost),
        };
        let times = [1_000, 3_000].map(Duration::from_millis).into();
        let since = done(60_000, 2).since(&done(20_000, 5));
        let said = Interval::new("g", Counted::MessagesReceived, times, since).text();
        let expected = "1.0-3.0 s  g: 40000 messages received, 20 k/s, 160 Mbit/s\n";
        assert_eq!(said, expected);
        let since = done(1, 3).since(&done(1, 0));
        let said = Interval::new("g", Counted::MessagesSent, times, since).text();
        assert!(
            said.ends_with("0 messages sent, 0 /s, 0 bit/s; 3 lost\n"),
            "{said}"
        );
    }
}
