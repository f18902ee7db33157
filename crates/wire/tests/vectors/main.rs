//! The packets in `testdata/`: hex with comments, and what each must read as.
//!
//! A vector holds bytes in hex, `#` comments to the end of the line, and one line that begins with
//! `=` (the packet as it prints) or `!` (the error as it prints). `~` lines hold the bytes that it
//! is sent as again, where those are not the ones received.

mod file;
mod tshark;

use file::{Outcome, Vector, vectors};
use towline_wire::pgm::{
    ChecksumState, Packet, ParityReading, PgmOption, Refusal, verify_checksum,
};

#[test]
fn valid_packets_print_and_emit_as_written() {
    let vectors = vectors("pgm");
    assert!(vectors.len() >= 36, "vectors are missing");
    for vector in vectors {
        let Vector { name, bytes, .. } = &vector;
        let packet = Packet::parse(bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(Outcome::Line(packet.to_string()), vector.outcome, "{name}");
        let mut again = Vec::new();
        packet.emit(&mut again);
        assert_eq!(&again, vector.sent_as(), "{name}");
        let expected = match packet.header().checksum {
            0 => ChecksumState::Absent,
            _ => ChecksumState::Good,
        };
        assert_eq!(verify_checksum(bytes), expected, "{name}");
    }
}

#[test]
fn malformed_packets_are_refused_with_the_reason_written() {
    let vectors = vectors("pgm_malformed");
    assert!(vectors.len() >= 20, "vectors are missing");
    for Vector {
        name,
        bytes,
        outcome,
        ..
    } in &vectors
    {
        let error = Packet::parse(bytes).expect_err(name);
        assert_eq!(Outcome::Error(error.to_string()), *outcome, "{name}");
    }
}

#[test]
fn every_cut_of_every_packet_is_an_error() {
    for Vector { name, bytes, .. } in vectors("pgm") {
        for len in 0..bytes.len() {
            let error = Packet::parse(&bytes[..len]).expect_err(&name);
            assert!(error.offset <= len, "{name} cut to {len}: {error}");
        }
    }
}

#[test]
fn what_openpgm_offers_is_read_its_way() {
    let vector = file::vector("pgm", "openpgm_spm_parity");
    let packet = Packet::parse(&vector.bytes).unwrap();
    let Some(PgmOption::ParityPrm(offer)) = packet.options().next() else {
        panic!("no OPT_PARITY_PRM");
    };
    assert!(offer.is_on_demand(ParityReading::OpenPgm));
    assert!(!offer.is_proactive(ParityReading::OpenPgm));
    assert!(offer.is_on_demand(ParityReading::Lax));
    assert!(!offer.is_on_demand(ParityReading::Rfc));
    assert_eq!(offer.group_size, 4);
}

#[test]
fn a_mark_of_the_future_is_refused_by_its_version() {
    let vector = file::vector("pgm", "spm_mark_future");
    let packet = Packet::parse(&vector.bytes).unwrap();
    let Some(PgmOption::Mark(mark)) = packet.options().next() else {
        panic!("no mark");
    };
    assert_eq!(mark.check(0xFFFF), Err(Refusal::Version(0x21)));
}
