//! The knee of a sweep of rates: the first rate that a path does not carry as well as lower ones.
//!
//! ```text
//!   p50 |                          /
//!       |                       __/
//!       |______________________/    <-- the knee: from here on a queue grows somewhere
//!       +------------------------------ messages each second
//! ```

use crate::Series;

/// Why a rate lies beyond the knee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strain {
    /// More than one in 1,000 messages was not sent, or not answered.
    Lost,
    /// More than one in 100 messages had to be repaired.
    Repaired,
    /// The median is more than twice that of a lower rate.
    Slow,
    /// p99 is more than ten times that of a lower rate.
    Tail,
}

impl Strain {
    /// Says in words why the rate lies beyond the knee.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Lost => "more than 0.1 % not sent or not answered",
            Self::Repaired => "more than 1 % repaired",
            Self::Slow => "p50 more than twice that of a lower rate",
            Self::Tail => "p99 more than ten times that of a lower rate",
        }
    }

    fn of(one: &Series<'_>, lower: &[&Series<'_>]) -> Option<Self> {
        let counts = &one.counts;
        // Messages that a shortened run did not reach do not count as lost.
        let unanswered = counts.missed + counts.refused + counts.lost;
        let least = |time: fn(&Series<'_>) -> u64| lower.iter().map(|one| time(one)).min();
        let p50 = |one: &Series<'_>| one.latencies.intended().p50_ns;
        let p99 = |one: &Series<'_>| one.latencies.intended().p99_ns;
        let repairs = one.repairs.map_or(0, |repairs| repairs.repairs());
        if unanswered > counts.slots / 1_000 {
            Some(Self::Lost)
        } else if repairs > counts.sent / 100 {
            Some(Self::Repaired)
        } else if least(p50).is_some_and(|least| p50(one) > least.saturating_mul(2)) {
            Some(Self::Slow)
        } else if least(p99).is_some_and(|least| p99(one) > least.saturating_mul(10)) {
            Some(Self::Tail)
        } else {
            None
        }
    }
}

/// Says for each series why it lies beyond the knee of its sweep; `None` when it does not. A sweep
/// is two or more series that differ only in their rate. All rates above the first strained one lie
/// beyond the knee.
#[must_use]
pub fn strains(series: &[Series<'_>]) -> Vec<Option<Strain>> {
    let rate = |one: &Series<'_>| one.setup.per_second;
    let strain_at = |one: &Series<'_>| {
        let lower = |other: &&Series<'_>| other.is_swept_with(one) && rate(other) < rate(one);
        let lower: Vec<&Series<'_>> = series
            .iter()
            .filter(|it| rate(it).is_some())
            .filter(lower)
            .collect();
        Strain::of(one, &lower)
    };
    let is_sweep = |one: &Series<'_>| {
        let other = |other: &Series<'_>| {
            other.is_swept_with(one) && rate(other).is_some() && rate(other) != rate(one)
        };
        rate(one).is_some() && series.iter().any(other)
    };
    let own: Vec<Option<Strain>> = series
        .iter()
        .map(|one| is_sweep(one).then(|| strain_at(one)).flatten())
        .collect();
    let at_or_below = |one: &Series<'_>| {
        let pairs = series.iter().zip(&own);
        let strained = pairs.filter(|(other, strain)| {
            strain.is_some() && other.is_swept_with(one) && rate(other) <= rate(one)
        });
        strained.min_by_key(|(other, _)| rate(other))?.1.as_ref()
    };
    series
        .iter()
        .zip(&own)
        .map(|(one, strain)| strain.or_else(|| at_or_below(one).copied()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Counts, Repairs, Sample, Transport,
        raw::{End, File, Manifest, Run, Setup},
    };

    fn run(per_second: Option<u64>, rtt_ns: u64, lost: u64, repairs_sent: u64) -> Run {
        let setup = Setup {
            label: format!("{per_second:?}"),
            per_second,
            size_bytes: 64,
            transport: Transport::Pgm,
            is_ipv6: false,
            sched: "other".to_owned(),
            engine: "recv".to_owned(),
            wait: "spin".to_owned(),
            cpu: None,
            window_messages: None,
        };
        let sample = |sequence| Sample {
            sequence,
            intended_ns: sequence * 1_000,
            sent_ns: sequence * 1_000,
            rtt_ns: Some(rtt_ns),
        };
        let counts = Counts {
            slots: 1_000,
            sent: 1_000,
            lost,
            ..Counts::default()
        };
        let repairs = Repairs {
            repairs_sent,
            ..Repairs::default()
        };
        Run {
            setup,
            samples: (0..100).map(sample).collect(),
            splits: Vec::new(),
            disturbances: Vec::new(),
            end: Some(End {
                counts,
                repairs: Some(repairs),
                ..End::default()
            }),
        }
    }

    fn found(runs: Vec<Run>) -> Vec<Option<Strain>> {
        let file = File {
            manifest: Manifest::default(),
            runs,
            cut: None,
        };
        strains(&Series::of(&file))
    }

    #[test]
    fn the_first_strained_rate_and_all_above_lie_beyond_the_knee() {
        let calm = |rate| run(Some(rate), 30_000, 0, 0);
        let slow = run(Some(30), 90_000, 0, 0);
        let runs = vec![calm(40), calm(10), slow.clone(), calm(20)];
        let slow_word = Some(Strain::Slow);
        assert_eq!(found(runs), [slow_word, None, slow_word, None]);
        assert_eq!(found(vec![calm(10), calm(20)]), [None, None]);
        // A single rate is no sweep, and ping-pong has no rate.
        assert_eq!(found(vec![run(Some(10), 30_000, 500, 0)]), [None]);
        let mixed = vec![run(None, 10_000, 0, 0), calm(10), calm(20)];
        assert_eq!(found(mixed), [None; 3]);
    }

    #[test]
    fn losses_and_repairs_are_strains_of_their_own() {
        let with = |lost, repairs| {
            let runs = vec![
                run(Some(10), 30_000, 0, 0),
                run(Some(20), 30_000, lost, repairs),
            ];
            found(runs)[1]
        };
        assert_eq!(with(1, 10), None);
        assert_eq!(with(2, 0), Some(Strain::Lost));
        assert_eq!(with(0, 11), Some(Strain::Repaired));
    }
}
