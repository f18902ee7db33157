//! The settings of a transfer receiver, and its events.

use std::{net::SocketAddr, ops::Range, time::Duration};

use crate::parameters::{
    ANSWER_PATIENCE, GIVE_UP_AFTER, NEED_RANGES_MAX, RANGES_MAX, SETTLE_TIMEOUT, SLAB_ATTEMPTS_MAX,
};
use wire::object::{DoneNumbers, ErrorCode, Phase, Progressed};

#[cfg(doc)]
use crate::LinkCommand;
use crate::{HASH_LEN, Hash, Key, ManifestId, ManifestLimits, Surplus, Unset};

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
        blocks_doubtful: Packets, "blocks of packets for a place that was wrong before; not taken";
        slabs_bad: Events, "slabs whose hash was wrong; asked for again";
        manifests_bad: Events, "manifests whose hash was wrong; asked for again";
        seals_bad: Events, "seals objects whose hash was wrong; asked for again";
        answers: Events, "answers to the end of a pass";
        lists_cut: Events, "lists of ranges cut or merged because they were too long";
        settled_late: Events, "answers given before the packet stream had settled";
        dialled: Events, "control connections asked for";
        senders_passed_over: Events, "senders that did not take this receiver in";
        redirected: Events, "sessions of a restarted sender in which the manifest went on";
        given_up: Events, "senders that gave up on this receiver, or left as it put files in place";
        not_believed: Events, "senders that did not show that they have the key";
        connections_lost: Events, "control connections that ended without a word";
        messages_ignored: Events, "control messages without a meaning here";
        violations: Events, "connections closed because the sender broke the protocol";
        events_lost: Events, "events overwritten because the owner had not taken them";
    }
}

/// All settings of a transfer receiver, with their defaults.
#[derive(Clone, Debug)]
pub struct TransferReceiverConfig {
    /// The `key` that this receiver puts into each [`LinkCommand::Open`], its request for a
    /// connection. It must be unique among the receivers of one back end. Default 0.
    pub number: u32,
    /// The name of this receiver; unique among the receivers of a session. Cut to 255 bytes.
    pub name: String,
    /// A random number that tells two runs of this receiver apart.
    pub instance: u64,
    /// The seed of the jitter. Together with `instance`, it is also the seed of the connections'
    /// nonces.
    pub seed: u64,
    /// The key. With one, only a sender that has it is believed. Default: none.
    pub key: Option<Key>,
    /// The limits of a manifest.
    pub limits: ManifestLimits,
    /// True to tell the sender only the kind of the reason when this end cannot store a transfer.
    /// The full reason names paths of this host, and says what exists there. Default false.
    pub is_discreet: bool,
    /// The longest time that this receiver delays its answer to a pass, because packets of the pass
    /// may still come. For the manifest's pass this is 0.2 s or less.
    pub settle_timeout: Duration,
    /// How long the transfer may be without a connection before it fails, even when the sender has
    /// given this receiver up. It does not fail for this reason while the store puts files in
    /// place.
    pub give_up_after: Duration,
    /// How long a sender may take to admit this receiver, counted from the first dial by either
    /// end. After that, the receiver waits for another sender. While the sender says that this
    /// receiver's name is taken, the time is 7 s longer.
    pub answer_patience: Duration,
    /// For each object, the most ranges that are noted as held. A range takes 16 bytes.
    pub ranges_max: usize,
    /// For one object, the most ranges, held or missing, that this receiver reports to the sender
    /// at a time.
    pub need_ranges_max: usize,
    /// After this many wrong hashes of one slab, the transfer fails. The first wrong hash does not
    /// count, because forged packets may have caused it. After the first, the slab is taken only
    /// from the control connection.
    pub slab_attempts_max: u32,
}

impl TransferReceiverConfig {
    /// Makes the default settings for a receiver called `name`.
    #[must_use]
    pub fn new(name: impl Into<String>, instance: u64) -> Self {
        Self {
            number: 0,
            name: name.into(),
            instance,
            seed: instance,
            key: None,
            limits: ManifestLimits::default(),
            is_discreet: false,
            settle_timeout: SETTLE_TIMEOUT,
            give_up_after: GIVE_UP_AFTER,
            answer_patience: ANSWER_PATIENCE,
            ranges_max: RANGES_MAX as usize,
            need_ranges_max: NEED_RANGES_MAX as usize,
            slab_attempts_max: SLAB_ATTEMPTS_MAX,
        }
    }
}

impl TransferReceiverConfig {
    /// Returns the most that
    /// [`TransferReceiver::held_memory_bytes`](crate::TransferReceiver::held_memory_bytes) can be,
    /// whatever a sender does.
    #[must_use]
    pub const fn memory_bytes_max(&self) -> usize {
        let objects = 3;
        // Wrong slabs leave the set of held content even when it is full. At worst every second
        // slab is wrong, and each splits a range.
        let split = self.limits.slabs_max as usize / 2 + 1;
        let ranges = (objects * self.ranges_max + split) * size_of::<Range<u64>>();
        let slabs = self.limits.slabs_max as usize * SLAB_BYTES;
        let files = self.limits.entries_max as usize * HASH_LEN;
        self.limits.manifest_bytes_max as usize + slabs + files + ranges
    }
}

/// Bytes of memory for one slab: its state, its witness and its seal.
const SLAB_BYTES: usize = 8 + 2 * HASH_LEN;

/// A manifest that a sender offers. The receiver has kept nothing for it yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The address of the sender's control connection.
    pub peer: SocketAddr,
    /// The sender's session, which changes when the sender restarts.
    pub session_id: u64,
    /// The manifest's id, which stays the same when the sender restarts.
    pub manifest: ManifestId,
    /// The size of the sender's manifest in bytes.
    pub manifest_bytes: u64,
}

/// What became of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockVerdict {
    /// The block has brought new bytes, which are kept.
    Taken,
    /// The receiver held the block already. Or the block is of the manifest or seals, and is not
    /// kept, because the set of held ranges is full.
    Duplicate,
    /// The block, or a part of it, is not kept; a counter says why.
    Refused,
}

/// Something that happened in a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransferReceiverEvent {
    /// This receiver has passed over a sender: for example, the sender refused it, did not answer,
    /// or has not shown the key. The receiver waits for another sender.
    PassedOver {
        /// The sender's address.
        peer: SocketAddr,
        /// The reason, for a person.
        text: String,
        /// The sender has not answered. It may answer later.
        is_silent: bool,
    },
    /// The sender already has a receiver of this name. Because that receiver may have died
    /// unnoticed, this receiver keeps trying for 7 s. This event comes again only if the sender has
    /// admitted this receiver since.
    NameTaken {
        /// The sender's address.
        peer: SocketAddr,
    },
    /// The sender admitted this receiver, and its manifest was accepted. Given once.
    Joined {
        /// This receiver's number at the sender.
        slot: u32,
        /// The manifest that the sender offers.
        manifest: ManifestId,
    },
    /// The sender has given this receiver up. The receiver keeps what it holds. It waits until the
    /// sender sends again, or until [`TransferReceiverConfig::give_up_after`] is over. If the store
    /// is putting files in place, the store goes on, and its outcome becomes the outcome of the
    /// transfer.
    GivenUp {
        /// The sender's reason.
        text: String,
    },
    /// The manifest has arrived and is acceptable.
    ManifestKnown {
        /// Number of the manifest's entries.
        entries: usize,
        /// Bytes of content that the manifest describes.
        bytes: u64,
        /// The sender could not read something, which is therefore not in the manifest.
        is_incomplete: bool,
    },
    /// The hash of a slab was wrong; the receiver fetches the slab again.
    SlabBad {
        /// The slab's number.
        slab: u32,
        /// The path of the slab's file.
        path: String,
    },
    /// The sender has left files out, because it could not read them or they changed: they are not
    /// delivered. Given before [`TransferReceiverEvent::Delivered`], at most once.
    Withdrawn {
        /// The paths of these files in the manifest.
        paths: Vec<Vec<u8>>,
    },
    /// The entries in the transfer's directories that the sender does not have: deleted, listed or
    /// kept. Given before [`TransferReceiverEvent::Delivered`], at most once.
    Surplus(Vec<Surplus>),
    /// The properties that the sender announced for some files, and that the store could not set.
    /// Given before [`TransferReceiverEvent::Delivered`], at most once.
    Unset(Vec<Unset>),
    /// Everything is verified, synced and in place. The sender is told once it is connected. If the
    /// sender gave up on this receiver while the store worked, this event ends the transfer.
    Delivered {
        /// One hash over all files.
        root: Hash,
        /// The numbers that the sender is told.
        numbers: DoneNumbers,
        /// The sender whose hashes the content was compared with. It need not be the sender that
        /// began the transfer: another may have continued it.
        sealer: SocketAddr,
    },
    /// The sender has acknowledged the proof. The transfer is over.
    Acknowledged,
    /// The transfer has failed, and is over.
    Failed {
        /// The kind of error, for the program.
        code: ErrorCode,
        /// The error in words, for a person.
        text: String,
    },
}

/// How far a transfer receiver is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiverProgress {
    /// What the receiver is doing.
    pub phase: Phase,
    /// Bytes of the manifest that have arrived; 0 again once it is whole.
    pub manifest_bytes: u64,
    /// Bytes of content that the manifest describes; 0 before the manifest is known.
    pub content_bytes: u64,
    /// The numbers that measure the transfer's progress.
    pub numbers: Progressed,
}
