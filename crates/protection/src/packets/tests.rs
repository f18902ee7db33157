#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::net::SocketAddr;

use base::{PathId, Socket};
use wire::{
    Sqn,
    pgm::{
        Addressing, Data, Fragment, Gsi, Nak, Profile, Spm, emit, emit_flagged, verify_checksum,
    },
};

use super::*;
use crate::portable;

const TSI: Tsi = Tsi {
    gsi: Gsi([1, 2, 3, 4, 5, 6]),
    port: 4321,
};
const GROUP: &str = "239.192.0.1:7500";
const SOURCE: &str = "10.0.0.1:7500";
const SESSION: u64 = 0x0123_4567_89AB_CDEF;

fn key(secret: &str) -> Key {
    Key::derive(secret.as_bytes(), portable)
}

fn source() -> PacketProtection {
    let nla = SOURCE.parse::<SocketAddr>().unwrap().ip();
    PacketProtection::source(key("secret"), TSI, SESSION, nla, Sqn(100))
}

fn receiver(instance: u64) -> PacketProtection {
    PacketProtection::receiver(key("secret"), instance)
}

fn down() -> Addressing {
    Addressing::downstream(TSI, 7500)
}

fn arrival(from: &str) -> Arrival {
    Arrival::from(from.parse().unwrap(), Socket::Group)
}

fn spm_from(trail: u32, lead: u32, mark: Mark) -> Vec<u8> {
    let body = Body::Spm(Spm {
        sqn: Sqn(1),
        trail: Sqn(trail),
        lead: Sqn(lead),
        path_nla: SOURCE.parse::<SocketAddr>().unwrap().ip(),
    });
    let mut bytes = Vec::new();
    emit(&mut bytes, &down(), &body, &[PgmOption::Mark(mark)], &[]);
    bytes
}

fn spm() -> Vec<u8> {
    spm_from(90, 99, Mark::new(Profile::Messages, SESSION).protected())
}

fn data(kind: PacketType, sqn: u32, trail: u32, payload: &[u8]) -> Vec<u8> {
    let data = Data {
        sqn: Sqn(sqn),
        trail: Sqn(trail),
    };
    let body = match kind {
        PacketType::Odata => Body::Odata(data),
        _ => Body::Rdata(data),
    };
    let fragment = Fragment {
        first: Sqn(sqn),
        offset: 0,
        apdu_len: payload.len() as u32,
    };
    let mut bytes = Vec::new();
    emit(
        &mut bytes,
        &down(),
        &body,
        &[PgmOption::Fragment(fragment)],
        payload,
    );
    bytes
}

fn parity(sqn: u32, payload: &[u8]) -> Vec<u8> {
    let body = Body::Rdata(Data {
        sqn: Sqn(sqn),
        trail: Sqn(90),
    });
    let mut bytes = Vec::new();
    emit_flagged(&mut bytes, &down(), Flags::PARITY, &body, &[], payload);
    bytes
}

fn nak() -> Vec<u8> {
    about_101(Body::Nak, &Addressing::upstream(TSI, 7500))
}

fn ncf() -> Vec<u8> {
    about_101(Body::Ncf, &down())
}

/// A NAK, or what confirms it: both have the same fields.
fn about_101(kind: fn(Nak) -> Body, addressing: &Addressing) -> Vec<u8> {
    let body = kind(Nak {
        sqn: Sqn(101),
        source_nla: SOURCE.parse::<SocketAddr>().unwrap().ip(),
        group_nla: GROUP.parse::<SocketAddr>().unwrap().ip(),
    });
    let mut bytes = Vec::new();
    emit(&mut bytes, addressing, &body, &[], &[]);
    bytes
}

/// One datagram as it leaves.
fn protect(end: &mut PacketProtection, tpdu: &[u8]) -> Vec<u8> {
    let whole = 0..tpdu.len();
    let run = Run {
        path: PathId(0),
        to: GROUP.parse().unwrap(),
        hops: None,
        segment: tpdu.len(),
        memory: tpdu,
        ranges: std::slice::from_ref(&whole),
    };
    let run = end.protect(&run).expect("it can be protected");
    let all: Vec<_> = run.datagrams().map(<[u8]>::to_vec).collect();
    assert_eq!(all.len(), 1);
    all.concat()
}

fn unprotect(end: &mut PacketProtection, from: &str, tpdu: &[u8]) -> Result<Vec<u8>, DropReason> {
    let mut tpdu = tpdu.to_vec();
    let plain = end.unprotect(&arrival(from), &mut tpdu);
    plain.map(<[u8]>::to_vec)
}

/// A source, and a receiver that has heard its SPM.
fn pair() -> (PacketProtection, PacketProtection) {
    let (mut source, mut receiver) = (source(), receiver(1));
    let spm = protect(&mut source, &spm());
    unprotect(&mut receiver, SOURCE, &spm).unwrap();
    (source, receiver)
}

/// What matters of a packet to the state machines.
fn meaning(tpdu: &[u8]) -> String {
    let packet = Packet::parse(tpdu).unwrap();
    let options: Vec<_> = packet.options().map(|option| option.to_string()).collect();
    format!("{:?} {options:?} {:?}", packet.body(), packet.tsdu())
}

#[test]
fn each_kind_of_packet_comes_out_as_it_went_in() {
    let (mut source, mut receiver) = pair();
    for plain in [
        data(PacketType::Odata, 100, 90, b"a message"),
        data(PacketType::Rdata, 101, 90, b""),
        parity(96, b"parity bytes"),
        ncf(),
    ] {
        let sent = protect(&mut source, &plain);
        let came = unprotect(&mut receiver, SOURCE, &sent).unwrap();
        assert_eq!(meaning(&came), meaning(&plain));
    }
    let sent = protect(&mut receiver, &nak());
    let came = unprotect(&mut source, "10.0.0.2:7500", &sent).unwrap();
    assert_eq!(meaning(&came), meaning(&nak()));
    assert_eq!(source.counters().unprotected, 1);
    assert_eq!(receiver.counters().unprotected, 5);
}

#[test]
fn no_byte_of_a_payload_and_no_sum_of_it_is_in_the_clear() {
    let mut source = source();
    let text = b"the price of tea in China";
    for plain in [data(PacketType::Odata, 100, 90, text), parity(96, text)] {
        let sent = protect(&mut source, &plain);
        for part in text.windows(4) {
            assert!(!sent.windows(4).any(|bytes| bytes == part));
        }
        assert_eq!(sent[6..8], [0, 0], "the checksum");
    }
}

#[test]
fn a_repair_equals_the_original_but_for_type_and_trail() {
    let mut source = source();
    let mut first = protect(&mut source, &data(PacketType::Odata, 100, 90, b"text"));
    let mut again = protect(&mut source, &data(PacketType::Rdata, 100, 95, b"text"));
    neutralise(&mut first);
    neutralise(&mut again);
    assert_eq!(first, again);
}

#[test]
fn any_turned_bit_is_noticed_or_changes_nothing() {
    let (mut source, mut receiver) = pair();
    let plain = data(PacketType::Odata, 100, 90, b"text");
    let sent = protect(&mut source, &plain);
    // Nobody has to believe the type, the checksum and the trail of a data packet.
    let free = [4..5, 6..8, 20..24];
    for bit in 0..sent.len() * 8 {
        let mut turned = sent.clone();
        turned[bit / 8] ^= 1 << (bit % 8);
        let came = unprotect(&mut receiver, SOURCE, &turned);
        if free.iter().any(|range| range.contains(&(bit / 8))) {
            if let Ok(came) = came {
                assert_eq!(&came[20..24], &[0, 0, 0, 90], "the trail of the SPM");
            }
        } else {
            assert!(came.is_err(), "bit {bit}");
        }
    }
    let tagged = [
        (true, 6..8, protect(&mut source, &spm())),
        (true, 0..0, protect(&mut source, &ncf())),
        (false, 0..0, protect(&mut receiver, &nak())),
    ];
    for (is_down, free, sent) in tagged {
        for bit in (0..sent.len() * 8).filter(|bit| !free.contains(&(bit / 8))) {
            let mut turned = sent.clone();
            turned[bit / 8] ^= 1 << (bit % 8);
            let came = match is_down {
                true => unprotect(&mut receiver, SOURCE, &turned),
                false => unprotect(&mut source, "10.0.0.2:7500", &turned),
            };
            assert!(came.is_err(), "bit {bit}: {came:?}");
        }
    }
}

#[test]
fn a_packet_that_comes_again_is_dropped_and_data_is_left_to_the_window() {
    let (mut source, mut receiver) = pair();
    for plain in [spm(), parity(96, b"xx"), ncf()] {
        let sent = protect(&mut source, &plain);
        unprotect(&mut receiver, SOURCE, &sent).unwrap();
        let again = unprotect(&mut receiver, SOURCE, &sent);
        assert_eq!(again, Err(DropReason::Replayed), "{plain:?}");
    }
    let nak = protect(&mut receiver, &nak());
    unprotect(&mut source, "10.0.0.2:1", &nak).unwrap();
    assert_eq!(
        unprotect(&mut source, "10.0.0.3:1", &nak),
        Err(DropReason::Replayed)
    );
    let sent = protect(&mut source, &data(PacketType::Odata, 100, 90, b"x"));
    for _ in 0..2 {
        unprotect(&mut receiver, SOURCE, &sent).unwrap();
    }
}

#[test]
fn what_a_receiver_sends_is_not_taken_for_the_source_and_the_other_way_round() {
    let (mut source, mut receiver) = pair();
    let mut nak = protect(&mut receiver, &nak());
    nak[4] = PacketType::Ncf.code();
    // As if it travelled downstream: the ports are where they are in a packet of the source.
    let refused = unprotect(&mut receiver, SOURCE, &nak);
    assert!(refused.is_err(), "{refused:?}");
    let ncf = protect(&mut source, &ncf());
    assert!(unprotect(&mut source, SOURCE, &ncf).is_err());
}

#[test]
fn sequence_numbers_that_wrap_keep_their_lap() {
    let (mut source, mut receiver) = pair();
    let old = protect(&mut source, &data(PacketType::Odata, 100, 90, b"old"));
    unprotect(&mut receiver, SOURCE, &old).unwrap();
    for sqn in [0x7000_0000, 0xE000_0000, 0x5000_0000, 100] {
        let sent = protect(&mut source, &data(PacketType::Odata, sqn, sqn, b"new"));
        unprotect(&mut receiver, SOURCE, &sent).unwrap();
    }
    assert_eq!(
        unprotect(&mut receiver, SOURCE, &old),
        Err(DropReason::Replayed),
        "from the lap before"
    );
    // One that joins now learns the lap from the SPM.
    let mut late = self::receiver(2);
    let spm = protect(&mut source, &spm());
    unprotect(&mut late, SOURCE, &spm).unwrap();
    assert_eq!(
        unprotect(&mut late, SOURCE, &old),
        Err(DropReason::Replayed)
    );
}

#[test]
fn other_keys_bare_packets_and_unknown_sessions_are_told_apart() {
    let mut receiver = receiver(1);
    let mut other = PacketProtection::source(
        key("other"),
        TSI,
        SESSION,
        SOURCE.parse::<SocketAddr>().unwrap().ip(),
        Sqn(1),
    );
    let spm_of_other = protect(&mut other, &spm());
    assert_eq!(
        unprotect(&mut receiver, SOURCE, &spm_of_other),
        Err(DropReason::Forged)
    );
    let bare = spm_from(1, 2, Mark::new(Profile::Messages, SESSION));
    for _ in 0..2 {
        assert_eq!(
            unprotect(&mut receiver, "10.0.0.9:1", &bare),
            Err(DropReason::Unprotected)
        );
    }
    let odata = data(PacketType::Odata, 100, 90, b"x");
    assert_eq!(
        unprotect(&mut receiver, SOURCE, &odata),
        Err(DropReason::UnknownSession)
    );
    let notices: Vec<_> = receiver.take_notices().collect();
    let kinds: Vec<_> = notices.iter().map(|notice| notice.kind).collect();
    assert_eq!(kinds, [NoticeKind::OtherKey, NoticeKind::Bare]);
    let drops = receiver.drops();
    assert_eq!((drops.unprotected, drops.forged), (2, 1));
    assert_eq!((drops.unknown_session, drops.total()), (1, 4));
}

#[test]
fn a_genuine_packet_from_another_address_is_dropped() {
    let (mut source, mut receiver) = pair();
    for plain in [spm(), data(PacketType::Odata, 100, 90, b"x"), ncf()] {
        let sent = protect(&mut source, &plain);
        let elsewhere = unprotect(&mut receiver, "10.0.0.66:7500", &sent);
        assert_eq!(elsewhere, Err(DropReason::WrongSource));
        assert!(unprotect(&mut receiver, SOURCE, &sent).is_ok());
    }
}

#[test]
fn a_run_whose_packets_grow_differently_leaves_in_two() {
    let mut source = source();
    let (spm, mut ncf) = (spm(), ncf());
    ncf.resize(spm.len(), 0);
    let odata = data(PacketType::Odata, 100, 90, &vec![7; spm.len() - 44]);
    assert_eq!(odata.len(), spm.len());
    let memory = [odata.clone(), odata, spm.clone()].concat();
    let whole = 0..memory.len();
    let run = Run {
        path: PathId(0),
        to: GROUP.parse().unwrap(),
        hops: Some(1),
        segment: spm.len(),
        memory: &memory,
        ranges: std::slice::from_ref(&whole),
    };
    let protected = source.protect(&run).unwrap();
    assert_eq!(protected.datagram_count(), 2);
    assert_eq!(protected.segment, run.segment + 8 + TAG_LEN);
    assert_eq!((protected.to, protected.hops), (run.to, run.hops));
}

#[test]
fn data_packets_fill_a_run_and_longer_ones_than_before_leave_in_two() {
    let mut source = source();
    let limit = RunLimit {
        bytes: 65_000,
        datagrams: 128,
    };
    // The first run is reckoned without knowledge, all others from the one before.
    for (len, is_known) in [(1400, false), (1400, true), (500, false), (1400, false)] {
        let room = source.room(limit);
        let tpdu = data(PacketType::Odata, 100, 90, &vec![7; len - 44]);
        assert_eq!(tpdu.len(), len);
        let fits = limit.bytes / (len + DATA_OVERHEAD);
        let count = (room.bytes / len).min(room.datagrams);
        assert!(!is_known || count == fits, "{count} of {fits}");
        let memory = tpdu.repeat(count);
        let whole = 0..memory.len();
        let run = Run {
            path: PathId(0),
            to: GROUP.parse().unwrap(),
            hops: None,
            segment: len,
            memory: &memory,
            ranges: std::slice::from_ref(&whole),
        };
        let protected = source.protect(&run).unwrap();
        assert!(protected.len() <= limit.bytes, "{len}: {}", protected.len());
        assert_eq!(protected.datagram_count(), count.min(fits));
    }
}

#[test]
fn an_end_never_sends_what_it_cannot_protect() {
    let (_, mut receiver) = (source(), receiver(1));
    let tpdu = nak();
    let whole = 0..tpdu.len();
    let run = Run {
        path: PathId(0),
        to: GROUP.parse().unwrap(),
        hops: None,
        segment: tpdu.len(),
        memory: &tpdu,
        ranges: std::slice::from_ref(&whole),
    };
    assert!(receiver.protect(&run).is_none(), "its session is unknown");
    assert_eq!(receiver.counters().failed, 1);
}

#[test]
fn sessions_are_bounded_and_the_most_silent_one_makes_room() {
    let mut receiver = receiver(1);
    let nla = SOURCE.parse::<SocketAddr>().unwrap().ip();
    for n in 0..=PROTECTED_SESSIONS_MAX as u16 {
        let tsi = Tsi { port: n, ..TSI };
        let mut source = PacketProtection::source(key("secret"), tsi, SESSION, nla, Sqn(1));
        let body = Body::Spm(Spm {
            sqn: Sqn(1),
            trail: Sqn(1),
            lead: Sqn(0),
            path_nla: nla,
        });
        let mark = PgmOption::Mark(Mark::new(Profile::Messages, SESSION).protected());
        let mut bytes = Vec::new();
        emit(
            &mut bytes,
            &Addressing::downstream(tsi, 7500),
            &body,
            &[mark],
            &[],
        );
        let sent = protect(&mut source, &bytes);
        unprotect(&mut receiver, SOURCE, &sent).unwrap();
    }
    assert_eq!(receiver.sessions.len(), PROTECTED_SESSIONS_MAX as usize);
    assert!(!receiver.sessions.contains_key(&Tsi { port: 0, ..TSI }));
    assert_eq!(receiver.counters().sessions_evicted, 1);
}

#[test]
fn a_plain_pgm_end_reads_spms_and_nothing_else() {
    let mut source = source();
    let sent = protect(&mut source, &spm());
    let packet = Packet::parse(&sent).unwrap();
    let (mark, _) = mark_tag(&packet).unwrap();
    assert!(mark.check(0).is_err());
    assert_eq!(verify_checksum(&sent), wire::pgm::ChecksumState::Good);
    for plain in [
        data(PacketType::Odata, 100, 90, b"x"),
        ncf(),
        parity(96, b"x"),
    ] {
        assert!(Packet::parse(&protect(&mut source, &plain)).is_err());
    }
}

#[test]
fn hosts_beyond_those_that_a_person_is_told_of_are_counted() {
    let mut receiver = receiver(1);
    let bare = spm_from(1, 2, Mark::new(Profile::Messages, SESSION));
    for n in 0..NOTICES_MAX + 3 {
        let host = format!("10.0.1.{n}:7500");
        assert_eq!(
            unprotect(&mut receiver, &host, &bare),
            Err(DropReason::Unprotected)
        );
    }
    assert_eq!(receiver.take_notices().count(), NOTICES_MAX as usize);
    assert_eq!(receiver.counters().notices_omitted, 3);
}

#[test]
fn receivers_are_bounded_and_the_most_silent_one_makes_room() {
    use crate::parameters::PROTECTED_RECEIVERS_MAX;

    let mut source = source();
    let mut spare = receiver(u64::MAX);
    unprotect(&mut spare, SOURCE, &protect(&mut source, &spm())).unwrap();
    for instance in 0..=PROTECTED_RECEIVERS_MAX as u64 {
        let Role::Receiver {
            instance: own,
            number,
        } = &mut spare.role
        else {
            unreachable!("it was made as a receiver");
        };
        (*own, *number) = (instance, 1);
        let sent = protect(&mut spare, &nak());
        unprotect(&mut source, "10.0.0.2:4000", &sent).unwrap();
        assert_eq!(
            source.counters().receivers_evicted,
            u64::from(instance == PROTECTED_RECEIVERS_MAX as u64)
        );
    }
}
