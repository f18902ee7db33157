//! The back ends of the library's sessions: packets and connections, or connections alone.

use std::os::fd::{AsFd as _, BorrowedFd};

use base::{Instant, Io, IoFault, LinkEvent, LinkId, Outcome, RecvBatch, Run, RunLimit};
use net::{Intercept, LinkIo, SystemError, UdpCounters, UdpIo};

use crate::Snapshot;

/// The sockets of a session, which the loop drives.
#[derive(Debug)]
pub(crate) enum Backend {
    /// Sockets for packets and control connections. A layer can put faults into received packets.
    Packets(Box<Intercept<UdpIo>>),
    /// Sockets for connections alone.
    #[cfg_attr(
        not(feature = "files"),
        expect(dead_code, reason = "messages travel in packets")
    )]
    Links(Box<LinkIo>),
}

/// Calls a method that both back ends have.
macro_rules! either {
    ($backend:expr, $io:ident => $call:expr) => {
        match $backend {
            Backend::Packets(intercept) => {
                let $io = intercept.inner();
                $call
            }
            Backend::Links($io) => $call,
        }
    };
    (mut $backend:expr, $io:ident => $call:expr) => {
        match $backend {
            Backend::Packets(intercept) => {
                let $io = intercept.inner_mut();
                $call
            }
            Backend::Links($io) => $call,
        }
    };
}

impl Backend {
    pub(crate) fn counters(&self) -> &UdpCounters {
        either!(self, io => io.counters())
    }

    /// Adds all counters to a snapshot.
    pub(crate) fn count(&self, snapshot: &mut Snapshot) {
        snapshot.add(self.counters());
        if let Self::Packets(intercept) = self {
            snapshot.add(intercept.counters());
        }
    }

    #[cfg(feature = "files")]
    pub(crate) fn stop_listening(&mut self) {
        either!(mut self, io => io.stop_listening());
    }

    /// Measures what holds the connections back, if the next measurement is due; does nothing where
    /// packets carry the content.
    #[cfg(feature = "files")]
    pub(crate) fn look(&mut self) {
        if let Self::Links(io) = self {
            io.look();
        }
    }

    /// Returns, for each peer, its address and what held its connection back; empty where packets
    /// carry the content.
    #[cfg(feature = "files")]
    pub(crate) fn held_back(&self) -> Vec<(std::net::SocketAddr, net::HeldBack)> {
        match self {
            Self::Packets(_) => Vec::new(),
            Self::Links(io) => io.held_back().collect(),
        }
    }

    pub(crate) fn links_unfinished(&self) -> usize {
        either!(self, io => io.links_unfinished())
    }

    pub(crate) fn take_warning(&mut self) -> Option<String> {
        either!(mut self, io => io.take_warning())
    }

    pub(crate) fn coalesce(&mut self, at_most: std::time::Duration) {
        if let Self::Packets(intercept) = self {
            intercept.inner_mut().coalesce(at_most);
        }
    }

    pub(crate) fn send_error(&self) -> Option<SystemError> {
        match self {
            Self::Packets(intercept) => intercept.inner().send_error(),
            Self::Links(_) => None,
        }
    }

    pub(crate) fn waker(&self) -> Result<net::Waker, SystemError> {
        either!(self, io => io.waker())
    }

    pub(crate) fn arm(&mut self, deadline: Option<Instant>) {
        either!(mut self, io => io.arm(deadline));
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        either!(self, io => io.as_fd())
    }
}

impl Io for Backend {
    #[inline]
    fn now(&mut self) -> Instant {
        match self {
            Self::Packets(io) => io.now(),
            Self::Links(io) => io.now(),
        }
    }

    #[inline]
    fn recv(&mut self, batch: &mut RecvBatch) -> Result<usize, IoFault> {
        match self {
            Self::Packets(io) => io.recv(batch),
            Self::Links(io) => io.recv(batch),
        }
    }

    #[inline]
    fn send(&mut self, run: &Run<'_>) -> Outcome {
        match self {
            Self::Packets(io) => io.send(run),
            Self::Links(io) => io.send(run),
        }
    }

    fn run_limit(&self) -> RunLimit {
        match self {
            Self::Packets(io) => io.run_limit(),
            Self::Links(io) => io.run_limit(),
        }
    }

    fn link_open(&mut self, peer: std::net::SocketAddr) -> LinkId {
        match self {
            Self::Packets(io) => io.link_open(peer),
            Self::Links(io) => io.link_open(peer),
        }
    }

    fn link_event(&mut self, data: &mut Vec<u8>) -> Option<(LinkId, LinkEvent)> {
        match self {
            Self::Packets(io) => io.link_event(data),
            Self::Links(io) => io.link_event(data),
        }
    }

    fn link_send(&mut self, link: LinkId, bytes: &[u8]) -> usize {
        match self {
            Self::Packets(io) => io.link_send(link, bytes),
            Self::Links(io) => io.link_send(link, bytes),
        }
    }

    fn link_pause(&mut self, link: LinkId, is_paused: bool) {
        match self {
            Self::Packets(io) => io.link_pause(link, is_paused),
            Self::Links(io) => io.link_pause(link, is_paused),
        }
    }

    fn link_close(&mut self, link: LinkId) {
        match self {
            Self::Packets(io) => io.link_close(link),
            Self::Links(io) => io.link_close(link),
        }
    }

    fn wait(&mut self, until: Option<Instant>) {
        match self {
            Self::Packets(io) => io.wait(until),
            Self::Links(io) => io.wait(until),
        }
    }
}
