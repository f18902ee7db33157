//! The messages of a round-trip measurement: probes, their echoes, and the greeting before them.
//!
//! ```text
//!   0        4        5     6        8             16            24
//!   | "TLRT" | version| kind| size   | token       | sequence    | padding up to `size`
//!              1        u8    u16 LE   u64 LE        u64 LE
//! ```
//! The reflector changes only the kind of a probe and sends it back, so an echo is as long as its
//! probe, and a reflector cannot be used to multiply traffic. It never answers an echo, so two
//! reflectors cannot keep each other busy. Each run has its own token: an echo with another token
//! belongs to another run.

use crate::CLOCK_BYTES;
#[cfg(doc)]
use crate::ClockWord;

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The kind of the message.
    pub kind: ProbeKind,
    /// The number that tells this run from others.
    pub token: u64,
    /// The slot of the schedule, counted from 0.
    pub sequence: u64,
}

/// The kinds of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeKind {
    /// "Are you there?", answered by [`ProbeKind::Welcome`].
    Hello,
    /// The reflector is there.
    Welcome,
    /// A message that the reflector sends back.
    Probe,
    /// A probe that the reflector has sent back.
    Echo,
    /// "How good is your clock?", answered by [`ProbeKind::ClockTold`]. An older reflector, which
    /// does not know the question, does not answer.
    Clock,
    /// The answer to [`ProbeKind::Clock`], with a [`ClockWord`] behind the header.
    ClockTold,
}

impl Probe {
    /// Writes the message over all of `message`: header, then zeros.
    ///
    /// **Panics** (bug): when `message` is shorter than [`PROBE_BYTES_MIN`] or longer than 65,535
    /// bytes.
    pub fn emit(&self, message: &mut [u8]) {
        let size = u16::try_from(message.len()).expect("a probe fits a datagram");
        let (header, padding) = message.split_at_mut(PROBE_BYTES_MIN);
        header[..4].copy_from_slice(&MAGIC);
        header[4] = VERSION;
        header[5] = self.kind.code();
        header[6..8].copy_from_slice(&size.to_le_bytes());
        header[8..16].copy_from_slice(&self.token.to_le_bytes());
        header[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        padding.fill(0);
    }

    /// Changes the sequence number of a message written by [`Probe::emit`].
    ///
    /// **Panics** (bug): when `message` is shorter than [`PROBE_BYTES_MIN`].
    pub fn set_sequence(message: &mut [u8], sequence: u64) {
        message[16..24].copy_from_slice(&sequence.to_le_bytes());
    }

    /// Reads a message.
    ///
    /// # Errors
    /// [`ProbeError`] when the bytes are no probe of this version, or only part of one.
    pub fn parse(message: &[u8]) -> Result<Self, ProbeError> {
        let header = message.get(..PROBE_BYTES_MIN).ok_or(ProbeError::Short)?;
        if header[..4] != MAGIC {
            return Err(ProbeError::Foreign);
        }
        if header[4] != VERSION {
            return Err(ProbeError::Version(header[4]));
        }
        if usize::from(u16::from_le_bytes([header[6], header[7]])) != message.len() {
            return Err(ProbeError::Short);
        }
        let number = |at: usize| {
            let bytes = header[at..at + 8]
                .try_into()
                .expect("eight bytes are there");
            u64::from_le_bytes(bytes)
        };
        Ok(Self {
            kind: ProbeKind::from_code(header[5]).ok_or(ProbeError::Foreign)?,
            token: number(8),
            sequence: number(16),
        })
    }

    /// Turns a request into its answer in place, and returns what was asked. `None` when the
    /// message is no probe, asks nothing, or is too short for its answer. The caller must write the
    /// [`ClockWord`] behind the header of a [`ProbeKind::ClockTold`].
    pub fn answer(message: &mut [u8]) -> Option<Self> {
        let probe = Self::parse(message).ok()?;
        if probe.kind == ProbeKind::Clock && message.len() < CLOCK_BYTES {
            return None;
        }
        message[5] = probe.kind.answer()?.code();
        Some(probe)
    }
}

impl ProbeKind {
    const fn code(self) -> u8 {
        match self {
            Self::Hello => 1,
            Self::Welcome => 2,
            Self::Probe => 3,
            Self::Echo => 4,
            Self::Clock => 5,
            Self::ClockTold => 6,
        }
    }

    const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Hello),
            2 => Some(Self::Welcome),
            3 => Some(Self::Probe),
            4 => Some(Self::Echo),
            5 => Some(Self::Clock),
            6 => Some(Self::ClockTold),
            _ => None,
        }
    }

    const fn answer(self) -> Option<Self> {
        match self {
            Self::Hello => Some(Self::Welcome),
            Self::Probe => Some(Self::Echo),
            Self::Clock => Some(Self::ClockTold),
            Self::Welcome | Self::Echo | Self::ClockTold => None,
        }
    }
}

/// Why a message is no probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    /// The message does not have the length that it states, or is shorter than the header.
    #[error("the message is shorter than a header, or has another length than it states")]
    Short,
    /// The message has another program's first bytes, or a kind that does not exist.
    #[error("the message is not a probe")]
    Foreign,
    /// The message comes from a release with another version of the format.
    #[error(
        "the message has version {0} of the format, and this release reads only version \
         {VERSION}; use the same release at both ends"
    )]
    Version(u8),
}

/// Bytes of the smallest message, which is only a header.
pub const PROBE_BYTES_MIN: usize = 24;
const MAGIC: [u8; 4] = *b"TLRT";
const VERSION: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_answer_keeps_size_and_content_and_is_never_answered() {
        let probe = Probe {
            kind: ProbeKind::Probe,
            token: 0xfeed,
            sequence: 7,
        };
        let mut message = vec![0xff; 64];
        probe.emit(&mut message);
        assert_eq!(Probe::answer(&mut message), Some(probe));
        let echo = Probe::parse(&message).unwrap();
        assert_eq!((echo.kind, echo.sequence), (ProbeKind::Echo, 7));
        assert_eq!(Probe::answer(&mut message), None);
        for cut in 0..message.len() {
            assert_eq!(Probe::parse(&message[..cut]), Err(ProbeError::Short));
        }
        message[4] = 9;
        assert_eq!(Probe::parse(&message), Err(ProbeError::Version(9)));
    }

    proptest! {
        #[test]
        fn hostile_bytes_do_no_harm(mut bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Some(magic) = bytes.get_mut(..4) {
                magic.copy_from_slice(&MAGIC);
            }
            let before = bytes.clone();
            if Probe::answer(&mut bytes).is_none() {
                prop_assert_eq!(bytes, before);
            }
        }
    }
}
