//! The transfers of one receiver: which senders it asks for their offers, which offers it takes,
//! and which sender continues a transfer.
//!
//! ```text
//!                     .--> Transfer 0: TransferReceiver --> Store
//!  payloads, marks ---+--> Transfer 1: TransferReceiver --> Store    by packet stream: never mixed
//!  of the streams     '--> (prospect)  TransferReceiver --> none yet
//!           |
//!        Intake::admit --> dial --> WELCOME names the manifest --> Intake::accept --> Store
//! ```
//!
//! Without packets there are no marks: senders dial this receiver, and first say what a mark would
//! tell (`door`). This receiver then dials nobody.
//!
//! The owner handles the packets. It passes in the payloads and marks of its numbered packet
//! streams, and once a turn the state of each stream. [`Transfers::pop_verdict`] tells the owner
//! which streams it need not follow.
//!
//! When a sender restarts, a new session offers a manifest that is already under way. The transfer
//! then goes on in the new session with what this receiver holds already, and the connection that
//! brought the offer is dropped.
//!
//! Invariants:
//! - A block reaches only the transfer of the sender whose stream brought it.
//! - A sender that is not admitted is not dialled. Only its address and session are kept, in a
//!   bounded list.
//! - At most `transfers_max` transfers are under way, and at most `prospects_max` senders are
//!   asked.
//! - An accepted transfer keeps the stream that brings its blocks, whatever other marks say of that
//!   stream.
//! - Where senders wait in line, a sender that is asked has a place already, unless it may continue
//!   a transfer that has lost its sender.
//! - A transfer goes on only with a sender at the address of its present sender, or with a sender
//!   that has the key.

use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
};

use base::{Instant, LinkId, Rng};
use wire::{
    object::{ErrorCode, Phase, Progressed},
    pgm::{Mark, Profile},
};

use crate::{
    Offer, ReceiverProgress, Store, StreamState, TransferReceiver, TransferReceiverCounters,
    TransferReceiverEvent,
};
use crate::{
    control::{Dials, features},
    events::Events,
};

mod admission;
use admission::{Decision, Place, TurnedAway};

mod door;
use door::Door;

mod line;

mod routes;
use routes::Routes;

mod config;
pub use config::{
    Decline, Intake, ObjectReceiverConfig, ObjectReceiverCounters, ObjectReceiverEvent, Sender,
    TakeFirst,
};

/// The receiver of every manifest that its owner wants, from all senders of a group; or of one
/// manifest only.
#[derive(Debug)]
pub struct Transfers<I: Intake> {
    intake: I,
    config: ObjectReceiverConfig,
    all: Vec<Transfer<I::Store>>,
    /// Connections that belong to no transfer; they are to be closed.
    strays: VecDeque<LinkId>,
    /// Decides which dialling senders are let in; `None` when senders are announced by marks.
    door: Option<Door>,
    next_number: u32,
    routes: Routes,
    turned_away: TurnedAway,
    dials: Dials,
    rng: Rng,
    is_cancelled: bool,
    /// Verdicts that the owner has not taken yet: few, because the owner takes them within the
    /// turn.
    verdicts: VecDeque<StreamVerdict>,
    events: Events<ObjectReceiverEvent>,
    counters: ObjectReceiverCounters,
    /// The sums of the counters of transfers that are no longer in `all`.
    past: TransferReceiverCounters,
}

/// A mark, with what is known of the packets that brought it.
#[derive(Clone, Copy, Debug)]
pub struct Heard<'a> {
    /// The number of the packet stream.
    pub stream: u32,
    /// What the sender says about itself.
    pub mark: &'a Mark,
    /// The address that the packets came from.
    pub source: IpAddr,
    /// The address to which requests for repairs go.
    pub path_nla: Option<IpAddr>,
}

/// What the owner learns about one of its packet streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamVerdict {
    /// The sender answered from the address of the packets, so they are not forged.
    Genuine(u32),
    /// Nothing of the stream is wanted, not even repairs.
    Unwanted(u32),
}

/// One sender's manifest on its way into a store.
#[derive(Debug)]
struct Transfer<S> {
    number: u32,
    sender: Sender,
    /// The packet stream that brings the blocks; `None` when it is over, or none is known.
    stream: Option<u32>,
    state: State,
    /// True when the sender was asked although no place for a transfer is free, because it may
    /// continue a transfer that has lost its sender.
    is_claim: bool,
    /// How many packets the kernel had dropped when this transfer first looked at the stream.
    host_drops_before: Option<u64>,
    receiver: TransferReceiver<S>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The sender's offer is not known yet, or not decided upon.
    Asking,
    /// The offer was taken. Or this receiver is for a single transfer, which failed before that.
    /// From now on the owner gets the transfer's events.
    Accepted,
    /// The transfer is over or given up: its connections are being closed.
    Leaving,
}

impl<I: Intake> Transfers<I> {
    /// Makes an empty set of transfers. It will receive the manifests that `intake` wants.
    #[must_use]
    pub fn new(config: ObjectReceiverConfig, intake: I) -> Self {
        Self {
            intake,
            rng: Rng::new(config.receiver.seed),
            config,
            all: Vec::new(),
            strays: VecDeque::new(),
            door: None,
            next_number: 0,
            routes: Routes::default(),
            turned_away: TurnedAway::default(),
            dials: Dials::new(),
            is_cancelled: false,
            verdicts: VecDeque::new(),
            events: Events::default(),
            counters: ObjectReceiverCounters::default(),
            past: TransferReceiverCounters::default(),
        }
    }

    /// Returns the next event.
    pub fn pop_event(&mut self) -> Option<ObjectReceiverEvent> {
        self.events.pop()
    }

    /// Returns the next verdict on a packet stream. Ask after each call of another method.
    pub fn pop_verdict(&mut self) -> Option<StreamVerdict> {
        self.verdicts.pop_front()
    }

    /// Gives all transfers up, and tells the senders why. The receiver takes no further transfer.
    /// It is over once all its transfers are.
    pub fn cancel(&mut self, now: Instant, text: &str) {
        self.is_cancelled = true;
        self.close_line();
        let has_one = self.all.iter().any(|t| t.state != State::Leaving);
        if self.config.is_single && !has_one {
            let (code, text) = (ErrorCode::Cancelled, text.to_owned());
            let event = TransferReceiverEvent::Failed { code, text };
            self.event(ObjectReceiverEvent::Transfer { transfer: 0, event });
        }
        for transfer in &mut self.all {
            transfer.receiver.cancel(now, text);
        }
        self.settle_all(now);
    }

    /// Gives one transfer up, and tells its sender why. Does nothing when the transfer is over.
    pub fn cancel_one(&mut self, now: Instant, number: u32, text: &str) {
        if let Some(transfer) = self.by_number(number) {
            transfer.receiver.cancel(now, text);
            self.settle_all(now);
        }
    }

    /// Returns true when this receiver will receive nothing more: its single transfer is over, or
    /// the owner has cancelled and all transfers are over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let all_over = || self.all.iter().all(|t| t.receiver.is_over());
        // A transfer whose offer was declined is over and does not count: another may come.
        let taken_over = || self.taken().next().is_some_and(|t| t.receiver.is_over());
        (self.config.is_single && taken_over()) || (self.is_cancelled && all_over())
    }

    /// Returns true when nothing is left to be sent on any connection.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let has_told = |door: &Door| door.listener.links.is_idle();
        let is_quiet = self.strays.is_empty() && self.door.as_ref().is_none_or(has_told);
        is_quiet && self.all.iter().all(|t| t.receiver.is_idle())
    }

    /// Returns every transfer whose offer was taken, with its number and its sender.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Sender, &TransferReceiver<I::Store>)> {
        self.taken().map(|t| (t.number, &t.sender, &t.receiver))
    }

    /// Returns the oldest transfer whose offer was taken; without one, the oldest of the others.
    #[must_use]
    pub fn first(&self) -> Option<&TransferReceiver<I::Store>> {
        let first = self.taken().next().or_else(|| self.all.first())?;
        Some(&first.receiver)
    }

    /// Returns how far the transfer of [`Transfers::first`] is.
    #[must_use]
    pub fn progress(&self) -> ReceiverProgress {
        let waiting = ReceiverProgress {
            phase: Phase::Joining,
            manifest_bytes: 0,
            content_bytes: 0,
            numbers: Progressed::default(),
        };
        self.first().map_or(waiting, TransferReceiver::progress)
    }

    /// Returns the counters over all transfers.
    pub const fn counters(&self) -> &ObjectReceiverCounters {
        &self.counters
    }

    /// Returns the counters of all transfer receivers, including those that are gone.
    pub fn transfer_counters(&self) -> TransferReceiverCounters {
        let mut sum = self.past;
        for transfer in &self.all {
            sum += transfer.receiver.counters();
        }
        sum
    }

    // Packet streams.

    /// Hands a block to the transfer whose sender sent it.
    #[inline]
    pub fn handle_block(&mut self, now: Instant, stream: u32, payload: &[u8]) {
        if let Some(transfer) = self.by_stream(stream) {
            transfer.receiver.handle_block(now, payload);
        }
    }

    /// Handles what the stores have finished, and the states of the packet streams, which
    /// `state_of` returns by number. Call it once a turn.
    pub fn observe(&mut self, now: Instant, state_of: impl Fn(u32) -> Option<StreamState>) {
        for transfer in &mut self.all {
            transfer.receiver.handle_store(now);
        }
        for transfer in &mut self.all {
            if let Some(state) = transfer.stream.and_then(&state_of) {
                transfer.observe(now, state);
            }
        }
        self.settle_all(now);
        self.serve_line(now);
    }

    /// Notes that a packet stream is over (it ended, expired or was reset), and its last state.
    pub fn session_over(&mut self, now: Instant, stream: u32, last: Option<StreamState>) {
        if let Some(transfer) = self.by_stream(stream) {
            transfer.stream = None;
            if let Some(last) = last {
                transfer.observe(now, last);
            }
            transfer.receiver.session_over(now);
        }
    }

    /// Takes a mark. If its sender has a transfer, the transfer gets the mark, and follows the
    /// mark's stream if it had none. A new sender is asked for its offer, if owner and limits allow
    /// that.
    pub fn mark(&mut self, now: Instant, heard: &Heard<'_>) {
        let &Heard { stream, mark, .. } = heard;
        let sender = Sender {
            address: SocketAddr::new(heard.source, mark.control_port),
            session_id: mark.session_id,
        };
        if !self.is_host_admitted(stream, sender) {
            return;
        }
        // Reports go only to a host that both sends the packets and takes the NAKs.
        let is_ours = heard.path_nla == Some(heard.source)
            && mark.is_known()
            && mark.profile == Profile::Objects
            && mark.control_port != 0;
        if !is_ours {
            return;
        }
        if let Some(transfer) = self.all.iter_mut().find(|t| t.sender == sender) {
            if transfer.stream.is_none() && transfer.state != State::Leaving {
                transfer.stream = Some(stream);
                transfer.receiver.session_back();
            }
            transfer.receiver.mark(now, mark);
            // A mark that was copied into another stream does not make that stream genuine.
            if transfer.state == State::Accepted && transfer.stream == Some(stream) {
                self.verdicts.push_back(StreamVerdict::Genuine(stream));
            }
            return;
        }
        if self.is_cancelled || self.turned_away.is_barred(&sender) {
            return self.unwanted(stream);
        }
        let known = features(self.config.receiver.key.as_ref());
        if let Err(refusal) = mark.check(known) {
            if self.turned_away.note(sender, true, &mut self.counters) {
                self.refused(sender, refusal.to_string());
            }
            return self.unwanted(stream);
        }
        if self.turned_away.rests(now, &sender) {
            return;
        }
        match self.place_for(now, &sender) {
            Place::Free | Place::Claim => {
                self.ask(now, stream, sender, mark.receiver_count, None);
            }
            Place::InsteadOf(late) => {
                self.ask(now, stream, sender, mark.receiver_count, Some(late));
            }
            Place::Later => {}
            Place::Full => {
                let in_use = self.in_use();
                self.full(sender, &in_use);
            }
            Place::NoShare(share) => {
                let most = self.share_in_words(share, heard.source);
                self.full(sender, &format!("{most} at once, and all are under way"));
            }
            Place::Never => self.unwanted(stream),
        }
    }

    fn full(&mut self, sender: Sender, in_use: &str) {
        if self.turned_away.note(sender, false, &mut self.counters) {
            self.counters.senders_full += 1;
            let text = format!("this receiver takes {in_use}; a place must become free first");
            self.refused(sender, text);
        }
    }

    /// Asks a sender for its offer, if the owner admits the sender and the limits allow a dial.
    /// With `late`, the sender takes the place of the transfer with that index.
    fn ask(
        &mut self,
        now: Instant,
        stream: u32,
        sender: Sender,
        receiver_count: u32,
        late: Option<usize>,
    ) {
        if let Err(text) = self.intake.admit(&sender) {
            self.counters.senders_heard += 1;
            self.counters.senders_refused += 1;
            self.turned_away.note(sender, true, &mut self.counters);
            self.unwanted(stream);
            return self.refused(sender, text);
        }
        let is_first = !self.turned_away.is_known(&sender);
        let host = sender.address.ip();
        if !self.dials.take(now, host, is_first, &mut self.rng) {
            self.counters.senders_put_off += 1;
            return;
        }
        let asked = self.prospect(now, sender, Some(stream), late);
        asked.dial(now, sender.address, sender.session_id, receiver_count);
    }

    /// Makes a transfer for an admitted sender. With `late`, the new transfer takes the place of
    /// the transfer with that index.
    fn prospect(
        &mut self,
        now: Instant,
        sender: Sender,
        stream: Option<u32>,
        late: Option<usize>,
    ) -> &mut TransferReceiver<I::Store> {
        if let Some(late) = late {
            self.all[late].receiver.withdraw(now);
            self.rest(now, late);
        }
        self.counters.senders_heard += u64::from(!self.turned_away.is_known(&sender));
        let number = self.next_number;
        self.next_number = self.next_number.wrapping_add(1);
        let mut config = self.config.receiver.clone();
        config.number = number;
        config.seed = config.seed.wrapping_add(number.into());
        self.all.push(Transfer {
            number,
            sender,
            stream,
            state: State::Asking,
            is_claim: false,
            host_drops_before: None,
            receiver: TransferReceiver::prospect(config, now),
        });
        let made = self.all.last_mut().expect("it was just pushed");
        &mut made.receiver
    }

    // Transfers.

    /// Acts on what a transfer has done since the last call: its offer, its events, its end.
    fn settle(&mut self, now: Instant, index: usize) {
        if let Some(offer) = self.all[index].receiver.offer() {
            self.offered(now, index, offer);
        }
        let is_only = self.config.is_single && self.is_only(index);
        let transfer = &mut self.all[index];
        let is_over = transfer.receiver.is_over();
        if transfer.state == State::Asking && is_over && is_only {
            // The transfer failed for a reason at this end, which would stop any other, too.
            transfer.state = State::Accepted;
        }
        match transfer.state {
            State::Asking if is_over || transfer.receiver.session().is_none() => {
                self.not_taken_in(now, index);
            }
            State::Asking => self.tell_name_taken(index),
            State::Leaving => while transfer.receiver.pop_event().is_some() {},
            State::Accepted => self.tell(index),
        }
    }

    /// Passes on the event that the name is taken. No other event matters before a transfer has
    /// begun.
    fn tell_name_taken(&mut self, index: usize) {
        let transfer = self.all[index].number;
        while let Some(event) = self.all[index].receiver.pop_event() {
            if matches!(event, TransferReceiverEvent::NameTaken { .. }) {
                self.event(ObjectReceiverEvent::Transfer { transfer, event });
            }
        }
    }

    /// Passes on what happened in a transfer. Leaves the transfer when it is over, except when this
    /// receiver is for a single transfer.
    fn tell(&mut self, index: usize) {
        let transfer = self.all[index].number;
        while let Some(event) = self.all[index].receiver.pop_event() {
            self.event(ObjectReceiverEvent::Transfer { transfer, event });
        }
        let receiver = &self.all[index].receiver;
        if receiver.is_over() && receiver.is_idle() && !self.config.is_single {
            let progress = receiver.progress();
            self.leave(index);
            self.event(ObjectReceiverEvent::Left { transfer, progress });
        }
    }

    fn settle_all(&mut self, now: Instant) {
        for index in 0..self.all.len() {
            self.settle(now, index);
        }
        let is_gone = |t: &Transfer<I::Store>| t.state == State::Leaving && t.receiver.is_idle();
        for transfer in self.all.iter().filter(|t| is_gone(t)) {
            self.past += transfer.receiver.counters();
        }
        self.all.retain(|transfer| !is_gone(transfer));
    }

    /// Ends a transfer: nothing more is wanted of its sender.
    fn leave(&mut self, index: usize) {
        let transfer = &mut self.all[index];
        transfer.state = State::Leaving;
        let (sender, stream) = (transfer.sender, transfer.stream.take());
        if let Some(stream) = stream {
            self.unwanted(stream);
        }
        self.turned_away.note(sender, true, &mut self.counters);
    }

    /// Turns away a sender that refused this receiver, has not proved that it is the sender, or has
    /// not answered.
    fn not_taken_in(&mut self, now: Instant, index: usize) {
        let transfer = &mut self.all[index];
        let sender = transfer.sender;
        let mut events = std::iter::from_fn(|| transfer.receiver.pop_event());
        let why = events.find_map(|event| match event {
            TransferReceiverEvent::Failed { text, .. } => Some((text, false)),
            TransferReceiverEvent::PassedOver {
                text, is_silent, ..
            } => Some((text, is_silent)),
            _ => None,
        });
        let unsaid = || ("the sender did not take this receiver in".to_owned(), false);
        let (text, is_silent) = why.unwrap_or_else(unsaid);
        let is_news = if is_silent {
            self.rest(now, index)
        } else {
            self.leave(index);
            true
        };
        if is_news {
            self.refused(sender, text);
        }
    }

    /// Leaves a sender that has not answered; it may be asked again after a while. Returns true
    /// when the sender was not yet among those turned away.
    fn rest(&mut self, now: Instant, index: usize) -> bool {
        let transfer = &mut self.all[index];
        transfer.state = State::Leaving;
        // No verdict is given, so the owner still follows the stream: the next mark is wanted.
        transfer.stream = None;
        self.turned_away
            .rest(now, transfer.sender, &mut self.counters)
    }

    /// Returns true when, apart from the transfer at `index`, no sender is asked and no transfer is
    /// under way.
    fn is_only(&self, index: usize) -> bool {
        let mut others = self.all.iter().enumerate().filter(|&(at, _)| at != index);
        others.all(|(_, other)| other.state == State::Leaving)
    }

    /// Decides on a manifest that a sender offers: continues a transfer with it, takes it, puts the
    /// sender off, or declines the manifest.
    fn offered(&mut self, now: Instant, index: usize, offer: Offer) {
        let sender = self.all[index].sender;
        match self.decide(index, &offer) {
            Decision::Continue(twin) => self.continue_in(now, twin, index),
            Decision::PutOff => {
                self.counters.offers_put_off += 1;
                let asked = &mut self.all[index];
                asked.receiver.withdraw(now);
                asked.state = State::Leaving;
                self.turned_away.put_off(sender, &mut self.counters);
            }
            Decision::Take(store) => {
                self.give_way(now, sender.address.ip());
                self.counters.transfers_accepted += 1;
                let transfer = &mut self.all[index];
                transfer.state = State::Accepted;
                transfer.receiver.accept(now, store);
                let genuine = transfer.stream.map(StreamVerdict::Genuine);
                self.verdicts.extend(genuine);
                let transfer = self.all[index].number;
                self.event(ObjectReceiverEvent::Accepted { transfer, offer });
            }
            Decision::Decline(decline) => {
                self.counters.transfers_declined += 1;
                let receiver = &mut self.all[index].receiver;
                receiver.decline(now, decline.code, &decline.text);
                self.leave(index);
                self.refused(sender, decline.text);
            }
        }
    }

    /// Ends the transfer, if any, that must give way to the manifest now offered from `host`.
    fn give_way(&mut self, now: Instant, host: IpAddr) {
        let former = self.all.iter().position(|t| self.gives_way(t, host));
        if let Some(index) = former {
            let text = "the sender gave up on this receiver, and sends something else";
            self.all[index].receiver.cancel(now, text);
            self.tell(index);
            self.leave(index);
        }
    }

    fn continue_in(&mut self, now: Instant, twin: usize, index: usize) {
        self.counters.transfers_continued += 1;
        let asked = &mut self.all[index];
        asked.receiver.withdraw(now);
        asked.state = State::Leaving;
        let (sender, stream) = (asked.sender, asked.stream.take());
        let twin = &mut self.all[twin];
        let former = std::mem::replace(&mut twin.sender, sender);
        let former_stream = std::mem::replace(&mut twin.stream, stream);
        self.verdicts.extend(stream.map(StreamVerdict::Genuine));
        twin.receiver
            .redirect(now, sender.address, sender.session_id);
        let transfer = twin.number;
        if let Some(stream) = former_stream {
            self.unwanted(stream);
        }
        self.turned_away.note(former, true, &mut self.counters);
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
        // A forged mark can give this stream to two transfers: the one that was accepted is
        // preferred.
        let index = self.all.iter().position(|t| t.brings(stream)).or_else(|| {
            let mut all = self.all.iter();
            all.position(|t| t.stream == Some(stream))
        })?;
        self.all.get_mut(index)
    }

    /// Lets the owner drop a stream, unless it brings the blocks of a transfer.
    fn unwanted(&mut self, stream: u32) {
        if self.all.iter().any(|t| t.brings(stream)) {
            self.counters.streams_kept += 1;
            return;
        }
        self.verdicts.push_back(StreamVerdict::Unwanted(stream));
    }

    fn refused(&mut self, sender: Sender, text: String) {
        self.event(ObjectReceiverEvent::Refused { sender, text });
    }

    fn event(&mut self, event: ObjectReceiverEvent) {
        self.counters.events_lost += self.events.push(event);
    }

    // Control connections and time.

    /// Notes the number that the back end gave to the connection that was opened with `key`.
    pub fn link_opened(&mut self, key: u32, link: LinkId) {
        match self.by_number(key) {
            Some(transfer) => transfer.receiver.link_opened(key, link),
            None => self.strays.push_back(link),
        }
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        for transfer in &mut self.all {
            transfer.receiver.handle_timeout(now);
        }
        self.mind_door(now);
        self.settle_all(now);
    }

    /// Says when [`Transfers::handle_timeout`] is due.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.all
            .iter()
            .filter_map(|t| t.receiver.next_timeout())
            .chain(self.door.as_ref().and_then(Door::next_deadline))
            .min()
    }
}

impl<S> Transfer<S> {
    /// Returns true for the stream that brings the blocks of an accepted transfer.
    fn brings(&self, stream: u32) -> bool {
        self.state == State::Accepted && self.stream == Some(stream)
    }
}

impl<S: Store> Transfer<S> {
    /// Passes the stream's state to the transfer, with the number of packets that the kernel has
    /// dropped since the transfer first looked at the stream.
    fn observe(&mut self, now: Instant, mut state: StreamState) {
        let before = self.host_drops_before.get_or_insert(state.host_drops);
        state.host_drops = state.host_drops.saturating_sub(*before);
        self.receiver.observe(now, &state);
    }
}

#[cfg(test)]
mod tests;
