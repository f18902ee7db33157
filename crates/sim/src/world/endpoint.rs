//! An endpoint: one process with its sockets, and the socket buffer that its kernel keeps for it.

use std::{collections::VecDeque, net::SocketAddr, rc::Rc, time::Duration};

use base::{Arrival, Instant, LinkEvent, LinkId, Rng, Socket};

use super::HostId;
use crate::{fault::IoFaults, frame::Frame};

/// Index of an endpoint: a process with its sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndpointId(pub usize);

/// What an endpoint binds and how its host treats it.
#[derive(Clone, Debug)]
pub struct EndpointSetup {
    /// The host that it runs on.
    pub host: HostId,
    /// The address of its group socket: a joined multicast group, or a local unicast address.
    pub group: Option<SocketAddr>,
    /// The port of its upstream socket; 0 chooses a free one.
    pub upstream_port: u16,
    /// The port on which the endpoint takes control connections.
    pub control_port: Option<u16>,
    /// Bytes that the socket buffer holds, overhead of each packet included; the kernel drops the
    /// rest.
    pub receive_buffer_bytes: usize,
    /// UDP payload bytes of the longest datagram that leaves.
    pub mtu: usize,
    /// Largest run for one send call: bytes and datagrams.
    pub run_limit: base::RunLimit,
    /// What goes wrong at the socket calls.
    pub faults: IoFaults,
    /// The endpoint's own multicasts come back to its host (IP_MULTICAST_LOOP).
    pub loops_back: bool,
    /// The least virtual time of a turn; never zero, or a busy loop would stop the clock.
    pub turn_cost: Duration,
    /// Virtual time that each received datagram takes.
    pub datagram_cost: Duration,
}

impl EndpointSetup {
    /// Makes an endpoint with generous bounds and no faults.
    #[must_use]
    pub fn new(host: HostId, group: Option<SocketAddr>) -> Self {
        Self {
            host,
            group,
            upstream_port: 0,
            control_port: None,
            receive_buffer_bytes: 4 << 20,
            mtu: 1472,
            run_limit: base::RunLimit {
                bytes: 64_000,
                datagrams: 64,
            },
            faults: IoFaults::default(),
            loops_back: false,
            turn_cost: Duration::from_micros(2),
            datagram_cost: Duration::from_nanos(500),
        }
    }
}

/// Datagrams at one endpoint's sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointCounts {
    /// Put on the wire.
    pub sent: u64,
    /// Taken by the endpoint's receive calls.
    pub taken: u64,
    /// Dropped because the socket buffer was full.
    pub overflowed: u64,
    /// Arrived with a bit error that the PGM checksum cannot see.
    pub tainted: u64,
    /// Send calls that failed by an injected fault.
    pub send_faults: u64,
}

#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) setup: EndpointSetup,
    pub(crate) upstream: SocketAddr,
    pub(crate) rng: Rng,
    pub(crate) is_up: bool,
    /// How many processes have ended here. What was addressed to an earlier process does not reach
    /// the current one.
    pub(crate) epoch: u32,
    pub(crate) received: VecDeque<(Arrival, Rc<[u8]>)>,
    pub(crate) received_bytes: usize,
    pub(crate) link_events: VecDeque<(LinkId, LinkEvent)>,
    pub(super) wake_at: Option<Instant>,
    pub(crate) busy_until: Instant,
    pub(crate) blocked_until: Instant,
    pub(crate) counts: EndpointCounts,
}

impl Endpoint {
    /// Makes an endpoint that may run from `now` on.
    pub(super) fn new(setup: EndpointSetup, upstream: SocketAddr, rng: Rng, now: Instant) -> Self {
        Self {
            upstream,
            rng,
            setup,
            is_up: true,
            epoch: 0,
            received: VecDeque::new(),
            received_bytes: 0,
            link_events: VecDeque::new(),
            wake_at: None,
            busy_until: now,
            blocked_until: Instant::ZERO,
            counts: EndpointCounts::default(),
        }
    }

    /// Returns which of the endpoint's sockets takes `frame`, if any.
    pub(super) fn takes(&self, frame: &Frame) -> Option<Socket> {
        if self.setup.group == Some(frame.to) {
            Some(Socket::Group)
        } else if self.upstream == frame.to {
            Some(Socket::Upstream)
        } else {
            None
        }
    }

    /// Takes the oldest received datagram out of the socket buffer.
    pub(crate) fn take_received(&mut self) -> Option<(Arrival, Rc<[u8]>)> {
        let (arrival, bytes) = self.received.pop_front()?;
        self.received_bytes -= bytes.len() + SKB_OVERHEAD_BYTES;
        self.counts.taken += 1;
        self.busy_until += self.setup.datagram_cost;
        Some((arrival, bytes))
    }
}

/// What the kernel charges a socket for a datagram beyond its bytes.
pub(super) const SKB_OVERHEAD_BYTES: usize = 256;
