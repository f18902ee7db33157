//! What a session's PGM parent asks of the receiver: replies to polls, a back-off, congestion
//! reports. Also, whether the parent can reach its children. The parent is the source, or the last
//! network element on the way from it.
//!
//! The module sends nothing. In: POLLs, and options of SPMs and NCFs. Out: replies that are due,
//! the report for a NAK, and whether NAKs may be sent.
//!
//! Invariant: the receiver replies only to polls in sessions that it follows. A reply counts
//! against the limit on the bytes of the receiver's requests, as a NAK does.
//!
//! **Spec**: RFC 3208 sections 12.5, 14.5, 15.2.2, 15.3.2.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use base::{DropReason, Instant};
use wire::{
    Sqn,
    pgm::{Cr, Loads, NakBackOffInterval, NakBackOffRange, Poll},
};

use super::{Peer, Shared};
use crate::{
    ip_udp_header_bytes,
    poll::Polls,
    receiver::outbox::{POLR_BYTES, is_fit_for_naks},
};

/// What the parent of a session asks of this receiver now.
#[derive(Debug, Default)]
pub(super) struct Parent {
    pub(super) polls: Polls,
    /// True when the parent said that it cannot reach its children: NAKs wait for a regular SPM.
    pub(super) is_cut_off: bool,
    /// The kinds of loss rate (link, path, receiver) that the last SPM asks NAKs to report.
    loads: Loads,
    loss: LossRate,
}

/// What the options of an SPM or an NCF say about the back-off before a NAK.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::receiver) struct BackOffNotes {
    pub(in crate::receiver) interval: Option<NakBackOffInterval>,
    pub(in crate::receiver) range: Option<NakBackOffRange>,
}

impl Peer {
    /// Takes a POLL, and plans the reply if one is due. A sender counts its receivers by POLLs.
    pub(in crate::receiver) fn poll(
        &mut self,
        now: Instant,
        poll: &Poll,
        shared: &mut Shared,
    ) -> Result<(), DropReason> {
        if self.is_over() {
            return Err(DropReason::Ended);
        }
        // Deviation: a reply goes only where NAKs may go. Any sender of a POLL could name a third
        // host as its path, and all receivers would then reply to that host.
        let is_way = if shared.limits.asks_path {
            is_fit_for_naks(poll.path_nla, shared.setup.group.ip(), self.source)
        } else {
            poll.path_nla == self.source
        };
        let is_known = matches!(poll.sub_type, Poll::GENERAL | Poll::DLR);
        if !is_way || !is_known {
            return Err(DropReason::Unexpected);
        }
        self.heard = now;
        self.asking.credit.heard();
        shared.counters.polls_heard += 1;
        if self.can_ask(shared) {
            let bits = shared.node_bits;
            self.parent.polls.heard(now, poll, bits, &mut shared.rng);
        }
        Ok(())
    }

    /// Sends the reply to a poll when it is due.
    pub(super) fn reply(&mut self, now: Instant, shared: &mut Shared) {
        let Some(reply) = self.parent.polls.expire(now) else {
            return;
        };
        if !self.can_ask(shared) {
            return;
        }
        self.earn(shared);
        let mut upstream = self.upstream(shared);
        if upstream.to.ip() != reply.path_nla {
            upstream.to = SocketAddr::new(reply.path_nla, shared.setup.group.port());
        }
        let with_headers = POLR_BYTES + ip_udp_header_bytes(self.source) as u64;
        if !self.asking.credit.affords(with_headers) {
            shared.counters.unaffordable += 1;
        } else if shared.outbox.polr(&upstream, reply.polr) {
            self.asking.credit.spend(self.source, 1, POLR_BYTES);
            shared.counters.polr_packets += 1;
        }
    }

    /// Takes an SPM or an NCF by which the element at `path_nla` says that it cannot reach its
    /// children. The packet counts only when NAKs go to that element.
    ///
    /// Deviation: without `network_elements` NAKs go straight to the source, and the packet does
    /// not stop them. Otherwise one forged packet could stop all NAKs.
    pub(in crate::receiver) fn cut_off(
        &mut self,
        now: Instant,
        path_nla: Option<IpAddr>,
        shared: &Shared,
    ) -> Result<(), DropReason> {
        if path_nla.is_none() || path_nla != self.spms.path_nla {
            return Err(DropReason::Unexpected);
        }
        self.heard = now;
        self.parent.is_cut_off = shared.limits.asks_path;
        Ok(())
    }

    /// Notes what a regular SPM asks for.
    pub(super) fn follow_parent(&mut self, loads: Loads, back_off: &BackOffNotes) {
        self.parent.is_cut_off = false;
        self.parent.loads = loads;
        self.follow_back_off(back_off);
    }

    /// Notes the back-off that an SPM or an NCF announces. When its interval results from a poll,
    /// the interval counts only if the latest poll whose first round this receiver has heard is
    /// that poll or an earlier one.
    pub(in crate::receiver) fn follow_back_off(&mut self, notes: &BackOffNotes) {
        if let Some(range) = notes.range {
            let [min, max] = [range.min_us, range.max_us].map(micros);
            self.asking.timing.tell_range(min, max);
        }
        if let Some(told) = notes.interval
            && (told.poll_sqn == Sqn(0) || self.parent.polls.has_opened(told.poll_sqn))
        {
            self.asking.timing.tell_interval(micros(told.interval_us));
        }
    }

    /// Returns the congestion report for a NAK, if SPMs ask for one.
    pub(super) fn report(&mut self, shared: &Shared) -> Option<Cr> {
        let loads = self.parent.loads;
        if loads == Loads::default() {
            return None;
        }
        let originals = self.arrived.packets - self.arrived.repairs;
        let rate = self.parent.loss.update(originals, self.arrived.missed);
        Some(Cr {
            loads,
            reference: Sqn::of(self.window.next - 1),
            worst_link: 0,
            worst_path: 0,
            worst_receiver_path: if loads.receiver { rate } else { 0 },
            worst_receiver: shared.setup.own_nla,
        })
    }
}

/// The share of packets that were lost lately, in 65,535ths.
#[derive(Clone, Copy, Debug, Default)]
struct LossRate {
    /// The counts at the last update of `rate`: here of packets that came, below of packets missed.
    originals: u64,
    missed: u64,
    rate: Option<u64>,
}

impl LossRate {
    /// Updates the rate with the packets that came and those that were missed since the last
    /// update, once both together are enough for a sample; the first sample may be smaller. Returns
    /// the rate.
    fn update(&mut self, originals: u64, missed: u64) -> u16 {
        let lost = missed - self.missed;
        let all = originals - self.originals + lost;
        if all > 0 && (all >= SAMPLE_PACKETS || self.rate.is_none()) {
            let sample = lost * u64::from(u16::MAX) / all;
            let rate = self.rate.map_or(sample, |rate| (rate * 7 + sample) / 8);
            (self.originals, self.missed, self.rate) = (originals, missed, Some(rate));
        }
        u16::try_from(self.rate.unwrap_or(0)).unwrap_or(u16::MAX)
    }
}

fn micros(us: u32) -> Duration {
    Duration::from_micros(u64::from(us))
}

/// The fewest packets that make a sample of the loss rate; only the first sample may be smaller. A
/// judgement: at 1 % lost, 200 packets hold two losses.
const SAMPLE_PACKETS: u64 = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loss_rate_follows_and_waits_for_enough_packets() {
        let mut loss = LossRate::default();
        assert_eq!(loss.update(0, 0), 0);
        assert_eq!(loss.update(99, 1), 655, "one of a hundred");
        assert_eq!(loss.update(110, 40), 655, "too few to tell");
        assert_eq!(loss.update(199, 101), (655 * 7 + 32_767) / 8);
        assert_eq!(loss.update(199, 10_000), 12_277);
    }
}
