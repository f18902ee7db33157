//! An endpoint's view of the world: the simulated back end of the shipped run loop.

use std::net::SocketAddr;

use base::{Datagram, Instant, Io, IoFault, LinkEvent, LinkId, Outcome, RecvBatch, Run, RunLimit};

use crate::{
    EndpointId,
    frame::{Frame, index},
    world::{Endpoint, SharedWorld},
};

/// [`Io`] in the simulated world. A send copies the run, as the kernel does.
#[derive(Clone, Debug)]
pub struct SimIo {
    world: SharedWorld,
    endpoint: EndpointId,
}

impl SimIo {
    /// Makes the back end of `endpoint`.
    #[must_use]
    pub const fn new(world: SharedWorld, endpoint: EndpointId) -> Self {
        Self { world, endpoint }
    }

    /// Returns the endpoint that this back end serves.
    #[must_use]
    pub const fn endpoint(&self) -> EndpointId {
        self.endpoint
    }

    /// Returns the world that the endpoint is in.
    #[must_use]
    pub const fn world(&self) -> &SharedWorld {
        &self.world
    }

    /// Returns the virtual time.
    #[must_use]
    pub fn world_now(&self) -> Instant {
        self.world.borrow().now
    }

    /// Returns the address of the endpoint's host.
    #[must_use]
    pub fn local_ip(&self) -> std::net::IpAddr {
        self.world.borrow().endpoints[self.endpoint.0].upstream.ip()
    }

    /// Returns true when nothing waits to leave on this endpoint's control connections.
    #[must_use]
    pub fn has_sent_links(&self) -> bool {
        self.world.borrow().has_sent_links(self.endpoint)
    }

    /// Ends the program: its sockets close.
    pub fn exit(&self) {
        self.world.borrow_mut().exit(self.endpoint);
    }

    /// Returns the time until which sends find the socket full; it is past when the socket has
    /// room.
    #[must_use]
    pub fn blocked_until(&self) -> Instant {
        self.world.borrow().endpoints[self.endpoint.0].blocked_until
    }

    /// Returns true when a datagram or a control event waits for the endpoint.
    #[must_use]
    pub fn has_input(&self) -> bool {
        let world = self.world.borrow();
        let endpoint = &world.endpoints[self.endpoint.0];
        !endpoint.received.is_empty() || !endpoint.link_events.is_empty()
    }

    /// Sends as [`Io::send`] does, with a source address and port that may be another host's.
    pub(crate) fn send_as(&mut self, source: SocketAddr, run: &Run<'_>) -> Outcome {
        let mut world = self.world.borrow_mut();
        let now = world.now;
        let endpoint = &mut world.endpoints[self.endpoint.0];
        let whole = run.datagram_count();
        let count = match draw_outcome(endpoint, now, run) {
            Outcome::Sent { datagrams } => datagrams,
            other => {
                endpoint.counts.send_faults += 1;
                world.note(|| format!("{} send of {whole}: {other:?}", self.endpoint.0));
                return other;
            }
        };
        for bytes in run.datagrams().take(count) {
            world.transmit(Frame {
                bytes: bytes.into(),
                from: self.endpoint,
                path: run.path,
                source,
                to: run.to,
                hops: run.hops.unwrap_or(SESSION_HOPS),
                is_tainted: false,
                sent: None,
            });
        }
        Outcome::Sent { datagrams: count }
    }
}

impl Io for SimIo {
    fn now(&mut self) -> Instant {
        self.world.borrow().now
    }

    fn recv(&mut self, batch: &mut RecvBatch) -> Result<usize, IoFault> {
        let mut world = self.world.borrow_mut();
        let endpoint = &mut world.endpoints[self.endpoint.0];
        let before = batch.filled();
        while batch.filled() < batch.slots() && !endpoint.received.is_empty() {
            if batch.filled() > before
                && endpoint.setup.faults.partial_batch.draw(&mut endpoint.rng)
            {
                break;
            }
            let datagram = fill_one(endpoint, batch);
            batch.push(datagram);
        }
        Ok(batch.filled() - before)
    }

    fn send(&mut self, run: &Run<'_>) -> Outcome {
        let source = self.world.borrow().endpoints[self.endpoint.0].upstream;
        self.send_as(source, run)
    }

    fn run_limit(&self) -> RunLimit {
        self.world.borrow().endpoints[self.endpoint.0]
            .setup
            .run_limit
    }

    fn link_open(&mut self, peer: SocketAddr) -> LinkId {
        self.world.borrow_mut().dial(self.endpoint, peer)
    }

    fn link_event(&mut self, data: &mut Vec<u8>) -> Option<(LinkId, LinkEvent)> {
        self.world.borrow_mut().next_link_event(self.endpoint, data)
    }

    fn link_send(&mut self, link: LinkId, bytes: &[u8]) -> usize {
        self.world
            .borrow_mut()
            .stream_send(self.endpoint, link, bytes)
    }

    fn link_pause(&mut self, link: LinkId, is_paused: bool) {
        self.world.borrow_mut().stream_pause(link, is_paused);
    }

    fn link_close(&mut self, link: LinkId) {
        self.world.borrow_mut().stream_close(self.endpoint, link);
    }

    /// Makes the endpoint's next turn due at `until`, or earlier when a packet or a control event
    /// arrives. It does not block: the world's time moves only between turns.
    fn wait(&mut self, until: Option<Instant>) {
        let mut world = self.world.borrow_mut();
        let endpoint = &world.endpoints[self.endpoint.0];
        let blocked_until = endpoint.blocked_until;
        let has_input = !endpoint.received.is_empty() || !endpoint.link_events.is_empty();
        if has_input {
            let now = world.now;
            world.wake(self.endpoint, now);
        } else if blocked_until > world.now {
            // The full socket gets room at `blocked_until`; a deadline that has passed waits for
            // that too.
            let due = until.map_or(blocked_until, |until| {
                if until > world.now {
                    until.min(blocked_until)
                } else {
                    blocked_until
                }
            });
            world.wake(self.endpoint, due);
        } else if let Some(until) = until {
            world.wake(self.endpoint, until);
        }
    }
}

/// Moves the next datagram, or several of one flow, into the next free buffer.
fn fill_one(endpoint: &mut Endpoint, batch: &mut RecvBatch) -> Datagram {
    let coalesces = endpoint.setup.faults.coalesce.draw(&mut endpoint.rng);
    let slot = batch
        .free_slots()
        .next()
        .expect("the caller checked that a buffer is free");
    let (arrival, bytes) = endpoint
        .take_received()
        .expect("the caller checked that one is there");
    let mut len = bytes.len().min(slot.len());
    slot[..len].copy_from_slice(&bytes[..len]);
    let segment = bytes.len();
    while coalesces && segment > 0 && len.is_multiple_of(segment) && len / segment < GRO_MAX {
        let joins = endpoint.received.front().is_some_and(|(next, more)| {
            *next == arrival
                && (1..=segment).contains(&more.len())
                && len + more.len() <= slot.len()
        });
        if !joins {
            break;
        }
        let (_, more) = endpoint.take_received().expect("it was looked at");
        slot[len..len + more.len()].copy_from_slice(&more);
        len += more.len();
    }
    Datagram {
        len,
        segment: segment.min(len),
        arrival,
    }
}

/// Draws what a send call returns: usually that all datagrams left.
fn draw_outcome(endpoint: &mut Endpoint, now: Instant, run: &Run<'_>) -> Outcome {
    let faults = endpoint.setup.faults;
    let rng = &mut endpoint.rng;
    if now < endpoint.blocked_until {
        return Outcome::Blocked;
    }
    if run.segment.min(run.len()) > endpoint.setup.mtu || faults.too_big.draw(rng) {
        return Outcome::TooBig;
    }
    if faults.blocked.draw(rng) {
        endpoint.blocked_until = now + rng.duration_up_to(faults.blocked_for());
        return Outcome::Blocked;
    }
    if faults.failed.draw(rng) {
        return Outcome::Failed;
    }
    let whole = run.datagram_count();
    let limit = endpoint.setup.run_limit;
    assert!(
        run.segment > 0 && (whole == 1 || whole <= limit.datagrams && run.len() <= limit.bytes),
        "a run of {whole} datagrams, {} bytes, is beyond {limit:?}",
        run.len()
    );
    if whole > 1 && faults.short.draw(rng) {
        return Outcome::Sent {
            datagrams: index(rng.between(1, whole as u64 - 1)),
        };
    }
    Outcome::Sent { datagrams: whole }
}

/// The kernel joins at most this many datagrams.
const GRO_MAX: usize = 64;
const SESSION_HOPS: u8 = 16;
