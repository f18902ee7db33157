//! Whether a run attained the rate that was asked for: compares its rate with the schedule's and
//! with the link's.

use crate::Series;

impl Series<'_> {
    /// Returns the most messages of the series' size that the link carries each second, one way.
    /// Counts the headers of the transport. `None` when the link's speed is unknown.
    #[must_use]
    pub fn link_max_per_s(&self) -> Option<u64> {
        let bytes = self.setup.size_bytes + self.setup.transport.extra_bytes();
        let link = self.manifest.link?;
        Some(link.datagrams_per_s(bytes, self.setup.is_ipv6))
    }

    /// Returns what a reader must know before believing the figures of this rate, one sentence
    /// each. Empty for ping-pong. Also empty when 99 % of the slots were used and the link, if its
    /// speed is known, can carry that rate.
    #[must_use]
    pub fn shortfalls(&self) -> Vec<String> {
        let Some(asked) = self.setup.per_second else {
            return Vec::new();
        };
        let mut texts = Vec::new();
        let counts = &self.counts;
        if (counts.sent as f64) < counts.slots as f64 * ATTAINED_MIN {
            texts.push(format!(
                "only {:.0}/s of {asked}/s were sent ({:.1} % of the slots): the sender missed {} \
                 slots because it was more than a second late, and the system refused {} \
                 messages; the times are those of the messages that were sent. Use a lower --rate",
                self.sent_per_s(),
                counts.sent as f64 * 100.0 / counts.slots as f64,
                counts.missed,
                counts.refused,
            ));
        }
        if let Some(most) = self.link_max_per_s().filter(|most| *most < asked) {
            texts.push(format!(
                "{asked}/s of this size is more than the line carries ({most}/s): the line causes \
                 the losses and delays, unless it is faster than the system or --link says"
            ));
        }
        texts
    }

    /// Returns when the answers stopped for good, in nanoseconds from the start, and how many
    /// messages were sent from then on. `None` when the losses at the end are so few, or in so
    /// short a time, that they may happen on any path.
    #[must_use]
    pub fn silence(&self) -> Option<(u64, u64)> {
        let unanswered = self.slices.iter().rev().flat_map(|&(start, run)| {
            let samples = run.samples.iter().rev();
            samples.map(move |sample| (start.saturating_add(sample.sent_ns), sample))
        });
        let mut unanswered = unanswered.take_while(|(_, sample)| sample.rtt_ns.is_none());
        let (last_ns, _) = unanswered.next()?;
        let (first_ns, count) = unanswered.fold((last_ns, 1), |(_, count), (sent_ns, _)| {
            (sent_ns, count + 1)
        });
        // A window lets fewer messages leave without an answer, so fewer are enough to show
        // silence.
        let window = match self.setup.per_second {
            Some(_) => self.setup.window_messages.unwrap_or(u32::MAX),
            None => 1,
        };
        let is_silent = count >= SILENT_MIN.min(u64::from(window) + 1)
            && last_ns.saturating_sub(first_ns) >= SILENT_NS_MIN;
        is_silent.then_some((first_ns, count))
    }

    /// Returns what [`Series::silence`] found, in words.
    #[must_use]
    pub fn silence_words(&self) -> Option<String> {
        let (since_ns, count) = self.silence()?;
        Some(format!(
            "answers stopped after {:.2} s: none of the last {count} messages was answered; the \
             reflector has ended, or the path to it or back is broken",
            since_ns as f64 / 1e9
        ))
    }
}

/// Messages in a row without an answer that are more than usual loss explains.
const SILENT_MIN: u64 = 10;
/// Nanoseconds over which unanswered messages must have been sent to show silence: a full queue
/// drops many packets, but not for long.
const SILENT_NS_MIN: u64 = 50_000_000;

/// A rate counts as attained when at least this share of it was reached.
pub const ATTAINED_MIN: f64 = 0.99;

#[cfg(test)]
mod tests {
    use crate::{
        Counts, Link, Sample, Transport,
        raw::{End, File, Manifest, Run, Setup},
    };

    use super::*;

    fn file(sent: u64, bits_per_s: u64, samples: Vec<Sample>) -> File {
        let manifest = Manifest {
            link: Some(Link {
                bits_per_s,
                mtu_bytes: 1_500,
            }),
            ..Manifest::default()
        };
        let setup = Setup {
            label: String::new(),
            per_second: Some(20_000),
            size_bytes: 64,
            transport: Transport::Udp,
            is_ipv6: false,
            sched: String::new(),
            engine: String::new(),
            wait: String::new(),
            cpu: None,
            window_messages: None,
        };
        let counts = Counts {
            slots: 20_000,
            sent,
            missed: 20_000 - sent,
            ..Counts::default()
        };
        let end = End {
            lasted_ns: 1_000_000_000,
            counts,
            ..End::default()
        };
        let run = Run {
            setup,
            samples,
            splits: Vec::new(),
            disturbances: Vec::new(),
            end: Some(end),
        };
        File {
            manifest,
            runs: vec![run],
            cut: None,
        }
    }

    fn shortfalls(sent: u64, bits_per_s: u64) -> Vec<String> {
        Series::of(&file(sent, bits_per_s, Vec::new()))[0].shortfalls()
    }

    #[test]
    fn answers_that_stop_before_the_end_are_told_and_a_few_losses_are_not() {
        let silence = |answered: fn(u64) -> bool| {
            let sample = |sequence| Sample {
                sequence,
                intended_ns: sequence * 1_000_000,
                sent_ns: sequence * 1_000_000,
                rtt_ns: answered(sequence).then_some(50_000),
            };
            let file = file(2_000, 1_000_000_000, (0..2_000).map(sample).collect());
            let series = &Series::of(&file)[0];
            (series.silence(), series.silence_words())
        };
        assert_eq!(silence(|_| true), (None, None));
        assert_eq!(silence(|sequence| sequence < 1_960), (None, None));
        assert_eq!(silence(|sequence| sequence % 20 == 0), (None, None));
        let (silent, words) = silence(|sequence| sequence < 710);
        assert_eq!(silent, Some((710_000_000, 1_290)));
        assert!(words.unwrap().starts_with("answers stopped after 0.71 s"));
        assert_eq!(silence(|_| false).0, Some((0, 2_000)));
    }

    #[test]
    fn a_rate_that_was_not_attained_or_that_no_link_carries_is_told() {
        assert!(shortfalls(20_000, 1_000_000_000).is_empty());
        assert!(shortfalls(19_800, 1_000_000_000).is_empty());
        let slow = shortfalls(1_830, 1_000_000_000);
        let [text] = &slow[..] else {
            panic!("{slow:?}");
        };
        assert!(text.starts_with("only 1830/s of 20000/s"), "{text}");
        assert!(text.contains("18170 slots"), "{text}");
        let narrow = shortfalls(20_000, 10_000_000);
        assert!(narrow[0].contains("carries (9615/s)"), "{narrow:?}");
    }
}
