//! Control connections: what TCP looks like from above, with delay, bounds and breakage.
//!
//! A stream is reliable and ordered until it ends. Loss on the way shows only as delay. When a
//! process is killed, its streams end at once; when a host loses power or cannot be reached, they
//! end after [`StreamConditions::timeout`]. There is no congestion window: the simulation does not
//! test the bandwidth of control traffic.
//!
//! ```text
//!   link_send --> unsent (bounded) --> in flight --> unread (bounded) --> link_event(Data)
//! ```

use std::{collections::VecDeque, net::SocketAddr};

use base::{Instant, LinkEvent, LinkId};
use serde::Deserialize;

use crate::{
    EndpointId,
    quantity::{Ratio, Span},
    world::{CrashKind, Event, World},
};

/// How control connections behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StreamConditions {
    /// The delay in one direction.
    pub delay: Span,
    /// The most by which a segment is delayed further.
    pub jitter: Span,
    /// The share of segments that are lost at first; they come `retransmit` later.
    pub loss: Ratio,
    /// The retransmission time-out.
    pub retransmit: Span,
    /// After this long without an acknowledgement the connection is over.
    pub timeout: Span,
    /// The most bytes that may wait to be sent.
    pub unsent_bytes_max: usize,
    /// The most bytes that may wait to be read, those in flight included.
    pub unread_bytes_max: usize,
}

impl Default for StreamConditions {
    fn default() -> Self {
        Self {
            delay: Span::micros(200),
            jitter: Span::micros(100),
            loss: Ratio::ZERO,
            retransmit: Span::millis(200),
            timeout: Span::millis(10_000),
            unsent_bytes_max: 64 << 10,
            unread_bytes_max: 64 << 10,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Stream {
    /// The dialling side, then the accepting one.
    ends: [End; 2],
    is_broken: bool,
}

#[derive(Debug)]
struct End {
    endpoint: EndpointId,
    /// The epoch of the process that has this end; a later process of the endpoint has a higher
    /// one.
    epoch: u32,
    is_open: bool,
    unsent: VecDeque<u8>,
    in_flight: usize,
    unread: VecDeque<u8>,
    /// What is under way to this end, in order, each with the time of its first attempt.
    arriving: VecDeque<(Instant, Kind)>,
    /// When the newest segment arrives; later ones arrive no earlier, so the order is kept.
    arrives_after: Instant,
    /// `link_send` took fewer bytes than it was given.
    is_starved: bool,
    /// The application reads nothing for now.
    is_paused: bool,
    /// The application has closed this end.
    is_closing: bool,
    fin_left: bool,
    /// The other side's end of data has arrived, or the stream broke.
    peer_is_done: bool,
    is_closed_told: bool,
}

impl End {
    fn new(endpoint: EndpointId, epoch: u32) -> Self {
        Self {
            endpoint,
            epoch,
            is_open: false,
            unsent: VecDeque::new(),
            in_flight: 0,
            unread: VecDeque::new(),
            arriving: VecDeque::new(),
            arrives_after: Instant::ZERO,
            is_starved: false,
            is_paused: false,
            is_closing: false,
            fin_left: false,
            peer_is_done: false,
            is_closed_told: false,
        }
    }
}

/// Something due on a stream; `to` is the index of the end that it happens to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StreamEvent {
    /// The oldest segment under way to this end arrives.
    Arrive { stream: usize, to: usize },
    /// This end learns that the other one is gone.
    Reset { stream: usize, to: usize },
}

/// What travels on a stream.
#[derive(Debug)]
enum Kind {
    Syn(SocketAddr),
    SynAck,
    Segment(Vec<u8>),
    Fin,
}

impl World {
    /// Dials; the event `Opened` or `Closed` follows.
    pub(crate) fn dial(&mut self, from: EndpointId, peer: SocketAddr) -> LinkId {
        let epoch = self.endpoints[from.0].epoch;
        let listener = self.endpoints.iter().position(|endpoint| {
            endpoint.upstream.ip() == peer.ip() && endpoint.setup.control_port == Some(peer.port())
        });
        let stream = self.streams.len();
        let to = listener.map_or(from, EndpointId);
        let to_epoch = self.endpoints[to.0].epoch;
        self.streams.push(Stream {
            ends: [End::new(from, epoch), End::new(to, to_epoch)],
            is_broken: false,
        });
        let caller = SocketAddr::new(
            self.endpoints[from.0].upstream.ip(),
            20_000 + u16::try_from(stream % 20_000).unwrap_or(0),
        );
        self.note(|| format!("link {stream}: {} dials {peer}", from.0));
        match listener {
            Some(_) => self.send_kind(stream, 1, Kind::Syn(caller)),
            None => self.send_reset(stream, 0),
        }
        link_id(stream, 0)
    }

    /// Returns the next control event of an endpoint.
    pub(crate) fn next_link_event(
        &mut self,
        endpoint: EndpointId,
        data: &mut Vec<u8>,
    ) -> Option<(LinkId, LinkEvent)> {
        let (link, event) = self.endpoints[endpoint.0].link_events.pop_front()?;
        if event == LinkEvent::Data {
            let (stream, side) = end_of(link);
            let end = &mut self.streams[stream].ends[side];
            data.clear();
            let part = end.unread.len().min(DATA_BYTES_MAX);
            data.extend(end.unread.drain(..part));
            let (has_more, is_over) = (!end.unread.is_empty(), end.peer_is_done);
            if has_more {
                self.tell_data(stream, side);
            } else if is_over {
                self.tell_closed(stream, side);
            }
            // The reader has room again, so the writer's bytes can move.
            self.pump(stream, 1 - side);
        }
        Some((link, event))
    }

    /// Queues bytes; returns how many were taken.
    pub(crate) fn stream_send(&mut self, from: EndpointId, link: LinkId, bytes: &[u8]) -> usize {
        let (stream, side) = end_of(link);
        let room_max = self.stream_conditions.unsent_bytes_max;
        let end = &mut self.streams[stream].ends[side];
        debug_assert_eq!(end.endpoint, from, "a link belongs to one endpoint");
        if end.peer_is_done || end.is_closing {
            return 0;
        }
        let taken = bytes.len().min(room_max.saturating_sub(end.unsent.len()));
        end.unsent.extend(&bytes[..taken]);
        end.is_starved |= taken < bytes.len();
        self.pump(stream, side);
        taken
    }

    /// Leaves what arrives unread, or reads it again.
    pub(crate) fn stream_pause(&mut self, link: LinkId, is_paused: bool) {
        let (stream, side) = end_of(link);
        let end = &mut self.streams[stream].ends[side];
        if end.is_paused == is_paused {
            return;
        }
        end.is_paused = is_paused;
        let (id, has_data) = (end.endpoint, !end.unread.is_empty());
        let events = &mut self.endpoints[id.0].link_events;
        events.retain(|&told| told != (link, LinkEvent::Data));
        if has_data {
            self.tell_data(stream, side);
        }
    }

    /// Closes the link once its queued bytes have left.
    pub(crate) fn stream_close(&mut self, from: EndpointId, link: LinkId) {
        let (stream, side) = end_of(link);
        self.note(|| format!("link {stream}: {} closes", from.0));
        let end = &mut self.streams[stream].ends[side];
        end.is_closing = true;
        // The application gets no more events of this link.
        end.is_closed_told = true;
        end.unread.clear();
        self.endpoints[from.0]
            .link_events
            .retain(|(id, _)| *id != link);
        self.pump(stream, side);
    }

    /// Returns true when nothing waits to leave on an endpoint's streams.
    pub(crate) fn has_sent_links(&self, id: EndpointId) -> bool {
        let epoch = self.endpoints[id.0].epoch;
        let ends = self
            .streams
            .iter()
            .filter(|stream| !stream.is_broken)
            .flat_map(|s| &s.ends);
        let mut own = ends.filter(|end| end.endpoint == id && end.epoch == epoch && end.is_open);
        own.all(|end| {
            end.unsent.is_empty() && (!end.is_closing || end.fin_left || end.peer_is_done)
        })
    }

    pub(crate) fn stream_event(&mut self, event: StreamEvent) {
        match event {
            StreamEvent::Reset { stream, to } => self.end_by_reset(stream, to),
            StreamEvent::Arrive { stream, .. } if self.streams[stream].is_broken => {}
            StreamEvent::Arrive { stream, to } => {
                if self.is_reachable(stream, to) {
                    self.arrive(stream, to);
                } else {
                    self.postpone_or_break(stream, to);
                }
            }
        }
    }

    fn arrive(&mut self, stream: usize, to: usize) {
        let Some((_, kind)) = self.streams[stream].ends[to].arriving.pop_front() else {
            return;
        };
        match kind {
            Kind::Syn(peer) => self.accept(stream, peer),
            Kind::SynAck => {
                self.streams[stream].ends[0].is_open = true;
                self.tell(stream, 0, LinkEvent::Opened);
                self.pump(stream, 0);
            }
            Kind::Segment(bytes) => self.segment(stream, to, &bytes),
            Kind::Fin => {
                let end = &mut self.streams[stream].ends[to];
                end.peer_is_done = true;
                if end.unread.is_empty() {
                    self.tell_closed(stream, to);
                }
            }
        }
    }

    fn is_reachable(&self, stream: usize, to: usize) -> bool {
        let [from, to] = [1 - to, to].map(|side| {
            let endpoint = self.streams[stream].ends[side].endpoint;
            self.endpoints[endpoint.0].setup.host
        });
        // Acknowledgements come the other way, so a cut in one direction stops the stream as well.
        self.hosts[to.0].is_up && !self.is_cut(from, to) && !self.is_cut(to, from)
    }

    /// Tries again later, or gives up after the timeout: the way is cut, or the host has no power.
    fn postpone_or_break(&mut self, stream: usize, to: usize) {
        let Some((since, _)) = self.streams[stream].ends[to].arriving.front() else {
            return;
        };
        let conditions = self.stream_conditions;
        if self.now.since(*since) <= conditions.timeout.0 {
            let again = self.now + conditions.retransmit.0;
            self.schedule(again, Event::Stream(StreamEvent::Arrive { stream, to }));
            return;
        }
        self.note(|| format!("link {stream}: timed out"));
        self.end_by_reset(stream, 1 - to);
        // The other end is told nothing; its keep-alive ends the stream later.
        let later = self.now + conditions.timeout.0;
        self.schedule(later, Event::Stream(StreamEvent::Reset { stream, to }));
    }

    /// Tells an end, after one network delay, that the other is gone.
    fn send_reset(&mut self, stream: usize, to: usize) {
        let at = self.now + self.stream_conditions.delay.0;
        self.schedule(at, Event::Stream(StreamEvent::Reset { stream, to }));
    }

    fn accept(&mut self, stream: usize, peer: SocketAddr) {
        let end = &mut self.streams[stream].ends[1];
        let endpoint = &self.endpoints[end.endpoint.0];
        if !endpoint.is_up {
            self.send_reset(stream, 0);
            return;
        }
        end.epoch = endpoint.epoch;
        end.is_open = true;
        self.tell(stream, 1, LinkEvent::Accepted { peer });
        self.send_kind(stream, 0, Kind::SynAck);
    }

    fn segment(&mut self, stream: usize, to: usize, bytes: &[u8]) {
        self.streams[stream].ends[1 - to].in_flight -= bytes.len();
        let end = &mut self.streams[stream].ends[to];
        let endpoint = &self.endpoints[end.endpoint.0];
        if endpoint.epoch != end.epoch || !endpoint.is_up {
            // The process that had this connection is gone, so its kernel resets the stream.
            self.send_reset(stream, 1 - to);
            return;
        }
        let is_wanted = !end.is_closing;
        if to == 1 {
            self.control_tally.received(self.now, stream, bytes);
        }
        let end = &mut self.streams[stream].ends[to];
        if is_wanted {
            let was_empty = end.unread.is_empty();
            end.unread.extend(bytes);
            if was_empty {
                self.tell_data(stream, to);
            }
        }
        self.pump(stream, 1 - to);
    }

    fn end_by_reset(&mut self, stream: usize, to: usize) {
        self.streams[stream].is_broken = true;
        let end = &mut self.streams[stream].ends[to];
        end.peer_is_done = true;
        end.unsent.clear();
        if end.unread.is_empty() {
            self.tell_closed(stream, to);
        }
    }

    /// Moves unsent bytes to the peer, as many as the peer has room for.
    fn pump(&mut self, stream: usize, side: usize) {
        let room = self.stream_conditions.unread_bytes_max;
        let state = &mut self.streams[stream];
        let peer_unread = state.ends[1 - side].unread.len();
        let end = &mut state.ends[side];
        if !end.is_open || end.peer_is_done && end.unsent.is_empty() || state.is_broken {
            return;
        }
        let free = room.saturating_sub(peer_unread + end.in_flight);
        let part = end.unsent.len().min(free);
        if part > 0 {
            let bytes: Vec<u8> = end.unsent.drain(..part).collect();
            end.in_flight += part;
            let tells = end.is_starved && !end.is_closing;
            if tells {
                end.is_starved = false;
            }
            self.send_kind(stream, 1 - side, Kind::Segment(bytes));
            if tells {
                self.tell(stream, side, LinkEvent::Writable);
            }
        }
        let end = &mut self.streams[stream].ends[side];
        if end.is_closing && end.unsent.is_empty() && !end.fin_left {
            end.fin_left = true;
            self.send_kind(stream, 1 - side, Kind::Fin);
        }
    }

    fn send_kind(&mut self, stream: usize, to: usize, kind: Kind) {
        let conditions = self.stream_conditions;
        let mut delay = conditions.delay.0 + self.rng.duration_up_to(conditions.jitter.0);
        // Without loss nothing waits. Each loss costs a time-out, and each time-out is twice as
        // long as the last.
        let mut wait = conditions.retransmit.0;
        while conditions.loss.draw(&mut self.rng) && wait < conditions.timeout.0 {
            delay += wait;
            wait *= 2;
        }
        let at = (self.now + delay).max(self.streams[stream].ends[to].arrives_after);
        self.streams[stream].ends[to].arrives_after = at;
        let since = self.now;
        self.streams[stream].ends[to]
            .arriving
            .push_back((since, kind));
        self.schedule(at, Event::Stream(StreamEvent::Arrive { stream, to }));
    }

    /// Ends the connections of a process that has ended, as its kernel would.
    pub(crate) fn break_streams_of(&mut self, id: EndpointId, kind: CrashKind) {
        let epoch = self.endpoints[id.0].epoch;
        for stream in 0..self.streams.len() {
            for side in 0..2 {
                let end = &mut self.streams[stream].ends[side];
                if end.endpoint != id || end.epoch != epoch || end.is_closed_told {
                    continue;
                }
                if side == 1 && !end.is_open {
                    // The connection request is still under way: the process that runs when it
                    // arrives accepts or refuses it.
                    continue;
                }
                end.is_closed_told = true;
                end.is_closing = true;
                end.unread.clear();
                match kind {
                    CrashKind::Process => self.pump(stream, side),
                    CrashKind::Host => self.lose_power(stream, side),
                }
            }
        }
    }

    /// Ends a stream without telling the peer, whose keep-alive finds out later.
    fn lose_power(&mut self, stream: usize, side: usize) {
        let end = &mut self.streams[stream].ends[side];
        end.unsent.clear();
        end.fin_left = true;
        let later = self.now + self.stream_conditions.timeout.0;
        let to = 1 - side;
        self.schedule(later, Event::Stream(StreamEvent::Reset { stream, to }));
    }

    fn tell_closed(&mut self, stream: usize, side: usize) {
        if !self.streams[stream].ends[side].is_closed_told {
            self.tell(stream, side, LinkEvent::Closed);
            self.streams[stream].ends[side].is_closed_told = true;
        }
    }

    /// Tells the application, unless it has paused the link, that there is something to read.
    fn tell_data(&mut self, stream: usize, side: usize) {
        if !self.streams[stream].ends[side].is_paused {
            self.tell(stream, side, LinkEvent::Data);
        }
    }

    /// Queues an event for the application, if the process that had the connection still runs.
    fn tell(&mut self, stream: usize, side: usize, event: LinkEvent) {
        let end = &self.streams[stream].ends[side];
        let (id, epoch) = (end.endpoint, end.epoch);
        let endpoint = &mut self.endpoints[id.0];
        if end.is_closed_told || endpoint.epoch != epoch || !endpoint.is_up {
            return;
        }
        endpoint
            .link_events
            .push_back((link_id(stream, side), event));
        self.note(|| format!("link {stream}: {} hears {event:?}", id.0));
        self.wake(id, self.now);
    }
}

/// Returns the number of one side of a stream; each side has a number of its own.
fn link_id(stream: usize, side: usize) -> LinkId {
    LinkId(u32::try_from(stream * 2 + side).expect("a run has fewer than 2^31 connections"))
}

fn end_of(link: LinkId) -> (usize, usize) {
    let number = usize::try_from(link.0).unwrap_or(usize::MAX);
    (number / 2, number % 2)
}

/// A data event gives at most this many bytes, as [`base::Io::link_event`] says.
const DATA_BYTES_MAX: usize = 64 << 10;
