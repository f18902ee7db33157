//! The events and answers that a receiver gives its owner besides the verdicts.

use std::net::IpAddr;

use base::Instant;
use wire::pgm::{Mark, Tsi};

use crate::ip_udp_header_bytes;

/// A message, loss or event that became ready since the owner last looked.
///
/// The values for one session come in this order: first `Found`; then messages and losses, in
/// `Mode::Sequence` by their positions; last `Ended`, `Reset` or `Expired`. `Mark` may come at any
/// time before that last event; in a protected session it may come even before `Found`. After the
/// last event the number may name another session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready<'a> {
    /// A message that had to wait (for earlier messages, for its other pieces, or for `Found`), or
    /// that parity recovered.
    Message {
        /// The session that the message belongs to.
        session: u32,
        /// Position of the message's (first) packet.
        position: u64,
        /// The message's bytes; there may be none.
        data: &'a [u8],
        /// True when `data` holds several messages, each with its length in front: see
        /// [`Receiver::is_packed`](super::Receiver::is_packed).
        is_row: bool,
    },
    /// Positions that will never be given out.
    Lost {
        /// The session that the lost positions belong to.
        session: u32,
        /// The first lost position.
        first: u64,
        /// Number of lost positions, from `first` on.
        count: u64,
    },
    /// A sender was heard for the first time.
    Found {
        /// The session's number from now on; it is below `peers_max`.
        session: u32,
        /// The sender's transport session identifier.
        tsi: Tsi,
        /// The address that the sender's packets come from, and must keep coming from.
        source: IpAddr,
    },
    /// An SPM of a Towline source carried a first or a changed mark. Only the latest mark is kept.
    Mark {
        /// The session.
        session: u32,
        /// The mark that the SPM carried.
        mark: Mark,
        /// The address that the session's packets come from.
        source: IpAddr,
    },
    /// The sender ended the session, and all of it was given out or reported as lost.
    Ended {
        /// The session.
        session: u32,
    },
    /// The receiver heard nothing of the sender for too long, and what was missing has been
    /// reported as lost. Or the receiver forgot the sender to make room for another sender.
    Expired {
        /// The session.
        session: u32,
    },
    /// The sender or [`Receiver::abort`](super::Receiver::abort) broke the session off; what was
    /// missing has been reported as lost.
    Reset {
        /// The session.
        session: u32,
    },
}

/// The state of a session: its sender, and how far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The session's transport session identifier.
    pub tsi: Tsi,
    /// The address that the session's packets come from.
    pub source: IpAddr,
    /// The address that the last SPM named for NAKs; `None` before the first SPM.
    pub path_nla: Option<IpAddr>,
    /// The last mark in the session's SPMs, if there was one. Only Towline sources send marks.
    pub mark: Option<Mark>,
    /// The first position that was neither given out nor reported as lost; in `Mode::Arrival`, the
    /// lowest missing position. 0 before the first packet with a position.
    pub contiguous: u64,
    /// The highest position known to exist; `contiguous - 1` when no later position is known.
    pub lead: u64,
    /// The oldest position that the sender can still repair, as far as its packets have said.
    pub trail: u64,
    /// How many positions up to `lead` are missing now.
    pub missing: u64,
    /// Number of payload bytes that the receiver holds back until their turn comes.
    pub held_bytes: u64,
    /// The counts of the session's data so far: arrived, missed, repaired, lost.
    pub arrived: Arrived,
}

/// The counts of one session's data since the session was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrived {
    /// Number of new data packets: received (repairs included), or recovered by parity.
    pub packets: u64,
    /// Payload bytes of the packets that `packets` counts.
    pub bytes: u64,
    /// Positions that were noticed as missing, each counted once.
    pub missed: u64,
    /// Positions asked for in NAKs, repetitions included.
    pub repairs_asked: u64,
    /// Repairs (RDATA) among the packets that `packets` counts.
    pub repairs: u64,
    /// Positions that were given up and reported as [`Ready::Lost`].
    pub lost: u64,
}

impl Position {
    /// Returns the number of bytes that arrived, headers included: IP, UDP, and PGM without
    /// options.
    #[must_use]
    pub const fn bytes_with_headers(&self) -> u64 {
        let headers = ip_udp_header_bytes(self.source) + wire::pgm::Data::HEAD_LEN;
        self.arrived.bytes + self.arrived.packets * headers as u64
    }
}

/// The thing that a receiver waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// No sender is known.
    NoSender,
    /// Senders are known, and no repair is under way.
    Waiting,
    /// Repairs are under way; the next step is due at this time.
    TimerPending(Instant),
}
