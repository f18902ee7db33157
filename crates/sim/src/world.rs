//! The simulated world: one virtual clock, hosts on a multicast LAN, and a queue of what is due.
//!
//! The world moves datagrams and control bytes without knowing what they mean. It runs no process:
//! [`World::step`] tells its caller (see [`crate::Simulation`]) when an endpoint's turn is due, and
//! [`crate::SimIo`] is the endpoint's view of the world.
//!
//! ```text
//!   endpoint --send--> egress pipe --> switch --> ingress pipe of each member --> socket buffer
//!                       (of the host)    | partition, membership                     | bounded
//!                                        v pcap                                      v
//!                                                                          endpoint's next turn
//! ```
//!
//! Invariants: time never goes backwards. Events of one instant happen in the order in which they
//! were scheduled. Nothing depends on memory addresses or on hash order, so a seed always gives the
//! same run.

use std::{
    cell::RefCell,
    cmp::Ordering,
    collections::{BTreeSet, BinaryHeap},
    net::{IpAddr, SocketAddr},
    rc::Rc,
    time::Duration,
};

use base::{Arrival, Instant, Rng, Socket};

use crate::{
    control_count::{ControlCounts, ControlTally},
    frame::Frame,
    pipe::{Fault, Flight, Pipe},
    stream::{Stream, StreamConditions, StreamEvent},
    trace::Trace,
    wire_count::{Tally, WireCounts},
};

mod action;
pub use action::{Action, CrashKind, CutDirection};

mod endpoint;
pub(crate) use endpoint::Endpoint;
use endpoint::SKB_OVERHEAD_BYTES;
pub use endpoint::{EndpointCounts, EndpointId, EndpointSetup};

/// Everything that exists in one run.
#[derive(Debug)]
pub struct World {
    pub(crate) now: Instant,
    pub(crate) rng: Rng,
    pub(crate) hosts: Vec<Host>,
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) streams: Vec<Stream>,
    pub(crate) stream_conditions: StreamConditions,
    pub(crate) trace: Option<Trace>,
    tally: Tally,
    pub(crate) control_tally: ControlTally,
    cuts: Vec<Cut>,
    queue: BinaryHeap<Scheduled>,
    order: u64,
}

/// The world, shared by its endpoints; they run in one thread, so there is no lock.
pub type SharedWorld = Rc<RefCell<World>>;

impl World {
    /// Makes an empty world whose every random choice follows from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        // The clock starts at a random time: from zero, arithmetic that goes below the start would
        // go unseen.
        let now = Instant::from_nanos(rng.between(1_000_000_000, 1 << 45));
        Self {
            now,
            rng,
            hosts: Vec::new(),
            endpoints: Vec::new(),
            streams: Vec::new(),
            stream_conditions: StreamConditions::default(),
            trace: None,
            tally: Tally::default(),
            control_tally: ControlTally::default(),
            cuts: Vec::new(),
            queue: BinaryHeap::new(),
            order: 0,
        }
    }

    /// Wraps the world for its endpoints.
    #[must_use]
    pub fn shared(self) -> SharedWorld {
        Rc::new(RefCell::new(self))
    }

    /// Sets how control connections behave from now on.
    pub const fn set_streams(&mut self, conditions: StreamConditions) {
        self.stream_conditions = conditions;
    }

    /// Records the run from now on.
    pub fn record(&mut self, trace: Trace) {
        self.trace = Some(trace);
    }

    /// Takes the record, if the run is recorded.
    pub fn take_trace(&mut self) -> Option<Trace> {
        self.trace.take()
    }

    /// Writes a line into the record, if the run is recorded.
    pub fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.line(self.now, &line());
        }
    }

    /// Adds a host; `egress` is its way to the switch, `ingress` the way back.
    pub fn add_host(&mut self, address: IpAddr, egress: &[Fault], ingress: &[Fault]) -> HostId {
        let host = Host {
            address,
            egress: Pipe::new(egress, self.rng.fork()),
            ingress: Pipe::new(ingress, self.rng.fork()),
            paused_until: Instant::ZERO,
            is_up: true,
        };
        self.hosts.push(host);
        HostId(self.hosts.len() - 1)
    }

    /// Adds an endpoint. Its first turn is due at once.
    pub fn add_endpoint(&mut self, setup: &EndpointSetup) -> EndpointId {
        let id = EndpointId(self.endpoints.len());
        let port = match setup.upstream_port {
            0 => 40_000 + u16::try_from(id.0 % 20_000).unwrap_or(0),
            bound => bound,
        };
        let upstream = SocketAddr::new(self.hosts[setup.host.0].address, port);
        let rng = self.rng.fork();
        let endpoint = Endpoint::new(setup.clone(), upstream, rng, self.now);
        self.endpoints.push(endpoint);
        self.wake(id, self.now);
        id
    }

    /// Returns the virtual time.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Returns the counts of an endpoint's sockets.
    #[must_use]
    pub fn counts(&self, endpoint: EndpointId) -> EndpointCounts {
        self.endpoints[endpoint.0].counts
    }

    /// Returns the packets that reached the switch, by type.
    #[must_use]
    pub const fn wire_counts(&self) -> &WireCounts {
        &self.tally.counts
    }

    /// Returns the messages that reached the accepting ends of control connections.
    #[must_use]
    pub const fn control_counts(&self) -> ControlCounts {
        self.control_tally.counts()
    }

    /// Returns the number of lost packets of new data, counted for each receiver.
    #[must_use]
    pub const fn data_lost(&self) -> u64 {
        self.tally.data_lost
    }

    /// Returns how many sequence numbers of new data at least one receiver lost.
    #[must_use]
    pub fn sqns_lost(&self) -> usize {
        self.tally.sqns_lost.len()
    }

    /// Plans an action.
    pub fn plan(&mut self, at: Instant, action: Action) {
        self.schedule(at, Event::Action(action));
    }

    /// Makes an endpoint's turn due at `at`, or as soon after as the endpoint is not busy. A turn
    /// that is due earlier stays due.
    pub fn wake(&mut self, id: EndpointId, at: Instant) {
        let endpoint = &mut self.endpoints[id.0];
        let at = at.max(endpoint.busy_until).max(self.now);
        if endpoint.is_up && endpoint.wake_at.is_none_or(|planned| at < planned) {
            endpoint.wake_at = Some(at);
            self.schedule(at, Event::Wake(id));
        }
    }

    /// Keeps an endpoint's process from running until it is restarted; its sockets are closed.
    pub fn keep_down(&mut self, id: EndpointId) {
        let endpoint = &mut self.endpoints[id.0];
        endpoint.is_up = false;
        endpoint.wake_at = None;
    }

    /// Lets the next event happen; `None` when nothing is planned or it is due after `until`.
    pub fn step(&mut self, until: Instant) -> Option<Step> {
        if self.queue.peek()?.at > until {
            return None;
        }
        let Scheduled { at, event, .. } = self.queue.pop()?;
        debug_assert!(at >= self.now, "time went backwards");
        self.now = at.max(self.now);
        Some(match event {
            Event::Wake(id) => return Some(self.turn_is_due(id, at)),
            Event::Switch(frame) => {
                self.switch(frame);
                Step::Internal
            }
            Event::Deliver(id, socket, frame) => {
                self.deliver(id, socket, frame);
                Step::Internal
            }
            Event::Stream(event) => {
                self.stream_event(event);
                Step::Internal
            }
            Event::Action(action) => self.act(action),
        })
    }

    fn turn_is_due(&mut self, id: EndpointId, at: Instant) -> Step {
        let endpoint = &mut self.endpoints[id.0];
        if endpoint.wake_at != Some(at) || !endpoint.is_up {
            return Step::Internal;
        }
        endpoint.wake_at = None;
        let resumes = self.hosts[endpoint.setup.host.0].paused_until;
        if resumes > self.now {
            self.wake(id, resumes);
            return Step::Internal;
        }
        endpoint.busy_until = self.now + endpoint.setup.turn_cost;
        Step::Turn(id)
    }

    /// Sends a datagram through the egress pipe of its host.
    pub(crate) fn transmit(&mut self, frame: Frame) {
        let endpoint = &mut self.endpoints[frame.from.0];
        endpoint.counts.sent += 1;
        let (host, loops) = (endpoint.setup.host, endpoint.setup.loops_back);
        if loops && frame.to.ip().is_multicast() {
            self.loop_back(host, &frame);
        }
        let flight = Flight {
            at: self.now,
            frame,
        };
        let (mut out, mut lost) = (Vec::new(), Vec::new());
        self.hosts[host.0]
            .egress
            .pass(flight, &mut |f| out.push(f), &mut |why, frame| {
                lost.push((why, frame.bytes.clone()));
            });
        for (why, bytes) in lost {
            self.lose(None, why, &bytes);
        }
        for flight in out {
            self.schedule(flight.at, Event::Switch(flight.frame));
        }
    }

    /// Gives a multicast datagram to the group's members on the sending host, the sender included.
    fn loop_back(&mut self, host: HostId, frame: &Frame) {
        for i in 0..self.endpoints.len() {
            let setup = &self.endpoints[i].setup;
            if setup.host == host && setup.group == Some(frame.to) {
                let at = self.now + LOOPBACK_DELAY;
                self.schedule(
                    at,
                    Event::Deliver(EndpointId(i), Socket::Group, frame.clone()),
                );
            }
        }
    }

    /// Passes a datagram on to every host that has a socket for it.
    fn switch(&mut self, frame: Frame) {
        let from = self.endpoints[frame.from.0].setup.host;
        self.tally.sent(&frame.bytes);
        if let Some(trace) = &mut self.trace {
            trace.datagram(self.now, &frame);
        }
        for i in 0..self.endpoints.len() {
            let id = EndpointId(i);
            let Some(socket) = self.endpoints[i].takes(&frame) else {
                continue;
            };
            let to = self.endpoints[i].setup.host;
            if to == from && frame.to.ip().is_multicast() {
                continue;
            }
            if self.is_cut(from, to) {
                self.lose(Some(id), "partition", &frame.bytes);
                continue;
            }
            let flight = Flight {
                at: self.now,
                frame: frame.clone(),
            };
            let (mut out, mut lost) = (Vec::new(), Vec::new());
            self.hosts[to.0]
                .ingress
                .pass(flight, &mut |f| out.push(f), &mut |why, frame| {
                    lost.push((why, frame.bytes.clone()));
                });
            for (why, bytes) in lost {
                self.lose(Some(id), why, &bytes);
            }
            for flight in out {
                self.schedule(flight.at, Event::Deliver(id, socket, flight.frame));
            }
        }
    }

    fn deliver(&mut self, id: EndpointId, socket: Socket, frame: Frame) {
        let host_is_up = self.hosts[self.endpoints[id.0].setup.host.0].is_up;
        let endpoint = &mut self.endpoints[id.0];
        if !endpoint.is_up || !host_is_up {
            return;
        }
        let cost = frame.bytes.len() + SKB_OVERHEAD_BYTES;
        if endpoint.received_bytes + cost > endpoint.setup.receive_buffer_bytes {
            endpoint.counts.overflowed += 1;
            self.lose(Some(id), "socket buffer full", &frame.bytes);
            return;
        }
        endpoint.received_bytes += cost;
        endpoint.counts.tainted += u64::from(frame.is_tainted);
        let arrival = Arrival {
            path: frame.path,
            socket,
            source: frame.source,
            destination: frame.to.ip(),
        };
        endpoint.received.push_back((arrival, frame.bytes));
        self.wake(id, self.now);
    }

    fn lose(&mut self, to: Option<EndpointId>, why: &str, tpdu: &[u8]) {
        self.tally.lost(tpdu);
        self.note(|| match to {
            Some(id) => format!("  lost to {}: {why}", id.0),
            None => format!("  lost by the sender's link: {why}"),
        });
    }

    /// Returns true while a partition stops datagrams between the two hosts.
    pub(crate) fn is_cut(&self, from: HostId, to: HostId) -> bool {
        self.cuts.iter().any(|cut| {
            let (leaves, enters) = (cut.island.contains(&from), cut.island.contains(&to));
            match cut.direction {
                CutDirection::Both => leaves != enters,
                CutDirection::Into => !leaves && enters,
                CutDirection::OutOf => leaves && !enters,
            }
        })
    }

    fn act(&mut self, action: Action) -> Step {
        self.note(|| format!("ACTION {action:?}"));
        match action {
            Action::Pause { host, length } => {
                let until = &mut self.hosts[host.0].paused_until;
                *until = (*until).max(self.now + length);
            }
            Action::Partition {
                island,
                direction,
                length,
            } => {
                let until = self.now + length;
                self.cuts.push(Cut {
                    island,
                    direction,
                    until,
                });
                self.plan(until, Action::Heal);
            }
            Action::Heal => {
                let now = self.now;
                self.cuts.retain(|cut| cut.until > now);
            }
            Action::Ingress { host, faults } => self.hosts[host.0].ingress.set(&faults),
            Action::Egress { host, faults } => self.hosts[host.0].egress.set(&faults),
            Action::Io { endpoint, faults } => self.endpoints[endpoint.0].setup.faults = faults,
            Action::Mtu { endpoint, mtu } => self.endpoints[endpoint.0].setup.mtu = mtu,
            Action::Crash { endpoint, kind } => {
                self.crash(endpoint, kind);
                return Step::Crashed(endpoint);
            }
            Action::Restart { endpoint } => {
                let state = &mut self.endpoints[endpoint.0];
                if state.is_up {
                    return Step::Internal;
                }
                state.is_up = true;
                state.busy_until = self.now;
                let host = state.setup.host;
                self.hosts[host.0].is_up = true;
                self.wake(endpoint, self.now);
                return Step::Restarted(endpoint);
            }
            Action::Tick(number) => return Step::Tick(number),
        }
        Step::Internal
    }

    /// Ends a process normally: its kernel closes its connections.
    pub(crate) fn exit(&mut self, id: EndpointId) {
        self.note(|| format!("{} exits", id.0));
        self.crash(id, CrashKind::Process);
    }

    fn crash(&mut self, id: EndpointId, kind: CrashKind) {
        if kind == CrashKind::Host {
            let host = self.endpoints[id.0].setup.host;
            self.hosts[host.0].is_up = false;
        }
        self.break_streams_of(id, kind);
        let endpoint = &mut self.endpoints[id.0];
        endpoint.is_up = false;
        endpoint.epoch += 1;
        endpoint.received.clear();
        endpoint.received_bytes = 0;
        endpoint.link_events.clear();
        endpoint.wake_at = None;
        endpoint.blocked_until = Instant::ZERO;
    }

    pub(crate) fn schedule(&mut self, at: Instant, event: Event) {
        self.order += 1;
        self.queue.push(Scheduled {
            at: at.max(self.now),
            order: self.order,
            event,
        });
    }
}

/// What [`World::step`] tells its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The event happened inside the world; the caller has nothing to do.
    Internal,
    /// This endpoint's turn is due.
    Turn(EndpointId),
    /// This endpoint's process is gone; the caller must drop its state.
    Crashed(EndpointId),
    /// This endpoint starts anew.
    Restarted(EndpointId),
    /// [`Action::Tick`].
    Tick(u32),
}

/// Index of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostId(pub usize);

#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) address: IpAddr,
    egress: Pipe,
    ingress: Pipe,
    pub(crate) paused_until: Instant,
    pub(crate) is_up: bool,
}

#[derive(Debug)]
struct Cut {
    island: BTreeSet<HostId>,
    direction: CutDirection,
    until: Instant,
}

#[derive(Debug)]
pub(crate) enum Event {
    Wake(EndpointId),
    Switch(Frame),
    Deliver(EndpointId, Socket, Frame),
    Stream(StreamEvent),
    Action(Action),
}

/// An event with its time. The order is reversed, so that the heap gives the earliest event first.
#[derive(Debug)]
struct Scheduled {
    at: Instant,
    order: u64,
    event: Event,
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for Scheduled {}

const LOOPBACK_DELAY: Duration = Duration::from_micros(5);
