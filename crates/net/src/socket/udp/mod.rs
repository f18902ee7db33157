//! A back end of the run loop over real sockets: UDP for packets, TCP for control connections, and
//! epoll to wait for both.
//!
//! ```text
//!              recv ──> readiness (epoll) ──> group socket ─┐
//!                                         └─> upstream ─────┴──> batch
//! run ──> send ──> upstream socket (GSO | sendmmsg | sendmsg)
//!   link_* <──> control connections            wait ──> block | busy | spin
//! ```
//!
//! [`UdpIo`] knows nothing of PGM: it moves runs and batches. One descriptor ([`UdpIo::as_raw_fd`])
//! becomes readable when there is anything to do, for owners with a loop of their own.
//!
//! Which system call comes next depends on the results of the last ones. The module `rhythm` has a
//! drawing of this.
//!
//! Invariants: only `wait` blocks. Every datagram, call and failure is counted. Packets and runs
//! need no allocation, except a second batch: at the first sleep in the group's socket, and again
//! after the owner's batch has changed its shape.

use std::{
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    thread,
    time::Duration,
};

use base::{Instant, Io, IoFault, LinkEvent, LinkId, Outcome, RecvBatch, Run, RunLimit};
use sys::{Interest, RawAddress, clock, datagram, message};

use super::{
    counters::UdpCounters,
    link::Links,
    options::WaitStrategy,
    readiness::{Readiness, Signal, Waker},
    tally::Tally,
};
use crate::SystemError;

mod coalesce;
use coalesce::Coalescing;

mod open;
use open::Ports;
pub use open::{Role, UdpSetup};

mod rhythm;
use rhythm::RecvRhythm;

mod receive;
use receive::Collector;

mod send;
use send::{Blocked, Sender};

mod sleep;
use sleep::{GroupSleep, SLEEP_MAX};

/// The sockets of one session, and the means to wait for them.
#[derive(Debug)]
pub struct UdpIo {
    setup: UdpSetup,
    ports: Ports,
    sender: Sender,
    collector: Collector,
    links: Links,
    readiness: Readiness,
    tally: Tally,
    /// The address to which a receiver sends a copy of each packet that it multicasts, so that a
    /// source on the same host gets the packet; `None` when no copies are needed.
    own_source: Option<RawAddress>,
    rhythm: RecvRhythm,
    sleep: GroupSleep,
    coalescing: Coalescing,
}

impl UdpIo {
    /// Opens the sockets of a session.
    ///
    /// # Errors
    /// When the system refuses something; the error says what was refused, for which address, and
    /// what to do about it.
    pub fn open(mut setup: UdpSetup) -> Result<Self, SystemError> {
        if setup.is_raw() {
            // The socket is raw, and the kernel segments and coalesces only UDP.
            (setup.options.gso, setup.options.gro) = (false, false);
        }
        let mut tally = Tally::default();
        let ports = Ports::open(&setup, &mut tally)?;
        let readiness = Readiness::new(setup.options.wait)?;
        readiness.add(&ports.upstream.socket, Signal::UPSTREAM, Interest::READ)?;
        if let Some(group) = &ports.group {
            readiness.add(&group.socket, Signal::GROUP, Interest::READ)?;
            // Only `sleep_in_group` waits in this socket: every other call says that it must not
            // wait.
            let _always = datagram::set_blocking(group.socket.as_fd(), SLEEP_MAX);
        }
        let wants_gro = setup.options.gro && !setup.options.faults.nogro;
        let mut has_gro = wants_gro;
        for port in ports.iter() {
            has_gro &= port.socket.set_gro(has_gro).is_ok();
        }
        if wants_gro && !has_gro {
            let text = "the kernel has no UDP GRO, which came with Linux 5.0: receiving goes on, \
                        with one datagram a buffer and more load";
            tally.warn(text.into());
        }
        if !has_gro {
            for port in ports.iter() {
                // Coalescing may be on for the first socket although the second refused it. If the
                // kernel refuses this call, too, coalescing was never on.
                let _was_off_already = port.socket.set_gro(false);
            }
        }
        let coalescing = Coalescing::new(ports.receive_buffer_bytes() as u64);
        Ok(Self {
            sender: Sender::new(&ports.upstream.socket, &setup.options),
            collector: Collector::new(setup.path, has_gro, &setup),
            links: Links::new(&setup.options),
            ports,
            readiness,
            tally,
            own_source: setup.own_source().map(RawAddress::from),
            coalescing,
            setup,
            rhythm: RecvRhythm::new(),
            sleep: GroupSleep::new(),
        })
    }

    /// Returns the port of the upstream socket. At a source this is the session's port, unless
    /// another program had that port and [`UdpSetup::shares_port`] was set.
    #[must_use]
    pub const fn upstream_port(&self) -> u16 {
        self.ports.upstream.bound.port()
    }

    /// Accepts control connections on `address` (port 0: any free one). Returns the address bound.
    ///
    /// # Errors
    /// When this host has no such address, or when the port is taken or needs a right that this
    /// process lacks.
    pub fn listen(&mut self, address: SocketAddr) -> Result<SocketAddr, SystemError> {
        let address = self.setup.scoped(address);
        self.links.listen(address, &self.readiness)
    }

    /// Makes receive buffers for these sockets, each with room for the longest packet or coalesced
    /// message.
    #[must_use]
    pub fn batch(&self) -> RecvBatch {
        self.collector.batch()
    }

    /// Makes a handle by which another thread ends a wait.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn waker(&self) -> Result<Waker, SystemError> {
        self.readiness.waker()
    }

    /// Makes [`UdpIo::as_raw_fd`] readable at `deadline` too, for owners that wait by themselves
    /// instead of calling [`Io::wait`].
    pub fn arm(&mut self, deadline: Option<Instant>) {
        let deadline = base::earliest(deadline, self.links.due());
        let blocked = self.sender.blocked;
        let deadline = match blocked {
            _ if self.sleep.has_packets() => Some(Instant::ZERO),
            Blocked::Beyond => Some(retry_at(deadline)),
            _ => deadline,
        };
        self.readiness.arm(deadline);
        self.rhythm.note_own_wait();
        self.ask_for_room(blocked == Blocked::Socket);
        self.settle_drops();
    }

    /// Lets each wait under load sleep for up to `at_most`, so that one receive takes many packets.
    /// A wait sleeps less when the socket's buffer would fill too far. The price is delay: timers,
    /// [`Waker`]s and control connections wait for the end of the sleep. Zero, the default,
    /// switches this off. Only waits with [`WaitStrategy::Block`] sleep in this way.
    pub const fn coalesce(&mut self, at_most: Duration) {
        self.coalescing.set(at_most);
    }

    /// Takes the next warning; `None` when there is none. A warning says that something works, but
    /// not as asked.
    pub fn take_warning(&mut self) -> Option<String> {
        self.tally.take_warning()
    }

    /// Returns the error of the last datagram that the kernel refused, if the kernel has taken none
    /// so far; else `None`. A datagram that must wait for room does not count as refused.
    #[must_use]
    pub fn send_error(&self) -> Option<SystemError> {
        let (to, errno) = self.tally.refused?;
        let has_sent = self.tally.counters.sent_datagrams > 0;
        (!has_sent).then(|| send::refusal(to, errno))
    }

    /// Returns the counters so far.
    #[must_use]
    pub fn counters(&self) -> &UdpCounters {
        &self.tally.counters
    }

    /// Returns the address at which upstream packets arrive and from which all packets leave.
    #[must_use]
    pub fn upstream_address(&self) -> SocketAddr {
        self.ports.upstream.bound
    }

    /// Returns the setup that was asked for.
    #[must_use]
    pub const fn setup(&self) -> &UdpSetup {
        &self.setup
    }

    /// Stops accepting control connections: open ones stay, and the kernel refuses new ones.
    pub fn stop_listening(&mut self) {
        self.links.stop_listening();
    }

    /// Returns the number of control connections that still have bytes to send, are being opened,
    /// or wait for their peer to see the end.
    #[must_use]
    pub fn links_unfinished(&self) -> usize {
        self.links.unfinished()
    }

    /// Asks the kernel what is ready, waiting up to `deadline`, and notes the answer at each socket
    /// and connection.
    fn poll(&mut self, deadline: Option<Instant>) {
        self.rhythm.note_poll();
        self.links.begin_poll(&self.readiness);
        let (ports, links) = (&mut self.ports, &mut self.links);
        let mut has_reports = false;
        self.readiness
            .wait(deadline, &mut self.tally, |signal, ready| match signal {
                Signal::UPSTREAM => {
                    ports.upstream.is_ready |= ready.readable;
                    has_reports = ready.faulty;
                }
                Signal::GROUP => {
                    if let Some(group) = &mut ports.group {
                        group.is_ready |= ready.readable;
                    }
                }
                Signal(token) => links.note_ready(token, ready),
            });
        self.links.attend_dials(&self.readiness, &mut self.tally);
        if has_reports {
            // ICMP reports are not needed: control connections show when a receiver is gone, and
            // packets to groups cause no ICMP reports.
            let upstream = self.ports.upstream.socket.as_fd();
            let count = message::discard_errors(upstream, REPORTS_MAX);
            self.tally.counters.icmp_reports += count as u64;
        }
    }

    /// Sets whether the kernel reports that there is room to send.
    fn ask_for_room(&mut self, writable: bool) {
        let upstream = &mut self.ports.upstream;
        let interest = Interest {
            readable: true,
            writable,
        };
        if upstream.interest != interest {
            upstream.interest = interest;
            self.readiness
                .modify(&upstream.socket, Signal::UPSTREAM, interest);
        }
    }

    /// Returns true for a receiver that spins. Between two polls of everything, it receives from
    /// the group's socket without a poll before: one call for a packet instead of two.
    fn tries_first(&self) -> bool {
        self.setup.role == Role::Receiver && self.rhythm.is_spinning()
    }

    /// Returns true when a wait in the group's own socket is cheapest, and only a packet of the
    /// group can end it before `until`.
    fn may_sleep_in_group(&self, until: Option<Instant>) -> bool {
        self.rhythm.is_woken_by_group()
            && self.is_blocking_receiver()
            && self.waits_for_group_alone()
            && self.sleep.is_possible(until)
    }

    /// Returns true for a receiver that sleeps while it waits. Returns false for a source: it must
    /// watch two sockets, but all packets of a receiver come by the group's.
    fn is_blocking_receiver(&self) -> bool {
        self.setup.role == Role::Receiver && self.setup.options.wait == WaitStrategy::Block
    }

    /// Returns true when only a packet of the group can end a wait before its deadline: no run
    /// waits to be sent again, no control connection is open or may come, and no [`Waker`] was
    /// asked for.
    fn waits_for_group_alone(&self) -> bool {
        self.sender.blocked == Blocked::No && !self.links.is_in_use() && !self.readiness.has_waker()
    }

    /// Waits in the group's socket and receives by the same call. The next poll looks at everything
    /// else. When nothing comes, the next wait polls.
    fn sleep_in_group(&mut self) {
        self.tally.counters.sleeps += 1;
        let Some(group) = &mut self.ports.group else {
            return;
        };
        // If the socket has failed, the next receive reports it.
        let filled = self
            .collector
            .collect(group, self.sleep.batch(), &mut self.tally, true);
        self.rhythm.end_wait(filled.unwrap_or(0) > 0);
    }

    /// Sleeps once if many packets come, so that the next receive takes them together. Returns true
    /// when it slept.
    fn rests(&mut self) -> bool {
        if !self.coalescing.is_on() || self.setup.options.wait != WaitStrategy::Block {
            return false;
        }
        let (now, counters) = (clock::monotonic(), &self.tally.counters);
        let rest = self.coalescing.rest(now, counters);
        if let Some(rest) = rest {
            self.tally.counters.sleeps += 1;
            thread::sleep(rest);
        }
        rest.is_some()
    }

    /// If a run waits for room to send, asks the kernel to report room. Adds to the counters the
    /// drops that no received packet has reported. Returns the time at which the next wait must
    /// end.
    fn prepare_wait(&mut self, until: Option<Instant>) -> Option<Instant> {
        let blocked = std::mem::replace(&mut self.sender.blocked, Blocked::No);
        let until = match blocked {
            Blocked::Beyond => Some(retry_at(until)),
            _ => until,
        };
        self.ask_for_room(blocked == Blocked::Socket);
        self.settle_drops();
        base::earliest(until, self.links.due())
    }

    /// Adds to the counters the drops that no received packet has reported.
    fn settle_drops(&mut self) {
        let group = self.ports.group.iter_mut();
        for port in group.chain([&mut self.ports.upstream]) {
            port.settle_drops(&mut self.tally);
        }
    }

    /// Prepares a wait in which the owner watches this descriptor together with others. Returns the
    /// time at which that wait must end.
    pub(super) fn wait_elsewhere(&mut self, until: Option<Instant>) -> Option<Instant> {
        self.tally.counters.waits += 1;
        self.rhythm.note_own_wait();
        self.prepare_wait(until)
    }

    /// Returns true when there are, or may be, packets to receive or events of control connections.
    /// Then the owner need not wait.
    pub(super) fn has_work(&self) -> bool {
        self.links.has_work() || self.has_packets()
    }

    /// Returns true when there are, or may be, packets to receive.
    fn has_packets(&self) -> bool {
        self.sleep.has_packets() || self.ports.iter().any(|port| port.is_ready)
    }
}

impl Io for UdpIo {
    fn now(&mut self) -> Instant {
        clock::monotonic()
    }

    fn recv(&mut self, batch: &mut RecvBatch) -> Result<usize, IoFault> {
        self.collector
            .fit(batch.slot_bytes(), self.ports.iter(), &mut self.tally);
        self.sleep.note_shape(batch);
        self.rhythm.begin_receive();
        if self.tries_first()
            && let Some(group) = &mut self.ports.group
        {
            group.is_ready = true;
        }
        if self.rhythm.is_poll_old() || !(self.has_packets() || self.may_sleep_in_group(None)) {
            self.poll(Some(Instant::ZERO));
        }
        if let Some(filled) = self.sleep.hand_over(batch) {
            return Ok(filled);
        }
        let (collector, tally) = (&mut self.collector, &mut self.tally);
        let mut filled = 0;
        for port in self.ports.in_turn().filter(|port| port.is_ready) {
            filled += collector.collect(port, batch, tally, false)?;
        }
        self.rhythm.end_receive(filled);
        Ok(filled)
    }

    fn send(&mut self, run: &Run<'_>) -> Outcome {
        let to = RawAddress::from(self.setup.packets_to(run.to));
        let socket = &self.ports.upstream.socket;
        let outcome = self.sender.send(socket, &to, run, &mut self.tally);
        if let (Some(own_source), true) = (&self.own_source, run.to.ip().is_multicast()) {
            send::copy_to(socket, own_source, run, outcome, &mut self.tally);
        }
        outcome
    }

    fn run_limit(&self) -> RunLimit {
        self.sender.limit()
    }

    fn link_open(&mut self, peer: SocketAddr) -> LinkId {
        let peer = self.setup.scoped(peer);
        self.links.open(peer, &self.readiness, &mut self.tally)
    }

    fn link_event(&mut self, data: &mut Vec<u8>) -> Option<(LinkId, LinkEvent)> {
        let is_asked =
            self.rhythm.has_link_news() || self.tries_first() || self.may_sleep_in_group(None);
        if !self.links.has_work() && !is_asked {
            self.poll(Some(Instant::ZERO));
        }
        let event = self.links.event(data, &self.readiness, &mut self.tally);
        self.rhythm.note_link_event(event.is_none());
        event
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
        self.rhythm.begin_wait();
        if self.has_work() {
            return;
        }
        if self.may_sleep_in_group(until) {
            self.sleep_in_group();
            return;
        }
        let until = if self.rests() {
            Some(Instant::ZERO)
        } else {
            until
        };
        let until = self.prepare_wait(until);
        self.poll(until);
        let group = self.ports.group.as_ref();
        self.rhythm
            .end_wait(group.is_some_and(|group| group.is_ready));
    }
}

impl AsFd for UdpIo {
    /// Returns the descriptor that is readable when the owner has something to receive or to do.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readiness.as_fd()
    }
}

impl AsRawFd for UdpIo {
    /// Returns the descriptor that is readable when the owner has something to receive or to do.
    fn as_raw_fd(&self) -> RawFd {
        self.readiness.as_fd().as_raw_fd()
    }
}

impl Ports {
    /// Returns how many bytes the kernel holds for this end before it drops packets.
    fn receive_buffer_bytes(&self) -> usize {
        let port = self.group.as_ref().unwrap_or(&self.upstream);
        port.socket.receive_buffer().unwrap_or(0)
    }

    fn iter(&self) -> impl Iterator<Item = &open::Port> {
        self.group.iter().chain([&self.upstream])
    }

    /// Returns all sockets. When there are two, they take turns at being the first.
    fn in_turn(&mut self) -> impl Iterator<Item = &mut open::Port> {
        self.is_group_first = !self.is_group_first;
        let (group, upstream) = (self.group.as_mut(), Some(&mut self.upstream));
        let both = if self.is_group_first {
            [group, upstream]
        } else {
            [upstream, group]
        };
        both.into_iter().flatten()
    }
}

/// Returns the time of the next try when a queue beyond the socket is full: no event reports that
/// such a queue has room.
fn retry_at(deadline: Option<Instant>) -> Instant {
    let retry = clock::monotonic() + RETRY_AFTER;
    deadline.map_or(retry, |deadline| deadline.min(retry))
}

/// The most ICMP reports that one poll discards; the kernel offers the rest at the next poll.
const REPORTS_MAX: usize = 64;
/// How long to wait before the next try when a queue beyond the socket is full.
const RETRY_AFTER: Duration = Duration::from_micros(100);

#[cfg(test)]
mod tests;
