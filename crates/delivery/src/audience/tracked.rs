//! What an audience knows about one receiver, while the receiver is present and afterwards.

use std::net::SocketAddr;

use base::Instant;
use wire::object::{Hello, Pos};

use crate::feedback::RoundTrip;

/// What the sender remembers about each receiver that has joined, even when it has left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat {
    pub(super) slot: u32,
    /// The first position that the receiver's application had not been given when the receiver's
    /// last connection ended; 0 if none has ended yet.
    pub(super) contiguous: u64,
    pub(super) has_reported: bool,
    /// How many packets the receiver reported as lost for good.
    pub(super) lost: u64,
    /// The receiver has reported a position beyond what was sent.
    pub(super) is_astray: bool,
    pub(super) standing: Standing,
    /// The receiver's place in the order in which receivers left; `None` for one that is present or
    /// expected.
    pub(super) left: Option<u64>,
}

/// Whether a receiver is present, and if not, whether it may come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Here,
    /// The receiver said good-bye, or was dropped and told, or the session ended.
    Left,
    /// The receiver's connection ended without a good-bye.
    Lost,
}

/// A receiver that was admitted and is present.
#[derive(Debug)]
pub(super) struct Tracked {
    pub(super) slot: u32,
    pub(super) name: String,
    pub(super) instance: u64,
    pub(super) peer: SocketAddr,
    /// The first position that the receiver's application has not been given, in the sender's
    /// numbering. 0 before the receiver's first report, so that the sender keeps all packets
    /// until then.
    pub(super) contiguous: u64,
    pub(super) pos: Pos,
    pub(super) has_reported: bool,
    pub(super) heard_at: Instant,
    pub(super) progress_at: Instant,
    pub(super) is_stalled: bool,
    /// True while the sender waits for this receiver; false for a guest whose host has held the
    /// other receivers back for too long.
    pub(super) is_awaited: bool,
    pub(super) round_trip: RoundTrip,
}

impl Tracked {
    pub(super) fn new(now: Instant, slot: u32, hello: &Hello<'_>, peer: SocketAddr) -> Self {
        Self {
            slot,
            name: hello.name.to_owned(),
            instance: hello.instance,
            peer,
            contiguous: 0,
            pos: Pos::default(),
            has_reported: false,
            heard_at: now,
            progress_at: now,
            is_stalled: false,
            is_awaited: true,
            round_trip: RoundTrip::default(),
        }
    }
}
