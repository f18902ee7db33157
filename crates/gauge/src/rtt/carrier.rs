//! One end of a way for whole messages, whatever carries them.
//!
//! ```text
//!   datagrams   recv, epoll, mmsg, io_uring: four ways to call the kernel, on the same sockets
//!   tcp         messages back to back in one connection
//!   pgm         two sessions of the library
//! ```
//! Client and reflector drive each of the six through the same calls. Messages come into [`Rooms`]
//! that the caller keeps: no call allocates once a measurement has begun.

use std::{fmt::Debug, io, time::Duration};

use base::Instant;
use measure::Repairs;
use sys::stamp::Stamps;

use super::Wait;

/// One end of a way for whole messages.
pub(super) trait Carrier: Debug + Send {
    /// Hands a message over: to the peer, or to the sender of the last one received. `WouldBlock`
    /// when there is no room, and then none of it has left.
    fn send(&mut self, message: &[u8]) -> io::Result<()>;

    /// The same; the kernel notes when it leaves, where the carrier can have that.
    fn send_stamped(&mut self, message: &[u8]) -> io::Result<()> {
        self.send(message)
    }

    /// Takes what is there, without waiting; gives how many messages, at least 1. `WouldBlock`
    /// without one.
    fn receive(&mut self, rooms: &mut Rooms) -> io::Result<usize>;

    /// The same, and waits in the same call, at most [`LOOK`], where [`Carrier::waits_itself`].
    fn receive_waiting(&mut self, rooms: &mut Rooms) -> io::Result<usize> {
        self.receive(rooms)
    }

    /// Takes one message with the times when it came; only where messages are stamped.
    fn receive_stamped(&mut self, _: &mut Rooms) -> io::Result<Stamps> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Sends the `count` messages received last back to their senders, except those that were
    /// discarded. Returns how many could not be sent.
    fn reply(&mut self, rooms: &Rooms, _count: usize) -> io::Result<u64> {
        let answer = rooms.message(0);
        if answer.is_empty() {
            return Ok(0);
        }
        match self.send(answer) {
            Err(error) if is_passing(&error) => Ok(1),
            sent => sent.map(|()| 0),
        }
    }

    /// Whether one call can wait for a message and take it.
    fn waits_itself(&self) -> bool {
        false
    }

    /// Whether a message is there; `None` where only a wait can tell.
    fn is_ready(&mut self) -> io::Result<Option<bool>> {
        Ok(None)
    }

    /// Waits until a message may be there, at most `limit`.
    fn wait(&mut self, limit: Duration) -> io::Result<()>;

    /// What the protocol underneath has repaired, when it does.
    fn repairs(&self) -> Option<Repairs> {
        None
    }
}

/// Waits for the next message as a reflector does that waits like `wait`.
pub(super) fn rest(carrier: &mut dyn Carrier, wait: Wait) -> io::Result<()> {
    if wait == Wait::Spin {
        return Ok(());
    }
    if wait == Wait::Busy {
        let end: Instant = sys::clock::monotonic() + BUSY;
        while let Some(is_there) = carrier.is_ready()?
            && sys::clock::monotonic() < end
        {
            if is_there {
                return Ok(());
            }
        }
    }
    carrier.wait(LOOK)
}

/// Room for the messages of one call.
#[derive(Debug)]
pub(super) struct Rooms {
    bytes: Vec<u8>,
    lens: [usize; BATCH],
}

impl Rooms {
    /// For at most `count` messages, of [`BATCH`] at most.
    pub(super) fn new(count: usize) -> Self {
        Self {
            bytes: vec![0; count.clamp(1, BATCH) * ROOM_BYTES],
            lens: [0; BATCH],
        }
    }

    /// Where the first message goes.
    pub(super) fn first(&mut self) -> &mut [u8] {
        &mut self.bytes[..ROOM_BYTES]
    }

    /// Where each message goes.
    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.bytes.chunks_mut(ROOM_BYTES)
    }

    /// Notes how long message `index` is.
    pub(super) const fn set_len(&mut self, index: usize, len: usize) {
        self.lens[index] = len;
    }

    /// Has message `index` left unanswered.
    pub(super) const fn discard(&mut self, index: usize) {
        self.lens[index] = 0;
    }

    /// Message `index`; empty when it was discarded.
    pub(super) fn message(&self, index: usize) -> &[u8] {
        &self.bytes[index * ROOM_BYTES..][..self.lens[index]]
    }

    /// Message `index`, to be changed in place.
    pub(super) fn message_mut(&mut self, index: usize) -> &mut [u8] {
        &mut self.bytes[index * ROOM_BYTES..][..self.lens[index]]
    }
}

/// Errors that concern one client, or one moment.
pub(super) fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::ConnectionRefused
            | Kind::Interrupted
            | Kind::HostUnreachable
            | Kind::NetworkUnreachable
            | Kind::PermissionDenied
            | Kind::WouldBlock
    ) || error.raw_os_error() == Some(sys::errno::ENOBUFS)
}

/// Nothing listens at the far end: perhaps not yet (a datagram was refused), or not any more (a
/// connection has ended, which [`is_passing`] does not count as passing).
pub(super) fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::ConnectionRefused | Kind::ConnectionAborted
    )
}

/// Longest wait: how late a stop is seen.
pub(super) const LOOK: Duration = Duration::from_millis(20);
/// How long a busy reflector looks for the next message before it sleeps.
const BUSY: Duration = Duration::from_micros(200);
/// Messages that one call takes at most.
pub(super) const BATCH: usize = 32;
/// The longest message, from any sender.
pub(super) const ROOM_BYTES: usize = 65_536;
