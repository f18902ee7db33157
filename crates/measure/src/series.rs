//! The runs of a result that belong together, as one.

use crate::{
    Counts, Latencies, Mark, Sample, Split,
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
    slices: Vec<(u64, &'a Run)>,
    /// Length of the axis.
    pub lasted_ns: u64,
    /// The accounts of all slices.
    pub counts: Counts,
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
        // A run that was killed has no accounts: what its samples say then.
        let last = run.samples.last().map_or(0, |sample| sample.sent_ns + 1);
        let lasted_ns = run.end.map_or(last, |end| end.lasted_ns.max(last));
        self.slices.push((self.lasted_ns, run));
        self.lasted_ns = self.lasted_ns.saturating_add(lasted_ns);
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

    /// Every how many messages one was stamped; `None` when that cannot be told.
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

    /// What happened to the measurement, on the common axis.
    pub fn marks(&self) -> impl Iterator<Item = Mark> {
        self.slices.iter().flat_map(|&(start, run)| {
            run.marks.iter().map(move |mark| Mark {
                at_ns: start.saturating_add(mark.at_ns),
                ..*mark
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
