//! Numbers as people read them: about three digits, decimal prefixes, bytes for sizes and bits for
//! rates, as usual for networks.

use std::time::Duration;

/// Writes bytes: `12.3 MB`.
pub(crate) fn bytes(count: u64) -> String {
    scaled(count as f64, "B")
}

/// Writes a bit rate: `1.23 Gbit/s`; says so when the time was too short to tell.
pub(super) fn bits_per_second(bytes: u64, seconds: f64) -> String {
    if is_measurable(seconds) {
        bits(per_second(bytes, seconds) * 8.0)
    } else {
        UNKNOWN.to_owned()
    }
}

/// Writes a known bit rate as [`bits_per_second`] does.
pub(crate) fn bits(per_second: f64) -> String {
    scaled(per_second, "bit/s")
}

/// Writes a rate: `2.3 M/s`; says so when the time was too short to tell.
pub(super) fn rate(count: u64, seconds: f64) -> String {
    if is_measurable(seconds) {
        scaled(per_second(count, seconds), "/s")
    } else {
        UNKNOWN.to_owned()
    }
}

/// Writes a known rate as [`rate`] does, rounded to a whole count.
pub(super) fn whole_rate(per_second: f64) -> String {
    scaled(per_second.round(), "/s")
}

/// Writes a time in seconds as [`time`] does.
pub(super) fn seconds(seconds: f64) -> String {
    time(Duration::from_secs_f64(seconds))
}

/// Writes a time: `12.3 s`, `450 ms`.
pub(super) fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds >= 1.0 {
        format!("{} s", digits(seconds))
    } else {
        format!("{} ms", digits(seconds * 1e3))
    }
}

/// Writes a count: `1 packet`, `2 packets`; `what` is the word for one.
pub(crate) fn count(count: u64, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

/// Returns a count for each second; 0 when the time was too short to tell.
pub(crate) fn per_second(count: u64, seconds: f64) -> f64 {
    if is_measurable(seconds) {
        count as f64 / seconds
    } else {
        0.0
    }
}

/// Returns false below a millisecond: a rate over so short a time says more about the clock than
/// about the network.
pub(super) const fn is_measurable(seconds: f64) -> bool {
    seconds >= 1e-3
}

fn scaled(value: f64, unit: &str) -> String {
    const STEPS: [(f64, &str); 4] = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    match STEPS.iter().find(|(step, _)| value >= *step) {
        Some((step, prefix)) => format!("{} {prefix}{unit}", digits(value / step)),
        None => format!("{} {unit}", digits(value)),
    }
}

/// Writes all digits before the point. After the point, a number below 10 gets two digits, a number
/// below 100 gets one, and a larger or whole number gets none.
fn digits(value: f64) -> String {
    if value >= 100.0 || value.fract() == 0.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

const UNKNOWN: &str = "rate unknown";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_say_enough() {
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(200_000_000), "200 MB");
        assert_eq!(bytes(1_234), "1.23 kB");
        assert_eq!(bits_per_second(1_250_000, 0.01), "1 Gbit/s");
        assert_eq!(rate(12_345, 1.0), "12.3 k/s");
        assert_eq!(time(Duration::from_millis(1500)), "1.50 s");
        assert_eq!(time(Duration::from_micros(40)), "0.04 ms");
    }

    #[test]
    fn a_rate_over_no_time_is_none() {
        assert_eq!(rate(5, 0.0), "rate unknown");
        assert_eq!(bits_per_second(200_000, 0.000_01), "rate unknown");
        assert!(per_second(200_000, 0.000_01).abs() < f64::EPSILON);
    }

    #[test]
    fn one_is_singular() {
        let said = [0, 1, 2].map(|n| count(n, "packet"));
        assert_eq!(said, ["0 packets", "1 packet", "2 packets"]);
    }
}
