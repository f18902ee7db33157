//! Numbers as scenario files write them: ratios (`"5%"`, `"3/1000"`) and times (`"250us"`).
//!
//! No floats anywhere: a run must repeat bit for bit on every machine.

use std::{fmt, str::FromStr, time::Duration};

use base::Rng;
use serde::Deserialize;

/// A probability as a fraction of two integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Ratio {
    numerator: u32,
    denominator: u32,
}

impl Ratio {
    /// Never.
    pub const ZERO: Self = Self::new(0, 1);

    /// `numerator` in `denominator`; a denominator of 0 means "never".
    #[must_use]
    pub const fn new(numerator: u32, denominator: u32) -> Self {
        Self {
            numerator,
            denominator,
        }
    }

    /// `n` in a hundred.
    #[must_use]
    pub const fn percent(n: u32) -> Self {
        Self::new(n, 100)
    }

    /// `n` in a thousand.
    #[must_use]
    pub const fn per_mille(n: u32) -> Self {
        Self::new(n, 1000)
    }

    /// True when it can never happen.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.numerator == 0 || self.denominator == 0
    }

    /// Draws once. A ratio of zero draws nothing from `rng`.
    pub fn draw(self, rng: &mut Rng) -> bool {
        !self.is_zero() && rng.chance(u64::from(self.numerator), u64::from(self.denominator))
    }
}

impl Default for Ratio {
    fn default() -> Self {
        Self::ZERO
    }
}

impl FromStr for Ratio {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let wrong = || QuantityError {
            text: text.to_owned(),
            wanted: "a ratio such as 5% or 3/1000",
        };
        let number = |part: &str| part.trim().parse::<u32>().map_err(|_| wrong());
        let ratio = match (text.strip_suffix('%'), text.split_once('/')) {
            (Some(percent), _) => Self::percent(number(percent)?),
            (None, Some((n, d))) => Self::new(number(n)?, number(d)?),
            (None, None) => return Err(wrong()),
        };
        if ratio.denominator == 0 || ratio.numerator > ratio.denominator {
            return Err(wrong());
        }
        Ok(ratio)
    }
}

impl TryFrom<String> for Ratio {
    type Error = QuantityError;

    fn try_from(text: String) -> Result<Self, QuantityError> {
        text.parse()
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.numerator, self.denominator)
    }
}

/// A length of time, written with its unit: `ns`, `us`, `ms` or `s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct Span(pub Duration);

impl Span {
    /// `n` microseconds.
    #[must_use]
    pub const fn micros(n: u64) -> Self {
        Self(Duration::from_micros(n))
    }

    /// `n` milliseconds.
    #[must_use]
    pub const fn millis(n: u64) -> Self {
        Self(Duration::from_millis(n))
    }
}

impl FromStr for Span {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let wrong = || QuantityError {
            text: text.to_owned(),
            wanted: "a time such as 250us or 3s",
        };
        let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let unit_ns = match unit.trim() {
            "ns" => 1,
            "us" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            _ => return Err(wrong()),
        };
        number
            .checked_mul(unit_ns)
            .map(|ns| Self(Duration::from_nanos(ns)))
            .ok_or_else(wrong)
    }
}

impl TryFrom<String> for Span {
    type Error = QuantityError;

    fn try_from(text: String) -> Result<Self, QuantityError> {
        text.parse()
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// A ratio or a time that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuantityError {
    text: String,
    wanted: &'static str,
}

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not {}", self.text, self.wanted)
    }
}

impl std::error::Error for QuantityError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_and_spans_read_as_written() {
        assert_eq!("5%".parse(), Ok(Ratio::percent(5)));
        assert_eq!("3/1000".parse(), Ok(Ratio::per_mille(3)));
        assert_eq!("250us".parse(), Ok(Span::micros(250)));
        assert_eq!("3 s".parse(), Ok(Span::millis(3000)));
        for wrong in ["", "5", "7/3", "1/0", "x%"] {
            assert!(wrong.parse::<Ratio>().is_err(), "{wrong}");
        }
        for wrong in ["", "5", "ms", "5 min", "99999999999999999999s"] {
            assert!(wrong.parse::<Span>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_ratio_is_drawn_as_often_as_it_says() {
        let mut rng = Rng::new(1);
        let hits = (0..10_000)
            .filter(|_| Ratio::percent(30).draw(&mut rng))
            .count();
        assert!((2_800..3_200).contains(&hits), "{hits}");
        assert!(!Ratio::ZERO.draw(&mut rng));
    }
}
