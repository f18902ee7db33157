//! The first bytes of each datagram of a sweep.
//!
//! ```text
//!   0       4         12           20
//!   | "TLU1" | token   | sequence   | anything, up to the datagram's size
//!              u64 LE    u64 LE
//! ```

/// The header of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// A number that only one direction of one trial has. Datagrams with another number do not
    /// belong to it.
    pub token: u64,
    /// The datagram's number in the trial, from 0.
    pub sequence: u64,
}

impl Header {
    /// Writes the header over the beginning of `datagram`; the rest stays as it is.
    ///
    /// **Panics** (bug): when `datagram` is shorter than [`HEADER_BYTES`].
    pub fn emit(&self, datagram: &mut [u8]) {
        datagram[..4].copy_from_slice(&MAGIC);
        datagram[4..12].copy_from_slice(&self.token.to_le_bytes());
        Self::set_sequence(datagram, self.sequence);
    }

    /// Changes the number of a datagram written by [`Header::emit`].
    ///
    /// **Panics** (bug): when `datagram` is shorter than [`HEADER_BYTES`].
    pub fn set_sequence(datagram: &mut [u8], sequence: u64) {
        datagram[12..HEADER_BYTES].copy_from_slice(&sequence.to_le_bytes());
    }

    /// Reads the header of a datagram; `None` when the datagram does not belong to a sweep.
    #[must_use]
    pub fn parse(datagram: &[u8]) -> Option<Self> {
        let (header, _) = datagram.split_first_chunk::<HEADER_BYTES>()?;
        let (magic, rest) = header.split_first_chunk::<4>()?;
        let (token, sequence) = rest.split_first_chunk::<8>()?;
        (*magic == MAGIC).then_some(Self {
            token: u64::from_le_bytes(*token),
            sequence: u64::from_le_bytes(*sequence.first_chunk()?),
        })
    }
}

/// Bytes of the smallest datagram, which is only a header.
pub const HEADER_BYTES: usize = 20;
const MAGIC: [u8; 4] = *b"TLU1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else_is() {
        let header = Header {
            token: 0xfeed,
            sequence: 7,
        };
        let mut datagram = [9; 64];
        header.emit(&mut datagram);
        assert_eq!(Header::parse(&datagram), Some(header));
        assert_eq!(datagram[HEADER_BYTES..], [9; 64 - HEADER_BYTES]);
        Header::set_sequence(&mut datagram, u64::MAX);
        assert_eq!(Header::parse(&datagram).unwrap().sequence, u64::MAX);
        for cut in 0..HEADER_BYTES {
            assert_eq!(Header::parse(&datagram[..cut]), None);
        }
        datagram[3] = b'2';
        assert_eq!(Header::parse(&datagram), None);
    }
}
