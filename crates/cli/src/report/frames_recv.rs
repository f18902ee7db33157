//! The report of `frames recv`.

use std::time::Duration;

use gauge::frames::{FilmCounts, LossCount, Percentiles, Stability};
use schemars::JsonSchema;
use serde::Serialize;
use towline::FeedCounts;

use super::{
    Counters, Document, SenderEnds, UsageReport, quantity,
    text::{Rows, frame_rates},
};

/// The report of `frames recv`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct FramesRecvReport {
    pub(crate) group: String,
    pub(crate) interface: String,
    pub(crate) seed: u64,
    /// Frames that the senders numbered, from the first after joining: `frames` and all that were
    /// lost.
    pub(crate) frames_sent: u64,
    /// Frames that came whole and in time.
    pub(crate) frames: u64,
    /// Frames among `frames` in which a packet came out of order; that packet was usually a repair.
    pub(crate) repaired: u64,
    pub(crate) lost: FrameLosses,
    /// The share of frames lost, and what the number of lost frames proves about the path.
    pub(crate) loss: FrameLossReport,
    /// Frames of a test pattern, whose bytes were compared with the pattern's.
    pub(crate) checked: u64,
    /// Frames among `checked` that differ from the bytes that they should have: there should be
    /// none.
    pub(crate) damaged: u64,
    /// With `--output`: what became of the frames that were to be written.
    pub(crate) film: Option<FilmReport>,
    /// Bytes of the frames that came whole.
    pub(crate) bytes: u64,
    /// The format of the frames, in the sender's words.
    pub(crate) format: Option<String>,
    /// Seconds from the first frame to the last.
    pub(crate) seconds: f64,
    pub(crate) frames_per_s: f64,
    /// Bits of frames each second, without headers.
    pub(crate) bits_per_s: f64,
    /// The time from a frame's timestamp to its delivery, by the wall clocks of both hosts.
    pub(crate) latency: Percentiles,
    /// The time from one frame to the next, as the sender says.
    pub(crate) interval_ns: u64,
    /// Frames that came before their timestamp, which means that the clocks disagree.
    pub(crate) ahead_of_clock: u64,
    /// What each of two feeds brought; empty without `--also`.
    pub(crate) feeds: Vec<FeedReport>,
    pub(crate) senders: SenderEnds,
    /// True when the last sender that ended has said how many frames it numbered.
    pub(crate) is_end_known: bool,
    /// A signal ended the command.
    pub(crate) is_interrupted: bool,
    pub(crate) usage: UsageReport,
    /// Packets that the session dropped, by reason; reasons that did not occur are left out.
    pub(crate) drops: Counters,
    pub(crate) counters: Counters,
}

/// What became of the frames of one of two feeds.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct FeedReport {
    group: String,
    interface: String,
    /// Frames that this feed had whole before the other feed had them, or that only this feed had.
    first: u64,
    /// Frames that this feed alone had in time.
    only: u64,
    /// Frames that this feed had whole after the other feed had them.
    second: u64,
    /// Frames that this feed had whole, but too late to be given out.
    late: u64,
    /// Frames that this feed lost but the other feed had whole.
    saved: u64,
    /// Frames that this feed lost and the other feed did not have in time.
    lost: u64,
    /// Seconds from this feed's last whole frame to the last whole frame of the two feeds together;
    /// null when this feed had no whole frame.
    silent_s: Option<f64>,
    /// True when, at the end, this feed had brought no whole frame for more than a second and more
    /// than four frame intervals, although the other feed had brought some.
    is_dead: bool,
}

impl FeedReport {
    /// Makes the report of one feed from its `counts` and those of the `other` feed. `silent` is
    /// the time from this feed's last whole frame to the last whole frame of either feed; `None` if
    /// this feed had none. Frames came for the time `lasted`, one each `interval`.
    pub(crate) fn new(
        (group, interface): (String, &str),
        [counts, other]: [FeedCounts; 2],
        silent: Option<Duration>,
        (lasted, interval): (Duration, Duration),
    ) -> Self {
        let longest = SILENCE_MAX.max(interval.saturating_mul(4));
        Self {
            group,
            interface: interface.to_owned(),
            first: counts.first,
            only: counts.only(&other),
            silent_s: silent.map(|it| it.as_secs_f64()),
            // A feed without frames is not dead at once: it may begin later than the other.
            is_dead: other.whole() > 0 && silent.unwrap_or(lasted) > longest,
            second: counts.second,
            late: counts.late,
            saved: counts.saved,
            lost: counts.lost,
        }
    }

    fn told(&self) -> String {
        let whole = self.first + self.second + self.late;
        let lost = self.saved + self.lost;
        let mut text = format!(
            "{} by {}: {whole} whole, {} of them first, {} by this feed alone; {lost} lost, of \
             which the other brought {}",
            self.group, self.interface, self.first, self.only, self.saved,
        );
        match self.silent_s.filter(|_| self.is_dead) {
            Some(seconds) => {
                text += &format!("; dead for the last {}", quantity::seconds(seconds));
            }
            None if self.is_dead => text += "; dead: it brought nothing",
            None => {}
        }
        text
    }

    /// Returns the state of the feed in a few words, for a person who watches.
    pub(crate) fn briefly(&self) -> String {
        let lost = self.saved + self.lost;
        let state = if self.is_dead { ", dead" } else { "" };
        format!("{} alone, {lost} lost{state}", self.only)
    }
}

/// A feed that brings no whole frame for at most this time, or for at most four frame intervals, is
/// not called dead. The value is a judgement, not a measurement.
const SILENCE_MAX: Duration = Duration::from_secs(1);

/// What a count of lost frames proves.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct FrameLossReport {
    /// Share of frames lost, from 0 to 1.
    share: f64,
    /// One-sided 95 % upper bound of the share of frames that the path loses, by the method of
    /// Clopper and Pearson.
    share_max_95: f64,
    stability: StabilityReport,
    #[serde(skip)]
    #[schemars(skip)]
    told: Stability,
}

/// Whether the path is very stable: in a run of at least 10 minutes, the upper bound of the share
/// of frames lost is below 1 in 1000.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub(crate) enum StabilityReport {
    VeryStable,
    /// The run is shorter than 10 minutes, and the frames lost so far do not prove that the loss is
    /// too high.
    TooShort {
        left_s: f64,
    },
    /// Few frames were lost, but the run had too few frames to show that the path is very stable.
    TooFewFrames {
        /// Total number of frames after which the path counts as very stable, if no further frame
        /// is lost.
        needed: u64,
    },
    TooManyLost,
}

impl FrameLossReport {
    /// Says what `count` proves after a run of the length `lasted`.
    pub(crate) fn new(count: LossCount, lasted: Duration) -> Self {
        let told = Stability::of(count, lasted);
        Self {
            share: count.share(),
            share_max_95: count.upper_95(),
            stability: match told {
                Stability::VeryStable => StabilityReport::VeryStable,
                Stability::TooShort { left } => StabilityReport::TooShort {
                    left_s: left.as_secs_f64(),
                },
                Stability::TooFewFrames { needed } => StabilityReport::TooFewFrames { needed },
                Stability::TooManyLost => StabilityReport::TooManyLost,
            },
            told,
        }
    }
}

/// What became of frames that were to be written.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct FilmReport {
    written: u64,
    bytes: u64,
    /// Frames that came while the output was too far behind, or after it had failed.
    skipped: u64,
    /// Frames that name no format, whose length does not fit their format, or whose format differs
    /// from that of the frames before them.
    unreadable: u64,
}

impl From<FilmCounts> for FilmReport {
    fn from(counts: FilmCounts) -> Self {
        Self {
            written: counts.written,
            bytes: counts.bytes,
            skipped: counts.skipped,
            unreadable: counts.unreadable,
        }
    }
}

/// Frames that were lost, by cause.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct FrameLosses {
    /// Frames of which neither the packets nor their repairs came in time.
    pub(crate) network: u64,
    /// Frames lost because the socket buffer of this receiver was full.
    pub(crate) socket_buffer: u64,
    /// Frames that were not ready in time, though none of their packets is known to be lost.
    pub(crate) late: u64,
    /// Frames that the sender skipped because earlier frames had not left.
    pub(crate) overrun: u64,
    /// Frames that are longer than this receiver takes, or for which it had no memory.
    pub(crate) refused: u64,
}

impl FrameLosses {
    /// Returns how many frames were lost.
    pub(crate) const fn all(&self) -> u64 {
        self.network + self.socket_buffer + self.late + self.overrun + self.refused
    }

    /// Lists the causes that occurred, with their counts.
    fn told(&self) -> String {
        let causes = [
            (self.network, "network"),
            (self.socket_buffer, "socket buffer"),
            (self.late, "late"),
            (self.overrun, "sender overrun"),
            (self.refused, "refused"),
        ];
        let told = causes.iter().filter(|(count, _)| *count > 0);
        let told: Vec<_> = told
            .map(|(count, cause)| format!("{cause} {count}"))
            .collect();
        match told.is_empty() {
            true => "0".to_owned(),
            false => format!("{} ({})", self.all(), told.join(", ")),
        }
    }
}

impl Document for FramesRecvReport {
    const SCHEMA: &'static str = "towline.frames-recv";
    const IS_DATA: bool = true;

    fn text(&self) -> String {
        let mut table = Rows::default();
        table.row("group", &format!("{} by {}", self.group, self.interface));
        table.interrupted(self.is_interrupted);
        if let Some(format) = &self.format {
            table.row("format", format);
        }
        table.row(
            "frames",
            &format!("{} of {}", self.frames, self.frames_sent),
        );
        table.row("repaired", &self.repaired);
        table.row("lost", &self.lost.told());
        let [share, most] = [self.loss.share, self.loss.share_max_95].map(|it| it * 100.0);
        let share = format!(
            "{share:.3} %, at most {most:.3} % at 95 %: {}",
            self.loss.told
        );
        table.row("share lost", &share);
        table.row(
            "damaged",
            &format!("{} of {} checked", self.damaged, self.checked),
        );
        if let Some(film) = &self.film {
            let (written, bytes) = (film.written, quantity::bytes(film.bytes));
            let (skipped, unreadable) = (film.skipped, film.unreadable);
            let told = format!(
                "{written} frames written, {bytes}; {skipped} skipped, {unreadable} unreadable"
            );
            table.row("film", &told);
        }
        table.row("payload", &quantity::bytes(self.bytes));
        table.row("time", &quantity::seconds(self.seconds));
        table.row("rate", &frame_rates(self.frames, self.bytes, self.seconds));
        table.row("latency", &self.latency());
        for (number, feed) in (1..).zip(&self.feeds) {
            table.row(&format!("feed {number}"), &feed.told());
        }
        table.row("senders", &self.senders.told());
        table.usage(&self.usage);
        table.row("drops", &self.drops.drops_told());
        table.text
    }
}

impl FramesRecvReport {
    fn latency(&self) -> String {
        let time = |ns| quantity::time(Duration::from_nanos(ns));
        let at = &self.latency;
        let mut text = format!(
            "p50 {}, p99 {}, max {}; a frame each {}",
            time(at.p50_ns),
            time(at.p99_ns),
            time(at.max_ns),
            time(self.interval_ns),
        );
        if self.ahead_of_clock > 0 {
            text += &format!(
                "; {} came before they were made: the clocks disagree",
                self.ahead_of_clock
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feed_is_dead_after_a_second_or_four_frames_without_one() {
        let ms = Duration::from_millis;
        let other = FeedCounts {
            first: 20,
            ..FeedCounts::default()
        };
        let is_dead = |silent: Option<u64>, lasted, interval, other| {
            let counts = [FeedCounts::default(), other];
            let feed = ("239.192.0.1:7500".to_owned(), "eth0");
            let times = (ms(lasted), ms(interval));
            let feed = FeedReport::new(feed, counts, silent.map(ms), times);
            assert_eq!(feed.briefly().ends_with("dead"), feed.is_dead);
            feed.is_dead
        };
        for (silent, lasted, interval, expected) in [
            (None, 900, 50, false),
            (None, 1100, 50, true),
            (None, 1900, 500, false),
            (None, 2100, 500, true),
            (Some(0), 9000, 50, false),
            (Some(900), 9000, 50, false),
            (Some(1100), 9000, 50, true),
        ] {
            let dead = is_dead(silent, lasted, interval, other);
            assert_eq!(dead, expected, "{silent:?} {lasted} {interval}");
        }
        let none = FeedCounts::default();
        assert!(!is_dead(None, 9000, 50, none), "nor had the other");
    }
}
