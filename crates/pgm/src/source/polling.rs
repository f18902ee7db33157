//! How a source counts its receivers and measures the longest round trip to one of them: by polls.
//!
//! The module does not send. In: the wish to count, replies, time. Out: the poll that is due, and a
//! [`Census`]. It has no list of receivers: it counts those that reply to polls, whether they
//! report or not.
//!
//! ```text
//!   start -> one in 65,536 replies, within the back-off -> one in 4,096 -> ... -> each
//!                 |  enough replied
//!                 v
//!            about 64 reply, at once: the last reply gives the longest round trip -> Census
//!
//!   `REPLIES_MAX` replies: a poll that nobody answers ends the count -> Census
//! ```
//!
//! All rounds of a count have the same sequence number, and only receivers that heard the first
//! round reply to later ones. So the replies to one round show how many replies the next round,
//! which asks more receivers, can bring.
//!
//! Invariant: at most `REPLIES_MAX` replies are kept; in each round, an address counts once.
//!
//! **Spec**: RFC 3208 sections 14.3, 14.4.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use base::{DropReason, Instant, Rng, Run};
use wire::{
    Sqn,
    pgm::{Body, Poll, Polr, emit},
};

use super::{Source, transmit::Pending};
use crate::Config;

/// The receivers that a source counted by polls.
///
/// Any host can reply to a poll, and receivers need not reply: the count is no proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Census {
    /// About how many receivers there are.
    pub receivers: u64,
    /// True when each receiver was asked to reply; otherwise `receivers` is an estimate from a
    /// sample.
    pub is_complete: bool,
    /// The longest round trip among at most about 64 receivers, which were asked to reply at once;
    /// `None` when no round trip was measured.
    pub farthest_round_trip: Option<Duration>,
}

/// How far a source is with counting its receivers.
#[derive(Clone, Debug)]
pub(super) struct Polling {
    rng: Rng,
    /// The time between two counts; with zero, only [`Source::count_receivers`] starts a count.
    interval: Duration,
    next_at: Instant,
    /// The sequence number of the present poll, and the number of its round.
    sqn: Sqn,
    round: u16,
    /// One receiver in 2^`bits` is to reply.
    bits: u32,
    step: Step,
    /// The addresses of the receivers that replied in this round, sorted.
    heard: Vec<SocketAddr>,
    farthest: Option<Duration>,
    counted: Census,
    last: Option<Census>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Idle,
    /// A poll is to be sent.
    Due(Kind),
    Collecting {
        kind: Kind,
        since: Instant,
        until: Instant,
    },
}

/// The purpose of a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Count,
    /// The poll measures round trips: receivers reply at once.
    Range,
    /// The poll makes receivers forget the earlier poll, so that no more replies come.
    Abort,
}

impl Polling {
    pub(super) fn new(config: &Config, seed: u64, now: Instant) -> Self {
        let mut rng = Rng::new(seed ^ SALT);
        Self {
            sqn: Sqn(rng.next_u32()),
            rng,
            interval: config.poll_interval(),
            next_at: now + config.poll_interval(),
            round: 0,
            bits: 0,
            step: Step::Idle,
            heard: Vec::new(),
            farthest: None,
            counted: NOBODY,
            last: None,
        }
    }

    /// Begins a count, unless one is going on.
    fn start(&mut self, now: Instant) {
        if self.step != Step::Idle {
            return;
        }
        self.next_at = now + self.interval;
        self.sqn = self.sqn.next();
        self.round = 0;
        self.farthest = None;
        self.bits = match self.last {
            None => BITS_START,
            // Many receivers may have joined since the last count, so the first round asks fewer of
            // them.
            Some(last) => (bits_for(last.receivers, ENOUGH) + BITS_STEP).min(BITS_START),
        };
        self.step = Step::Due(Kind::Count);
    }

    /// Starts a count or closes a round, if either is due at `now`.
    pub(super) fn advance(&mut self, now: Instant) {
        match self.step {
            Step::Idle if !self.interval.is_zero() && now >= self.next_at => self.start(now),
            Step::Collecting { kind, until, .. } if now >= until => self.close_round(kind),
            Step::Idle | Step::Due(_) | Step::Collecting { .. } => {}
        }
    }

    /// Returns the time from which there is a poll to send, or [`Polling::advance`] has something
    /// to do.
    pub(super) const fn due(&self) -> Instant {
        match self.step {
            Step::Idle if self.interval.is_zero() => Instant::NEVER,
            Step::Idle => self.next_at,
            Step::Due(_) => Instant::ZERO,
            Step::Collecting { until, .. } => until,
        }
    }

    /// Returns true when a poll is to be sent.
    pub(super) const fn is_due(&self) -> bool {
        matches!(self.step, Step::Due(_))
    }

    /// Makes the poll that is due, with random bits.
    fn poll(&mut self, path_nla: IpAddr) -> Option<Poll> {
        let Step::Due(kind) = self.step else {
            return None;
        };
        let mask = match kind {
            Kind::Abort => u32::MAX,
            Kind::Count | Kind::Range => (1 << self.bits) - 1,
        };
        Some(Poll {
            sqn: self.sqn,
            round: self.round,
            sub_type: Poll::GENERAL,
            path_nla,
            back_off_us: u32::try_from(back_off(kind).as_micros()).unwrap_or(u32::MAX),
            random: self.rng.next_u32(),
            mask,
        })
    }

    /// Notes that the poll has left.
    pub(super) fn sent(&mut self, now: Instant) {
        if let Step::Due(kind) = self.step {
            self.heard.clear();
            self.step = Step::Collecting {
                kind,
                since: now,
                until: now + back_off(kind) + REPLY_TIME_MAX,
            };
        }
    }

    /// Takes a receiver's reply to the present poll.
    pub(super) fn reply(
        &mut self,
        now: Instant,
        from: SocketAddr,
        polr: Polr,
    ) -> Result<(), DropReason> {
        let Step::Collecting { kind, since, .. } = self.step else {
            return Err(DropReason::Stale);
        };
        if (polr.sqn, polr.round) != (self.sqn, self.round) || kind == Kind::Abort {
            return Err(DropReason::Stale);
        }
        let Err(place) = self.heard.binary_search(&from) else {
            return Err(DropReason::Duplicate);
        };
        self.heard.insert(place, from);
        if kind == Kind::Range {
            self.farthest = self.farthest.max(Some(now.since(since)));
        }
        if self.heard.len() >= REPLIES_MAX {
            self.count(kind);
            self.sqn = self.sqn.next();
            self.round = 0;
            self.step = Step::Due(Kind::Abort);
        }
        Ok(())
    }

    /// Ends a round whose time is over: begins the next round, or ends the count.
    fn close_round(&mut self, kind: Kind) {
        let is_last = self.bits == 0 || self.heard.len() >= ENOUGH as usize;
        match kind {
            Kind::Count if !is_last => {
                self.bits = self.bits.saturating_sub(BITS_STEP);
                self.next_round(Kind::Count);
            }
            Kind::Count => {
                self.counted = NOBODY;
                self.count(kind);
                if self.heard.is_empty() {
                    self.finish();
                } else {
                    self.bits = bits_for(self.counted.receivers, RANGE_RECEIVERS);
                    self.next_round(Kind::Range);
                }
            }
            Kind::Range => {
                self.count(kind);
                self.finish();
            }
            Kind::Abort => self.finish(),
        }
    }

    fn next_round(&mut self, kind: Kind) {
        self.round = self.round.wrapping_add(1);
        self.step = Step::Due(kind);
    }

    /// Notes how many receivers the replies of this round stand for. A round that measures round
    /// trips changes the number only if the round asks every receiver, and if more receivers reply
    /// than were counted before. Otherwise lost replies or a smaller sample could make the number
    /// worse.
    fn count(&mut self, kind: Kind) {
        let is_complete = self.bits == 0 && self.heard.len() < REPLIES_MAX;
        let found = (self.heard.len() as u64) << self.bits;
        if kind == Kind::Count || is_complete && found > self.counted.receivers {
            self.counted.receivers = found;
            self.counted.is_complete = is_complete;
        }
    }

    fn finish(&mut self) {
        self.counted.farthest_round_trip = self.farthest;
        self.last = Some(self.counted);
        self.step = Step::Idle;
    }
}

impl Source {
    /// Begins to count receivers by polls, unless a count is going on. Within ten seconds,
    /// [`Source::census`] has the result. Receivers that cannot read polls (OpenPGM, ZeroMQ) are
    /// not counted.
    ///
    /// **Cost**: up to seven packets to the group, and usually at most a few hundred replies.
    /// **Spec**: RFC 3208 section 14.4.
    pub fn count_receivers(&mut self, now: Instant) {
        self.tell_time(now);
        self.polling.start(now);
    }

    /// Returns the result of the last count that has ended.
    #[must_use]
    pub const fn census(&self) -> Option<Census> {
        self.polling.last
    }

    /// Builds the poll that is due.
    pub(super) fn poll_packet_run(&mut self) -> Option<Run<'_>> {
        let poll = self.polling.poll(self.setup.nla)?;
        self.out.control.clear();
        let body = Body::Poll(poll);
        emit(&mut self.out.control, &self.addressing, &body, &[], &[]);
        self.out.ranges.clear();
        self.out.ranges.push(0..self.out.control.len());
        self.out.pending = Pending::Poll;
        Some(Run {
            path: self.setup.path,
            to: self.setup.group,
            hops: None,
            segment: self.out.control.len(),
            memory: &self.out.control,
            ranges: &self.out.ranges,
        })
    }
}

const fn back_off(kind: Kind) -> Duration {
    match kind {
        Kind::Count => BACK_OFF,
        Kind::Range | Kind::Abort => Duration::ZERO,
    }
}

/// Returns the `bits` with which at most about `wanted` of `receivers` reply, because one in 2^bits
/// does.
const fn bits_for(receivers: u64, wanted: u64) -> u32 {
    match (receivers / wanted).checked_ilog2() {
        Some(bits) if receivers > wanted => bits + 1,
        _ => 0,
    }
}

const NOBODY: Census = Census {
    receivers: 0,
    is_complete: false,
    farthest_round_trip: None,
};
/// Mixed into the seed, so that the random numbers of polls differ from the source's other ones.
const SALT: u64 = 0x504F_4C4C;
/// In the first round of a source's first count, one receiver in 2^16 replies. Judgement: even with
/// four million receivers, that brings only 64 replies.
const BITS_START: u32 = 16;
/// From one round to the next, `bits` falls by this, so sixteen times as many receivers are asked.
/// Judgement: the next round then brings about sixteen times the replies at most.
const BITS_STEP: u32 = 4;
/// Counting ends with the first round that brings this many replies. Judgement: with 32 replies,
/// the estimate is off by at most 18 % in two of three cases.
const ENOUGH: u64 = 32;
/// When round trips are measured, at most about this many receivers are asked to reply at once.
/// Judgement: 64 short packets at once are no burden for a source.
const RANGE_RECEIVERS: u64 = 64;
/// Maximum number of replies kept in a round. Judgement: a round follows one with fewer than 32
/// replies and asks 16 times as many receivers, so it should bring at most about 512; this is eight
/// times that.
const REPLIES_MAX: usize = 4096;
/// The time over which receivers spread their replies in a count. Judgement: even if 512 receivers
/// reply, there is only one reply every 400 us or so.
const BACK_OFF: Duration = Duration::from_millis(200);
/// How long a round lasts after the back-off. Judgement: longer than a round trip over a
/// geostationary satellite, which takes about 0.6 s.
const REPLY_TIME_MAX: Duration = Duration::from_secs(1);
