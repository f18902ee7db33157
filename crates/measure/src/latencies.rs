//! Percentiles of a run, from intended and from actual sending times.

use std::{io, time::Duration};

use hdrhistogram::{
    Histogram,
    serialization::{
        V2DeflateSerializeError, V2DeflateSerializer,
        interval_log::{IntervalLogWriterBuilder, IntervalLogWriterError, Tag},
    },
};
use serde::{Deserialize, Serialize};

use crate::Sample;

/// Histograms of the round trips and pacing errors of one run. **Cost**: about 600 KiB; recording
/// allocates nothing.
#[derive(Clone, Debug)]
pub struct Latencies {
    intended: Histogram<u64>,
    actual: Histogram<u64>,
    late: Histogram<u64>,
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

impl Latencies {
    /// Makes empty histograms. Values are kept to three digits, from 1 ns to
    /// [`Latencies::VALUE_NS_MAX`].
    #[must_use]
    pub fn new() -> Self {
        Self {
            intended: empty(),
            actual: empty(),
            late: empty(),
        }
    }

    /// Takes one message; without an answer it counts only for the pacing error.
    pub fn take(&mut self, sample: &Sample) {
        self.late.saturating_record(sample.late_ns());
        if let (Some(actual), Some(intended)) = (sample.rtt_ns, sample.rtt_intended_ns()) {
            self.actual.saturating_record(actual);
            self.intended.saturating_record(intended);
        }
    }

    /// Adds the values of another run.
    pub fn add(&mut self, other: &Self) {
        let pairs = [
            (&mut self.intended, &other.intended),
            (&mut self.actual, &other.actual),
            (&mut self.late, &other.late),
        ];
        for (ours, theirs) in pairs {
            ours.add(theirs)
                .expect("all histograms have the same bounds");
        }
    }

    /// Returns the round trips from the intended time of sending.
    #[must_use]
    pub fn intended(&self) -> Percentiles {
        Percentiles::of(&self.intended)
    }

    /// Returns the round trips from the actual time of sending.
    #[must_use]
    pub fn actual(&self) -> Percentiles {
        Percentiles::of(&self.actual)
    }

    /// Returns the pacing errors.
    #[must_use]
    pub fn late(&self) -> Percentiles {
        Percentiles::of(&self.late)
    }

    /// Returns a curve to draw: times in nanoseconds, rising, each with the share of the values, 0
    /// to 1, that are at most this long.
    #[must_use]
    pub fn curve(&self, which: Which) -> Vec<(u64, f64)> {
        let histogram = self.histogram(which);
        let total = histogram.len().max(1) as f64;
        let mut below = 0;
        histogram
            .iter_recorded()
            .map(|step| {
                below += step.count_since_last_iteration();
                (step.value_iterated_to(), below as f64 / total)
            })
            .collect()
    }

    const fn histogram(&self, which: Which) -> &Histogram<u64> {
        match which {
            Which::Intended => &self.intended,
            Which::Actual => &self.actual,
            Which::Late => &self.late,
        }
    }

    /// The longest time that is recorded, one minute; a longer time counts as one minute.
    pub const VALUE_NS_MAX: u64 = 60_000_000_000;
}

/// Delays of one kind. **Cost**: about 200 KiB; recording allocates nothing.
#[derive(Clone, Debug)]
pub struct Delays(Histogram<u64>);

impl Default for Delays {
    fn default() -> Self {
        Self(empty())
    }
}

impl Delays {
    /// Takes one delay in nanoseconds. A delay above [`Latencies::VALUE_NS_MAX`] counts as that
    /// value.
    pub fn take(&mut self, delay_ns: u64) {
        self.0.saturating_record(delay_ns);
    }

    /// Adds another run's delays.
    pub fn add(&mut self, other: &Self) {
        self.0
            .add(&other.0)
            .expect("all histograms have the same bounds");
    }

    /// Returns the percentiles of these delays.
    #[must_use]
    pub fn percentiles(&self) -> Percentiles {
        Percentiles::of(&self.0)
    }

    /// Counts the delays longer than `limit_ns`, to the histogram's three digits.
    #[must_use]
    pub fn count_above(&self, limit_ns: u64) -> u64 {
        self.0.len() - self.0.count_between(0, limit_ns)
    }
}

fn empty() -> Histogram<u64> {
    Histogram::new_with_bounds(1, Latencies::VALUE_NS_MAX, 3)
        .expect("the bounds and the precision are constants that the crate takes")
}

/// One of the histograms of [`Latencies`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Round trips from the intended time of sending.
    Intended,
    /// Round trips from the actual time of sending.
    Actual,
    /// Pacing errors.
    Late,
}

/// The figures of one histogram, in nanoseconds; all zero when nothing was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Percentiles {
    /// How many values there are.
    pub count: u64,
    /// The least.
    pub min_ns: u64,
    /// Arithmetic mean.
    pub mean_ns: f64,
    /// Half of the values are at most this.
    pub p50_ns: u64,
    /// 90 % of the values are at most this.
    pub p90_ns: u64,
    /// 99 % of the values are at most this.
    pub p99_ns: u64,
    /// 99.9 % of the values are at most this.
    pub p999_ns: u64,
    /// 99.99 % of the values are at most this.
    pub p9999_ns: u64,
    /// The greatest.
    pub max_ns: u64,
}

impl Percentiles {
    fn of(histogram: &Histogram<u64>) -> Self {
        if histogram.is_empty() {
            return Self::default();
        }
        let at = |quantile| histogram.value_at_quantile(quantile);
        Self {
            count: histogram.len(),
            min_ns: histogram.min(),
            mean_ns: histogram.mean(),
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            p9999_ns: at(0.9999),
            max_ns: histogram.max(),
        }
    }
}

/// Writes runs as an HdrHistogram interval log (version 1.3, histograms in V2 form, values in
/// nanoseconds), for tools that read such logs. Each run gives two lines: round trips from the
/// intended time under its label, and round trips from the actual time under `label-actual`.
///
/// # Errors
/// When the writer fails.
pub fn write_log(
    output: &mut impl io::Write,
    runs: &[(String, Duration, Latencies)],
) -> io::Result<()> {
    let failed = |error: IntervalLogWriterError<V2DeflateSerializeError>| match error {
        IntervalLogWriterError::IoError(error) => error,
        IntervalLogWriterError::SerializeError(error) => io::Error::other(format!(
            "the histogram cannot be encoded for a .hlog file ({error}); this is a fault of \
             Towline; write .csv instead"
        )),
    };
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment("round-trip times in nanoseconds, by towline rtt")
        .begin_log_with(output, &mut serializer)?;
    let mut start = Duration::ZERO;
    for (label, lasted, latencies) in runs {
        let kinds = [("", &latencies.intended), ("-actual", &latencies.actual)];
        for (suffix, histogram) in kinds {
            // Commas, line ends and blanks separate the fields of a line.
            let name: String = label
                .chars()
                .map(|c| {
                    if c == ',' || c.is_whitespace() {
                        '_'
                    } else {
                        c
                    }
                })
                .collect();
            let name = format!("{name}{suffix}");
            let tag = Tag::new(&name).expect("the name has no comma, line end or blank");
            log.write_histogram(histogram, start, *lasted, Some(tag))
                .map_err(failed)?;
        }
        start += *lasted;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(sequence: u64, late_ns: u64, rtt_ns: Option<u64>) -> Sample {
        let intended_ns = sequence * 100_000;
        Sample {
            sequence,
            intended_ns,
            sent_ns: intended_ns + late_ns,
            rtt_ns,
        }
    }

    #[test]
    fn a_stall_that_held_the_sender_back_shows_from_intended_times_only() {
        let mut latencies = Latencies::new();
        for sequence in 0..10_000 {
            // One message took 5 ms; meanwhile 50 became due, which left late and were answered
            // fast.
            let sample = match sequence {
                5_000 => sample(sequence, 0, Some(5_000_000)),
                5_001..=5_050 => sample(sequence, (5_050 - sequence) * 100_000, Some(20_000)),
                _ => sample(sequence, 0, Some(20_000)),
            };
            latencies.take(&sample);
        }
        assert!(
            latencies.actual().p999_ns < 21_000,
            "{:?}",
            latencies.actual()
        );
        assert!(
            latencies.intended().p999_ns > 3_000_000,
            "{:?}",
            latencies.intended()
        );
        assert_eq!(latencies.intended().count, 10_000);
    }

    #[test]
    fn losses_are_not_round_trips_and_sums_are_sums() {
        let mut one = Latencies::new();
        one.take(&sample(0, 5, None));
        assert_eq!((one.actual().count, one.late().count), (0, 1));
        one.take(&sample(1, 5, Some(u64::MAX / 2)));
        assert!(one.actual().max_ns >= Latencies::VALUE_NS_MAX);
        let mut both = one.clone();
        both.add(&one);
        assert_eq!(both.late().count, 4);
        assert_eq!(both.curve(Which::Late).last().map(|step| step.1), Some(1.0));
    }

    #[test]
    fn the_log_reads_back() {
        use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
        let mut latencies = Latencies::new();
        latencies.take(&sample(0, 5, Some(1_000)));
        let mut text = Vec::new();
        let run = (
            "10000/s, fifo".to_owned(),
            Duration::from_secs(2),
            latencies,
        );
        write_log(&mut text, &[run]).unwrap();
        let tags: Vec<String> = IntervalLogIterator::new(&text)
            .filter_map(|entry| match entry.unwrap() {
                LogEntry::Interval(interval) => interval.tag().map(|tag| tag.as_str().to_owned()),
                _ => None,
            })
            .collect();
        assert_eq!(tags, ["10000/s__fifo", "10000/s__fifo-actual"]);
    }
}
