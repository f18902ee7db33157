//! Packets that a holder of the key made, and what others did to them on the way.

use std::net::{IpAddr, SocketAddr};

use base::{Arrival, PathId, Run, Socket};
use protection::{Key, PacketProtection, portable};
use wire::{
    Sqn,
    pgm::{
        Addressing, Body, Data, Flags, Gsi, Mark, Nak, Packet, PgmOption, Profile, Spm, Tsi, emit,
        emit_flagged,
    },
};

/// Reads any bytes as a list of five-byte orders: which genuine packet is sent, and what happens to
/// it.
///
/// An order is a kind, a sequence number, a place (two bytes), and the bits to flip in the byte at
/// that place; 0 leaves the packet as it is. The receiver must hand on only packets that say what
/// their maker said, and SPMs, NCFs and parity only once. At the end the input itself arrives as a
/// packet.
///
/// **Panics**: when a packet is handed on that no holder of the key made.
pub fn unprotect(data: &[u8]) {
    let mut source = PacketProtection::source(key(), TSI, 7, nla(), Sqn(0));
    let mut receiver = PacketProtection::receiver(key(), 1);
    let from = Arrival::from(SocketAddr::new(nla(), 7500), Socket::Group);
    let first = protect(&mut source, &plain(0, 0));
    assert!(receiver.unprotect(&from, &mut first.clone()).is_ok());
    for order in data.chunks_exact(5) {
        let plain = plain(order[0], order[1]);
        let sent = protect(&mut source, &plain);
        let mut came = sent.clone();
        let place = usize::from(u16::from_be_bytes([order[2], order[3]])) % came.len();
        came[place] ^= order[4];
        if let Ok(packet) = receiver.unprotect(&from, &mut came) {
            assert_eq!(meaning(packet), meaning(&plain), "place {place}");
            let is_data = Packet::parse(&plain).is_ok_and(|packet| {
                let header = packet.header();
                header.kind.is_data() && !header.flags.contains(Flags::PARITY)
            });
            let again = receiver.unprotect(&from, &mut sent.clone()).is_ok();
            assert_eq!(again, is_data, "data has a position, the rest a number");
        }
    }
    for end in [&mut source, &mut receiver] {
        assert!(
            end.unprotect(&from, &mut data.to_vec()).is_err(),
            "nobody has the key"
        );
    }
}

fn key() -> Key {
    Key::derive(b"nobody has it", portable)
}

fn nla() -> IpAddr {
    IpAddr::from([10, 0, 0, 1])
}

/// Makes a packet of the source, as it is before protection.
fn plain(kind: u8, sqn: u8) -> Vec<u8> {
    let sqn = Sqn(sqn.into());
    let data = Data { sqn, trail: Sqn(0) };
    let nak = Nak {
        sqn,
        source_nla: nla(),
        group_nla: IpAddr::from([239, 1, 1, 1]),
    };
    let addressing = Addressing::downstream(TSI, 7500);
    let mut bytes = Vec::new();
    match kind % 5 {
        0 => {
            let spm = Body::Spm(Spm {
                sqn,
                trail: Sqn(0),
                lead: sqn,
                path_nla: nla(),
            });
            let mark = Mark::new(Profile::Messages, 7).protected();
            emit(&mut bytes, &addressing, &spm, &[PgmOption::Mark(mark)], &[]);
        }
        1 => emit(
            &mut bytes,
            &addressing,
            &Body::Odata(data),
            &[],
            b"a message",
        ),
        2 => {
            let options = [PgmOption::Fin];
            emit(
                &mut bytes,
                &addressing,
                &Body::Rdata(data),
                &options,
                b"the last",
            );
        }
        3 => {
            let parity = Body::Rdata(data);
            emit_flagged(
                &mut bytes,
                &addressing,
                Flags::PARITY,
                &parity,
                &[],
                b"parity",
            );
        }
        _ => emit(&mut bytes, &addressing, &Body::Ncf(nak), &[], &[]),
    }
    bytes
}

fn protect(end: &mut PacketProtection, tpdu: &[u8]) -> Vec<u8> {
    let whole = 0..tpdu.len();
    let run = Run {
        path: PathId(0),
        to: SocketAddr::from(([239, 1, 1, 1], 7500)),
        hops: None,
        segment: tpdu.len(),
        memory: tpdu,
        ranges: std::slice::from_ref(&whole),
    };
    let run = end.protect(&run).expect("a packet of the source");
    run.datagrams().flatten().copied().collect()
}

/// Writes what a packet says, except what nobody has to believe: whether data is a repair, its
/// trail, and how an SPM is tagged.
fn meaning(tpdu: &[u8]) -> String {
    let packet = Packet::parse(tpdu).expect("what is handed on is whole");
    let header = packet.header();
    let body = match packet.body() {
        Body::Odata(data) | Body::Rdata(data) => format!("data {}", data.sqn.0),
        body => body.to_string(),
    };
    let options = packet.options().map(|option| match option {
        PgmOption::Mark(mark) => Mark { tag: None, ..mark }.to_string(),
        other => other.to_string(),
    });
    let options: Vec<_> = options.collect();
    let (tsi, port) = (header.tsi(), header.destination_port);
    format!("{tsi} {port} {body} {options:?} {:?}", packet.tsdu())
}

const TSI: Tsi = Tsi {
    gsi: Gsi([1, 2, 3, 4, 5, 6]),
    port: 4321,
};
