//! The transmit log: the send buffer and the repair window in one piece of memory.
//!
//! The log stores complete TPDUs and knows where each lies. It does not build or send them. The
//! caller says, with the edge `hold`, from which packet on all must be kept.
//!
//! ```text
//!   ring    | n+3 | n+4 |  free  | n (oldest) | n+1 | n+2 |/skipped/|
//!                       ^head    ^offset of trail
//!   index   one 16-byte record per packet, at (position - first) modulo the index's length:
//!           offset, length, last repair and number of repairs for strangers
//!   edges   trail <= hold <= unsent <= lead, 64-bit positions; lead is one past the newest
//!           [trail, unsent) was sent and can be repaired, [unsent, lead) was not sent yet
//! ```
//!
//! Invariants: packets lie back to back in the ring, in order of position, except for one skip at
//! the ring's end. No packet spans that end. A packet at or above `hold` is never evicted or moved.
//! Its bytes change only by [`TransmitLog::turn_into_rdata`], or while the source adds messages to
//! it.
//!
//! **Spec**: RFC 3208 section 3.3, and section 16 ("advance with data": only new data moves the
//! trail).

use base::Instant;
use wire::{Sqn, pgm::Data};

use super::row::OpenRow;
use crate::rdata::turn_into_rdata;

/// The ring of packets, sent and unsent, and their index.
///
/// **Cost**: allocates ring and index once; an operation costs a few loads and stores for each
/// packet that it touches.
#[derive(Debug)]
pub(super) struct TransmitLog {
    ring: Vec<u8>,
    index: Vec<Record>,
    index_mask: u64,
    /// The position of the session's first packet, whose record has slot 0 of the index.
    first: u64,
    sqns_max: u64,
    head: usize,
    trail: u64,
    unsent: u64,
    lead: u64,
    unsent_bytes: usize,
    /// The newest packet, while the source still adds messages to it.
    pub(super) row: Option<OpenRow>,
}

impl TransmitLog {
    /// Makes a log of `ring_bytes` bytes and at most `sqns_max` packets; its first packet will be
    /// at `first`.
    pub(super) fn new(ring_bytes: usize, sqns_max: u32, first: u64) -> Self {
        let slots = u64::from(sqns_max).next_power_of_two().max(64);
        Self {
            ring: vec![0; ring_bytes],
            index: Vec::with_capacity(slots as usize),
            index_mask: slots - 1,
            first,
            sqns_max: u64::from(sqns_max),
            head: 0,
            trail: first,
            unsent: first,
            lead: first,
            unsent_bytes: 0,
            row: None,
        }
    }

    /// Finds `len` free bytes in one piece, and sequence numbers for `count` packets; evicts old
    /// packets below `hold` as needed. Returns the offset of the bytes, which stay free until
    /// [`TransmitLog::push`].
    #[inline]
    pub(super) fn place(&mut self, len: usize, count: u64, hold: u64) -> Option<usize> {
        #[cfg(feature = "planted-bugs")]
        let hold = match base::planted::is_planted(base::planted::Bug::HeldEvicted) {
            true => self.unsent,
            false => hold,
        };
        loop {
            if self.lead - self.trail + count <= self.sqns_max
                && let Some(offset) = self.free_offset(len)
            {
                return Some(offset);
            }
            if self.trail >= hold {
                return None;
            }
            self.trail += 1;
        }
    }

    #[inline]
    fn free_offset(&mut self, len: usize) -> Option<usize> {
        if self.trail == self.lead {
            self.head = 0;
            return (len <= self.ring.len()).then_some(0);
        }
        let oldest = self.record(self.trail).offset as usize;
        if self.head <= oldest {
            (len <= oldest - self.head).then_some(self.head)
        } else if len <= self.ring.len() - self.head {
            Some(self.head)
        } else {
            (len <= oldest).then_some(0)
        }
    }

    /// Adds the packet of `len` bytes at `offset`, where [`TransmitLog::place`] found room, as the
    /// newest packet. Returns its position.
    #[inline]
    pub(super) fn push(&mut self, offset: usize, len: usize) -> u64 {
        let position = self.lead;
        let record = Record {
            offset: offset as u32,
            len: len as u32,
            repaired: NEVER_REPAIRED,
        };
        // The index grows with the packets, within the capacity reserved for it: memory that was
        // not written yet takes no RAM.
        let slot = self.slot(position);
        match self.index.get_mut(slot) {
            Some(old) => *old = record,
            None => self.index.push(record),
        }
        self.head = offset + len;
        self.lead += 1;
        self.unsent_bytes += len;
        position
    }

    /// Makes the newest packet `len` bytes longer. The packet is unsent, and `place` found room for
    /// more bytes than the packet has.
    #[inline]
    pub(super) fn grow(&mut self, len: usize) {
        debug_assert!(self.unsent < self.lead, "what was sent does not change");
        let newest = self.lead - 1;
        let slot = self.slot(newest);
        self.index[slot].len += len as u32;
        self.head += len;
        self.unsent_bytes += len;
    }

    /// Returns the offset at which the newest packet ends.
    #[inline]
    pub(super) const fn head(&self) -> usize {
        self.head
    }

    /// Returns a checkpoint: [`TransmitLog::rollback`] takes back every push after it.
    pub(super) const fn checkpoint(&self) -> Checkpoint {
        Checkpoint {
            head: self.head,
            lead: self.lead,
            unsent_bytes: self.unsent_bytes,
        }
    }

    /// Takes back every push since `checkpoint`. Call it only if no packet was sent since then.
    pub(super) const fn rollback(&mut self, checkpoint: Checkpoint) {
        self.head = checkpoint.head;
        self.lead = checkpoint.lead;
        self.unsent_bytes = checkpoint.unsent_bytes;
    }

    /// Takes back every packet that was never sent.
    pub(super) const fn discard_unsent(&mut self) {
        self.lead = self.unsent;
        self.unsent_bytes = 0;
        self.row = None;
    }

    /// Returns the unsent packets that can leave as one run: back to back and of equal length,
    /// except that the last may be shorter. The run has at most `datagrams` packets and `bytes`
    /// bytes, but at least one packet when any is unsent.
    #[inline]
    pub(super) fn unsent_run(&self, bytes: usize, datagrams: usize) -> LogRun {
        let mut run = LogRun::default();
        if self.unsent == self.lead {
            return run;
        }
        let first = self.record(self.unsent);
        run.offset = first.offset as usize;
        run.segment = first.len as usize;
        run.len = run.segment;
        run.count = 1;
        let count_max = datagrams.min((self.lead - self.unsent) as usize);
        while run.count < count_max {
            let record = self.record(self.unsent + run.count as u64);
            let len = record.len as usize;
            let is_adjacent = record.offset as usize == run.offset + run.len;
            if !is_adjacent || len > run.segment || run.len + len > bytes {
                break;
            }
            run.len += len;
            run.count += 1;
            if len < run.segment {
                break;
            }
        }
        run
    }

    /// Notes that the first `count` unsent packets have left. Returns the number of their bytes.
    pub(super) fn mark_sent(&mut self, count: usize) -> usize {
        let end = self.unsent + count as u64;
        assert!(end <= self.lead, "more packets were sent than are unsent");
        let bytes: usize = (self.unsent..end)
            .map(|position| self.record(position).len as usize)
            .sum();
        self.unsent = end;
        self.unsent_bytes -= bytes;
        bytes
    }

    /// Makes the stored packet a repair, in place.
    ///
    /// **Panics** (bug): when the packet was not sent yet (it would then never be ODATA), or has
    /// left the window.
    pub(super) fn turn_into_rdata(&mut self, position: u64) {
        assert!(
            (self.trail..self.unsent).contains(&position),
            "a packet was repaired outside the window of sent packets"
        );
        let trail = Sqn::of(self.trail);
        let offset = self.record(position).offset as usize;
        let head = self.ring[offset..]
            .first_chunk_mut::<{ Data::HEAD_LEN }>()
            .expect("a record holds a whole data header");
        turn_into_rdata(head, trail);
    }

    /// Notes that the packet was repaired at `now`.
    pub(super) fn set_repaired(&mut self, position: u64, now: Instant) {
        let slot = self.slot(position);
        let record = &mut self.index[slot];
        record.repaired = now.as_nanos() & !GRANTS_MASK | record.repaired & GRANTS_MASK;
    }

    /// Returns the time of the packet's last repair, to within 16 ns.
    pub(super) fn repaired(&self, position: u64) -> Option<Instant> {
        let at = self.record(position).repaired & !GRANTS_MASK;
        (at != NEVER_REPAIRED).then_some(Instant::from_nanos(at))
    }

    /// Notes that a repair of the packet was granted to a stranger.
    pub(super) fn note_grant(&mut self, position: u64) {
        let slot = self.slot(position);
        let record = &mut self.index[slot];
        record.repaired += u64::from(record.repaired & GRANTS_MASK != GRANTS_MASK);
    }

    /// Returns how many repairs of the packet were granted to strangers; 15 stands for 15 or more.
    pub(super) fn grants(&self, position: u64) -> u32 {
        (self.record(position).repaired & GRANTS_MASK) as u32
    }

    /// Returns the place of the packet in [`TransmitLog::memory`].
    #[inline]
    pub(super) fn range(&self, position: u64) -> std::ops::Range<usize> {
        let record = self.record(position);
        let offset = record.offset as usize;
        offset..offset + record.len as usize
    }

    /// Returns the ring.
    #[inline]
    pub(super) fn memory(&self) -> &[u8] {
        &self.ring
    }

    /// Returns the ring, for writing packets that are not pushed yet.
    #[inline]
    pub(super) fn memory_mut(&mut self) -> &mut [u8] {
        &mut self.ring
    }

    /// Returns the position of the oldest packet that can be repaired.
    #[inline]
    pub(super) const fn trail(&self) -> u64 {
        self.trail
    }

    /// Returns the position of the first packet that was never sent.
    #[inline]
    pub(super) const fn unsent(&self) -> u64 {
        self.unsent
    }

    /// Returns the position after the newest packet.
    #[inline]
    pub(super) const fn lead(&self) -> u64 {
        self.lead
    }

    /// Returns the length of all packets that were never sent, in bytes.
    #[inline]
    pub(super) const fn unsent_bytes(&self) -> usize {
        self.unsent_bytes
    }

    /// Returns the length in bytes of the part of the ring that holds the sent packets from
    /// `position` on, with any skip at the ring's end.
    #[inline]
    pub(super) fn span_bytes(&self, position: u64) -> usize {
        if position >= self.unsent {
            return 0;
        }
        let start = self.record(position).offset as usize;
        let last = self.record(self.unsent - 1);
        let end = last.offset as usize + last.len as usize;
        if end > start {
            end - start
        } else {
            end + self.ring.len() - start
        }
    }

    /// Returns the number of slots in the index. The log never holds more packets than that.
    pub(super) const fn index_slots(&self) -> u64 {
        self.index_mask + 1
    }

    #[inline]
    const fn slot(&self, position: u64) -> usize {
        (position.wrapping_sub(self.first) & self.index_mask) as usize
    }

    #[inline]
    fn record(&self, position: u64) -> &Record {
        &self.index[self.slot(position)]
    }
}

/// The place of one packet, and the time of its last repair. 16 bytes: four to a cache line.
#[derive(Clone, Copy, Debug)]
struct Record {
    offset: u32,
    len: u32,
    /// The time of the last repair in nanoseconds. The lowest four bits hold how many repairs were
    /// granted to strangers.
    repaired: u64,
}

/// The state of a log to which [`TransmitLog::rollback`] can return.
#[derive(Clone, Copy, Debug)]
pub(super) struct Checkpoint {
    head: usize,
    lead: u64,
    unsent_bytes: usize,
}

/// Consecutive packets that one call can send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LogRun {
    /// Offset at which the packets begin.
    pub(super) offset: usize,
    /// Length of all packets together in bytes.
    pub(super) len: usize,
    /// Length of each packet in bytes; the last packet may be shorter.
    pub(super) segment: usize,
    /// Number of packets; 0 for none.
    pub(super) count: usize,
}

const NEVER_REPAIRED: u64 = !GRANTS_MASK;
const GRANTS_MASK: u64 = 15;

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(log: &mut TransmitLog, len: usize, hold: u64) -> Option<u64> {
        let offset = log.place(len, 1, hold)?;
        Some(log.push(offset, len))
    }

    #[test]
    fn records_lie_back_to_back_and_skip_the_end() {
        let mut log = TransmitLog::new(100, 64, 7);
        for expected in 7..10 {
            assert_eq!(filled(&mut log, 30, 7), Some(expected));
        }
        assert_eq!(log.unsent_run(1000, 10).len, 90);
        assert_eq!(filled(&mut log, 30, 7), None, "10 bytes are left");
        assert_eq!(log.trail(), 7);
        assert_eq!(log.mark_sent(2), 60);
        assert_eq!(filled(&mut log, 30, 9), Some(10));
        assert_eq!((log.trail(), log.range(10)), (8, 0..30));
        // Packet 9 lies at the ring's end and packet 10 at its beginning, so they need two runs.
        assert_eq!(
            (log.unsent_run(1000, 10).count, log.unsent_bytes()),
            (1, 60)
        );
    }

    #[test]
    fn a_run_ends_with_the_first_shorter_packet_and_before_a_longer_one() {
        let mut log = TransmitLog::new(1000, 64, 0);
        for len in [50, 50, 40, 40, 60] {
            filled(&mut log, len, 0);
        }
        let run = log.unsent_run(1000, 10);
        assert_eq!((run.count, run.segment, run.len), (3, 50, 140));
        assert_eq!(log.unsent_run(139, 10).count, 2);
        assert_eq!(
            log.unsent_run(1, 10).count,
            1,
            "one leaves whatever its length"
        );
        log.mark_sent(3);
        assert_eq!(log.unsent_run(1000, 10).len, 40);
        log.mark_sent(1);
        assert_eq!(log.unsent_run(1000, 10).len, 60);
        log.mark_sent(1);
        assert_eq!(log.unsent_run(1000, 10), LogRun::default());
    }

    #[test]
    fn the_number_of_packets_is_bounded_too() {
        let mut log = TransmitLog::new(10_000, 16, 0);
        for position in 0..16 {
            assert_eq!(filled(&mut log, 10, 0), Some(position));
        }
        assert_eq!(filled(&mut log, 10, 0), None);
        log.mark_sent(16);
        assert_eq!(filled(&mut log, 10, 16), Some(16));
        assert_eq!(log.trail(), 1);
    }

    #[test]
    fn repairs_and_what_strangers_were_granted_are_noted_apart() {
        let mut log = TransmitLog::new(100, 16, 0);
        filled(&mut log, 10, 0);
        log.note_grant(0);
        assert_eq!((log.repaired(0), log.grants(0)), (None, 1));
        log.set_repaired(0, Instant::from_nanos(160));
        log.set_repaired(0, Instant::from_nanos(320));
        assert_eq!(log.repaired(0), Some(Instant::from_nanos(320)));
        assert_eq!(
            log.grants(0),
            1,
            "the others were for receivers that report"
        );
        (0..20).for_each(|_| log.note_grant(0));
        assert_eq!(log.grants(0), 15);
        assert_eq!(log.repaired(0), Some(Instant::from_nanos(320)));
    }

    #[test]
    fn a_rollback_takes_pushes_back() {
        let mut log = TransmitLog::new(100, 16, 0);
        filled(&mut log, 10, 0);
        let checkpoint = log.checkpoint();
        filled(&mut log, 20, 0);
        log.rollback(checkpoint);
        assert_eq!((log.lead(), log.unsent_bytes()), (1, 10));
        assert_eq!(log.place(20, 1, 0), Some(10));
    }
}
