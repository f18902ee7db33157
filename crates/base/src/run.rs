//! How packets leave: runs of equally long datagrams that one system call can send.

use std::{net::SocketAddr, ops::Range};

use crate::PathId;

/// Consecutive datagrams to one destination, borrowed from their owner's memory.
///
/// **Shape**: `ranges` are byte ranges of `memory`. Their concatenation is cut into datagrams of
/// `segment` bytes, of which only the last may be shorter. No datagram spans two ranges: the length
/// of every range except the last is a multiple of `segment`. A log that holds packets back to back
/// gives one range; repairs gather several. The bytes are complete: a back end copies or sends them
/// and changes nothing.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The interface that the run leaves by.
    pub path: PathId,
    /// Group or unicast destination.
    pub to: SocketAddr,
    /// Time to live (hop limit) for this run when it is not the session's own, such as 1 for an
    /// SPMR packet.
    pub hops: Option<u8>,
    /// Bytes of each datagram except the last.
    pub segment: usize,
    /// The bytes that `ranges` point into.
    pub memory: &'a [u8],
    /// Where the datagrams lie; never empty.
    pub ranges: &'a [Range<usize>],
}

impl<'a> Run<'a> {
    /// Returns the length of all datagrams together, in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ranges.iter().map(ExactSizeIterator::len).sum()
    }

    /// Returns true for a run without bytes; a well-formed run is never empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of datagrams.
    #[must_use]
    pub fn datagram_count(&self) -> usize {
        self.len().div_ceil(self.segment.max(1))
    }

    /// Returns the ranges' bytes, in order, for a back end that gathers them.
    pub fn pieces(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let memory = self.memory;
        self.ranges.iter().map(move |range| &memory[range.clone()])
    }

    /// Returns the datagrams one by one, in order: for back ends without segmentation.
    pub fn datagrams(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let segment = self.segment.max(1);
        self.pieces().flat_map(move |piece| piece.chunks(segment))
    }
}

/// The most that the driver takes in the next run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Bytes in one run; a longer datagram makes a run of its own.
    pub bytes: usize,
    /// Datagrams in one run; at least 1.
    pub datagrams: usize,
}

/// The result of sending a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The first `datagrams` of the run left; fewer than all when the socket became full or refused
    /// the next one.
    Sent {
        /// Datagrams handed to the network, from the front.
        datagrams: usize,
    },
    /// Nothing left: the socket is full, try again later.
    Blocked,
    /// Nothing left: a datagram is longer than the path allows.
    TooBig,
    /// Nothing left: the back end refused the run and counted it. The owner treats the run as lost
    /// on the way.
    Failed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gathered_run_gives_single_datagrams() {
        let memory = [1, 2, 3, 4, 5, 6, 7, 8];
        let run = Run {
            path: PathId(0),
            to: SocketAddr::from(([239, 1, 1, 1], 7500)),
            hops: None,
            segment: 2,
            memory: &memory,
            ranges: &[4..8, 0..2, 2..3],
        };
        assert_eq!((run.len(), run.datagram_count()), (7, 4));
        let singles: Vec<_> = run.datagrams().collect();
        assert_eq!(singles, [&[5, 6][..], &[7, 8], &[1, 2], &[3]]);
    }
}
