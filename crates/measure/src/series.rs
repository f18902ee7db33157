//! Joins the runs of a result that belong together.

use crate::{
    Counts, Disturbance, Latencies, Repairs, Sample, Split, StampCounts,
    raw::{File, Manifest, Run, Setup},
};

/// All slices of one variant, one behind the other on one time axis, without the gaps between
/// them.
#[derive(Clone, Debug)]
pub struct Series<'a> {
    /// The label, unless the caller changes it.
    pub name: String,
    /// The manifest of the result that the series is from.
    pub manifest: &'a Manifest,
    /// The settings of the first slice.
    pub setup: &'a Setup,
    /// The slices, each with its start on the common axis.
    pub(crate) slices: Vec<(u64, &'a Run)>,
    /// Length of the axis.
    pub lasted_ns: u64,
    /// The sum of the counts of all slices.
    pub counts: Counts,
    /// What PGM repaired in all slices; `None` over another transport.
    pub repairs: Option<Repairs>,
    /// How many messages of all slices were stamped, by whose clock.
    pub stamps: StampCounts,
    /// Datagrams that the kernel dropped at the measuring end's sockets in all slices; `None` where
    /// the result does not have it.
    pub socket_drops: Option<u64>,
    /// The percentiles of all slices.
    pub latencies: Latencies,
}

impl<'a> Series<'a> {
    /// Returns the series of a result, in the order of their first slices.
    #[must_use]
    pub fn of(file: &'a File) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for run in &file.runs {
            match all
                .iter_mut()
                .find(|one| one.setup.label == run.setup.label)
            {
                Some(one) => one.add(run),
                None => {
                    let mut one = Self {
                        name: run.setup.label.clone(),
                        manifest: &file.manifest,
                        setup: &run.setup,
                        slices: Vec::new(),
                        lasted_ns: 0,
                        counts: Counts::default(),
                        repairs: None,
                        stamps: StampCounts::default(),
                        socket_drops: None,
                        latencies: Latencies::new(),
                    };
                    one.add(run);
                    all.push(one);
                }
            }
        }
        all
    }

    fn add(&mut self, run: &'a Run) {
        for sample in &run.samples {
            self.latencies.take(sample);
        }
        // A run that was killed has no end. Its length and its counts then come from its samples.
        let last = run.samples.last().map_or(0, |sample| sample.sent_ns + 1);
        let lasted_ns = run.end.map_or(last, |end| end.lasted_ns.max(last));
        self.slices.push((self.lasted_ns, run));
        self.lasted_ns = self.lasted_ns.saturating_add(lasted_ns);
        if let Some(repairs) = run.end.and_then(|end| end.repairs) {
            self.repairs.get_or_insert_default().add(&repairs);
        }
        if let Some(end) = &run.end {
            self.stamps.add(&end.stamps);
            let drops = self.socket_drops.into_iter().chain(end.socket_drops);
            self.socket_drops = drops.reduce(|all, slice| all + slice);
        }
        match &run.end {
            Some(end) => self.counts.add(&end.counts),
            None => self.counts.add(&told_by(&run.samples)),
        }
    }

    /// Returns every message, with the start of its slice.
    pub fn samples(&self) -> impl Iterator<Item = (u64, &'a Sample)> {
        self.slices
            .iter()
            .flat_map(|&(start, run)| run.samples.iter().map(move |sample| (start, sample)))
    }

    /// Returns every stamped message, with the time on the common axis when it was sent.
    pub fn splits(&self) -> impl Iterator<Item = (u64, &'a Split)> {
        self.slices.iter().flat_map(|&(start, run)| {
            run.splits.iter().map(move |split| {
                let sample = run
                    .samples
                    .binary_search_by_key(&split.sequence, |sample| sample.sequence)
                    .map_or(0, |index| run.samples[index].sent_ns);
                (start.saturating_add(sample), split)
            })
        })
    }

    /// Returns n when one message in n was stamped; `None` when the result does not tell.
    #[must_use]
    pub fn stamp_interval(&self) -> Option<u64> {
        let gcd = |mut a: u64, mut b: u64| {
            while b > 0 {
                (a, b) = (b, a % b);
            }
            a
        };
        let sequences = self.splits().map(|(_, split)| split.sequence);
        Some(sequences.fold(0, gcd)).filter(|&every| every > 0)
    }

    /// Returns what stamping costs: how much longer a stamped message takes than the message before
    /// it, which was not stamped. `None` when there are too few such pairs with answers.
    #[must_use]
    pub fn stamping_cost(&self) -> Option<StampingCost> {
        let every = self.stamp_interval().filter(|&every| every > 1)?;
        let mut longer = Vec::new();
        for (_, run) in &self.slices {
            for pair in run.samples.windows(2) {
                let is_pair = pair[0].sequence + 1 == pair[1].sequence;
                let is_stamped = pair[1].sequence.is_multiple_of(every);
                let (before, stamped) = (pair[0].rtt_ns, pair[1].rtt_ns);
                if let (true, Some((before, stamped))) =
                    (is_pair && is_stamped, before.zip(stamped))
                {
                    longer.push(stamped.cast_signed() - before.cast_signed());
                }
            }
        }
        StampingCost::of(longer)
    }

    /// Returns the disturbances of the measurement, on the common axis.
    pub fn disturbances(&self) -> impl Iterator<Item = Disturbance> {
        self.slices.iter().flat_map(|&(start, run)| {
            run.disturbances.iter().map(move |what| Disturbance {
                at_ns: start.saturating_add(what.at_ns),
                ..*what
            })
        })
    }

    /// Returns true when a slice ended early: the far end stopped answering, the user stopped the
    /// run, or the file was cut.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.slices
            .iter()
            .any(|(_, run)| run.end.is_none_or(|end| end.is_cut))
    }

    /// Returns how many messages were really sent each second.
    #[must_use]
    pub fn sent_per_s(&self) -> f64 {
        self.counts.sent as f64 / (self.lasted_ns.max(1) as f64 / 1e9)
    }
}

impl Series<'_> {
    /// Returns true when the two series are from one result and differ only in their rates: both
    /// are points of one sweep.
    #[must_use]
    pub fn is_swept_with(&self, other: &Self) -> bool {
        let same = |one: &Setup| {
            let (sched, engine, wait) = (&one.sched, &one.engine, &one.wait);
            let what = (
                one.size_bytes,
                one.transport,
                one.is_ipv6,
                one.window_messages,
                one.cpu,
            );
            (sched.clone(), engine.clone(), wait.clone(), what)
        };
        std::ptr::eq(self.manifest, other.manifest) && same(self.setup) == same(other.setup)
    }
}

/// How much longer a stamped message takes, and how exactly that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StampingCost {
    /// Median of the differences, in nanoseconds.
    pub p50_ns: i64,
    /// Half the width of the median's 95 % interval. A negative median can only be noise: then this
    /// is at least the median's absolute value.
    pub noise_ns: u64,
}

impl StampingCost {
    /// Computes the interval from ranks around the middle, which is right for every distribution.
    fn of(mut differences: Vec<i64>) -> Option<Self> {
        if differences.len() < PAIRS_MIN {
            return None;
        }
        differences.sort_unstable();
        let (count, middle) = (differences.len(), differences.len() / 2);
        let reach = ((count as f64).sqrt() * 0.98).ceil() as usize;
        let (low, high) = (differences[middle - reach], differences[middle + reach]);
        let p50_ns = differences[middle];
        let noise_ns = low.abs_diff(high) / 2;
        Some(Self {
            p50_ns,
            noise_ns: noise_ns.max(p50_ns.min(0).unsigned_abs()),
        })
    }

    /// Returns the cost; `None` when it is not above the noise.
    #[must_use]
    pub fn known_ns(&self) -> Option<u64> {
        let cost = u64::try_from(self.p50_ns).ok()?;
        (cost > self.noise_ns).then_some(cost)
    }
}

fn told_by(samples: &[Sample]) -> Counts {
    let sent = samples.len() as u64;
    let answered = samples
        .iter()
        .filter(|sample| sample.rtt_ns.is_some())
        .count() as u64;
    let slots = samples.last().map_or(0, |sample| sample.sequence + 1);
    Counts {
        slots,
        sent,
        missed: slots - sent,
        answered,
        lost: sent - answered,
        ..Counts::default()
    }
}

/// The fewest differences that give an interval: with fewer, the interval would span nearly all of
/// them.
const PAIRS_MIN: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_within_the_noise_is_not_known() {
        let around = |middle: i64, step: i64| (-50..=50).map(move |it| middle + it * step);
        let cost = |middle, step| StampingCost::of(around(middle, step).collect()).unwrap();
        // 101 values in equal steps: the interval reaches ten ranks to either side.
        let clear = cost(1_000, 10);
        assert_eq!((clear.p50_ns, clear.noise_ns), (1_000, 100));
        assert_eq!(clear.known_ns(), Some(1_000));
        assert_eq!(cost(1_000, 200).known_ns(), None);
        let negative = cost(-49_000, 10);
        assert_eq!((negative.noise_ns, negative.known_ns()), (49_000, None));
        assert_eq!(StampingCost::of(vec![5; 11]), None);
        assert_eq!(StampingCost::of(vec![5; 12]).unwrap().noise_ns, 0);
    }
}
