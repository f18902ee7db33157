//! Errors of bytes from outside: where the bytes end or fail, how many were needed, how many there
//! were, and what set the limit.

use std::fmt;

use base::DropReason;

/// An error that says why some bytes are not what they should be.
///
/// The type is small and `Copy`: hostile input must not make the reader allocate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The header, body or option that was being read, in the words of its specification.
    pub layer: &'static str,
    /// Offset of the fault in bytes, from the first byte of what was read: for example the PGM
    /// header of a packet, the header of a control message's frame, the magic of a manifest, or a
    /// block of a pcapng file.
    pub offset: usize,
    /// For [`Fault::Truncated`], the bytes needed from `offset` on. For a wrong length or count,
    /// the value that it must have, or may have at most. For [`Fault::Surplus`], the bytes
    /// accounted for from `offset` on.
    pub needed: usize,
    /// Bytes present from `offset` on. For [`Fault::Length`] and [`Fault::TooLong`], the value
    /// found.
    pub available: usize,
    /// What set the limit: the packet's end, or a length field of an outer layer. For
    /// [`Fault::Length`] and [`Fault::TooLong`], the field that is wrong.
    pub limited_by: &'static str,
    /// What is wrong.
    pub what: Fault,
}

/// A kind of fault in the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The bytes end before the field does.
    Truncated,
    /// Bytes are left over that no field accounts for.
    Surplus,
    /// A length field holds a value that its layer does not allow.
    Length,
    /// A length or count holds more than the format allows.
    TooLong,
    /// An unknown version, or reserved bits that are set.
    Version(u8),
    /// A packet type that does not exist.
    UnknownType(u8),
    /// An address family that is neither IPv4 (1) nor IPv6 (2).
    AddressFamily(u16),
    /// The options do not begin with OPT_LENGTH, or OPT_LENGTH comes a second time.
    OptionOrder(u8),
    /// The last option lacks the END bit, or an earlier one has it.
    OptionEnd,
    /// More options than a packet may carry.
    TooManyOptions,
    /// The bytes of a text are not UTF-8.
    Text,
    /// A field holds a value that the format forbids.
    Value(u64),
}

impl ParseError {
    /// Returns the drop reason under which a packet with this error is counted.
    #[must_use]
    pub const fn reason(&self) -> DropReason {
        match self.what {
            Fault::Truncated => DropReason::Truncated,
            Fault::Version(_) | Fault::UnknownType(_) => DropReason::UnknownType,
            Fault::Surplus
            | Fault::Length
            | Fault::TooLong
            | Fault::AddressFamily(_)
            | Fault::OptionOrder(_)
            | Fault::OptionEnd
            | Fault::TooManyOptions
            | Fault::Text
            | Fault::Value(_) => DropReason::Malformed,
        }
    }

    /// Returns the same error for bytes that began `base` bytes into the packet.
    #[must_use]
    pub const fn within(mut self, base: usize) -> Self {
        self.offset += base;
        self
    }
}

impl From<ParseError> for DropReason {
    fn from(error: ParseError) -> Self {
        error.reason()
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            layer,
            offset,
            needed,
            available,
            limited_by,
            what,
        } = self;
        write!(f, "{layer} at offset {offset}: ")?;
        match what {
            Fault::Truncated => write!(
                f,
                "cut short, {needed} bytes needed but {available} left by {limited_by}"
            ),
            Fault::Surplus => write!(
                f,
                "{available} bytes, but {limited_by} accounts for {needed}"
            ),
            Fault::Length => write!(f, "{limited_by} is {available}, but must be {needed}"),
            Fault::TooLong => write!(
                f,
                "{limited_by} is {available}, but must be at most {needed}"
            ),
            Fault::Version(byte) => write!(f, "unknown version or reserved bits ({byte:#04x})"),
            Fault::UnknownType(byte) => write!(f, "unknown packet type {byte:#04x}"),
            Fault::AddressFamily(afi) => {
                write!(f, "address family {afi} is neither IPv4 (1) nor IPv6 (2)")
            }
            Fault::OptionOrder(kind) => write!(
                f,
                "option {kind:#04x} is misplaced: OPT_LENGTH must be the first option and come once"
            ),
            Fault::OptionEnd => write!(f, "the END bit is not on the last option"),
            Fault::TooManyOptions => write!(f, "more than {needed} options"),
            Fault::Text => write!(f, "not UTF-8"),
            Fault::Value(value) => write!(f, "forbidden value {value}"),
        }
    }
}

impl std::error::Error for ParseError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_is_missing_and_why() {
        let error = ParseError {
            layer: "SPM",
            offset: 12,
            needed: 8,
            available: 3,
            limited_by: "the packet's end",
            what: Fault::Truncated,
        };
        assert_eq!(
            error.within(16).to_string(),
            "SPM at offset 28: cut short, 8 bytes needed but 3 left by the packet's end"
        );
        assert_eq!(error.reason(), DropReason::Truncated);
    }
}
