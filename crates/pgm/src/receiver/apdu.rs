//! Messages cut into several packets: the place of each piece, and the message that the receiver is
//! putting together.
//!
//! The module does not order pieces: they come in sequence. In: one piece after the other. Out: the
//! whole message, or the position where an abandoned message began.
//!
//! ```text
//! sqn      41        42        43
//! offset   0         1428      2856        apdu_len 3000
//!          |---------|---------|--|        first = 41 in all three
//! ```
//!
//! Invariants: the buffer grows only as bytes arrive, never because a packet claims a length. It is
//! at most twice as large as the longest message so far, and at most `apdu_bytes_max` bytes. It
//! counts against the memory bound for held data.
//!
//! **Spec**: RFC 3208 section 9.2.3.

use wire::{Sqn, pgm::Fragment};

use super::held::{Entry, HeldStore};

/// The place of one packet's payload in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// How many packets of the same message come before this packet.
    pub(super) index: u32,
    /// How many bytes of the same message come before this payload.
    pub(super) offset: u32,
    /// Length of the whole message in bytes.
    pub(super) apdu_len: u32,
}

/// The limits of a fragmented message that a receiver accepts.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartLimits {
    pub(super) apdu_bytes_max: usize,
    pub(super) fragments_max: u32,
}

impl Part {
    /// Number of bytes that [`Part::to_bytes`] makes.
    pub(super) const LEN: usize = 12;

    /// Reads the fragment option of packet `sqn`, which has `len` bytes of payload. `None` when the
    /// option contradicts itself or goes beyond `limits`.
    pub(super) fn of(
        fragment: &Fragment,
        sqn: Sqn,
        len: usize,
        limits: &PartLimits,
    ) -> Option<Self> {
        let index = u32::try_from(sqn.distance_from(fragment.first)).ok()?;
        let is_sound = fragment.holds(len)
            && index < limits.fragments_max
            && fragment.apdu_len as usize <= limits.apdu_bytes_max
            && (index == 0) == (fragment.offset == 0)
            && (len > 0 || fragment.apdu_len == 0);
        is_sound.then_some(Self {
            index,
            offset: fragment.offset,
            apdu_len: fragment.apdu_len,
        })
    }

    /// Returns true when a payload of `len` bytes is the whole message.
    pub(super) const fn is_whole(&self, len: usize) -> bool {
        self.offset == 0 && self.apdu_len as usize == len
    }

    pub(super) fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&self.index.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.offset.to_be_bytes());
        bytes[8..].copy_from_slice(&self.apdu_len.to_be_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        let word = |at: usize| {
            let bytes = bytes[at..at + 4]
                .try_into()
                .expect("the slice is four bytes long");
            u32::from_be_bytes(bytes)
        };
        Self {
            index: word(0),
            offset: word(4),
            apdu_len: word(8),
        }
    }
}

/// The message that the receiver is putting together.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    buffer: Vec<u8>,
    /// Number of bytes that the buffer may fill. They count against the store's reserve when
    /// `has_reserve` is true, else against the shared memory bound.
    borrowed: usize,
    has_reserve: bool,
    state: State,
    /// Position of the message's first packet.
    first: u64,
    /// Number of the message's packets that were added so far.
    parts: u32,
    apdu_len: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Idle,
    Growing,
    /// The message is complete and not yet handed out.
    Complete,
}

/// The result of adding a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// Added; more pieces are to come.
    Taken,
    /// Added, and the message is complete.
    Completed,
    /// The piece does not continue the current message; nothing changed.
    Stray,
    /// The memory bound is reached; nothing changed.
    NoRoom,
}

impl Assembly {
    /// Adds the piece at `position`.
    pub(super) fn add(
        &mut self,
        store: &mut HeldStore,
        position: u64,
        part: &Part,
        payload: &[u8],
    ) -> Fit {
        let fit = self.prepare(store, position, part, payload.len());
        if matches!(fit, Fit::Taken | Fit::Completed) {
            self.buffer.extend_from_slice(payload);
        }
        fit
    }

    /// Adds the piece that is held as `entry`.
    pub(super) fn add_held(&mut self, store: &mut HeldStore, entry: &Entry, part: &Part) -> Fit {
        let fit = self.prepare(store, entry.position, part, store.payload(entry).len());
        if matches!(fit, Fit::Taken | Fit::Completed) {
            self.buffer.extend_from_slice(store.payload(entry));
        }
        fit
    }

    /// Decides whether the piece fits, makes room for it and counts it. The caller then copies the
    /// piece's bytes.
    fn prepare(&mut self, store: &mut HeldStore, position: u64, part: &Part, len: usize) -> Fit {
        let starts = self.state == State::Idle && part.index == 0;
        if !starts && !self.continues(position, part) {
            return Fit::Stray;
        }
        let start = if starts { 0 } else { self.buffer.len() };
        if !self.make_room(store, start + len, part.apdu_len as usize) {
            return Fit::NoRoom;
        }
        if starts {
            self.buffer.clear();
            self.first = position;
            self.parts = 0;
            self.apdu_len = part.apdu_len;
        }
        self.parts += 1;
        if start + len == self.apdu_len as usize {
            self.state = State::Complete;
            Fit::Completed
        } else {
            self.state = State::Growing;
            Fit::Taken
        }
    }

    /// Abandons the current message. Returns the position of its first packet, or `None` when no
    /// message was unfinished.
    pub(super) fn abandon(&mut self) -> Option<u64> {
        let was_growing = self.state == State::Growing;
        self.state = State::Idle;
        was_growing.then_some(self.first)
    }

    /// Marks the complete message as handed out, and returns the position of its first packet. The
    /// message's bytes stay readable until the next piece comes.
    pub(super) fn hand_out(&mut self) -> Option<u64> {
        if self.state != State::Complete {
            return None;
        }
        self.state = State::Idle;
        Some(self.first)
    }

    /// Returns the message's bytes so far.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer
    }

    pub(super) fn is_idle(&self) -> bool {
        self.state == State::Idle
    }

    pub(super) fn is_complete(&self) -> bool {
        self.state == State::Complete
    }

    /// Forgets everything and gives the memory back.
    pub(super) fn clear(&mut self, store: &mut HeldStore) {
        if self.has_reserve {
            store.return_reserve();
        } else {
            store.return_bytes(self.borrowed);
        }
        *self = Self::default();
    }

    /// Gives back the reserve once the message that needed it was handed out or abandoned.
    pub(super) fn return_reserve(&mut self, store: &mut HeldStore) {
        if self.has_reserve && self.is_idle() {
            self.clear(store);
        }
    }

    fn continues(&self, position: u64, part: &Part) -> bool {
        self.state == State::Growing
            && part.index == self.parts
            && position == self.first + u64::from(self.parts)
            && part.offset as usize == self.buffer.len()
            && part.apdu_len == self.apdu_len
    }

    /// Grows the buffer by doubling, up to what the message will need. When the shared bound is
    /// reached, takes the reserve, which has room for the longest message.
    fn make_room(&mut self, store: &mut HeldStore, needed: usize, apdu_len: usize) -> bool {
        if needed <= self.borrowed {
            return true;
        }
        let target = needed.max(self.borrowed * 2).min(apdu_len.max(needed));
        let more = target - self.borrowed;
        if self.has_reserve {
            store.grow_reserve(more);
        } else if !store.borrow_bytes(more) {
            if !store.take_reserve(self.borrowed) {
                return false;
            }
            self.has_reserve = true;
            store.grow_reserve(more);
        }
        self.borrowed = target;
        self.buffer.reserve_exact(target - self.buffer.len());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: PartLimits = PartLimits {
        apdu_bytes_max: 100,
        fragments_max: 4,
    };

    fn part(sqn: u32, first: u32, offset: u32, apdu_len: u32, len: usize) -> Option<Part> {
        let first = Sqn(first);
        let fragment = Fragment {
            first,
            offset,
            apdu_len,
        };
        Part::of(&fragment, Sqn(sqn), len, &LIMITS)
    }

    #[test]
    fn a_fragment_must_agree_with_itself_and_the_limits() {
        assert!(part(7, 7, 0, 100, 10).is_some());
        assert!(part(2, u32::MAX, 30, 100, 10).is_some(), "across the wrap");
        for (what, bad) in [
            ("first after itself", part(6, 7, 10, 100, 10)),
            ("offset 0 but not first", part(8, 7, 0, 100, 10)),
            ("first with an offset", part(7, 7, 10, 100, 10)),
            ("beyond the message", part(8, 7, 95, 100, 10)),
            ("overflowing offset", part(8, 7, u32::MAX, 100, 10)),
            ("too long", part(7, 7, 0, 101, 10)),
            ("too many", part(11, 7, 50, 100, 10)),
            ("empty", part(8, 7, 50, 100, 0)),
        ] {
            assert_eq!(bad, None, "{what}");
        }
    }

    #[test]
    fn pieces_in_sequence_make_the_message() {
        let mut store = HeldStore::new(1000, 500, 0);
        let mut assembly = Assembly::default();
        let parts = [
            part(7, 7, 0, 5, 2).unwrap(),
            part(8, 7, 2, 5, 2).unwrap(),
            part(9, 7, 4, 5, 1).unwrap(),
        ];
        assert_eq!(assembly.add(&mut store, 8, &parts[1], b"cd"), Fit::Stray);
        assert_eq!(assembly.add(&mut store, 7, &parts[0], b"ab"), Fit::Taken);
        assert_eq!(assembly.add(&mut store, 9, &parts[2], b"e"), Fit::Stray);
        assert_eq!(assembly.add(&mut store, 8, &parts[1], b"cd"), Fit::Taken);
        assert_eq!(assembly.add(&mut store, 9, &parts[2], b"e"), Fit::Completed);
        assert_eq!(assembly.bytes(), b"abcde");
        assert_eq!(assembly.hand_out(), Some(7));
        assert_eq!(assembly.hand_out(), None);
        assembly.clear(&mut store);
        assert_eq!(store.used_bytes(), 0);
    }

    #[test]
    fn memory_follows_the_bytes_and_never_the_claim() {
        let mut store = HeldStore::new(1000, 500, 100);
        let mut assembly = Assembly::default();
        let first = part(7, 7, 0, 100, 10).unwrap();
        assert_eq!(assembly.add(&mut store, 7, &first, &[0; 10]), Fit::Taken);
        assert_eq!(store.used_bytes(), 10);
        assert!(store.borrow_bytes(885) && store.take_reserve(0));
        let second = part(8, 7, 10, 100, 10).unwrap();
        assert_eq!(assembly.add(&mut store, 8, &second, &[0; 10]), Fit::NoRoom);
        assert_eq!(assembly.abandon(), Some(7));
        assert_eq!(assembly.abandon(), None);
    }

    #[test]
    fn a_full_store_lets_one_message_after_the_other_be_put_together() {
        let mut store = HeldStore::new(1000, 500, 100);
        let mut sessions = [Assembly::default(), Assembly::default()];
        let first = part(7, 7, 0, 100, 50).unwrap();
        let last = part(8, 7, 50, 100, 50).unwrap();
        for assembly in &mut sessions {
            assert_eq!(assembly.add(&mut store, 7, &first, &[0; 50]), Fit::Taken);
        }
        assert!(store.borrow_bytes(800));
        let [one, two] = &mut sessions;
        assert_eq!(one.add(&mut store, 8, &last, &[0; 50]), Fit::Completed);
        assert!(store.borrow_bytes(50), "what it had is others' now");
        assert_eq!(two.add(&mut store, 8, &last, &[0; 50]), Fit::NoRoom);
        one.return_reserve(&mut store);
        assert!(!store.take_news(), "its message waits to be handed out");
        assert_eq!(one.hand_out(), Some(7));
        one.return_reserve(&mut store);
        assert!(store.take_news());
        assert_eq!(two.add(&mut store, 8, &last, &[0; 50]), Fit::Completed);
        assert!(store.used_bytes() <= 1000);
    }

    #[test]
    fn the_stored_form_of_a_part_reads_back() {
        let part = part(9, 7, 30, 90, 20).unwrap();
        assert_eq!(Part::from_bytes(&part.to_bytes()), part);
    }
}
