//! Numbers as scenario files write them: ratios (`"5%"`, `"3/1000"`) and times (`"250us"`), in the
//! forms of [`base::quantity`].
//!
//! There are no floats: a run must repeat bit for bit on every machine.

use std::{fmt, time::Duration};

use base::{
    Rng,
    quantity::{self, Chance, QuantityError},
};
use serde::Deserialize;

/// A probability as a fraction of two integers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Ratio(Chance);

impl Ratio {
    /// Never.
    pub const ZERO: Self = Self(Chance::NEVER);

    /// Makes the ratio `numerator` in `denominator`.
    ///
    /// **Panics** (bug): when the ratio is above 1, or `denominator` is 0.
    #[must_use]
    pub const fn new(numerator: u32, denominator: u32) -> Self {
        Self(Chance::new(numerator as u64, denominator as u64))
    }

    /// Makes the ratio `n` in a hundred.
    #[must_use]
    pub const fn percent(n: u32) -> Self {
        Self::new(n, 100)
    }

    /// Makes the ratio `n` in a thousand.
    #[must_use]
    pub const fn per_mille(n: u32) -> Self {
        Self::new(n, 1000)
    }

    /// Returns true when the ratio is zero.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0.is_never()
    }

    /// Draws once. A ratio of zero draws nothing from `rng`.
    pub const fn draw(self, rng: &mut Rng) -> bool {
        self.0.draw(rng)
    }
}

impl TryFrom<String> for Ratio {
    type Error = QuantityError;

    fn try_from(text: String) -> Result<Self, QuantityError> {
        text.parse().map(Self)
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A length of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct Span(pub Duration);

impl Span {
    /// Makes a span of `n` microseconds.
    #[must_use]
    pub const fn micros(n: u64) -> Self {
        Self(Duration::from_micros(n))
    }

    /// Makes a span of `n` milliseconds.
    #[must_use]
    pub const fn millis(n: u64) -> Self {
        Self(Duration::from_millis(n))
    }
}

impl TryFrom<String> for Span {
    type Error = QuantityError;

    fn try_from(text: String) -> Result<Self, QuantityError> {
        quantity::duration(&text).map(Self)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}
