//! The state of a publisher's receivers.

use std::{net::SocketAddr, time::Duration};

/// The state of one receiver.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiverStatus {
    /// The receiver's number, as in the events.
    pub slot: u32,
    /// The receiver's name.
    pub name: String,
    /// The receiver's address.
    pub peer: SocketAddr,
    /// How many packets the receiver is behind: they were sent, but its application has not been
    /// given their messages.
    pub behind: u64,
    /// The shortest of the receiver's recent round trips; `None` before its first.
    pub round_trip: Option<Duration>,
    /// The receiver has been behind for a second without any progress.
    pub is_stalled: bool,
}

impl ReceiverStatus {
    pub(super) fn of(status: delivery::ReceiverStatus<'_>) -> Self {
        Self {
            slot: status.slot,
            name: status.name.to_owned(),
            peer: status.peer,
            behind: status.behind,
            round_trip: status.round_trip,
            is_stalled: status.is_stalled,
        }
    }
}
