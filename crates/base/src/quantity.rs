//! The one grammar of numbers with units: times, sizes, rates, counts and chances, as people write
//! them on a command line, in a configuration file and in a scenario.
//!
//! A number is decimal: `1500`, `1_500`, `1.5`, `.5`, `1e6`. Its unit follows at once or after a
//! blank. Case matters: `MB/s` is bytes and `Mb/s` is bits, `M` is a million and `m` a minute.
//!
//! - [`duration`], in seconds where no unit is written: `200us`, `200µs`, `2ms`, `1.5s`, `2m`,
//!   `2min`, `1h`, `7d`, `1h30m`, `30`.
//! - [`size`], in bytes where no unit is written: `1500`, `64k`, `64kB`, `64KiB`, `64Ki`, `2M`,
//!   `2MB`, `2MiB`, and so on up to `T`.
//! - [`byte_rate`], whose unit must be written: `12MB/s`, `12MBps`, `1GiB/s`; in bits `100M`,
//!   `100Mbit`, `100Mbit/s`, `100Mbps`, `100Mb/s`; and `0`.
//! - [`bit_rate`], in bits a second where no unit is written: as for [`byte_rate`], and also
//!   `1000000`.
//! - [`count`]: `500`, `40k`, `1.5M`, `2G`, and the same with `/s`, as in `40k/s`.
//! - [`Chance`]: `5%`, `0.1%`, `1/1000`, `0.05`.
//!
//! `k` and `K` are 1,000 and `Ki` is 1,024; the larger letters follow the same rule. A letter
//! without a unit means bits in a rate, as networks count, and bytes in a size. [`byte_rate`]
//! refuses a plain number: one reader would take it for bits and another for bytes.
//!
//! **Invariant**: reading is exact. A text that does not give a whole number of base units
//! (nanoseconds, bytes, bits a second) is refused. What the `_text` functions write reads back as
//! the same value, except a time of 584 years or more.

use std::{fmt, str::FromStr, time::Duration};

use crate::Rng;

/// Reads a time: `200us`, `1.5s`, `2m`, `1h30m`, or plain seconds.
///
/// # Errors
/// Any other text, a fraction of a nanosecond, or 2^64 nanoseconds (584 years) or more.
pub fn duration(text: &str) -> Result<Duration, QuantityError> {
    let nanoseconds = nanoseconds(text.trim());
    let time = nanoseconds.map(Duration::from_nanos);
    time.ok_or_else(|| QuantityError::new(text, DURATION_FORM))
}

/// Writes `time` as [`duration`] reads it, in the longest unit, up to the second, that divides it.
/// A time of 584 years or more is written, too, but [`duration`] refuses it.
#[must_use]
pub fn duration_text(time: Duration) -> String {
    let units = [
        ("ns", 1),
        ("us", 1_000),
        ("ms", 1_000_000),
        ("s", SECOND_NS),
    ];
    written(time.as_nanos(), &units).unwrap_or_else(|| "0s".to_owned())
}

/// Reads a size in bytes: `1500`, `64k`, `2MB`, `1GiB`.
///
/// # Errors
/// Any other text, a fraction of a byte, or 2^64 bytes or more.
pub fn size(text: &str) -> Result<u64, QuantityError> {
    let bytes = Decimal::split(text.trim()).and_then(|(number, unit)| {
        let prefix = unit.strip_suffix('B').unwrap_or(unit);
        number.times(prefix_factor(prefix)?)
    });
    bytes.ok_or_else(|| QuantityError::new(text, SIZE_FORM))
}

/// Writes `bytes` as [`size`] reads them, in the largest binary unit, up to `GiB`, that divides
/// them.
#[must_use]
pub fn size_text(bytes: u64) -> String {
    let units = [
        ("", 1),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
    ];
    written(bytes.into(), &units).unwrap_or_else(|| "0".to_owned())
}

/// Reads a rate as bytes a second: `12MB/s`, `100Mbit/s`, `1Gbit`, `100M` (bits), `0`.
///
/// # Errors
/// Any other text, a number other than 0 without a unit, a fraction of a byte a second, or 2^64
/// bytes a second or more.
pub fn byte_rate(text: &str) -> Result<u64, QuantityError> {
    let rate = Decimal::split(text.trim()).and_then(|(number, unit)| match unit {
        "" => (number.digits == 0).then_some(0),
        unit => match unit.strip_suffix("B/s").or(unit.strip_suffix("Bps")) {
            Some(prefix) => number.times(prefix_factor(prefix)?),
            None => {
                let bits = number.times(bits_factor(unit)?)?;
                bits.is_multiple_of(8).then_some(bits / 8)
            }
        },
    });
    rate.ok_or_else(|| QuantityError::new(text, BYTE_RATE_FORM))
}

/// Writes a rate as [`byte_rate`] reads it, in the largest unit, up to `GB/s`, that divides it.
#[must_use]
pub fn byte_rate_text(bytes_per_second: u64) -> String {
    let units = [
        ("B/s", 1),
        ("kB/s", 1_000),
        ("MB/s", 1_000_000),
        ("GB/s", 1_000_000_000),
    ];
    written(bytes_per_second.into(), &units).unwrap_or_else(|| "0".to_owned())
}

/// Reads a rate as bits a second: the same texts as [`byte_rate`], and a plain number of bits a
/// second.
///
/// # Errors
/// Any other text, a fraction of a bit a second, or 2^64 bits a second or more.
pub fn bit_rate(text: &str) -> Result<u64, QuantityError> {
    let rate = Decimal::split(text.trim()).and_then(|(number, unit)| {
        match unit.strip_suffix("B/s").or(unit.strip_suffix("Bps")) {
            Some(prefix) => number.times(8 * prefix_factor(prefix)?),
            None => number.times(bits_factor(unit)?),
        }
    });
    rate.ok_or_else(|| QuantityError::new(text, BIT_RATE_FORM))
}

/// Reads a count, or a count a second: `500`, `40k`, `1.5M`, `40k/s`.
///
/// # Errors
/// Any other text, a number that is not whole, or 2^64 or more.
pub fn count(text: &str) -> Result<u64, QuantityError> {
    let count = Decimal::split(text.trim()).and_then(|(number, unit)| {
        let prefix = unit.strip_suffix("/s").unwrap_or(unit);
        let is_decimal = !prefix.ends_with('i');
        number.times(prefix_factor(prefix).filter(|_| is_decimal)?)
    });
    count.ok_or_else(|| QuantityError::new(text, COUNT_FORM))
}

/// A probability: a fraction of two whole numbers, in its lowest terms.
///
/// [`Chance`] reads `5%`, `0.1%`, `1/1000` and `0.05`, and prints a percentage where six decimals
/// give it exactly, else a fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chance {
    numerator: u64,
    denominator: u64,
}

impl Chance {
    /// The chance of what never happens.
    pub const NEVER: Self = Self {
        numerator: 0,
        denominator: 1,
    };

    /// Returns the chance of `numerator` in `denominator`.
    ///
    /// **Panics** (bug): when the chance is more than one, or `denominator` is 0.
    #[must_use]
    pub const fn new(numerator: u64, denominator: u64) -> Self {
        assert!(
            denominator > 0 && numerator <= denominator,
            "a probability is from 0 to 1"
        );
        let divisor = common_divisor(numerator, denominator);
        Self {
            numerator: numerator / divisor,
            denominator: denominator / divisor,
        }
    }

    /// Returns true when the chance is 0.
    #[must_use]
    pub const fn is_never(self) -> bool {
        self.numerator == 0
    }

    /// Returns the chance as a number from 0 to 1, rounded.
    #[must_use]
    pub fn share(self) -> f64 {
        self.numerator as f64 / self.denominator as f64
    }

    /// Draws once: true with this chance. A chance of 0 draws nothing from `rng`, so that a fault
    /// with chance 0 does not shift the draws of other faults.
    pub const fn draw(self, rng: &mut Rng) -> bool {
        !self.is_never() && rng.chance(self.numerator, self.denominator)
    }
}

impl Default for Chance {
    fn default() -> Self {
        Self::NEVER
    }
}

impl FromStr for Chance {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let trimmed = text.trim();
        let chance = match (trimmed.strip_suffix('%'), trimmed.split_once('/')) {
            (Some(percent), _) => Decimal::alone(percent).and_then(|part| part.over(100)),
            (None, Some((part, whole))) => {
                let whole = whole.trim().parse::<u64>().ok();
                Decimal::alone(part)
                    .zip(whole)
                    .and_then(|(part, whole)| part.over(whole))
            }
            (None, None) => Decimal::alone(trimmed).and_then(|part| part.over(1)),
        };
        chance.ok_or_else(|| QuantityError::new(text, CHANCE_FORM))
    }
}

impl fmt::Display for Chance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Prints a percentage with the fewest decimals that give the fraction exactly.
        for places in 0..=PERCENT_PLACES_MAX {
            let scale = 10_u128.pow(places);
            let scaled = u128::from(self.numerator) * 100 * scale;
            if scaled.is_multiple_of(self.denominator.into()) {
                let percent = scaled / u128::from(self.denominator);
                write!(f, "{}", percent / scale)?;
                if places > 0 {
                    write!(f, ".{:0width$}", percent % scale, width = places as usize)?;
                }
                return f.write_str("%");
            }
        }
        write!(f, "{}/{}", self.numerator, self.denominator)
    }
}

/// A text that is not a quantity of the wanted kind. Its message names the form, with examples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuantityError {
    text: String,
    form: &'static str,
}

impl QuantityError {
    fn new(text: &str, form: &'static str) -> Self {
        Self {
            text: text.to_owned(),
            form,
        }
    }
}

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not {}", self.text, self.form)
    }
}

impl std::error::Error for QuantityError {}

/// What [`duration`] reads, in words that complete "is not ...".
pub const DURATION_FORM: &str = "a time such as 200us, 1.5s, 2m, 1h30m or 30 (seconds)";
/// What [`size`] reads, in words that complete "is not ...".
pub const SIZE_FORM: &str = "a size such as 1500, 64k, 2MB or 64MiB";
/// What [`byte_rate`] reads, in words that complete "is not ...".
pub const BYTE_RATE_FORM: &str =
    "0, or a rate with its unit such as 12MB/s, 100Mbit/s or 1G (bits)";
/// What [`bit_rate`] reads, in words that complete "is not ...".
pub const BIT_RATE_FORM: &str = "a rate such as 10M, 1Gbit/s, 12MB/s or 5000 (bits a second)";
/// What [`count`] reads, in words that complete "is not ...".
pub const COUNT_FORM: &str = "a number such as 500, 40k or 1.5M";
/// What [`Chance`] reads, in words that complete "is not ...".
pub const CHANCE_FORM: &str = "a probability from 0 to 1, such as 5%, 0.1%, 1/1000 or 0.05";

/// A decimal number: `digits * 10^exponent`.
#[derive(Clone, Copy)]
struct Decimal {
    digits: u128,
    exponent: i32,
}

impl Decimal {
    /// Splits off the number that `text` begins with; the rest comes without its leading blanks.
    fn split(text: &str) -> Option<(Self, &str)> {
        let is_part = |c: char| c.is_ascii_digit() || c == '.' || c == '_';
        let end = text.find(|c| !is_part(c)).unwrap_or(text.len());
        let (number, mut rest) = text.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let (whole, fraction) = (whole.replace('_', ""), fraction.replace('_', ""));
        // 36 digits fit into 128 bits. The products below are checked for overflow.
        if whole.len() + fraction.len() > DIGITS_MAX {
            return None;
        }
        let mut exponent = -i32::try_from(fraction.len()).ok()?;
        if let Some((power, after)) = exponent_of(rest) {
            exponent += power
                .parse::<i32>()
                .ok()
                .filter(|power| power.abs() <= 36)?;
            rest = after;
        }
        let digits = format!("{whole}{fraction}").parse().ok()?;
        Some((Self { digits, exponent }, rest.trim_start()))
    }

    /// Returns the number when `text` is a number without a unit.
    fn alone(text: &str) -> Option<Self> {
        let (number, rest) = Self::split(text.trim())?;
        rest.is_empty().then_some(number)
    }

    /// Multiplies by `factor`; returns the product when it is a whole number of at most 64 bits.
    fn times(self, factor: u128) -> Option<u64> {
        let product = self.digits.checked_mul(factor)?;
        let power = 10_u128.checked_pow(self.exponent.unsigned_abs())?;
        let whole = if self.exponent < 0 {
            product.is_multiple_of(power).then_some(product / power)
        } else {
            product.checked_mul(power)
        };
        u64::try_from(whole?).ok()
    }

    /// Divides by `denominator`; returns the quotient when it is a probability whose lowest terms
    /// have at most 64 bits each.
    fn over(self, denominator: u64) -> Option<Chance> {
        let power = 10_u128.checked_pow(self.exponent.unsigned_abs())?;
        let denominator = u128::from(denominator);
        let (numerator, denominator) = if self.exponent < 0 {
            (self.digits, denominator.checked_mul(power)?)
        } else {
            (self.digits.checked_mul(power)?, denominator)
        };
        if denominator == 0 || numerator > denominator {
            return None;
        }
        let (mut divisor, mut rest) = (numerator, denominator);
        while rest > 0 {
            (divisor, rest) = (rest, divisor % rest);
        }
        let lowest = |number: u128| u64::try_from(number / divisor).ok();
        Some(Chance {
            numerator: lowest(numerator)?,
            denominator: lowest(denominator)?,
        })
    }
}

/// Splits an exponent such as `e6` or `E-3` from what follows; no unit begins with such an
/// exponent.
fn exponent_of(text: &str) -> Option<(&str, &str)> {
    let power = text.strip_prefix(['e', 'E'])?;
    let sign = usize::from(power.starts_with(['+', '-']));
    let digits = power[sign..]
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(power.len() - sign);
    (digits > 0).then(|| power.split_at(sign + digits))
}

/// Reads a sum such as `1h30m`, largest unit first, or plain seconds.
fn nanoseconds(text: &str) -> Option<u64> {
    let (number, mut rest) = Decimal::split(text)?;
    if rest.is_empty() {
        return number.times(SECOND_NS);
    }
    let (mut number, mut total, mut last) = (number, 0_u64, u128::MAX);
    loop {
        let end = rest
            .find(|c: char| !c.is_alphabetic())
            .unwrap_or(rest.len());
        let (unit, after) = rest.split_at(end);
        let factor = time_factor(unit).filter(|factor| *factor < last)?;
        total = total.checked_add(number.times(factor)?)?;
        if after.is_empty() {
            return Some(total);
        }
        last = factor;
        (number, rest) = Decimal::split(after.trim_start())?;
    }
}

fn time_factor(unit: &str) -> Option<u128> {
    Some(match unit {
        "ns" => 1,
        // The micro sign, and the Greek letter that looks the same.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" | "sec" => SECOND_NS,
        "m" | "min" => 60 * SECOND_NS,
        "h" => 3_600 * SECOND_NS,
        "d" => 86_400 * SECOND_NS,
        _ => return None,
    })
}

fn prefix_factor(prefix: &str) -> Option<u128> {
    Some(match prefix {
        "" => 1,
        "k" | "K" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        _ => return None,
    })
}

/// Returns the number of bits a second in one `Mbit/s`, `Mbit`, `Mbps`, `Mb/s` or `M`.
fn bits_factor(unit: &str) -> Option<u128> {
    let suffixes = ["bit/s", "bit", "bps", "b/s"];
    let prefix = suffixes.iter().find_map(|suffix| unit.strip_suffix(suffix));
    prefix_factor(prefix.unwrap_or(unit))
}

/// Writes `value` in the largest of `units` (ascending) that divides it; `None` for 0.
fn written(value: u128, units: &[(&str, u128)]) -> Option<String> {
    let fits = |(_, factor): &&(&str, u128)| value.is_multiple_of(*factor);
    let (name, factor) = units.iter().rev().find(fits)?;
    (value > 0).then(|| format!("{}{name}", value / factor))
}

const fn common_divisor(a: u64, b: u64) -> u64 {
    let (mut a, mut b) = (a, b);
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

const SECOND_NS: u128 = 1_000_000_000;
const DIGITS_MAX: usize = 36;
/// The most decimals of a printed percentage: enough for a millionth of a per cent.
const PERCENT_PLACES_MAX: u32 = 6;

#[cfg(test)]
mod tests;
