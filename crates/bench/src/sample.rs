//! The figures of one run, and of many runs together.

use std::fmt;

use crate::machine::Ticks;

/// One complete run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    /// The rate that the table compares: messages as the receiver counted them, or megabytes from
    /// start to end.
    pub(crate) rate_per_s: f64,
    /// How many messages the receiver did not get, or how many receivers lack something.
    pub(crate) missing: u64,
    /// Processor seconds of the whole machine during the run.
    pub(crate) cpu_seconds: f64,
    /// Payload bytes that the receiver got.
    pub(crate) bytes: f64,
    /// Packets without new data (repairs, parity) for each 1,000 packets with new data.
    pub(crate) repairs_permille: f64,
    /// The sum of the most memory that each of the peer's programs held, in KiB.
    pub(crate) peak_kib: u64,
    /// The share of the time, in thousandths, that the hypervisor took.
    pub(crate) steal_permille: u64,
}

impl Sample {
    /// Makes a sample that holds only what the machine has spent since `before`.
    pub(crate) fn since(before: Ticks) -> Self {
        let after = Ticks::read();
        Self {
            cpu_seconds: after.busy_seconds_since(before),
            steal_permille: after.steal_permille_since(before),
            ..Self::default()
        }
    }

    /// Returns the processor seconds of the machine for each gigabyte of payload.
    pub(crate) fn cpu_seconds_per_gb(&self) -> f64 {
        self.cpu_seconds / (self.bytes / 1e9)
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.0}, {:.2} CPU s/GB",
            self.rate_per_s,
            self.cpu_seconds_per_gb()
        )
    }
}

/// The runs of one peer, in the order of the pairs.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    /// Who ran.
    pub(crate) name: String,
    samples: Vec<Sample>,
}

impl Series {
    /// Makes an empty series for `name`.
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            samples: Vec::new(),
        }
    }

    /// Adds the run of the next pair.
    pub(crate) fn push(&mut self, sample: Sample) {
        self.samples.push(sample);
    }

    /// Returns all runs.
    pub(crate) fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Returns the median of [`Sample::peak_kib`] over the runs, in MiB.
    pub(crate) fn peak_mib(&self) -> f64 {
        spread(self.samples.iter().map(|sample| sample.peak_kib as f64))[1] / 1024.0
    }

    /// Returns the minimum, median and maximum rate.
    pub(crate) fn rate(&self) -> [f64; 3] {
        spread(self.samples.iter().map(|sample| sample.rate_per_s))
    }

    /// Returns the median of [`Sample::cpu_seconds_per_gb`] over the runs.
    pub(crate) fn cpu_seconds_per_gb(&self) -> f64 {
        spread(self.samples.iter().map(Sample::cpu_seconds_per_gb))[1]
    }

    /// Returns the median of [`Sample::repairs_permille`] over the runs.
    pub(crate) fn repairs_permille(&self) -> f64 {
        spread(self.samples.iter().map(|sample| sample.repairs_permille))[1]
    }

    /// Returns minimum, median and maximum of `self`'s rate divided by `other`'s, pair by pair.
    pub(crate) fn ratio_to(&self, other: &Self) -> [f64; 3] {
        let pairs = self.samples.iter().zip(&other.samples);
        spread(pairs.map(|(ours, theirs)| ours.rate_per_s / theirs.rate_per_s))
    }
}

/// Returns minimum, median and maximum; zeros when there are no values.
pub(crate) fn spread(values: impl IntoIterator<Item = f64>) -> [f64; 3] {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => [0.0; 3],
        n => [values[0], values[n / 2], values[n - 1]],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_pair_by_pair() {
        let mut ours = Series::new("ours");
        let mut theirs = Series::new("theirs");
        for (a, b) in [(10.0, 5.0), (30.0, 10.0), (8.0, 2.0)] {
            ours.push(Sample {
                rate_per_s: a,
                ..Sample::default()
            });
            theirs.push(Sample {
                rate_per_s: b,
                ..Sample::default()
            });
        }
        assert_eq!(ours.ratio_to(&theirs), [2.0, 3.0, 4.0]);
        assert_eq!(theirs.rate(), [2.0, 5.0, 10.0]);
    }
}
