//! What the receivers' reports ask of a source: rate, hold, round trip, and what its mark says.

use std::time::Duration;

use base::Instant;
use delivery::{Content, PlanSender, Registry};
use pgm::Source;
use wire::pgm::Mark;

/// The receivers of a session as a source sees them.
pub(crate) trait Receivers {
    /// The rate to go at, in bytes a second, when somebody sets it.
    fn steer(&mut self, now: Instant, is_limited: bool) -> Option<u64>;
    /// How many there are, or are going to be: many spread what all of them do at once, one alone
    /// asks for repairs without listening for others.
    fn count(&self) -> u32;
    /// The number of the one who limits the session.
    fn limiting(&self) -> Option<u32>;
    /// The position that has to be kept, when `lead` is the last one that was sent.
    fn hold(&mut self, lead: u64) -> Option<u64>;
    /// The longest round trip to any of them.
    fn round_trip(&self) -> Option<Duration>;
}

/// Makes `source` do what its receivers ask for; gives the hold.
pub(crate) fn follow(
    source: &mut Source,
    receivers: &mut impl Receivers,
    now: Instant,
) -> Option<u64> {
    let is_limited = source.is_rate_limited(now);
    if let Some(rate) = receivers.steer(now, is_limited)
        && rate != source.rate()
    {
        source.set_rate(rate);
    }
    let limiting = receivers.limiting().unwrap_or(Mark::NO_RECEIVER);
    source.set_announced(source.rate(), receivers.count(), limiting);
    // What was sent, not what waits: nobody is behind for want of what the flow window keeps back.
    let hold = receivers.hold(source.unsent() - 1);
    source.set_hold(hold);
    if let Some(round_trip) = receivers.round_trip() {
        source.set_round_trip(round_trip);
    }
    hold
}

impl Receivers for Registry {
    fn steer(&mut self, now: Instant, is_limited: bool) -> Option<u64> {
        Self::steer(self, now, is_limited)
    }

    fn count(&self) -> u32 {
        self.receiver_count()
    }

    fn limiting(&self) -> Option<u32> {
        let sets_rate = self.rate_limit().map(|limit| limit.slot);
        sets_rate.or_else(|| Self::limiting(self))
    }

    fn hold(&mut self, lead: u64) -> Option<u64> {
        self.set_lead(lead);
        Self::hold(self)
    }

    fn round_trip(&self) -> Option<Duration> {
        Self::round_trip(self)
    }
}

impl<C: Content> Receivers for PlanSender<C> {
    fn steer(&mut self, now: Instant, is_limited: bool) -> Option<u64> {
        Self::steer(self, now, is_limited)
    }

    fn count(&self) -> u32 {
        self.announced_count()
    }

    fn limiting(&self) -> Option<u32> {
        self.rate_limit().map(|limit| limit.slot)
    }

    fn hold(&mut self, lead: u64) -> Option<u64> {
        Self::hold(self, lead)
    }

    fn round_trip(&self) -> Option<Duration> {
        Self::round_trip(self)
    }
}
