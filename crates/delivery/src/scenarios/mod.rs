//! Tests only: a transfer sender and its receivers in virtual time. The packet stream loses and
//! reorders blocks, and control connections break.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use base::{Instant, Rng};

use crate::{
    BlockVerdict, Entry, Manifest, SourceState, StreamCounts, StreamState, TransferOutcome,
    TransferReceiver, TransferReceiverConfig, TransferReceiverEvent, TransferSender,
    TransferSenderConfig, TransferSenderEvent,
    fabric::{Fabric, linked},
    memory::{MemoryContent, MemoryStore},
};

linked!(TransferSender<MemoryContent>, TransferReceiver<MemoryStore>);

mod commit;
mod disk;
mod hostile;
mod keys;
mod liar;
mod presence;
mod specification;
mod transfers;
mod withdrawn;

/// The session's number in all tests.
pub(crate) const SESSION: u64 = 42;
/// The seed of the nonces that proofs depend on, in all tests.
pub(crate) const SEED: u64 = 0;
const PAYLOAD_MAX: usize = 1016;
/// How many blocks the sender can put into the packet stream in a millisecond.
const BLOCKS_PER_STEP: usize = 200;
/// This long after it was sent, a block has arrived or is lost for good.
const SETTLE: Duration = Duration::from_millis(15);
/// Positions begin just below the wrap of their low 32 bits.
const FIRST_POSITION: u64 = (1 << 33) - 100;

/// How the packet stream treats one receiver.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Loss {
    /// How many of a thousand blocks are lost for good.
    pub(crate) per_mille: u64,
    /// How many of a thousand blocks arrive late, after blocks that were sent later.
    pub(crate) late_per_mille: u64,
    /// How many of a thousand blocks arrive with one bit flipped.
    pub(crate) turned_per_mille: u64,
}

/// One receiver of the simulated transfer.
pub(crate) struct Node {
    pub(crate) receiver: TransferReceiver<MemoryStore>,
    pub(crate) loss: Loss,
    pub(crate) is_up: bool,
    /// How many blocks the receiver takes in a millisecond.
    pub(crate) blocks_per_step: usize,
    pub(crate) stream: StreamCounts,
    pub(crate) host_drops: u64,
    /// When the receiver joins.
    pub(crate) joins_at: Instant,
    /// Blocks on their way to the receiver, by arrival time and position.
    coming: BTreeMap<(Instant, u64), Arc<Vec<u8>>>,
    pub(crate) events: Vec<TransferReceiverEvent>,
}

/// The whole simulated transfer.
pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) fabric: Fabric,
    rng: Rng,
    pub(crate) manifest: Arc<Manifest>,
    pub(crate) content: Vec<u8>,
    pub(crate) sender: TransferSender<MemoryContent>,
    pub(crate) nodes: Vec<Node>,
    /// The times and positions of sent blocks that may still arrive.
    sent: Vec<(Instant, u64)>,
    next_position: u64,
    settled: u64,
    pub(crate) events: Vec<TransferSenderEvent>,
    /// The number of the sender's present session.
    pub(crate) session_id: u64,
    /// How many blocks the sender can put into the packet stream in a millisecond.
    pub(crate) blocks_per_step: usize,
    /// How many positions the packet stream may be ahead of the slowest receiver.
    pub(crate) window: u64,
}

/// Makes a tree of directories, a symbolic link and files, among them an empty file and one of
/// exactly one slab.
pub(crate) fn tree() -> Vec<Entry> {
    let mib = 1 << 20;
    let mut entries = vec![
        Entry::directory("d"),
        Entry::directory("d/empty"),
        Entry::symlink("d/link", "../large"),
        Entry::file("large", 2 * mib + 12_345),
        Entry::file("exact", mib),
        Entry::file("d/none", 0),
    ];
    entries.extend((0..40).map(|n| Entry::file(&format!("d/small{n:02}"), n * 37)));
    entries
}

impl World {
    pub(crate) fn new(seed: u64, receivers: usize, entries: Vec<Entry>) -> Self {
        let expected = u32::try_from(receivers).unwrap();
        Self::with(
            seed,
            receivers,
            entries,
            TransferSenderConfig::new(SESSION, expected, SEED),
        )
    }

    pub(crate) fn with(
        seed: u64,
        receivers: usize,
        entries: Vec<Entry>,
        config: TransferSenderConfig,
    ) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        let (manifest, content) = MemoryContent::generate(entries, [3; 16], seed).unwrap();
        let bytes = content.bytes().to_vec();
        let sender = TransferSender::new(config, Arc::clone(&manifest), content, now);
        let nodes = (1..=receivers).map(|n| Node::new(now, &format!("r{n}"), n as u64));
        Self {
            now,
            fabric: Fabric::new(seed),
            rng: Rng::new(seed ^ 0x5eed),
            manifest,
            content: bytes,
            sender,
            nodes: nodes.collect(),
            sent: Vec::new(),
            next_position: FIRST_POSITION,
            settled: FIRST_POSITION,
            events: Vec::new(),
            session_id: SESSION,
            blocks_per_step: BLOCKS_PER_STEP,
            window: u64::MAX,
        }
    }

    /// Ends the sender's process.
    pub(crate) fn crash_sender(&mut self) {
        self.fabric.listening.clear();
        self.fabric.crash(0);
    }

    /// Starts the sender anew, in another session, with the same tree.
    pub(crate) fn restart_sender(&mut self, mut config: TransferSenderConfig) {
        self.session_id += 1;
        config.session_id = self.session_id;
        let content = MemoryContent::new(self.content.clone());
        self.sender = TransferSender::new(config, Arc::clone(&self.manifest), content, self.now);
        self.fabric.listening.push(0);
        self.events.clear();
    }

    pub(crate) fn lossy(mut self, loss: Loss) -> Self {
        for node in &mut self.nodes {
            node.loss = loss;
        }
        self
    }

    /// Lets one millisecond pass.
    pub(crate) fn step(&mut self) {
        self.now += Duration::from_millis(1);
        let now = self.now;
        self.fabric.deliver(now, 0, &mut self.sender, 1000);
        if self.sender.next_timeout().is_some_and(|due| due <= now) {
            self.sender.handle_timeout(now);
        }
        self.sender.look_for_content(now);
        self.send_blocks();
        while self.sent.first().is_some_and(|&(at, _)| at + SETTLE <= now) {
            self.settled = self.sent.remove(0).1 + 1;
        }
        if self.sender.is_draining() {
            self.sender.pass_drained(now);
        }
        for _ in 0..20 {
            self.fabric.pump(0, &mut self.sender);
        }
        self.events
            .extend(std::iter::from_fn(|| self.sender.pop_event()));
        for index in 0..self.nodes.len() {
            self.step_node(index);
        }
    }

    /// Returns the packet stream's highest position.
    pub(crate) const fn lead(&self) -> u64 {
        self.next_position - 1
    }

    fn send_blocks(&mut self) {
        let lead = self.next_position - 1;
        let state = SourceState {
            lead,
            trail: 0,
            phase: wire::object::StreamPhase::Open,
            is_rate_limited: false,
            is_held: false,
            window_packets: self.window,
        };
        let wanted = self.sender.observe(self.now, &state);
        let ahead = wanted.hold.map_or(0, |hold| self.next_position - hold);
        let room = usize::try_from(self.window.saturating_sub(ahead)).unwrap_or(usize::MAX);
        let mut left = self.blocks_per_step.min(room);
        let mut out = vec![0; PAYLOAD_MAX];
        while left > 0 {
            let Some(block) = self.sender.next_block(PAYLOAD_MAX) else {
                return;
            };
            let count = block.count.min(left).min(self.rng.between(1, 9) as usize);
            for nth in 0..count {
                if !self
                    .sender
                    .fill(self.now, &block, nth, &mut out[..block.len])
                {
                    return;
                }
                self.broadcast(out[..block.len].to_vec());
            }
            left -= count;
            let last = self.next_position - 1;
            self.sender.blocks_committed(self.now, &block, count, last);
        }
    }

    /// Puts a block on its way to all receivers.
    pub(crate) fn broadcast(&mut self, payload: Vec<u8>) {
        let (now, position) = (self.now, self.next_position);
        self.next_position += 1;
        self.sent.push((now, position));
        let payload = Arc::new(payload);
        for node in &mut self.nodes {
            if self.rng.chance(node.loss.per_mille, 1000) {
                node.stream.missed += 1;
                continue;
            }
            let is_late = self.rng.chance(node.loss.late_per_mille, 1000);
            let delay_ms = if is_late { self.rng.between(1, 14) } else { 1 };
            let mut payload = Arc::clone(&payload);
            if self.rng.chance(node.loss.turned_per_mille, 1000) {
                let bytes = Arc::make_mut(&mut payload);
                let at = self.rng.between(16, bytes.len() as u64 - 1);
                bytes[usize::try_from(at).unwrap()] ^= 0x10;
            }
            node.coming
                .insert((now + Duration::from_millis(delay_ms), position), payload);
        }
    }

    fn step_node(&mut self, index: usize) {
        let (now, settled, lead) = (self.now, self.settled, self.next_position - 1);
        let node = &mut self.nodes[index];
        if !node.is_up || node.joins_at > now {
            node.coming.clear();
            return;
        }
        let address = Fabric::address(0);
        node.receiver.dial(now, address, self.session_id, 3);
        let is_stale = node.receiver.session() != Some((address, self.session_id));
        if is_stale && node.receiver.manifest_id().is_some() && !self.fabric.listening.is_empty() {
            node.receiver.redirect(now, address, self.session_id);
        }
        let mut room = node.blocks_per_step;
        while let Some(entry) = node.coming.first_entry() {
            if entry.key().0 > now || room == 0 {
                break;
            }
            room -= 1;
            let payload = entry.remove();
            let _verdict: BlockVerdict = node.receiver.handle_block(now, &payload);
        }
        // The receiver's position stays before the blocks that it has yet to take.
        let waiting = node.coming.keys().filter(|(at, _)| *at <= now);
        let settled = waiting
            .map(|&(_, sqn)| sqn)
            .min()
            .unwrap_or(settled)
            .min(settled);
        // Receivers count positions from another origin than the sender: theirs are 2^32 lower.
        let stream = StreamState {
            counts: node.stream,
            host_drops: node.host_drops,
            ..StreamState::at(settled - (1 << 32), lead - (1 << 32))
        };
        node.receiver.observe(now, &stream);
        self.fabric
            .deliver(now, index + 1, &mut node.receiver, 1000);
        if node.receiver.next_timeout().is_some_and(|due| due <= now) {
            node.receiver.handle_timeout(now);
        }
        // As in the receiver's main loop: the messages that a timeout and the store cause go out
        // together.
        node.receiver.handle_store(now);
        while self.fabric.pump(index + 1, &mut node.receiver) {}
        node.events
            .extend(std::iter::from_fn(|| node.receiver.pop_event()));
    }

    /// Runs until the sender is closed and all receivers are over, but for at most `limit`.
    pub(crate) fn run(&mut self, limit: Duration) -> TransferOutcome {
        let end = self.now + limit;
        while self.now < end && !(self.sender.is_closed() && self.all_over()) {
            self.step();
        }
        self.sender.outcome()
    }

    /// Runs until `is_there` returns true, or for `limit`. Returns true in the first case.
    pub(crate) fn run_until(&mut self, limit: Duration, is_there: impl Fn(&Self) -> bool) -> bool {
        let end = self.now + limit;
        while self.now < end {
            if is_there(self) {
                return true;
            }
            self.step();
        }
        false
    }

    fn all_over(&self) -> bool {
        self.nodes
            .iter()
            .all(|node| !node.is_up || node.receiver.is_over())
    }

    /// Ends the node's process.
    pub(crate) fn crash(&mut self, index: usize) {
        self.nodes[index].is_up = false;
        self.fabric.crash(index + 1);
    }

    /// Checks that every node that is up has the whole content, and that the sender has proof.
    pub(crate) fn assert_whole(&self) {
        for node in self.nodes.iter().filter(|node| node.is_up) {
            let store = node.store();
            assert!(
                store.committed() == Some(&self.content[..]),
                "{:?}",
                node.events
            );
            assert_eq!(
                node.events.last(),
                Some(&TransferReceiverEvent::Acknowledged)
            );
            let proof = node.receiver.proof().unwrap();
            assert_eq!(Some(proof.root), self.sender.outcome().root);
        }
    }
}

impl Node {
    pub(crate) fn new(now: Instant, name: &str, instance: u64) -> Self {
        let config = TransferReceiverConfig::new(name, instance);
        Self::with(now, config, MemoryStore::default())
    }

    pub(crate) fn with(now: Instant, config: TransferReceiverConfig, store: MemoryStore) -> Self {
        Self {
            receiver: TransferReceiver::new(config, store, now),
            loss: Loss::default(),
            is_up: true,
            blocks_per_step: usize::MAX,
            stream: StreamCounts::default(),
            host_drops: 0,
            joins_at: now,
            coming: BTreeMap::new(),
            events: Vec::new(),
        }
    }

    pub(crate) fn store(&self) -> &MemoryStore {
        self.receiver.store().unwrap()
    }

    pub(crate) fn store_mut(&mut self) -> &mut MemoryStore {
        self.receiver.store_mut().unwrap()
    }
}
