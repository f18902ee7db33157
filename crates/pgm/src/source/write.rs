//! The ways in which data gets into the transmit log: copied, written in place, or in bursts.
//!
//! The module does not send. A committed record is complete, header and checksum included; a row
//! (several messages in one packet) is complete once it is closed. By the time the record leaves,
//! the trail in its header may be too low, which is harmless; it is never too high.
//!
//! **Spec**: RFC 3208 sections 8.2, 9.2.2, 9.6.2.

use std::ops::Range;

use wire::{
    checksum,
    pgm::{Body, Data, Flags, Packed, emit_head},
};

use super::{
    Closing, Fragment, Full, PgmOption, Source, Sqn,
    limits::{DATA_HEAD, FRAGMENT_BYTES, ROW_BYTES, SYN_BYTES},
    row::RowPlace,
};

impl Source {
    /// Copies a message into the log, in one packet or, when longer than [`Source::max_tsdu`], in
    /// several with OPT_FRAGMENT. Returns the position of its first packet. With `pack`, the
    /// message goes into the same packet as the messages before it, if it still fits there and the
    /// packet has not left.
    ///
    /// **Cost**: one pass over the message, which copies and sums it; no allocation, except with
    /// `pack` for a message of several packets.
    ///
    /// # Errors
    /// See [`Full`]: the source took nothing.
    #[inline]
    pub fn offer(&mut self, apdu: &[u8]) -> Result<u64, Full> {
        if self.config.pack() {
            return self.offer_packed(apdu);
        }
        if apdu.len() > self.limits.tsdu {
            self.check_length(apdu)?;
            return self.offer_fragments(apdu);
        }
        self.check_room()?;
        let at = self.place(DATA_HEAD + self.syn_bytes() + apdu.len())?;
        let head = DATA_HEAD + self.syn_bytes();
        let sum = self.copy_payload(at + head, apdu);
        Ok(self.commit_record(at, apdu.len(), sum, None))
    }

    /// Finds room in the log for a payload of `len` bytes, which the caller writes. The source
    /// takes nothing until [`Slot::commit`].
    ///
    /// # Errors
    /// See [`Full`]; a payload has at most [`Source::max_tsdu`] bytes.
    #[inline]
    pub fn reserve(&mut self, len: usize) -> Result<Slot<'_>, Full> {
        if self.config.pack() {
            let place = self.place_in_row(len)?;
            return Ok(Slot {
                at: place.payload_at(len),
                row: Some(place),
                source: self,
                len,
            });
        }
        if len > self.limits.tsdu {
            let max = self.limits.tsdu;
            return Err(Full::TooLong { max });
        }
        self.check_room()?;
        self.reserve_in_log(len)
    }

    /// Finds room in the log for a payload, which gets a packet of its own. The caller has checked
    /// its length.
    #[inline]
    pub(super) fn reserve_in_log(&mut self, len: usize) -> Result<Slot<'_>, Full> {
        let at = self.place(DATA_HEAD + self.syn_bytes() + len)?;
        Ok(Slot {
            at: at + DATA_HEAD + self.syn_bytes(),
            row: None,
            source: self,
            len,
        })
    }

    /// Finds room for `count` payloads of `len` bytes each. The caller can then read a file or a
    /// frame straight into the log. The source takes nothing until the burst is committed. The
    /// packets then leave in few runs (one call to the kernel each).
    ///
    /// # Errors
    /// See [`Full`]. A burst takes at most a quarter of the window. With `pack` there is no burst,
    /// because packets of a burst are not rows.
    pub fn reserve_burst(&mut self, len: usize, count: usize) -> Result<Burst<'_>, Full> {
        if self.config.pack() {
            return Err(Full::TooLong { max: 0 });
        }
        if len > self.limits.tsdu {
            let max = self.limits.tsdu;
            return Err(Full::TooLong { max });
        }
        let stride = DATA_HEAD + len;
        let syn = self.syn_bytes();
        let count_max = self.burst_count_max(len);
        if count == 0 || count > count_max {
            let max = count_max * len;
            return Err(Full::TooLong { max });
        }
        self.check_room()?;
        let at = self.place_many(syn + stride * count, count)?;
        Ok(Burst {
            source: self,
            at,
            syn,
            len,
            count,
        })
    }

    /// Returns the most payloads of `len` bytes that [`Source::reserve_burst`] gives; at least 1.
    #[must_use]
    pub const fn burst_count_max(&self, len: usize) -> usize {
        let fits = self.limits.burst_bytes / (DATA_HEAD + len);
        let sqns = self.limits.backlog_sqns as usize;
        let count = if fits < sqns { fits } else { sqns };
        if count == 0 { 1 } else { count }
    }

    /// Takes a message into a row. A message that is too long for one packet becomes a row by
    /// itself, which is sent in several packets.
    fn offer_packed(&mut self, apdu: &[u8]) -> Result<u64, Full> {
        if apdu.len() <= self.longest_in_row() {
            return self.offer_in_row(apdu);
        }
        self.check_length(apdu)?;
        self.close_row();
        let mut row = Vec::with_capacity(Packed::length_len(apdu.len()) + apdu.len());
        row.resize(Packed::length_len(apdu.len()), 0);
        Packed::write_length(&mut row, apdu.len());
        row.extend_from_slice(apdu);
        debug_assert_eq!(
            row.len(),
            Packed::span(apdu.len()),
            "it is longer than a packet"
        );
        self.offer_fragments(&row)
    }

    fn check_length(&self, apdu: &[u8]) -> Result<(), Full> {
        let max = self.limits.apdu;
        if apdu.len() > max {
            return Err(Full::TooLong { max });
        }
        Ok(())
    }

    /// Takes a message in several packets: all of them or none.
    #[inline(never)]
    fn offer_fragments(&mut self, apdu: &[u8]) -> Result<u64, Full> {
        self.check_room()?;
        let first = self.log.lead();
        let checkpoint = self.log.checkpoint();
        let taken = self.counters.taken;
        let mut offset = 0;
        for piece in apdu.chunks(self.limits.fragment_tsdu) {
            let head = self.fragment_head();
            let Ok(at) = self.place(head + piece.len()) else {
                self.log.rollback(checkpoint);
                self.counters.taken = taken;
                return Err(Full::Window);
            };
            let sum = self.copy_payload(at + head, piece);
            let fragment = Fragment {
                first: Sqn::of(first),
                offset,
                apdu_len: apdu.len() as u32,
            };
            offset += piece.len() as u32;
            self.commit_record(at, piece.len(), sum, Some(fragment));
        }
        self.counters.fragmented += 1;
        Ok(first)
    }

    /// Refuses data when the source is closed, or when the backlog has reached its limit: a longer
    /// backlog would take the place of sent packets from which repairs are made.
    #[inline]
    pub(super) fn check_room(&mut self) -> Result<(), Full> {
        if !matches!(self.ending.closing, Closing::Open) {
            return Err(Full::Closed);
        }
        let waiting = self.log.lead() - self.log.unsent();
        if self.log.unsent_bytes() >= self.limits.backlog_bytes
            || waiting >= self.limits.backlog_sqns
        {
            return Err(self.refuse());
        }
        Ok(())
    }

    /// Counts a refusal, and lets all data leave that the cork held back, to make room.
    pub(super) const fn refuse(&mut self) -> Full {
        self.counters.full += 1;
        self.uncork();
        Full::Window
    }

    #[inline]
    pub(super) fn place(&mut self, len: usize) -> Result<usize, Full> {
        self.place_many(len, 1)
    }

    /// Finds contiguous room in the log for `count` records, which have `bytes` bytes in all. The
    /// log must also have room for `count` more sequence numbers.
    #[inline]
    fn place_many(&mut self, bytes: usize, count: usize) -> Result<usize, Full> {
        let hold = self.hold();
        self.log.place(bytes, count as u64, hold).ok_or_else(|| {
            if hold == self.repairs.oldest() {
                // The application waits until the repair at `hold` is sent. So this repair goes to
                // the front of each queue of repairs that has it.
                self.repairs.hasten(hold);
            } else if let Some(parity) = &mut self.parity {
                parity.hasten(hold);
            }
            self.reports.refused_at = self.log.trail();
            self.refuse()
        })
    }

    /// Copies a payload into the log at `at`. Returns what [`Source::sum_payload`] returns for it.
    #[inline]
    fn copy_payload(&mut self, at: usize, payload: &[u8]) -> u64 {
        let has_checksum = self.has_checksum();
        let room = &mut self.log.memory_mut()[at..at + payload.len()];
        if has_checksum {
            checksum::copy_and_sum(room, payload)
        } else {
            room.copy_from_slice(payload);
            0
        }
    }

    /// Returns what the payload adds to the packet's checksum; 0 when the packet is sent without a
    /// checksum. The payload is at `range` of the log.
    #[inline]
    pub(super) fn sum_payload(&self, range: Range<usize>) -> u64 {
        if self.has_checksum() {
            checksum::sum(&self.log.memory()[range])
        } else {
            0
        }
    }

    /// Returns true when data leaves with a checksum. Protected data has a stronger tag instead,
    /// and the stage that adds the tag clears the checksum field.
    #[inline]
    fn has_checksum(&self) -> bool {
        !self.setup.is_protected()
    }

    /// Completes the record at `at`, whose payload is already written, and adds it to the log.
    /// Returns the packet's position.
    #[inline]
    fn commit_record(
        &mut self,
        at: usize,
        tsdu_len: usize,
        tsdu_sum: u64,
        fragment: Option<Fragment>,
    ) -> u64 {
        let position = self.log.lead();
        let head_len = match fragment {
            None => DATA_HEAD + self.syn_bytes(),
            Some(_) => self.fragment_head(),
        };
        let (head, tsdu) = (at..at + head_len, (tsdu_len, tsdu_sum));
        match fragment {
            None if self.is_syn_at(position) => {
                self.write_head(head, position, &[PgmOption::Syn], tsdu);
            }
            None => self.write_head(head, position, &[], tsdu),
            Some(fragment) => {
                let mut options = [
                    PgmOption::Fragment(fragment),
                    PgmOption::Syn,
                    PgmOption::Syn,
                ];
                let mut count = 1;
                if self.config.pack() {
                    options[count] = PgmOption::Packed(Packed);
                    count += 1;
                }
                count += usize::from(self.is_syn_at(position));
                self.write_head(head, position, &options[..count], tsdu);
            }
        }
        self.counters.taken += 1;
        self.log.push(at, head_len + tsdu_len)
    }

    /// Writes header and options of the packet at `position` into the range `head` of the log;
    /// `tsdu` has the payload's length and sum.
    #[inline]
    pub(super) fn write_head(
        &mut self,
        head: Range<usize>,
        position: u64,
        options: &[PgmOption<'_>],
        tsdu: (usize, u64),
    ) {
        let data = Body::Odata(Data {
            sqn: Sqn::of(position),
            trail: Sqn::of(self.log.trail()),
        });
        let tsdu = (tsdu.0 as u16, tsdu.1);
        let head = &mut self.log.memory_mut()[head];
        emit_head(head, &self.addressing, Flags::NONE, &data, options, tsdu);
    }

    /// Returns true when the packet at `position` carries OPT_SYN: only the first of a session may.
    #[inline]
    pub(super) const fn is_syn_at(&self, position: u64) -> bool {
        self.config.send_syn() && position == self.setup.first_position()
    }

    #[inline]
    const fn syn_bytes(&self) -> usize {
        if self.is_syn_at(self.log.lead()) {
            SYN_BYTES
        } else {
            0
        }
    }

    /// Returns the number of bytes before the payload in a packet with one piece of a message.
    const fn fragment_head(&self) -> usize {
        let row = if self.config.pack() { ROW_BYTES - 4 } else { 0 };
        DATA_HEAD + FRAGMENT_BYTES + row + self.syn_extra()
    }

    /// Returns how many bytes OPT_SYN adds to a packet that has another option, and so already has
    /// OPT_LENGTH.
    #[inline]
    pub(super) const fn syn_extra(&self) -> usize {
        if self.is_syn_at(self.log.lead()) {
            SYN_BYTES - 4
        } else {
            0
        }
    }
}

/// Room for one payload. Dropped without a commit, it leaves no trace.
#[derive(Debug)]
pub struct Slot<'a> {
    source: &'a mut Source,
    /// Offset of the payload in the log.
    at: usize,
    len: usize,
    /// The payload's place in a row, if it is to share a packet.
    row: Option<RowPlace>,
}

impl Slot<'_> {
    /// Returns the payload's bytes for the caller to write. They hold old data until then.
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        &mut self.source.log.memory_mut()[self.at..self.at + self.len]
    }

    /// Takes the payload as the next packet or, with `pack`, into a packet with other messages.
    /// Returns the packet's position.
    ///
    /// **Cost**: one pass over the payload, for the checksum.
    #[inline]
    pub fn commit(self) -> u64 {
        if let Some(row) = &self.row {
            return self.source.commit_in_row(row, self.len);
        }
        let sum = self.source.sum_payload(self.at..self.at + self.len);
        let at = self.at - DATA_HEAD - self.source.syn_bytes();
        self.source.commit_record(at, self.len, sum, None)
    }
}

/// Room for several payloads of equal length, back to back.
#[derive(Debug)]
pub struct Burst<'a> {
    source: &'a mut Source,
    at: usize,
    /// Length of OPT_SYN in the first record, in bytes.
    syn: usize,
    len: usize,
    count: usize,
}

impl Burst<'_> {
    /// Returns the number of payloads.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Returns payload `index` for the caller to write. Its bytes hold old data until then.
    ///
    /// **Panics** (bug): when `index` is not below [`Burst::count`].
    #[inline]
    pub fn slot(&mut self, index: usize) -> &mut [u8] {
        assert!(index < self.count, "a burst was written past its end");
        let start = self.payload_at(index);
        &mut self.source.log.memory_mut()[start..start + self.len]
    }

    /// Takes all payloads. Returns the position of the first.
    pub fn commit(self) -> u64 {
        let count = self.count;
        self.commit_first(count)
    }

    /// Takes the first `count` payloads (all when there are fewer). Returns the position of the
    /// first.
    pub fn commit_first(self, count: usize) -> u64 {
        let first = self.source.log.lead();
        for index in 0..count.min(self.count) {
            let start = self.payload_at(index);
            let sum = self.source.sum_payload(start..start + self.len);
            let syn = if index == 0 { self.syn } else { 0 };
            let at = start - DATA_HEAD - syn;
            self.source.commit_record(at, self.len, sum, None);
        }
        first
    }

    const fn payload_at(&self, index: usize) -> usize {
        self.at + self.syn + index * (DATA_HEAD + self.len) + DATA_HEAD
    }
}
