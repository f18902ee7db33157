//! What a plan receiver is told, and what it tells.

use std::{net::SocketAddr, ops::Range, time::Duration};

use wire::object::{DoneNumbers, ErrorCode, Phase, Progressed};

#[cfg(doc)]
use crate::LinkCommand;
use crate::{HASH_LEN, Hash, Key, PlanId, PlanLimits};

base::counters! {
    /// What a plan receiver has counted.
    pub struct PlanReceiverCounters: "plan_receiver" {
        block_bytes: Bytes, "object bytes taken from the packet stream";
        fill_bytes: Bytes, "object bytes taken from the control connection";
        blocks_early: Packets, "blocks that came before this end could place them";
        blocks_duplicate: Packets, "blocks that were held already";
        blocks_refused: Packets, "blocks with a malformed header or of bytes that no object has";
        reads_rested: Events, "times the connection was left unread as the store was behind";
        blocks_store_full: Packets, "blocks not taken as the store was behind; asked for again";
        holds: Events, "turns in which the sender was held back as the store was behind";
        blocks_unnoted: Packets, "blocks not taken because too many gaps are open; asked for again";
        slabs_bad: Events, "slabs whose hash was wrong; asked for again";
        manifests_bad: Events, "manifests whose hash was wrong; asked for again";
        seals_bad: Events, "seals objects whose hash was wrong; asked for again";
        answers: Events, "answers to the end of a pass";
        settled_late: Events, "answers given before the packet stream had settled";
        dialled: Events, "control connections asked for";
        senders_passed_over: Events, "senders that did not take this receiver in";
        redirected: Events, "sessions of a restarted sender in which the plan went on";
        given_up: Events, "senders that gave this receiver up, or left while it put files in place";
        not_believed: Events, "senders that did not show that they have the key";
        connections_lost: Events, "control connections that ended without a word";
        messages_ignored: Events, "control messages without a meaning here";
        violations: Events, "connections closed because the sender broke the protocol";
    }
}

/// Everything a plan receiver can be told, with its defaults.
#[derive(Clone, Debug)]
pub struct PlanReceiverConfig {
    /// By which its connections are asked for: the key of [`LinkCommand::Open`]. Unique among the
    /// receivers that share a back end. Default 0.
    pub number: u32,
    /// What this receiver is called; unique among the receivers of a session. Cut to 255 bytes.
    pub name: String,
    /// Tells two runs of this receiver apart: random.
    pub instance: u64,
    /// Seed of the jitter, and with the instance of what makes the keys of a connection its own:
    /// random.
    pub seed: u64,
    /// With a key, only a sender that has it is believed. Default: none.
    pub key: Option<Key>,
    /// What a plan may have at most.
    pub limits: PlanLimits,
    /// How long a pass's end waits for the packet stream to settle. Default 1 s.
    pub settle_timeout: Duration,
    /// Without a connection for so long, the transfer has failed, also after the sender has given
    /// this receiver up, but never while the store puts everything in place; before the sender has
    /// taken this receiver in, another sender is waited for instead. Default 30 s.
    pub give_up_after: Duration,
    /// The most ranges of content noted; 16 bytes each. Default 65,536.
    pub ranges_max: usize,
    /// The most ranges asked for after a pass. Default 8192.
    pub need_ranges_max: usize,
    /// How often one slab may come out wrong. Default 3.
    pub slab_attempts_max: u8,
}

impl PlanReceiverConfig {
    /// The defaults, for a receiver called `name`.
    #[must_use]
    pub fn new(name: impl Into<String>, instance: u64) -> Self {
        Self {
            number: 0,
            name: name.into(),
            instance,
            seed: instance,
            key: None,
            limits: PlanLimits::default(),
            settle_timeout: Duration::from_secs(1),
            give_up_after: Duration::from_secs(30),
            ranges_max: 65_536,
            need_ranges_max: 8_192,
            slab_attempts_max: 3,
        }
    }
}

impl PlanReceiverConfig {
    /// The most that [`PlanReceiver::held_memory_bytes`](crate::PlanReceiver::held_memory_bytes)
    /// can be, whatever a sender does.
    #[must_use]
    pub const fn memory_bytes_max(&self) -> usize {
        let objects = 3;
        let ranges = objects * self.ranges_max * size_of::<Range<u64>>();
        let slabs = self.limits.slabs_max as usize * SLAB_BYTES;
        self.limits.manifest_bytes_max as usize + slabs + ranges
    }
}

/// Memory for one slab: its state, its hash and its seal.
const SLAB_BYTES: usize = 8 + 2 * HASH_LEN;

/// A plan that a sender offers, before anything was kept for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Where the sender's control connection is.
    pub peer: SocketAddr,
    /// The sender's session; another one after its restart.
    pub session: u64,
    /// What is offered: the same after a restart of the sender.
    pub plan: PlanId,
    /// Bytes of its manifest.
    pub manifest_bytes: u64,
}

/// What became of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockVerdict {
    /// It was new and is kept.
    Taken,
    /// It was held already.
    Duplicate,
    /// It is not kept; a counter says why.
    Refused,
}

/// Something that happened in a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanReceiverEvent {
    /// A sender did not take this receiver in, or is not believed: another one is waited for.
    PassedOver {
        /// Which.
        peer: SocketAddr,
        /// Why.
        text: String,
    },
    /// The sender has a receiver of this name already, which may be one that was killed and that it
    /// still believes in: this receiver goes on trying for some seconds. Told once.
    NameTaken {
        /// Which sender.
        peer: SocketAddr,
    },
    /// The sender took this receiver in.
    Joined {
        /// Its number.
        slot: u32,
        /// What is going to be delivered.
        plan: PlanId,
    },
    /// The sender has given this receiver up: it is waited for, with what is held, until it sends
    /// again or the time without a connection is over. Or the sender has left while files are being
    /// put in place: that is finished all the same, and decides how the receiver ends.
    GivenUp {
        /// Why, as the sender says.
        text: String,
    },
    /// The manifest is here and acceptable.
    PlanKnown {
        /// Entries in it.
        entries: usize,
        /// Bytes of content.
        bytes: u64,
    },
    /// A slab came out wrong and is fetched again.
    SlabBad {
        /// Its number.
        slab: u32,
        /// Its file.
        path: String,
    },
    /// Everything is verified, synced and in place; the sender has been told, unless it had given
    /// this receiver up while the store was at work: then the transfer is over with this.
    Delivered {
        /// One hash over everything.
        root: Hash,
        /// The numbers told to the sender.
        numbers: DoneNumbers,
    },
    /// The sender has acknowledged. The transfer is over.
    Acknowledged,
    /// The transfer has failed. It is over.
    Failed {
        /// For the program.
        code: ErrorCode,
        /// For a person.
        text: String,
    },
}

/// How far a plan receiver is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiverProgress {
    /// What it is doing.
    pub phase: Phase,
    /// Bytes of content in the plan; 0 before it is known.
    pub content_bytes: u64,
    /// The numbers.
    pub numbers: Progressed,
}
