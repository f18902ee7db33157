//! One end of a connection for whole messages, over any transport.
//!
//! ```text
//!   datagrams   recv, epoll, mmsg, io_uring: four ways to call the kernel, on the same sockets
//!   tcp         messages back to back in one connection
//!   pgm         two sessions of the library
//! ```
//! Client and reflector drive each of the six through the same calls. The caller keeps [`Rooms`]
//! for received messages, so no call allocates once a measurement has begun.

use std::{fmt::Debug, io, time::Duration};

use base::Instant;
use measure::Repairs;
use sys::stamp::Stamps;

use super::Wait;

/// One end of a connection for whole messages.
pub(super) trait Carrier: Debug + Send {
    /// Sends a message: to the peer, or to the sender of the message received last. `WouldBlock`
    /// means that there was no room, and no part of the message has left.
    fn send(&mut self, message: &[u8]) -> io::Result<()>;

    /// Sends a message as [`Carrier::send`] does. If the carrier supports stamps, the kernel also
    /// stamps the message when it leaves.
    fn send_stamped(&mut self, message: &[u8]) -> io::Result<()> {
        self.send(message)
    }

    /// Receives the messages that are there, without waiting; returns how many, at least 1.
    /// `WouldBlock` means that there was none.
    fn receive(&mut self, rooms: &mut Rooms) -> io::Result<usize>;

    /// Receives as [`Carrier::receive`] does. If [`Carrier::waits_itself`] is true, the same system
    /// call first waits at most [`LOOK`] for a message.
    fn receive_waiting(&mut self, rooms: &mut Rooms) -> io::Result<usize> {
        self.receive(rooms)
    }

    /// Receives one message with the times of its arrival. Only carriers that stamp messages can do
    /// this.
    fn receive_stamped(&mut self, _: &mut Rooms) -> io::Result<Stamps> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Sends the last `count` received messages back to their senders, except those that were
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

    /// Returns true when one system call can wait for a message and receive it.
    fn waits_itself(&self) -> bool {
        false
    }

    /// Says whether a message is there; `None` when only a wait can tell.
    fn is_ready(&mut self) -> io::Result<Option<bool>> {
        Ok(None)
    }

    /// Waits at most `limit` for a message. May return although there is none.
    fn wait(&mut self, limit: Duration) -> io::Result<()>;

    /// Returns what the protocol has repaired; `None` for a protocol that repairs nothing.
    fn repairs(&self) -> Option<Repairs> {
        None
    }

    /// Returns how many datagrams the kernel has dropped at this end's sockets since they were
    /// opened, mostly because a receive buffer was full. `None` for a protocol that loses none
    /// there, and where the kernel does not tell.
    fn socket_drops(&self) -> Option<u64> {
        None
    }
}

/// Waits for a reflector's next message by the strategy `wait`. May return although there is none.
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
    /// Makes room for `count` messages, at most [`BATCH`].
    pub(super) fn new(count: usize) -> Self {
        Self {
            bytes: vec![0; count.clamp(1, BATCH) * ROOM_BYTES],
            lens: [0; BATCH],
        }
    }

    /// Returns the room of the first message.
    pub(super) fn first(&mut self) -> &mut [u8] {
        &mut self.bytes[..ROOM_BYTES]
    }

    /// Returns the room of each message.
    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.bytes.chunks_mut(ROOM_BYTES)
    }

    /// Notes how long message `index` is.
    pub(super) const fn set_len(&mut self, index: usize, len: usize) {
        self.lens[index] = len;
    }

    /// Marks message `index`, so that no answer to it is sent.
    pub(super) const fn discard(&mut self, index: usize) {
        self.lens[index] = 0;
    }

    /// Returns message `index`; empty when it was discarded.
    pub(super) fn message(&self, index: usize) -> &[u8] {
        &self.bytes[index * ROOM_BYTES..][..self.lens[index]]
    }

    /// Returns message `index`, to be changed in place.
    pub(super) fn message_mut(&mut self, index: usize) -> &mut [u8] {
        &mut self.bytes[index * ROOM_BYTES..][..self.lens[index]]
    }
}

/// Returns true for errors that concern one client or one moment.
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

/// Returns true when nothing listens at the far end. A refused datagram may mean that nothing
/// listens yet. A connection that has ended means that nothing listens any more; for that error,
/// [`is_passing`] is false.
pub(super) fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::ConnectionRefused | Kind::ConnectionAborted
    )
}

/// The longest wait, which is also how late a stop may be noticed.
pub(super) const LOOK: Duration = Duration::from_millis(20);
/// How long a busy reflector looks for the next message before it sleeps.
const BUSY: Duration = Duration::from_micros(200);
/// The most messages that one call receives.
pub(super) const BATCH: usize = 32;
/// Bytes of the longest message, from any sender.
pub(super) const ROOM_BYTES: usize = 65_536;
