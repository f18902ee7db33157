//! The events that an audience reports to its owner.

use std::{net::SocketAddr, time::Duration};

use wire::object::{ErrorCode, Pos, Refusal};

base::counters! {
    /// What an audience has counted.
    pub struct AudienceCounters: "audience" {
        reports: Events, "position reports taken";
        windows_told: Events, "times a receiver asked, or had to be told, how far we are";
        reports_ahead: Events, "position reports beyond what was sent; cut to it";
        challenged: Events, "receivers asked to show that they have the key";
        refused: Events, "connections refused";
        greetings_late: Events, "connections closed because no greeting came";
        greetings_cut: Events, "connections closed for newer ones, as too many had not greeted";
        violations: Events, "connections closed because the peer broke the protocol";
        messages_ignored: Events, "control messages without a meaning here";
        reconnected: Events, "receivers that dialled again before their old link was known lost";
        left: Events, "receivers that left or were cut off";
        dropped: Events, "receivers dropped by policy";
        passed_over: Events,
            "guests that were waited for no longer, as their host held the others back";
        names_forgotten: Events, "names of receivers that had left, forgotten for new ones";
        strangers_omitted: Events,
            "NAKs of hosts that reports do not name, when too many such hosts were noted already";
        looks_forgotten: Events, "looks at the lead forgotten while a receiver was further behind";
        events_lost: Events, "events overwritten because the owner had not taken them";
    }
}

/// Something that happened to a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AudienceEvent {
    /// A receiver was admitted.
    Joined {
        /// The receiver's number.
        slot: u32,
        /// The receiver's name.
        name: String,
        /// The receiver's address.
        peer: SocketAddr,
    },
    /// A receiver is gone. For one that the sender drops, [`AudienceEvent::Dropped`] comes instead.
    Left {
        /// The receiver's number.
        slot: u32,
        /// The receiver's name.
        name: String,
        /// The first position that the receiver had not been given; 0 if it never reported.
        contiguous: u64,
        /// Number of sent positions that the receiver had not been given; 0 if it never reported.
        behind: u64,
        /// Why the receiver is gone.
        reason: LeaveReason,
    },
    /// A receiver has been behind without any progress for a second.
    Stalled {
        /// The receiver's number.
        slot: u32,
        /// The receiver's name.
        name: String,
        /// Number of sent positions that the receiver has not been given; 0 before its first
        /// report.
        behind: u64,
    },
    /// A stalled receiver makes progress again.
    Resumed {
        /// The receiver's number.
        slot: u32,
        /// The receiver's name.
        name: String,
    },
    /// A receiver reports for the first time that it lost packets for good. From then on it does
    /// not count as a receiver that has been given everything.
    Lost {
        /// The receiver's number.
        slot: u32,
        /// The receiver's name.
        name: String,
        /// Number of packets that the receiver lost.
        lost: u64,
    },
    /// A receiver reports that it has packets which were never sent: a host forges packets of this
    /// session, or the receiver is wrong. Told once for each receiver. What such a receiver
    /// confirms does not count.
    Astray {
        /// The receiver's number.
        slot: u32,
        /// The receiver's name.
        name: String,
    },
    /// The sender dropped a receiver for being too slow, and told it.
    Dropped {
        /// The receiver's number.
        slot: u32,
        /// The receiver's name.
        name: String,
        /// Number of sent positions that the receiver had not been given; 0 if it never reported.
        behind: u64,
    },
    /// Guests on this receiver's host, or in its IPv6 network, have held the receivers of other
    /// hosts back for too long. A guest is a receiver that nobody expects, in a session without a
    /// key. This receiver is a guest: for some time the sender will not wait for it, so this
    /// receiver may lose data.
    PassedOver {
        /// The receiver's number.
        slot: u32,
        /// The receiver's name.
        name: String,
    },
    /// A connection was refused.
    Refused {
        /// The peer's address.
        peer: SocketAddr,
        /// Why the sender refused it.
        reason: Refusal,
    },
}

impl AudienceEvent {
    /// Returns the number of the receiver; `None` for one that was refused.
    #[must_use]
    pub const fn slot(&self) -> Option<u32> {
        match *self {
            Self::Joined { slot, .. }
            | Self::Left { slot, .. }
            | Self::Stalled { slot, .. }
            | Self::Resumed { slot, .. }
            | Self::Lost { slot, .. }
            | Self::Astray { slot, .. }
            | Self::Dropped { slot, .. }
            | Self::PassedOver { slot, .. } => Some(slot),
            Self::Refused { .. } => None,
        }
    }
}

/// Why a receiver is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaveReason {
    /// The receiver said good-bye.
    Bye,
    /// The receiver's connection was closed or reset: its process is gone, or cannot be reached. Or
    /// the sender closed the connection, for one of two reasons: another host sent a message on it,
    /// or the receiver was silent for long and another receiver of the same name came.
    Closed,
    /// The receiver, or this end, gave up with an error.
    Error {
        /// The kind of error, for the program.
        code: ErrorCode,
        /// The error in words, for a person.
        text: String,
    },
}

/// How far one receiver is.
#[derive(Clone, Copy, Debug)]
pub struct ReceiverStatus<'a> {
    /// The receiver's number.
    pub slot: u32,
    /// The receiver's name.
    pub name: &'a str,
    /// The receiver's address.
    pub peer: SocketAddr,
    /// The next position that the receiver has not been given; `None` before its first report.
    pub contiguous: Option<u64>,
    /// How many positions the receiver is behind the sender's lead; 0 before its first report.
    pub behind: u64,
    /// The receiver's last report, unchanged; [`Pos::default`] before the first.
    pub pos: Pos,
    /// The shortest of the receiver's recent round trips; `None` before the first.
    pub round_trip: Option<Duration>,
    /// The receiver has been behind without any progress for a second.
    pub is_stalled: bool,
}
