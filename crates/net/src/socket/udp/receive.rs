//! Receives many datagrams with one call, coalesced where the kernel can.
//!
//! While datagrams come coalesced, a receive call gets only [`COALESCED_DEPTH`] buffers, so that
//! their bytes are still in the cache when the endpoint looks at them. While datagrams come singly,
//! so few buffers would let only a few datagrams share the cost of a call. So after a call that
//! filled all its buffers, the next call gets twice as many.
//!
//! A call that filled fewer buffers than it got has emptied the socket. Only a receiver that spins,
//! or that sleeps in this socket, reads it again before the poll set reports it as ready. The
//! kernel reports drops at a full socket buffer together with the next message.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    os::fd::AsFd as _,
};

use base::{Arrival, Datagram, IoFault, PathId, RecvBatch};
use sys::{Inbox, errno, message::MANY_MAX};
use wire::link::Ipv4;

use super::open::{Port, UdpSetup};
use crate::socket::{intercept::Edge, tally::Tally};

/// What the receiving side remembers between calls.
#[derive(Debug)]
pub(super) struct Collector {
    inbox: Inbox,
    path: PathId,
    has_gro: bool,
    /// True when each message begins with an IPv4 header.
    has_ip_header: bool,
    /// How many buffers the next receive call is offered. Used only while `has_gro` is true.
    depth: usize,
    edge: Option<Edge>,
}

impl Collector {
    pub(super) fn new(path: PathId, has_gro: bool, setup: &UdpSetup) -> Self {
        Self {
            inbox: Inbox::new(MANY_MAX),
            path,
            has_gro,
            has_ip_header: setup.is_raw() && setup.local.is_ipv4(),
            depth: COALESCED_DEPTH,
            edge: Edge::new(&setup.options.faults, 2),
        }
    }

    /// Switches coalescing off when the batch's buffers are too short for coalesced datagrams.
    pub(super) fn fit<'a>(
        &mut self,
        slot_bytes: usize,
        ports: impl Iterator<Item = &'a Port>,
        tally: &mut Tally,
    ) {
        if !self.has_gro || slot_bytes >= GRO_BYTES_MAX {
            return;
        }
        self.has_gro = false;
        for port in ports {
            if let Err(error) = port.socket.set_gro(false) {
                tally.warn(format!(
                    "cannot switch GRO off on {}: {}",
                    port.bound,
                    sys::with_usual_remedy(&error)
                ));
            }
        }
        tally.warn(format!(
            "receive buffers of {slot_bytes} bytes are too short for GRO, which needs \
             {GRO_BYTES_MAX}: receiving goes on without it, with more load; give longer buffers"
        ));
    }

    /// Makes receive buffers for these sockets. Each has room for the longest packet or coalesced
    /// message; the system supplies memory only for the parts that are used.
    pub(super) fn batch(&self) -> RecvBatch {
        let slots = if self.has_gro { GRO_SLOTS } else { MANY_MAX };
        RecvBatch::new(slots, SLOT_BYTES)
    }

    /// Fills free buffers of the batch from one socket. With `waits` it waits for the first
    /// datagram, at most for the time that the socket is set to. Returns the number of buffers
    /// filled.
    pub(super) fn collect(
        &mut self,
        port: &mut Port,
        batch: &mut RecvBatch,
        tally: &mut Tally,
        waits: bool,
    ) -> Result<usize, IoFault> {
        let room = (batch.slots() - batch.filled()).min(self.depth());
        if room == 0 {
            return Ok(0);
        }
        for _try in 0..TRIES_MAX {
            tally.counters.receive_calls += 1;
            let error = match self.receive(port, batch, room, waits) {
                Ok(count) => {
                    port.is_ready = count == room;
                    port.owes_drops |= count > 0;
                    self.adapt(count == room, count);
                    for index in 0..count {
                        self.take(index, port, batch, tally);
                    }
                    return Ok(count);
                }
                Err(error) => error,
            };
            match error.raw_os_error().unwrap_or(0) {
                errno::EAGAIN => break,
                // A signal ended the wait. The caller decides what follows.
                errno::EINTR if waits => break,
                errno::EINTR => tally.counters.receive_interrupted += 1,
                errno::ECONNREFUSED
                | errno::EHOSTUNREACH
                | errno::ENETUNREACH
                | errno::EHOSTDOWN
                | errno::EPROTO
                | errno::ENOPROTOOPT
                | errno::EMSGSIZE => tally.counters.receive_icmp += 1,
                errno::EBADF | errno::ENOTSOCK => return Err(beyond_use(port, &error)),
                _ => {
                    tally.counters.receive_failed += 1;
                    break;
                }
            }
        }
        port.is_ready = false;
        Ok(0)
    }

    const fn depth(&self) -> usize {
        if self.has_gro { self.depth } else { MANY_MAX }
    }

    /// Sets how many buffers the next receive call is offered. The last call gave `count` messages;
    /// `is_filled` is true when these filled all buffers of that call.
    fn adapt(&mut self, is_filled: bool, count: usize) {
        let is_single = |index| {
            let message = self.inbox.message(index);
            message.segment.is_none_or(|segment| segment >= message.len)
        };
        if !(0..count).all(is_single) {
            self.depth = COALESCED_DEPTH;
        } else if is_filled {
            self.depth = (2 * self.depth).min(MANY_MAX);
        }
    }

    fn receive(
        &mut self,
        port: &Port,
        batch: &mut RecvBatch,
        room: usize,
        waits: bool,
    ) -> io::Result<usize> {
        if let Some(edge) = &mut self.edge {
            edge.before_receive()?;
        }
        let buffers = batch.free_slots().take(room);
        self.inbox.receive(port.socket.as_fd(), buffers, waits)
    }

    #[inline]
    fn take(&self, index: usize, port: &mut Port, batch: &mut RecvBatch, tally: &mut Tally) {
        let message = self.inbox.message(index);
        if let Some(drops) = message.overflow {
            port.note_drops(drops, tally);
        }
        let counters = &mut tally.counters;
        let len = if self.has_ip_header {
            let slot = batch.free_slots().next();
            slot.map_or(0, |slot| cut_ip_header(slot, message.len))
        } else {
            message.len
        };
        let segment = message.segment.unwrap_or(len);
        counters.received_buffers += 1;
        counters.received_bytes += len as u64;
        counters.received_datagrams += len.div_ceil(segment.max(1)).max(1) as u64;
        counters.gro_buffers += u64::from(segment < len);
        counters.truncated_buffers += u64::from(message.is_truncated);
        batch.push(Datagram {
            len,
            segment,
            arrival: Arrival {
                path: self.path,
                socket: port.kind,
                source: message.source.unwrap_or(NOWHERE),
                destination: message.destination.unwrap_or_else(|| port.bound.ip()),
            },
        });
    }
}

/// Moves the bytes after the IPv4 header to the front. Returns their number; 0 when the header is
/// not complete.
fn cut_ip_header(slot: &mut [u8], len: usize) -> usize {
    let bytes = slot.get(..len).unwrap_or(&[]);
    let Some(head) = Ipv4::of(bytes).map(|ip| ip.header_len()) else {
        return 0;
    };
    let rest = len.saturating_sub(head);
    slot.copy_within(len - rest..len, 0);
    rest
}

fn beyond_use(port: &Port, error: &io::Error) -> IoFault {
    IoFault {
        text: format!(
            "cannot receive on {}: {}",
            port.bound,
            sys::with_usual_remedy(error)
        ),
    }
}

/// How many buffers a receive call is offered while datagrams arrive coalesced.
const COALESCED_DEPTH: usize = 4;
/// How many buffers a batch has when datagrams may arrive coalesced. While datagrams do arrive
/// coalesced, only [`COALESCED_DEPTH`] of these buffers are used in a call.
const GRO_SLOTS: usize = 32;
/// Bytes of each receive buffer: the longest IP packet or coalesced message, and 33 cache lines
/// more. Without these lines, buffers would lie a power of two apart, and the first bytes of all of
/// them would compete for the same few lines of the cache.
const SLOT_BYTES: usize = 65_536 + 33 * 64;
/// Bytes of the longest message that coalesced datagrams can make.
const GRO_BYTES_MAX: usize = 65_535;
/// Stands for the source address of a datagram when the kernel names none, which does not happen.
const NOWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
/// How many receive calls in a row may fail for a temporary reason, such as a signal or an ICMP
/// error. After that, `collect` returns 0.
const TRIES_MAX: u32 = 8;
