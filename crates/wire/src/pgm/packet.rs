//! A whole packet: checked once, read as often as wanted.
//!
//! The parser does not look at the checksum; [`verify_checksum`] does. Whether an option belongs to
//! this type of packet is for the state machines to judge.
//!
//! **Invariant**: [`Packet::parse`] has checked everything that a getter needs.

use std::{fmt, ops::Range};

use super::{Ack, Data, Flags, Header, Nak, Options, PacketType, Poll, Polr, Spm};
use crate::{
    Fault, ParseError, checksum,
    cursor::{Reader, Writer},
};

/// One PGM packet within borrowed bytes.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    tpdu: &'a [u8],
    header: Header,
    body: Body,
    /// Offset of the options after OPT_LENGTH; equal to `tsdu_at` when there are none.
    options_at: usize,
    tsdu_at: usize,
}

impl<'a> Packet<'a> {
    /// Checks and reads a whole packet. `tpdu` is the whole payload of UDP or IP.
    ///
    /// **Errors**: unknown version or type; too few bytes for the body; a malformed option or
    /// option chain; a TSDU length that differs from the number of bytes left; data in a packet
    /// type that carries none.
    ///
    /// **Cost**: about 10 ns for a data packet without options; no allocation.
    #[inline]
    pub fn parse(tpdu: &'a [u8]) -> Result<Self, ParseError> {
        let header = Header::parse(tpdu)?;
        if !header.kind.is_data() {
            return Self::parse_any(tpdu, header);
        }
        // The fast path handles nearly all packets: data without options, or a fragment.
        let (options_at, tsdu_at) = if !header.flags.contains(Flags::PRESENT) {
            (Data::HEAD_LEN, Data::HEAD_LEN)
        } else if Options::is_lone_fragment(tpdu.get(Data::HEAD_LEN..).unwrap_or_default()) {
            let chain_at = Data::HEAD_LEN + Options::LENGTH_LEN;
            (chain_at, Data::HEAD_LEN + Options::LONE_FRAGMENT_LEN)
        } else {
            return Self::parse_any(tpdu, header);
        };
        let data = Data::parse(&mut body_reader(tpdu, header.kind))?;
        if tpdu.len() - tsdu_at != usize::from(header.tsdu_len) {
            return Err(wrong_tsdu_len(tpdu.len(), tsdu_at, header.tsdu_len));
        }
        let is_new = matches!(header.kind, PacketType::Odata);
        Ok(Self {
            tpdu,
            header,
            body: if is_new {
                Body::Odata(data)
            } else {
                Body::Rdata(data)
            },
            options_at,
            tsdu_at,
        })
    }

    #[inline(never)]
    fn parse_any(tpdu: &'a [u8], header: Header) -> Result<Self, ParseError> {
        let mut reader = body_reader(tpdu, header.kind);
        let body = Body::parse(header.kind, &mut reader)?;
        let body_end = Header::LEN + reader.position();
        let (options_at, tsdu_at) = if header.flags.contains(Flags::PRESENT) {
            let len = Options::check(reader.rest(), &header, body_end)?;
            (body_end + Options::LENGTH_LEN, body_end + len)
        } else {
            (body_end, body_end)
        };
        if tpdu.len() - tsdu_at != usize::from(header.tsdu_len) {
            return Err(wrong_tsdu_len(tpdu.len(), tsdu_at, header.tsdu_len));
        }
        if header.tsdu_len != 0 && !header.kind.is_data() {
            return Err(no_tsdu_allowed(header));
        }
        Ok(Self {
            tpdu,
            header,
            body,
            options_at,
            tsdu_at,
        })
    }

    /// Returns the common header.
    #[inline]
    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the fields between header and options.
    #[inline]
    #[must_use]
    pub const fn body(&self) -> Body {
        self.body
    }

    /// Returns the options, in their order on the wire.
    #[inline]
    #[must_use]
    pub fn options(&self) -> Options<'a> {
        Options::of(&self.tpdu[self.options_at..self.tsdu_at], &self.header)
    }

    /// Returns the data; empty for types that carry none.
    #[inline]
    #[must_use]
    pub fn tsdu(&self) -> &'a [u8] {
        &self.tpdu[self.tsdu_at..]
    }

    /// Returns the place of the data within the packet.
    #[inline]
    #[must_use]
    pub const fn tsdu_range(&self) -> Range<usize> {
        self.tsdu_at..self.tpdu.len()
    }

    /// Returns the bytes that were parsed.
    #[inline]
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.tpdu
    }
}

impl fmt::Display for Packet<'_> {
    /// Writes one line with every field: header, body, options, data length, checksum.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.header)?;
        match self.body {
            Body::Spmr => {}
            body => write!(f, " {body}")?,
        }
        for option in self.options() {
            write!(f, " [{option}]")?;
        }
        if self.header.kind.is_data() {
            write!(f, " length {}", self.header.tsdu_len)?;
        }
        match self.header.checksum {
            0 => f.write_str(" no checksum"),
            checksum => write!(f, " checksum {checksum:#06x}"),
        }
    }
}

/// The fields between the common header and the options, by packet type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// Source path message.
    Spm(Spm),
    /// Poll request.
    Poll(Poll),
    /// Poll response.
    Polr(Polr),
    /// Original data.
    Odata(Data),
    /// Repair data.
    Rdata(Data),
    /// Negative acknowledgement.
    Nak(Nak),
    /// Null negative acknowledgement.
    Nnak(Nak),
    /// NAK confirmation.
    Ncf(Nak),
    /// SPM request: has no body.
    Spmr,
    /// PGMCC acknowledgement.
    Ack(Ack),
}

impl Body {
    /// Returns the packet type that this body belongs to.
    #[must_use]
    pub const fn kind(&self) -> PacketType {
        match self {
            Self::Spm(_) => PacketType::Spm,
            Self::Poll(_) => PacketType::Poll,
            Self::Polr(_) => PacketType::Polr,
            Self::Odata(_) => PacketType::Odata,
            Self::Rdata(_) => PacketType::Rdata,
            Self::Nak(_) => PacketType::Nak,
            Self::Nnak(_) => PacketType::Nnak,
            Self::Ncf(_) => PacketType::Ncf,
            Self::Spmr => PacketType::Spmr,
            Self::Ack(_) => PacketType::Ack,
        }
    }

    /// Returns the length of the body in bytes.
    #[must_use]
    pub const fn wire_len(&self) -> usize {
        match self {
            Self::Spm(spm) => spm.len(),
            Self::Poll(poll) => poll.len(),
            Self::Polr(_) => Polr::LEN,
            Self::Odata(_) | Self::Rdata(_) => Data::LEN,
            Self::Nak(nak) | Self::Nnak(nak) | Self::Ncf(nak) => nak.len(),
            Self::Spmr => 0,
            Self::Ack(_) => Ack::LEN,
        }
    }

    pub(super) fn parse(kind: PacketType, reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        Ok(match kind {
            PacketType::Spm => Self::Spm(Spm::parse(reader)?),
            PacketType::Poll => Self::Poll(Poll::parse(reader)?),
            PacketType::Polr => Self::Polr(Polr::parse(reader)?),
            PacketType::Odata => Self::Odata(Data::parse(reader)?),
            PacketType::Rdata => Self::Rdata(Data::parse(reader)?),
            PacketType::Nak => Self::Nak(Nak::parse(reader)?),
            PacketType::Nnak => Self::Nnak(Nak::parse(reader)?),
            PacketType::Ncf => Self::Ncf(Nak::parse(reader)?),
            PacketType::Spmr => Self::Spmr,
            PacketType::Ack => Self::Ack(Ack::parse(reader)?),
        })
    }

    pub(super) fn emit(&self, writer: &mut Writer<'_>) {
        match self {
            Self::Spm(spm) => spm.emit(writer),
            Self::Poll(poll) => poll.emit(writer),
            Self::Polr(polr) => polr.emit(writer),
            Self::Odata(data) | Self::Rdata(data) => data.emit(writer),
            Self::Nak(nak) | Self::Nnak(nak) | Self::Ncf(nak) => nak.emit(writer),
            Self::Spmr => {}
            Self::Ack(ack) => ack.emit(writer),
        }
    }
}

impl fmt::Display for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spm(spm) => spm.fmt(f),
            Self::Poll(poll) => poll.fmt(f),
            Self::Polr(polr) => polr.fmt(f),
            Self::Odata(data) | Self::Rdata(data) => data.fmt(f),
            Self::Nak(nak) | Self::Nnak(nak) | Self::Ncf(nak) => nak.fmt(f),
            Self::Spmr => Ok(()),
            Self::Ack(ack) => ack.fmt(f),
        }
    }
}

/// The result of comparing a packet's checksum with its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumState {
    /// The checksum matches.
    Good,
    /// The sender made no checksum, which is allowed except for data.
    Absent,
    /// The checksum does not match, or the packet is too short to have one.
    Bad,
}

/// Compares a packet's checksum with its bytes.
///
/// **Cost**: one pass over the packet. **Spec**: RFC 3208 section 8.
#[inline]
#[must_use]
pub fn verify_checksum(tpdu: &[u8]) -> ChecksumState {
    match tpdu.first_chunk::<{ Header::LEN }>() {
        None => ChecksumState::Bad,
        Some([.., 0, 0, _, _, _, _, _, _, _, _]) => ChecksumState::Absent,
        Some(_) if checksum::fold(checksum::sum(tpdu)) == 0xFFFF => ChecksumState::Good,
        Some(_) => ChecksumState::Bad,
    }
}

#[inline]
fn body_reader(tpdu: &[u8], kind: PacketType) -> Reader<'_> {
    let body = tpdu.get(Header::LEN..).unwrap_or_default();
    Reader::new(body, Header::LEN, kind.name(), "the packet's end")
}

#[cold]
fn wrong_tsdu_len(packet_len: usize, at: usize, tsdu_len: u16) -> ParseError {
    let (needed, available) = (usize::from(tsdu_len), packet_len - at);
    let is_short = available < needed;
    ParseError {
        layer: "TSDU",
        offset: at,
        needed,
        available,
        limited_by: if is_short {
            "the packet's end"
        } else {
            TSDU_LENGTH
        },
        what: if is_short {
            Fault::Truncated
        } else {
            Fault::Surplus
        },
    }
}

#[cold]
fn no_tsdu_allowed(header: Header) -> ParseError {
    ParseError {
        layer: header.kind.name(),
        offset: Header::LEN - 2,
        needed: 0,
        available: usize::from(header.tsdu_len),
        limited_by: TSDU_LENGTH,
        what: Fault::Length,
    }
}

const TSDU_LENGTH: &str = "the TSDU length";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sqn;

    /// ODATA 7, trail 1, "abc".
    const ODATA: [u8; 27] = [
        0x12, 0x34, 0x1D, 0x4C, 4, 0, 0xAD, 0x99, 10, 20, 30, 40, 50, 60, 0, 3, // header
        0, 0, 0, 7, 0, 0, 0, 1, b'a', b'b', b'c',
    ];
    /// An SPM request: nothing but the header.
    const SPMR: [u8; 16] = [
        0x1D, 0x4C, 0x12, 0x34, 0x0C, 0, 0, 0, 10, 20, 30, 40, 50, 60, 0, 0,
    ];

    #[test]
    fn s8_a_packet_is_header_body_and_data() {
        let packet = Packet::parse(&ODATA).unwrap();
        let data = Data {
            sqn: Sqn(7),
            trail: Sqn(1),
        };
        assert_eq!(packet.body(), Body::Odata(data));
        assert_eq!((packet.tsdu(), packet.tsdu_range()), (&b"abc"[..], 24..27));
        assert!(packet.options().is_empty());
        let request = Packet::parse(&SPMR).unwrap();
        assert_eq!((request.body(), request.tsdu()), (Body::Spmr, &[][..]));
    }

    #[test]
    fn s8_the_tsdu_length_must_be_that_of_the_data() {
        let mut packet = ODATA;
        packet[15] = 4;
        assert_eq!(
            Packet::parse(&packet).unwrap_err().to_string(),
            "TSDU at offset 24: cut short, 4 bytes needed but 3 left by the packet's end"
        );
        packet[15] = 2;
        assert_eq!(
            Packet::parse(&packet).unwrap_err().to_string(),
            "TSDU at offset 24: 3 bytes, but the TSDU length accounts for 2"
        );
    }

    #[test]
    fn s8_only_data_packets_carry_data() {
        let mut packet = SPMR.to_vec();
        packet[15] = 1;
        packet.push(b'x');
        assert_eq!(
            Packet::parse(&packet).unwrap_err().to_string(),
            "SPMR at offset 14: the TSDU length is 1, but must be 0"
        );
    }

    /// A chain of one fragment, which the fast path reads, and the same behind another option.
    #[test]
    fn s9_2_a_fragment_is_found_alone_and_behind_other_options() {
        let fragment = [0x81, 16, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 3];
        let alone = [&[0, 4, 0, 20], &fragment[..]].concat();
        let join = [3, 8, 0, 0, 0, 0, 0, 2];
        let behind = [&[0, 4, 0, 28], &join[..], &fragment].concat();
        for (chain, count) in [(alone, 1), (behind, 2)] {
            let mut packet = [&ODATA[..24], &chain, b"abc"].concat();
            packet[5] = 0x01;
            let packet = Packet::parse(&packet).unwrap();
            assert_eq!(
                (packet.options().count(), packet.tsdu()),
                (count, &b"abc"[..])
            );
            let texts: Vec<_> = packet.options().map(|option| option.to_string()).collect();
            assert!(texts[count - 1].starts_with("fragment"), "{texts:?}");
        }
    }

    #[test]
    fn s8_a_checksum_is_right_wrong_or_absent() {
        assert_eq!(verify_checksum(&ODATA), ChecksumState::Good);
        for at in 0..ODATA.len() {
            let mut changed = ODATA;
            changed[at] ^= 1;
            assert_eq!(verify_checksum(&changed), ChecksumState::Bad, "byte {at}");
        }
        assert_eq!(verify_checksum(&SPMR), ChecksumState::Absent);
        assert_eq!(verify_checksum(&SPMR[..15]), ChecksumState::Bad);
    }
}
