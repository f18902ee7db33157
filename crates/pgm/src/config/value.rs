//! The kinds of value a parameter has, and their text forms. Parsing is exact: a text that does
//! not give a whole number of base units (nanoseconds, bytes) is refused.

use std::{str::FromStr, time::Duration};

/// One kind of value.
pub(super) trait Value: Copy {
    /// What ends of a range are made of.
    type Bound: Copy;
    /// The text form, in words that complete "is not ...".
    const FORM: &'static str;

    /// The value a text stands for.
    fn parse(text: &str) -> Option<Self>;
    /// The shortest text that [`Value::parse`] turns into this value.
    fn print(self) -> String;
    /// True when every part of the value is in `low..=high`.
    fn is_within(self, low: Self::Bound, high: Self::Bound) -> bool;
    /// The range as text.
    fn range(low: Self::Bound, high: Self::Bound) -> String;
}

/// Up to 16 intervals, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intervals {
    list: [Duration; Self::MAX],
    len: usize,
}

impl Intervals {
    /// How many intervals fit.
    pub const MAX: usize = 16;
    /// No interval.
    pub const EMPTY: Self = Self {
        list: [Duration::ZERO; Self::MAX],
        len: 0,
    };

    /// The intervals of `list`, or `None` when they are more than [`Intervals::MAX`].
    #[must_use]
    pub fn new(list: &[Duration]) -> Option<Self> {
        let mut intervals = Self::EMPTY;
        intervals.list.get_mut(..list.len())?.copy_from_slice(list);
        intervals.len = list.len();
        Some(intervals)
    }

    /// The intervals.
    #[must_use]
    pub fn as_slice(&self) -> &[Duration] {
        &self.list[..self.len]
    }
}

/// A time that follows from what is measured, unless somebody sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// Follows what is measured: the round trip and the size of the group, mostly.
    Auto,
    /// Always this.
    Fixed(Duration),
}

impl Timer {
    /// The time that was set, or `measured`.
    #[must_use]
    pub const fn or(self, measured: Duration) -> Duration {
        match self {
            Self::Auto => measured,
            Self::Fixed(time) => time,
        }
    }

    /// True when both are set and this is not longer than `other`, or one is not set.
    pub(super) fn is_at_most(self, other: Self) -> bool {
        match (self, other) {
            (Self::Fixed(low), Self::Fixed(high)) => low <= high,
            _ => true,
        }
    }
}

/// How fast a source sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// As fast as the network and the receivers take it. The owner of the source steers.
    Auto,
    /// At most so many bytes a second; 0 for no limit.
    Limit(u64),
}

impl Rate {
    /// The limit that was set, in bytes a second; 0 for none.
    #[must_use]
    pub const fn limit(self) -> u64 {
        match self {
            Self::Auto => 0,
            Self::Limit(rate) => rate,
        }
    }
}

/// Where a receiver that joins a running session begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LateJoin {
    /// At the first packet it receives.
    Now,
    /// As far back as the sender offers with OPT_JOIN; without it, as `Now`.
    Offered,
    /// At the trailing edge of the sender's window, offered or not.
    Window,
}

impl Value for Duration {
    type Bound = Self;
    const FORM: &'static str = "a time such as 200us, 2ms or 30s";

    fn parse(text: &str) -> Option<Self> {
        let ns = scaled(text, &TIME_UNITS)?;
        Some(Self::from_nanos(u64::try_from(ns).ok()?))
    }

    fn print(self) -> String {
        print_scaled(self.as_nanos(), &TIME_UNITS[..4], "0s")
    }

    fn is_within(self, low: Self, high: Self) -> bool {
        (low..=high).contains(&self)
    }

    fn range(low: Self, high: Self) -> String {
        format!("{}..{}", low.print(), high.print())
    }
}

impl Value for Timer {
    type Bound = Duration;
    const FORM: &'static str = "auto or a time such as 200us, 2ms or 30s";

    fn parse(text: &str) -> Option<Self> {
        match text.trim() {
            "auto" => Some(Self::Auto),
            time => Duration::parse(time).map(Self::Fixed),
        }
    }

    fn print(self) -> String {
        match self {
            Self::Auto => "auto".to_owned(),
            Self::Fixed(time) => time.print(),
        }
    }

    fn is_within(self, low: Duration, high: Duration) -> bool {
        match self {
            Self::Auto => true,
            Self::Fixed(time) => time.is_within(low, high),
        }
    }

    fn range(low: Duration, high: Duration) -> String {
        format!("auto, {}", Duration::range(low, high))
    }
}

impl Value for usize {
    type Bound = Self;
    const FORM: &'static str = "a size such as 1500, 9kB or 64MiB";

    fn parse(text: &str) -> Option<Self> {
        Self::try_from(scaled(text, &SIZE_UNITS)?).ok()
    }

    fn print(self) -> String {
        print_scaled(self as u128, &SIZE_UNITS[..4], "0")
    }

    fn is_within(self, low: Self, high: Self) -> bool {
        (low..=high).contains(&self)
    }

    fn range(low: Self, high: Self) -> String {
        format!("{}..{}", low.print(), high.print())
    }
}

impl Value for u64 {
    type Bound = Self;
    const FORM: &'static str = "a rate such as 100MB/s, 1Gbit/s or 0";

    fn parse(text: &str) -> Option<Self> {
        match scaled(text, &RATE_UNITS) {
            Some(bytes) => Self::try_from(bytes).ok(),
            None => {
                let bits = scaled(text, &BIT_RATE_UNITS)?;
                bits.is_multiple_of(8)
                    .then(|| Self::try_from(bits / 8).ok())?
            }
        }
    }

    fn print(self) -> String {
        print_scaled(u128::from(self), &RATE_UNITS[..4], "0")
    }

    fn is_within(self, low: Self, high: Self) -> bool {
        (low..=high).contains(&self)
    }

    fn range(low: Self, high: Self) -> String {
        format!("{}..{}", low.print(), high.print())
    }
}

impl Value for Rate {
    type Bound = u64;
    const FORM: &'static str = "auto or a rate such as 100MB/s, 1Gbit/s or 0";

    fn parse(text: &str) -> Option<Self> {
        match text.trim() {
            "auto" => Some(Self::Auto),
            rate => <u64 as Value>::parse(rate).map(Self::Limit),
        }
    }

    fn print(self) -> String {
        match self {
            Self::Auto => "auto".to_owned(),
            Self::Limit(rate) => Value::print(rate),
        }
    }

    fn is_within(self, low: u64, high: u64) -> bool {
        self.limit().is_within(low, high)
    }

    fn range(low: u64, high: u64) -> String {
        format!("auto, {}", u64::range(low, high))
    }
}

impl Value for u32 {
    type Bound = Self;
    const FORM: &'static str = "a whole number";

    fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_suffix('%').unwrap_or(text);
        Self::from_str(digits.trim()).ok()
    }

    fn print(self) -> String {
        self.to_string()
    }

    fn is_within(self, low: Self, high: Self) -> bool {
        (low..=high).contains(&self)
    }

    fn range(low: Self, high: Self) -> String {
        format!("{low}..{high}")
    }
}

impl Value for bool {
    type Bound = Self;
    const FORM: &'static str = "true or false";

    fn parse(text: &str) -> Option<Self> {
        match text.trim() {
            "true" | "on" | "yes" | "1" => Some(true),
            "false" | "off" | "no" | "0" => Some(false),
            _ => None,
        }
    }

    fn print(self) -> String {
        self.to_string()
    }

    fn is_within(self, _low: Self, _high: Self) -> bool {
        true
    }

    fn range(_low: Self, _high: Self) -> String {
        "true, false".to_owned()
    }
}

impl Value for Intervals {
    type Bound = Duration;
    const FORM: &'static str = "a list of at most 16 times such as 100ms,100ms,1.3s";

    fn parse(text: &str) -> Option<Self> {
        let mut intervals = Self::EMPTY;
        if text.trim().is_empty() {
            return Some(intervals);
        }
        for part in text.split(',') {
            *intervals.list.get_mut(intervals.len)? = Duration::parse(part)?;
            intervals.len += 1;
        }
        Some(intervals)
    }

    fn print(self) -> String {
        let texts: Vec<_> = self.as_slice().iter().map(|time| time.print()).collect();
        texts.join(",")
    }

    fn is_within(self, low: Duration, high: Duration) -> bool {
        self.as_slice().iter().all(|time| time.is_within(low, high))
    }

    fn range(low: Duration, high: Duration) -> String {
        format!(
            "up to {} times of {}",
            Self::MAX,
            Duration::range(low, high)
        )
    }
}

impl Value for LateJoin {
    type Bound = Self;
    const FORM: &'static str = "now, offered or window";

    fn parse(text: &str) -> Option<Self> {
        match text.trim() {
            "now" => Some(Self::Now),
            "offered" => Some(Self::Offered),
            "window" => Some(Self::Window),
            _ => None,
        }
    }

    fn print(self) -> String {
        match self {
            Self::Now => "now",
            Self::Offered => "offered",
            Self::Window => "window",
        }
        .to_owned()
    }

    fn is_within(self, _low: Self, _high: Self) -> bool {
        true
    }

    fn range(_low: Self, _high: Self) -> String {
        "now, offered, window".to_owned()
    }
}

/// Short constructors for the table.
pub(super) mod fixed {
    use std::time::Duration;

    pub(in super::super) const ZERO: Duration = Duration::ZERO;

    pub(in super::super) const fn us(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    pub(in super::super) const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    pub(in super::super) const fn s(n: u64) -> Duration {
        Duration::from_secs(n)
    }
}

/// `text` as a decimal number times the unit it ends with, in base units.
fn scaled(text: &str, units: &[(&str, u128)]) -> Option<u128> {
    let text = text.trim();
    let digits_end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_')
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(digits_end);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let (whole, fraction) = (whole.replace('_', ""), fraction.replace('_', ""));
    if fraction.len() > 18 || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    let unit = unit.trim();
    let all = u128::from_str(&format!("{whole}{fraction}")).ok()?;
    let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    if unit.is_empty() && all == 0 {
        return Some(0);
    }
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    let product = all.checked_mul(*factor)?;
    product.is_multiple_of(scale).then_some(product / scale)
}

/// The largest of `units` that divides `value` exactly; `zero` for 0.
fn print_scaled(value: u128, units: &[(&str, u128)], zero: &str) -> String {
    if value == 0 {
        return zero.to_owned();
    }
    let fits = units
        .iter()
        .rev()
        .find(|(_, factor)| value.is_multiple_of(*factor));
    let (name, factor) = fits.unwrap_or(&("", 1));
    format!("{}{name}", value / factor)
}

// The first four of each are those that values are printed in; the last is the largest.
const TIME_UNITS: [(&str, u128); 7] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("\u{b5}s", 1_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
];
const SIZE_UNITS: [(&str, u128); 9] = [
    ("", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("B", 1),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
];
const RATE_UNITS: [(&str, u128); 8] = [
    ("B/s", 1),
    ("kB/s", 1_000),
    ("MB/s", 1_000_000),
    ("GB/s", 1_000_000_000),
    ("", 1),
    ("KiB/s", 1 << 10),
    ("MiB/s", 1 << 20),
    ("GiB/s", 1 << 30),
];
const BIT_RATE_UNITS: [(&str, u128); 4] = [
    ("bit/s", 1),
    ("kbit/s", 1_000),
    ("Mbit/s", 1_000_000),
    ("Gbit/s", 1_000_000_000),
];
