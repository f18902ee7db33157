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

/// A receiver that was admitted, until the end of the transfer.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) instance: u64,
    pub(super) peer: SocketAddr,
    pub(super) is_expected: bool,
    pub(super) link: Option<LinkId>,
    pub(super) gone_at: Instant,
    pub(super) state: State,
    pub(super) lists: Lists,
    pub(super) fills: Fills,
    pub(super) part: Part,
    /// It gets everything over its connection.
    pub(super) demoted: Option<Demotion>,
    /// A proof that came before the sender had read everything itself.
    pub(super) early: Option<Box<Done>>,
    /// When it was last heard.
    pub(super) heard_at: Instant,
    pub(super) joined_at: Instant,
    pub(super) done_at: Instant,
    /// What the packet stream had carried of content when it joined.
    pub(super) stream_at_join: u64,
    pub(super) told: Told,
    pub(super) stream: Standing,
}

/// What it said that it holds, and lacks.
#[derive(Debug)]
pub(super) struct Lists {
    /// What it held when it had the manifest.
    pub(super) have: RangeSet,
    pub(super) is_have_whole: bool,
    /// Its last answer, while it comes in and until it is served.
    pub(super) need: Needs,
    pub(super) is_need_whole: bool,
    /// Bytes it asked for the time before: a pass that brought little demotes it.
    pub(super) need_before: u64,
}

/// What goes over its own connection, and how far that is.
#[derive(Debug)]
pub(super) struct Fills {
    pub(super) needs: Needs,
    pub(super) at: Place,
    /// The message that follows the last of them.
    pub(super) after: Option<PassEnd>,
    /// It has all that it asked for, but the end of the pass must wait until everything is hashed.
    pub(super) waits_for_seals: bool,
    /// Bytes of content sent to it alone since it joined.
    pub(super) bytes: u64,
}

/// Its part in the pass in hand.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Part {
    /// It hears when the pass ends; the pass waits for its answer if it is expected.
    pub(super) is_awaited: bool,
    /// It has heard that a pass ended, and has not answered.
    pub(super) owes_answer: bool,
    /// The pass in hand holds something for it.
    pub(super) is_in_pass: bool,
}

/// How far it said it is, and when that last showed progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    pub(super) phase: Phase,
    pub(super) progress: Progressed,
    pub(super) progress_at: Instant,
    /// Since when its store has been at work, with no bytes to count.
    working_since: Option<Instant>,
}

/// Where it is in the packet stream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Standing {
    pub(super) pos: Pos,
    pub(super) round_trip: RoundTrip,
    /// The reason why the rate is, or was, limited to what it takes.
    pub(super) sets_rate: Option<RateCause>,
    /// When its place last moved; `None` before its first report.
    pub(super) moved_at: Option<Instant>,
    /// Since when it has held all others back.
    pub(super) slow_since: Option<Instant>,
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
            lists: Lists {
                have: RangeSet::new(ranges_max),
                is_have_whole: true,
                need: Needs::new(ranges_max),
                is_need_whole: true,
                need_before: u64::MAX,
            },
            fills: Fills {
                needs: Needs::new(ranges_max),
                at: Place::START,
                after: None,
                waits_for_seals: false,
                bytes: 0,
            },
            part: Part::default(),
            demoted: None,
            early: None,
            heard_at: now,
            joined_at: now,
            done_at: now,
            stream_at_join: 0,
            told: Told {
                phase: Phase::Joining,
                progress: Progressed::default(),
                progress_at: now,
                working_since: None,
            },
            stream: Standing::default(),
        }
    }

    /// The connection is gone: nothing that was asked or promised over it holds any more.
    pub(super) fn disconnect(&mut self, now: Instant) {
        self.link = None;
        self.gone_at = now;
        self.part = Part::default();
        self.fills.after = None;
        self.fills.needs.clear();
        self.fills.waits_for_seals = false;
        self.lists.need.clear();
        self.lists.is_need_whole = true;
        self.lists.is_have_whole = true;
        self.stream.slow_since = None;
    }

    pub(super) const fn is_alone(&self) -> bool {
        self.demoted.is_some()
    }

    /// From `began_at`, or its joining if that was later, to its proof.
    pub(super) fn took(&self, began_at: Instant) -> Option<Duration> {
        let is_done = matches!(self.state, State::Done(_));
        is_done.then(|| self.done_at.since(began_at.max(self.joined_at)))
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
        if self.stream.moved_at.is_none() || pos.contiguous != self.stream.pos.contiguous {
            self.stream.moved_at = Some(now);
        }
        self.stream.pos = *pos;
        let answer = self.stream.round_trip.report(now, pos);
        rate_report(
            pos,
            self.stream.round_trip.least().unwrap_or_default(),
            answer,
        )
    }

    /// The packet stream is for it, and goes no faster than it can take.
    pub(super) const fn is_followed(&self) -> bool {
        self.is_active() && self.part.is_in_pass && self.is_expected
    }

    /// Notes a report, and the time if it shows progress. A store at work shows no progress for a
    /// while, but its owner keeps reporting: that counts as progress for `work_max`.
    pub(super) fn note(&mut self, now: Instant, report: &Progress, work_max: Duration) {
        let is_working = matches!(report.phase, Phase::Committing | Phase::Preparing);
        let has_more = report.numbers.held > self.told.progress.held
            || report.numbers.verified > self.told.progress.verified;
        if report.phase != self.told.phase || !is_working {
            self.told.working_since = None;
        }
        let since = *self.told.working_since.get_or_insert(now);
        if has_more
            || report.phase != self.told.phase
            || (is_working && now.since(since) < work_max)
        {
            self.told.progress_at = now;
        }
        self.told.progress = report.numbers;
        self.told.phase = report.phase;
    }

    /// What limits it by its reports: the cause that was counted most.
    pub(super) fn limited_by(&self) -> Limit {
        let host = self.stream.pos.host_drops;
        // What the kernel dropped was missed as well.
        let network = self
            .told
            .progress
            .lost
            .max(self.stream.pos.lost)
            .saturating_sub(host);
        let is_storing = matches!(self.told.phase, Phase::Preparing | Phase::Committing);
        let disk = self.told.progress.store_waits;
        let most = host.max(network).max(disk);
        match () {
            () if is_storing && !self.is_final() => Limit::Disk,
            () if most == 0 => match self.stream.sets_rate {
                Some(RateCause::Network) => Limit::Network,
                Some(RateCause::Host) => Limit::Host,
                None => Limit::Rate,
            },
            () if most == disk => Limit::Disk,
            () if most == host => Limit::Host,
            () => Limit::Network,
        }
    }

    /// Its part of the report of a transfer that began at `began_at`.
    pub(super) fn report(
        &self,
        slot: usize,
        stream_bytes: u64,
        began_at: Instant,
    ) -> ReceiverReport {
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
                phase: self.told.phase,
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
            held_at_join: self.lists.have.bytes(),
            sent_since_join: stream_bytes - self.stream_at_join + self.fills.bytes,
            took: self.took(began_at),
            state,
            progress: self.told.progress,
            pos: self.stream.pos,
        }
    }
}
