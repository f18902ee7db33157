//! The receiving end of object sessions: one PGM receiver in arrival order, and a plan receiver for
//! each sender whose plan is wanted.
//!
//! ```text
//!                     .--> Transfer 0: PlanReceiver --> Store
//!  packets --> pgm ---+--> Transfer 1: PlanReceiver --> Store      by session: never mixed
//!             marks   '--> (prospect)  PlanReceiver --> none yet
//!               |
//!        Intake::admit --> dial --> WELCOME names the plan --> Intake::accept --> Store
//! ```
//!
//! A sender's restart is a new session that offers a plan already under way: the transfer goes on
//! in it with what it holds, and the connection by which that was found out is dropped.
//!
//! Invariants: blocks reach only the transfer whose sender's session they are of; nothing is
//! dialled or kept for a sender that is not admitted, but its address in a bounded list; at most
//! `plans_max` transfers and `prospects_max` connections beside them.

use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
};

use base::{Arrival, Budget, DropCounters, Instant, LinkEvent, LinkId, Outcome, Run, Verdict};
use delivery::{
    LinkCommand, Offer, PlanReceiver, PlanReceiverConfig, PlanReceiverCounters, PlanReceiverEvent,
    ReceiverProgress, Store,
};
use pgm::{Mode, Position, Ready, Receiver};
use wire::{
    object::{ErrorCode, Phase, Progressed},
    pgm::{Mark, Profile},
};

use crate::{Endpoint, Handle, Receiving, endpoint::stream_of};

mod intake;
pub use intake::{
    Decline, Intake, ObjectReceiverConfig, ObjectReceiverCounters, ObjectReceiverEvent, Sender,
    TakeFirst,
};

/// Receives the plans of all senders of a group that its owner wants; or one, and ends.
#[derive(Debug)]
pub struct ObjectReceiver<I: Intake> {
    receiver: Receiver,
    intake: I,
    config: ObjectReceiverConfig,
    transfers: Vec<Transfer<I::Store>>,
    /// Connections that belong to nobody.
    strays: VecDeque<LinkId>,
    next_number: u32,
    /// Whose control connections are served next.
    turn: usize,
    known: VecDeque<Known>,
    is_cancelled: bool,
    /// Packets that the kernel has dropped since the process began.
    host_drops: u64,
    /// Packets handled when the last turn ended.
    seen_packets: u64,
    events: VecDeque<ObjectReceiverEvent>,
    counters: ObjectReceiverCounters,
    /// What transfers that are gone had counted.
    past: PlanReceiverCounters,
}

/// One sender's plan on its way into a store.
#[derive(Debug)]
struct Transfer<S> {
    number: u32,
    sender: Sender,
    /// The packet stream that blocks are taken from; none while it is over or not found again.
    session: Option<u32>,
    state: State,
    /// What the kernel had dropped before.
    host_drops_before: u64,
    plan: PlanReceiver<S>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// What the sender has is not known or not decided upon.
    Asking,
    /// It is taken.
    Accepted,
    /// It is not taken, or over: its connections are closed.
    Leaving,
}

/// A sender that was turned away.
#[derive(Clone, Copy, Debug)]
struct Known {
    sender: Sender,
    /// It is not dialled again. Otherwise only the event is not repeated.
    is_barred: bool,
}

impl<S: Store> ObjectReceiver<TakeFirst<S>> {
    /// Receives one plan into `store`: of the first sender that takes this receiver in.
    #[must_use]
    pub fn single(receiving: &Receiving, plan: PlanReceiverConfig, store: S, now: Instant) -> Self {
        let config = ObjectReceiverConfig::single(plan);
        Self::open(receiving, config, TakeFirst::new(store), now)
    }
}

impl<I: Intake> ObjectReceiver<I> {
    /// Opens a session that receives what `intake` wants.
    #[must_use]
    pub fn open(
        receiving: &Receiving,
        config: ObjectReceiverConfig,
        intake: I,
        now: Instant,
    ) -> Self {
        Self {
            receiver: receiving.receiver(Mode::Arrival, now),
            intake,
            config,
            transfers: Vec::new(),
            strays: VecDeque::new(),
            next_number: 0,
            turn: 0,
            known: VecDeque::new(),
            is_cancelled: false,
            host_drops: 0,
            seen_packets: 0,
            events: VecDeque::new(),
            counters: ObjectReceiverCounters::default(),
            past: PlanReceiverCounters::default(),
        }
    }

    /// What happened since.
    pub fn pop_event(&mut self) -> Option<ObjectReceiverEvent> {
        self.events.pop_front()
    }

    /// Gives every transfer up; the senders are told why. One that waits for its only transfer is
    /// over.
    pub fn cancel(&mut self, now: Instant, text: &str) {
        self.is_cancelled = true;
        let has_one = self.transfers.iter().any(|t| t.state != State::Leaving);
        if self.config.is_single && !has_one {
            let (code, text) = (ErrorCode::Cancelled, text.to_owned());
            let event = PlanReceiverEvent::Failed { code, text };
            self.event(ObjectReceiverEvent::Plan { transfer: 0, event });
        }
        for transfer in &mut self.transfers {
            transfer.plan.cancel(now, text);
        }
        self.settle_all(now);
    }

    /// Gives one transfer up; its sender is told why. Nothing when it is over.
    pub fn cancel_transfer(&mut self, now: Instant, number: u32, text: &str) {
        if let Some(transfer) = self.by_number(number) {
            transfer.plan.cancel(now, text);
            self.settle_all(now);
        }
    }

    /// True when it will receive nothing more: its only transfer is over, or it was cancelled.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let all_over = || self.transfers.iter().all(|t| t.plan.is_over());
        let has_been = self.config.is_single && self.plan().is_some_and(PlanReceiver::is_over);
        has_been || (self.is_cancelled && all_over())
    }

    /// True when nothing is left to be said on any connection.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.strays.is_empty() && self.transfers.iter().all(|t| t.plan.is_idle())
    }

    /// Packets that the kernel has dropped so far for want of buffer space: the owner knows.
    pub const fn set_host_drops(&mut self, packets: u64) {
        self.host_drops = packets;
    }

    /// The PGM receiver.
    pub const fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    /// The owner's decisions.
    pub const fn intake(&self) -> &I {
        &self.intake
    }

    /// The owner's decisions.
    pub const fn intake_mut(&mut self) -> &mut I {
        &mut self.intake
    }

    /// Every transfer that is under way, with its number and its sender.
    pub fn transfers(&self) -> impl Iterator<Item = (u32, &Sender, &PlanReceiver<I::Store>)> {
        let taken = self.transfers.iter().filter(|t| t.state == State::Accepted);
        taken.map(|t| (t.number, &t.sender, &t.plan))
    }

    /// The plan that was taken first of those that are there, or the sender that is being asked.
    #[must_use]
    pub fn plan(&self) -> Option<&PlanReceiver<I::Store>> {
        let taken = self.transfers.iter().find(|t| t.state == State::Accepted);
        let first = taken.or_else(|| self.transfers.first())?;
        Some(&first.plan)
    }

    /// How far the transfer is that [`ObjectReceiver::plan`] gives.
    #[must_use]
    pub fn progress(&self) -> ReceiverProgress {
        let waiting = ReceiverProgress {
            phase: Phase::Joining,
            content_bytes: 0,
            numbers: Progressed::default(),
        };
        self.plan().map_or(waiting, PlanReceiver::progress)
    }

    /// Packets thrown away, by reason.
    pub const fn drops(&self) -> &DropCounters {
        self.receiver.drops()
    }

    /// What has been counted over all transfers.
    pub const fn counters(&self) -> &ObjectReceiverCounters {
        &self.counters
    }

    /// What the plan receivers have counted, those that are gone included.
    pub fn plan_counters(&self) -> PlanReceiverCounters {
        let mut sum = self.past;
        for transfer in &self.transfers {
            sum += transfer.plan.counters();
        }
        sum
    }

    /// Hands a block to the transfer whose sender sent it.
    #[inline]
    fn block(transfers: &mut [Transfer<I::Store>], now: Instant, session: u32, payload: &[u8]) {
        if let Some(transfer) = transfers.iter_mut().find(|t| t.session == Some(session)) {
            transfer.plan.handle_block(now, payload);
        }
    }

    fn pop_ready(&mut self, now: Instant) {
        while let Some(ready) = self.receiver.pop_ready() {
            match ready {
                // What came before its session was found: the payload is whole all the same.
                Ready::Message { session, data, .. } => {
                    Self::block(&mut self.transfers, now, session, data);
                }
                Ready::Mark {
                    session,
                    mark,
                    source,
                } => self.mark(now, session, &mark, source),
                Ready::Ended { session }
                | Ready::Expired { session }
                | Ready::Reset { session } => {
                    let mut all = self.transfers.iter_mut();
                    if let Some(transfer) = all.find(|t| t.session == Some(session)) {
                        transfer.session = None;
                        if let Some(at) = self.receiver.position(session) {
                            transfer.observe(now, &at, self.host_drops, false);
                        }
                        transfer.plan.session_over(now);
                    }
                }
                // Found says nothing a mark does not; what is lost is asked for after the pass.
                Ready::Found { .. } | Ready::Lost { .. } => {}
            }
        }
    }

    // Senders.

    /// A session of objects was heard: follows it for its transfer, or asks a new sender.
    fn mark(&mut self, now: Instant, session: u32, mark: &Mark, source: IpAddr) {
        // Reports go to the host that the packets and the NAKs belong to, and to no third one.
        let nla = self.receiver.position(session).and_then(|at| at.path_nla);
        let is_wanted = mark.check(FEATURES).is_ok()
            && nla == Some(source)
            && mark.profile == Profile::Objects
            && mark.control_port != 0;
        if !is_wanted {
            return;
        }
        let sender = Sender {
            address: SocketAddr::new(source, mark.control_port),
            session: mark.session_id,
        };
        if let Some(transfer) = self.transfers.iter_mut().find(|t| t.sender == sender) {
            if transfer.session.is_none() && transfer.state != State::Leaving {
                transfer.session = Some(session);
                transfer.plan.session_back();
            }
            transfer.plan.mark(now, mark);
            if transfer.state == State::Accepted {
                // It answered from the address of the packets: no forgery.
                self.receiver.vouch(session);
            }
            return;
        }
        if self.is_cancelled || self.is_barred(&sender) {
            // Nothing of it is wanted: no repairs either.
            self.receiver.forget(session);
        } else if self.has_place(session, &sender) {
            self.ask(now, session, sender, mark.receiver_count);
        }
    }

    /// True when a sender may be asked at this moment what it has.
    fn has_place(&mut self, session: u32, sender: &Sender) -> bool {
        let is_alive = |t: &&Transfer<I::Store>| t.state == State::Accepted && !t.plan.is_over();
        let taken = self.transfers.iter().filter(is_alive).count();
        if self.config.is_single && (taken > 0 || self.is_over()) {
            // Only the transfer's own sender is of interest, in case it was restarted.
            let is_host = self.host_of_single() == Some(sender.address.ip()) && !self.is_over();
            if !is_host {
                self.receiver.forget(session);
                return false;
            }
        } else if taken >= self.config.plans_max {
            // Who goes on with a plan takes no place of its own.
            let may_continue = |t: &&Transfer<I::Store>| {
                let is_host = t.sender.address.ip() == sender.address.ip();
                is_alive(t) && (is_host || !t.plan.is_connected())
            };
            if !self.transfers.iter().any(|t| may_continue(&t)) {
                self.full(*sender);
                return false;
            }
        }
        let asking = self.transfers.iter().filter(|t| t.state == State::Asking);
        asking.count() < self.config.prospects_max
    }

    /// Where the sender of the only transfer is.
    fn host_of_single(&self) -> Option<IpAddr> {
        let mut taken = self.transfers.iter().filter(|t| t.state == State::Accepted);
        taken.next().map(|transfer| transfer.sender.address.ip())
    }

    fn full(&mut self, sender: Sender) {
        if self.note(sender, false) {
            self.counters.senders_full += 1;
            let count = self.config.plans_max;
            let text = format!("{count} transfers are under way, the most taken at a time");
            self.refused(sender, text);
        }
    }

    fn ask(&mut self, now: Instant, session: u32, sender: Sender, receiver_count: u32) {
        self.counters.senders_heard += 1;
        if let Err(text) = self.intake.admit(&sender) {
            self.counters.senders_refused += 1;
            self.note(sender, true);
            self.receiver.forget(session);
            return self.refused(sender, text);
        }
        let number = self.next_number;
        self.next_number = self.next_number.wrapping_add(1);
        let mut config = self.config.plan.clone();
        config.number = number;
        config.seed = config.seed.wrapping_add(number.into());
        let mut plan = PlanReceiver::prospect(config, now);
        plan.dial(now, sender.address, sender.session, receiver_count);
        self.transfers.push(Transfer {
            number,
            sender,
            session: Some(session),
            state: State::Asking,
            host_drops_before: self.host_drops,
            plan,
        });
    }

    /// Remembers a sender that was turned away; true when it was not known as such.
    fn note(&mut self, sender: Sender, is_barred: bool) -> bool {
        if let Some(known) = self.known.iter_mut().find(|known| known.sender == sender) {
            known.is_barred |= is_barred;
            return false;
        }
        if self.known.len() >= KNOWN_MAX {
            self.known.pop_front();
        }
        self.known.push_back(Known { sender, is_barred });
        true
    }

    fn is_barred(&self, sender: &Sender) -> bool {
        let mut known = self.known.iter();
        known.any(|known| known.is_barred && known.sender == *sender)
    }

    // Transfers.

    /// Looks at what a transfer's last step has led to.
    fn settle(&mut self, now: Instant, index: usize) {
        if let Some(offer) = self.transfers[index].plan.offer() {
            self.decide(now, index, &offer);
        }
        let transfer = &mut self.transfers[index];
        let is_over = transfer.plan.is_over();
        if transfer.state == State::Asking && is_over && self.config.is_single {
            // Refused for a reason that lies with this end: so would it be by the next.
            transfer.state = State::Accepted;
        }
        match transfer.state {
            State::Asking if is_over || transfer.plan.session().is_none() => {
                self.not_taken_in(index);
            }
            State::Asking => self.tell_name_taken(index),
            State::Leaving => while transfer.plan.pop_event().is_some() {},
            State::Accepted => self.tell(index),
        }
    }

    /// Passes on the one thing that matters of a transfer which has not begun.
    fn tell_name_taken(&mut self, index: usize) {
        let transfer = self.transfers[index].number;
        while let Some(event) = self.transfers[index].plan.pop_event() {
            if matches!(event, PlanReceiverEvent::NameTaken { .. }) {
                self.event(ObjectReceiverEvent::Plan { transfer, event });
            }
        }
    }

    /// Passes on what happened in a transfer, and leaves it when it is over.
    fn tell(&mut self, index: usize) {
        let transfer = self.transfers[index].number;
        while let Some(event) = self.transfers[index].plan.pop_event() {
            self.event(ObjectReceiverEvent::Plan { transfer, event });
        }
        let plan = &self.transfers[index].plan;
        if plan.is_over() && plan.is_idle() && !self.config.is_single {
            let progress = plan.progress();
            self.leave(index);
            self.event(ObjectReceiverEvent::Left { transfer, progress });
        }
    }

    fn settle_all(&mut self, now: Instant) {
        for index in 0..self.transfers.len() {
            self.settle(now, index);
        }
        let is_gone = |t: &Transfer<I::Store>| t.state == State::Leaving && t.plan.is_idle();
        for transfer in self.transfers.iter().filter(|t| is_gone(t)) {
            self.past += transfer.plan.counters();
        }
        self.transfers.retain(|transfer| !is_gone(transfer));
    }

    /// Nothing more is wanted of the transfer's sender.
    fn leave(&mut self, index: usize) {
        let transfer = &mut self.transfers[index];
        transfer.state = State::Leaving;
        let sender = transfer.sender;
        if let Some(session) = transfer.session.take() {
            self.receiver.forget(session);
        }
        self.note(sender, true);
    }

    /// The sender did not take this receiver in, or is not believed.
    fn not_taken_in(&mut self, index: usize) {
        let transfer = &mut self.transfers[index];
        let sender = transfer.sender;
        let mut events = std::iter::from_fn(|| transfer.plan.pop_event());
        let text = events.find_map(|event| match event {
            PlanReceiverEvent::Failed { text, .. } => Some(text),
            PlanReceiverEvent::PassedOver { text, .. } => Some(text),
            _ => None,
        });
        self.leave(index);
        let text = text.unwrap_or_else(|| "it did not take this receiver in".to_owned());
        self.refused(sender, text);
    }

    /// A sender offers a plan: goes on with it, takes it, or declines.
    fn decide(&mut self, now: Instant, index: usize, offer: &Offer) {
        let sender = self.transfers[index].sender;
        let twin = self.transfers.iter().position(|t| {
            t.state == State::Accepted && !t.plan.is_over() && t.plan.plan_id() == Some(offer.plan)
        });
        let answer = match twin {
            Some(twin) if self.may_take_over(twin, &sender) => {
                return self.continue_in(now, twin, index);
            }
            Some(twin) => Err(Decline {
                code: ErrorCode::Limit,
                text: format!(
                    "the same plan is being received from {}",
                    self.transfers[twin].sender.address
                ),
            }),
            None => self.check_bounds(offer),
        };
        let answer = answer.and_then(|()| self.intake.accept(&sender, offer));
        match answer {
            Ok(store) => {
                self.give_way(now, &sender);
                self.counters.plans_accepted += 1;
                let transfer = &mut self.transfers[index];
                transfer.state = State::Accepted;
                transfer.plan.accept(now, store);
                let (transfer, offer) = (transfer.number, *offer);
                self.event(ObjectReceiverEvent::Accepted { transfer, offer });
            }
            Err(decline) => {
                self.counters.plans_declined += 1;
                let plan = &mut self.transfers[index].plan;
                plan.decline(now, decline.code, &decline.text);
                self.leave(index);
                self.refused(sender, decline.text);
            }
        }
    }

    /// True for the only transfer of a receiver when its sender has given it up and offers another
    /// plan now, unless the store is putting everything in place.
    fn gives_way(&self, transfer: &Transfer<I::Store>, host: IpAddr) -> bool {
        self.config.is_single
            && transfer.state == State::Accepted
            && transfer.plan.is_given_up()
            && transfer.plan.progress().phase != Phase::Committing
            && transfer.sender.address.ip() == host
    }

    /// Ends the transfer that gives way to another plan of its sender.
    fn give_way(&mut self, now: Instant, sender: &Sender) {
        let host = sender.address.ip();
        let former = self.transfers.iter().position(|t| self.gives_way(t, host));
        if let Some(index) = former {
            let text = "the sender gave this receiver up, and sends something else";
            self.transfers[index].plan.cancel(now, text);
            self.tell(index);
            self.leave(index);
        }
    }

    /// Whether a sender that offers a transfer's plan is believed to be its sender, restarted.
    fn may_take_over(&self, twin: usize, sender: &Sender) -> bool {
        let twin = &self.transfers[twin];
        twin.sender.address.ip() == sender.address.ip() || !twin.plan.is_connected()
    }

    fn continue_in(&mut self, now: Instant, twin: usize, index: usize) {
        self.counters.plans_continued += 1;
        let asked = &mut self.transfers[index];
        asked.plan.withdraw(now);
        asked.state = State::Leaving;
        let (sender, session) = (asked.sender, asked.session.take());
        let twin = &mut self.transfers[twin];
        let (former, former_session) = (twin.sender, twin.session);
        twin.sender = sender;
        twin.session = session;
        twin.plan.redirect(now, sender.address, sender.session);
        let transfer = twin.number;
        if let Some(session) = former_session {
            self.receiver.forget(session);
        }
        self.note(former, true);
        self.event(ObjectReceiverEvent::Continued { transfer, sender });
    }

    fn check_bounds(&self, offer: &Offer) -> Result<(), Decline> {
        let host = offer.peer.ip();
        let taken = self.transfers.iter().filter(|t| t.state == State::Accepted);
        let taken = taken.filter(|t| !self.gives_way(t, host));
        let limit = |text: String| Decline {
            code: ErrorCode::Limit,
            text,
        };
        let (mut count, mut bytes) = (0, offer.manifest_bytes);
        for transfer in taken.filter(|t| !t.plan.is_over()) {
            count += 1;
            bytes = bytes.saturating_add(transfer.plan.manifest_bytes());
        }
        let (plans_max, bytes_max) = (self.config.plans_max, self.config.manifest_bytes_max);
        if count >= plans_max {
            return Err(limit(format!(
                "{plans_max} transfers are under way, the most that this receiver takes at a time"
            )));
        }
        if bytes > bytes_max {
            return Err(limit(format!(
                "manifests of {bytes} bytes in all, where this receiver keeps {bytes_max}"
            )));
        }
        Ok(())
    }

    fn follow_streams(&mut self, now: Instant) {
        let counters = self.receiver.counters();
        let seen = counters.seen_packets;
        let is_empty = std::mem::replace(&mut self.seen_packets, seen) == seen;
        for transfer in &mut self.transfers {
            let Some(session) = transfer.session else {
                continue;
            };
            if let Some(at) = self.receiver.position(session) {
                transfer.observe(now, &at, self.host_drops, is_empty);
            }
        }
    }

    fn by_number(&mut self, number: u32) -> Option<&mut Transfer<I::Store>> {
        self.transfers.iter_mut().find(|t| t.number == number)
    }

    fn refused(&mut self, sender: Sender, text: String) {
        self.event(ObjectReceiverEvent::Refused { sender, text });
    }

    fn event(&mut self, event: ObjectReceiverEvent) {
        if self.events.len() >= EVENTS_MAX {
            self.counters.events_lost += 1;
            self.events.pop_front();
        }
        self.events.push_back(event);
    }
}

impl<S: Store> Transfer<S> {
    /// Tells the plan where its packet stream is, and what the kernel has dropped in all.
    fn observe(&mut self, now: Instant, at: &Position, host_drops: u64, is_caught_up: bool) {
        let host_drops = host_drops.saturating_sub(self.host_drops_before);
        let stream = stream_of(at, host_drops, is_caught_up);
        self.plan.observe(now, &stream);
    }
}

impl<I: Intake> Handle<()> for ObjectReceiver<I> {
    #[inline]
    fn handle(&mut self, now: Instant, arrival: &Arrival, tpdu: &[u8], (): &mut ()) {
        if let Verdict::Payload { session, range, .. } = self.receiver.handle(now, arrival, tpdu) {
            Self::block(&mut self.transfers, now, session, &tpdu[range]);
        }
        if self.receiver.has_ready() {
            self.pop_ready(now);
        }
    }

    fn drain(&mut self, now: Instant, (): &mut ()) {
        self.pop_ready(now);
        for transfer in &mut self.transfers {
            transfer.plan.poll_store(now);
        }
        self.follow_streams(now);
        self.settle_all(now);
    }

    fn handle_timeout(&mut self, now: Instant, (): &mut ()) {
        self.receiver.handle_timeout(now);
        for transfer in &mut self.transfers {
            transfer.plan.handle_timeout(now);
        }
        self.settle_all(now);
    }
}

impl<I: Intake> Endpoint for ObjectReceiver<I> {
    fn handle_link(&mut self, now: Instant, link: LinkId, event: LinkEvent, data: &[u8]) {
        let is_its = |t: &Transfer<I::Store>| t.plan.has_link(link);
        if let Some(index) = self.transfers.iter().position(is_its) {
            let plan = &mut self.transfers[index].plan;
            plan.handle_link(now, link, event, data);
            self.settle(now, index);
        } else if matches!(event, LinkEvent::Accepted { .. }) {
            self.strays.push_back(link);
        }
    }

    fn poll_link(&mut self) -> Option<LinkCommand<'_>> {
        if let Some(link) = self.strays.pop_front() {
            return Some(LinkCommand::Close { link });
        }
        let count = self.transfers.len();
        let mut order = (0..count).map(|n| (self.turn + n) % count);
        let index = order.find(|&index| self.transfers[index].plan.has_link_command())?;
        self.turn = index + 1;
        self.transfers[index].plan.poll_link()
    }

    fn link_sent(&mut self, link: LinkId, taken: usize) {
        let mut all = self.transfers.iter_mut();
        if let Some(transfer) = all.find(|t| t.plan.has_link(link)) {
            transfer.plan.link_sent(link, taken);
        }
    }

    fn link_opened(&mut self, key: u32, link: LinkId) {
        match self.by_number(key) {
            Some(transfer) => transfer.plan.link_opened(key, link),
            None => self.strays.push_back(link),
        }
    }

    fn poll_run(&mut self, now: Instant, budget: Budget) -> Option<Run<'_>> {
        self.receiver.poll_run(now, budget)
    }

    fn run_done(&mut self, now: Instant, outcome: Outcome) {
        self.receiver.run_done(now, outcome);
    }

    fn next_timeout(&self) -> Option<Instant> {
        let plans = self.transfers.iter().filter_map(|t| t.plan.next_timeout());
        base::earliest(self.receiver.next_timeout(), plans.min())
    }
}

/// Optional features of the object profile that this end knows: none exist yet.
const FEATURES: u16 = 0;

/// Senders remembered as turned away; the oldest is forgotten, and asked again.
const KNOWN_MAX: usize = 64;

/// Events kept for an owner that does not take them.
const EVENTS_MAX: usize = 4096;

#[cfg(test)]
mod tests;
