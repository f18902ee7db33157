//! Frames each second, as an exact fraction.

use std::{fmt, str::FromStr, time::Duration};

/// A number of frames in a number of seconds, as Y4M writes it. For example, 30000 in 1001 is the
/// rate of television in America.
///
/// **Invariant**: neither is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRate {
    frames: u32,
    seconds: u32,
}

impl FrameRate {
    /// Makes a rate; `None` when either number is 0.
    #[must_use]
    pub const fn new(frames: u32, seconds: u32) -> Option<Self> {
        if frames == 0 || seconds == 0 {
            return None;
        }
        Some(Self { frames, seconds })
    }

    /// Makes the rate nearest to `per_s` frames a second: exact for whole numbers and thousandths.
    /// `None` when that is less than a thousandth, or more than a million.
    #[must_use]
    pub fn nearest(per_s: f64) -> Option<Self> {
        let thousandths = (per_s * 1_000.0).round();
        if !(1.0..=1e9).contains(&thousandths) {
            return None;
        }
        match thousandths as u32 {
            whole if whole % 1_000 == 0 => Self::new(whole / 1_000, 1),
            thousandths => Self::new(thousandths, 1_000),
        }
    }

    /// Returns the frames each second, rounded.
    #[must_use]
    pub fn per_s(self) -> f64 {
        f64::from(self.frames) / f64::from(self.seconds)
    }

    /// Returns the time from one frame to the next, rounded down to nanoseconds.
    #[must_use]
    pub fn interval(self) -> Duration {
        let ns = u64::from(self.seconds) * 1_000_000_000 / u64::from(self.frames);
        Duration::from_nanos(ns)
    }

    /// Returns the two numbers of the fraction: frames, and seconds.
    #[must_use]
    pub const fn fraction(self) -> (u32, u32) {
        (self.frames, self.seconds)
    }
}

impl fmt::Display for FrameRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.seconds {
            1 => write!(f, "{}", self.frames),
            seconds => write!(f, "{}/{seconds}", self.frames),
        }
    }
}

impl FromStr for FrameRate {
    type Err = String;

    /// Reads a rate such as `25`, `15.5` or `30000/1001`.
    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = match text.split_once('/') {
            Some((frames, seconds)) => frames.parse().ok().zip(seconds.parse().ok()),
            None => decimal(text),
        };
        let rate = parsed.and_then(|(frames, seconds)| Self::new(frames, seconds));
        rate.ok_or_else(|| {
            format!("{text:?} is not a rate such as 25, 15.5 or 30000/1001 frames a second")
        })
    }
}

/// Reads a decimal number as a fraction whose denominator is the least possible power of ten.
fn decimal(text: &str) -> Option<(u32, u32)> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let part = part.trim_end_matches('0');
    let digits = format!("{whole}{part}");
    let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    let power = 10_u32.checked_pow(u32::try_from(part.len()).ok()?)?;
    is_number.then(|| digits.parse().ok().zip(Some(power)))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_exactly() {
        for (text, fraction, again) in [
            ("25", (25, 1), "25"),
            ("15.50", (155, 10), "155/10"),
            ("0.5", (5, 10), "5/10"),
            (".5", (5, 10), "5/10"),
            ("30000/1001", (30_000, 1_001), "30000/1001"),
        ] {
            let rate: FrameRate = text.parse().expect(text);
            assert_eq!(rate.fraction(), fraction);
            assert_eq!(rate.to_string(), again);
            assert_eq!(again.parse(), Ok(rate));
        }
        for text in [
            "",
            ".",
            "0",
            "1/0",
            "-1",
            "+1/1x",
            "1e3",
            "1.2.3",
            "99999999999",
            "inf",
        ] {
            assert!(text.parse::<FrameRate>().is_err(), "{text}");
        }
        assert_eq!(FrameRate::nearest(20.0), FrameRate::new(20, 1));
        assert_eq!(FrameRate::nearest(59.94), FrameRate::new(59_940, 1_000));
        for per_s in [0.0, -1.0, 1e-9, 1e12, f64::NAN, f64::INFINITY] {
            assert_eq!(FrameRate::nearest(per_s), None, "{per_s}");
        }
        let ntsc = FrameRate::new(30_000, 1_001).expect("no zeros");
        assert_eq!(ntsc.interval(), Duration::from_nanos(33_366_666));
        assert!((ntsc.per_s() - 29.970).abs() < 1e-3);
    }
}
