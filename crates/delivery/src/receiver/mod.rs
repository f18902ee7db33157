//! The receiver of a manifest: it takes blocks, says what it lacks, and proves what it has.
//!
//! It does not know packets or disks. Its owner hands in payloads and the packet stream's position;
//! a [`Store`] keeps the bytes. It dials only addresses that its owner gives.
//!
//! ```text
//!   dial --> Joining --WELCOME--> Offered --accept--> Manifest --whole, right, acceptable--,
//!                                                                                          v
//!     Over <--ACKNOWLEDGED-- Delivered <--renamed-- Committing <-- Receiving <-- Preparing
//!
//!   PASS_END --> wait until the packet stream has passed its position --> jitter --> answer
//! ```
//!
//! A receiver made without a store stops at `Offered`, until its owner has looked at the offer.
//!
//! Invariants: while there is no store, no sender's claim allocates memory; later, the manifest
//! limits bound the memory that a claim allocates. A byte counts as held only when the store has it
//! or the sender has withdrawn its file. A held byte is written again only after the hash of its
//! slab was wrong. `Delivered` is told only after every slab was compared with its seal and the
//! store has committed.
//!
//! **Spec**: `docs/src/protocol.md` sections 7, 8 and 10.

use std::{net::SocketAddr, ops::Range, sync::Arc};

use base::{Contract, Instant, LinkId, earliest};
use wire::{
    object::{BlockHeader, DoneNumbers, ErrorCode, Message, Phase, Welcome},
    pgm::Mark,
};

use crate::parameters::TRANSFER_LINGER;
use crate::{
    LinkCommand, Manifest, Store, StoreEvent, StreamState,
    control::{Caller, Identity},
    events::Events,
    feedback::{Feedback, Habit},
    proof::Holding,
};

mod answer;
use answer::Answers;

mod blocks;
use blocks::Way;

mod config;
pub use config::{
    BlockVerdict, Offer, ReceiverProgress, TransferReceiverConfig, TransferReceiverCounters,
    TransferReceiverEvent,
};

mod control;
use control::{Reading, Sender};

mod objects;
use objects::{Bytes, Compared, Contents};

mod reports;
use reports::Told;

mod stream;
use stream::Stream;

/// A receiver of one manifest.
#[derive(Debug)]
pub struct TransferReceiver<S> {
    config: TransferReceiverConfig,
    /// The store, given by [`TransferReceiver::new`] or later by [`TransferReceiver::accept`];
    /// `None` before.
    store: Option<S>,
    caller: Caller,
    /// `None` while this receiver has no sender: it has met none yet, or it has passed over the
    /// last sender and waits for another.
    sender: Option<Sender>,
    step: Step,
    welcome: Option<Welcome>,
    manifest: Option<Bytes>,
    contents: Option<Contents>,
    answers: Answers,
    reading: Reading,
    stream: Stream,
    feedback: Feedback,
    told: Told,
    began: Began,
    delivery: Option<Delivery>,
    /// The address of the sender that told the seals. Before that, the address of the first sender
    /// that named the manifest.
    sealer: Option<SocketAddr>,
    events: Events<TransferReceiverEvent>,
    counters: TransferReceiverCounters,
    contract: Contract,
    /// Memory in which ranges for a message are built.
    scratch: Vec<u8>,
}

/// When the transfer began.
#[derive(Clone, Copy, Debug)]
struct Began {
    /// When the sender admitted this receiver; before that, when this receiver was made.
    joined_at: Instant,
    /// When the first content came in this transfer; content of an earlier attempt does not count.
    content_at: Option<Instant>,
}

impl Began {
    const fn at(now: Instant) -> Self {
        Self {
            joined_at: now,
            content_at: None,
        }
    }
}

/// The facts that the proof states: which content is in place, and the numbers of the transfer.
#[derive(Clone, Copy, Debug)]
struct Delivery {
    holding: Holding,
    numbers: DoneNumbers,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// No sender has admitted this receiver.
    Joining,
    /// The owner has to say whether it wants the manifest, and which store is to keep its content.
    Offered,
    /// The receiver takes the manifest.
    Manifest,
    /// The store makes room.
    Preparing,
    /// The receiver takes content and seals, and verifies slabs.
    Receiving,
    /// The store syncs and renames.
    Committing,
    /// Everything is in place; the sender has yet to acknowledge the proof.
    Delivered,
    /// The transfer has ended. Last messages may still have to leave.
    Over { since: Instant, is_delivered: bool },
}

impl<S: Store> TransferReceiver<S> {
    /// Makes a receiver that keeps content in `store`. It has not been told whom to dial, and takes
    /// the first manifest that a sender offers.
    #[must_use]
    pub fn new(config: TransferReceiverConfig, store: S, now: Instant) -> Self {
        Self {
            store: Some(store),
            ..Self::prospect(config, now)
        }
    }

    /// Makes a receiver that has not been told whom to dial. Its owner looks at a sender's offer
    /// ([`TransferReceiver::offer`]) before anything is kept for the manifest.
    #[must_use]
    pub fn prospect(config: TransferReceiverConfig, now: Instant) -> Self {
        let identity = Identity {
            name: config.name.clone(),
            instance: config.instance,
            seed: config.seed,
            key: config.key.clone(),
        };
        Self {
            caller: Caller::new(identity),
            config,
            store: None,
            sender: None,
            step: Step::Joining,
            welcome: None,
            manifest: None,
            contents: None,
            answers: Answers::default(),
            reading: Reading::default(),
            stream: Stream::default(),
            feedback: Feedback::new(now, Habit::Objects),
            told: Told::nothing(now),
            began: Began::at(now),
            delivery: None,
            sealer: None,
            events: Events::default(),
            counters: TransferReceiverCounters::default(),
            contract: Contract::default(),
            scratch: Vec::new(),
        }
    }

    /// Handles one payload of the packet stream; it begins with a block header.
    #[inline]
    pub fn handle_block(&mut self, now: Instant, payload: &[u8]) -> BlockVerdict {
        let Ok((header, data)) = BlockHeader::parse(payload) else {
            self.counters.blocks_refused += 1;
            return BlockVerdict::Refused;
        };
        let verdict = self.take(now, Way::Packets, header.object, header.offset, data);
        if verdict == BlockVerdict::Taken {
            self.counters.block_bytes += data.len() as u64;
        }
        verdict
    }

    /// Takes the state of the packet stream. This is cheap; call it once a turn, and a last time
    /// before [`TransferReceiver::session_over`].
    pub fn observe(&mut self, now: Instant, stream: &StreamState) {
        self.contract.tell_time(now);
        self.stream.observe(stream);
        // A receiver whose disk is behind goes on reporting its old position, so that the sender
        // waits. Otherwise the sender would have to send again what the disk cannot take.
        let is_behind = self.store.as_ref().is_some_and(Store::is_behind);
        self.counters.holds += u64::from(is_behind);
        self.feedback.observe(now, stream, is_behind);
        self.try_answer(now);
        self.check_pos(now);
    }

    /// Takes a mark of the sender. Later reports repeat the time at which the mark left the sender,
    /// and tell how long ago the mark came and how long it waited in queues. From these times the
    /// sender computes the round trip, and sees whether its rate fills queues.
    pub fn mark(&mut self, now: Instant, mark: &Mark) {
        self.feedback.mark(now, mark);
        if let Some(sender) = &mut self.sender {
            sender.call.heard_again(now);
        }
    }

    /// Notes that the packet stream is over: it ended, expired or was reset. Missing content then
    /// comes over the control connection.
    pub fn session_over(&mut self, now: Instant) {
        self.stream.end();
        self.try_answer(now);
    }

    /// Notes that the packet stream was found again: the answer to a pass waits for the stream once
    /// more.
    pub const fn session_back(&mut self) {
        self.stream.begin();
    }

    /// Gives the transfer up at this end, and tells the sender.
    pub fn cancel(&mut self, now: Instant, text: &str) {
        self.fail(now, ErrorCode::Cancelled, text);
    }

    /// Takes what the store has finished. Call it when the store says so, or once a turn.
    pub fn handle_store(&mut self, now: Instant) {
        self.ask_store();
        while let Some(event) = self.store.as_mut().and_then(Store::poll_event) {
            match event {
                StoreEvent::Prepared { held } => self.prepared(now, &held),
                StoreEvent::Hashed { slab, hash } => {
                    let compared = self.contents.as_mut().map(|c| c.computed(slab, &hash));
                    self.compared(now, slab, compared.unwrap_or(Compared::Open));
                }
                StoreEvent::Surplus(found) => {
                    self.event(TransferReceiverEvent::Surplus(found));
                }
                StoreEvent::Unset(unset) => {
                    self.event(TransferReceiverEvent::Unset(unset));
                }
                StoreEvent::Committed => self.committed(now),
                StoreEvent::Failed { code, text } => self.fail_here(now, code, &text),
            }
            self.ask_store();
        }
        self.check_verified(now);
        self.check_reading(now);
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.contract.tell_time(now);
        if self.is_over() {
            if self.links_due().is_some_and(|due| due <= now) {
                self.caller.links.abort_all();
            }
            return;
        }
        self.check_call(now);
        self.handle_store(now);
        self.try_answer(now);
        self.check_pos(now);
        self.check_report(now);
    }

    /// Returns the next thing to do on a control connection.
    pub fn poll_link(&mut self) -> Option<LinkCommand<'_>> {
        self.caller.links.poll()
    }

    /// Returns true for a connection of this receiver.
    #[must_use]
    pub fn has_link(&self, link: LinkId) -> bool {
        self.caller.links.contains(link)
    }

    /// Returns true when [`TransferReceiver::poll_link`] has something to give.
    #[must_use]
    pub fn has_link_command(&self) -> bool {
        self.caller.links.has_command()
    }

    /// Notes that the back end took `taken` bytes of the last [`LinkCommand::Send`].
    pub fn link_sent(&mut self, link: LinkId, taken: usize) {
        self.caller.links.sent(link, taken);
    }

    /// Returns the next event.
    pub fn pop_event(&mut self) -> Option<TransferReceiverEvent> {
        self.events.pop()
    }

    /// Says when [`TransferReceiver::handle_timeout`] is due.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        if self.is_over() {
            return self.links_due();
        }
        let reports = earliest(self.feedback.due(), self.report_due());
        let own = earliest(self.answer_due(), self.reading.rests_until());
        earliest(self.call_due(), earliest(own, reports))
    }

    /// Returns true when the transfer has succeeded, failed for good or was withdrawn.
    /// [`TransferReceiver::is_idle`] says when the last messages have left.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        matches!(self.step, Step::Over { .. })
    }

    /// Returns true when nothing is left to be sent on any connection.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.caller.links.is_idle()
    }

    /// Returns the manifest, once it has arrived and is acceptable.
    #[must_use]
    pub fn manifest(&self) -> Option<&Arc<Manifest>> {
        self.contents.as_ref().map(|contents| &contents.manifest)
    }

    /// Returns every path of every file with the file's root hash, in the manifest's order and
    /// without withdrawn files; `None` until all content is verified.
    pub fn file_roots(&self) -> Option<impl Iterator<Item = (&[u8], crate::Hash)>> {
        let contents = self.contents.as_ref().filter(|it| it.is_verified())?;
        Some(contents.manifest.file_roots(&contents.hashes))
    }

    /// Returns how far the transfer to this receiver has come.
    #[must_use]
    pub fn progress(&self) -> ReceiverProgress {
        let mut report = self.report();
        let mut manifest_bytes = 0;
        if report.phase == Phase::Joining {
            manifest_bytes = std::mem::take(&mut report.numbers.held);
        }
        ReceiverProgress {
            phase: report.phase,
            manifest_bytes,
            content_bytes: self
                .manifest()
                .map_or(0, |manifest| manifest.content_bytes()),
            numbers: report.numbers,
        }
    }

    /// Returns the store. A receiver that was made without one has `None` until it accepts a
    /// manifest.
    #[must_use]
    pub const fn store(&self) -> Option<&S> {
        self.store.as_ref()
    }

    /// Returns the store. A receiver that was made without one has `None` until it accepts a
    /// manifest.
    pub const fn store_mut(&mut self) -> Option<&mut S> {
        self.store.as_mut()
    }

    /// Returns the slabs of which every byte is held, as ranges of content. Slabs of withdrawn
    /// files count as held.
    pub fn held_slabs(&self) -> impl Iterator<Item = Range<u64>> {
        let contents = self.contents.iter();
        contents.flat_map(|contents| {
            let all = (0..contents.manifest.slab_count())
                .map(|slab| contents.manifest.slab(slab).range());
            all.filter(|range| contents.held.contains(range))
        })
    }

    /// Returns how many bytes of memory hold the manifest, the seals, the state of each slab, and
    /// the ranges of held content; at most [`TransferReceiverConfig::memory_bytes_max`]. The store
    /// has memory of its own for content, and the connection has a queue of about 1 MiB at most.
    #[must_use]
    pub fn held_memory_bytes(&self) -> usize {
        let manifest = self.manifest.as_ref().map_or(0, Bytes::memory_bytes);
        let contents = self.contents.as_ref().map_or(0, Contents::memory_bytes);
        manifest + contents
    }

    /// Returns the counters.
    #[must_use]
    pub const fn counters(&self) -> &TransferReceiverCounters {
        &self.counters
    }

    /// Forgets the packet stream of the former session. Its counts stay, as part of the transfer.
    fn forget_stream(&mut self, now: Instant) {
        self.stream.end();
        self.stream.begin();
        self.answers.forget();
        self.feedback = Feedback::new(now, Habit::Objects);
    }

    /// Says until when to wait for a sender that does not read the last messages.
    fn links_due(&self) -> Option<Instant> {
        let Step::Over { since, .. } = self.step else {
            return None;
        };
        (!self.caller.links.is_idle()).then(|| since + TRANSFER_LINGER)
    }

    /// Ends the transfer because this end has failed or gives up, and tells the sender. Does
    /// nothing once everything is delivered.
    fn fail(&mut self, now: Instant, code: ErrorCode, text: &str) {
        if matches!(self.step, Step::Over { .. } | Step::Delivered) {
            return;
        }
        self.tell(now, &Message::Error { code, text });
        self.failed(now, code, text);
    }

    /// Ends the transfer for a reason that would reveal paths or files of this host. A discreet
    /// receiver tells the sender at most that it has no room, or that a limit was exceeded.
    pub(super) fn fail_here(&mut self, now: Instant, code: ErrorCode, text: &str) {
        if matches!(self.step, Step::Over { .. } | Step::Delivered) {
            return;
        }
        if self.config.is_discreet {
            let (code, text) = match code {
                ErrorCode::Exists | ErrorCode::Permission | ErrorCode::Io => {
                    (ErrorCode::Io, DISCREET.to_owned())
                }
                code => (code, code.to_string()),
            };
            self.tell(now, &Message::Error { code, text: &text });
        } else {
            self.tell(now, &Message::Error { code, text });
        }
        self.failed(now, code, text);
    }

    /// Notes that the transfer has failed or, once everything is delivered, that it is over.
    fn failed(&mut self, now: Instant, code: ErrorCode, text: &str) {
        if matches!(self.step, Step::Over { .. } | Step::Delivered) {
            return self.over(now);
        }
        if let Some(store) = &mut self.store {
            store.abandon();
        }
        let text = text.to_owned();
        self.event(TransferReceiverEvent::Failed { code, text });
        self.over(now);
    }

    fn event(&mut self, event: TransferReceiverEvent) {
        self.counters.events_lost += self.events.push(event);
    }

    fn over(&mut self, now: Instant) {
        let is_delivered = match self.step {
            Step::Over { is_delivered, .. } => is_delivered,
            step => step == Step::Delivered,
        };
        self.step = Step::Over {
            since: now,
            is_delivered,
        };
        self.hang_up();
    }
}

/// What a discreet receiver tells the sender when the true reason would reveal what is on the
/// receiver's disk.
const DISCREET: &str = "the receiver cannot take it; its own report says why";
