//! The boundary between the run loop and the world: real sockets, or a simulated network.

use std::{fmt, net::SocketAddr};

use crate::{Instant, Outcome, RecvBatch, Run};

/// A control connection (a TCP connection, or its simulated twin), numbered by the back end.
/// Numbers are never reused within one back end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

/// An event on a control connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// A peer dialled this host.
    Accepted {
        /// The peer's address.
        peer: SocketAddr,
    },
    /// A connection that this host dialled is open.
    Opened,
    /// Bytes arrived; they are in the buffer given to [`Io::link_event`].
    Data,
    /// The connection has room to send again, after [`Io::link_send`] took fewer bytes than it was
    /// given.
    Writable,
    /// The connection is over: closed by the peer, reset, or never established.
    Closed,
}

/// The largest run that a back end sends in one call. It changes when the kernel refuses a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunLimit {
    /// Bytes, all datagrams together.
    pub bytes: usize,
    /// Datagrams.
    pub datagrams: usize,
}

impl RunLimit {
    /// The most bytes of any run. The kernel segments longer runs in software even where the
    /// interface could do it (measured at 65,504 bytes), and GRO at the receiver builds at most
    /// 65,535 bytes, headers included.
    pub const BYTES_MAX: usize = 65_000;
}

/// A fault from which the back end cannot recover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IoFault {
    /// Operation, target, cause and remedy, as one sentence for a person.
    pub text: String,
}

impl fmt::Display for IoFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for IoFault {}

/// The services that the run loop needs from the world. No method except [`Io::wait`] blocks.
pub trait Io {
    /// Returns the time of the monotonic clock.
    fn now(&mut self) -> Instant;

    /// Receives what has arrived into the batch's free buffers. Returns the number of buffers
    /// filled, 0 when nothing has arrived. The back end counts transient errors (EINTR, errors
    /// caused by ICMP) and does not return them.
    ///
    /// # Errors
    /// When the sockets can no longer be used.
    fn recv(&mut self, batch: &mut RecvBatch) -> Result<usize, IoFault>;

    /// Sends one run; never blocks.
    fn send(&mut self, run: &Run<'_>) -> Outcome;

    /// Returns the largest run that [`Io::send`] passes on in one piece.
    fn run_limit(&self) -> RunLimit;

    /// Dials a control connection; [`LinkEvent::Opened`] or [`LinkEvent::Closed`] follows.
    fn link_open(&mut self, peer: SocketAddr) -> LinkId;

    /// Returns the next control-connection event. For [`LinkEvent::Data`] the bytes that arrived
    /// (at most 128 KiB a call) replace the contents of `data`.
    fn link_event(&mut self, data: &mut Vec<u8>) -> Option<(LinkId, LinkEvent)>;

    /// Queues bytes on a control connection. Returns the number of bytes taken: fewer than given
    /// when the connection's bounded queue is full ([`LinkEvent::Writable`] follows), 0 when the
    /// connection is closed.
    fn link_send(&mut self, link: LinkId, bytes: &[u8]) -> usize;

    /// Pauses reading a control connection, or resumes it. During a pause the buffers fill and the
    /// peer must wait. The back end still reports a connection that breaks.
    fn link_pause(&mut self, link: LinkId, is_paused: bool);

    /// Closes a control connection. The back end first sends what is queued on it, but may give up
    /// after a few seconds.
    fn link_close(&mut self, link: LinkId);

    /// Waits for a packet, a control event or, after `Blocked`, room to send; at most until
    /// `until`.
    fn wait(&mut self, until: Option<Instant>);
}
