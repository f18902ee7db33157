//! Numbers as people read them.

use std::time::Duration;

/// `12.3 MB`, decimal as networks count.
pub(super) fn bytes(count: u64) -> String {
    scaled(count as f64, "B")
}

/// `1.23 Gbit/s`.
pub(super) fn bits_per_second(bytes: u64, seconds: f64) -> String {
    scaled(per_second(bytes, seconds) * 8.0, "bit/s")
}

/// `2.3 M/s`.
pub(super) fn rate(count: u64, seconds: f64) -> String {
    scaled(per_second(count, seconds), "/s")
}

/// `12.3 s`, `450 ms`.
pub(super) fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds >= 1.0 {
        format!("{seconds:.2} s")
    } else {
        format!("{:.1} ms", seconds * 1e3)
    }
}

/// A count for each second; 0 when no time has passed.
pub(super) fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        count as f64 / seconds
    } else {
        0.0
    }
}

fn scaled(value: f64, unit: &str) -> String {
    const STEPS: [(f64, &str); 4] = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    match STEPS.iter().find(|(step, _)| value >= *step) {
        Some((step, prefix)) => format!("{:.2} {prefix}{unit}", value / step),
        None if value.fract() == 0.0 => format!("{value:.0} {unit}"),
        None => format!("{value:.1} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_say_enough() {
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(200_000_000), "200.00 MB");
        assert_eq!(bits_per_second(1_250_000, 0.01), "1.00 Gbit/s");
        assert_eq!(rate(5, 0.0), "0 /s");
        assert_eq!(time(Duration::from_millis(1500)), "1.50 s");
    }
}
