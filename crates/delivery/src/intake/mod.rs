//! The transfers of one receiver: who is asked what it has, what is taken, and who goes on with it.
//!
//! ```text
//!                     .--> Transfer 0: PlanReceiver --> Store
//!  payloads, marks ---+--> Transfer 1: PlanReceiver --> Store      by packet stream: never mixed
//!  of the streams     '--> (prospect)  PlanReceiver --> none yet
//!               |
//!        Intake::admit --> dial --> WELCOME names the plan --> Intake::accept --> Store
//! ```
//!
//! Packets are the owner's: it hands in the payloads and marks of its packet streams by number, and
//! where each stands once a turn; [`Transfers::pop_verdict`] says which streams it need not follow.
//!
//! A sender's restart is a new session that offers a plan already under way: the transfer goes on
//! in it with what it holds, and the connection by which that was found out is dropped.
//!
//! Invariants: blocks reach only the transfer whose sender's stream they are of; nothing is dialled
//! or kept for a sender that is not admitted, except its address in a bounded list; at most
//! `plans_max` transfers and `prospects_max` connections beside them.

use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
};

use base::{Instant, LinkEvent, LinkId};
use wire::{
    object::{ErrorCode, Phase, Progressed},
    pgm::{Mark, Profile},
};

use crate::{
    LinkCommand, Offer, PlanReceiver, PlanReceiverCounters, PlanReceiverEvent, ReceiverProgress,
    Store, StreamState,
};

mod admission;
use admission::{Decision, Place, TurnedAway};

mod config;
pub use config::{
    Decline, Intake, ObjectReceiverConfig, ObjectReceiverCounters, ObjectReceiverEvent, Sender,
    TakeFirst,
};

/// Receives the plans of all senders of a group that its owner wants; or one, and ends.
#[derive(Debug)]
pub struct Transfers<I: Intake> {
    intake: I,
    config: ObjectReceiverConfig,
    all: Vec<Transfer<I::Store>>,
    /// Connections that belong to nobody.
    strays: VecDeque<LinkId>,
    next_number: u32,
    /// Whose control connections are served next.
    turn: usize,
    turned_away: TurnedAway,
    is_cancelled: bool,
    verdicts: VecDeque<StreamVerdict>,
    events: VecDeque<ObjectReceiverEvent>,
    counters: ObjectReceiverCounters,
    /// What transfers that are gone had counted.
    past: PlanReceiverCounters,
}

/// A mark, and the packets that it came with.
#[derive(Clone, Copy, Debug)]
pub struct Heard<'a> {
    /// The number of their stream.
    pub stream: u32,
    /// What the sender says of itself.
    pub mark: &'a Mark,
    /// The address that they came from.
    pub source: IpAddr,
    /// The address that their requests for repairs go to.
    pub path_nla: Option<IpAddr>,
}

/// What the owner is told of one of its packet streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamVerdict {
    /// Its sender answered from the address of the packets: no forgery.
    Genuine(u32),
    /// Nothing of it is wanted: no repairs either.
    Unwanted(u32),
}

/// One sender's plan on its way into a store.
#[derive(Debug)]
struct Transfer<S> {
    number: u32,
    sender: Sender,
    /// The packet stream that blocks are taken from; none while it is over or not found again.
    stream: Option<u32>,
    state: State,
    /// What the kernel had dropped when the stream was first looked at.
    host_drops_before: Option<u64>,
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

impl<I: Intake> Transfers<I> {
    /// None yet; those that `intake` wants are going to be received.
    #[must_use]
    pub fn new(config: ObjectReceiverConfig, intake: I) -> Self {
        Self {
            intake,
            config,
            all: Vec::new(),
            strays: VecDeque::new(),
            next_number: 0,
            turn: 0,
            turned_away: TurnedAway::default(),
            is_cancelled: false,
            verdicts: VecDeque::new(),
            events: VecDeque::new(),
            counters: ObjectReceiverCounters::default(),
            past: PlanReceiverCounters::default(),
        }
    }

    /// What happened since.
    pub fn pop_event(&mut self) -> Option<ObjectReceiverEvent> {
        self.events.pop_front()
    }

    /// What was found out about a packet stream; to be asked after every other call.
    pub fn pop_verdict(&mut self) -> Option<StreamVerdict> {
        self.verdicts.pop_front()
    }

    /// Gives every transfer up; the senders are told why. One that waits for its only transfer is
    /// over.
    pub fn cancel(&mut self, now: Instant, text: &str) {
        self.is_cancelled = true;
        let has_one = self.all.iter().any(|t| t.state != State::Leaving);
        if self.config.is_single && !has_one {
            let (code, text) = (ErrorCode::Cancelled, text.to_owned());
            let event = PlanReceiverEvent::Failed { code, text };
            self.event(ObjectReceiverEvent::Plan { transfer: 0, event });
        }
        for transfer in &mut self.all {
            transfer.plan.cancel(now, text);
        }
        self.settle_all(now);
    }

    /// Gives one transfer up; its sender is told why. Nothing when it is over.
    pub fn cancel_one(&mut self, now: Instant, number: u32, text: &str) {
        if let Some(transfer) = self.by_number(number) {
            transfer.plan.cancel(now, text);
            self.settle_all(now);
        }
    }

    /// True when it will receive nothing more: its only transfer is over, or it was cancelled.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let all_over = || self.all.iter().all(|t| t.plan.is_over());
        let has_been = self.config.is_single && self.first().is_some_and(PlanReceiver::is_over);
        has_been || (self.is_cancelled && all_over())
    }

    /// True when nothing is left to be said on any connection.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.strays.is_empty() && self.all.iter().all(|t| t.plan.is_idle())
    }

    /// Every transfer that is under way, with its number and its sender.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Sender, &PlanReceiver<I::Store>)> {
        self.taken().map(|t| (t.number, &t.sender, &t.plan))
    }

    /// The plan that was taken first of those that are there, or the sender that is being asked.
    #[must_use]
    pub fn first(&self) -> Option<&PlanReceiver<I::Store>> {
        let first = self.taken().next().or_else(|| self.all.first())?;
        Some(&first.plan)
    }

    /// How far the transfer is that [`Transfers::first`] gives.
    #[must_use]
    pub fn progress(&self) -> ReceiverProgress {
        let waiting = ReceiverProgress {
            phase: Phase::Joining,
            content_bytes: 0,
            numbers: Progressed::default(),
        };
        self.first().map_or(waiting, PlanReceiver::progress)
    }

    /// What has been counted over all transfers.
    pub const fn counters(&self) -> &ObjectReceiverCounters {
        &self.counters
    }

    /// What the plan receivers have counted, those that are gone included.
    pub fn plan_counters(&self) -> PlanReceiverCounters {
        let mut sum = self.past;
        for transfer in &self.all {
            sum += transfer.plan.counters();
        }
        sum
    }

    // Packet streams.

    /// Hands a block to the transfer whose sender sent it.
    #[inline]
    pub fn handle_block(&mut self, now: Instant, stream: u32, payload: &[u8]) {
        if let Some(transfer) = self.by_stream(stream) {
            transfer.plan.handle_block(now, payload);
        }
    }

    /// Takes what the packet streams tell, as `state_of` gives it by their numbers, and what the
    /// stores have finished. To be called once a turn.
    pub fn observe(&mut self, now: Instant, state_of: impl Fn(u32) -> Option<StreamState>) {
        for transfer in &mut self.all {
            transfer.plan.poll_store(now);
        }
        for transfer in &mut self.all {
            if let Some(state) = transfer.stream.and_then(&state_of) {
                transfer.observe(now, state);
            }
        }
        self.settle_all(now);
    }

    /// A packet stream is over, and stood at `last`: ended, expired or reset.
    pub fn stream_over(&mut self, now: Instant, stream: u32, last: Option<StreamState>) {
        if let Some(transfer) = self.by_stream(stream) {
            transfer.stream = None;
            if let Some(last) = last {
                transfer.observe(now, last);
            }
            transfer.plan.session_over(now);
        }
    }

    /// A mark was heard: follows its stream for its sender's transfer, or asks a new sender.
    pub fn mark(&mut self, now: Instant, heard: &Heard<'_>) {
        let &Heard { stream, mark, .. } = heard;
        // Reports go to the host that the packets and the NAKs belong to, and to no third one.
        let is_wanted = mark.check(FEATURES).is_ok()
            && heard.path_nla == Some(heard.source)
            && mark.profile == Profile::Objects
            && mark.control_port != 0;
        if !is_wanted {
            return;
        }
        let sender = Sender {
            address: SocketAddr::new(heard.source, mark.control_port),
            session: mark.session_id,
        };
        if let Some(transfer) = self.all.iter_mut().find(|t| t.sender == sender) {
            if transfer.stream.is_none() && transfer.state != State::Leaving {
                transfer.stream = Some(stream);
                transfer.plan.session_back();
            }
            transfer.plan.mark(now, mark);
            if transfer.state == State::Accepted {
                self.verdicts.push_back(StreamVerdict::Genuine(stream));
            }
            return;
        }
        if self.is_cancelled || self.turned_away.is_barred(&sender) {
            return self.unwanted(stream);
        }
        match self.place_for(&sender) {
            Place::Free => self.ask(now, stream, sender, mark.receiver_count),
            Place::Later => {}
            Place::Full => self.full(sender),
            Place::Never => self.unwanted(stream),
        }
    }

    fn full(&mut self, sender: Sender) {
        if self.turned_away.note(sender, false) {
            self.counters.senders_full += 1;
            let count = self.config.plans_max;
            let text = format!("{count} transfers are under way, the most taken at a time");
            self.refused(sender, text);
        }
    }

    fn ask(&mut self, now: Instant, stream: u32, sender: Sender, receiver_count: u32) {
        self.counters.senders_heard += 1;
        if let Err(text) = self.intake.admit(&sender) {
            self.counters.senders_refused += 1;
            self.turned_away.note(sender, true);
            self.unwanted(stream);
            return self.refused(sender, text);
        }
        let number = self.next_number;
        self.next_number = self.next_number.wrapping_add(1);
        let mut config = self.config.plan.clone();
        config.number = number;
        config.seed = config.seed.wrapping_add(number.into());
        let mut plan = PlanReceiver::prospect(config, now);
        plan.dial(now, sender.address, sender.session, receiver_count);
        self.all.push(Transfer {
            number,
            sender,
            stream: Some(stream),
            state: State::Asking,
            host_drops_before: None,
            plan,
        });
    }

    // Transfers.

    /// Looks at what a transfer's last step has led to.
    fn settle(&mut self, now: Instant, index: usize) {
        if let Some(offer) = self.all[index].plan.offer() {
            self.offered(now, index, offer);
        }
        let transfer = &mut self.all[index];
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
        let transfer = self.all[index].number;
        while let Some(event) = self.all[index].plan.pop_event() {
            if matches!(event, PlanReceiverEvent::NameTaken { .. }) {
                self.event(ObjectReceiverEvent::Plan { transfer, event });
            }
        }
    }

    /// Passes on what happened in a transfer, and leaves it when it is over.
    fn tell(&mut self, index: usize) {
        let transfer = self.all[index].number;
        while let Some(event) = self.all[index].plan.pop_event() {
            self.event(ObjectReceiverEvent::Plan { transfer, event });
        }
        let plan = &self.all[index].plan;
        if plan.is_over() && plan.is_idle() && !self.config.is_single {
            let progress = plan.progress();
            self.leave(index);
            self.event(ObjectReceiverEvent::Left { transfer, progress });
        }
    }

    fn settle_all(&mut self, now: Instant) {
        for index in 0..self.all.len() {
            self.settle(now, index);
        }
        let is_gone = |t: &Transfer<I::Store>| t.state == State::Leaving && t.plan.is_idle();
        for transfer in self.all.iter().filter(|t| is_gone(t)) {
            self.past += transfer.plan.counters();
        }
        self.all.retain(|transfer| !is_gone(transfer));
    }

    /// Nothing more is wanted of the transfer's sender.
    fn leave(&mut self, index: usize) {
        let transfer = &mut self.all[index];
        transfer.state = State::Leaving;
        let (sender, stream) = (transfer.sender, transfer.stream.take());
        if let Some(stream) = stream {
            self.unwanted(stream);
        }
        self.turned_away.note(sender, true);
    }

    /// The sender did not take this receiver in, or is not believed.
    fn not_taken_in(&mut self, index: usize) {
        let transfer = &mut self.all[index];
        let sender = transfer.sender;
        let mut events = std::iter::from_fn(|| transfer.plan.pop_event());
        let text = events.find_map(|event| match event {
            PlanReceiverEvent::Failed { text, .. } | PlanReceiverEvent::PassedOver { text, .. } => {
                Some(text)
            }
            _ => None,
        });
        self.leave(index);
        let text = text.unwrap_or_else(|| "it did not take this receiver in".to_owned());
        self.refused(sender, text);
    }

    /// A sender offers a plan: goes on with it, takes it, or declines.
    fn offered(&mut self, now: Instant, index: usize, offer: Offer) {
        let sender = self.all[index].sender;
        match self.decide(&sender, &offer) {
            Decision::Continue(twin) => self.continue_in(now, twin, index),
            Decision::Take(store) => {
                self.give_way(now, sender.address.ip());
                self.counters.plans_accepted += 1;
                let transfer = &mut self.all[index];
                transfer.state = State::Accepted;
                transfer.plan.accept(now, store);
                let transfer = transfer.number;
                self.event(ObjectReceiverEvent::Accepted { transfer, offer });
            }
            Decision::Decline(decline) => {
                self.counters.plans_declined += 1;
                let plan = &mut self.all[index].plan;
                plan.decline(now, decline.code, &decline.text);
                self.leave(index);
                self.refused(sender, decline.text);
            }
        }
    }

    /// Ends the transfer that gives way to another plan of its sender.
    fn give_way(&mut self, now: Instant, host: IpAddr) {
        let former = self.all.iter().position(|t| self.gives_way(t, host));
        if let Some(index) = former {
            let text = "the sender gave this receiver up, and sends something else";
            self.all[index].plan.cancel(now, text);
            self.tell(index);
            self.leave(index);
        }
    }

    fn continue_in(&mut self, now: Instant, twin: usize, index: usize) {
        self.counters.plans_continued += 1;
        let asked = &mut self.all[index];
        asked.plan.withdraw(now);
        asked.state = State::Leaving;
        let (sender, stream) = (asked.sender, asked.stream.take());
        let twin = &mut self.all[twin];
        let former = std::mem::replace(&mut twin.sender, sender);
        let former_stream = std::mem::replace(&mut twin.stream, stream);
        twin.plan.redirect(now, sender.address, sender.session);
        let transfer = twin.number;
        if let Some(stream) = former_stream {
            self.unwanted(stream);
        }
        self.turned_away.note(former, true);
        self.event(ObjectReceiverEvent::Continued { transfer, sender });
    }

    fn taken(&self) -> impl Iterator<Item = &Transfer<I::Store>> {
        self.all.iter().filter(|t| t.state == State::Accepted)
    }

    fn by_number(&mut self, number: u32) -> Option<&mut Transfer<I::Store>> {
        self.all.iter_mut().find(|t| t.number == number)
    }

    #[inline]
    fn by_stream(&mut self, stream: u32) -> Option<&mut Transfer<I::Store>> {
        self.all.iter_mut().find(|t| t.stream == Some(stream))
    }

    fn unwanted(&mut self, stream: u32) {
        self.verdicts.push_back(StreamVerdict::Unwanted(stream));
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

    // Control connections and time.

    /// Handles what happened on a control connection; `data` holds the bytes of
    /// [`LinkEvent::Data`].
    pub fn handle_link(&mut self, now: Instant, link: LinkId, event: LinkEvent, data: &[u8]) {
        if let Some(index) = self.all.iter().position(|t| t.plan.has_link(link)) {
            let plan = &mut self.all[index].plan;
            plan.handle_link(now, link, event, data);
            self.settle(now, index);
        } else if matches!(event, LinkEvent::Accepted { .. }) {
            self.strays.push_back(link);
        }
    }

    /// The next thing to do on a control connection; every transfer has its turn.
    pub fn poll_link(&mut self) -> Option<LinkCommand<'_>> {
        if let Some(link) = self.strays.pop_front() {
            return Some(LinkCommand::Close { link });
        }
        let count = self.all.len();
        let mut order = (0..count).map(|n| (self.turn + n) % count);
        let index = order.find(|&index| self.all[index].plan.has_link_command())?;
        self.turn = index + 1;
        self.all[index].plan.poll_link()
    }

    /// The back end took `taken` bytes of the last [`LinkCommand::Send`].
    pub fn link_sent(&mut self, link: LinkId, taken: usize) {
        if let Some(transfer) = self.all.iter_mut().find(|t| t.plan.has_link(link)) {
            transfer.plan.link_sent(link, taken);
        }
    }

    /// The back end gave the connection that was asked for with `key` this number.
    pub fn link_opened(&mut self, key: u32, link: LinkId) {
        match self.by_number(key) {
            Some(transfer) => transfer.plan.link_opened(key, link),
            None => self.strays.push_back(link),
        }
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        for transfer in &mut self.all {
            transfer.plan.handle_timeout(now);
        }
        self.settle_all(now);
    }

    /// When [`Transfers::handle_timeout`] is due.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.all.iter().filter_map(|t| t.plan.next_timeout()).min()
    }
}

impl<S: Store> Transfer<S> {
    /// Tells the plan where its packet stream is, and what the kernel has dropped in its time.
    fn observe(&mut self, now: Instant, mut state: StreamState) {
        let before = self.host_drops_before.get_or_insert(state.host_drops);
        state.host_drops = state.host_drops.saturating_sub(*before);
        self.plan.observe(now, &state);
    }
}

/// Optional features of the object profile that this end knows: none exist yet.
const FEATURES: u16 = 0;

/// Events kept for an owner that does not take them.
const EVENTS_MAX: usize = 4096;

#[cfg(test)]
mod tests;
