//! The receiver of a plan: takes blocks from wherever they come, says what it lacks, proves what it
//! has.
//!
//! It does not know packets or disks. Its owner hands in payloads and the packet stream's position;
//! a [`Store`] keeps the bytes. The control connection goes to the one address it is told to dial.
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
//! Invariants: nothing is allocated from what a sender claims before its offer was accepted, and
//! never beyond the plan limits; a byte counts as held only after the store took it, and a byte
//! that is held is never written again, unless its slab came out wrong; `Delivered` is told only
//! after every slab's hash was compared and the store has committed.

use std::{collections::VecDeque, ops::Range, sync::Arc, time::Duration};

use base::{Instant, LinkId, earliest};
use wire::{
    object::{BlockHeader, Done, ErrorCode, Message, Welcome},
    pgm::Mark,
};

use crate::{
    LinkCommand, Plan, Store, StoreEvent, StreamState,
    control::{Caller, Identity},
    feedback::{Feedback, Habit},
};

mod answer;
use answer::Answers;

mod blocks;

mod config;
pub use config::{
    BlockVerdict, Offer, PlanReceiverConfig, PlanReceiverCounters, PlanReceiverEvent,
    ReceiverProgress,
};

mod control;
use control::{Reading, Sender};

mod objects;
use objects::{Bytes, Compared, Contents};

mod reports;
use reports::Told;

mod stream;
use stream::Stream;

/// Receives one plan.
#[derive(Debug)]
pub struct PlanReceiver<S> {
    config: PlanReceiverConfig,
    /// None until the sender's offer was accepted.
    store: Option<S>,
    caller: Caller,
    /// None while nobody is named.
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
    started_at: Instant,
    done: Option<Done>,
    events: VecDeque<PlanReceiverEvent>,
    counters: PlanReceiverCounters,
    /// Where ranges are put together on their way to the connection.
    scratch: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The sender has not taken this receiver in.
    Joining,
    /// The owner is to say whether the plan is wanted, and where to.
    Offered,
    /// The manifest comes in.
    Manifest,
    /// The store makes room.
    Preparing,
    /// Content and seals come in, slabs are verified.
    Receiving,
    /// The store syncs and renames.
    Committing,
    /// The sender is told until it acknowledges.
    Delivered,
    /// Nothing is left to do.
    Over { since: Instant },
}

impl<S: Store> PlanReceiver<S> {
    /// A receiver into `store` that has not been told whom to dial; it takes the first plan that it
    /// is offered.
    #[must_use]
    pub fn new(config: PlanReceiverConfig, store: S, now: Instant) -> Self {
        Self {
            store: Some(store),
            ..Self::prospect(config, now)
        }
    }

    /// A receiver that has not been told whom to dial. Its owner looks at the plan it is offered,
    /// [`PlanReceiver::offer`], before anything is kept for it.
    #[must_use]
    pub fn prospect(config: PlanReceiverConfig, now: Instant) -> Self {
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
            started_at: now,
            done: None,
            events: VecDeque::new(),
            counters: PlanReceiverCounters::default(),
            scratch: Vec::new(),
        }
    }

    /// Handles one payload of the packet stream, block header first.
    #[inline]
    pub fn handle_block(&mut self, now: Instant, payload: &[u8]) -> BlockVerdict {
        let Ok((header, data)) = BlockHeader::parse(payload) else {
            self.counters.blocks_refused += 1;
            return BlockVerdict::Refused;
        };
        let verdict = self.take(now, header.object, header.offset, data);
        if verdict == BlockVerdict::Taken {
            self.counters.block_bytes += data.len() as u64;
        }
        verdict
    }

    /// Takes what the packet stream tells. Cheap; to be called once a turn, and a last time before
    /// [`PlanReceiver::session_over`].
    pub fn observe(&mut self, now: Instant, stream: &StreamState) {
        self.stream.observe(stream);
        // The sender waits for a receiver that does not move: what the disk cannot take now would
        // have to be sent again.
        let is_behind = self.store.as_ref().is_some_and(Store::is_behind);
        self.counters.holds += u64::from(is_behind);
        self.feedback.observe(now, stream, is_behind);
        self.try_answer(now);
        self.check_pos(now);
    }

    /// A mark of the sender came: the reports repeat when it left and tell how long it was under
    /// way, and the sender learns the round trip and what its rate does.
    pub fn mark(&mut self, now: Instant, mark: &Mark) {
        self.feedback.mark(now, mark);
    }

    /// The packet stream is over: ended, expired or reset. What is lacking comes by the control
    /// connection.
    pub fn session_over(&mut self, now: Instant) {
        self.stream.end();
        self.try_answer(now);
    }

    /// The packet stream was found again: a pass waits for it once more.
    pub const fn session_back(&mut self) {
        self.stream.begin();
    }

    /// The transfer is given up from this end: the sender is told.
    pub fn cancel(&mut self, now: Instant, text: &str) {
        self.fail(now, ErrorCode::Cancelled, text);
    }

    /// Takes what the store has finished. To be called when the store says so, or once a turn.
    pub fn poll_store(&mut self, now: Instant) {
        self.ask_store();
        while let Some(event) = self.store.as_mut().and_then(Store::poll_event) {
            match event {
                StoreEvent::Prepared { held } => self.prepared(now, &held),
                StoreEvent::Sealed { slab, seal } => {
                    let compared = self.contents.as_mut().map(|c| c.computed(slab, &seal));
                    self.compared(now, slab, compared.unwrap_or(Compared::Open));
                }
                StoreEvent::Committed => self.committed(now),
                StoreEvent::Failed { code, text } => self.fail(now, code, &text),
            }
            self.ask_store();
        }
        self.check_verified(now);
        self.check_reading(now);
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.is_over() {
            if self.links_due().is_some_and(|due| due <= now) {
                self.caller.links.abort_all();
            }
            return;
        }
        self.check_call(now);
        self.poll_store(now);
        self.try_answer(now);
        self.check_pos(now);
        self.check_report(now);
    }

    /// The next thing to do on a control connection.
    pub fn poll_link(&mut self) -> Option<LinkCommand<'_>> {
        self.caller.links.poll()
    }

    /// True for a connection of this receiver's.
    #[must_use]
    pub fn has_link(&self, link: LinkId) -> bool {
        self.caller.links.contains(link)
    }

    /// True when [`PlanReceiver::poll_link`] has something to give.
    #[must_use]
    pub fn has_link_command(&self) -> bool {
        self.caller.links.has_command()
    }

    /// The back end took `taken` bytes of the last [`LinkCommand::Send`].
    pub fn link_sent(&mut self, link: LinkId, taken: usize) {
        self.caller.links.sent(link, taken);
    }

    /// The next event.
    pub fn pop_event(&mut self) -> Option<PlanReceiverEvent> {
        self.events.pop_front()
    }

    /// When [`PlanReceiver::handle_timeout`] is due.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        if self.is_over() {
            return self.links_due();
        }
        let reports = earliest(self.feedback.due(), self.report_due());
        let own = earliest(self.answer_due(), self.reading.rests_until());
        earliest(self.call_due(), earliest(own, reports))
    }

    /// True when nothing is left to do, in success or failure. [`PlanReceiver::is_idle`] says when
    /// the last words are out.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        matches!(self.step, Step::Over { .. })
    }

    /// True when nothing is left to be sent on any connection.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.caller.links.is_idle()
    }

    /// The proof that was given to the sender, once everything is in place.
    #[must_use]
    pub const fn proof(&self) -> Option<&Done> {
        self.done.as_ref()
    }

    /// The plan, once its manifest is known.
    #[must_use]
    pub fn plan(&self) -> Option<&Arc<Plan>> {
        self.contents.as_ref().map(|contents| &contents.plan)
    }

    /// How far this receiver is.
    #[must_use]
    pub fn progress(&self) -> ReceiverProgress {
        let report = self.report();
        ReceiverProgress {
            phase: report.phase,
            content_bytes: self.plan().map_or(0, |plan| plan.content_bytes()),
            numbers: report.numbers,
        }
    }

    /// Where the bytes go, once a plan was accepted.
    #[must_use]
    pub const fn store(&self) -> Option<&S> {
        self.store.as_ref()
    }

    /// Where the bytes go, once a plan was accepted.
    pub const fn store_mut(&mut self) -> Option<&mut S> {
        self.store.as_mut()
    }

    /// The whole slabs that are held, as ranges of content: what a journal may promise to a later
    /// attempt.
    pub fn held_slabs(&self) -> impl Iterator<Item = Range<u64>> {
        let contents = self.contents.iter();
        contents.flat_map(|contents| {
            let all = (0..contents.plan.slab_count()).map(|slab| contents.plan.slab(slab).range());
            all.filter(|range| contents.held.contains(range))
        })
    }

    /// Bytes of memory for what it knows of the plan: the manifest, the state of each slab, and
    /// ranges; at most [`PlanReceiverConfig::memory_bytes_max`]. The content is the store's, and
    /// the connection has a queue of its own, of 1 MiB at most.
    #[must_use]
    pub fn held_memory_bytes(&self) -> usize {
        let manifest = self.manifest.as_ref().map_or(0, Bytes::memory_bytes);
        let contents = self.contents.as_ref().map_or(0, Contents::memory_bytes);
        manifest + contents
    }

    /// What has been counted.
    #[must_use]
    pub const fn counters(&self) -> &PlanReceiverCounters {
        &self.counters
    }

    /// Nothing that was known of the packet stream holds: it was another sender's. What it has
    /// counted was the transfer's all the same.
    fn forget_stream(&mut self, now: Instant) {
        self.stream.end();
        self.stream.begin();
        self.answers.forget();
        self.feedback = Feedback::new(now, Habit::Objects);
    }

    /// When a sender that does not read the last words is not waited for any longer.
    fn links_due(&self) -> Option<Instant> {
        let Step::Over { since } = self.step else {
            return None;
        };
        (!self.caller.links.is_idle()).then(|| since + LINGER)
    }

    /// The transfer has failed at this end; the sender is told.
    fn fail(&mut self, now: Instant, code: ErrorCode, text: &str) {
        if matches!(self.step, Step::Over { .. } | Step::Delivered) {
            return;
        }
        self.tell(now, &Message::Error { code, text });
        self.failed(now, code, text);
    }

    /// The transfer has failed.
    fn failed(&mut self, now: Instant, code: ErrorCode, text: &str) {
        if matches!(self.step, Step::Over { .. } | Step::Delivered) {
            return self.over(now);
        }
        if let Some(store) = &mut self.store {
            store.abandon();
        }
        let text = text.to_owned();
        self.events
            .push_back(PlanReceiverEvent::Failed { code, text });
        self.over(now);
    }

    fn over(&mut self, now: Instant) {
        self.step = Step::Over { since: now };
        self.hang_up();
    }
}

/// How long the last words may take.
const LINGER: Duration = Duration::from_secs(2);
