//! The settings of a transfer receiver, and its events.

use std::{net::SocketAddr, ops::Range, time::Duration};

use crate::parameters::{
    GIVE_UP_AFTER, NEED_RANGES_MAX, RANGES_MAX, SETTLE_TIMEOUT, SLAB_ATTEMPTS_MAX,
};
use wire::object::{DoneNumbers, ErrorCode, Phase, Progressed};

#[cfg(doc)]
use crate::LinkCommand;
use crate::{HASH_LEN, Hash, Key, ManifestId, ManifestLimits, Surplus};

base::counters! {
    /// What a transfer receiver has counted.
    pub struct TransferReceiverCounters: "transfer_receiver" {
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
        redirected: Events, "sessions of a restarted sender in which the manifest went on";
        given_up: Events, "senders that gave this receiver up, or left while it put files in place";
        not_believed: Events, "senders that did not show that they have the key";
        connections_lost: Events, "control connections that ended without a word";
        messages_ignored: Events, "control messages without a meaning here";
        violations: Events, "connections closed because the sender broke the protocol";
    }
}

/// All settings of a transfer receiver, with their defaults.
#[derive(Clone, Debug)]
pub struct TransferReceiverConfig {
    /// By which its connections are asked for: the key of [`LinkCommand::Open`]. Unique among the
    /// receivers that share a back end. Default 0.
    pub number: u32,
    /// The name of this receiver; unique among the receivers of a session. Cut to 255 bytes.
    pub name: String,
    /// Tells two runs of this receiver apart: random.
    pub instance: u64,
    /// Random seed of the jitter and, with the instance, of the nonces of connections.
    pub seed: u64,
    /// With a key, only a sender that has it is believed. Default: none.
    pub key: Option<Key>,
    /// What a manifest may have at most.
    pub limits: ManifestLimits,
    /// How long a pass's end waits for the packet stream to settle.
    pub settle_timeout: Duration,
    /// The transfer fails after this time without a connection, also after the sender has given
    /// this receiver up, but never while the store puts files in place. Before the sender has
    /// admitted this receiver, it waits for another sender instead.
    pub give_up_after: Duration,
    /// The most ranges of content noted; 16 bytes each.
    pub ranges_max: usize,
    /// The most ranges asked for after a pass.
    pub need_ranges_max: usize,
    /// How often one slab may come out wrong.
    pub slab_attempts_max: u32,
}

impl TransferReceiverConfig {
    /// The defaults, for a receiver called `name`.
    #[must_use]
    pub fn new(name: impl Into<String>, instance: u64) -> Self {
        Self {
            number: 0,
            name: name.into(),
            instance,
            seed: instance,
            key: None,
            limits: ManifestLimits::default(),
            settle_timeout: SETTLE_TIMEOUT,
            give_up_after: GIVE_UP_AFTER,
            ranges_max: RANGES_MAX as usize,
            need_ranges_max: NEED_RANGES_MAX as usize,
            slab_attempts_max: SLAB_ATTEMPTS_MAX,
        }
    }
}

impl TransferReceiverConfig {
    /// The most that
    /// [`TransferReceiver::held_memory_bytes`](crate::TransferReceiver::held_memory_bytes) can be,
    /// whatever a sender does.
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

/// A manifest that a sender offers, before anything was kept for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Where the sender's control connection is.
    pub peer: SocketAddr,
    /// The sender's session; another one after its restart.
    pub session_id: u64,
    /// What is offered: the same after a restart of the sender.
    pub manifest: ManifestId,
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
#[non_exhaustive]
pub enum TransferReceiverEvent {
    /// A sender refused this receiver, or has not shown the key: the receiver waits for another
    /// sender.
    PassedOver {
        /// Which.
        peer: SocketAddr,
        /// Why.
        text: String,
    },
    /// The sender already has a receiver of this name, perhaps one that was killed and that the
    /// sender still counts as live: this receiver keeps trying for some seconds. Given once.
    NameTaken {
        /// Which sender.
        peer: SocketAddr,
    },
    /// The sender admitted this receiver.
    Joined {
        /// Its number.
        slot: u32,
        /// What is going to be delivered.
        manifest: ManifestId,
    },
    /// The sender has given this receiver up. The receiver keeps what it holds and waits until the
    /// sender sends again or the time without a connection is over. If the sender left while files
    /// are being put in place, that is finished and decides how the receiver ends.
    GivenUp {
        /// Why, as the sender says.
        text: String,
    },
    /// The manifest is here and acceptable.
    ManifestKnown {
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
    /// The sender could not read a file to its end: it is not delivered. Given before
    /// [`TransferReceiverEvent::Delivered`], once for each such file.
    Withdrawn {
        /// Its path in the manifest.
        path: Vec<u8>,
    },
    /// This receiver has something that the sender has not. Given before
    /// [`TransferReceiverEvent::Delivered`].
    Surplus(Surplus),
    /// Everything is verified, synced and in place, and the sender knows. If the sender gave this
    /// receiver up while the store worked, the transfer ends with this event.
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

/// How far a transfer receiver is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiverProgress {
    /// What it is doing.
    pub phase: Phase,
    /// Bytes of content in the manifest; 0 before it is known.
    pub content_bytes: u64,
    /// The numbers.
    pub numbers: Progressed,
}
