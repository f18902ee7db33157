//! Values to bytes: every packet is made here.
//!
//! The code fills in what follows from the rest: type, PRESENT and NETWORK flags, OPT_LENGTH, END,
//! TSDU length, checksum. It does not reorder options: the caller lists network-significant options
//! first and the mark last, as RFC 3208 section 9.1 demands.
//!
//! ```text
//! Addressing + Flags + Body + options + TSDU  --emit-->         a whole packet, appended
//!                          the same, but only the TSDU's sum  --emit_head-->  what precedes a TSDU
//!                                                                     that lies in place already
//! ```

use super::{
    Body, Data, Flags, Gsi, Header, OPTIONS_MAX, Options, Packet, PacketType, PgmOption, Tsi,
};
use crate::{checksum, cursor::Writer};

/// The fields of the common header that do not follow from the rest of the packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Addressing {
    /// The port as in [`Header::source_port`].
    pub source_port: u16,
    /// The port as in [`Header::destination_port`].
    pub destination_port: u16,
    /// The data source's identifier.
    pub gsi: Gsi,
}

impl Addressing {
    /// Makes the addressing of packets from the source of `tsi` to receivers at
    /// `data_destination_port`.
    #[must_use]
    pub const fn downstream(tsi: Tsi, data_destination_port: u16) -> Self {
        Self {
            source_port: tsi.port,
            destination_port: data_destination_port,
            gsi: tsi.gsi,
        }
    }

    /// Makes the addressing of packets from a receiver at `data_destination_port` to the source of
    /// `tsi`.
    #[must_use]
    pub const fn upstream(tsi: Tsi, data_destination_port: u16) -> Self {
        Self {
            source_port: data_destination_port,
            destination_port: tsi.port,
            gsi: tsi.gsi,
        }
    }
}

/// Appends a complete packet, checksum included, to `out`.
///
/// **Panics** (bug): as [`emit_flagged`].
pub fn emit(
    out: &mut Vec<u8>,
    addressing: &Addressing,
    body: &Body,
    options: &[PgmOption<'_>],
    tsdu: &[u8],
) {
    emit_flagged(out, addressing, Flags::NONE, body, options, tsdu);
}

/// Appends a complete packet with further `flags` (parity) to `out`.
///
/// **Panics** (bug): with more than 16 options, an option of more than 255 bytes or a TSDU of more
/// than 65,535 bytes.
pub fn emit_flagged(
    out: &mut Vec<u8>,
    addressing: &Addressing,
    flags: Flags,
    body: &Body,
    options: &[PgmOption<'_>],
    tsdu: &[u8],
) {
    let tsdu_len = u16::try_from(tsdu.len()).expect("a TSDU is at most 65,535 bytes long");
    let start = out.len();
    let tsdu_at = start + head_len(body, options);
    out.resize(tsdu_at + tsdu.len(), 0);
    let (head, room) = out[start..].split_at_mut(tsdu_at - start);
    let tsdu_sum = checksum::copy_and_sum(room, tsdu);
    emit_head(head, addressing, flags, body, options, (tsdu_len, tsdu_sum));
}

/// Returns the length of a packet's head, which is all before its TSDU, in bytes.
#[must_use]
pub fn head_len(body: &Body, options: &[PgmOption<'_>]) -> usize {
    let chain = match options {
        [] => 0,
        _ => Options::LENGTH_LEN + options.iter().map(PgmOption::wire_len).sum::<usize>(),
    };
    Header::LEN + body.wire_len() + chain
}

/// Writes the head of a packet whose TSDU has the given length and partial sum (see [`checksum`]).
///
/// `head` begins where the packet begins. Exactly [`head_len`] bytes of it are written; with the
/// TSDU behind them the packet is complete.
///
/// **Panics** (bug): when `head` is too short, and as [`emit_flagged`].
/// **Cost**: no allocation; one pass over the head.
#[inline]
pub fn emit_head(
    head: &mut [u8],
    addressing: &Addressing,
    flags: Flags,
    body: &Body,
    options: &[PgmOption<'_>],
    (tsdu_len, tsdu_sum): (u16, u64),
) {
    if let (Body::Odata(data) | Body::Rdata(data), []) = (body, options) {
        let flags = flags.without(FROM_OPTIONS);
        let header = header_of(addressing, body.kind(), flags, tsdu_len);
        return emit_plain_data(head, header, *data, tsdu_sum);
    }
    emit_any_head(head, addressing, flags, body, options, (tsdu_len, tsdu_sum));
}

#[inline(never)]
fn emit_any_head(
    head: &mut [u8],
    addressing: &Addressing,
    flags: Flags,
    body: &Body,
    options: &[PgmOption<'_>],
    (tsdu_len, tsdu_sum): (u16, u64),
) {
    assert!(
        options.len() <= OPTIONS_MAX,
        "a packet carries at most 16 options"
    );
    let flags = flags_for(flags, body, options);
    let mut writer = Writer::new(head);
    header_of(addressing, body.kind(), flags, tsdu_len).write(&mut writer);
    body.emit(&mut writer);
    if !options.is_empty() {
        emit_chain(options, &mut writer);
    }
    let len = writer.position();
    let sum = checksum::join(checksum::sum(&head[..len]), len, tsdu_sum);
    head[Header::CHECKSUM_AT..Header::CHECKSUM_AT + 2]
        .copy_from_slice(&checksum::finish(sum).to_be_bytes());
}

/// Writes the head of a data packet without options. This is the fast path: the checksum comes from
/// the fields, so no written byte is read back.
#[inline]
fn emit_plain_data(head: &mut [u8], mut header: Header, data: Data, tsdu_sum: u64) {
    let head = head
        .first_chunk_mut::<{ Data::HEAD_LEN }>()
        .expect("room for the head of a data packet");
    let sum = checksum::of_words(header.word_sum() + data.word_sum()) + tsdu_sum;
    header.checksum = checksum::finish(sum);
    let mut writer = Writer::new(head);
    header.write(&mut writer);
    data.emit(&mut writer);
}

impl Packet<'_> {
    /// Makes the packet anew from its fields and appends it.
    ///
    /// The bytes are the same, except for reserved bits (sent as zero) and the checksum (computed).
    pub fn emit(&self, out: &mut Vec<u8>) {
        let header = self.header();
        let addressing = Addressing {
            source_port: header.source_port,
            destination_port: header.destination_port,
            gsi: header.gsi,
        };
        let mut options = [PgmOption::Syn; OPTIONS_MAX];
        let mut count = 0;
        for (place, option) in options.iter_mut().zip(self.options()) {
            *place = option;
            count += 1;
        }
        let parity = Flags(header.flags.0 & (Flags::PARITY | Flags::VAR_PKTLEN).0);
        let body = self.body();
        emit_flagged(
            out,
            &addressing,
            parity,
            &body,
            &options[..count],
            self.tsdu(),
        );
    }
}

const fn header_of(
    addressing: &Addressing,
    kind: PacketType,
    flags: Flags,
    tsdu_len: u16,
) -> Header {
    Header {
        source_port: addressing.source_port,
        destination_port: addressing.destination_port,
        kind,
        flags,
        checksum: 0,
        gsi: addressing.gsi,
        tsdu_len,
    }
}

fn flags_for(flags: Flags, body: &Body, options: &[PgmOption<'_>]) -> Flags {
    let mut flags = flags.without(FROM_OPTIONS);
    if !options.is_empty() {
        flags |= Flags::PRESENT;
    }
    let kind = body.kind();
    if options
        .iter()
        .any(|option| option.is_network_significant(kind))
    {
        flags |= Flags::NETWORK;
    }
    flags
}

fn emit_chain(options: &[PgmOption<'_>], writer: &mut Writer<'_>) {
    let total = Options::LENGTH_LEN + options.iter().map(PgmOption::wire_len).sum::<usize>();
    writer.put(&[0, 4]);
    writer.u16(u16::try_from(total).expect("16 options fit OPT_LENGTH's total"));
    for (index, option) in options.iter().enumerate() {
        option.emit(index + 1 == options.len(), writer);
    }
}

/// Flags that follow from the options alone.
const FROM_OPTIONS: Flags = Flags::PRESENT.with(Flags::NETWORK);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Sqn,
        pgm::{ChecksumState, Cr, Fragment, Join, Loads, Nak, Spm, verify_checksum},
    };

    const ADDRESSING: Addressing = Addressing {
        source_port: 0x1234,
        destination_port: 7500,
        gsi: Gsi([10, 20, 30, 40, 50, 60]),
    };
    const SPM: Body = Body::Spm(Spm {
        sqn: Sqn(1),
        trail: Sqn(2),
        lead: Sqn(3),
        path_nla: std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)),
    });
    const ODATA: Body = Body::Odata(Data {
        sqn: Sqn(7),
        trail: Sqn(1),
    });

    fn made(flags: Flags, body: &Body, options: &[PgmOption<'_>], tsdu: &[u8]) -> Vec<u8> {
        let mut out = b"before".to_vec();
        emit_flagged(&mut out, &ADDRESSING, flags, body, options, tsdu);
        assert_eq!(out.len(), 6 + head_len(body, options) + tsdu.len());
        let packet = out.split_off(6);
        assert_eq!(out, b"before", "what was there stays");
        assert_eq!(verify_checksum(&packet), ChecksumState::Good);
        packet
    }

    #[test]
    fn s8_the_header_is_followed_by_body_and_data() {
        let expected = [
            0x12, 0x34, 0x1D, 0x4C, 4, 0, 0xAD, 0x99, // ports, ODATA, no flags, checksum
            10, 20, 30, 40, 50, 60, 0, 3, // GSI, TSDU length
            0, 0, 0, 7, 0, 0, 0, 1, // number, trail
            b'a', b'b', b'c',
        ];
        assert_eq!(made(Flags::NONE, &ODATA, &[], b"abc"), expected);
    }

    #[test]
    fn s9_1_the_chain_begins_with_its_length_and_ends_with_the_end_bit() {
        let join = PgmOption::Join(Join { min: Sqn(2) });
        let packet = made(Flags::NONE, &SPM, &[join, PgmOption::Fin], &[]);
        assert_eq!(packet[5], 0x01, "options are present, none for the network");
        let chain = [
            0, 4, 0, 16, // OPT_LENGTH: 16 bytes in all
            3, 8, 0, 0, 0, 0, 0, 2, // OPT_JOIN
            0x8E, 4, 0, 0, // OPT_FIN, the last
        ];
        assert_eq!(packet[36..], chain);
    }

    #[test]
    fn s9_1_an_option_for_the_network_is_said_to_be_there() {
        let nak = Body::Nak(Nak {
            sqn: Sqn(9),
            source_nla: [10, 0, 0, 1].into(),
            group_nla: [239, 192, 0, 1].into(),
        });
        let report = PgmOption::Cr(Cr {
            loads: Loads::default(),
            reference: Sqn(8),
            worst_link: 1,
            worst_path: 2,
            worst_receiver_path: 3,
            worst_receiver: [10, 0, 0, 9].into(),
        });
        assert_eq!(made(Flags::NONE, &nak, &[report], &[])[5], 0x03);
    }

    /// Whatever flags the caller gives.
    #[test]
    fn s8_whether_options_are_there_follows_from_the_options() {
        let all = Flags(0xFF);
        let flags = made(all, &ODATA, &[], b"abc")[5];
        assert_eq!(flags, !0x03, "neither PRESENT nor NETWORK");
        assert_eq!(made(Flags::PARITY, &ODATA, &[], b"abc")[5], Flags::PARITY.0);
    }

    #[test]
    fn a_head_fits_data_that_lies_in_place_already() {
        let fragment = PgmOption::Fragment(Fragment {
            first: Sqn(7),
            offset: 0,
            apdu_len: 9,
        });
        for options in [&[][..], &[fragment]] {
            // The checksum of an odd number of bytes, too.
            for tsdu in [&b"abc"[..], b"abcd", b""] {
                let whole = made(Flags::NONE, &ODATA, options, tsdu);
                let mut head = vec![0xEE; head_len(&ODATA, options)];
                let sums = (tsdu.len() as u16, checksum::sum(tsdu));
                emit_head(&mut head, &ADDRESSING, Flags::NONE, &ODATA, options, sums);
                assert_eq!([&head, tsdu].concat(), whole);
            }
        }
    }

    #[test]
    #[should_panic = "at most 16 options"]
    fn s9_1_a_packet_with_more_than_16_options_is_a_bug() {
        made(Flags::NONE, &SPM, &[PgmOption::Syn; 17], &[]);
    }
}
