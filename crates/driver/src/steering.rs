//! The exchange between a source and its receivers, once a turn of the run loop: the source says
//! how far it has sent, and the receivers' reports decide its pace and what it keeps for them.

use base::Instant;
use delivery::{SourceState, Steering};
use pgm::Source;
use wire::pgm::Mark;

/// Returns how far `source` has sent, and what limits it at `now`.
pub(crate) fn state_of(source: &Source, now: Instant) -> SourceState {
    let config = source.config();
    // The flow window is bounded in packets and in bytes: the lower bound counts.
    let in_bytes = (config.flow_window_bytes() / config.mtu()) as u64;
    SourceState {
        lead: source.unsent() - 1,
        trail: source.trail(),
        phase: source.phase(),
        is_rate_limited: source.is_rate_limited(now),
        is_held: source.is_held(),
        window_packets: u64::from(config.flow_window_sqns()).min(in_bytes),
    }
}

/// Sets what `wanted` gives for `source`: its pace, what its SPMs announce, from which packet on it
/// keeps data, and its round trip.
pub(crate) fn follow(source: &mut Source, wanted: &Steering) {
    if let Some(pace) = wanted.pace
        && pace != source.pace()
    {
        source.set_pace(pace);
    }
    let limiting = wanted.limiting.unwrap_or(Mark::NO_RECEIVER);
    source.set_announced(source.pace(), wanted.count, limiting);
    source.set_hold(wanted.hold);
    if let Some(round_trip) = wanted.round_trip {
        source.set_round_trip(round_trip);
    }
}
