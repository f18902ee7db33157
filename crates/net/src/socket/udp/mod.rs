//! The run loop's world over real sockets: UDP for packets, TCP for control connections, epoll.
//!
//! ```text
//!              recv ──> readiness (epoll) ──> group socket ─┐
//!                                         └─> upstream ─────┴──> batch
//! run ──> send ──> upstream socket (GSO | sendmmsg | sendmsg)
//!   link_* <──> control connections            wait ──> block | busy | spin
//! ```
//!
//! It knows nothing of PGM: it moves runs and batches. One descriptor ([`UdpIo::as_raw_fd`])
//! becomes readable when there is anything to do, for owners with a loop of their own.
//!
//! Invariants: nothing but `wait` blocks; no allocation for packets or runs but a second batch at
//! the first sleep in the group's socket; every datagram, call and failure is counted.

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

mod receive;
use receive::Collector;

mod send;
use send::{Blocked, Sender};

/// The sockets of one session and the loop's way to wait for them.
#[derive(Debug)]
pub struct UdpIo {
    setup: UdpSetup,
    ports: Ports,
    sender: Sender,
    collector: Collector,
    links: Links,
    readiness: Readiness,
    tally: Tally,
    /// Where a receiver's multicasts go too, for a source on this host.
    own_source: Option<RawAddress>,
    /// Receives since the kernel was last asked what else is ready.
    receives_since_poll: u32,
    /// Which socket is asked first; they take turns.
    group_first: bool,
    /// Receives that found nothing since the owner last waited: one that spins never does.
    idle_receives: u32,
    /// The control connections were looked at since the last turn.
    has_polled: bool,
    /// The owner takes no packets at present.
    holds_packets: bool,
    /// The last wait ended with a packet for the group: the next may sleep in its socket.
    is_brisk: bool,
    /// What that wait has received already. Of the shape that its owner receives into; without
    /// buffers before the first such wait.
    ahead: RecvBatch,
    batch_shape: (usize, usize),
    /// What the kernel rounds the time of a call that waits up to.
    tick: Duration,
    coalescing: Coalescing,
}

impl UdpIo {
    /// Opens the sockets of a session.
    ///
    /// # Errors
    /// What the system refused, on which address, and what to do about it.
    pub fn open(setup: UdpSetup) -> Result<Self, SystemError> {
        let mut tally = Tally::default();
        let ports = Ports::open(&setup, &mut tally)?;
        let readiness = Readiness::new(setup.options.wait)?;
        readiness.add(&ports.upstream.socket, Signal::UPSTREAM, Interest::READ)?;
        if let Some(group) = &ports.group {
            readiness.add(&group.socket, Signal::GROUP, Interest::READ)?;
            // For `sleep_in_group` alone: every other call says that it must not wait.
            let _always = datagram::set_blocking(group.socket.as_fd(), SLEEP_IN_GROUP);
        }
        let wants_gro = setup.options.gro && !setup.options.faults.nogro;
        let mut has_gro = wants_gro;
        for port in ports.iter() {
            has_gro &= port.socket.set_gro(has_gro).is_ok();
        }
        if wants_gro && !has_gro {
            tally.warn("the kernel does not know UDP GRO (Linux 5.0): receiving without".into());
        }
        if !has_gro {
            for port in ports.iter() {
                // Off is the default; this undoes what worked on one socket only.
                let _was_off_already = port.socket.set_gro(false);
            }
        }
        let coalescing = Coalescing::new(ports.receive_buffer_bytes() as u64);
        Ok(Self {
            sender: Sender::new(&ports.upstream.socket, &setup.options),
            collector: Collector::new(setup.path, has_gro, &setup.options.faults),
            links: Links::new(&setup.options),
            ports,
            readiness,
            tally,
            own_source: setup.own_source().map(RawAddress::from),
            coalescing,
            setup,
            receives_since_poll: 0,
            group_first: true,
            idle_receives: 0,
            has_polled: false,
            holds_packets: false,
            is_brisk: false,
            ahead: RecvBatch::new(0, 1),
            batch_shape: (0, 1),
            tick: clock::tick(),
        })
    }

    /// Accepts control connections on `address` (port 0: any free one). Gives the address bound.
    ///
    /// # Errors
    /// When the address or port is not to be had.
    pub fn listen(&mut self, address: SocketAddr) -> Result<SocketAddr, SystemError> {
        let address = self.setup.scoped(address);
        self.links.listen(address, &self.readiness)
    }

    /// Receive buffers of the shape that suits these sockets: a few long ones for coalesced
    /// datagrams, many short ones without.
    #[must_use]
    pub fn batch(&self) -> RecvBatch {
        self.collector.batch()
    }

    /// A handle by which another thread ends a wait.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn waker(&self) -> Result<Waker, SystemError> {
        self.readiness.waker()
    }

    /// Makes [`UdpIo::as_raw_fd`] readable at `deadline` too: for owners that wait by themselves
    /// instead of calling [`Io::wait`].
    pub fn arm(&mut self, deadline: Option<Instant>) {
        let deadline = base::earliest(deadline, self.links.due());
        let blocked = self.sender.blocked;
        let deadline = match blocked {
            _ if self.has_ahead() && !self.holds_packets => Some(Instant::ZERO),
            Blocked::Beyond => Some(retry_at(deadline)),
            _ => deadline,
        };
        self.readiness.arm(deadline);
        self.idle_receives = 0;
        self.is_brisk = false;
        self.ask(blocked == Blocked::Socket);
    }

    /// While on, waits do not end for packets, and the descriptor does not tell of them: for an
    /// owner whose application takes nothing at present. Packets wait in the socket's buffer.
    pub fn hold_packets(&mut self, on: bool) {
        self.holds_packets = on;
        self.ask(self.ports.upstream.interest.writable);
    }

    /// While packets come in numbers, waits sleep for up to `at_most` without looking, and less
    /// when a part of the socket's buffer would fill: for an owner that wants all soon rather than
    /// each at once. Timers, [`Waker`]s and control connections then wait as long. Zero, the
    /// default, for never.
    pub const fn coalesce(&mut self, at_most: Duration) {
        self.coalescing.set(at_most);
    }

    /// The next warning: something works, but not as asked.
    pub fn take_warning(&mut self) -> Option<String> {
        self.tally.take_warning()
    }

    /// Everything counted so far.
    #[must_use]
    pub fn counters(&self) -> &UdpCounters {
        &self.tally.counters
    }

    /// Where upstream packets arrive and all packets leave from.
    #[must_use]
    pub fn upstream_address(&self) -> SocketAddr {
        self.ports.upstream.bound
    }

    /// What was asked for.
    #[must_use]
    pub const fn setup(&self) -> &UdpSetup {
        &self.setup
    }

    /// Control connections that still have bytes to send, or wait for their peer to see the end.
    #[must_use]
    pub fn links_unfinished(&self) -> usize {
        self.links.unfinished()
    }

    /// Asks the kernel what is ready, waiting up to `deadline`, and spreads the word.
    fn poll(&mut self, deadline: Option<Instant>) {
        self.receives_since_poll = 0;
        self.has_polled = true;
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
        self.links.dial_again(&self.readiness, &mut self.tally);
        if has_reports {
            // A receiver that is gone is noticed otherwise, and a group gets no such reports.
            let upstream = self.ports.upstream.socket.as_fd();
            let count = message::discard_errors(upstream, REPORTS_MAX);
            self.tally.counters.icmp_reports += count as u64;
        }
    }

    /// Has the kernel tell of packets unless they are held, and of room to send when asked for.
    fn ask(&mut self, for_room: bool) {
        let readable = !self.holds_packets;
        let (group, upstream) = (&mut self.ports.group, &mut self.ports.upstream);
        for (port, signal, writable) in [
            (group.as_mut(), Signal::GROUP, false),
            (Some(upstream), Signal::UPSTREAM, for_room),
        ] {
            let interest = Interest { readable, writable };
            if let Some(port) = port.filter(|port| port.interest != interest) {
                port.interest = interest;
                self.readiness.modify(&port.socket, signal, interest);
            }
        }
    }

    /// True for a receiver that spins: between two looks at everything it receives from the group's
    /// socket without asking first. Of the two calls that a packet takes otherwise, one is left.
    fn tries_first(&self) -> bool {
        self.setup.role == Role::Receiver
            && self.idle_receives >= IDLE_RECEIVES_SPINNING
            && self.receives_since_poll <= RECEIVES_PER_POLL
    }

    /// True for a receiver that waits for nothing but packets of its group, and not for a moment
    /// only: nobody may wake it, and no control connection is open or may come.
    fn may_sleep_in_group(&self, until: Option<Instant>) -> bool {
        self.is_brisk
            && self.setup.role == Role::Receiver
            && self.setup.options.wait == WaitStrategy::Block
            && self.batch_shape.0 > 0
            && !self.holds_packets
            && self.sender.blocked == Blocked::No
            && !self.links.is_in_use()
            && !self.readiness.has_waker()
            && until.is_none_or(|until| {
                until.since(clock::monotonic()) >= self.tick * 2 + SLEEP_IN_GROUP
            })
    }

    /// Waits in the group's socket instead of the poll set, which costs a wake-up several
    /// microseconds, and receives by the same call. What else may be ready is looked at by the next
    /// poll; when nothing comes, the next wait is one.
    fn sleep_in_group(&mut self) {
        self.tally.counters.sleeps += 1;
        let Some(group) = &mut self.ports.group else {
            return;
        };
        let (collector, tally) = (&mut self.collector, &mut self.tally);
        let (slots, slot_bytes) = self.batch_shape;
        if (self.ahead.slots(), self.ahead.slot_bytes()) != self.batch_shape {
            self.ahead = RecvBatch::new(slots, slot_bytes);
        }
        // A socket beyond use is told by the next receive.
        let filled = collector.collect(group, &mut self.ahead, tally, true);
        self.is_brisk = filled.unwrap_or(0) > 0;
    }

    /// Sleeps through a part of a stream, if there is one.
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

    const fn has_ahead(&self) -> bool {
        self.ahead.filled() > 0
    }

    fn has_packets(&self) -> bool {
        self.ports.iter().any(|port| port.is_ready)
    }
}

impl Io for UdpIo {
    fn now(&mut self) -> Instant {
        clock::monotonic()
    }

    fn recv(&mut self, batch: &mut RecvBatch) -> Result<usize, IoFault> {
        self.collector
            .fit(batch.slot_bytes(), self.ports.iter(), &mut self.tally);
        self.receives_since_poll += 1;
        self.batch_shape = (batch.slots(), batch.slot_bytes());
        let tries_first = self.tries_first();
        if let Some(group) = self.ports.group.as_mut().filter(|_| tries_first) {
            group.is_ready = true;
        }
        if self.receives_since_poll > RECEIVES_PER_POLL
            || !(self.has_packets() || self.has_ahead() || self.may_sleep_in_group(None))
        {
            self.poll(Some(Instant::ZERO));
        }
        if self.has_ahead() && batch.filled() == 0 {
            std::mem::swap(batch, &mut self.ahead);
            return Ok(batch.filled());
        }
        let Self {
            ports,
            collector,
            tally,
            group_first,
            idle_receives,
            ..
        } = self;
        let mut filled = 0;
        *group_first = !*group_first;
        for is_group in [*group_first, !*group_first] {
            let port = if is_group {
                ports.group.as_mut()
            } else {
                Some(&mut ports.upstream)
            };
            if let Some(port) = port.filter(|port| port.is_ready) {
                filled += collector.collect(port, batch, tally, false)?;
            }
        }
        *idle_receives = idle_receives.saturating_add(u32::from(filled == 0));
        Ok(filled)
    }

    fn send(&mut self, run: &Run<'_>) -> Outcome {
        let to = RawAddress::from(self.setup.scoped(run.to));
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
        let is_asked = self.has_polled || self.tries_first() || self.may_sleep_in_group(None);
        if !self.links.has_work() && !is_asked {
            self.poll(Some(Instant::ZERO));
        }
        let event = self.links.event(data, &self.readiness, &mut self.tally);
        self.has_polled &= event.is_some();
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
        self.idle_receives = 0;
        let has_packets = self.has_packets() || self.has_ahead();
        if self.links.has_work() || (has_packets && !self.holds_packets) {
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
        let blocked = std::mem::replace(&mut self.sender.blocked, Blocked::No);
        let until = match blocked {
            Blocked::Beyond => Some(retry_at(until)),
            _ => until,
        };
        let until = base::earliest(until, self.links.due());
        self.ask(blocked == Blocked::Socket);
        for port in self
            .ports
            .group
            .iter_mut()
            .chain([&mut self.ports.upstream])
        {
            port.settle_drops(&mut self.tally);
        }
        self.poll(until);
        self.is_brisk = self
            .ports
            .group
            .as_ref()
            .is_some_and(|group| group.is_ready);
    }
}

impl AsFd for UdpIo {
    /// Readable when the owner should take a turn.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readiness.as_fd()
    }
}

impl AsRawFd for UdpIo {
    /// Readable when the owner should take a turn.
    fn as_raw_fd(&self) -> RawFd {
        self.readiness.as_fd().as_raw_fd()
    }
}

impl Ports {
    /// What the kernel holds for this end before it drops.
    fn receive_buffer_bytes(&self) -> usize {
        let port = self.group.as_ref().unwrap_or(&self.upstream);
        port.socket.receive_buffer().unwrap_or(0)
    }

    fn iter(&self) -> impl Iterator<Item = &open::Port> {
        self.group.iter().chain([&self.upstream])
    }
}

/// When to try again although nothing will tell that there is room.
fn retry_at(deadline: Option<Instant>) -> Instant {
    let retry = clock::monotonic() + RETRY_AFTER;
    deadline.map_or(retry, |deadline| deadline.min(retry))
}

/// Under a flood one socket never runs dry; the others are looked at this often all the same.
const RECEIVES_PER_POLL: u32 = 8;
/// Who receives nothing this often in a row, and does not wait between, spins.
const IDLE_RECEIVES_SPINNING: u32 = 2;
/// ICMP reports thrown away at a time; more are told of again.
const REPORTS_MAX: usize = 64;
/// How long a receiver sleeps in its group's socket before it waits for everything again. The
/// kernel makes up to two of its ticks of it: nearer deadlines are kept by the poll set, which
/// knows microseconds.
const SLEEP_IN_GROUP: Duration = Duration::from_millis(1);
/// How long a full queue beyond the socket is given to drain.
const RETRY_AFTER: Duration = Duration::from_micros(100);

#[cfg(test)]
mod tests;
