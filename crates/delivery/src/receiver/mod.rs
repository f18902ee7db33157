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

use base::{Instant, LinkId, Rng, earliest};
use wire::{
    object::{
        BlockHeader, Done, DoneNumbers, ErrorCode, Message, ObjectId, Phase, Pos, Progress,
        Progressed, Welcome,
    },
    pgm::Mark,
};

use crate::{
    LinkCommand, Plan, PlanError, PlanId, RangeSet, Store, StoreEvent, link::Links,
    reporter::arrival::Heard,
};

mod answer;
use answer::PendingPass;

mod config;
pub use config::{
    BlockVerdict, Offer, PlanReceiverConfig, PlanReceiverCounters, PlanReceiverEvent,
    ReceiverProgress, StreamCounts,
};

mod control;
use control::Dialler;

mod objects;
use objects::{Bytes, Compared, Contents};

/// Receives one plan.
#[derive(Debug)]
pub struct PlanReceiver<S> {
    config: PlanReceiverConfig,
    rng: Rng,
    /// None until the sender's offer was accepted.
    store: Option<S>,
    links: Links,
    dialler: Dialler,
    step: Step,
    welcome: Option<Welcome>,
    manifest: Option<Bytes>,
    contents: Option<Contents>,
    pass: Option<PendingPass>,
    last_pass: u32,
    /// HAVE was said on this connection. A proof before it would come from one that, as far as the
    /// sender knows, holds nothing.
    is_have_told: bool,
    /// The last answer was COMPLETE: a slab that turns out bad is asked for unasked.
    is_complete_told: bool,
    /// The connection is left unread until then, or until the store has caught up.
    reading_rests_until: Option<Instant>,
    /// Something was read since the connection last rested.
    has_read: bool,
    /// The packet stream's next position, as it counts; only the low 32 bits are compared.
    settled: Option<u32>,
    is_stream_over: bool,
    /// Of the packet stream that is followed, and of those before it: a restarted sender's plan
    /// goes on in a new one.
    stream: StreamCounts,
    past_streams: StreamCounts,
    pos: Pos,
    pos_sent: Pos,
    pos_sent_at: Instant,
    /// What the sender's marks have told.
    heard: Heard,
    /// When nothing waited in the receive socket.
    empty_at: Instant,
    /// A POS that is due waits until then, as all receivers see the same packet at once.
    pos_held_until: Option<Instant>,
    reported: Progress,
    reported_at: Instant,
    is_report_spread: bool,
    started_at: Instant,
    over_at: Instant,
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
    Over,
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
        let reported = Progress {
            phase: Phase::Joining,
            numbers: Progressed::default(),
        };
        Self {
            rng: Rng::new(config.seed),
            config,
            store: None,
            links: Links::default(),
            dialler: Dialler::default(),
            step: Step::Joining,
            welcome: None,
            manifest: None,
            contents: None,
            pass: None,
            last_pass: 0,
            is_have_told: false,
            is_complete_told: false,
            reading_rests_until: None,
            has_read: true,
            settled: None,
            is_stream_over: false,
            stream: StreamCounts::default(),
            past_streams: StreamCounts::default(),
            pos: Pos::default(),
            pos_sent: Pos::default(),
            pos_sent_at: Instant::ZERO,
            heard: Heard::nothing(now),
            empty_at: now,
            pos_held_until: None,
            reported,
            reported_at: now,
            is_report_spread: false,
            started_at: now,
            over_at: now,
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

    /// Where the packet stream stands: everything before `contiguous` was delivered or is lost for
    /// good; `lead` is the highest position known. Cheap; to be called once a turn.
    pub fn position(&mut self, now: Instant, contiguous: u64, lead: u64) {
        self.settled = Some(contiguous as u32);
        self.pos.lead = lead;
        // The sender waits for a receiver that does not move: what the disk cannot take now would
        // have to be sent again.
        if self.store.as_ref().is_some_and(Store::is_behind) {
            self.counters.holds += 1;
        } else {
            self.pos.contiguous = contiguous;
        }
        if self.pass.is_some() {
            self.try_answer(now);
        }
        self.check_pos(now);
    }

    /// A mark of the sender came: the reports repeat when it left and tell how long it was under
    /// way, and the sender learns the round trip and what its rate does.
    pub fn heard_mark(&mut self, now: Instant, mark: &Mark) {
        self.heard.mark(now, mark, self.empty_at);
    }

    /// Nothing waits in the receive socket: what comes next was not kept waiting by this host.
    pub const fn caught_up(&mut self, now: Instant) {
        self.empty_at = now;
    }

    /// What has arrived of the packet stream so far. Cheap; to be called once a turn, before
    /// [`PlanReceiver::position`], and a last time before [`PlanReceiver::session_over`].
    pub fn arrived(&mut self, now: Instant, counts: &StreamCounts) {
        self.heard.arrived(now, counts.bytes);
        self.pos.naks = counts.missed;
        self.stream = *counts;
    }

    /// Packets that the kernel has dropped since the transfer began, for want of buffer space.
    pub const fn host_drops(&mut self, packets: u64) {
        self.pos.host_drops = packets;
    }

    /// The packet stream is over: ended, expired or reset. What is lacking comes by the control
    /// connection.
    pub fn session_over(&mut self, now: Instant) {
        self.is_stream_over = true;
        self.past_streams += std::mem::take(&mut self.stream);
        self.try_answer(now);
    }

    /// The packet stream was found again: a pass waits for it once more.
    pub const fn session_back(&mut self) {
        self.is_stream_over = false;
        self.settled = None;
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
        if self.step == Step::Over {
            if self.links_due().is_some_and(|due| due <= now) {
                self.links.abort_all();
            }
            return;
        }
        self.check_dialler(now);
        self.poll_store(now);
        self.try_answer(now);
        self.check_pos(now);
        self.check_report(now);
    }

    /// The next thing to do on a control connection.
    pub fn poll_link(&mut self) -> Option<LinkCommand<'_>> {
        self.links.poll()
    }

    /// True when [`PlanReceiver::poll_link`] has something to give.
    #[must_use]
    pub fn has_link_command(&self) -> bool {
        self.links.has_command()
    }

    /// The back end took `taken` bytes of the last [`LinkCommand::Send`].
    pub fn link_sent(&mut self, link: LinkId, taken: usize) {
        self.links.sent(link, taken);
    }

    /// The next event.
    pub fn pop_event(&mut self) -> Option<PlanReceiverEvent> {
        self.events.pop_front()
    }

    /// When [`PlanReceiver::handle_timeout`] is due.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        if self.step == Step::Over {
            return self.links_due();
        }
        let answer = self.pass.as_ref().and_then(|pass| self.answer_due(pass));
        let reports = earliest(self.pos_due(), self.report_due());
        let own = earliest(answer, self.reading_rests_until);
        earliest(self.dialler_due(), earliest(own, reports))
    }

    /// True when nothing is left to do, in success or failure. [`PlanReceiver::is_idle`] says when
    /// the last words are out.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.step == Step::Over
    }

    /// True when nothing is left to be sent on any connection.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.links.is_idle()
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

    // Objects.

    /// Keeps a piece of an object, wherever it came from.
    fn take(&mut self, now: Instant, object: ObjectId, offset: u64, data: &[u8]) -> BlockVerdict {
        match object {
            ObjectId::CONTENT => self.take_content(now, offset, data),
            ObjectId::MANIFEST => {
                let Some(manifest) = &mut self.manifest else {
                    return self.unplaced();
                };
                let put = manifest.put(offset, data);
                let is_whole = manifest.is_whole();
                if put == Some(true) && is_whole {
                    self.manifest_whole(now);
                }
                self.verdict(put)
            }
            ObjectId::SEALS => {
                // Later ones are not those that the content was compared with.
                let (Some(contents), Step::Preparing | Step::Receiving) =
                    (&mut self.contents, self.step)
                else {
                    return self.unplaced();
                };
                let put = contents.seals.put(offset, data);
                if put == Some(true) {
                    self.check_seals(now);
                }
                self.verdict(put)
            }
            _ => self.verdict(None),
        }
    }

    #[inline]
    fn take_content(&mut self, now: Instant, offset: u64, data: &[u8]) -> BlockVerdict {
        let (Some(contents), Some(store), Step::Receiving) =
            (&mut self.contents, &mut self.store, self.step)
        else {
            return self.unplaced();
        };
        let end = offset.checked_add(data.len() as u64);
        let Some(end) = end.filter(|&end| end <= contents.plan.content_bytes()) else {
            return self.verdict(None);
        };
        // What is held may be verified already: nothing is written over it.
        let (mut at, mut rest, mut is_new) = (offset, data, false);
        loop {
            let gap = contents.held.missing_in(at..end).next();
            let Some(gap) = gap else {
                break;
            };
            let behind = rest.split_at((gap.start - at) as usize).1;
            let (piece, behind) = behind.split_at((gap.end - gap.start) as usize);
            if !store.write(gap.start, piece) {
                self.counters.blocks_store_full += 1;
                return BlockVerdict::Refused;
            }
            at = gap.end;
            if !contents.note(gap) {
                self.counters.blocks_unnoted += 1;
                return BlockVerdict::Refused;
            }
            (rest, is_new) = (behind, true);
        }
        if !is_new {
            return self.verdict(Some(false));
        }
        if contents.next_unasked().is_some() {
            self.poll_store(now);
        }
        BlockVerdict::Taken
    }

    const fn verdict(&mut self, put: Option<bool>) -> BlockVerdict {
        match put {
            Some(true) => BlockVerdict::Taken,
            Some(false) => {
                self.counters.blocks_duplicate += 1;
                BlockVerdict::Duplicate
            }
            None => {
                self.counters.blocks_refused += 1;
                BlockVerdict::Refused
            }
        }
    }

    /// A block of an object that this receiver has no place for yet, or any more.
    const fn unplaced(&mut self) -> BlockVerdict {
        if matches!(
            self.step,
            Step::Joining | Step::Offered | Step::Manifest | Step::Preparing
        ) {
            self.counters.blocks_early += 1;
        } else {
            self.counters.blocks_duplicate += 1;
        }
        BlockVerdict::Refused
    }

    fn manifest_whole(&mut self, now: Instant) {
        let (Some(manifest), Some(welcome)) = (&mut self.manifest, &self.welcome) else {
            return;
        };
        if Plan::id_of(manifest.bytes()) != PlanId(welcome.plan) {
            // Somebody else's blocks were in it: the connection will bring the right ones.
            manifest.discard();
            self.counters.manifests_bad += 1;
            return;
        }
        let bytes = manifest.take();
        self.manifest = None;
        match Plan::from_manifest(bytes, &self.config.limits) {
            Ok(plan) => self.plan_known(now, Arc::new(plan)),
            Err(error) => self.plan_refused(now, &error),
        }
    }

    fn plan_known(&mut self, now: Instant, plan: Arc<Plan>) {
        self.events.push_back(PlanReceiverEvent::PlanKnown {
            entries: plan.entry_count(),
            bytes: plan.content_bytes(),
        });
        self.contents = Some(Contents::new(Arc::clone(&plan), self.config.ranges_max));
        self.step = Step::Preparing;
        if let Some(store) = &mut self.store {
            store.prepare(&plan);
        }
        self.poll_store(now);
    }

    fn plan_refused(&mut self, now: Instant, error: &PlanError) {
        self.fail(now, ErrorCode::PlanRefused, &error.to_string());
    }

    fn prepared(&mut self, now: Instant, held: &RangeSet) {
        let (Some(contents), Step::Preparing) = (&mut self.contents, self.step) else {
            return;
        };
        self.step = Step::Receiving;
        let len = contents.plan.content_bytes();
        for range in held.iter().filter(|range| range.end <= len) {
            contents.note(range);
        }
        self.try_answer(now);
    }

    /// Asks the store for the hashes of whole slabs, as many as it takes.
    fn ask_store(&mut self) {
        if self.step != Step::Receiving {
            return;
        }
        let (Some(contents), Some(store)) = (&mut self.contents, &mut self.store) else {
            return;
        };
        while let Some(slab) = contents.next_unasked() {
            if !store.seal(slab) {
                return;
            }
            contents.asked();
        }
    }

    fn check_seals(&mut self, now: Instant) {
        let Some(contents) = &mut self.contents else {
            return;
        };
        match contents.check_seals() {
            Some(true) => {
                for slab in 0..contents.plan.slab_count() {
                    let compared = self.contents.as_mut().map(|c| c.compare(slab));
                    self.compared(now, slab, compared.unwrap_or(Compared::Open));
                }
                self.check_verified(now);
            }
            Some(false) => self.counters.seals_bad += 1,
            None => {}
        }
    }

    fn compared(&mut self, now: Instant, slab: u32, compared: Compared) {
        let Compared::Bad(times) = compared else {
            return;
        };
        self.counters.slabs_bad += 1;
        let Some(plan) = self.plan() else {
            return;
        };
        let file = &plan.files()[plan.slab(slab).file as usize];
        let path = plan.path_of(file).escape_ascii().to_string();
        if times >= self.config.slab_attempts_max {
            let text = format!("{path}: the content came out wrong {times} times");
            return self.fail(now, ErrorCode::HashMismatch, &text);
        }
        self.events
            .push_back(PlanReceiverEvent::SlabBad { slab, path });
    }

    /// Goes on to the commit once every slab is verified; asks again for those that were wrong.
    fn check_verified(&mut self, now: Instant) {
        let (Some(contents), Step::Receiving) = (&self.contents, self.step) else {
            return;
        };
        if contents.is_verified() {
            self.step = Step::Committing;
            if let Some(store) = &mut self.store {
                store.commit();
            }
            self.poll_store(now);
        } else if self.is_complete_told && contents.is_quiet() && !contents.is_whole() {
            self.answer_again(now);
        }
    }

    fn committed(&mut self, now: Instant) {
        let (Some(contents), Step::Committing) = (&self.contents, self.step) else {
            return;
        };
        let streams = self.streams();
        let numbers = DoneNumbers {
            bytes: contents.plan.content_bytes(),
            lost: streams.missed,
            repairs_asked: streams.repairs_asked,
            repairs_got: streams.repairs_got,
            time_ns: u64::try_from(now.since(self.started_at).as_nanos()).unwrap_or(u64::MAX),
        };
        let root = contents.plan.tree_root(contents.seals.bytes());
        self.step = Step::Delivered;
        let done = Done { root, numbers };
        self.done = Some(done);
        self.events
            .push_back(PlanReceiverEvent::Delivered { root, numbers });
        if self.is_given_up() {
            // Nobody wants to know any more.
            return self.over(now);
        }
        self.look_on(now);
        // Without content all is in place before the end of pass 0 is answered: with that, then.
        if self.is_have_told {
            self.tell(now, &Message::Done(done));
        }
    }

    /// What all packet streams of the transfer have counted.
    fn streams(&self) -> StreamCounts {
        let mut sum = self.past_streams;
        sum += self.stream;
        sum
    }

    /// Nothing that was known of the packet stream holds: it was another sender's. What it has
    /// counted was the transfer's all the same.
    fn forget_stream(&mut self) {
        self.past_streams += std::mem::take(&mut self.stream);
        self.session_back();
        self.pass = None;
        let host_drops = self.pos.host_drops;
        self.pos = Pos::default();
        self.pos.host_drops = host_drops;
        self.pos_sent = Pos::default();
        self.pos_held_until = None;
        self.heard = Heard::nothing(Instant::ZERO);
    }

    // Reports.

    fn report(&self) -> Progress {
        let contents = self.contents.as_ref();
        let is_whole = contents.is_some_and(Contents::is_whole);
        let phase = match self.step {
            Step::Joining | Step::Offered | Step::Manifest => Phase::Joining,
            Step::Preparing => Phase::Preparing,
            Step::Receiving if is_whole => Phase::Verifying,
            Step::Receiving => Phase::Receiving,
            Step::Committing => Phase::Committing,
            Step::Delivered | Step::Over => Phase::Done,
        };
        let streams = self.streams();
        let numbers = Progressed {
            held: contents.map_or(0, |contents| contents.held.bytes()),
            verified: contents.map_or(0, |contents| contents.verified_bytes),
            lost: streams.missed,
            repairs_asked: streams.repairs_asked,
            repairs_got: streams.repairs_got,
            store_waits: self.counters.blocks_store_full + self.counters.holds,
        };
        Progress { phase, numbers }
    }

    fn report_interval(&self) -> Duration {
        let asked = self
            .welcome
            .as_ref()
            .map_or(0, |welcome| welcome.report_interval_us);
        Duration::from_micros(asked.into()).clamp(REPORT_INTERVAL_MIN, REPORT_INTERVAL_MAX)
    }

    /// When reports that became due at `now` were sent last, as far as the interval goes. What many
    /// receivers see at once they report one after the other: 0.2 ms for each, over the interval at
    /// most.
    fn spread(&mut self, now: Instant, sent_at: Instant) -> Instant {
        let interval = self.report_interval();
        let due = now + self.rng.duration_up_to(interval.min(self.share()));
        sent_at.max(due - interval)
    }

    /// 0.2 ms for each receiver: one report of all of them in so long is what a sender is asked to
    /// read.
    fn share(&self) -> Duration {
        let welcome = self.welcome.as_ref();
        let count = welcome.map_or(1, |welcome| welcome.receiver_count);
        REPORT_INTERVAL_MAX.min(Duration::from_micros(u64::from(count) * 200))
    }

    fn report_due(&self) -> Option<Instant> {
        let is_on = self.dialler.link().is_some() && self.welcome.is_some();
        let is_changed = self.report() != self.reported;
        let interval = self.report_interval();
        let after = if is_changed {
            interval
        } else {
            KEEP_ALIVE.max(interval)
        };
        is_on.then(|| self.reported_at + after)
    }

    fn check_report(&mut self, now: Instant) {
        let is_due = |receiver: &Self| receiver.report_due().is_some_and(|due| due <= now);
        if is_due(self) && !self.is_report_spread && self.report() != self.reported {
            self.is_report_spread = true;
            self.reported_at = self.spread(now, self.reported_at);
        }
        if is_due(self) {
            self.send_progress(now);
        }
    }

    fn send_progress(&mut self, now: Instant) {
        self.reported = self.report();
        self.reported_at = now;
        self.is_report_spread = false;
        self.tell(now, &Message::Progress(self.reported));
    }

    /// When the packet stream's position is to be reported; `None` while there is none.
    fn pos_due(&self) -> Option<Instant> {
        self.dialler.link()?;
        // What is missed tells the sender as much: repairs that are lost as well move nothing.
        if self.pos.contiguous == self.pos_sent.contiguous && self.pos.naks == self.pos_sent.naks {
            return None;
        }
        if self.is_urgent() {
            return Some(self.pos_sent_at + POS_INTERVAL_MIN.max(self.share()));
        }
        let after = if self.is_far() {
            self.share()
        } else if self.wants_reports() {
            self.report_interval()
                .min(REPORT_INTERVAL_MIN.max(self.share()))
        } else {
            self.report_interval()
        };
        let due = self.pos_sent_at + after;
        Some(self.pos_held_until.map_or(due, |until| due.max(until)))
    }

    /// True when the sender steers its rate by the reports.
    const fn wants_reports(&self) -> bool {
        self.heard.is_limited() || self.heard.has_new_rate()
    }

    /// True when the position has moved far, and the receivers are so few that all may say so at
    /// once.
    fn is_urgent(&self) -> bool {
        self.is_far() && self.share() < MANY
    }

    /// True when the position has moved so far that the sender wants to know at once.
    fn is_far(&self) -> bool {
        let moved = self.pos.contiguous.wrapping_sub(self.pos_sent.contiguous);
        self.welcome.as_ref().is_some_and(|welcome| {
            welcome.report_sqns > 0 && moved >= u64::from(welcome.report_sqns)
        })
    }

    fn check_pos(&mut self, now: Instant) {
        let is_due = |receiver: &Self| receiver.pos_due().is_some_and(|due| due <= now);
        if is_due(self) && self.pos_held_until.is_none() && !self.is_urgent() {
            let spread = self.report_interval().min(self.share());
            self.pos_held_until = Some(now + self.rng.duration_up_to(spread));
        }
        if is_due(self) {
            self.send_pos(now);
        }
    }

    fn send_pos(&mut self, now: Instant) {
        self.pos.lost = self.streams().missed;
        self.heard.report(now, &mut self.pos);
        self.pos_sent = self.pos;
        self.pos_sent_at = now;
        self.pos_held_until = None;
        self.tell(now, &Message::Pos(self.pos));
    }

    // Ends.

    /// When a sender that does not read the last words is not waited for any longer.
    fn links_due(&self) -> Option<Instant> {
        (!self.links.is_idle()).then(|| self.over_at + LINGER)
    }

    /// The transfer has failed at this end; the sender is told.
    fn fail(&mut self, now: Instant, code: ErrorCode, text: &str) {
        if matches!(self.step, Step::Over | Step::Delivered) {
            return;
        }
        self.tell(now, &Message::Error { code, text });
        self.failed(now, code, text);
    }

    /// The transfer has failed.
    fn failed(&mut self, now: Instant, code: ErrorCode, text: &str) {
        if matches!(self.step, Step::Over | Step::Delivered) {
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
        self.step = Step::Over;
        self.over_at = now;
        self.hang_up();
    }
}

/// A report at least so often, so that the sender sees a living peer.
const KEEP_ALIVE: Duration = Duration::from_secs(1);
const REPORT_INTERVAL_MIN: Duration = Duration::from_millis(5);
/// What a sender of 10,000 receivers asks for; well below its patience with a silent one.
const REPORT_INTERVAL_MAX: Duration = Duration::from_secs(2);
/// How long the last words may take.
const LINGER: Duration = Duration::from_secs(2);
const POS_INTERVAL_MIN: Duration = Duration::from_millis(1);
/// Receivers whose shares are longer, 25, do not report all at once.
const MANY: Duration = Duration::from_millis(5);
