//! The ring of packets that a network element has sent on and keeps to repair from.
//!
//! The ring does not know who asks. In: packets, each with its session and number. Out: a packet,
//! as it was kept, while the ring still holds it. A session that begins anew may use its numbers
//! again: only packets kept since it began count.
//!
//! ```text
//!   index   one place or more for each 256 bytes of the ring: session, number, length, position
//!   ring    [packet n][packet n+1] ...  back to back; the newest overwrites the oldest
//! ```
//!
//! Session and number alone determine a packet's place in the index. The ring still holds a packet
//! if its place names it and if, from its first byte on, at most a ring's length of bytes was
//! written. Each look-up checks this, so nothing ever needs to be removed. A packet whose place a
//! later packet has taken counts as never kept: the element asks for it upstream.
//!
//! Cost: one copy of each packet; no allocation after the first packet.

use wire::{Sqn, pgm::Tsi};

use super::timed::Key;

/// The newest packets of all sessions.
#[derive(Debug)]
pub(super) struct Kept {
    bytes_max: usize,
    ring: Vec<u8>,
    index: Vec<Place>,
    /// Number of bytes written so far, including the bytes skipped at the ring's end.
    written: u64,
    /// For each way (a network of the element), how many more bytes of repairs may go there.
    shares: Vec<u64>,
}

/// One place in the index: names a packet, with the packet's length and position in the ring.
#[derive(Clone, Copy, Debug)]
struct Place {
    key: Key,
    len: u32,
    at: u64,
}

impl Kept {
    /// Makes a ring of `bytes_max` bytes for repairs to `ways` ways (networks that the element
    /// serves). The memory is allocated with the first packet.
    pub(super) fn new(bytes_max: usize, ways: usize) -> Self {
        Self {
            bytes_max,
            ring: Vec::new(),
            index: Vec::new(),
            written: 0,
            shares: vec![SHARE_BYTES_MAX; ways],
        }
    }

    /// Keeps a packet, unless it takes more than a quarter of the ring.
    pub(super) fn keep(&mut self, key: Key, tpdu: &[u8]) {
        let Ok(len) = u32::try_from(tpdu.len()) else {
            return;
        };
        if tpdu.len() > self.bytes_max / 4 {
            return;
        }
        if self.ring.is_empty() {
            let none = Place {
                key: (Tsi::default(), 0),
                len: 0,
                at: 0,
            };
            self.index = vec![none; (self.bytes_max / PLACE_BYTES).next_power_of_two()];
            self.ring = vec![0; self.bytes_max];
        }
        let mut start = (self.written % self.ring.len() as u64) as usize;
        if start + tpdu.len() > self.ring.len() {
            self.written += (self.ring.len() - start) as u64;
            start = 0;
        }
        self.ring[start..start + tpdu.len()].copy_from_slice(tpdu);
        let place = self.place_of(key);
        self.index[place] = Place {
            key,
            len,
            at: self.written,
        };
        self.written += u64::from(len);
    }

    /// Returns the position at which the next packet is written; positions only grow.
    pub(super) const fn position(&self) -> u64 {
        self.written
    }

    /// Returns the packet that `key` names, while the ring still holds it, if it was kept at the
    /// position `since` or later.
    pub(super) fn find(&self, key: Key, since: u64) -> Option<&[u8]> {
        let place = self.index.get(self.place_of(key))?;
        let is_whole = self.written - place.at <= self.ring.len() as u64;
        if place.len == 0 || place.key != key || place.at < since || !is_whole {
            return None;
        }
        let start = (place.at % self.ring.len() as u64) as usize;
        self.ring.get(start..start + place.len as usize)
    }

    /// Notes that `bytes` of data were sent to the network `way`. Raises the allowance of repairs
    /// for that network by `bytes`, to [`SHARE_BYTES_MAX`] at most.
    pub(super) fn add_share(&mut self, way: usize, bytes: usize) {
        let share = &mut self.shares[way];
        *share = (*share + bytes as u64).min(SHARE_BYTES_MAX);
    }

    /// Returns true when `bytes` of repairs may be sent to the network `way`.
    pub(super) fn has_share(&self, way: usize, bytes: usize) -> bool {
        self.shares[way] >= bytes as u64
    }

    /// Notes that `bytes` of repairs are sent to the network `way`.
    pub(super) fn take_share(&mut self, way: usize, bytes: usize) {
        self.shares[way] = self.shares[way].saturating_sub(bytes as u64);
    }

    const fn place_of(&self, (tsi, sqn): Key) -> usize {
        // Consecutive packets of a session have consecutive places. The TSI shifts each session's
        // places. So two packets with the same number, from different sessions, seldom share a
        // place.
        let [.., a, b, c, d] = tsi.gsi.0;
        let begin = u32::from_be_bytes([a, b, c, d]) ^ (tsi.port as u32) << 16;
        let mask = self.index.len().wrapping_sub(1);
        begin.wrapping_add(Sqn(sqn).0) as usize & mask
    }
}

/// The most bytes of repairs that may go to one network (a way) between two data packets to it:
/// about what 10 Gbit/s carry in 3 ms.
const SHARE_BYTES_MAX: u64 = 4 << 20;
/// The index has at least one place for each stretch of this many bytes in the ring. If packets are
/// shorter than this, some of them lose their place before they leave the ring.
const PLACE_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use wire::pgm::Gsi;

    use super::*;

    const fn key(port: u16, sqn: u32) -> Key {
        let gsi = Gsi([1, 2, 3, 4, 5, 6]);
        (Tsi { gsi, port }, sqn)
    }

    #[test]
    fn the_newest_packets_are_kept_whole_and_older_ones_are_gone() {
        let mut kept = Kept::new(64 << 10, 1);
        assert_eq!(kept.find(key(1, 0), 0), None);
        // The writes cross the end of the ring several times. The packets' lengths do not divide
        // the ring's length, and the sequence numbers wrap.
        let first = u32::MAX - 100;
        for step in 0..400_u32 {
            let sqn = first.wrapping_add(step);
            let packet = vec![step as u8; 700 + step as usize % 13];
            kept.keep(key(1, sqn), &packet);
            assert_eq!(kept.find(key(1, sqn), 0), Some(&packet[..]));
            assert_eq!(kept.find(key(2, sqn), 0), None, "another session's");
            let older = first.wrapping_add(step.saturating_sub(80));
            let expected = vec![step.saturating_sub(80) as u8; 700];
            assert_eq!(
                kept.find(key(1, older), 0).map(|it| &it[..700]),
                Some(&expected[..])
            );
            let gone = first.wrapping_add(step.saturating_sub(100));
            assert_eq!(kept.find(key(1, gone), 0).is_some(), step < 92, "{step}");
        }
        let since = kept.position();
        assert_eq!(kept.find(key(1, first.wrapping_add(399)), since), None);
        kept.keep(key(1, 7), &[1; 20_000]);
        assert_eq!(kept.find(key(1, 7), 0), None, "too long");
        let mut none = Kept::new(0, 1);
        none.keep(key(1, 1), &[1; 10]);
        assert_eq!(none.find(key(1, 1), 0), None);
    }

    #[test]
    fn a_way_gets_no_more_repairs_than_data() {
        let mut kept = Kept::new(1000, 2);
        let max = SHARE_BYTES_MAX as usize;
        assert!(kept.has_share(0, max) && !kept.has_share(0, max + 1));
        kept.take_share(0, max);
        assert!(
            !kept.has_share(0, 1) && kept.has_share(1, 1),
            "each way has its own"
        );
        kept.add_share(0, 1500);
        kept.take_share(0, 1400);
        assert!(kept.has_share(0, 100) && !kept.has_share(0, 101));
        kept.add_share(0, 2 * max);
        assert!(!kept.has_share(0, max + 1));
    }
}
