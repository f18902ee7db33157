//! From which senders a receiver of objects takes manifests, and where it puts them: its owner's
//! decisions.

use std::{fmt::Debug, net::SocketAddr};

use wire::object::ErrorCode;

use crate::parameters::{MANIFESTS_BYTES_MAX, PROSPECTS_MAX, TRANSFERS_MAX};
use crate::{Offer, ReceiverProgress, Store, TransferReceiverConfig, TransferReceiverEvent};

base::counters! {
    /// What a receiver of objects has counted over all its transfers.
    pub struct ObjectReceiverCounters: "object_receiver" {
        senders_heard: Events, "senders of objects heard for the first time";
        senders_refused: Events, "senders not dialled, as the owner does not admit them";
        senders_full: Events, "senders not dialled, as all places for transfers are taken";
        senders_forgotten: Events, "senders turned away that were too many to remember";
        transfers_accepted: Events, "manifests taken";
        transfers_declined: Events, "manifests offered and not taken";
        transfers_continued: Events, "transfers that went on in a restarted sender's session";
        events_lost: Events, "events overwritten because the owner had not taken them";
    }
}

/// What the owner of [`Transfers`](crate::Transfers) decides.
pub trait Intake {
    /// Where one transfer's bytes go.
    type Store: Store + Debug;

    /// Whether a sender may be dialled; asked when it is first heard, before anything is kept for
    /// it. Its address is the packets' own.
    ///
    /// # Errors
    /// Why not, for a person; the sender is not asked about again and is not told.
    fn admit(&mut self, sender: &Sender) -> Result<(), String>;

    /// A sender has admitted this receiver and offers a manifest: where its bytes go. Asked before
    /// its manifest is fetched. The store is asked to prepare once the manifest is known, and may
    /// still refuse it then.
    ///
    /// # Errors
    /// Why the manifest is not wanted; the sender is told.
    fn accept(&mut self, sender: &Sender, offer: &Offer) -> Result<Self::Store, Decline>;
}

/// A sender of objects that was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sender {
    /// Its host, and the port where it takes control connections.
    pub address: SocketAddr,
    /// Its session, which is another one after a restart.
    pub session_id: u64,
}

/// Why a manifest is not wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decline {
    /// For the program.
    pub code: ErrorCode,
    /// For a person.
    pub text: String,
}

/// All settings of a receiver of objects, with their defaults.
#[derive(Clone, Debug)]
pub struct ObjectReceiverConfig {
    /// What each transfer is told.
    pub receiver: TransferReceiverConfig,
    /// It ends after one transfer: the first sender that takes it in and whose manifest is wanted.
    pub is_single: bool,
    /// The most transfers at a time; of a single one 1.
    pub transfers_max: usize,
    /// The most senders asked at a time what they have; of a single one 1.
    pub prospects_max: usize,
    /// The most bytes of manifests kept for all transfers together.
    pub manifest_bytes_max: u64,
}

impl ObjectReceiverConfig {
    /// The defaults, for one transfer.
    #[must_use]
    pub fn single(receiver: TransferReceiverConfig) -> Self {
        Self {
            is_single: true,
            transfers_max: 1,
            prospects_max: 1,
            ..Self::serving(receiver)
        }
    }

    /// The defaults, for any number of transfers.
    #[must_use]
    pub const fn serving(receiver: TransferReceiverConfig) -> Self {
        Self {
            receiver,
            is_single: false,
            transfers_max: TRANSFERS_MAX as usize,
            prospects_max: PROSPECTS_MAX as usize,
            manifest_bytes_max: MANIFESTS_BYTES_MAX as u64,
        }
    }
}

/// Something that happened to a receiver of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ObjectReceiverEvent {
    /// A sender is not dialled, or what it offers is not taken.
    Refused {
        /// Which.
        sender: Sender,
        /// Why, for a person.
        text: String,
    },
    /// A transfer begins.
    Accepted {
        /// Its number, by which later events name it.
        transfer: u32,
        /// What it is.
        offer: Offer,
    },
    /// Its sender was restarted: the transfer goes on with what is held.
    Continued {
        /// Which transfer.
        transfer: u32,
        /// The sender's new session.
        sender: Sender,
    },
    /// Something happened in a transfer. Before a transfer begins, only that the name is taken.
    Transfer {
        /// Which transfer.
        transfer: u32,
        /// What.
        event: TransferReceiverEvent,
    },
    /// A transfer is over and forgotten; its store is gone.
    Left {
        /// Which transfer.
        transfer: u32,
        /// How far it came.
        progress: ReceiverProgress,
    },
}

/// Takes the first manifest that any sender offers, into one store.
#[derive(Debug)]
pub struct TakeFirst<S>(Option<S>);

impl<S> TakeFirst<S> {
    /// Into `store`.
    #[must_use]
    pub const fn new(store: S) -> Self {
        Self(Some(store))
    }
}

impl<S: Store + Debug> Intake for TakeFirst<S> {
    type Store = S;

    fn admit(&mut self, _sender: &Sender) -> Result<(), String> {
        Ok(())
    }

    fn accept(&mut self, _sender: &Sender, _offer: &Offer) -> Result<S, Decline> {
        self.0.take().ok_or_else(|| Decline {
            code: ErrorCode::Limit,
            text: "this receiver takes one transfer".to_owned(),
        })
    }
}
