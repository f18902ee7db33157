//! The receiver's side of reports on message sessions: it calls senders that ask for reports, and
//! reports this receiver's position.
//!
//! A reporter does not receive packets: its owner tells it which marks were heard, and how far each
//! session has come. It calls only the unicast address from which a mark came.
//!
//! ```text
//!   mark --> call ... HELLO --> WELCOME --> POS, POS, ... --session over--> POS, BYE
//!     |                 '--session over--> parting --WELCOME--> POS, BYE
//!     refused or dropped: silent until the session is over
//! ```
//!
//! A sender that has never admitted this receiver is dialled within limits (see `control::dials`),
//! because any host can announce sessions.
//!
//! Invariants: there is one call for each session. A change is reported within one report
//! interval. Without a change, a report goes once a second, or once in the report interval if that
//! is longer. With a key, nothing is reported to a sender that does not show the key.
//!
//! **Spec**: `docs/src/protocol.md` sections 2 and 5, section 7 (when POS goes), section 9 (ASK,
//! WINDOW).

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    ops::Bound,
    time::Duration,
};

use base::{Contract, Instant, LinkEvent, LinkId, earliest};
use wire::{
    object::{Decoder, Message, Pos, Refusal, Welcome},
    pgm::{Mark, Profile},
};

use crate::parameters::{
    ANSWER_PATIENCE, ASK_PATIENCE, CALLS_MAX, GREETING_TIMEOUT, REPORT_INTERVAL_MIN, REPORT_SHARE,
    REPORTS_QUEUED_MAX,
};
use crate::{
    LinkCommand, StreamState,
    control::{Answer, Call, Caller, Dials, Identity, Links, NameTaken, Seat, Talks, seat},
    events::Events,
    feedback::{Feedback, Habit},
};

mod config;
pub use config::{ReporterConfig, ReporterCounters, ReporterEvent};

/// The reports on all sessions that a receiver follows.
#[derive(Debug)]
pub struct Reporter {
    caller: Caller,
    dials: Dials,
    /// The sessions, by the number that the owner gave each. That number is also the `key` with
    /// which the session's connection is requested.
    sessions: BTreeMap<u32, Session>,
    profile: Profile,
    sessions_max: usize,
    by_link: BTreeMap<LinkId, u32>,
    /// Sessions that ended before their senders had answered the greeting.
    parting: BTreeMap<LinkId, Parting>,
    events: Events<ReporterEvent>,
    counters: ReporterCounters,
    is_leaving: bool,
    contract: Contract,
}

/// One sender that asks for reports.
#[derive(Debug)]
struct Session {
    call: Call,
    standing: Standing,
    feedback: Feedback,
    asking: Asking,
    /// The name that the sender has told; `None` before.
    name: Option<String>,
}

/// The questions to a sender about how far its packet stream is.
#[derive(Clone, Copy, Debug, Default)]
struct Asking {
    /// Time at which the open question was sent; `None` when no question is open.
    open_since: Option<Instant>,
    /// The time before which the next question must not be sent.
    free_at: Instant,
    /// True when the owner wanted to ask before `free_at`, and so may want to ask at `free_at`.
    is_wanted: bool,
    /// A question was not answered in time. The sender is not asked again until an answer comes
    /// after all, or until the sender admits this receiver anew.
    is_mute: bool,
    interval: Duration,
}

/// What the sender's answers have shown so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// The sender has not admitted this receiver yet.
    New,
    /// The sender has not admitted this receiver yet. An answer came that did not show the key, and
    /// the owner was told.
    Doubted,
    /// The sender has admitted this receiver.
    Known,
}

/// The last messages to a sender whose session has ended at this end. The sender may wait for this
/// receiver's final position: with a good-bye alone, the receiver would count as having nothing.
#[derive(Debug)]
struct Parting {
    call: Call,
    feedback: Feedback,
    until: Instant,
}

impl Reporter {
    /// Makes a reporter without sessions.
    #[must_use]
    pub fn new(config: ReporterConfig) -> Self {
        let identity = Identity {
            name: config.name,
            instance: config.instance,
            seed: config.seed,
            key: config.key,
        };
        Self {
            caller: Caller::new(identity),
            dials: Dials::new(),
            sessions: BTreeMap::new(),
            profile: config.profile,
            sessions_max: config.sessions_max,
            by_link: BTreeMap::new(),
            parting: BTreeMap::new(),
            events: Events::default(),
            counters: ReporterCounters::default(),
            is_leaving: false,
            contract: Contract::default(),
        }
    }

    /// Returns the name that the sender of a session has told; `None` before it has told one.
    #[must_use]
    pub fn sender_name(&self, session: u32) -> Option<&str> {
        self.sessions.get(&session)?.name.as_deref()
    }

    /// Takes a mark that was heard on `session`. `source` is the source address of the SPM that
    /// carried the mark, and also the path NLA in that SPM.
    pub fn mark(&mut self, now: Instant, session: u32, source: IpAddr, mark: &Mark) {
        if let Some(known) = self.sessions.get_mut(&session) {
            if known.call.session_id == mark.session_id {
                known.call.heard_again(now);
                known.feedback.mark(now, mark);
                return;
            }
            // The connected sender has only one session, so a mark with another session ID is from
            // another host.
            if known.call.link().is_some() {
                self.counters.marks_refused += 1;
                return;
            }
            self.session_over(now, session);
        }
        if self.is_leaving || !self.is_wanted(source, mark) {
            return;
        }
        let to = (SocketAddr::new(source, mark.control_port), mark.session_id);
        let call = self.caller.call(now, to, session, mark.receiver_count);
        let mut feedback = Feedback::new(now, Habit::Messages);
        feedback.mark(now, mark);
        let fresh = Session {
            call,
            standing: Standing::New,
            feedback,
            asking: Asking::default(),
            name: None,
        };
        self.sessions.insert(session, fresh);
    }

    /// Takes the state of the packet stream of `session`. This is cheap; call it once a turn.
    pub fn observe(&mut self, now: Instant, session: u32, stream: &StreamState) {
        self.contract.tell_time(now);
        if let Some(known) = self.sessions.get_mut(&session) {
            known.feedback.observe(now, stream, false);
            if known.feedback.due().is_some_and(|due| due <= now) {
                self.check_report(now, session);
            }
        }
    }

    /// Asks the sender of `session` how far its packet stream is; [`ReporterEvent::Window`] brings
    /// the answer. Call it in each turn until then: at most one question is open at a time, and
    /// there is a pause between two. Returns false when the sender cannot be asked or does not
    /// answer.
    pub fn ask(&mut self, now: Instant, session: u32) -> bool {
        let Some(known) = self.sessions.get_mut(&session) else {
            return false;
        };
        let (Some(link), asking) = (known.call.link(), &mut known.asking) else {
            return false;
        };
        asking.is_wanted = false;
        if asking.is_mute {
            return false;
        }
        if let Some(since) = asking.open_since {
            if now.since(since) < ASK_PATIENCE {
                return true;
            }
            asking.open_since = None;
            asking.is_mute = true;
            return false;
        }
        if now < asking.free_at {
            asking.is_wanted = true;
            return true;
        }
        (asking.open_since, asking.free_at) = (Some(now), now + asking.interval);
        self.counters.questions += 1;
        self.caller.links.queue(link, &Message::Ask)
    }

    /// Ends the reports on a session that ended, expired or was reset: sends a last report and a
    /// good-bye. When the sender has not answered the greeting yet, both go after its answer; where
    /// too many sessions wait for that, only the good-bye goes, at once.
    pub fn session_over(&mut self, now: Instant, session: u32) {
        let Some(mut known) = self.sessions.remove(&session) else {
            return;
        };
        if let (Some(link), Some(pos)) = (known.call.link(), known.feedback.report(now)) {
            self.report(link, pos);
        }
        let greeted = known.call.greeted_link();
        if let Some(link) = greeted.filter(|_| self.parting.len() < self.sessions_max) {
            self.by_link.remove(&link);
            let parting = Parting {
                call: known.call,
                feedback: known.feedback,
                until: now + GREETING_TIMEOUT,
            };
            self.parting.insert(link, parting);
            return;
        }
        self.counters.parted_unreported += u64::from(greeted.is_some());
        if let Some(link) = known.call.any_link() {
            self.by_link.remove(&link);
            self.caller.links.close_with(link, &Message::Bye);
        }
        self.caller.hang_up(&mut known.call);
    }

    /// Leaves all sessions. [`Reporter::is_idle`] says when the good-byes have left.
    pub fn leave(&mut self, now: Instant) {
        self.is_leaving = true;
        while let Some((&session, _)) = self.sessions.first_key_value() {
            self.session_over(now, session);
        }
    }

    /// Handles what happened on a control connection; `data` holds the bytes of
    /// [`LinkEvent::Data`].
    pub fn handle_link(&mut self, now: Instant, link: LinkId, event: LinkEvent, data: &[u8]) {
        self.contract.tell_time(now);
        match event {
            LinkEvent::Opened => {
                let session = self.by_link.get(&link);
                if let Some(known) = session.and_then(|session| self.sessions.get_mut(session)) {
                    self.caller.hello(now, &mut known.call, link);
                }
            }
            LinkEvent::Data => self.read(now, link, data),
            LinkEvent::Writable => self.caller.links.writable(link),
            LinkEvent::Closed => {
                self.caller.links.forget(link);
                self.lost(now, link);
            }
            LinkEvent::Accepted { .. } => {
                self.caller.link_opened(None, link);
            }
        }
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.contract.tell_time(now);
        let links = &mut self.caller.links;
        self.parting.retain(|&link, parting| {
            let is_due = parting.until <= now;
            if is_due {
                links.abort(link);
            }
            !is_due
        });
        // This looks each session up by its key, because the body changes the map.
        let mut after = Bound::Unbounded;
        while let Some((&session, known)) =
            self.sessions.range_mut((after, Bound::Unbounded)).next()
        {
            after = Bound::Excluded(session);
            let patience_ends = known
                .call
                .asked_since()
                .map(|since| since + ANSWER_PATIENCE);
            if known.call.due().is_some_and(|due| due <= now) {
                self.dial(now, session);
            } else if patience_ends.is_some_and(|end| end <= now) {
                self.give_up_asking(now, session);
            } else if known.feedback.due().is_some_and(|due| due <= now) {
                self.check_report(now, session);
            }
        }
    }

    /// Returns the next thing to do on a control connection.
    pub fn poll_link(&mut self) -> Option<LinkCommand<'_>> {
        self.caller.links.poll()
    }

    /// Notes that the back end took `taken` bytes of the last [`LinkCommand::Send`].
    pub fn link_sent(&mut self, link: LinkId, taken: usize) {
        self.caller.links.sent(link, taken);
    }

    /// Notes the number that the back end gave to the connection that was opened with `key`.
    pub fn link_opened(&mut self, key: u32, link: LinkId) {
        self.caller.links.opened();
        let call = self.sessions.get_mut(&key).map(|known| &mut known.call);
        if self.caller.link_opened(call, link) {
            self.by_link.insert(link, key);
        }
    }

    /// Returns the next event.
    pub fn pop_event(&mut self) -> Option<ReporterEvent> {
        self.events.pop()
    }

    /// Says when [`Reporter::handle_timeout`] is due.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        let all = self.sessions.values();
        let due = all.filter_map(|known| {
            let asked = known.call.asked_since();
            let patience_ends = asked.map(|since| since + ANSWER_PATIENCE);
            let call = known.call.due().or(patience_ends);
            let call = call.or_else(|| known.feedback.due());
            earliest(call, known.asking.due())
        });
        let parting = self.parting.values().map(|parting| parting.until);
        due.chain(parting).min()
    }

    /// Returns true while there is a connection on which the sender of `session` has admitted this
    /// receiver.
    #[must_use]
    pub fn is_reporting(&self, session: u32) -> bool {
        let known = self.sessions.get(&session);
        known.is_some_and(|known| known.call.link().is_some())
    }

    /// Returns true when nothing is left to be sent on any connection.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.parting.is_empty() && self.caller.links.is_idle()
    }

    /// Returns the counters.
    #[must_use]
    pub const fn counters(&self) -> &ReporterCounters {
        &self.counters
    }

    /// Asks for a connection. When the sender has never admitted this receiver, and the limits on
    /// such dials are reached, puts the dial off.
    fn dial(&mut self, now: Instant, session: u32) {
        let Some(known) = self.sessions.get(&session) else {
            return;
        };
        let (host, is_first) = (known.call.peer.ip(), known.call.is_first());
        let may_dial = known.call.is_known() || self.may_ask(now, host, is_first);
        let Some(known) = self.sessions.get_mut(&session) else {
            return;
        };
        if !may_dial {
            self.counters.dials_put_off += 1;
            self.caller.put_off(now, &mut known.call);
        } else if self.caller.dial(now, &mut known.call) {
            self.counters.dialled += 1;
        }
    }

    /// Counts a dial to `host`, the host of a sender that has never admitted this receiver. Returns
    /// false when the limits do not allow the dial.
    fn may_ask(&mut self, now: Instant, host: IpAddr, is_first: bool) -> bool {
        let asked = self.sessions.iter().filter_map(|(&session, known)| {
            let since = known.call.asked_since()?;
            Some((session, known.call.peer.ip(), since))
        });
        let seat = seat(now, host, CALLS_MAX as usize, asked, &mut self.caller.rng);
        let rng = &mut self.caller.rng;
        if seat == Seat::None || !self.dials.take(now, host, is_first, rng) {
            return false;
        }
        if let Seat::InsteadOf(session) = seat {
            self.give_up_asking(now, session);
        }
        true
    }

    /// Breaks off a connection on which the sender has not answered. The sender is dialled again
    /// later.
    fn give_up_asking(&mut self, now: Instant, session: u32) {
        let known = self.sessions.get_mut(&session);
        if let Some(link) = known.and_then(|known| known.call.any_link()) {
            self.counters.unanswered += 1;
            self.caller.links.abort(link);
            self.lost(now, link);
        }
    }

    fn is_wanted(&mut self, source: IpAddr, mark: &Mark) -> bool {
        if mark.profile != self.profile
            || mark.control_port == 0
            || mark.check(self.caller.features()).is_err()
        {
            return false;
        }
        if self.sessions.len() >= self.sessions_max || !is_unicast(source) {
            self.counters.marks_refused += 1;
            return false;
        }
        true
    }

    fn message(&mut self, link: LinkId, session: u32, message: &Message<'_>) {
        match message {
            Message::Error { code, text } => {
                let (code, text) = (*code, (*text).to_owned());
                let event = ReporterEvent::Dropped {
                    session,
                    code,
                    text,
                };
                self.silence(link, session, event);
            }
            Message::Window(window) => {
                if let Some(known) = self.sessions.get_mut(&session) {
                    known.asking.open_since = None;
                    known.asking.is_mute = false;
                }
                let window = *window;
                self.event(ReporterEvent::Window { session, window });
            }
            Message::Name { name } => self.named(session, name),
            Message::Bye if self.is_reporting(session) => {
                self.silence(link, session, ReporterEvent::Closed { session });
            }
            // The sender has not admitted this receiver, so the owner need not hear of the sender's
            // good-bye.
            Message::Bye => {
                self.by_link.remove(&link);
                if let Some(known) = self.sessions.get_mut(&session) {
                    self.caller.hang_up(&mut known.call);
                }
            }
            _ => self.counters.messages_ignored += 1,
        }
    }

    /// Notes the name that a sender tells. Only the first name in a session counts.
    fn named(&mut self, session: u32, name: &str) {
        let known = self.sessions.get_mut(&session);
        if let Some(known) = known.filter(|known| known.name.is_none()) {
            let name = name.to_owned();
            known.name = Some(name.clone());
            self.event(ReporterEvent::Named { session, name });
        }
    }

    fn welcomed(&mut self, now: Instant, session: u32, welcome: &Welcome) {
        if let Some(known) = self.sessions.get_mut(&session) {
            known.standing = Standing::Known;
            known.feedback.welcomed(welcome);
            let share = REPORT_SHARE * welcome.receiver_count;
            known.asking = Asking {
                interval: share.max(REPORT_INTERVAL_MIN),
                ..Asking::default()
            };
            let slot = welcome.slot;
            self.event(ReporterEvent::Joined { session, slot });
            self.check_report(now, session);
        }
    }

    fn refused(&mut self, now: Instant, link: LinkId, session: u32, refusal: (Refusal, &str)) {
        let (reason, text) = refusal;
        if reason == Refusal::DuplicateName {
            let known = self.sessions.get_mut(&session);
            let taken = known.map_or(NameTaken::ForGood, |known| known.call.name_taken(now));
            if taken == NameTaken::First {
                self.event(ReporterEvent::NameTaken { session });
            }
            if taken != NameTaken::ForGood {
                self.caller.links.close(link);
                return self.lost(now, link);
            }
        }
        let event = ReporterEvent::Refused {
            session,
            reason,
            text: text.to_owned(),
            is_proven: true,
        };
        self.silence(link, session, event);
    }

    /// Handles an answer that did not show the key. The sender itself has shown the key, in its
    /// SPMs or on an earlier connection, so the answer came from another host in between. The
    /// sender is dialled again. The owner is told of the first such answer only, and of none once
    /// the sender has admitted this receiver.
    fn unproven(&mut self, now: Instant, link: LinkId, session: u32, reason: Refusal, text: &str) {
        self.counters.not_believed += 1;
        let known = self.sessions.get_mut(&session);
        if let Some(known) = known.filter(|known| known.standing == Standing::New) {
            known.standing = Standing::Doubted;
            let text = text.to_owned();
            self.event(ReporterEvent::Refused {
                session,
                reason,
                text,
                is_proven: false,
            });
        }
        self.caller.links.close(link);
        self.lost(now, link);
    }

    /// Leaves alone a sender that is done with this receiver: the sender is not dialled again in
    /// this session.
    fn silence(&mut self, link: LinkId, session: u32, event: ReporterEvent) {
        self.by_link.remove(&link);
        if let Some(known) = self.sessions.get_mut(&session) {
            self.caller.hang_up(&mut known.call);
            known.feedback.disconnected();
        }
        self.event(event);
    }

    fn violation(&mut self, now: Instant, link: LinkId) {
        self.counters.violations += 1;
        self.caller.links.abort(link);
        self.lost(now, link);
    }

    /// Handles a connection that ended without a good-bye: dials again after a while.
    fn lost(&mut self, now: Instant, link: LinkId) {
        self.parting.remove(&link);
        let session = self.by_link.remove(&link);
        if let Some(known) = session.and_then(|session| self.sessions.get_mut(&session)) {
            self.counters.connections_lost += u64::from(self.caller.redial(now, &mut known.call));
            known.feedback.disconnected();
        }
    }

    /// Sends a report if one is due. When there are many receivers, each waits for a random time.
    fn check_report(&mut self, now: Instant, session: u32) {
        let Some(known) = self.sessions.get_mut(&session) else {
            return;
        };
        if let Some(pos) = known.feedback.poll(now, &mut self.caller.rng)
            && let Some(link) = known.call.link()
        {
            self.report(link, pos);
        }
    }

    /// Sends a report, or skips it while more than [`REPORTS_QUEUED_MAX`] bytes wait to be sent. A
    /// later report tells the position.
    fn report(&mut self, link: LinkId, pos: Pos) {
        let queued = self.caller.links.queued(link);
        if queued.is_some_and(|queued| queued > REPORTS_QUEUED_MAX) {
            self.counters.reports_skipped += 1;
        } else if self.caller.links.queue(link, &Message::Pos(pos)) {
            self.counters.reports += 1;
        }
    }

    /// Handles the answer of a sender whose session has ended at this end. Returns false when there
    /// is nothing to handle.
    fn part(&mut self, now: Instant, link: LinkId, decoder: &mut Decoder) -> bool {
        let Some(mut parting) = self.parting.remove(&link) else {
            return false;
        };
        let is_answered = match self.caller.next(&mut parting.call, link, decoder) {
            answer @ (Answer::Nothing | Answer::Handshake) => {
                self.parting.insert(link, parting);
                return matches!(answer, Answer::Handshake);
            }
            Answer::Welcomed(welcome) | Answer::Replaced(welcome) => {
                parting.feedback.welcomed(&welcome);
                true
            }
            _ => false,
        };
        match parting.feedback.report(now).filter(|_| is_answered) {
            Some(pos) => {
                self.report(link, pos);
                self.caller.links.close_with(link, &Message::Bye);
            }
            None => self.caller.links.close(link),
        }
        true
    }

    fn event(&mut self, event: ReporterEvent) {
        self.counters.events_lost += self.events.push(event);
    }
}

impl Asking {
    /// Says when the owner may want to ask again, or to give up waiting.
    fn due(&self) -> Option<Instant> {
        let patience_ends = self.open_since.map(|since| since + ASK_PATIENCE);
        patience_ends.or_else(|| self.is_wanted.then_some(self.free_at))
    }
}

impl Talks for Reporter {
    fn links(&mut self) -> &mut Links {
        &mut self.caller.links
    }

    fn step(&mut self, now: Instant, link: LinkId, decoder: &mut Decoder) -> bool {
        let Some(&session) = self.by_link.get(&link) else {
            return self.part(now, link, decoder);
        };
        let Some(known) = self.sessions.get_mut(&session) else {
            return false;
        };
        match self.caller.next(&mut known.call, link, decoder) {
            Answer::Nothing => return false,
            Answer::Handshake => {}
            Answer::Welcomed(welcome) | Answer::Replaced(welcome) => {
                self.welcomed(now, session, &welcome);
            }
            Answer::Refused { reason, text } => self.refused(now, link, session, (reason, text)),
            Answer::Unproven { reason, text } => self.unproven(now, link, session, reason, text),
            Answer::Said(message) => self.message(link, session, &message),
            Answer::Violation => self.violation(now, link),
        }
        true
    }
}

/// Returns true when a control connection may be opened to `address`.
fn is_unicast(address: IpAddr) -> bool {
    let is_broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    !address.is_unspecified() && !address.is_multicast() && !is_broadcast
}

#[cfg(test)]
mod tests;
