//! A back end of the run loop without packets: control connections over TCP alone, and one epoll
//! descriptor to wait for them.
//!
//! Apart from packets, [`LinkIo`] has what [`UdpIo`](super::UdpIo) has: the same connections, the
//! same counters, the same ways to wait.

use std::{
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
};

use base::{Instant, Io, IoFault, LinkEvent, LinkId, Outcome, RecvBatch, Run, RunLimit};
use sys::clock;

use super::{
    counters::UdpCounters,
    link::{HeldBack, Links},
    options::SocketOptions,
    readiness::{Readiness, Signal, Waker},
    tally::Tally,
};
use crate::SystemError;

/// The TCP connections of a session that has no packets, and the means to wait for them.
#[derive(Debug)]
pub struct LinkIo {
    links: Links,
    readiness: Readiness,
    tally: Tally,
}

impl LinkIo {
    /// Makes a back end without any connection yet. Its connections have no queues: the caller
    /// keeps the bytes that the kernel does not take.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn open(options: &SocketOptions) -> Result<Self, SystemError> {
        Ok(Self {
            links: Links::new(&options.clone().link_queue_bytes(0)),
            readiness: Readiness::new(options.wait)?,
            tally: Tally::default(),
        })
    }

    /// Accepts connections on `address` (port 0: any free one). Returns the address bound. The
    /// unspecified IPv6 address takes connections by IPv4, too.
    ///
    /// # Errors
    /// When this host has no such address, or when the port is taken or needs a right that this
    /// process lacks.
    pub fn listen(&mut self, address: SocketAddr) -> Result<SocketAddr, SystemError> {
        self.links.listen(address, &self.readiness)
    }

    /// Accepts no more connections; those that are open stay.
    pub fn stop_listening(&mut self) {
        self.links.stop_listening();
    }

    /// Measures what holds back each connection, at most ten times a second, and less often when
    /// there are more than 256 connections.
    ///
    /// **Cost**: three system calls for each connection, when a measurement is due.
    pub fn look(&mut self) {
        self.links.look(clock::monotonic());
    }

    /// Returns, for each peer, how long each cause held back the connections to it, as
    /// [`LinkIo::look`] has measured.
    pub fn held_back(&self) -> impl Iterator<Item = (SocketAddr, HeldBack)> + '_ {
        self.links.held_back()
    }

    /// Makes a batch without receive buffers, because no packets come.
    #[must_use]
    pub fn batch(&self) -> RecvBatch {
        RecvBatch::new(0, 1)
    }

    /// Makes a handle by which another thread can end a wait of this back end.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn waker(&self) -> Result<Waker, SystemError> {
        self.readiness.waker()
    }

    /// Makes the descriptor readable at `deadline` too, for owners that wait by themselves instead
    /// of calling [`Io::wait`].
    pub fn arm(&mut self, deadline: Option<Instant>) {
        self.readiness
            .arm(base::earliest(deadline, self.links.due()));
    }

    /// Takes the next warning; `None` when there is none. A warning says that something works, but
    /// not as asked.
    pub fn take_warning(&mut self) -> Option<String> {
        self.tally.take_warning()
    }

    /// Returns the counters so far.
    #[must_use]
    pub const fn counters(&self) -> &UdpCounters {
        &self.tally.counters
    }

    /// Returns the number of connections that have unsent bytes, are being opened, or are being
    /// closed.
    #[must_use]
    pub fn links_unfinished(&self) -> usize {
        self.links.unfinished()
    }

    fn poll(&mut self, deadline: Option<Instant>) {
        self.links.begin_poll(&self.readiness);
        let links = &mut self.links;
        self.readiness
            .wait(deadline, &mut self.tally, |Signal(token), ready| {
                links.note_ready(token, ready);
            });
        self.links.attend_dials(&self.readiness, &mut self.tally);
    }
}

impl Io for LinkIo {
    fn now(&mut self) -> Instant {
        clock::monotonic()
    }

    fn recv(&mut self, _batch: &mut RecvBatch) -> Result<usize, IoFault> {
        Ok(0)
    }

    fn send(&mut self, _run: &Run<'_>) -> Outcome {
        Outcome::Failed
    }

    fn run_limit(&self) -> RunLimit {
        RunLimit {
            bytes: RunLimit::BYTES_MAX,
            datagrams: 1,
        }
    }

    fn link_open(&mut self, peer: SocketAddr) -> LinkId {
        self.links.open(peer, &self.readiness, &mut self.tally)
    }

    fn link_event(&mut self, data: &mut Vec<u8>) -> Option<(LinkId, LinkEvent)> {
        if !self.links.has_work() {
            self.poll(Some(Instant::ZERO));
        }
        self.links.event(data, &self.readiness, &mut self.tally)
    }

    fn link_send(&mut self, link: LinkId, bytes: &[u8]) -> usize {
        self.links
            .send(link, bytes, &self.readiness, &mut self.tally)
    }

    fn link_pause(&mut self, link: LinkId, is_paused: bool) {
        self.links.pause(link, is_paused, &self.readiness);
    }

    fn link_close(&mut self, link: LinkId) {
        self.links.close(link, &self.readiness, &mut self.tally);
    }

    fn wait(&mut self, until: Option<Instant>) {
        self.tally.counters.waits += 1;
        if !self.links.has_work() {
            self.poll(base::earliest(until, self.links.due()));
        }
    }
}

impl AsFd for LinkIo {
    /// Returns the descriptor that is readable when the owner has something to receive or to do.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readiness.as_fd()
    }
}

impl AsRawFd for LinkIo {
    /// Returns the descriptor that is readable when the owner has something to receive or to do.
    fn as_raw_fd(&self) -> RawFd {
        self.readiness.as_fd().as_raw_fd()
    }
}
