//! Whether a run was what was asked for: its rate beside the schedule's and beside the link's.

use crate::Series;

impl Series<'_> {
    /// Messages of this size that the link carries each second at most, one way, with what its
    /// transport adds; `None` when its speed is not known.
    #[must_use]
    pub fn link_max_per_s(&self) -> Option<u64> {
        let bytes = self.setup.size + self.setup.transport.extra_bytes();
        let link = self.manifest.link?;
        Some(link.datagrams_per_s(bytes, self.setup.is_ipv6))
    }

    /// What a reader must know before believing the figures of this rate, a sentence each; nothing
    /// when 99 % of the slots were used, and the link can carry them.
    #[must_use]
    pub fn shortfalls(&self) -> Vec<String> {
        let Some(asked) = self.setup.per_second else {
            return Vec::new();
        };
        let mut texts = Vec::new();
        let counts = &self.counts;
        if (counts.sent as f64) < counts.slots as f64 * ATTAINED_MIN {
            texts.push(format!(
                "{:.0}/s of the {asked}/s asked for were sent ({:.1} % of the slots): {} slots \
                 were missed because the sender was more than a second late, {} messages refused \
                 by the system; the times are those of what was sent, ask for less",
                self.sent_per_s(),
                counts.sent as f64 * 100.0 / counts.slots as f64,
                counts.missed,
                counts.refused,
            ));
        }
        if let Some(most) = self.link_max_per_s().filter(|most| *most < asked) {
            texts.push(format!(
                "{asked}/s of this size is more than the link carries ({most}/s): what is lost or \
                 late is the link's, or its speed is not the one that the system or --link names"
            ));
        }
        texts
    }
}

/// Share of what was asked for that must have been done for a rate to count as attained.
pub const ATTAINED_MIN: f64 = 0.99;

#[cfg(test)]
mod tests {
    use crate::{
        Counts, Link, Transport,
        raw::{End, File, Manifest, Run, Setup},
    };

    use super::*;

    fn shortfalls(sent: u64, bits_per_s: u64) -> Vec<String> {
        let manifest = Manifest {
            link: Some(Link {
                bits_per_s,
                mtu: 1_500,
            }),
            ..Manifest::default()
        };
        let setup = Setup {
            label: String::new(),
            per_second: Some(20_000),
            size: 64,
            transport: Transport::Udp,
            is_ipv6: false,
            sched: String::new(),
            engine: String::new(),
            wait: String::new(),
            cpu: None,
            window: None,
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
            samples: Vec::new(),
            splits: Vec::new(),
            marks: Vec::new(),
            end: Some(end),
        };
        let file = File {
            manifest,
            runs: vec![run],
            is_complete: true,
        };
        Series::of(&file)[0].shortfalls()
    }

    #[test]
    fn a_rate_that_was_not_attained_or_that_no_link_carries_is_told() {
        assert!(shortfalls(20_000, 1_000_000_000).is_empty());
        assert!(shortfalls(19_800, 1_000_000_000).is_empty());
        let slow = shortfalls(1_830, 1_000_000_000);
        let [text] = &slow[..] else {
            panic!("{slow:?}");
        };
        assert!(text.starts_with("1830/s of the 20000/s"), "{text}");
        assert!(text.contains("18170 slots"), "{text}");
        let narrow = shortfalls(20_000, 10_000_000);
        assert!(narrow[0].contains("carries (9615/s)"), "{narrow:?}");
    }
}
