//! What a report says of the rate.

use std::time::Duration;

use base::Instant;
use wire::object::Pos;

use crate::RateReport;

/// What `pos` says of the rate, from a receiver `round_trip` away; `answer` is the sample of the
/// round trip that it completes, if it does.
pub(crate) fn rate_report(pos: &Pos, round_trip: Duration, answer: Option<Duration>) -> RateReport {
    RateReport {
        echo: Instant::from_nanos(pos.echo_us.saturating_mul(1000)),
        round_trip,
        answer: answer.unwrap_or_default(),
        delivery: pos.rate,
        queue_delay: Duration::from_micros(pos.queue_delay_us.into()),
        lead: pos.lead,
        missed: pos.naks,
        host_drops: pos.host_drops,
    }
}
