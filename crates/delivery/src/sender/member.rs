//! What the sender knows about one receiver.

use std::{net::SocketAddr, time::Duration};

use base::{Instant, LinkId};
use wire::object::{Done, ErrorCode, NONCE_LEN, PassEnd, Phase, Pos, Progress, Progressed};

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
    /// The random bytes that must go into the receiver's proof. They were drawn for the receiver's
    /// present connection or, without one, for its last.
    pub(super) nonce: [u8; NONCE_LEN],
    pub(super) peer: SocketAddr,
    pub(super) is_expected: bool,
    pub(super) link: Option<LinkId>,
    pub(super) gone_at: Instant,
    pub(super) state: State,
    pub(super) lists: Lists,
    pub(super) fills: Fills,
    pub(super) part: Part,
    pub(super) way: Way,
    /// A proof that came on the present connection before the sender itself had read all content.
    pub(super) early: Option<Box<Done>>,
    /// When the receiver was last heard.
    pub(super) heard_at: Instant,
    pub(super) joined_at: Instant,
    pub(super) done_at: Instant,
    /// Bytes of content that the packet stream had carried when the receiver last said what it
    /// holds.
    pub(super) stream_at_join: u64,
    pub(super) told: Told,
    pub(super) stream: Standing,
}

/// The way by which content goes to the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The packet stream. Only content that few receivers lack goes over their connections.
    Packets,
    /// The receiver's connection alone, because the receiver was demoted for this reason.
    Demoted(Demotion),
    /// The receiver's connection alone, because the transfer has no packet stream.
    Connection,
}

/// What the receiver holds and lacks, as it last said.
#[derive(Debug)]
pub(super) struct Lists {
    /// Content that the receiver held when it last said what it holds. It says so once it has the
    /// manifest, and on each new connection.
    pub(super) have: RangeSet,
    pub(super) is_have_whole: bool,
    /// What the receiver lacks, according to its last answer. The list grows while the answer
    /// arrives, and is emptied once the answer is served.
    pub(super) need: Needs,
    pub(super) is_need_whole: bool,
    /// Bytes that the receiver lacked before the current pass. If the pass brings too few of them,
    /// the receiver is demoted.
    pub(super) need_before: u64,
}

/// The blocks to send over the receiver's connection, and how far they have been sent.
#[derive(Debug)]
pub(super) struct Fills {
    pub(super) needs: Needs,
    pub(super) at: Place,
    /// The message that follows the last block.
    pub(super) after: Option<PassEnd>,
    /// All blocks are sent, but the message `after` must wait until the sender has hashed all
    /// content.
    pub(super) waits_for_seals: bool,
    /// Bytes of content sent to this receiver alone since it last said what it holds.
    pub(super) bytes: u64,
}

/// The receiver's part in the current pass.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Part {
    /// The receiver is told when the pass ends. The pass waits for an expected receiver's answer.
    pub(super) is_awaited: bool,
    /// The receiver was told that a pass ended, and has not answered.
    pub(super) owes_answer: bool,
    /// The current pass has something for the receiver.
    pub(super) is_in_pass: bool,
}

/// The progress that the receiver last reported, and when it last made progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    pub(super) phase: Phase,
    pub(super) progress: Progressed,
    /// While the receiver joins: how many bytes of the manifest it holds. Else 0.
    manifest_held: u64,
    pub(super) progress_at: Instant,
    /// While the store prepares or commits: time of the first report of that phase. Otherwise: time
    /// of the last report. `None` before the first report.
    working_since: Option<Instant>,
}

/// The receiver's position in the packet stream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Standing {
    pub(super) pos: Pos,
    pub(super) round_trip: RoundTrip,
    /// Why this receiver sets the rate, or last did.
    pub(super) sets_rate: Option<RateCause>,
    /// When the position last moved; `None` before the first report.
    pub(super) moved_at: Option<Instant>,
    /// When all other receivers began to wait for this one; `None` while they do not wait.
    pub(super) slow_since: Option<Instant>,
}

/// How far a receiver has come.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum State {
    /// The receiver lacks the manifest, or has not yet made room for the content.
    Joining,
    /// The receiver takes content.
    Ready,
    /// The receiver has all content.
    Complete,
    /// The receiver has proved delivery.
    Done(Box<Done>),
    /// The receiver has failed, or was given up.
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
            nonce: [0; NONCE_LEN],
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
            way: Way::Packets,
            early: None,
            heard_at: now,
            joined_at: now,
            done_at: now,
            stream_at_join: 0,
            told: Told {
                phase: Phase::Joining,
                progress: Progressed::default(),
                manifest_held: 0,
                progress_at: now,
                working_since: None,
            },
            stream: Standing::default(),
        }
    }

    /// Forgets the connection, with all requests and promises that were made over it.
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
        !matches!(self.way, Way::Packets)
    }

    /// Returns the time from `began_at`, or from the receiver's joining if that was later, to the
    /// receiver's proof; `None` without a proof.
    pub(super) fn took(&self, began_at: Instant) -> Option<Duration> {
        let is_done = matches!(self.state, State::Done(_));
        is_done.then(|| self.done_at.since(began_at.max(self.joined_at)))
    }

    /// Returns true when the receiver's part is over: it is done, or has failed.
    pub(super) const fn is_final(&self) -> bool {
        matches!(self.state, State::Done(_) | State::Failed { .. })
    }

    pub(super) const fn is_active(&self) -> bool {
        self.link.is_some() && !self.is_final()
    }

    /// Returns true when the receiver takes content and is connected.
    pub(super) const fn is_ready(&self) -> bool {
        self.link.is_some() && matches!(self.state, State::Ready)
    }

    /// Notes the position that the receiver reports. Returns what that report says about the rate.
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

    /// Returns true when the packet stream waits for the receiver: when the receiver is expected,
    /// connected and not final, and the current pass has something for it.
    pub(super) const fn is_followed(&self) -> bool {
        self.is_active() && self.part.is_in_pass && self.is_expected
    }

    /// Notes a report, and the report's time if the report shows progress. A store that prepares or
    /// commits makes no visible progress; for up to `work_max`, its reports still count as
    /// progress.
    pub(super) fn note(&mut self, now: Instant, report: &Progress, work_max: Duration) {
        let is_working = matches!(report.phase, Phase::Committing | Phase::Preparing);
        let before = self.told.progress.held.max(self.told.manifest_held);
        let has_more =
            report.numbers.held > before || report.numbers.verified > self.told.progress.verified;
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
        self.told.manifest_held = 0;
        if report.phase == Phase::Joining {
            // The manifest's bytes are not content, so the user's reports must not count them.
            self.told.manifest_held = std::mem::take(&mut self.told.progress.held);
        }
    }

    /// Returns what limits the receiver. While its store prepares or commits, the limit is the
    /// disk. Otherwise the limit is the cause with the highest count in the receiver's reports. If
    /// all counts are 0, the limit is the reason why the receiver last set the sender's rate, or
    /// [`Limit::Rate`] if it never did.
    pub(super) fn limited_by(&self) -> Limit {
        let host = self.stream.pos.host_drops;
        // The lost packets include those that the kernel dropped, so subtract these.
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

    /// Returns the report on this receiver, for a transfer that began at `began_at`.
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
            demoted: match self.way {
                Way::Demoted(reason) => Some(reason),
                Way::Packets | Way::Connection => None,
            },
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
