//! Durations and sizes as people write them. Parameters of the protocol have the same forms; the
//! library reads those itself.

use std::time::Duration;

/// `200us`, `2ms`, `1.5s`, `2m`, `1h`; a plain number is refused, as its unit would be a guess.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, u64); 7] = [
        ("ns", 1),
        ("us", 1_000),
        ("ms", 1_000_000),
        ("min", 60_000_000_000),
        ("s", 1_000_000_000),
        ("m", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ];
    let nanoseconds = scaled(text, &UNITS, None);
    nanoseconds
        .map(Duration::from_nanos)
        .ok_or_else(|| format!("{text:?} is not {DURATION_FORM}"))
}

/// As [`duration`], and a plain number is seconds: where `--seconds` is the flag's other name, that
/// is no guess.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    duration(text).or_else(|refusal| duration(&format!("{text}s")).map_err(|_| refusal))
}

/// `1500`, `64KiB`, `2MB`, `1GiB`.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 11] = [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("kB", 1_000),
        ("KB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("k", 1_000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
        ("B", 1),
    ];
    scaled(text, &UNITS, Some(1)).ok_or_else(|| format!("{text:?} is not {BYTES_FORM}"))
}

/// As [`bytes`], but not 0: nothing would ever be sent.
pub(crate) fn positive_rate(text: &str) -> Result<u64, String> {
    match bytes(text)? {
        0 => Err("a rate of 0 sends nothing: name one of 1 or more".to_owned()),
        rate => Ok(rate),
    }
}

/// A decimal number times its unit; `None` when that is no whole number of base units.
fn scaled(text: &str, units: &[(&str, u64)], plain: Option<u64>) -> Option<u64> {
    let digits_end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits_end);
    let unit = unit.trim_start();
    let scale = match unit {
        "" => plain,
        _ => units
            .iter()
            .find(|(name, _)| *name == unit)
            .map(|&(_, scale)| scale),
    }?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || fraction.is_empty() || fraction.len() > 18 {
        return None;
    }
    let tenths = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let fraction = fraction.parse::<u128>().ok()? * u128::from(scale);
    if !fraction.is_multiple_of(tenths) {
        return None;
    }
    let total = whole.parse::<u128>().ok()?.checked_mul(u128::from(scale))? + fraction / tenths;
    u64::try_from(total).ok()
}

const DURATION_FORM: &str = "a time such as 200us, 2ms, 30s or 5min";
const BYTES_FORM: &str = "a size such as 1500, 64KiB or 2MB";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_exact() {
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("2min"), Ok(Duration::from_secs(120)));
        assert_eq!(bytes("1.5KiB"), Ok(1536));
        assert_eq!(bytes("1500"), Ok(1500));
        assert_eq!(bytes("200M"), Ok(200_000_000));
        for wrong in [
            "5",
            "",
            "s",
            "1.s",
            ".5s",
            "0.1ns",
            "-1s",
            "1 parsec",
            "99999999999h",
        ] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
        assert_eq!(seconds("2"), Ok(Duration::from_secs(2)));
        assert_eq!(seconds("1min"), Ok(Duration::from_secs(60)));
        for wrong in ["x", "", "1 parsec"] {
            assert_eq!(seconds(wrong), duration(wrong));
        }
        for wrong in ["", "1.0001k", "1e6", "x", "99999999999G"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }
}
