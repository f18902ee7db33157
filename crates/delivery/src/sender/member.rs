//! One receiver, as the sender sees it.

use std::{net::SocketAddr, time::Duration};

use base::{Instant, LinkId};
use wire::object::{Done, ErrorCode, PassEnd, Phase, Pos, Progress, Progressed};

use super::{
    config::{Demotion, Limit, ReceiverReport, ReceiverState},
    pass::{Needs, Place},
};
use crate::{
    RangeSet, RateCause, RateReport,
    feedback::{RoundTrip, rate_report},
};

/// A receiver that was taken in, until the end of the transfer.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) instance: u64,
    pub(super) peer: SocketAddr,
    pub(super) is_expected: bool,
    pub(super) link: Option<LinkId>,
    pub(super) gone_at: Instant,
    pub(super) state: State,
    /// What it held when it had the manifest.
    pub(super) have: RangeSet,
    pub(super) is_have_whole: bool,
    /// Its last answer, while it comes in and until it is served.
    pub(super) need: Needs,
    pub(super) is_need_whole: bool,
    /// Bytes it asked for the time before: a pass that brought little demotes it.
    pub(super) need_before: u64,
    /// What goes over its own connection, and how far that is.
    pub(super) fills: Needs,
    pub(super) fill_at: Place,
    pub(super) after_fills: Option<PassEnd>,
    /// It is told when the pass ends; the pass waits for its answer if it is expected.
    pub(super) is_awaited: bool,
    /// It has been told that a pass ended and has not answered.
    pub(super) owes_answer: bool,
    /// The pass in hand holds something for it.
    pub(super) is_in_pass: bool,
    /// It gets everything over its connection.
    pub(super) demoted: Option<Demotion>,
    /// It has all it asked for, but the end of the pass cannot be told before all is hashed.
    pub(super) waits_for_seals: bool,
    /// A proof that came before the sender had read everything itself.
    pub(super) early: Option<Box<Done>>,
    /// When it was last heard.
    pub(super) heard_at: Instant,
    pub(super) done_at: Instant,
    /// Since when it has held all others back.
    pub(super) slow_since: Option<Instant>,
    /// What the packet stream had carried of content when it joined.
    pub(super) stream_at_join: u64,
    /// Bytes of content sent to it alone since.
    pub(super) fill_bytes: u64,
    pub(super) phase: Phase,
    pub(super) progress: Progressed,
    pub(super) pos: Pos,
    pub(super) round_trip: RoundTrip,
    /// Why the rate is, or was, what it takes.
    pub(super) sets_rate: Option<RateCause>,
    pub(super) progress_at: Instant,
    /// Since when its store has been at work, with no bytes to count.
    pub(super) working_since: Option<Instant>,
    /// When its place in the packet stream last moved; `None` before its first report.
    pub(super) moved_at: Option<Instant>,
}

/// How far a member is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum State {
    /// It does not hold the manifest, or has no room prepared.
    Joining,
    /// It takes content.
    Ready,
    /// It has all content.
    Complete,
    /// It has proved delivery.
    Done(Box<Done>),
    /// It is out.
    Failed { code: ErrorCode, text: String },
}

impl Member {
    pub(super) fn new(
        now: Instant,
        name: &str,
        instance: u64,
        peer: SocketAddr,
        ranges_max: usize,
    ) -> Self {
        Self {
            name: name.to_owned(),
            instance,
            peer,
            is_expected: false,
            link: None,
            gone_at: now,
            state: State::Joining,
            have: RangeSet::new(ranges_max),
            is_have_whole: true,
            need: Needs::new(ranges_max),
            is_need_whole: true,
            need_before: u64::MAX,
            fills: Needs::new(ranges_max),
            fill_at: Place::START,
            after_fills: None,
            is_awaited: false,
            owes_answer: false,
            is_in_pass: false,
            demoted: None,
            waits_for_seals: false,
            early: None,
            heard_at: now,
            done_at: now,
            slow_since: None,
            stream_at_join: 0,
            fill_bytes: 0,
            phase: Phase::Joining,
            progress: Progressed::default(),
            pos: Pos::default(),
            round_trip: RoundTrip::default(),
            sets_rate: None,
            progress_at: now,
            working_since: None,
            moved_at: None,
        }
    }

    /// The connection is gone: nothing that was asked or promised over it holds any more.
    pub(super) fn disconnect(&mut self, now: Instant) {
        self.link = None;
        self.gone_at = now;
        self.is_awaited = false;
        self.owes_answer = false;
        self.is_in_pass = false;
        self.after_fills = None;
        self.fills.clear();
        self.need.clear();
        self.is_need_whole = true;
        self.is_have_whole = true;
        self.waits_for_seals = false;
        self.slow_since = None;
    }

    pub(super) const fn is_alone(&self) -> bool {
        self.demoted.is_some()
    }

    /// Nothing about it will change any more.
    pub(super) const fn is_final(&self) -> bool {
        matches!(self.state, State::Done(_) | State::Failed { .. })
    }

    pub(super) const fn is_active(&self) -> bool {
        self.link.is_some() && !self.is_final()
    }

    /// It takes content and can be talked to.
    pub(super) const fn is_ready(&self) -> bool {
        self.link.is_some() && matches!(self.state, State::Ready)
    }

    /// Notes its place in the packet stream; what the report says of the rate.
    pub(super) fn place(&mut self, now: Instant, pos: &Pos) -> RateReport {
        if self.moved_at.is_none() || pos.contiguous != self.pos.contiguous {
            self.moved_at = Some(now);
        }
        self.pos = *pos;
        let answer = self.round_trip.report(now, pos);
        rate_report(pos, self.round_trip.least().unwrap_or_default(), answer)
    }

    /// The packet stream is for it, and goes no faster than it can take.
    pub(super) const fn is_followed(&self) -> bool {
        self.is_active() && self.is_in_pass && self.is_expected
    }

    /// Notes a report, and the time if it shows progress. A store at work shows none for a while,
    /// and its owner reports nevertheless: that counts as progress for `work_max`.
    pub(super) fn note(&mut self, now: Instant, report: &Progress, work_max: Duration) {
        let is_working = matches!(report.phase, Phase::Committing | Phase::Preparing);
        let has_more = report.numbers.held > self.progress.held
            || report.numbers.verified > self.progress.verified;
        if report.phase != self.phase || !is_working {
            self.working_since = None;
        }
        let since = *self.working_since.get_or_insert(now);
        if has_more || report.phase != self.phase || (is_working && now.since(since) < work_max) {
            self.progress_at = now;
        }
        self.progress = report.numbers;
        self.phase = report.phase;
    }

    /// What its reports show to be in short supply: of what was counted, the most.
    pub(super) fn limited_by(&self) -> Limit {
        let host = self.pos.host_drops;
        // What the kernel dropped was missed as well.
        let network = self.progress.lost.max(self.pos.lost).saturating_sub(host);
        let is_storing = matches!(self.phase, Phase::Preparing | Phase::Committing);
        let disk = self.progress.store_waits;
        let most = host.max(network).max(disk);
        match () {
            () if is_storing && !self.is_final() => Limit::Disk,
            () if most == 0 => match self.sets_rate {
                Some(RateCause::Network) => Limit::Network,
                Some(RateCause::Host) => Limit::Host,
                None => Limit::Rate,
            },
            () if most == disk => Limit::Disk,
            () if most == host => Limit::Host,
            () => Limit::Network,
        }
    }

    pub(super) fn report(&self, slot: usize, stream_bytes: u64) -> ReceiverReport {
        let state = match &self.state {
            State::Done(done) => ReceiverState::Done {
                root: done.root,
                numbers: done.numbers,
            },
            State::Failed { code, text } => ReceiverState::Failed {
                code: *code,
                text: text.clone(),
            },
            State::Joining | State::Ready | State::Complete => ReceiverState::Active {
                phase: self.phase,
                is_connected: self.link.is_some(),
            },
        };
        ReceiverReport {
            slot: u32::try_from(slot).unwrap_or(u32::MAX),
            name: self.name.clone(),
            peer: self.peer,
            is_expected: self.is_expected,
            demoted: self.demoted,
            limited_by: self.limited_by(),
            held_at_join: self.have.bytes(),
            sent_since_join: stream_bytes - self.stream_at_join + self.fill_bytes,
            state,
            progress: self.progress,
            pos: self.pos,
        }
    }
}
