//! The timers of one session: NAKs, SPM requests, replies to polls, expiry.

use std::time::Duration;

use base::Instant;

use super::{Farewell, Peer, Phase, Shared, Timed};
use crate::{
    ip_udp_header_bytes,
    receiver::{
        Mode,
        gaps::Request,
        outbox::{SPMR_BYTES, SQNS_A_NAK},
        ready::Arrived,
    },
};

/// The fate of a session after its timers ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::receiver) enum Fate {
    Stays,
    /// The session was silent for the whole expiry time, and it was over or the owner never heard
    /// of it: the receiver can forget it.
    Forgotten,
}

impl Peer {
    /// Returns the time from which [`Peer::timeout`] has something to do. That time may be early,
    /// but is never late.
    pub(in crate::receiver) fn wake(&self, shared: &Shared) -> Instant {
        if matches!(self.phase, Phase::Leaving(_)) {
            return Instant::NEVER;
        }
        let expiry = self.heard + shared.limits.peer_expiry;
        expiry
            .min(self.spms.spmr.due())
            .min(self.parent.polls.due())
            .min(self.repair_wake(shared))
    }

    /// Returns the time from which there is repair work to do.
    pub(in crate::receiver) fn repair_wake(&self, shared: &Shared) -> Instant {
        if self.can_ask(shared) {
            self.window.gaps.wake()
        } else {
            Instant::NEVER
        }
    }

    /// Does the work that is due at `now`.
    pub(in crate::receiver) fn timeout(&mut self, now: Instant, shared: &mut Shared) -> Fate {
        if matches!(self.phase, Phase::Leaving(_)) {
            return Fate::Stays;
        }
        if now >= self.heard + shared.limits.peer_expiry {
            if self.is_over() || (!self.is_trusted() && !self.is_announced()) {
                return Fate::Forgotten;
            }
            self.leave(Farewell::Expired);
            self.look_again(&shared.store);
            return Fate::Stays;
        }
        if self.spms.spmr.expire(now, &shared.limits, &mut shared.rng) {
            self.ask_spm(shared);
        }
        self.reply(now, shared);
        if self.can_ask(shared) && now >= self.window.gaps.wake() {
            self.ask(now, shared);
            self.look_again(&shared.store);
        }
        Fate::Stays
    }

    /// Returns true when NAKs may be sent. RFC 3208 section 6.2: no NAK before the first SPM.
    pub(super) fn can_ask(&self, shared: &Shared) -> bool {
        let has_way = self.spms.path_nla.is_some() && !self.parent.is_cut_off;
        has_way && self.is_wanted(shared) && !self.is_over()
    }

    /// Returns true when the owner wants this sender to be asked for what is missing.
    fn is_wanted(&self, shared: &Shared) -> bool {
        self.is_trusted() && (self.is_vouched_for || !shared.limits.asks_known_only)
    }

    /// Raises the credit for NAKs by a share of the packets and bytes that have arrived.
    pub(super) fn earn(&mut self, shared: &Shared) {
        let Arrived { packets, bytes, .. } = self.arrived;
        let share = shared.limits.nak_share;
        self.asking.credit.earn(self.source, packets, bytes, share);
    }

    /// Asks for an SPM.
    fn ask_spm(&mut self, shared: &mut Shared) {
        self.earn(shared);
        let upstream = self.upstream(shared);
        let bytes = SPMR_BYTES as u64;
        let is_affordable = self
            .asking
            .credit
            .affords(bytes + ip_udp_header_bytes(self.source) as u64);
        if !is_affordable || !self.is_wanted(shared) {
            shared.counters.unaffordable += 1;
        } else if shared.outbox.spmr(&upstream) {
            self.asking.credit.spend(self.source, 1, bytes);
            shared.counters.spmr_packets += 1;
        } else {
            shared.counters.spmr_packets_omitted += 1;
        }
    }

    /// Begins to time the repair of the packet at position `fresh`, unless the packet that is being
    /// timed is still missing: one packet is timed at a time.
    fn start_timing(&mut self, now: Instant, fresh: Option<u64>) {
        let is_missing = |timed: &Timed| self.window.gaps.locate(timed.position).is_some();
        if !self.asking.timed.as_ref().is_some_and(is_missing) {
            self.asking.timed = fresh.map(|position| Timed {
                position,
                since: now,
                is_confirmed: false,
            });
        }
    }

    /// Requests repair of the gaps that are due, and gives up gaps whose repair it has requested
    /// often and long enough.
    fn ask(&mut self, now: Instant, shared: &mut Shared) {
        let due = self
            .window
            .gaps
            .draw(now, &self.asking.timing, &mut shared.rng);
        self.window.extend_to_noted(now, due);
        shared.ranges.clear();
        let limit = if self.due.is_short {
            self.window.base
        } else if self.asking.is_starved && self.mode == Mode::Sequence {
            self.window.base
                + self
                    .asking
                    .starved
                    .at(now, self.window.base, self.asking.timing.wait_data)
        } else {
            // Positions that only one packet has announced may be forged. Until they are confirmed,
            // the session asks for at most as many of them as one NAK can list.
            let certain = self.window.confirmed() + SQNS_A_NAK as u64;
            certain.min(self.parity_limit(now))
        };
        let turn = self.asking.timing.back_off_max.max(TURN_MIN);
        if now.since(self.asking.turn.0) >= self.asking.credit.turn(turn) {
            if self.asking.turn.1 > 0 {
                self.asking.credit.turn_ended();
            }
            self.asking.turn = (now, 0);
        }
        self.earn(shared);
        let affordable = self.asking.credit.sqns(self.source);
        let budget_sqns = shared
            .outbox
            .room_sqns()
            .min(SQNS_A_TURN - self.asking.turn.1)
            .min(affordable);
        shared.counters.unaffordable += u64::from(affordable == 0);
        let mut request = Request {
            ranges: &mut shared.ranges,
            budget_sqns,
            end: limit,
            next: self.window.next,
            fresh: None,
            is_starved: affordable == 0,
            rest: if budget_sqns == 0 {
                REST_WITHOUT_BUDGET
            } else {
                Duration::ZERO
            },
        };
        self.window
            .gaps
            .expire(now, &self.asking.timing, &mut shared.rng, &mut request);
        let (asked, fresh) = (budget_sqns - request.budget_sqns, request.fresh);
        self.asking.turn.1 += asked;
        shared.counters.withdrawn_sqns += self.window.withdraw();
        if asked > 0 {
            self.start_timing(now, fresh);
            self.request(now, asked, shared);
        }
    }

    /// Makes the NAKs for the gathered ranges (`shared.ranges`), `asked` positions in all.
    fn request(&mut self, now: Instant, asked: u64, shared: &mut Shared) {
        self.split_requests(now, shared);
        let upstream = self.upstream(shared);
        let queued = shared.outbox.queued_bytes();
        let report = self.report(shared);
        let parity_naks = shared
            .outbox
            .parity_nak(&upstream, report, &shared.requests);
        shared.counters.parity_naks += parity_naks;
        self.arrived.repairs_asked += asked;
        shared.counters.nak_sqns += asked;
        let packets = parity_naks + shared.outbox.nak(&upstream, report, &shared.ranges);
        shared.counters.nak_packets += packets;
        shared.counters.congestion_reports += packets * u64::from(report.is_some());
        let bytes = shared.outbox.queued_bytes() - queued;
        self.asking.credit.spend(self.source, packets, bytes);
    }
}

/// How many packets, from its first missing one on, a session may ask for when it has no room for
/// packets that arrive out of order. In each interval this is twice the number of packets that
/// came in order in the last interval, plus [`STARVED_PACKETS_MIN`], but at most one full NAK.
#[derive(Clone, Copy, Debug)]
pub(super) struct StarvedWindow {
    since: Instant,
    base: u64,
    len: u64,
}

impl StarvedWindow {
    fn at(&mut self, now: Instant, base: u64, interval: Duration) -> u64 {
        if now >= self.since + interval {
            let came = base.saturating_sub(self.base);
            let len = came.saturating_mul(2) + STARVED_PACKETS_MIN;
            *self = Self {
                since: now,
                base,
                len: len.min(SQNS_A_NAK as u64),
            };
        }
        self.len
    }
}

impl Default for StarvedWindow {
    fn default() -> Self {
        Self {
            since: Instant::ZERO,
            base: 0,
            len: STARVED_PACKETS_MIN,
        }
    }
}

const STARVED_PACKETS_MIN: u64 = 4;

/// The most sequence numbers that one session asks for within one back-off, or within `TURN_MIN`
/// when that is longer; the rest waits for the next turn. This bounds how many NAKs a forged lead,
/// or a long stall of this host, can cause.
const SQNS_A_TURN: u64 = 64 * SQNS_A_NAK as u64;
const TURN_MIN: Duration = Duration::from_millis(2);
/// How long a session that may send no NAK at present rests before it looks again.
const REST_WITHOUT_BUDGET: Duration = Duration::from_millis(2);
