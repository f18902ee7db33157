//! Every reason for which a packet may be thrown away has a packet that is.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod receiver_kit;

use base::{CounterSet as _, DropCounters, Verdict};
use receiver_kit::{
    Bench, NEIGHBOUR, OWN, data, downstream_of, joined, joined_with, made, odata, spm, upstream,
};
use towline_pgm::{Config, Mode};
use wire::{
    checksum,
    pgm::{Body, Gsi, PgmOption, Tsi},
};

const STRANGER: Tsi = Tsi {
    gsi: Gsi([9; 6]),
    port: 99,
};

/// The data packet after the first, with one byte changed and its checksum made good again.
fn altered(at: usize, byte: u8) -> Vec<u8> {
    let mut packet = odata(11, 10, &[PgmOption::Fin], b"payload");
    packet[at] = byte;
    packet[6..8].fill(0);
    let check = checksum::finish(checksum::sum(&packet));
    packet[6..8].copy_from_slice(&check.to_be_bytes());
    packet
}

/// Hands a receiver what it must throw away for the reason called `name`: the receiver and what it
/// made of the packet.
fn provoke(name: &str) -> (Bench, Verdict) {
    let mut bench = joined(Mode::Sequence, 10);
    let verdict = match name {
        "truncated" => bench.packet(&odata(11, 10, &[], b"")[..15]),
        // The length of the first option, behind header, body and OPT_LENGTH.
        "malformed" => bench.packet(&altered(29, 0)),
        "bad_checksum" => {
            let mut packet = odata(11, 10, &[], b"payload");
            packet[30] ^= 1;
            bench.packet(&packet)
        }
        "no_checksum" => {
            let mut packet = odata(11, 10, &[], b"payload");
            packet[6..8].fill(0);
            bench.packet(&packet)
        }
        // The version is in the two highest bits of the type.
        "unknown_type" => bench.packet(&altered(4, 0x44)),
        "not_for_us" => bench.packet(&altered(3, 1)),
        "looped" => bench.packet_from(OWN, &made(&upstream(), &Body::Spmr, &[], &[])),
        "wrong_source" => {
            let ncf = receiver_kit::nak_like(Body::Ncf, false, &[11]);
            bench.packet_from(NEIGHBOUR, &ncf)
        }
        "unknown_session" => {
            let ncf = Body::Ncf(receiver_kit::nak_body(11));
            bench.packet(&made(&downstream_of(STRANGER), &ncf, &[], &[]))
        }
        "peer_limit" => {
            bench = joined_with(Mode::Sequence, Config::builder().peers_max(1), 10);
            (11..30).for_each(|sqn| assert!(!is_drop(&bench.odata(sqn, b"real"))));
            let body = Body::Odata(data(1, 0));
            bench.packet(&made(&downstream_of(STRANGER), &body, &[], b"x"))
        }
        "duplicate" => bench.odata(10, b"again"),
        "behind_window" => bench.odata(9, b"old"),
        "beyond_window" => bench.odata(1 << 30, b"far"),
        "no_room" => {
            let config = Config::builder()
                .apdu_bytes_max(4000)
                .rx_window_bytes(8192)
                .rx_total_bytes(8192 + 4096);
            bench = joined_with(Mode::Sequence, config, 10);
            let mut held = (12..100).map(|sqn| bench.odata(sqn, &[0; 900]));
            held.find(is_drop).unwrap()
        }
        "stale" => bench.packet(&spm(20, 10, 10, &[])),
        "unexpected" => {
            bench = Bench::new(Mode::Sequence);
            bench.spm(0x8000_0000, &[]);
            bench.ncf(&[12])
        }
        "ended" => {
            bench.spm(10, &[PgmOption::Fin]);
            bench.odata(11, b"late")
        }
        "unproven" => {
            bench = Bench::protected(Mode::Sequence);
            bench.spm(9, &[]);
            bench.odata(10, b"from a sender that has not answered yet")
        }
        "incompatible" => {
            bench = joined(Mode::Arrival, 10);
            bench.fragment(11, 11, 0, b"two pieces", 4)
        }
        other => panic!("no packet here is dropped as `{other}`: make one, or delete the reason"),
    };
    (bench, verdict)
}

const fn is_drop(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Drop(_))
}

#[test]
fn every_reason_is_met() {
    // These belong to the stage before, `protection`, whose tests provoke them.
    let of_protection = ["unprotected", "forged", "replayed"];
    for info in DropCounters::DECLARED {
        if of_protection.contains(&info.name) {
            continue;
        }
        let (bench, verdict) = provoke(info.name);
        let Verdict::Drop(reason) = verdict else {
            panic!("{}: {verdict:?}", info.name);
        };
        assert_eq!(reason.name(), info.name);
        assert_eq!(bench.receiver.drops().value_of(info.name), Some(1));
        bench.assert_accounts();
    }
}
