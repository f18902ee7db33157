//! What one TCP connection would get: the throughput equation of TFRC.
//!
//! **Spec**: RFC 5348 section 3.1, with b = 1 and t_RTO = 4 R.

use std::time::Duration;

/// Bytes a second of a connection with this share of lost packets and this round trip. Without
/// loss there is no bound.
pub(super) fn tfrc_rate(loss: f64, round_trip: Duration) -> f64 {
    if loss <= 0.0 {
        return f64::INFINITY;
    }
    let loss = loss.min(1.0);
    let seconds = round_trip.as_secs_f64().max(1e-5);
    let slow = 4.0 * 3.0 * (3.0 * loss / 8.0).sqrt() * loss * (1.0 + 32.0 * loss * loss);
    SEGMENT_BYTES / (seconds * ((2.0 * loss / 3.0).sqrt() + slow))
}

/// A full packet on Ethernet.
const SEGMENT_BYTES: f64 = 1500.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_gives_the_values_of_the_equation() {
        let ms = Duration::from_millis;
        let rate = |loss, rtt| tfrc_rate(loss, ms(rtt)).round() as u64;
        assert!(
            (164_000..170_000).contains(&rate(0.01, 100)),
            "{}",
            rate(0.01, 100)
        );
        assert!(rate(0.01, 50).abs_diff(rate(0.01, 100) * 2) < 3);
        assert!(rate(0.001, 100) > 3 * rate(0.01, 100));
        assert!(tfrc_rate(0.0, ms(100)).is_infinite());
    }
}
