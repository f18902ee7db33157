//! PGM packets.

use wire::pgm::{Body, ChecksumState, Header, Mark, Packet, PgmOption, RawOption, verify_checksum};

/// Reads any bytes as a packet: the result is an error that can be printed, or a packet that can be
/// built again.
///
/// A packet must print on one line. Built again, it must parse to the same values, have a good
/// checksum, and stay the same when it is built once more. Its bytes must be those that it was read
/// from, except bytes that the format reserves.
///
/// **Panics**: when one of these conditions fails.
pub fn packet(data: &[u8]) {
    let packet = match Packet::parse(data) {
        Ok(packet) => packet,
        Err(error) => {
            assert!(error.offset <= data.len(), "an error beyond the packet");
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let line = packet.to_string();
    assert!(!line.contains('\n') && line.starts_with(packet.header().kind.name()));
    assert_eq!(packet.tsdu(), &data[packet.tsdu_range()]);
    assert_eq!(packet.options().count(), packet.options().raw().count());

    let mut made = Vec::new();
    packet.emit(&mut made);
    assert_eq!(verify_checksum(&made), ChecksumState::Good);
    let again = Packet::parse(&made).expect("what was emitted parses");
    assert_eq!(again.body(), packet.body());
    assert_eq!(again.tsdu(), packet.tsdu());
    assert_eq!(again.header().session(), packet.header().session());
    assert!(again.options().eq(packet.options()));

    let mut unchanged = Vec::new();
    again.emit(&mut unchanged);
    assert_eq!(unchanged, made);
    if keeps_its_length(&packet) {
        assert_eq!(without_reserved(&packet), without_reserved(&again));
    }
}

/// Returns false for packets that are built shorter than they came: those with an option chain
/// without options, and those with our own mark in another version.
fn keeps_its_length(packet: &Packet<'_>) -> bool {
    let is_empty_chain = packet.header().flags.0 & 1 != 0 && packet.options().is_empty();
    let foreign_mark = packet
        .options()
        .zip(packet.options().raw())
        .any(|(option, raw)| {
            let PgmOption::Mark(mark) = option else {
                return false;
            };
            raw.value.len() != Mark::LEN || !mark.is_known()
        });
    !is_empty_chain && !foreign_mark
}

/// Returns the packet's bytes, with zeros for all fields that receivers ignore or senders compute.
///
/// This function follows the diagrams of the RFC and does not use the parser, so that the two check
/// each other.
fn without_reserved(packet: &Packet<'_>) -> Vec<u8> {
    let mut bytes = packet.bytes().to_vec();
    bytes[5] &= 0xC1;
    bytes[Header::CHECKSUM_AT..Header::CHECKSUM_AT + 2].fill(0);
    let mut zero = |at: usize| bytes[at..at + 2].fill(0);
    match packet.body() {
        Body::Spm(_) => zero(16 + 14),
        Body::Poll(_) => zero(16 + 10),
        Body::Polr(_) => zero(16 + 6),
        Body::Nak(nak) | Body::Nnak(nak) | Body::Ncf(nak) => {
            zero(16 + 6);
            zero(16 + if nak.source_nla.is_ipv4() { 14 } else { 26 });
        }
        Body::Odata(_) | Body::Rdata(_) | Body::Spmr | Body::Ack(_) => {}
    }
    let chain: usize = packet.options().map(|option| option.wire_len()).sum();
    let mut at = packet.tsdu_range().start - chain;
    for (option, raw) in packet.options().zip(packet.options().raw()) {
        blank_option(&mut bytes[at..at + option.wire_len()], &option, &raw);
        at += option.wire_len();
    }
    bytes
}

fn blank_option(bytes: &mut [u8], option: &PgmOption<'_>, raw: &RawOption<'_>) {
    let (meaning, reserved): (u8, &[usize]) = match option {
        PgmOption::Encoded(_) | PgmOption::Invalid(_) | PgmOption::Unknown(_) => return,
        PgmOption::ParityPrm(_) | PgmOption::Rst(_) => (0x7F, &[]),
        PgmOption::Cr(_) => (0x07, &[14, 18]),
        PgmOption::Crqst(_) => (0x07, &[]),
        PgmOption::Redirect(_) => (0, &[6]),
        PgmOption::PgmccData(_) => (0, &[10]),
        PgmOption::Mark(_) => (0, &[48, 50]),
        _ => (0, &[]),
    };
    bytes[2] = match option {
        // Towline always sends this byte, whatever came.
        PgmOption::Packed(_) => 2,
        _ => 0,
    };
    bytes[3] = raw.specific & meaning;
    for &at in reserved {
        bytes[at..at + 2].fill(0);
    }
}
