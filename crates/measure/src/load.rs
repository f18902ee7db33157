//! Load messages whose content proves itself: what `towline load` sends and checks.
//!
//! A message carries its sequence number and a slice of a fixed pseudo-random block; the number
//! chooses the slice. So a receiver that knows only the seed detects a missing, repeated,
//! reordered, truncated or altered message. A stamped message also says when it was sent, and how
//! far the sender's clock may be wrong.
//!
//! ```text
//!   16 bytes and more:  sequence u64 LE | mark u64 LE | block[start(sequence) ..]
//!   stamped, 32 and more: instead of the block's first 16 bytes, sent_ns u64 LE and
//!                         clock_error_ns_max u64 LE, all ones when nothing keeps the clock right
//!   less than 16:       the first bytes of the mark, which depends on sequence and length
//! ```

use std::sync::Arc;

use base::Rng;

/// The pattern of one load run: it makes and recognises the run's messages. A clone shares the
/// block.
#[derive(Clone, Debug)]
pub struct LoadPattern {
    seed: u64,
    block: Arc<[u8]>,
}

impl LoadPattern {
    /// Returns the pattern that `seed` determines. **Cost**: fills 128 KiB once.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut block = vec![0; BLOCK_BYTES + MESSAGE_BYTES_MAX];
        Rng::new(seed).fill(&mut block);
        let block = block.into();
        Self { seed, block }
    }

    /// Writes message number `sequence` over all of `message`, which holds at most
    /// [`MESSAGE_BYTES_MAX`].
    pub fn fill(&self, sequence: u64, message: &mut [u8]) {
        let mark = self.mark(sequence, message.len()).to_le_bytes();
        if message.len() < HEAD_BYTES {
            let (head, tail) = message.split_at_mut(message.len().min(8));
            head.copy_from_slice(&mark[..head.len()]);
            tail.copy_from_slice(&mark[..tail.len()]);
            return;
        }
        message[..8].copy_from_slice(&sequence.to_le_bytes());
        message[8..16].copy_from_slice(&mark);
        let body = &mut message[HEAD_BYTES..];
        body.copy_from_slice(self.body(sequence, body.len()));
    }

    /// Returns the sequence number that a message of 16 bytes or more claims.
    fn claimed(message: &[u8]) -> Option<u64> {
        let head = message.get(..HEAD_BYTES)?;
        Some(u64::from_le_bytes(head[..8].try_into().ok()?))
    }

    /// Writes the stamp over a part of a message of [`STAMPED_BYTES_MIN`] bytes or more. A shorter
    /// message stays as it is.
    pub fn stamp(message: &mut [u8], stamp: LoadStamp) {
        if let Some(place) = message.get_mut(HEAD_BYTES..STAMPED_BYTES_MIN) {
            let (sent, error) = place.split_at_mut(8);
            sent.copy_from_slice(&stamp.sent_ns.to_le_bytes());
            let error_ns = stamp.clock_error_ns_max.unwrap_or(u64::MAX);
            error.copy_from_slice(&error_ns.to_le_bytes());
        }
    }

    fn stamp_of(message: &[u8]) -> Option<LoadStamp> {
        let place = message.get(HEAD_BYTES..STAMPED_BYTES_MIN)?;
        let (sent, error) = place.split_first_chunk()?;
        let error_ns = u64::from_le_bytes(error.try_into().ok()?);
        Some(LoadStamp {
            sent_ns: u64::from_le_bytes(*sent),
            clock_error_ns_max: Some(error_ns).filter(|&error_ns| error_ns < u64::MAX),
        })
    }

    /// Returns true when `message` is exactly message number `sequence`, except for a stamp.
    fn is_intact(&self, sequence: u64, message: &[u8], is_stamped: bool) -> bool {
        if message.len() > MESSAGE_BYTES_MAX {
            // No load message is that long, so another program has sent this one.
            return false;
        }
        let mark = self.mark(sequence, message.len()).to_le_bytes();
        if message.len() < HEAD_BYTES {
            let (head, tail) = message.split_at(message.len().min(8));
            return head == &mark[..head.len()] && tail == &mark[..tail.len()];
        }
        let body = self.body(sequence, message.len() - HEAD_BYTES);
        let stamp = if is_stamped && message.len() >= STAMPED_BYTES_MIN {
            STAMPED_BYTES_MIN - HEAD_BYTES
        } else {
            0
        };
        message[8..16] == mark && message[HEAD_BYTES + stamp..] == body[stamp..]
    }

    fn body(&self, sequence: u64, len: usize) -> &[u8] {
        let start = (sequence.wrapping_mul(64) as usize) % BLOCK_BYTES;
        &self.block[start..start + len]
    }

    const fn mark(&self, sequence: u64, len: usize) -> u64 {
        let mut z = self.seed ^ sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (len as u64) << 48;
        z = (z ^ (z >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        z ^ (z >> 32)
    }
}

/// What a stamped message says of its sender's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadStamp {
    /// When the message was sent or due, in nanoseconds of a clock that the receiver can read too.
    pub sent_ns: u64,
    /// How far that clock may be wrong, in nanoseconds; `None` when nothing keeps it right.
    pub clock_error_ns_max: Option<u64>,
}

/// The sizes of a load run's messages: message number and seed determine each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadSizes {
    /// Bytes of the smallest message.
    pub bytes_min: usize,
    /// Bytes of the largest message.
    pub bytes_max: usize,
    /// The seed that determines each size.
    pub seed: u64,
}

impl LoadSizes {
    /// Returns the length of message number `sequence`.
    #[must_use]
    pub fn of(&self, sequence: u64) -> usize {
        if self.bytes_min >= self.bytes_max {
            return self.bytes_min;
        }
        let mut rng = Rng::new(self.seed ^ sequence.wrapping_mul(0xa076_1d64_78bd_642f));
        usize::try_from(rng.between(self.bytes_min as u64, self.bytes_max as u64))
            .unwrap_or(self.bytes_max)
    }
}

/// A check of the messages of one sender, in the order of their arrival.
#[derive(Clone, Debug)]
pub struct LoadCheck {
    pattern: LoadPattern,
    next: Option<u64>,
    tally: LoadTally,
    is_stamped: bool,
}

/// What a [`LoadCheck`] has found, in messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadTally {
    /// Intact messages that came in order, each counted once.
    pub received: u64,
    /// Bytes of the messages that `received` counts.
    pub bytes: u64,
    /// Messages skipped between the first and the last one received.
    pub missing: u64,
    /// Messages whose content does not match their number.
    pub corrupt: u64,
    /// Messages with the same number as the last message received.
    pub duplicates: u64,
    /// Messages that came after a later one, for the first time or again.
    pub out_of_order: u64,
    /// Number of the first message received.
    pub first: Option<u64>,
    /// Number of the last message received.
    pub last: Option<u64>,
}

impl LoadTally {
    /// Adds another sender's counts; `first` and `last` stay.
    pub const fn add(&mut self, other: &Self) {
        self.received += other.received;
        self.bytes += other.bytes;
        self.missing = self.missing.saturating_add(other.missing);
        self.corrupt += other.corrupt;
        self.duplicates += other.duplicates;
        self.out_of_order += other.out_of_order;
    }
}

impl LoadCheck {
    /// Makes a check against the pattern that `seed` determines. **Cost**: that of
    /// [`LoadPattern::new`].
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::against(&LoadPattern::new(seed))
    }

    /// Makes a check against a pattern that all senders share. So a forged sender cannot make this
    /// receiver build another pattern.
    #[must_use]
    pub fn against(pattern: &LoadPattern) -> Self {
        Self {
            pattern: pattern.clone(),
            next: None,
            tally: LoadTally::default(),
            is_stamped: false,
        }
    }

    /// Sets whether the messages are stamped.
    #[must_use]
    pub const fn stamped(mut self, is_stamped: bool) -> Self {
        self.is_stamped = is_stamped;
        self
    }

    /// Takes the next message. A message of less than 16 bytes carries no number, so it is compared
    /// with the message that is due. After a loss, the next longer message says where the stream
    /// is. Returns the stamp of a message that counts as received.
    pub fn take(&mut self, message: &[u8]) -> Option<LoadStamp> {
        let due = self.next.unwrap_or(0);
        let sequence = LoadPattern::claimed(message).unwrap_or(due);
        if !self.pattern.is_intact(sequence, message, self.is_stamped) {
            self.tally.corrupt += 1;
            return None;
        }
        match self.next {
            None => self.tally.first = Some(sequence),
            Some(next) if sequence > next => {
                self.tally.missing = self.tally.missing.saturating_add(sequence - next);
            }
            Some(next) if sequence < next => {
                self.take_late(sequence, next);
                return None;
            }
            Some(_) => {}
        }
        self.tally.received += 1;
        self.tally.bytes += message.len() as u64;
        self.tally.last = Some(sequence);
        self.next = Some(sequence.saturating_add(1));
        let stamp = LoadPattern::stamp_of(message);
        stamp.filter(|_| self.is_stamped)
    }

    const fn take_late(&mut self, sequence: u64, next: u64) {
        if sequence + 1 == next {
            self.tally.duplicates += 1;
        } else {
            self.tally.out_of_order += 1;
        }
    }

    /// Returns what the check has found so far.
    #[must_use]
    pub const fn tally(&self) -> &LoadTally {
        &self.tally
    }
}

/// Longest load message, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 65_535;
const BLOCK_BYTES: usize = 65_536;
const HEAD_BYTES: usize = 16;
/// Shortest message that can be stamped, in bytes.
pub const STAMPED_BYTES_MIN: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn message(pattern: &LoadPattern, sequence: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        pattern.fill(sequence, &mut bytes);
        bytes
    }

    #[test]
    fn a_clean_stream_of_mixed_sizes_is_clean() {
        let pattern = LoadPattern::new(3);
        let sizes = LoadSizes {
            bytes_min: 1,
            bytes_max: 20_000,
            seed: 3,
        };
        let mut check = LoadCheck::new(3);
        for sequence in 0..2_000 {
            check.take(&message(&pattern, sequence, sizes.of(sequence)));
        }
        let tally = check.tally();
        assert_eq!(
            (tally.received, tally.missing, tally.corrupt),
            (2_000, 0, 0)
        );
    }

    const fn stamp(sent_ns: u64) -> LoadStamp {
        LoadStamp {
            sent_ns,
            clock_error_ns_max: Some(5),
        }
    }

    #[test]
    fn a_clock_that_nothing_keeps_right_says_so() {
        let (pattern, mut check) = (LoadPattern::new(3), LoadCheck::new(3).stamped(true));
        let mut stamped = message(&pattern, 0, STAMPED_BYTES_MIN);
        let unknown = LoadStamp {
            clock_error_ns_max: None,
            ..stamp(77)
        };
        LoadPattern::stamp(&mut stamped, unknown);
        assert_eq!(check.take(&stamped), Some(unknown));
    }

    #[test]
    fn a_stamp_comes_out_and_damage_beside_it_is_seen() {
        let pattern = LoadPattern::new(3);
        let mut check = LoadCheck::new(3).stamped(true);
        let mut stamped = message(&pattern, 0, 100);
        LoadPattern::stamp(&mut stamped, stamp(77));
        assert_eq!(check.take(&stamped), Some(stamp(77)));
        assert_eq!(check.take(&stamped), None, "it came before");
        let mut bad = message(&pattern, 1, 100);
        LoadPattern::stamp(&mut bad, stamp(78));
        bad[32] ^= 1;
        assert_eq!(check.take(&bad), None);
        let mut short = message(&pattern, 1, 23);
        LoadPattern::stamp(&mut short, stamp(79));
        assert_eq!(check.take(&short), None, "no room for a stamp");
        let tally = check.tally();
        assert_eq!((tally.received, tally.duplicates, tally.corrupt), (2, 1, 1));
        assert_eq!(LoadCheck::new(3).take(&stamped), None);
    }

    #[test]
    fn every_kind_of_damage_is_seen() {
        let pattern = LoadPattern::new(3);
        let mut check = LoadCheck::new(3);
        for sequence in [10, 11, 14, 14, 12] {
            check.take(&message(&pattern, sequence, 100));
        }
        let mut bad = message(&pattern, 15, 100);
        bad[99] ^= 1;
        check.take(&bad);
        check.take(&message(&pattern, 15, 100)[..99]);
        // A length that no load message has, with the right number and mark.
        let mut long = vec![0; 1 << 20];
        long[..8].copy_from_slice(&16_u64.to_le_bytes());
        let mark = pattern.mark(16, long.len());
        long[8..16].copy_from_slice(&mark.to_le_bytes());
        check.take(&long);
        let tally = check.tally();
        assert_eq!(
            (
                tally.received,
                tally.missing,
                tally.duplicates,
                tally.out_of_order,
                tally.corrupt
            ),
            (3, 2, 1, 1, 3)
        );
        assert_eq!((tally.first, tally.last), (Some(10), Some(14)));
    }
}
