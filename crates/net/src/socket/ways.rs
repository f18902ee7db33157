//! A back end of the run loop over several networks at once. Each network is a way, with sockets of
//! its own; one wait serves all ways.
//!
//! ```text
//!   recv   <── way 0 ─┐                run.path ──> way ──> send
//!          <── way 1 ─┼── one epoll <── wait
//!   link_* <──> way n ┘   for all ways
//! ```
//!
//! The path of a packet, and the number of a connection, say by which way the packet or the
//! connection came. Connections that this host dials leave by the kernel's route, except those to a
//! link-local IPv6 address without a scope: these leave by way 0.

use std::{
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd},
};

use base::{Instant, Io, IoFault, LinkEvent, LinkId, Outcome, PathId, RecvBatch, Run, RunLimit};
use sys::{Interest, clock};

use super::{
    counters::UdpCounters,
    options::WaitStrategy,
    readiness::{Readiness, Signal, Waker},
    tally::Tally,
    udp::UdpIo,
};
use crate::SystemError;

/// Several [`UdpIo`] as one back end.
#[derive(Debug)]
pub struct WaysIo {
    ways: Vec<UdpIo>,
    readiness: Readiness,
    tally: Tally,
    /// Index of the way that was last asked first; the next call begins with the way after it.
    turn: usize,
}

impl WaysIo {
    /// Joins `ways`, each opened with its index as its path.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    ///
    /// **Panics** (bug): when there is no way, or when a way's path is not its index.
    pub fn new(ways: Vec<UdpIo>, wait: WaitStrategy) -> Result<Self, SystemError> {
        assert!(!ways.is_empty(), "there is no way");
        let readiness = Readiness::new(wait)?;
        for (index, way) in (0_u8..).zip(&ways) {
            assert_eq!(way.setup().path, PathId(index), "a way's path is its index");
            let signal = Signal(Signal::LINKS + u64::from(index));
            readiness.add(way, signal, Interest::READ)?;
        }
        Ok(Self {
            ways,
            readiness,
            tally: Tally::default(),
            turn: 0,
        })
    }

    /// Returns the ways, in the order of their paths.
    #[must_use]
    pub fn ways(&self) -> &[UdpIo] {
        &self.ways
    }

    /// Makes receive buffers of the shape that suits these sockets.
    #[must_use]
    pub fn batch(&self) -> RecvBatch {
        self.ways[0].batch()
    }

    /// Makes a handle by which another thread ends a wait.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn waker(&self) -> Result<Waker, SystemError> {
        self.readiness.waker()
    }

    /// Takes the next warning; `None` when there is none. A warning says that something works, but
    /// not as asked.
    pub fn take_warning(&mut self) -> Option<String> {
        self.ways.iter_mut().find_map(UdpIo::take_warning)
    }

    /// Returns the counters so far, of all ways together.
    #[must_use]
    pub fn counters(&self) -> UdpCounters {
        let mut sum = self.tally.counters;
        for way in &self.ways {
            sum += way.counters();
        }
        sum
    }

    /// Returns the indices of all ways; each call begins one way later than the last call.
    fn in_turn(&mut self) -> impl Iterator<Item = usize> + use<> {
        let count = self.ways.len();
        self.turn = (self.turn + 1) % count;
        let first = self.turn;
        (0..count).map(move |step| (first + step) % count)
    }

    /// Returns the number by which the run loop knows connection `link` of way `way`.
    fn outer(&self, way: usize, link: LinkId) -> LinkId {
        LinkId(link.0 * self.ways.len() as u32 + way as u32)
    }

    /// Returns the way that a connection belongs to, and the connection's number in that way.
    fn inner(&mut self, link: LinkId) -> (&mut UdpIo, LinkId) {
        let count = self.ways.len() as u32;
        (
            &mut self.ways[(link.0 % count) as usize],
            LinkId(link.0 / count),
        )
    }
}

impl Io for WaysIo {
    fn now(&mut self) -> Instant {
        clock::monotonic()
    }

    fn recv(&mut self, batch: &mut RecvBatch) -> Result<usize, IoFault> {
        let mut filled = 0;
        for way in self.in_turn() {
            filled += self.ways[way].recv(batch)?;
        }
        Ok(filled)
    }

    fn send(&mut self, run: &Run<'_>) -> Outcome {
        match self.ways.get_mut(usize::from(run.path.0)) {
            Some(way) => way.send(run),
            None => Outcome::Failed,
        }
    }

    fn run_limit(&self) -> RunLimit {
        let limits = self.ways.iter().map(Io::run_limit);
        let least = |one: RunLimit, other: RunLimit| RunLimit {
            bytes: one.bytes.min(other.bytes),
            datagrams: one.datagrams.min(other.datagrams),
        };
        limits.reduce(least).expect("there is a way")
    }

    fn link_open(&mut self, peer: SocketAddr) -> LinkId {
        let link = self.ways[0].link_open(peer);
        self.outer(0, link)
    }

    fn link_event(&mut self, data: &mut Vec<u8>) -> Option<(LinkId, LinkEvent)> {
        for way in self.in_turn() {
            if let Some((link, event)) = self.ways[way].link_event(data) {
                return Some((self.outer(way, link), event));
            }
        }
        None
    }

    fn link_send(&mut self, link: LinkId, bytes: &[u8]) -> usize {
        let (way, link) = self.inner(link);
        way.link_send(link, bytes)
    }

    fn link_pause(&mut self, link: LinkId, is_paused: bool) {
        let (way, link) = self.inner(link);
        way.link_pause(link, is_paused);
    }

    fn link_close(&mut self, link: LinkId) {
        let (way, link) = self.inner(link);
        way.link_close(link);
    }

    fn wait(&mut self, until: Option<Instant>) {
        if self.ways.iter().any(UdpIo::has_work) {
            return;
        }
        let mut end = until;
        for way in &mut self.ways {
            end = base::earliest(end, way.wait_elsewhere(until));
        }
        // This does not note which way is ready: each way looks at its own sockets afterwards.
        self.readiness.wait(end, &mut self.tally, |_, _| {});
    }
}

impl AsFd for WaysIo {
    /// Returns the descriptor that is readable when something has come by one of the ways.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readiness.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Role, SocketOptions, UdpSetup};

    fn way(path: u8, port: u16) -> UdpIo {
        let destination = SocketAddr::from(([127, 0, 0, 1 + path], port));
        let mut setup = UdpSetup::new(Role::Source, destination, 1, destination.ip())
            .options(SocketOptions::default());
        setup.path = PathId(path);
        UdpIo::open(setup).unwrap()
    }

    #[test]
    fn what_comes_by_any_way_ends_the_wait_and_says_by_which() {
        let probe = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = probe.local_addr().unwrap().port() ^ 1;
        let mut io = WaysIo::new(vec![way(0, port), way(1, port)], WaitStrategy::Block).unwrap();
        let mut batch = io.batch();
        assert_eq!(io.recv(&mut batch).unwrap(), 0);
        for path in [1, 0] {
            batch.clear();
            probe
                .send_to(b"packet", SocketAddr::from(([127, 0, 0, 1 + path], port)))
                .unwrap();
            let now = io.now();
            io.wait(Some(now + Duration::from_secs(10)));
            assert_eq!(io.recv(&mut batch).unwrap(), 1);
            let (datagram, bytes) = batch.datagrams().next().unwrap();
            assert_eq!(
                (datagram.arrival.path, bytes),
                (PathId(path), &b"packet"[..])
            );
        }
        // A connection through one way to the other: each end has its own number.
        let address = io.ways[1].listen(([127, 0, 0, 2], 0).into()).unwrap();
        let dialled = io.link_open(address);
        let (mut data, mut events, mut accepted) = (Vec::new(), Vec::new(), None);
        while events.len() < 3 {
            while let Some((link, event)) = io.link_event(&mut data) {
                if let LinkEvent::Accepted { .. } = event {
                    accepted = Some(link);
                    assert_eq!(io.link_send(link, b"hello"), 5);
                }
                events.push((link, event));
            }
            if events.len() < 3 {
                let now = io.now();
                io.wait(Some(now + Duration::from_secs(10)));
            }
        }
        let accepted = accepted.unwrap();
        assert_ne!(accepted, dialled);
        assert!(events.contains(&(dialled, LinkEvent::Opened)));
        assert!(events.contains(&(dialled, LinkEvent::Data)) && data == b"hello");
        assert_eq!(io.counters().links_accepted, 1);
    }
}
