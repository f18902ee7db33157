//! The receiver's side of reports on message sessions: dials senders that ask for it and says where
//! this receiver stands.
//!
//! It does not receive packets; its owner tells it what marks were heard and how far each session
//! has come. It dials nobody but the unicast address from which a mark came.
//!
//! ```text
//!   mark --> Waiting(until) --> Dialling --Opened, HELLO--> Greeting --WELCOME--> Reporting --+
//!               ^                   |                          |                      |       |
//!               '--- closed --------'--------------------------'----------------------'       |
//!            Refused or dropped: Silent until the session is over      session over: POS, BYE <'
//! ```
//!
//! Invariants: at most one connection or request per session; a report is sent on change and at
//! least once a second, or at the interval where that is longer; all receivers of a session
//! together report every 0.2 ms at most, but for the one that holds the rest back.

use std::{
    collections::{BTreeMap, VecDeque},
    net::{IpAddr, SocketAddr},
    ops::Bound,
    time::Duration,
};

use base::{Instant, LinkEvent, LinkId, Rng};
use wire::{
    object::{Hello, Message, Pos, Refusal, VERSION, Welcome},
    pgm::{Mark, Profile},
};

use crate::link::{LinkCommand, Links};

pub(crate) mod arrival;
use arrival::Heard;

mod config;
pub use config::{ReceiverStats, ReporterConfig, ReporterCounters, ReporterEvent};

/// Reports on the sessions that a receiver follows.
#[derive(Debug)]
pub struct Reporter {
    config: ReporterConfig,
    rng: Rng,
    links: Links,
    sessions: BTreeMap<u32, Session>,
    by_link: BTreeMap<LinkId, u32>,
    keys: BTreeMap<u32, u32>,
    key: u32,
    events: VecDeque<ReporterEvent>,
    counters: ReporterCounters,
    is_leaving: bool,
    /// When nothing waited in the receive socket.
    empty_at: Instant,
}

/// One sender that asks for reports.
#[derive(Debug)]
struct Session {
    peer: SocketAddr,
    session_id: u64,
    state: State,
    attempts: u32,
    /// Since when the sender has said that our name is taken.
    taken_since: Option<Instant>,
    heard: Heard,
    pos: Pos,
    has_position: bool,
    sent: Pos,
    sent_at: Instant,
    /// On this connection.
    has_reported: bool,
    /// Receivers of the session, as far as is known: they share the sender's time.
    count: u32,
    /// A report that is due waits until then, as all receivers see the same packet at once.
    held_until: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Dials at this time.
    Waiting { until: Instant },
    /// A request for a connection is out.
    Dialling { key: u32 },
    /// The greeting is out, or will be once the connection opens.
    Greeting { link: LinkId },
    /// Taken in.
    Reporting {
        link: LinkId,
        slot: u32,
        interval: Duration,
        sqns: u32,
    },
    /// The sender does not want this receiver.
    Silent,
}

impl Reporter {
    /// A reporter without sessions.
    #[must_use]
    pub fn new(config: ReporterConfig) -> Self {
        Self {
            rng: Rng::new(config.seed),
            config,
            links: Links::default(),
            sessions: BTreeMap::new(),
            by_link: BTreeMap::new(),
            keys: BTreeMap::new(),
            key: 0,
            events: VecDeque::new(),
            counters: ReporterCounters::default(),
            is_leaving: false,
            empty_at: Instant::ZERO,
        }
    }

    /// A mark was heard on `session` from `source`, the address that is also the SPM's path NLA.
    pub fn mark(&mut self, now: Instant, session: u32, source: IpAddr, mark: &Mark) {
        if let Some(known) = self.sessions.get_mut(&session) {
            if known.session_id == mark.session_id {
                known.heard.mark(now, mark, self.empty_at);
                known.count = mark.receiver_count.min(COUNT_MAX);
                return;
            }
            self.session_over(now, session);
        }
        if self.is_leaving || !self.is_wanted(source, mark) {
            return;
        }
        let jitter = DIAL_JITTER_MAX.min(Duration::from_millis(mark.receiver_count.into()));
        let until = now + self.rng.duration_up_to(jitter);
        let peer = SocketAddr::new(source, mark.control_port);
        let fresh = Session::new(now, peer, mark, until);
        self.sessions.insert(session, fresh);
    }

    /// How far `session` has come: `contiguous` is the next position the application has not been
    /// given, `lead` the highest that is known to exist. Cheap; to be called once a turn.
    pub fn position(&mut self, now: Instant, session: u32, contiguous: u64, lead: u64) {
        if let Some(known) = self.sessions.get_mut(&session) {
            known.pos.contiguous = contiguous;
            known.pos.lead = lead;
            known.has_position = true;
            if known.report_at().is_some_and(|at| at <= now) {
                self.check_report(now, session);
            }
        }
    }

    /// Nothing waits in the receive socket: what comes next was not kept waiting by this host.
    pub const fn caught_up(&mut self, now: Instant) {
        self.empty_at = now;
    }

    /// What `session` suffers, for the next report. Cheap; to be called once a turn, before
    /// [`Reporter::position`].
    pub fn stats(&mut self, now: Instant, session: u32, stats: &ReceiverStats) {
        if let Some(known) = self.sessions.get_mut(&session) {
            stats.apply(&mut known.pos);
            known.heard.arrived(now, stats.bytes);
        }
    }

    /// The session ended, expired or was reset: a last report, good-bye.
    pub fn session_over(&mut self, now: Instant, session: u32) {
        if matches!(self.state(session), Some(State::Reporting { .. })) {
            self.report(now, session);
        }
        let Some(known) = self.sessions.remove(&session) else {
            return;
        };
        match known.state {
            State::Reporting { link, .. } | State::Greeting { link } => {
                self.by_link.remove(&link);
                if self.links.queue(link, &Message::Bye) {
                    self.links.close(link);
                } else {
                    self.links.abort(link);
                }
            }
            State::Dialling { key } => {
                self.keys.remove(&key);
                self.links.withdraw(key);
            }
            State::Waiting { .. } | State::Silent => {}
        }
    }

    /// Leaves all sessions. [`Reporter::is_idle`] says when the good-byes are out.
    pub fn leave(&mut self, now: Instant) {
        self.is_leaving = true;
        while let Some((&session, _)) = self.sessions.first_key_value() {
            self.session_over(now, session);
        }
    }

    /// Handles what happened on a control connection; `data` holds the bytes of
    /// [`LinkEvent::Data`].
    pub fn handle_link(&mut self, now: Instant, link: LinkId, event: LinkEvent, data: &[u8]) {
        match event {
            LinkEvent::Opened => self.hello(now, link),
            LinkEvent::Data => self.read(now, link, data),
            LinkEvent::Writable => self.links.writable(link),
            LinkEvent::Closed => {
                self.links.forget(link);
                self.lost(now, link);
            }
            LinkEvent::Accepted { .. } => {
                self.links.insert(link);
                self.links.abort(link);
            }
        }
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        // By successor, because the body changes the map. Every timer of the receiver comes here.
        let mut after = Bound::Unbounded;
        while let Some((&session, known)) = self.sessions.range((after, Bound::Unbounded)).next() {
            after = Bound::Excluded(session);
            if known.due().is_none_or(|due| due > now) {
                continue;
            }
            match known.state {
                State::Waiting { .. } => self.dial(session),
                State::Reporting { .. } => self.check_report(now, session),
                State::Dialling { .. } | State::Greeting { .. } | State::Silent => {}
            }
        }
    }

    /// The next thing to do on a control connection.
    pub fn poll_link(&mut self) -> Option<LinkCommand<'_>> {
        self.links.poll()
    }

    /// The back end took `taken` bytes of the last [`LinkCommand::Send`].
    pub fn link_sent(&mut self, link: LinkId, taken: usize) {
        self.links.sent(link, taken);
    }

    /// The back end gave the connection asked for with `key` this number.
    pub fn link_opened(&mut self, key: u32, link: LinkId) {
        self.links.insert(link);
        let session = self.keys.remove(&key);
        let known = session.and_then(|session| self.sessions.get_mut(&session));
        let (Some(known), Some(session)) = (known, session) else {
            self.links.abort(link);
            return;
        };
        self.links.greeted(link);
        known.state = State::Greeting { link };
        self.by_link.insert(link, session);
    }

    /// The next event.
    pub fn pop_event(&mut self) -> Option<ReporterEvent> {
        self.events.pop_front()
    }

    /// When [`Reporter::handle_timeout`] is due.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.sessions.values().filter_map(Session::due).min()
    }

    /// True when the sender of `session` has taken this receiver in.
    #[must_use]
    pub fn is_reporting(&self, session: u32) -> bool {
        matches!(self.state(session), Some(State::Reporting { .. }))
    }

    /// True when nothing is left to be sent on any connection.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.links.is_idle()
    }

    /// What has been counted.
    #[must_use]
    pub const fn counters(&self) -> &ReporterCounters {
        &self.counters
    }

    fn state(&self, session: u32) -> Option<State> {
        self.sessions.get(&session).map(|known| known.state)
    }

    fn is_wanted(&mut self, source: IpAddr, mark: &Mark) -> bool {
        if mark.profile != Profile::Messages || mark.control_port == 0 || mark.check(0).is_err() {
            return false;
        }
        if self.sessions.len() >= self.config.sessions_max || !is_unicast(source) {
            self.counters.marks_refused += 1;
            return false;
        }
        true
    }

    fn dial(&mut self, session: u32) {
        let Some(known) = self.sessions.get_mut(&session) else {
            return;
        };
        self.key = self.key.wrapping_add(1);
        known.state = State::Dialling { key: self.key };
        known.attempts = known.attempts.saturating_add(1);
        self.keys.insert(self.key, session);
        self.links.open(known.peer, self.key);
        self.counters.dialled += 1;
    }

    fn hello(&mut self, now: Instant, link: LinkId) {
        let known = self
            .by_link
            .get(&link)
            .and_then(|session| self.sessions.get(session));
        let Some(known) = known else {
            return;
        };
        let hello = Message::Hello(Hello {
            version_min: VERSION,
            version_max: VERSION,
            instance: self.config.instance,
            session: known.session_id,
            name: &self.config.name,
            nonce: None,
        });
        if !self.links.queue(link, &hello) {
            self.links.abort(link);
            self.lost(now, link);
        }
    }

    fn read(&mut self, now: Instant, link: LinkId, data: &[u8]) {
        let Some(mut decoder) = self.links.take_decoder(link) else {
            return;
        };
        decoder.push(data);
        loop {
            self.links.limit(link, &mut decoder);
            match decoder.next_message() {
                Ok(Some(message)) => self.message(now, link, &message),
                Ok(None) => break self.links.put_decoder(link, decoder),
                Err(_) => {
                    self.counters.violations += 1;
                    self.links.abort(link);
                    break self.lost(now, link);
                }
            }
            if !self.links.is_open(link) {
                break;
            }
        }
    }

    fn message(&mut self, now: Instant, link: LinkId, message: &Message<'_>) {
        let Some(&session) = self.by_link.get(&link) else {
            return;
        };
        match message {
            Message::Welcome(welcome) => self.welcomed(now, link, session, welcome),
            // The sender may not know yet that the one before us is dead.
            Message::Refused { reason, .. }
                if *reason == Refusal::DuplicateName && self.may_try_again(now, session) =>
            {
                self.links.close(link);
                self.lost(now, link);
            }
            Message::Refused { reason, text } => {
                let (reason, text) = (*reason, (*text).to_owned());
                self.silence(
                    link,
                    session,
                    ReporterEvent::Refused {
                        session,
                        reason,
                        text,
                    },
                );
            }
            Message::Error { code, text } => {
                let (code, text) = (*code, (*text).to_owned());
                self.silence(
                    link,
                    session,
                    ReporterEvent::Dropped {
                        session,
                        code,
                        text,
                    },
                );
            }
            Message::Bye => self.silence(link, session, ReporterEvent::Closed { session }),
            _ => self.counters.messages_ignored += 1,
        }
    }

    fn welcomed(&mut self, now: Instant, link: LinkId, session: u32, welcome: &Welcome) {
        let Some(known) = self.sessions.get_mut(&session) else {
            return;
        };
        if welcome.session != known.session_id || welcome.version != VERSION {
            self.counters.violations += 1;
            self.links.abort(link);
            self.lost(now, link);
            return;
        }
        let asked = Duration::from_micros(welcome.report_interval_us.into());
        known.state = State::Reporting {
            link,
            slot: welcome.slot,
            interval: asked.clamp(REPORT_INTERVAL_MIN, REPORT_INTERVAL_MAX),
            sqns: welcome.report_sqns,
        };
        known.attempts = 0;
        known.taken_since = None;
        known.count = known.count.max(welcome.receiver_count.min(COUNT_MAX));
        known.has_reported = false;
        known.held_until = None;
        let slot = welcome.slot;
        self.event(ReporterEvent::Joined { session, slot });
        self.check_report(now, session);
    }

    /// Whether the one that has our name may be a dead one that the sender still believes in: our
    /// own former connection it takes for ours, but one of a former run, on a host that was cut off
    /// or lost its power, it cannot tell from one that lives. A person may, and is told at once.
    fn may_try_again(&mut self, now: Instant, session: u32) -> bool {
        let Some(known) = self.sessions.get_mut(&session) else {
            return false;
        };
        let Some(since) = known.taken_since else {
            known.taken_since = Some(now);
            self.event(ReporterEvent::NameTaken { session });
            return true;
        };
        now.since(since) < DUPLICATE_PATIENCE
    }

    /// The sender is done with this receiver: no further dialling in this session.
    fn silence(&mut self, link: LinkId, session: u32, event: ReporterEvent) {
        self.by_link.remove(&link);
        self.links.close(link);
        if let Some(known) = self.sessions.get_mut(&session) {
            known.state = State::Silent;
        }
        self.event(event);
    }

    /// The connection is over without a word: dials again after a while.
    fn lost(&mut self, now: Instant, link: LinkId) {
        let Some(session) = self.by_link.remove(&link) else {
            return;
        };
        let Some(known) = self.sessions.get_mut(&session) else {
            return;
        };
        if matches!(known.state, State::Reporting { .. }) {
            self.counters.connections_lost += 1;
        }
        let ceiling = REDIAL_MIN * 2_u32.saturating_pow(known.attempts.min(6));
        let until = now + REDIAL_MIN + self.rng.duration_up_to(ceiling);
        known.state = State::Waiting { until };
    }

    /// Reports if that is due, after a moment of this receiver's own where there are many.
    fn check_report(&mut self, now: Instant, session: u32) {
        let Some(known) = self.sessions.get_mut(&session) else {
            return;
        };
        let is_due = |known: &Session| known.report_at().is_some_and(|at| at <= now);
        if is_due(known) && known.held_until.is_none() {
            let spread = known.spread();
            let wait = match spread.is_zero() {
                true => spread,
                false => self.rng.duration_up_to(spread),
            };
            known.held_until = Some(now + wait);
        }
        if is_due(known) {
            self.report(now, session);
        }
    }

    fn report(&mut self, now: Instant, session: u32) {
        let Some(known) = self.sessions.get_mut(&session) else {
            return;
        };
        let State::Reporting { link, .. } = known.state else {
            return;
        };
        if !known.has_position {
            return;
        }
        known.heard.report(now, &mut known.pos);
        let pos = known.pos;
        known.sent = pos;
        known.sent_at = now;
        known.has_reported = true;
        known.held_until = None;
        // A sender that does not read its reports is given up; it is dialled again later.
        if self
            .links
            .queued(link)
            .is_some_and(|queued| queued > REPORTS_QUEUED_MAX)
        {
            self.counters.reports_skipped += 1;
        } else if self.links.queue(link, &Message::Pos(pos)) {
            self.counters.reports += 1;
        }
    }

    fn event(&mut self, event: ReporterEvent) {
        if self.events.len() == EVENTS_MAX {
            self.counters.events_lost += 1;
            self.events.pop_front();
        }
        self.events.push_back(event);
    }
}

impl Session {
    fn new(now: Instant, peer: SocketAddr, mark: &Mark, until: Instant) -> Self {
        Self {
            peer,
            session_id: mark.session_id,
            state: State::Waiting { until },
            attempts: 0,
            taken_since: None,
            heard: Heard::first(now, mark),
            pos: Pos::default(),
            has_position: false,
            sent: Pos::default(),
            sent_at: Instant::ZERO,
            has_reported: false,
            count: mark.receiver_count.min(COUNT_MAX),
            held_until: None,
        }
    }

    /// What a report of this receiver may take of the sender's time, whatever makes it due.
    fn share(&self) -> Duration {
        REPORT_SHARE * self.count
    }

    /// Over how long reports are spread that become due at once; a few need not be.
    fn spread(&self) -> Duration {
        let State::Reporting { slot, .. } = self.state else {
            return Duration::ZERO;
        };
        if self.share() < URGENT_INTERVAL || self.heard.is_limiting(slot) {
            Duration::ZERO
        } else {
            self.share()
        }
    }

    /// When this session next has something to do by itself.
    fn due(&self) -> Option<Instant> {
        match self.state {
            State::Waiting { until } => Some(until),
            State::Reporting { .. } => self.report_at(),
            State::Dialling { .. } | State::Greeting { .. } | State::Silent => None,
        }
    }

    /// When the next report is due with what is known; `None` before the first position.
    fn report_at(&self) -> Option<Instant> {
        let State::Reporting {
            slot,
            interval,
            sqns,
            ..
        } = self.state
        else {
            return None;
        };
        if !self.has_position {
            return None;
        }
        let moved = self.pos.contiguous.saturating_sub(self.sent.contiguous);
        let is_limiting = self.heard.is_limiting(slot);
        let interval = interval.max(self.share());
        let share = if is_limiting {
            self.share().min(URGENT_INTERVAL)
        } else {
            self.share()
        };
        // What is missed tells the sender as much: repairs that are lost as well move nothing.
        let after = if moved == 0 && self.pos.naks == self.sent.naks {
            KEEP_ALIVE.max(interval)
        } else if sqns > 0 && moved >= u64::from(sqns) {
            REPORT_INTERVAL_MIN.max(share)
        } else if is_limiting || self.heard.has_new_rate() || self.pos.contiguous > self.pos.lead {
            // The one that holds the rest back, and one that has just caught up, are waited for;
            // and all of them where the sender wants to know what its new rate does.
            interval.min(URGENT_INTERVAL.max(share))
        } else {
            interval
        };
        let due = if self.has_reported {
            self.sent_at + after
        } else {
            Instant::ZERO
        };
        let held_until = self.held_until.filter(|_| !is_limiting);
        Some(held_until.map_or(due, |until| due.max(until)))
    }
}

/// Whether a control connection may be opened to `address`.
fn is_unicast(address: IpAddr) -> bool {
    let is_broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    !address.is_unspecified() && !address.is_multicast() && !is_broadcast
}

/// Greetings of many receivers spread over one millisecond for each, at most this long.
const DIAL_JITTER_MAX: Duration = Duration::from_secs(2);
/// A sender lets go of a connection after 30 s of silence; the last wait between two attempts comes
/// on top.
const DUPLICATE_PATIENCE: Duration = Duration::from_secs(40);
const REDIAL_MIN: Duration = Duration::from_millis(100);
const REPORT_INTERVAL_MIN: Duration = Duration::from_millis(1);
const REPORT_INTERVAL_MAX: Duration = Duration::from_secs(5);
const URGENT_INTERVAL: Duration = Duration::from_millis(5);
const KEEP_ALIVE: Duration = Duration::from_secs(1);
/// One report of all receivers in so long.
const REPORT_SHARE: Duration = Duration::from_micros(200);
/// Receivers that a sender is believed to have: with more, reports would be further apart than
/// [`REPORT_INTERVAL_MAX`].
const COUNT_MAX: u32 = 25_000;
const REPORTS_QUEUED_MAX: usize = 4096;
const EVENTS_MAX: usize = 1024;

#[cfg(test)]
mod tests;
