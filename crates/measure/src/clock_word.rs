//! What a reflector reports of its wall clock: the body after the header of a probe.
//!
//! ```text
//!   24      25        32              40                48             56         64
//!   | flags | zeros   | error, most   | error, estimate | received at  | sent at  | padding
//!     u8               u64 LE, ns      u64 LE, ns        u64 LE, ns     u64 LE, ns
//! ```
//! The first flag says that a daemon keeps the clock synchronised; a reader ignores other flags.
//! The times are nanoseconds since 1970 by the wall clock, read in the reflector's application. A
//! question is as long as its answer, so that a reflector cannot be used to multiply traffic.

use crate::{PROBE_BYTES_MIN, Probe, ProbeKind};

/// What one end reports of its wall clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockWord {
    /// True when a daemon says that it keeps the clock synchronised.
    pub is_synchronised: bool,
    /// The most by which the clock may be wrong, as the daemon states it, in nanoseconds.
    pub error_ns_max: u64,
    /// The daemon's estimate of the error, in nanoseconds.
    pub error_ns_estimated: u64,
    /// When the question was received, in nanoseconds since 1970, by the wall clock of this end.
    pub received_ns: u64,
    /// When the answer was sent, by the same clock.
    pub sent_ns: u64,
}

impl ClockWord {
    /// Writes the word behind the header of an answer.
    ///
    /// **Panics** (bug): when `message` is shorter than [`CLOCK_BYTES`].
    pub fn put(&self, message: &mut [u8]) {
        let body = &mut message[PROBE_BYTES_MIN..CLOCK_BYTES];
        body.fill(0);
        body[0] = u8::from(self.is_synchronised);
        let numbers = [
            self.error_ns_max,
            self.error_ns_estimated,
            self.received_ns,
            self.sent_ns,
        ];
        for (place, number) in body[8..].chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
    }

    /// Reads an answer and its word; `None` for every other message, and for a report that cannot
    /// be true: the answer was sent before the question was received, or more than
    /// [`ANSWER_NS_MAX`] after it, or the times are past the year 2262.
    #[must_use]
    pub fn parse(message: &[u8]) -> Option<(Probe, Self)> {
        let probe = Probe::parse(message).ok()?;
        let body = message.get(PROBE_BYTES_MIN..CLOCK_BYTES)?;
        if probe.kind != ProbeKind::ClockTold {
            return None;
        }
        let number = |at: usize| {
            let bytes = body[at..at + 8].try_into().expect("eight bytes are there");
            u64::from_le_bytes(bytes)
        };
        let word = Self {
            is_synchronised: body[0] & 1 != 0,
            error_ns_max: number(8),
            error_ns_estimated: number(16),
            received_ns: number(24),
            sent_ns: number(32),
        };
        let is_sound = word.received_ns <= TIME_NS_MAX
            && word.sent_ns.checked_sub(word.received_ns)? <= ANSWER_NS_MAX;
        is_sound.then_some((probe, word))
    }
}

/// Bytes of the smallest message that has room for a [`ClockWord`].
pub const CLOCK_BYTES: usize = PROBE_BYTES_MIN + 40;
/// The longest time between question and answer that a reflector may report, in nanoseconds.
pub const ANSWER_NS_MAX: u64 = 10_000_000_000;
/// The latest time that is accepted: differences of later times would not fit a signed number.
const TIME_NS_MAX: u64 = i64::MAX as u64 - ANSWER_NS_MAX;

#[cfg(test)]
mod tests {
    use super::*;

    fn word() -> ClockWord {
        ClockWord {
            is_synchronised: true,
            error_ns_max: 1_000,
            error_ns_estimated: 10,
            received_ns: 1_700_000_000_000_000_000,
            sent_ns: 1_700_000_000_000_002_000,
        }
    }

    /// Builds an answer with `word`, from a question as a reflector does.
    fn told(word: &ClockWord) -> Vec<u8> {
        let mut message = vec![0; CLOCK_BYTES + 6];
        let (kind, token, sequence) = (ProbeKind::Clock, 7, 9);
        Probe {
            kind,
            token,
            sequence,
        }
        .emit(&mut message);
        let asked = Probe::answer(&mut message).unwrap();
        assert_eq!(asked.kind, kind);
        word.put(&mut message);
        message
    }

    #[test]
    fn a_word_survives_and_what_cannot_be_true_is_none() {
        let message = told(&word());
        let (probe, found) = ClockWord::parse(&message).unwrap();
        assert_eq!((probe.token, probe.sequence, found), (7, 9, word()));
        // A reflector never answers an answer, and a cut answer is none.
        assert_eq!(Probe::answer(&mut message.clone()), None);
        for cut in 0..message.len() {
            assert_eq!(ClockWord::parse(&message[..cut]), None);
        }
        for wrong in [
            ClockWord {
                sent_ns: word().received_ns - 1,
                ..word()
            },
            ClockWord {
                sent_ns: word().received_ns + ANSWER_NS_MAX + 1,
                ..word()
            },
            ClockWord {
                received_ns: u64::MAX,
                sent_ns: u64::MAX,
                ..word()
            },
        ] {
            assert_eq!(ClockWord::parse(&told(&wrong)), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_question_too_short_for_the_answer_gets_none() {
        let mut short = vec![0; CLOCK_BYTES - 1];
        let (kind, token, sequence) = (ProbeKind::Clock, 7, 9);
        Probe {
            kind,
            token,
            sequence,
        }
        .emit(&mut short);
        assert_eq!(Probe::answer(&mut short), None);
    }
}
