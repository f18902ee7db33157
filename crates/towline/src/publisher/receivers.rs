//! How the receivers of a publisher stand.

use std::{net::SocketAddr, time::Duration};

/// How one receiver stands.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiverStatus {
    /// Its number, as in the events.
    pub slot: u32,
    /// Its name.
    pub name: String,
    /// Its address.
    pub peer: SocketAddr,
    /// Packets that were sent and that its application has not been given.
    pub behind: u64,
    /// The shortest of its recent round trips; `None` before its first.
    pub round_trip: Option<Duration>,
    /// It has been behind without any progress for a second.
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
