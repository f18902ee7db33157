//! Rows: several small messages in one packet, as long as the packet has not left.
//!
//! ```text
//!   log  ... | sent | unsent | unsent | header, options, length m, length m, ...  free |
//!                                     ^at                                      ^head   ^end
//! ```
//!
//! The newest record of the log grows by each message that fits. The record gets its header and
//! checksum when it is full or about to leave. A row waits no longer than other new data: a message
//! that is offered alone leaves alone, with the next turn. A row that is almost full is padded, so
//! that rows have equal length and leave as one run.
//!
//! Invariant: an open row is the newest record and unsent, and `end` lies within the place that the
//! log gave for it.

use wire::pgm::Packed;

use super::{
    Full, PgmOption, Source,
    limits::{DATA_HEAD, ROW_BYTES},
};

/// The newest record, while the source still adds messages to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenRow {
    position: u64,
    at: usize,
    /// Length of the headers and options before the first message's length field, in bytes.
    head_len: usize,
    /// Offset in the log's memory at which the record must end at the latest.
    end: usize,
}

/// The place of a message that the source has not taken yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowPlace {
    /// The record to begin, unless the message continues the open record.
    fresh: Option<OpenRow>,
    /// Offset of the message's length field in the log's memory.
    at: usize,
}

impl RowPlace {
    /// Returns the offset at which a message of `len` bytes begins, after its length field.
    pub(super) const fn payload_at(&self, len: usize) -> usize {
        self.at + Packed::length_len(len)
    }
}

impl Source {
    /// Finds room for a message of `len` bytes in a row. The source takes nothing until
    /// `commit_in_row`.
    pub(super) fn place_in_row(&mut self, len: usize) -> Result<RowPlace, Full> {
        let needed = Packed::span(len);
        if needed > self.limits.tsdu {
            let max = self.longest_in_row();
            return Err(Full::TooLong { max });
        }
        self.check_room()?;
        if let Some(row) = &self.log.row {
            let at = self.log.head();
            if at + needed <= row.end {
                return Ok(RowPlace { fresh: None, at });
            }
            let rest = row.end - at;
            if rest <= self.limits.tsdu / PADDING_PART {
                self.log.memory_mut()[at..at + rest].fill(Packed::PADDING);
                self.log.grow(rest);
            }
            self.close_row();
        }
        let head_len = DATA_HEAD + ROW_BYTES + self.syn_extra();
        let len_max = head_len + self.limits.tsdu;
        let at = self.place(len_max)?;
        let fresh = OpenRow {
            position: self.log.lead(),
            at,
            head_len,
            end: at + len_max,
        };
        Ok(RowPlace {
            fresh: Some(fresh),
            at: at + head_len,
        })
    }

    /// Takes the message of `len` bytes that the caller wrote where `place_in_row` said. Returns
    /// the position of its packet.
    pub(super) fn commit_in_row(&mut self, place: &RowPlace, len: usize) -> u64 {
        let start = place.payload_at(len);
        let end = place.at + Packed::span(len);
        let room = &mut self.log.memory_mut()[place.at..end];
        Packed::write_length(&mut room[..start - place.at], len);
        room[start - place.at + len..].fill(0);
        self.counters.packed += 1;
        match place.fresh {
            None => self.log.grow(end - place.at),
            Some(row) => {
                self.log.push(row.at, end - row.at);
                self.log.row = Some(row);
                self.counters.taken += 1;
            }
        }
        self.log.lead() - 1
    }

    /// Copies a message into a row.
    pub(super) fn offer_in_row(&mut self, apdu: &[u8]) -> Result<u64, Full> {
        let place = self.place_in_row(apdu.len())?;
        let start = place.payload_at(apdu.len());
        self.log.memory_mut()[start..start + apdu.len()].copy_from_slice(apdu);
        Ok(self.commit_in_row(&place, apdu.len()))
    }

    /// Completes the open row, because it is about to leave or something else follows it.
    #[inline]
    pub(super) fn close_row(&mut self) {
        if let Some(row) = self.log.row.take() {
            self.seal_row(&row);
        }
    }

    #[inline(never)]
    fn seal_row(&mut self, row: &OpenRow) {
        let start = row.at + row.head_len;
        let tsdu = start..self.log.head();
        let sum = self.sum_payload(tsdu.clone());
        let options = [PgmOption::Packed(Packed), PgmOption::Syn];
        let count = if self.is_syn_at(row.position) { 2 } else { 1 };
        let head = row.at..start;
        self.write_head(head, row.position, &options[..count], (tsdu.len(), sum));
    }

    /// Returns the longest message that fits a row by itself, in bytes.
    pub(super) const fn longest_in_row(&self) -> usize {
        let tsdu = self.limits.tsdu;
        // A packet holds more than 127 bytes, so the length field of its longest message has four
        // bytes.
        tsdu - Packed::length_len(tsdu)
    }
}

/// A row is padded when at most one part in `PADDING_PART` of it is free. Without the padding, a
/// row of another length would end a run, which costs more.
const PADDING_PART: usize = 4;
