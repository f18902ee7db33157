//! The sender's side of reports on a message session: who receives, how far each is, and who holds
//! the sender back.
//!
//! An audience does not know what a packet is. It turns reports of positions into one position,
//! [`Audience::hold`]: the sender may forget all packets below it. It applies a [`Policy`] to slow
//! receivers. *Guests* are receivers that are not expected, in a session without a key. They may
//! hold the others back for a limited time only, which is counted for each host and for each IPv6
//! network.
//!
//! ```text
//!   HELLO --> Tracked --BYE, close, reset--> gone (Left)
//!     |          '------too slow by policy-> gone (Dropped, and told)
//!     '--full, name taken--> Refused, and told
//! ```
//!
//! Invariants: `order` holds exactly the tracked receivers that are waited for, by position. The
//! position of a receiver that is present never goes back. It is at most one past the sender's
//! lead.
//!
//! **Spec**: `docs/src/protocol.md` section 5 (POS, WINDOW, NAME) and section 9 (ASK, WINDOW).

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::{IpAddr, SocketAddr},
    ops::Bound,
    time::Duration,
};

use base::{Contract, Instant, LinkEvent, LinkId, Pace, earliest};
use wire::{
    Sqn,
    object::{ErrorCode, Hello, Message, Pos, Refusal, StreamPhase, VERSION, Welcome},
};

use crate::parameters::{HISTORY_MAX, LOOK_INTERVAL, STALLED_AFTER, STRANGERS_MAX};
use crate::{
    HostCounts, LinkCommand, RateConfig, RateControl, RateLimit, SourceState, Steering,
    control::{Hosts, Listener},
    events::Events,
    feedback::{interval_us, rate_report},
};

mod config;
pub use config::{AudienceConfig, Policy};

mod losses;
pub use losses::Confirmation;

mod patience;
use patience::Patience;

mod pressure;
use pressure::Pressure;

mod seats;
use seats::Seats;

mod event;
pub use event::{AudienceCounters, AudienceEvent, LeaveReason, ReceiverStatus};

mod stream;

mod tracked;
use tracked::{Seat, Standing, Tracked};

/// The receivers of a message session that report their positions.
#[derive(Debug)]
pub struct Audience {
    config: AudienceConfig,
    listener: Listener,
    tracked: BTreeMap<LinkId, Tracked>,
    /// How many tracked receivers there are on each host.
    hosts: HostCounts,
    order: BTreeSet<(u64, LinkId)>,
    lead: Option<u64>,
    /// The first position that can still be repaired, as the source says.
    trail: u64,
    /// Whether the source's stream is open, has ended or was broken off, as the source says.
    phase: StreamPhase,
    /// Earlier leads with their times, oldest first. They tell since when a receiver lacks a
    /// position.
    history: VecDeque<(Instant, u64)>,
    pressure: Pressure,
    patience: Patience,
    seats: Seats,
    /// Hosts that asked for repairs while no receiver on them was present, and on which none has
    /// joined since: they count as plain PGM receivers.
    strangers: BTreeSet<IpAddr>,
    check_at: Option<Instant>,
    /// The longest round trip of all receivers, at most 1 s. The round trip of a receiver is the
    /// shortest of its last 8 to 15 samples (fewer at first). A report can raise this value; only
    /// [`Audience::handle_timeout`] lowers it. Receivers may report anything, so each user of this
    /// value needs a bound of its own.
    round_trip: Option<Duration>,
    rate: Option<RateControl>,
    events: Events<AudienceEvent>,
    counters: AudienceCounters,
    is_closed: bool,
    contract: Contract,
}

impl Audience {
    /// Makes an audience without receivers.
    #[must_use]
    pub fn new(config: AudienceConfig) -> Self {
        let max = config.receivers_max;
        let listener = Listener::new(config.session_id, max)
            .with_key(config.key.clone(), config.seed)
            .with_admission(config.admission.clone());
        Self {
            rate: None,
            config,
            listener,
            tracked: BTreeMap::new(),
            hosts: HostCounts::default(),
            order: BTreeSet::new(),
            lead: None,
            trail: 0,
            phase: StreamPhase::Open,
            history: VecDeque::new(),
            pressure: Pressure::default(),
            patience: Patience::default(),
            seats: Seats::default(),
            strangers: BTreeSet::new(),
            check_at: None,
            round_trip: None,
            events: Events::default(),
            counters: AudienceCounters::default(),
            is_closed: false,
            contract: Contract::default(),
        }
    }

    /// Handles what happened on a control connection; `data` holds the bytes of
    /// [`LinkEvent::Data`].
    pub fn handle_link(&mut self, now: Instant, link: LinkId, event: LinkEvent, data: &[u8]) {
        self.contract.tell_time(now);
        self.link_event(now, link, event, data);
        self.check_at = earliest(self.check_at, self.listener.next_deadline());
    }

    /// Returns true when a receiver on this host is present: its control connection has shown that
    /// the receiver has this address.
    #[must_use]
    pub fn has_host(&self, host: IpAddr) -> bool {
        self.hosts.contains(host)
    }

    /// Notes that a NAK came from `host`.
    pub fn asked_by(&mut self, host: IpAddr) {
        let host = host.to_canonical();
        if self.has_host(host) || self.strangers.contains(&host) {
            return;
        }
        if self.strangers.len() < STRANGERS_MAX as usize {
            self.strangers.insert(host);
        } else {
            self.counters.strangers_omitted += 1;
        }
    }

    /// Returns true when a host asked for repairs while no receiver on it was present, and none has
    /// joined since. Such a host does not report, so the sender cannot know when the host has
    /// everything. A plain PGM receiver is not noticed while a receiver of this session is present
    /// on its host.
    #[must_use]
    pub fn has_strangers(&self) -> bool {
        !self.strangers.is_empty()
    }

    /// Takes the state of the source, and returns what the receivers want of the source. Call it
    /// once a turn.
    pub fn observe(&mut self, now: Instant, source: &SourceState) -> Steering {
        self.contract.tell_time(now);
        let pace = self.steer(now, source.is_rate_limited);
        // This finds the limiting receiver by the old lead, before `set_stream` takes the new one.
        // A receiver that has everything up to the old lead does not count as behind: newer packets
        // were only just sent.
        let sets_rate = self.rate_limit().map(|limit| limit.slot);
        let limiting = sets_rate.or_else(|| self.limiting());
        self.set_stream(source);
        self.pressure.observe(now, source.is_held);
        let holder = self.holder(source);
        self.patience.observe(now, holder);
        Steering {
            pace,
            count: self.receiver_count(),
            limiting,
            hold: self.hold(),
            round_trip: self.round_trip,
        }
    }

    /// Sets the sender's lead: the last position that was sent. Call it before handling reports,
    /// which need the lead. Only the low 32 bits of a reported position count: they stand for the
    /// position nearest to the lead that has these bits, but at most for one past the lead.
    pub const fn set_lead(&mut self, lead: u64) {
        self.lead = Some(lead);
    }

    /// Asks the rate control for a pace; `None` when there is no rate control.
    fn steer(&mut self, now: Instant, is_limited: bool) -> Option<Pace> {
        let config = self.config.rate?;
        let guests_from = self.config.guests_from().unwrap_or(u32::MAX);
        let config = RateConfig {
            guests_from,
            ..config
        };
        let control = self
            .rate
            .get_or_insert_with(|| RateControl::new(config, now));
        Some(control.steer(now, is_limited))
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.contract.tell_time(now);
        if self.check_at.is_none_or(|at| at > now) {
            return;
        }
        self.check_at = None;
        self.counters.greetings_late += self.listener.expire(now);
        self.counters.greetings_cut += self.listener.take_cut();
        self.remember_lead(now);
        let all = self.tracked.iter();
        let behind = all.map(|(&link, tracked)| (behind(self.lead, tracked), link));
        self.pressure.look(now, behind);
        self.lose_patience(now);
        // This looks each receiver up by its key, because the check may remove the receiver.
        let mut after = Bound::Unbounded;
        while let Some((&link, _)) = self.tracked.range((after, Bound::Unbounded)).next() {
            after = Bound::Excluded(link);
            self.check(now, link);
        }
        let round_trips = self.tracked.values().filter_map(|t| t.round_trip.least());
        self.round_trip = round_trips.max();
        self.schedule(now);
    }

    /// Remembers the lead, if it is time.
    fn remember_lead(&mut self, now: Instant) {
        let last = self.history.back();
        let is_due = last.is_none_or(|&(at, _)| now.since(at) >= self.config.history_interval());
        let Some(lead) = self.lead.filter(|_| is_due) else {
            return;
        };
        if self.history.len() == HISTORY_MAX as usize {
            let oldest = self.history.pop_front();
            let first = self.order.first();
            let is_missed = first.is_some_and(|first| oldest.is_some_and(|it| it.1 >= first.0));
            self.counters.looks_forgotten += u64::from(is_missed);
        }
        self.history.push_back((now, lead));
    }

    /// Ends the session: tells every receiver and closes the connections.
    pub fn close(&mut self, _now: Instant) {
        self.is_closed = true;
        self.listener.close_greeting();
        self.tell_end();
        while let Some((&link, _)) = self.tracked.first_key_value() {
            self.take(link, Standing::Left);
        }
    }

    /// Returns the next thing to do on a control connection.
    pub fn poll_link(&mut self) -> Option<LinkCommand<'_>> {
        self.listener.links.poll()
    }

    /// Notes that the back end took `taken` bytes of the last [`LinkCommand::Send`].
    pub fn link_sent(&mut self, link: LinkId, taken: usize) {
        self.listener.links.sent(link, taken);
    }

    /// Returns the next event about a receiver.
    pub fn pop_event(&mut self) -> Option<AudienceEvent> {
        self.events.pop()
    }

    /// Says when [`Audience::handle_timeout`] is due.
    #[must_use]
    pub const fn next_timeout(&self) -> Option<Instant> {
        self.check_at
    }

    /// Returns the position from which on the source must keep everything; `None` when it need keep
    /// nothing.
    ///
    /// While expected receivers are missing, [`Policy::Wait`] keeps everything.
    #[must_use]
    pub fn hold(&self) -> Option<u64> {
        if self.is_closed || self.config.policy == Policy::Lose {
            return None;
        }
        if self.config.policy == Policy::Wait && !self.has_expected() {
            return Some(0);
        }
        self.order.first().map(|&(position, _)| position)
    }

    /// Returns true when as many receivers have joined as are expected, whether or not they are
    /// still here.
    #[must_use]
    pub fn has_expected(&self) -> bool {
        self.seats.len() >= self.config.expected as usize
    }

    /// Returns true when every receiver that is waited for has been given everything below
    /// `position`, and no expected receiver is still to come.
    #[must_use]
    pub fn has_confirmed(&self, position: u64) -> bool {
        self.has_given(position) && !self.awaits(position)
    }

    /// Returns true when every receiver that is here and waited for has been given everything below
    /// `position`.
    #[must_use]
    pub fn has_given(&self, position: u64) -> bool {
        let is_behind = |&(contiguous, _): &(u64, LinkId)| contiguous < position;
        !self.order.first().is_some_and(is_behind)
    }

    /// Returns true while fewer receivers than expected are settled. A receiver that has joined is
    /// settled, unless its connection was lost and it lacks something below `position`: such a
    /// receiver may come back.
    #[must_use]
    pub fn awaits(&self, position: u64) -> bool {
        let is_settled = |(_, seat): &(&String, &Seat)| {
            seat.standing != Standing::Lost || seat.contiguous >= position
        };
        let settled = self.seats.iter().filter(is_settled).count();
        settled < self.config.expected as usize
    }

    /// Returns true when as many receivers have reported as are expected, whether or not they are
    /// still here.
    #[must_use]
    pub const fn has_heard_expected(&self) -> bool {
        self.seats.reported() >= self.config.expected
    }

    /// Returns how many receivers have joined, whether or not they are still here.
    #[must_use]
    pub const fn joined(&self) -> u32 {
        self.seats.joined()
    }

    /// Returns how many expected receivers have not joined.
    #[must_use]
    pub const fn missing(&self) -> u32 {
        self.config.expected.saturating_sub(self.joined())
    }

    /// Returns how many receivers are tracked.
    #[must_use]
    pub fn receiver_count(&self) -> u32 {
        u32::try_from(self.tracked.len()).unwrap_or(u32::MAX)
    }

    /// Returns the slot of the receiver that is furthest behind among those that are waited for;
    /// `None` when all of these have everything.
    fn limiting(&self) -> Option<u32> {
        let &(position, link) = self.order.first()?;
        let is_behind = self.lead.is_none_or(|lead| position <= lead);
        is_behind.then(|| self.tracked[&link].slot)
    }

    /// Returns the receiver that sets the rate, and why; `None` while none does.
    #[must_use]
    pub fn rate_limit(&self) -> Option<RateLimit> {
        self.rate.as_ref().and_then(RateControl::limit)
    }

    /// Returns all tracked receivers.
    pub fn receivers(&self) -> impl Iterator<Item = ReceiverStatus<'_>> {
        self.tracked.values().map(|tracked| ReceiverStatus {
            slot: tracked.slot,
            name: &tracked.name,
            peer: tracked.peer,
            contiguous: tracked.has_reported.then_some(tracked.contiguous),
            behind: behind(self.lead, tracked),
            pos: tracked.pos,
            round_trip: tracked.round_trip.least(),
            is_stalled: tracked.is_stalled,
        })
    }

    /// Returns the counters.
    #[must_use]
    pub const fn counters(&self) -> &AudienceCounters {
        &self.counters
    }

    /// Returns true when nothing is left to be sent on any connection.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.listener.links.is_idle()
    }

    fn report(&mut self, now: Instant, link: LinkId, pos: &Pos) {
        let end = self.lead.map_or(u64::MAX, |lead| lead + 1);
        let claimed = match self.lead {
            Some(lead) => Sqn::of(pos.contiguous).extend(lead),
            None => pos.contiguous,
        };
        // A receiver that has not begun yet reports 0.
        let is_astray = claimed > end && pos.contiguous != 0;
        self.note_losses(link, pos.lost, is_astray);
        self.correct(link, pos);
        let Some(tracked) = self.tracked.get_mut(&link) else {
            return;
        };
        self.counters.reports += 1;
        self.counters.reports_ahead += u64::from(claimed > end);
        let contiguous = claimed.min(end);
        tracked.pos = *pos;
        let answer = tracked.round_trip.report(now, pos);
        let round_trip = tracked.round_trip.least();
        self.round_trip = self.round_trip.max(round_trip);
        if let Some(control) = &mut self.rate {
            let report = rate_report(pos, round_trip.unwrap_or_default(), answer);
            control.report(now, tracked.slot, &report);
        }
        if contiguous > tracked.contiguous || !tracked.has_reported {
            self.order.remove(&(tracked.contiguous, link));
            tracked.contiguous = contiguous.max(tracked.contiguous);
            if tracked.is_awaited {
                self.order.insert((tracked.contiguous, link));
            }
            tracked.progress_at = now;
            let is_first = !std::mem::replace(&mut tracked.has_reported, true);
            if is_first {
                self.seats.note_report(&tracked.name);
            }
            if tracked.is_stalled {
                tracked.is_stalled = false;
                let (slot, name) = (tracked.slot, tracked.name.clone());
                self.event(AudienceEvent::Resumed { slot, name });
            }
        }
    }

    /// Applies the policy to one receiver.
    fn check(&mut self, now: Instant, link: LinkId) {
        let tracked = &self.tracked[&link];
        let lag = self.lag(now, tracked);
        if lag.is_zero() {
            return;
        }
        let idle = now.since(tracked.progress_at).min(lag);
        let lag = match self.config.policy {
            Policy::Drop => lag.max(self.pressure.of(now, link)),
            Policy::Wait | Policy::Lose => idle,
        };
        let limit = self.config.stall_limit();
        if limit.is_some_and(|limit| lag >= limit) {
            self.drop_receiver(link);
        } else if idle >= STALLED_AFTER && !tracked.is_stalled {
            let event = AudienceEvent::Stalled {
                slot: tracked.slot,
                name: tracked.name.clone(),
                behind: behind(self.lead, tracked),
            };
            self.tracked
                .entry(link)
                .and_modify(|tracked| tracked.is_stalled = true);
            self.event(event);
        }
    }

    fn drop_receiver(&mut self, link: LinkId) {
        let behind = behind(self.lead, &self.tracked[&link]);
        let text = "it was behind for longer than the sender's policy allows";
        let code = ErrorCode::TooSlow;
        let links = &mut self.listener.links;
        links.close_with(link, &Message::Error { code, text });
        if let Some(tracked) = self.take(link, Standing::Left) {
            self.counters.dropped += 1;
            let Tracked { slot, name, .. } = tracked;
            self.event(AudienceEvent::Dropped { slot, name, behind });
        }
    }

    /// Returns how long a receiver has been behind: the time since `history` first noted a lead
    /// that the receiver has not been given. Before its first report: the time since it joined.
    /// Zero when it has been given every lead that was noted.
    fn lag(&self, now: Instant, tracked: &Tracked) -> Duration {
        if !tracked.has_reported {
            return now.since(tracked.progress_at);
        }
        let is_given = |&(_, lead): &(Instant, u64)| lead < tracked.contiguous;
        let since = self.history.get(self.history.partition_point(is_given));
        since.map_or(Duration::ZERO, |&(at, _)| now.since(at))
    }

    fn remove(&mut self, link: LinkId, reason: LeaveReason) {
        let standing = match reason {
            LeaveReason::Bye => Standing::Left,
            LeaveReason::Closed | LeaveReason::Error { .. } => Standing::Lost,
        };
        if let Some(tracked) = self.take(link, standing) {
            self.counters.left += 1;
            let behind = behind(self.lead, &tracked);
            let Tracked {
                slot,
                name,
                contiguous,
                ..
            } = tracked;
            self.event(AudienceEvent::Left {
                slot,
                name,
                contiguous,
                behind,
                reason,
            });
        }
    }

    fn take(&mut self, link: LinkId, standing: Standing) -> Option<Tracked> {
        let tracked = self.tracked.remove(&link)?;
        self.hosts.remove(tracked.peer.ip());
        self.order.remove(&(tracked.contiguous, link));
        self.seats.leave(&tracked, standing, self.config.expected);
        if let Some(control) = &mut self.rate {
            control.forget(tracked.slot);
        }
        Some(tracked)
    }

    fn schedule(&mut self, now: Instant) {
        let greeting = self.listener.next_deadline();
        let check = (!self.tracked.is_empty()).then(|| now + LOOK_INTERVAL);
        self.check_at = earliest(self.check_at, earliest(greeting, check));
    }

    fn event(&mut self, event: AudienceEvent) {
        self.counters.events_lost += self.events.push(event);
    }
}

/// Returns by how many positions a receiver is behind a sender whose last position is `lead`; 0
/// before the receiver's first report.
fn behind(lead: Option<u64>, tracked: &Tracked) -> u64 {
    let end = lead.map_or(0, |lead| lead + 1);
    if tracked.has_reported {
        end.saturating_sub(tracked.contiguous)
    } else {
        0
    }
}

impl Hosts for Audience {
    fn listener(&mut self) -> &mut Listener {
        &mut self.listener
    }

    fn challenged(&mut self) {
        self.counters.challenged += 1;
    }

    fn greet(&mut self, now: Instant, link: LinkId, peer: SocketAddr, hello: &Hello<'_>) {
        if let Err(reason) = self.make_room(now, peer.ip(), hello) {
            self.listener.refuse(link, reason);
            return self.refused(now, link, peer, reason);
        }
        let slot = self.seats.slot_of(hello.name);
        let receiver_count = self.config.expected.max(self.receiver_count() + 1);
        let welcome = Message::Welcome(Welcome {
            version: VERSION,
            slot,
            manifest: [0; 16],
            session_id: self.config.session_id,
            receiver_count,
            report_interval_us: interval_us(receiver_count, self.config.report_interval),
            report_sqns: self.config.report_sqns,
            manifest_bytes: 0,
            is_late: false,
            nonce: [0; 16],
        });
        self.listener.admit(link);
        let name = Message::Name {
            name: &self.config.name,
        };
        let is_named = !self.config.name.is_empty();
        if !self.listener.links.queue(link, &welcome)
            || is_named && !self.listener.links.queue(link, &name)
        {
            return self.listener.close(link);
        }
        let host = peer.ip().to_canonical();
        self.strangers.remove(&host);
        self.hosts.add(host);
        self.seats.take(hello.name, slot, self.config.expected);
        let is_awaited = !(self.is_guest(slot) && self.patience.is_over(host));
        // `make_room` has checked that an earlier connection under this name belongs to the same
        // receiver. So the new connection takes over the receiver's position.
        let old = self.earlier(hello.name).map(|(old, _)| old);
        if let Some(earlier) = old.and_then(|old| self.take(old, Standing::Here)) {
            let heard_at = now;
            let tracked = Tracked {
                peer,
                heard_at,
                is_awaited,
                ..earlier
            };
            self.track(link, tracked);
        } else {
            let mut tracked = Tracked::new(now, slot, hello, peer);
            tracked.is_awaited = is_awaited;
            self.track(link, tracked);
            let name = hello.name.to_owned();
            self.event(AudienceEvent::Joined { slot, name, peer });
        }
        if let Some(old) = old {
            self.counters.reconnected += 1;
            self.listener.close(old);
        }
        self.schedule(now);
    }

    fn refused(&mut self, _now: Instant, _link: LinkId, peer: SocketAddr, reason: Refusal) {
        self.counters.refused += 1;
        self.event(AudienceEvent::Refused { peer, reason });
    }

    fn message(&mut self, now: Instant, link: LinkId, message: &Message<'_>) {
        if let Some(tracked) = self.tracked.get_mut(&link) {
            tracked.heard_at = now;
        }
        match message {
            Message::Pos(pos) => self.report(now, link, pos),
            Message::Ask => self.tell_window(link),
            Message::Bye => {
                self.listener.links.close(link);
                self.remove(link, LeaveReason::Bye);
            }
            Message::Error { code, text } => {
                self.listener.links.close(link);
                let text = (*text).to_owned();
                self.remove(link, LeaveReason::Error { code: *code, text });
            }
            Message::Unknown { .. } | Message::Progress(_) => self.counters.messages_ignored += 1,
            other => {
                let name = other.name();
                self.violation(
                    now,
                    link,
                    &format!("{name} does not belong to a message session"),
                );
            }
        }
    }

    fn violation(&mut self, _now: Instant, link: LinkId, text: &str) {
        self.counters.violations += 1;
        let code = ErrorCode::Protocol;
        self.listener.break_off(link, text);
        let text = text.to_owned();
        self.remove(link, LeaveReason::Error { code, text });
    }

    fn forged(&mut self) {
        self.counters.violations += 1;
    }

    fn is_over(&self) -> bool {
        self.is_closed
    }

    fn lost(&mut self, _now: Instant, link: LinkId) {
        self.remove(link, LeaveReason::Closed);
    }
}

#[cfg(test)]
mod tests;
