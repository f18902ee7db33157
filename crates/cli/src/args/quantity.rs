//! Reads numbers that must not be 0, in the forms of [`towline::quantity`].

use std::{num::NonZeroU64, time::Duration};

use towline::quantity;

/// Reads a number of packets a second, at least 1.
pub(crate) fn positive_count(text: &str) -> Result<u64, String> {
    nonzero_count(text).map(NonZeroU64::get)
}

/// Reads a count of at least 1.
pub(crate) fn nonzero_count(text: &str) -> Result<NonZeroU64, String> {
    let count = quantity::count(text).map_err(|error| error.to_string())?;
    NonZeroU64::new(count).ok_or_else(|| NOTHING.to_owned())
}

/// Reads a number of receivers, at least 1.
pub(crate) fn receiver_count(text: &str) -> Result<u32, String> {
    let count = quantity::count(text).map_err(|error| error.to_string())?;
    match u32::try_from(count) {
        Ok(0) => Err("with 0 receivers nothing is proven: name 1 or more".to_owned()),
        Ok(count) => Ok(count),
        Err(_) => Err(format!("at most {} receivers are counted", u32::MAX)),
    }
}

/// Reads a number of bits a second, at least 1.
pub(crate) fn positive_bit_rate(text: &str) -> Result<u64, String> {
    match quantity::bit_rate(text).map_err(|error| error.to_string())? {
        0 => Err(NOTHING.to_owned()),
        rate => Ok(rate),
    }
}

/// Reads a time that is not 0.
pub(crate) fn positive_duration(text: &str) -> Result<Duration, String> {
    match quantity::duration(text).map_err(|error| error.to_string())? {
        Duration::ZERO => Err("the time must be longer than 0".to_owned()),
        time => Ok(time),
    }
}

/// Reads a number above 0, which need not be whole.
pub(crate) fn positive_number(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(number),
        _ => Err(format!("{text:?} is not a number above 0")),
    }
}

const NOTHING: &str = "a rate of 0 carries nothing: name one of 1 or more";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_that_sends_nothing_is_refused() {
        assert_eq!(positive_count("40k"), Ok(40_000));
        assert_eq!(positive_bit_rate("10Mbit/s"), Ok(10_000_000));
        for zero in [positive_count("0"), positive_bit_rate("0k")] {
            assert_eq!(zero, Err(NOTHING.to_owned()));
        }
        assert!(positive_count("fast").unwrap_err().contains("40k"));
        assert!(positive_bit_rate("10").is_ok());
        assert_eq!(receiver_count("12"), Ok(12));
        assert!(receiver_count("0").unwrap_err().contains("1 or more"));
        assert!(receiver_count("5G").is_err());
    }
}
