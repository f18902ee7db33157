//! The runs of a result that belong together, as one.

use crate::{
    Counts, Disturbance, Latencies, Repairs, Sample, Split, StampCounts,
    raw::{File, Manifest, Run, Setup},
};

/// All slices of one variant, one behind the other on one time axis, without the gaps between
/// them.
#[derive(Clone, Debug)]
pub struct Series<'a> {
    /// What it is called: its label, unless the caller changes it.
    pub name: String,
    /// The result it is from.
    pub manifest: &'a Manifest,
    /// What the first slice was.
    pub setup: &'a Setup,
    /// The slices, each with where it begins on the common axis.
    pub(crate) slices: Vec<(u64, &'a Run)>,
    /// Length of the axis.
    pub lasted_ns: u64,
    /// The accounts of all slices.
    pub counts: Counts,
    /// What PGM repaired in all slices; `None` over another transport.
    pub repairs: Option<Repairs>,
    /// Whose stamps the splits of all slices are from.
    pub stamps: StampCounts,
    /// The percentiles of all slices.
    pub latencies: Latencies,
}

impl<'a> Series<'a> {
    /// The series of a result, in the order of their first slices.
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
        // A run that was killed has no counts: they are taken from its samples.
        let last = run.samples.last().map_or(0, |sample| sample.sent_ns + 1);
        let lasted_ns = run.end.map_or(last, |end| end.lasted_ns.max(last));
        self.slices.push((self.lasted_ns, run));
        self.lasted_ns = self.lasted_ns.saturating_add(lasted_ns);
        if let Some(repairs) = run.end.and_then(|end| end.repairs) {
            self.repairs.get_or_insert_default().add(&repairs);
        }
        if let Some(end) = &run.end {
            self.stamps.add(&end.stamps);
        }
        match &run.end {
            Some(end) => self.counts.add(&end.counts),
            None => self.counts.add(&told_by(&run.samples)),
        }
    }

    /// Every message with where its slice begins.
    pub fn samples(&self) -> impl Iterator<Item = (u64, &'a Sample)> {
        self.slices
            .iter()
            .flat_map(|&(start, run)| run.samples.iter().map(move |sample| (start, sample)))
    }

    /// Every stamped message with when it was sent on the common axis.
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

    /// One message in this many was stamped; `None` when the result does not show it.
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

    /// What stamping a message costs: how much longer it takes than the one before it, which was
    /// not stamped. `None` when too few such pairs came back.
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

    /// What happened to the measurement, on the common axis.
    pub fn disturbances(&self) -> impl Iterator<Item = Disturbance> {
        self.slices.iter().flat_map(|&(start, run)| {
            run.disturbances.iter().map(move |what| Disturbance {
                at_ns: start.saturating_add(what.at_ns),
                ..*what
            })
        })
    }

    /// Whether the far end stopped, the user did, or the file was cut.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.slices
            .iter()
            .any(|(_, run)| run.end.is_none_or(|end| end.is_cut))
    }

    /// Messages each second as they were really sent.
    #[must_use]
    pub fn sent_per_s(&self) -> f64 {
        self.counts.sent as f64 / (self.lasted_ns.max(1) as f64 / 1e9)
    }
}

impl Series<'_> {
    /// Whether only the rate sets it apart from `other`: both are points of one sweep.
    #[must_use]
    pub fn is_swept_with(&self, other: &Self) -> bool {
        let same = |one: &Setup| {
            let (sched, engine, wait) = (&one.sched, &one.engine, &one.wait);
            let what = (one.size, one.transport, one.is_ipv6, one.window, one.cpu);
            (sched.clone(), engine.clone(), wait.clone(), what)
        };
        std::ptr::eq(self.manifest, other.manifest) && same(self.setup) == same(other.setup)
    }
}

/// What a stamped message takes longer than others, and how well that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StampingCost {
    /// Median of the differences, in nanoseconds.
    pub p50_ns: i64,
    /// Half the width of the median's 95 % interval, or more: a negative cost, which cannot be, is
    /// noise of its size.
    pub noise_ns: u64,
}

impl StampingCost {
    /// From the ranks around the middle, so it holds for every distribution.
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

    /// The cost, when it is above the noise.
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

/// Fewer differences have no interval around their median.
const PAIRS_MIN: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_within_the_noise_is_not_known() {
        let around = |middle: i64, step: i64| (-50..=50).map(move |it| middle + it * step);
        let cost = |middle, step| StampingCost::of(around(middle, step).collect()).unwrap();
        // 101 values a step apart: the interval reaches ten ranks to either side.
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
