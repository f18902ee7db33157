//! The owner's decisions: from which senders a receiver of objects takes manifests, and where it
//! puts them.

use std::{
    fmt::Debug,
    net::{IpAddr, SocketAddr},
};

use wire::object::ErrorCode;

use crate::parameters::{
    MANIFESTS_BYTES_MAX, PROSPECTS_MAX, SENDERS_WAITING_MAX, TRANSFERS_MAX, TRANSFERS_PER_HOST_MAX,
};
use crate::{Offer, ReceiverProgress, Store, TransferReceiverConfig, TransferReceiverEvent};

base::counters! {
    /// What a receiver of objects has counted over all its transfers.
    pub struct ObjectReceiverCounters: "object_receiver" {
        senders_heard: Events, "senders of objects heard for the first time";
        senders_refused: Events, "senders not dialled, as the owner does not admit them";
        senders_full: Events, "senders not dialled, as all places for transfers are taken";
        callers_refused: Events, "senders refused that dialled this receiver";
        callers_cut: Events, "connections closed for newer ones, as too many had said nothing";
        callers_waited: Events, "senders that dialled this receiver and had to wait their turn";
        callers_late: Events, "connections closed because no sender said in time who it is";
        callers_gone: Events, "connections of senders that went before they were greeted";
        callers_greeted: Events, "connections on which a sender that dialled was greeted";
        senders_put_off: Events, "dials put off: too many senders that have not answered";
        offers_put_off: Events, "offers without a place after the greeting: the senders dial again";
        streams_kept: Events, "attempts to end a transfer's stream by a mark of another session";
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

    /// Decides whether a sender may be asked for its offer. The receiver asks the owner each time
    /// before it asks a sender. Until it has asked the owner, the receiver keeps only the sender's
    /// address and session, in a bounded list. The address is the source of the sender's packets,
    /// or the address from which the sender dialled.
    ///
    /// # Errors
    /// When the sender may not be asked; the text says why, for a person. A sender that was heard
    /// by its marks (Towline's PGM option in its packets) is not told, and the owner is not asked
    /// about that sender again while the receiver remembers it. A sender that dialled is told only
    /// that it is not admitted, and the owner is asked again when that sender dials again.
    fn admit(&mut self, sender: &Sender) -> Result<(), String>;

    /// Decides whether [`Intake::admit`] may take any sender at this host. The receiver asks as
    /// soon as it hears a session, before it knows what kind of session it is. The default admits
    /// all hosts.
    ///
    /// # Errors
    /// When no sender at this host is wanted; the text says why, for a person. The receiver then
    /// drops the packets of this session, whatever its kind.
    fn admit_host(&self, host: IpAddr) -> Result<(), String> {
        let _any = host;
        Ok(())
    }

    /// Returns the store for an offered manifest, whose sender has admitted this receiver. The
    /// receiver calls this method before it fetches the manifest. Afterwards it asks the store to
    /// prepare for the manifest, and the store may still refuse.
    ///
    /// # Errors
    /// Why the manifest is not wanted; the sender is told.
    fn accept(&mut self, sender: &Sender, offer: &Offer) -> Result<Self::Store, Decline>;

    /// Returns how many stores still work although their transfers are over, for example because a
    /// disk does not respond. Each such store counts against `transfers_max` until its work is
    /// done, so that such stores cannot pile up. The default returns 0.
    fn stores_ending(&self) -> usize {
        0
    }
}

/// A sender of objects that was heard, or has dialled this receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sender {
    /// The sender's host, and the port on which it takes control connections; port 0 when it dials.
    pub address: SocketAddr,
    /// The sender's session, which changes when the sender restarts.
    pub session_id: u64,
}

/// Why a manifest is not wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decline {
    /// The reason, for a program.
    pub code: ErrorCode,
    /// The reason, for a person.
    pub text: String,
}

/// All settings of a receiver of objects, with their defaults.
#[derive(Clone, Debug)]
pub struct ObjectReceiverConfig {
    /// The settings of each transfer.
    pub receiver: TransferReceiverConfig,
    /// True when the receiver ends after one transfer: that of the first sender that admits the
    /// receiver and offers a wanted manifest.
    pub is_single: bool,
    /// The most transfers at a time; 1 when `is_single`.
    pub transfers_max: usize,
    /// The most transfers at a time from senders of one host; 1 when `is_single`.
    pub transfers_per_host_max: usize,
    /// The most senders that are asked for their offers at a time, at most half of them at one
    /// host. When `is_single`, a further sender is asked only when the senders asked before have
    /// not answered for a while; if senders dial this receiver, only senders at the same host
    /// count. If senders dial this receiver and `is_single` is false, each sender that is asked
    /// takes one of the `transfers_max` places, unless it may continue a transfer that has lost its
    /// sender.
    pub prospects_max: usize,
    /// The most bytes of manifests kept for all transfers together.
    pub manifest_bytes_max: u64,
    /// If senders dial this receiver: the most senders that stay connected and wait until a
    /// transfer can begin, at most half of them at one host. 0 when `is_single`: further senders
    /// are told to come later. A number above [`u32::MAX`] counts as [`u32::MAX`]. Each waiting
    /// sender costs 1 KiB of memory, and a descriptor.
    pub waiting_max: usize,
}

impl ObjectReceiverConfig {
    /// Makes the settings for a single transfer.
    #[must_use]
    pub fn single(receiver: TransferReceiverConfig) -> Self {
        Self {
            is_single: true,
            transfers_max: 1,
            transfers_per_host_max: 1,
            waiting_max: 0,
            ..Self::serving(receiver)
        }
    }

    /// Makes the settings for any number of transfers.
    #[must_use]
    pub const fn serving(receiver: TransferReceiverConfig) -> Self {
        Self {
            receiver,
            is_single: false,
            transfers_max: TRANSFERS_MAX as usize,
            transfers_per_host_max: TRANSFERS_PER_HOST_MAX as usize,
            prospects_max: PROSPECTS_MAX as usize,
            manifest_bytes_max: MANIFESTS_BYTES_MAX as u64,
            waiting_max: SENDERS_WAITING_MAX as usize,
        }
    }

    /// Sets the most transfers at a time, at least 1. Senders of one host may have half of them,
    /// and [`Self::prospects_of`] says how many senders are asked at a time. Does nothing when
    /// `is_single`.
    #[must_use]
    pub fn with_transfers(mut self, transfers_max: usize) -> Self {
        if !self.is_single {
            self.transfers_max = transfers_max.max(1);
            self.transfers_per_host_max = self.transfers_max.div_ceil(2);
            self.prospects_max = Self::prospects_of(self.transfers_max);
        }
        self
    }

    /// Returns how many senders are asked for their offers at a time: a quarter of `transfers_max`,
    /// but at least [`PROSPECTS_MAX`].
    #[must_use]
    pub const fn prospects_of(transfers_max: usize) -> usize {
        let (asked, least) = (transfers_max / 4, PROSPECTS_MAX as usize);
        if asked > least { asked } else { least }
    }
}

/// Something that happened to a receiver of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ObjectReceiverEvent {
    /// This receiver takes nothing from a sender: the owner, a limit or the sender itself does not
    /// allow it, or the sender has not answered. The sender may be asked again later.
    Refused {
        /// The sender.
        sender: Sender,
        /// The reason, for a person.
        text: String,
    },
    /// A transfer begins.
    Accepted {
        /// The transfer's number, which later events name.
        transfer: u32,
        /// What the sender offers.
        offer: Offer,
    },
    /// The transfer goes on in another session, mostly because its sender was restarted. What this
    /// receiver holds already stays.
    Continued {
        /// The transfer's number.
        transfer: u32,
        /// The sender's new session.
        sender: Sender,
    },
    /// Something happened in a transfer. Before [`Self::Accepted`], only two such events can come:
    /// this receiver's name is taken, or a receiver of a single transfer has failed.
    Transfer {
        /// The transfer's number.
        transfer: u32,
        /// The event of the transfer.
        event: TransferReceiverEvent,
    },
    /// A transfer is over. The receiver drops it and its store.
    Left {
        /// The transfer's number.
        transfer: u32,
        /// How far the transfer came.
        progress: ReceiverProgress,
    },
}

/// An intake of the first manifest that any sender offers, into one given store.
#[derive(Debug)]
pub struct TakeFirst<S>(Option<S>);

impl<S> TakeFirst<S> {
    /// Makes an intake that takes one manifest, into `store`.
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
            text: "this receiver takes one transfer, and has begun another".to_owned(),
        })
    }
}
