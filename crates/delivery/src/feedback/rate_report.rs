//! Converts a receiver's report for the sender's rate control.

use std::time::Duration;

use base::Instant;
use wire::object::Pos;

use crate::RateReport;

/// Returns what `pos`, a receiver's report, tells the sender's rate control. `round_trip` is the
/// receiver's shortest recent round trip. `answer` is the round trip measured by this report alone,
/// if it measured one.
pub(crate) fn rate_report(pos: &Pos, round_trip: Duration, answer: Option<Duration>) -> RateReport {
    RateReport {
        echo: Instant::from_nanos(pos.echo_us.saturating_mul(1000)),
        round_trip,
        answer: answer.unwrap_or_default(),
        delivery_bytes_per_s: pos.bytes_per_s,
        queue_delay: Duration::from_micros(pos.queue_delay_us.into()),
        lead: pos.lead,
        missed: pos.naks,
        host_drops: pos.host_drops,
    }
}
