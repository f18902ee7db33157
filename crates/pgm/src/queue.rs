//! Complete packets that wait to be sent, in the order they were made.
//!
//! The queue does not know what the packets say. In: packets, each with its destination. Out: runs
//! of packets to one destination, all of equal length, except that the last may be shorter. The
//! memory is bounded: callers look for room before they add a packet.

use std::{collections::VecDeque, net::SocketAddr, ops::Range};

use base::{Budget, Contract, Outcome, PathId, Run};

/// A bounded queue of packets, first in first out.
#[derive(Debug)]
pub(crate) struct PacketQueue {
    memory: Vec<u8>,
    items: VecDeque<Item>,
    /// The most bytes of memory for packets.
    bytes_max: usize,
    /// Number of packets in the run that was given out last.
    in_run: usize,
    run_range: Range<usize>,
}

/// Where a packet goes: its address, its path, and how many hops it may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Destination {
    pub(crate) to: SocketAddr,
    pub(crate) path: PathId,
    /// The packet's time to live; `None` means the session's time to live.
    pub(crate) hops: Option<u8>,
}

#[derive(Clone, Debug)]
struct Item {
    range: Range<usize>,
    destination: Destination,
}

impl PacketQueue {
    /// Makes a queue of at most `bytes_max` bytes; the memory is allocated as it is used.
    pub(crate) const fn new(bytes_max: usize) -> Self {
        Self {
            memory: Vec::new(),
            items: VecDeque::new(),
            bytes_max,
            in_run: 0,
            run_range: 0..0,
        }
    }

    /// Returns how many more bytes there is room for.
    pub(crate) const fn room_bytes(&self) -> usize {
        self.bytes_max.saturating_sub(self.memory.len())
    }

    /// Returns the number of bytes in memory. Bytes of packets that have left count until they are
    /// freed.
    pub(crate) const fn queued_bytes(&self) -> u64 {
        self.memory.len() as u64
    }

    /// Queues the packet that `write` appends. The caller has looked for room.
    pub(crate) fn push(&mut self, destination: Destination, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.memory.len();
        write(&mut self.memory);
        self.items.push_back(Item {
            range: start..self.memory.len(),
            destination,
        });
    }

    /// Returns true when nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns the next packets to send, to one destination and of equal length; the last may be
    /// shorter. They are within `budget`, except that one packet is always given.
    pub(crate) fn poll_run(&mut self, budget: Budget) -> Option<Run<'_>> {
        Contract::poll_run(self.in_run == 0);
        let first = self.items.front()?;
        let segment = first.range.len();
        let mut end = first.range.end;
        self.in_run = 1;
        for next in self.items.iter().skip(1) {
            let fits = self.in_run < budget.datagrams
                && next.range.end - first.range.start <= budget.bytes;
            if next.destination != first.destination || !fits || next.range.len() > segment {
                break;
            }
            end = next.range.end;
            self.in_run += 1;
            if next.range.len() < segment {
                break;
            }
        }
        self.run_range = first.range.start..end;
        let Destination { to, path, hops } = first.destination;
        Some(Run {
            path,
            to,
            hops,
            segment,
            memory: &self.memory,
            ranges: std::slice::from_ref(&self.run_range),
        })
    }

    /// Forgets the packets of the last run that were sent, and those that can never be sent.
    pub(crate) fn run_done(&mut self, outcome: Outcome) {
        Contract::run_done(self.in_run > 0);
        let done = match outcome {
            Outcome::Sent { datagrams } => datagrams.min(self.in_run),
            Outcome::Blocked => 0,
            // The run's packets are lost. A repair request among them is repeated after a time.
            Outcome::TooBig | Outcome::Failed => self.in_run,
        };
        self.items.drain(..done);
        self.in_run = 0;
        self.compact();
    }

    /// Frees the memory of packets that have left, when no packet waits or when that memory is at
    /// least half of `bytes_max`.
    fn compact(&mut self) {
        let Some(first) = self.items.front() else {
            self.memory.clear();
            return;
        };
        let gone = first.range.start;
        if gone * 2 < self.bytes_max {
            return;
        }
        self.memory.drain(..gone);
        for item in &mut self.items {
            item.range = item.range.start - gone..item.range.end - gone;
        }
    }
}
