//! The messages under way, by number, until each is answered or given up.
//!
//! ```text
//!        oldest                         next
//!   ......|--------- under way ----------|........   sequence numbers
//!         ^ leaves in order              ^ enters
//! ```
//! The ring has a fixed size. Messages leave it in the order of their numbers, so the result is in
//! order even when the echoes were not. A full ring gives up its oldest message.

use measure::{Counts, Sample};

/// The messages under way.
#[derive(Debug)]
pub(super) struct Flight {
    ring: Vec<Slot>,
    oldest: u64,
    next: u64,
    /// How many of the messages under way are not answered yet.
    waiting: u64,
    highest_answered: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    intended_ns: u64,
    sent_ns: u64,
    rtt_ns: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// No message was sent with this number.
    #[default]
    Empty,
    Waiting,
    Answered,
}

impl Flight {
    /// Makes a ring with room for at least this many messages.
    pub(super) fn new(messages: usize) -> Self {
        Self {
            ring: vec![Slot::default(); messages.next_power_of_two()],
            oldest: 0,
            next: 0,
            waiting: 0,
            highest_answered: None,
        }
    }

    /// Notes a message that was sent. Its number is greater than all earlier ones; the numbers
    /// between them were missed.
    pub(super) fn send(&mut self, sequence: u64, intended_ns: u64, sent_ns: u64) {
        while self.next < sequence {
            self.put(self.next, Slot::default());
            self.next += 1;
        }
        let state = State::Waiting;
        let rtt_ns = 0;
        let slot = Slot {
            intended_ns,
            sent_ns,
            rtt_ns,
            state,
        };
        self.put(sequence, slot);
        self.next = sequence + 1;
        self.waiting += 1;
    }

    /// Notes an echo in `counts`; returns true when it answers a message that waited for it.
    pub(super) fn answer(&mut self, sequence: u64, now_ns: u64, counts: &mut Counts) -> bool {
        let is_inside = (self.oldest..self.next).contains(&sequence);
        let index = self.index(sequence);
        let slot = &mut self.ring[index];
        if !is_inside || slot.state != State::Waiting {
            counts.late_or_twice += 1;
            return false;
        }
        slot.state = State::Answered;
        slot.rtt_ns = now_ns.saturating_sub(slot.sent_ns);
        self.waiting -= 1;
        counts.answered += 1;
        if self.highest_answered > Some(sequence) {
            counts.out_of_order += 1;
        }
        self.highest_answered = self.highest_answered.max(Some(sequence));
        true
    }

    /// Takes out the oldest message if its fate is known: it was answered, was sent before
    /// `give_up_ns`, or must leave a full ring.
    pub(super) fn settle(&mut self, give_up_ns: u64, counts: &mut Counts) -> Option<Sample> {
        while self.oldest < self.next {
            let slot = self.ring[self.index(self.oldest)];
            let is_full = self.next - self.oldest >= self.ring.len() as u64;
            let is_known = match slot.state {
                State::Empty | State::Answered => true,
                State::Waiting => is_full || slot.sent_ns < give_up_ns,
            };
            if !is_known {
                return None;
            }
            let sequence = self.oldest;
            self.oldest += 1;
            if slot.state == State::Empty {
                continue;
            }
            let is_answered = slot.state == State::Answered;
            if !is_answered {
                self.waiting -= 1;
                counts.lost += 1;
            }
            return Some(Sample {
                sequence,
                intended_ns: slot.intended_ns,
                sent_ns: slot.sent_ns,
                rtt_ns: is_answered.then_some(slot.rtt_ns),
            });
        }
        None
    }

    /// Returns the number of messages without an answer.
    pub(super) const fn waiting(&self) -> u64 {
        self.waiting
    }

    /// Returns true when message number `sequence` has a place without giving up an older one.
    pub(super) fn has_room(&self, sequence: u64) -> bool {
        sequence.saturating_sub(self.oldest) < self.ring.len() as u64
    }

    fn put(&mut self, sequence: u64, slot: Slot) {
        let index = self.index(sequence);
        self.ring[index] = slot;
    }

    fn index(&self, sequence: u64) -> usize {
        // The ring's length is a power of two.
        usize::try_from(sequence).unwrap_or(0) & (self.ring.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(
        flight: &mut Flight,
        give_up_ns: u64,
        counts: &mut Counts,
    ) -> Vec<(u64, Option<u64>)> {
        let next = || flight.settle(give_up_ns, counts);
        std::iter::from_fn(next)
            .map(|sample| (sample.sequence, sample.rtt_ns))
            .collect()
    }

    #[test]
    fn echoes_in_any_order_leave_in_order_and_every_echo_is_counted() {
        let (mut flight, mut counts) = (Flight::new(8), Counts::default());
        for sequence in [0, 1, 4] {
            flight.send(sequence, sequence * 10, sequence * 10 + 1);
        }
        // 2 and 3 were missed, 9 was never sent.
        for sequence in [4, 0, 0, 2, 9] {
            flight.answer(sequence, 100, &mut counts);
        }
        assert_eq!((flight.waiting(), counts.late_or_twice), (1, 3));
        assert_eq!(counts.out_of_order, 1);
        assert_eq!(settled(&mut flight, 0, &mut counts), [(0, Some(99))]);
        let rest = settled(&mut flight, 1_000, &mut counts);
        assert_eq!(rest, [(1, None), (4, Some(59))]);
        assert_eq!((counts.answered, counts.lost, flight.waiting()), (2, 1, 0));
        // Too late: the message was given up.
        assert!(!flight.answer(1, 2_000, &mut counts));
    }

    #[test]
    fn a_full_ring_gives_up_its_oldest() {
        let (mut flight, mut counts) = (Flight::new(4), Counts::default());
        for sequence in 0..4 {
            flight.send(sequence, 0, 5);
        }
        assert!(!flight.has_room(4));
        assert_eq!(flight.settle(0, &mut counts).map(|s| s.sequence), Some(0));
        assert_eq!(flight.settle(0, &mut counts), None);
        assert!(flight.has_room(4));
    }
}
