//! Whom a receiver of objects takes plans from, and where it puts them: its owner's decisions.

use std::{fmt::Debug, net::SocketAddr};

use wire::object::ErrorCode;

use crate::{Offer, PlanReceiverConfig, PlanReceiverEvent, ReceiverProgress, Store};

base::counters! {
    /// What a receiver of objects has counted over all its transfers.
    pub struct ObjectReceiverCounters: "object_receiver" {
        senders_heard: Events, "senders of objects heard for the first time";
        senders_refused: Events, "senders not dialled, as the owner does not admit them";
        senders_full: Events, "senders not dialled, as all places for transfers are taken";
        plans_accepted: Events, "plans taken";
        plans_declined: Events, "plans offered and not taken";
        plans_continued: Events, "transfers that went on in a restarted sender's session";
        events_lost: Events, "events overwritten because nobody took them";
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

    /// A sender has taken this receiver in and offers a plan: where its bytes go. Asked before its
    /// manifest is fetched. The store is asked to prepare once the manifest is known, and may still
    /// refuse it then.
    ///
    /// # Errors
    /// Why the plan is not wanted; the sender is told.
    fn accept(&mut self, sender: &Sender, offer: &Offer) -> Result<Self::Store, Decline>;
}

/// A sender of objects that was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sender {
    /// Its host, and the port where it takes control connections.
    pub address: SocketAddr,
    /// Its session, which is another one after a restart.
    pub session: u64,
}

/// Why a plan is not wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decline {
    /// For the program.
    pub code: ErrorCode,
    /// For a person.
    pub text: String,
}

/// Everything a receiver of objects can be told, with its defaults.
#[derive(Clone, Debug)]
pub struct ObjectReceiverConfig {
    /// What each transfer is told.
    pub plan: PlanReceiverConfig,
    /// It ends after one transfer: the first sender that takes it in and whose plan is wanted.
    pub is_single: bool,
    /// The most transfers at a time. Default 16; of a single one 1.
    pub plans_max: usize,
    /// The most senders asked at a time what they have. Default 4; of a single one 1.
    pub prospects_max: usize,
    /// The most bytes of manifests kept for all transfers together. Default 128 MiB.
    pub manifest_bytes_max: u64,
}

impl ObjectReceiverConfig {
    /// The defaults, for one transfer.
    #[must_use]
    pub fn single(plan: PlanReceiverConfig) -> Self {
        Self {
            is_single: true,
            plans_max: 1,
            prospects_max: 1,
            ..Self::serving(plan)
        }
    }

    /// The defaults, for any number of transfers.
    #[must_use]
    pub const fn serving(plan: PlanReceiverConfig) -> Self {
        Self {
            plan,
            is_single: false,
            plans_max: 16,
            prospects_max: 4,
            manifest_bytes_max: 128 << 20,
        }
    }
}

/// Something that happened to a receiver of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Something happened in a transfer. Of one that has not begun, that the name is taken.
    Plan {
        /// Which transfer.
        transfer: u32,
        /// What.
        event: PlanReceiverEvent,
    },
    /// A transfer is over and forgotten; its store is gone.
    Left {
        /// Which transfer.
        transfer: u32,
        /// How far it came.
        progress: ReceiverProgress,
    },
}

/// Takes the first plan that any sender offers, into one store.
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
