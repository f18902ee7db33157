//! Processes that send and receive a tree: the shipped object endpoints over content in memory.

use std::{cell::RefCell, fmt::Write as _, net::SocketAddr, rc::Rc, sync::Arc, time::Duration};

use base::{Instant, Io as _, Rng, earliest};
use delivery::{
    Carriage, Entry, ObjectReceiverConfig, ObjectReceiverEvent, ReceiverReport, ReceiverState,
    TakeFirst, TransferReceiver, TransferReceiverConfig, TransferReceiverEvent,
    TransferSenderConfig, Unsent, memory::MemoryContent,
};
use driver::{Driver, ObjectReceiver, ObjectSender};
use pgm::{Receiver, Source};
use wire::object::ErrorCode;

use super::{DiskStore, Progress, PublisherPlan, ReceiverPlan, batch, identity_fault};
use crate::{
    SimIo,
    check::{SharedLedger, Totals},
    plan::ObjectsPlan,
};

/// The tree of one run, the same for every life of its sender.
#[derive(Clone, Debug)]
pub struct Tree {
    manifest: Arc<delivery::Manifest>,
    content: MemoryContent,
    /// The file that changes while the sender reads, if one does.
    changing: Option<usize>,
}

impl Tree {
    /// Makes a tree of files of random sizes, whose bytes follow from `seed`.
    ///
    /// **Panics** (bug): when no manifest can be made of files of these sizes.
    #[must_use]
    pub fn generate(objects: &ObjectsPlan, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut entries = vec![Entry::directory("d"), Entry::symlink("d/link", "../f0000")];
        entries.extend((0..objects.files).map(|n| {
            let is_small = rng.chance(1, 2);
            let high = if is_small {
                100
            } else {
                objects.file_bytes_max
            };
            Entry::file(&format!("f{n:04}"), rng.between(0, high))
        }));
        let (manifest, mut content) =
            MemoryContent::generate(entries, [7; 16], seed).expect("the sizes are bounded");
        let change = objects.change.filter(|_| manifest.content_bytes() > 0);
        let changing = change.map(|change| {
            let position = change.position % manifest.content_bytes();
            content.fails_at = Some(position);
            content.fails_after_bytes = change.after_bytes;
            manifest.file_at(position)
        });
        Self {
            manifest,
            content,
            changing,
        }
    }

    /// Returns true when `bytes` are what was sent. The file that changes may be left out, as
    /// zeros.
    fn is_sent(&self, bytes: &[u8]) -> bool {
        let wanted = self.content.bytes();
        let place = self.changing.map_or(0..0, |index| {
            let file = self.manifest.files()[index];
            let end = file.start + file.size_bytes;
            crate::frame::index(file.start)..crate::frame::index(end)
        });
        let is_left_out = bytes.len() == wanted.len() && {
            let rest = bytes[..place.start] == wanted[..place.start]
                && bytes[place.end..] == wanted[place.end..];
            rest && bytes[place].iter().all(|&byte| byte == 0)
        };
        is_left_out || bytes == wanted
    }
}

/// A process that sends the tree.
#[derive(Debug)]
pub struct SenderNode {
    driver: Driver<SimIo, ObjectSender<MemoryContent>>,
    /// The path of the file that changes.
    changing: Option<Vec<u8>>,
    ledger: SharedLedger,
    progress: Progress,
    ends_at: Option<Instant>,
    has_exited: bool,
}

impl SenderNode {
    /// Starts a sender of a tree on `io`; it dials `peers`, or sends packets if there are none.
    pub fn new(
        mut io: SimIo,
        plan: &PublisherPlan,
        objects: &ObjectsPlan,
        (tree, peers): (Tree, Vec<SocketAddr>),
        ledger: SharedLedger,
    ) -> Self {
        let now = io.now();
        let mut rng = Rng::new(plan.seed);
        let sending = plan.sending(&mut rng);
        let expected = u32::try_from(objects.expected).unwrap_or(u32::MAX);
        let session_id = sending.identity.session_id;
        let mut config = TransferSenderConfig::new(session_id, expected, plan.seed);
        config.key = plan.key.clone();
        config.join_timeout = objects.join_timeout.0;
        config.progress_timeout = objects.progress_timeout.0;
        config.receivers_max = config.receivers_max.max(expected);
        config.withdraws = tree.changing.is_some();
        let path = |index: usize| {
            tree.manifest
                .path_of(&tree.manifest.files()[index])
                .to_vec()
        };
        let changing = tree.changing.map(path);
        let (manifest, content) = (tree.manifest, tree.content);
        let driver = if peers.is_empty() {
            let endpoint = ObjectSender::open(&sending, config, manifest, content, now);
            Driver::new(io, endpoint, batch()).with_protection(sending.protection(plan.key.clone()))
        } else {
            config.carriage = Carriage::Links(peers);
            let endpoint = ObjectSender::dial(config, manifest, content, now);
            Driver::new(io, endpoint, batch())
        };
        Self {
            driver,
            changing,
            ledger,
            progress: Progress::default(),
            ends_at: plan.ends_at,
            has_exited: false,
        }
    }

    /// Makes one turn of the process.
    pub fn turn(&mut self) {
        let now = self.driver.io.now();
        if self.has_exited {
            return;
        }
        if self.ends_at.take_if(|due| *due <= now).is_some() {
            let transfer = self.driver.endpoint.transfer_mut();
            transfer.cancel(now, ErrorCode::Cancelled, INTERRUPTED);
        }
        let turn = match self.driver.turn(&mut ()) {
            Ok(turn) => turn,
            Err(fault) => return self.fail(&format!("the back end gave up: {fault}")),
        };
        while self.driver.endpoint.transfer_mut().pop_event().is_some() {}
        let was_idle = turn.is_idle() && !turn.blocked;
        if let Some(turns) = self
            .progress
            .note(was_idle, now, self.driver.next_timeout())
        {
            self.fail(&format!(
                "{turns} turns in a row did nothing, yet another is due at once"
            ));
        }
        if self.driver.endpoint.is_over() && self.driver.io.has_sent_links() {
            self.has_exited = true;
            self.driver.io.exit();
        } else if turn.is_idle() {
            self.driver.wait(self.ends_at);
        } else {
            self.driver.io.wait(Some(now));
        }
    }

    /// Returns true when the program has ended.
    #[must_use]
    pub const fn is_finished(&self) -> bool {
        self.has_exited
    }

    /// Says what the process is waiting for.
    #[must_use]
    pub fn explain(&self) -> String {
        let source = self.driver.endpoint.source().map(|source| {
            format!(
                "trail {} hold {} unsent {} lead {} over {}",
                source.trail(),
                source.hold(),
                source.unsent(),
                source.lead(),
                source.is_over(),
            )
        });
        format!(
            "sender {source:?}, closed {}, {}, due {:?} at {:?}",
            self.driver.endpoint.transfer().is_closed(),
            self.outcome_text(),
            self.driver.next_timeout(),
            self.driver.now(),
        )
    }

    /// Returns how many receivers have proved delivery as the sender counts them, and whether all
    /// expected receivers have.
    #[must_use]
    pub fn proven(&self) -> (usize, bool) {
        let outcome = self.driver.endpoint.transfer().outcome();
        let is_done = |state: &ReceiverState| matches!(state, ReceiverState::Done { .. });
        let done = outcome
            .receivers
            .iter()
            .filter(|report| is_done(&report.state))
            .count();
        (done, outcome.is_proven())
    }

    /// Returns what the sender says about each receiver, in short.
    #[must_use]
    pub fn outcome_text(&self) -> String {
        let outcome = self.driver.endpoint.transfer().outcome();
        let mut text = format!("missing {} failure {:?}", outcome.missing, outcome.failure);
        for report in &outcome.receivers {
            let state = match &report.state {
                ReceiverState::Done { .. } => "done".to_owned(),
                other => format!("{other:?}"),
            };
            write!(text, "; {} {state}", report.name).expect("a String takes everything");
        }
        text
    }

    /// Checks what must hold when the process ends, by a crash or otherwise.
    pub fn judge(&self) {
        let source = self.driver.endpoint.source();
        let counters = source.map(Source::counters);
        let world = self.driver.io.world();
        world
            .borrow_mut()
            .note(|| format!("END {:?} {counters:?}", self.driver.counters()));
        if let Some(source) = source {
            let counters = source.counters();
            let kept = [("handled", counters.upstream_handled)];
            if let Some(fault) = identity_fault(counters.upstream_packets, &kept, source.drops()) {
                self.fail(&fault);
            }
        }
        let outcome = self.driver.endpoint.transfer().outcome();
        let is_failed =
            |report: &ReceiverReport| matches!(report.state, ReceiverState::Failed { .. });
        let has_reason = outcome.missing > 0
            || outcome.failure.is_some()
            || outcome.receivers.is_empty()
            || outcome.receivers.iter().any(is_failed);
        let changing = self.changing.as_deref();
        let is_other = |unsent: &Unsent| Some(&*unsent.path) != changing;
        if outcome.unsent.iter().any(is_other) {
            self.fail(&format!(
                "it left out what had not changed: {:?}",
                outcome.unsent
            ));
        }
        if self.has_exited && !(outcome.is_final && (outcome.is_proven() || has_reason)) {
            let text = self.outcome_text();
            self.fail(&format!(
                "it ended without a proof and without a reason: {text}"
            ));
        }
    }

    fn fail(&self, text: &str) {
        self.ledger.borrow_mut().fail(format!("sender: {text}"));
    }
}

/// A process that receives the tree.
#[derive(Debug)]
pub struct TakerNode {
    driver: Driver<SimIo, ObjectReceiver<TakeFirst<DiskStore>>>,
    ledger: SharedLedger,
    name: String,
    wanted: Tree,
    totals: Rc<RefCell<Vec<Totals>>>,
    progress: Progress,
    /// The most bytes held so far, of packets and of the manifest, and then the most allowed of
    /// both.
    held_bytes_max: [usize; 2],
    bound_bytes: [usize; 2],
    ends_at: Option<Instant>,
    /// The owner has ended the process.
    has_left: bool,
    has_failed: bool,
    has_exited: bool,
}

impl TakerNode {
    /// Starts a receiver into `store` on `io`; the sender dials it, if `by_links`.
    pub fn new(
        io: SimIo,
        plan: &ReceiverPlan,
        (store, by_links): (DiskStore, bool),
        tree: &Tree,
        ledger: SharedLedger,
        totals: Rc<RefCell<Vec<Totals>>>,
    ) -> Self {
        let now = io.world_now();
        let mut config = TransferReceiverConfig::new(plan.name.clone(), plan.seed);
        config.key = plan.key.clone();
        // The limits are exactly what the tree needs: a bound that is never approached tests
        // nothing.
        config.limits.manifest_bytes_max = tree.manifest.bytes().len() as u64;
        config.limits.slabs_max = tree.manifest.slab_count();
        config.ranges_max = RANGES_MAX;
        let bound_bytes = [plan.config.rx_total_bytes(), config.memory_bytes_max()];
        let receiving = plan.receiving();
        let driver = if by_links {
            let config = ObjectReceiverConfig::single(config);
            let endpoint = ObjectReceiver::listen(config, TakeFirst::new(store));
            Driver::new(io, endpoint, batch())
        } else {
            let endpoint = ObjectReceiver::single(&receiving, config, store, now);
            let protection = receiving.protection(plan.key.clone());
            Driver::new(io, endpoint, batch()).with_protection(protection)
        };
        Self {
            driver,
            ledger,
            name: plan.name.clone(),
            wanted: tree.clone(),
            totals,
            progress: Progress::default(),
            held_bytes_max: [0; 2],
            bound_bytes,
            ends_at: plan.ends_at,
            has_left: false,
            has_failed: false,
            has_exited: false,
        }
    }

    /// Makes one turn of the process.
    pub fn turn(&mut self) {
        if self.has_exited {
            return;
        }
        let now = self.driver.io.now();
        if self.ends_at.take_if(|due| *due <= now).is_some() {
            self.has_left = true;
            self.driver
                .endpoint
                .transfers_mut()
                .cancel(now, INTERRUPTED);
        }
        let turn = match self.driver.turn(&mut ()) {
            Ok(turn) => turn,
            Err(fault) => return self.fail(&format!("the back end gave up: {fault}")),
        };
        while let Some(event) = self.driver.endpoint.transfers_mut().pop_event() {
            let event = match event {
                ObjectReceiverEvent::Transfer { event, .. } => Some(event),
                _ => None,
            };
            self.has_failed |= matches!(event, Some(TransferReceiverEvent::Failed { .. }));
        }
        let end = &self.driver.endpoint;
        let of_plan = end
            .transfers()
            .first()
            .map_or(0, TransferReceiver::held_memory_bytes);
        let of_packets = end.receiver().map_or(0, Receiver::held_memory_bytes);
        let held = [of_packets, of_plan];
        for (most, held) in self.held_bytes_max.iter_mut().zip(held) {
            *most = held.max(*most);
        }
        let was_idle = turn.is_idle() && !turn.blocked;
        if let Some(turns) = self
            .progress
            .note(was_idle, now, self.driver.next_timeout())
        {
            self.fail(&format!(
                "{turns} turns in a row did nothing, yet another is due at once"
            ));
        }
        let end = self.driver.endpoint.transfers();
        if end.is_over() && end.is_idle() && self.driver.io.has_sent_links() {
            self.has_exited = true;
            self.driver.io.exit();
        } else if turn.is_idle() {
            // The shipped receiver serves its store at the same interval.
            self.driver
                .wait(earliest(self.ends_at, Some(now + STORE_POLL)));
        } else {
            self.driver.io.wait(Some(now));
        }
    }

    /// Returns true when the program has ended, or has heard no sender and would wait for one for
    /// ever.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let never_joined = self.sessions().is_empty()
            && self.driver.endpoint.transfers().progress().content_bytes == 0;
        self.has_exited || never_joined
    }

    /// Returns the packet streams that were found.
    fn sessions(&self) -> Vec<u32> {
        let receiver = self.driver.endpoint.receiver();
        receiver.map_or_else(Vec::new, |receiver| receiver.sessions().collect())
    }

    /// Returns true when the whole tree is in place.
    #[must_use]
    pub fn has_delivered(&self) -> bool {
        self.committed().is_some()
    }

    /// Returns the content, once it is in place.
    fn committed(&self) -> Option<&[u8]> {
        let store = self.driver.endpoint.transfers().first()?.store()?;
        store.committed()
    }

    /// Says what the process is waiting for.
    #[must_use]
    pub fn explain(&self) -> String {
        let end = &self.driver.endpoint;
        format!(
            "taker {:?} {:?} sessions {:?}, due {:?} at {:?}",
            end.transfers().progress(),
            end.transfers().transfer_counters(),
            self.sessions(),
            self.driver.next_timeout(),
            self.driver.now(),
        )
    }

    /// Checks what must hold when the process ends, by a crash or otherwise.
    pub fn judge(&self, is_crashed: bool) {
        let receiver = self.driver.endpoint.receiver();
        let counters = receiver.map(Receiver::counters);
        let world = self.driver.io.world();
        world.borrow_mut().note(|| {
            format!(
                "END {:?} {counters:?} {:?}",
                self.driver.counters(),
                self.driver.endpoint.transfers().transfer_counters()
            )
        });
        if let Some(receiver) = receiver {
            let counters = receiver.counters();
            let kept = [
                ("payload", counters.payload_packets),
                ("held", counters.held_packets),
                ("control", counters.control_packets),
            ];
            if let Some(fault) = identity_fault(counters.seen_packets, &kept, receiver.drops()) {
                self.fail(&fault);
            }
        }
        let what = ["packets", "the manifest"].iter().zip(self.held_bytes_max);
        for ((what, held), bound) in what.zip(self.bound_bytes) {
            if held > bound {
                self.fail(&format!("{held} bytes held of {what}, {bound} allowed"));
            }
        }
        let committed = self.committed();
        if committed.is_some_and(|bytes| !self.wanted.is_sent(bytes)) {
            self.fail("what was committed is not what was sent");
        }
        let proof = self
            .driver
            .endpoint
            .transfers()
            .first()
            .and_then(TransferReceiver::proof);
        if proof.is_some() && committed.is_none() {
            self.fail("it gave a proof of what is not in place");
        }
        if self.has_exited && committed.is_none() && !self.has_failed {
            self.fail("it ended without the content and without an error");
        }
        let totals = Totals {
            messages: u64::from(committed.is_some()),
            owed: 1,
            gone: u64::from(self.has_failed),
            is_crashed,
            has_left: self.has_left,
            ..Totals::default()
        };
        self.totals.borrow_mut().push(totals);
    }

    fn fail(&self, text: &str) {
        self.ledger
            .borrow_mut()
            .fail(format!("{}: {text}", self.name));
    }
}

/// How many ranges of content a receiver can note: so few that loss sometimes makes more.
const RANGES_MAX: usize = 256;
/// The reason that the other end is given when an owner gives up.
const INTERRUPTED: &str = "interrupted";
/// Interval at which the shipped receiver serves its store.
const STORE_POLL: Duration = Duration::from_millis(2);
