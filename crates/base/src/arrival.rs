//! How packets enter: where each came from, and the batch of buffers that a receive call fills.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The network path that a packet used: an index that the driver's owner gave to an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u8);

/// The kind of socket that received a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Socket {
    /// A socket bound to the multicast group. It receives downstream data and control, and what
    /// peers multicast.
    #[default]
    Group,
    /// A socket bound to a local address. It receives what receivers send upstream to a source, and
    /// unicast data.
    Upstream,
}

/// The path, socket and addresses of one datagram. All segments of one GRO buffer share them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The path (interface) that the datagram came through; replies leave through the same path.
    pub path: PathId,
    /// The kind of socket that received the datagram.
    pub socket: Socket,
    /// Network source address and UDP source port.
    pub source: SocketAddr,
    /// Network destination: the group, or the local unicast address. Unspecified when unknown.
    pub destination: IpAddr,
}

impl Arrival {
    /// Makes an arrival from `source` by path 0 on `socket`, destination unknown.
    #[must_use]
    pub const fn from(source: SocketAddr, socket: Socket) -> Self {
        Self {
            path: PathId(0),
            socket,
            source,
            destination: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        }
    }
}

/// One received buffer: `len` bytes that hold datagrams of `segment` bytes each; the last may be
/// shorter.
#[derive(Clone, Copy, Debug)]
pub struct Datagram {
    /// Bytes received.
    pub len: usize,
    /// Bytes of each datagram in the buffer; equal to `len` when the buffer holds one datagram.
    pub segment: usize,
    /// Where the datagrams came from.
    pub arrival: Arrival,
}

/// Receive buffers and what the last receive call put into them.
///
/// **Shape**: `slots` buffers of `slot_bytes` each in one allocation; the first `filled` hold data.
/// **Cost**: allocates only in [`RecvBatch::new`].
#[derive(Debug)]
pub struct RecvBatch {
    slab: Vec<u8>,
    slot_bytes: usize,
    slots: usize,
    filled: Vec<Datagram>,
}

impl RecvBatch {
    /// Makes a batch of `slots` buffers of `slot_bytes` bytes. With GRO, a buffer needs 65,535
    /// bytes, the length of the longest coalesced message; without it, the length of the longest
    /// datagram.
    #[must_use]
    pub fn new(slots: usize, slot_bytes: usize) -> Self {
        Self {
            slab: vec![0; slots * slot_bytes],
            slot_bytes,
            slots,
            filled: Vec::with_capacity(slots),
        }
    }

    /// Returns the number of buffers.
    #[must_use]
    pub const fn slots(&self) -> usize {
        self.slots
    }

    /// Returns the length of each buffer in bytes.
    #[must_use]
    pub const fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// Returns the number of buffers that hold received data.
    #[must_use]
    pub const fn filled(&self) -> usize {
        self.filled.len()
    }

    /// Forgets what was received; the buffers are free again.
    pub fn clear(&mut self) {
        self.filled.clear();
    }

    /// Returns the buffers not yet filled, for a receive call to write into, in order.
    pub fn free_slots(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.slab
            .chunks_exact_mut(self.slot_bytes)
            .skip(self.filled.len())
    }

    /// Notes that the next free buffer was filled with `datagram`.
    ///
    /// **Panics** (bug): when no buffer is free or the datagram is longer than a buffer.
    pub fn push(&mut self, datagram: Datagram) {
        assert!(
            self.filled.len() < self.slots,
            "a receive batch was filled past its end"
        );
        assert!(
            datagram.len <= self.slot_bytes,
            "a datagram is longer than its buffer"
        );
        self.filled.push(datagram);
    }

    /// Copies one datagram into the next free buffer: for relays, simulations and tests.
    ///
    /// Returns false, and copies nothing, when no buffer is free or the datagram does not fit into
    /// one.
    pub fn push_copy(&mut self, arrival: Arrival, bytes: &[u8]) -> bool {
        if self.filled.len() == self.slots || bytes.len() > self.slot_bytes {
            return false;
        }
        let start = self.filled.len() * self.slot_bytes;
        self.slab[start..start + bytes.len()].copy_from_slice(bytes);
        self.filled.push(Datagram {
            len: bytes.len(),
            segment: bytes.len(),
            arrival,
        });
        true
    }

    /// Returns what [`RecvBatch::datagrams`] returns, for a stage that changes the data in place.
    pub fn datagrams_mut(&mut self) -> impl Iterator<Item = (&Datagram, &mut [u8])> {
        self.filled
            .iter()
            .zip(self.slab.chunks_exact_mut(self.slot_bytes))
            .map(|(datagram, slot)| (datagram, &mut slot[..datagram.len]))
    }

    /// Returns the filled buffers with their data, in order of arrival.
    pub fn datagrams(&self) -> impl Iterator<Item = (&Datagram, &[u8])> {
        self.filled
            .iter()
            .zip(self.slab.chunks_exact(self.slot_bytes))
            .map(|(datagram, slot)| (datagram, &slot[..datagram.len]))
    }
}

impl Datagram {
    /// Splits the buffer's contents `bytes` into datagrams, for a stage that changes them in place.
    /// An empty buffer is one empty datagram: it was received, so it is counted.
    pub fn split<'b>(&self, bytes: &'b mut [u8]) -> impl Iterator<Item = &'b mut [u8]> + use<'b> {
        let empty: Option<&'b mut [u8]> = bytes.is_empty().then(<&mut [u8]>::default);
        bytes.chunks_mut(self.segment.max(1)).chain(empty)
    }
}

/// An iterator over the datagrams that one received buffer holds.
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    rest: &'a [u8],
    segment: usize,
    first: bool,
}

impl<'a> Segments<'a> {
    /// Splits `bytes` into datagrams of `segment` bytes each; the last may be shorter. An empty
    /// buffer is one empty datagram: it was received, so it is counted.
    #[must_use]
    pub const fn new(bytes: &'a [u8], segment: usize) -> Self {
        Self {
            rest: bytes,
            segment: if segment == 0 { 1 } else { segment },
            first: true,
        }
    }
}

impl<'a> Iterator for Segments<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() && !self.first {
            return None;
        }
        self.first = false;
        let (head, rest) = self.rest.split_at(self.segment.min(self.rest.len()));
        self.rest = rest;
        Some(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_split_with_a_short_last() {
        let bytes = [1, 2, 3, 4, 5];
        let parts: Vec<_> = Segments::new(&bytes, 2).collect();
        assert_eq!(parts, [&[1, 2][..], &[3, 4], &[5]]);
        assert_eq!(Segments::new(&[], 0).count(), 1);
    }

    #[test]
    fn a_batch_refuses_what_does_not_fit() {
        let arrival = Arrival::from(SocketAddr::from(([10, 0, 0, 1], 7)), Socket::Group);
        let mut batch = RecvBatch::new(2, 4);
        assert!(!batch.push_copy(arrival, &[0; 5]));
        assert!(batch.push_copy(arrival, &[1; 4]) && batch.push_copy(arrival, &[2; 3]));
        assert!(!batch.push_copy(arrival, &[3]));
        let lens: Vec<_> = batch.datagrams().map(|(_, bytes)| bytes.to_vec()).collect();
        assert_eq!(lens, [vec![1; 4], vec![2; 3]]);
        batch.clear();
        assert_eq!(batch.filled(), 0);
    }
}
