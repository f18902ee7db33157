//! Places values along a line, and chooses which values to name there.

/// How values are spread along a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal lengths are equal differences.
    Linear,
    /// Equal lengths are equal ratios.
    Log,
}

/// A range of values along a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Axis {
    /// How the values are spread.
    pub scale: Scale,
    /// The value at the beginning; above zero on a logarithmic axis.
    pub min: f64,
    /// The value at the end, above `min`.
    pub max: f64,
}

impl Axis {
    /// Makes an axis for values from `min` to `max`, widened to round values. A linear axis begins
    /// at 0.
    #[must_use]
    pub fn around(scale: Scale, min: f64, max: f64) -> Self {
        match scale {
            Scale::Linear => Self {
                scale,
                min: 0.0,
                max: round_up(max.max(1.0)),
            },
            Scale::Log => {
                let min = round_down(min.max(1.0));
                let max = round_up(max.max(min * 2.0));
                Self { scale, min, max }
            }
        }
    }

    /// Returns where `value` lies: 0 at the beginning, 1 at the end, below 0 or above 1 outside the
    /// axis.
    #[must_use]
    pub fn place(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => (value - self.min) / (self.max - self.min),
            Scale::Log => {
                let value = value.max(f64::MIN_POSITIVE);
                (value / self.min).ln() / (self.max / self.min).ln()
            }
        }
    }

    /// Returns the value at a place: the inverse of [`Axis::place`].
    #[must_use]
    pub fn value(&self, place: f64) -> f64 {
        match self.scale {
            Scale::Linear => self.min + (self.max - self.min) * place,
            Scale::Log => self.min * (self.max / self.min).powf(place),
        }
    }

    /// Returns round values to name on the axis, about `count` of them or fewer.
    #[must_use]
    pub fn ticks(&self, count: usize) -> Vec<f64> {
        let inside = |value: &f64| (-1e-9..=1.0 + 1e-9).contains(&self.place(*value));
        match self.scale {
            Scale::Linear => {
                let step = round_up((self.max - self.min) / count.max(1) as f64);
                let first = (self.min / step).ceil();
                (0..=count + 1)
                    .map(|n| (first + n as f64) * step)
                    .filter(inside)
                    .collect()
            }
            Scale::Log => {
                let decades = (self.max / self.min).log10();
                let steps: &[f64] = if decades * 3.0 <= count as f64 {
                    &[1.0, 2.0, 5.0]
                } else {
                    &[1.0]
                };
                let first = self.min.log10().floor() as i32;
                let last = self.max.log10().ceil() as i32;
                (first..=last)
                    .flat_map(|exponent| steps.iter().map(move |step| step * 10_f64.powi(exponent)))
                    .filter(inside)
                    .collect()
            }
        }
    }
}

/// Returns the next 1, 2 or 5 times a power of ten at or above `value`.
fn round_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|step| step * power >= value * (1.0 - 1e-9));
    step.unwrap_or(10.0) * power
}

fn round_down(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let step = [5.0, 2.0, 1.0]
        .into_iter()
        .find(|step| step * power <= value * (1.0 + 1e-9));
    step.unwrap_or(1.0) * power
}

/// Returns a time as text for an axis or a read-out: `12.5us`.
pub(super) fn time(ns: f64) -> String {
    let (value, unit) = match ns {
        // Zero needs no unit.
        ns if ns < 1e-9 => (0.0, ""),
        ns if ns < 1e3 => (ns, "ns"),
        ns if ns < 1e6 => (ns / 1e3, "us"),
        ns if ns < 1e9 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    let text = if value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    };
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        &text
    };
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_values_are_inverse_and_ticks_are_round() {
        for axis in [
            Axis::around(Scale::Log, 23_456.0, 7_654_321.0),
            Axis::around(Scale::Linear, 3.0, 91.0),
        ] {
            for place in [0.0, 0.25, 1.0] {
                assert!((axis.place(axis.value(place)) - place).abs() < 1e-9);
            }
            assert!(!axis.ticks(8).is_empty() && axis.ticks(8).len() <= 10);
        }
        let axis = Axis::around(Scale::Log, 23_456.0, 7_654_321.0);
        assert_eq!((axis.min, axis.max), (20_000.0, 10_000_000.0));
        assert_eq!(axis.ticks(4), [100_000.0, 1_000_000.0, 10_000_000.0]);
        assert_eq!(Axis::around(Scale::Linear, 0.0, 100.0).ticks(5).len(), 6);
    }

    #[test]
    fn times_are_short() {
        let texts = [0.0, 950.0, 12_500.0, 2e6, 1.5e9, 1e5].map(time);
        assert_eq!(texts, ["0", "950ns", "12.5us", "2ms", "1.5s", "100us"]);
    }
}
