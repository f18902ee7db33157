//! Conformance of the network element with RFC 3208. A test named `s7_1_...` tests section 7.1. Way
//! 0 leads to the source, ways 1 and 2 to receivers.

use std::net::Ipv4Addr;

use base::Socket;
use wire::pgm::{
    Addressing, Data, Gsi, Mark, Nak, NakList, PacketType, PgmOption, Profile, Spm, emit,
};

use super::*;

pub(super) const PORT: u16 = 7500;
pub(super) const TSI: Tsi = Tsi {
    gsi: Gsi([1, 2, 3, 4, 5, 6]),
    port: 4321,
};
pub(super) const SOURCE: IpAddr = ip(0, 1);
/// The lead in each SPM of [`Bench::spm`].
pub(super) const LEAD: u32 = 10_000;
pub(super) const fn ip(network: u8, host: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, network, host))
}

/// Returns the element's address on a way.
pub(super) const fn own(way: usize) -> IpAddr {
    ip(way as u8, 254)
}

pub(super) const fn group(way: usize) -> SocketAddr {
    let ip = IpAddr::V4(Ipv4Addr::new(239, 1, way as u8, 1));
    SocketAddr::new(ip, PORT)
}

pub(super) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A packet that the element sent: its way, where it went, its bytes.
pub(super) type Sent = (usize, SocketAddr, Vec<u8>);

pub(super) struct Bench {
    pub(super) element: Element,
    now: Instant,
    sent: Vec<(Instant, Sent)>,
    spm_sqn: u32,
}

impl Bench {
    /// Makes an element that does not know the source yet, and keeps no packets.
    pub(super) fn new() -> Self {
        Self::keeping(0)
    }

    pub(super) fn keeping(kept_bytes_max: usize) -> Self {
        let ways = (0..3).map(|way| Way {
            path: PathId(way as u8),
            nla: own(way),
            group: group(way),
            control_port: 7600 + way as u16,
        });
        let setup = ElementSetup {
            destination_port: PORT,
            ways: ways.collect(),
            timers: ElementTimers::default(),
            sessions_max: 4,
            repairs_max: 200,
            queue_bytes_max: 64 << 10,
            kept_bytes_max,
            seed: 1,
        };
        Self {
            element: Element::new(setup),
            now: Instant::from_nanos(1_000_000_000),
            sent: Vec::new(),
            spm_sqn: 0,
        }
    }

    /// Makes an element that knows the source, and has passed an SPM of the source on.
    pub(super) fn joined() -> Self {
        let mut bench = Self::new();
        assert_eq!(bench.spm(0, SOURCE, &[]), Verdict::Control);
        bench.take();
        bench
    }

    pub(super) fn hand(&mut self, way: usize, from: IpAddr, bytes: &[u8]) -> Verdict {
        let mut arrival = Arrival::from(SocketAddr::new(from, 40_000), Socket::Group);
        arrival.path = PathId(way as u8);
        let verdict = self.element.handle(self.now, &arrival, bytes);
        self.send();
        verdict
    }

    pub(super) fn spm(&mut self, way: usize, from: IpAddr, options: &[PgmOption<'_>]) -> Verdict {
        self.spm_sqn += 1;
        let body = Body::Spm(Spm {
            sqn: Sqn(self.spm_sqn),
            trail: Sqn(0),
            lead: Sqn(LEAD),
            path_nla: from,
        });
        self.hand(way, from, &down(&body, options, &[]))
    }

    pub(super) fn data(&mut self, way: usize, is_repair: bool, sqn: u32) -> Verdict {
        let data = Data {
            sqn: Sqn(sqn),
            trail: Sqn(0),
        };
        let body = if is_repair {
            Body::Rdata(data)
        } else {
            Body::Odata(data)
        };
        self.hand(way, SOURCE, &down(&body, &[], b"data"))
    }

    pub(super) fn ncf(&mut self, way: usize, sqns: &[u32]) -> Verdict {
        let packet = nak_like(Body::Ncf, false, 0, sqns);
        self.hand(way, SOURCE, &packet)
    }

    /// Hands the element a NAK of a receiver on `way`.
    pub(super) fn nak(&mut self, way: usize, sqns: &[u32]) -> Verdict {
        let packet = nak_like(Body::Nak, true, way, sqns);
        self.hand(way, ip(way as u8, 7), &packet)
    }

    fn send(&mut self) {
        let budget = Budget {
            bytes: 64_000,
            datagrams: 64,
        };
        while let Some(run) = self.element.poll_run(self.now, budget) {
            let (way, to) = (usize::from(run.path.0), run.to);
            let packets: Vec<_> = run.datagrams().map(<[u8]>::to_vec).collect();
            let datagrams = packets.len();
            for bytes in packets {
                assert_eq!(verify_checksum(&bytes), ChecksumState::Good);
                self.sent.push((self.now, (way, to, bytes)));
            }
            self.element.run_done(self.now, Outcome::Sent { datagrams });
        }
    }

    /// Returns how long it is until `time`.
    pub(super) fn until(&self, time: Instant) -> Duration {
        time.since(self.now)
    }

    pub(super) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(due) = self.element.next_timeout().filter(|&due| due <= end) {
            self.now = self.now.max(due);
            self.element.handle_timeout(self.now);
            self.send();
        }
        self.now = end;
    }

    pub(super) fn take(&mut self) -> Vec<Sent> {
        std::mem::take(&mut self.sent)
            .into_iter()
            .map(|(_, sent)| sent)
            .collect()
    }

    /// Returns what was sent since the last look: way, kind and sequence numbers.
    pub(super) fn told(&mut self) -> Vec<(usize, PacketType, Vec<u32>)> {
        let sent = self.take();
        let told = sent.iter().map(|(way, _, bytes)| {
            let packet = Packet::parse(bytes).unwrap();
            let sqns = match packet.body() {
                Body::Nak(nak) | Body::Ncf(nak) => downstream::sqns_of(&packet, nak).collect(),
                Body::Odata(data) | Body::Rdata(data) => vec![data.sqn],
                _ => Vec::new(),
            };
            let sqns = sqns.iter().map(|sqn| sqn.0).collect();
            (*way, packet.header().kind, sqns)
        });
        told.collect()
    }
}

pub(super) fn down(body: &Body, options: &[PgmOption<'_>], tsdu: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    emit(
        &mut out,
        &Addressing::downstream(TSI, PORT),
        body,
        options,
        tsdu,
    );
    out
}

fn nak_like(kind: impl Fn(Nak) -> Body, is_upstream: bool, way: usize, sqns: &[u32]) -> Vec<u8> {
    let body = kind(Nak {
        sqn: Sqn(sqns[0]),
        source_nla: if is_upstream { own(way) } else { SOURCE },
        group_nla: group(way).ip(),
    });
    let list: Vec<Sqn> = sqns[1..].iter().map(|&sqn| Sqn(sqn)).collect();
    let list = [PgmOption::NakList(NakList::new(&list))];
    let options = if sqns.len() > 1 { &list[..] } else { &[] };
    let addressing = if is_upstream {
        Addressing::upstream(TSI, PORT)
    } else {
        Addressing::downstream(TSI, PORT)
    };
    let mut out = Vec::new();
    emit(&mut out, &addressing, &body, options, &[]);
    out
}

use PacketType::{Nak as NAK, Ncf as NCF, Odata as ODATA, Rdata as RDATA};

#[test]
fn s7_1_an_spm_goes_on_by_each_other_way_with_our_address() {
    let mut bench = Bench::new();
    let mut mark = Mark::new(Profile::Messages, 42);
    mark.upstream_port = 9999;
    assert_eq!(
        bench.spm(0, SOURCE, &[PgmOption::Mark(mark)]),
        Verdict::Control
    );
    let sent = bench.take();
    assert_eq!(sent.len(), 2);
    for (way, to, bytes) in sent {
        assert_eq!(to, group(way));
        let packet = Packet::parse(&bytes).unwrap();
        let Body::Spm(spm) = packet.body() else {
            panic!("{packet}")
        };
        assert_eq!((spm.path_nla, spm.sqn), (own(way), Sqn(1)));
        let PgmOption::Mark(told) = packet.options().next().unwrap() else {
            panic!("{packet}")
        };
        assert_eq!((told.upstream_port, told.session_id), (0, 42));
    }
    // NAKs go to the port that the source's mark names.
    bench.nak(1, &[5]);
    let sent = bench.take();
    assert!(
        sent.iter()
            .any(|(way, to, _)| *way == 0 && *to == SocketAddr::new(SOURCE, 9999))
    );
}

#[test]
fn s7_1_the_way_of_the_spms_is_upstream_and_only_newer_ones_count() {
    let mut bench = Bench::joined();
    let other = bench.spm(1, ip(1, 9), &[]);
    assert_eq!(other, Verdict::Drop(DropReason::WrongSource), "no loop");
    bench.spm_sqn = 0;
    assert_eq!(bench.spm(0, SOURCE, &[]), Verdict::Drop(DropReason::Stale));
    assert_eq!(
        bench.data(1, false, 3),
        Verdict::Drop(DropReason::WrongSource)
    );
    let mut own_packet = Arrival::from(SocketAddr::new(own(0), PORT), Socket::Group);
    own_packet.path = PathId(1);
    let request = down(&Body::Spmr, &[], &[]);
    let looped = bench.element.handle(bench.now, &own_packet, &request);
    assert_eq!(looped, Verdict::Drop(DropReason::Looped));
    assert!(bench.take().is_empty());
    assert_eq!(bench.data(0, false, 3), Verdict::Control);
    assert_eq!(bench.told(), [(1, ODATA, vec![3]), (2, ODATA, vec![3])]);
}

#[test]
fn s7_1_a_path_that_is_not_the_senders_own_is_refused() {
    let mut bench = Bench::new();
    let body = Body::Spm(Spm {
        sqn: Sqn(1),
        trail: Sqn(0),
        lead: Sqn(9),
        path_nla: ip(0, 99),
    });
    let verdict = bench.hand(0, SOURCE, &down(&body, &[], &[]));
    assert_eq!(verdict, Verdict::Drop(DropReason::WrongSource));
}

#[test]
fn s7_2_a_nak_is_confirmed_at_once_to_the_group_of_its_way_alone() {
    let mut bench = Bench::joined();
    for round in 0..3 {
        bench.nak(1, &[5]);
        let sent = bench.take();
        let ncfs: Vec<_> = sent.iter().filter(|(way, ..)| *way != 0).collect();
        assert_eq!(ncfs.len(), 1, "round {round}");
        let (way, to, bytes) = ncfs[0];
        assert_eq!((*way, *to), (1, group(1)));
        let Body::Ncf(ncf) = Packet::parse(bytes).unwrap().body() else {
            panic!("no NCF")
        };
        assert_eq!(
            (ncf.sqn, ncf.source_nla, ncf.group_nla),
            (Sqn(5), own(1), group(1).ip())
        );
    }
}

#[test]
fn s7_3_naks_go_to_the_upstream_neighbour_alone() {
    let mut bench = Bench::joined();
    bench.nak(1, &[5]);
    let sent = bench.take();
    let up: Vec<_> = sent
        .iter()
        .filter(|(_, to, _)| !to.ip().is_multicast())
        .collect();
    assert_eq!(up.len(), 1);
    let (way, to, bytes) = up[0];
    assert_eq!((*way, *to), (0, SocketAddr::new(SOURCE, PORT)));
    let packet = Packet::parse(bytes).unwrap();
    assert_eq!(packet.header().upstream_tsi(), TSI);
    let Body::Nak(nak) = packet.body() else {
        panic!("no NAK")
    };
    assert_eq!(
        (nak.source_nla, nak.group_nla),
        (SOURCE, group(0).ip()),
        "section 7.7"
    );
    let upstream = bench.nak(0, &[6]);
    assert_eq!(
        upstream,
        Verdict::Drop(DropReason::NotForUs),
        "it asks the source"
    );
}

#[test]
fn s7_3_a_nak_is_repeated_until_it_is_confirmed_or_its_time_is_over() {
    let mut bench = Bench::joined();
    bench.nak(1, &[5]);
    bench.nak(2, &[6]);
    bench.take();
    bench.pass(ms(200));
    let told = bench.told();
    assert_eq!(told, vec![(0, NAK, vec![5, 6]); 4], "every 50 ms, together");
    bench.ncf(0, &[5]);
    bench.pass(ms(100));
    assert_eq!(bench.told(), vec![(0, NAK, vec![6]); 2]);
    bench.pass(ms(5000));
    let repeated = bench.told().len();
    assert!(
        (12..16).contains(&repeated),
        "up to a second in all: {repeated}"
    );
    assert_eq!(bench.element.repair_count(), 0);
    assert_eq!(bench.element.counters().naks_repeated, 6 + repeated as u64);
}

#[test]
fn s7_3_a_confirmed_nak_waits_for_its_repair() {
    for (wait, is_wanted) in [(1990, true), (2010, false)] {
        let mut bench = Bench::joined();
        bench.nak(1, &[5]);
        bench.ncf(0, &[5]);
        bench.take();
        bench.pass(ms(wait));
        bench.data(0, true, 5);
        let expected = if is_wanted {
            vec![(1, RDATA, vec![5])]
        } else {
            Vec::new()
        };
        assert_eq!(bench.told(), expected);
    }
}

/// Returns the numbers in the NAKs that went upstream since the last look.
pub(super) fn passed_on(bench: &mut Bench) -> Vec<Vec<u32>> {
    let told = bench.told();
    let naks = told.into_iter().filter(|(_, kind, _)| *kind == NAK);
    naks.map(|(.., sqns)| sqns).collect()
}

#[test]
fn s7_4_duplicates_are_eliminated_while_a_nak_is_pending_and_for_a_time_after() {
    let mut bench = Bench::joined();
    bench.nak(1, &[5]);
    assert_eq!(passed_on(&mut bench), [[5]]);
    bench.pass(ms(30));
    bench.nak(1, &[5]);
    bench.nak(2, &[5]);
    assert!(passed_on(&mut bench).is_empty(), "it is pending");
    for round in 0..3 {
        bench.ncf(0, &[5]);
        bench.pass(ms(19));
        bench.nak(2, &[5]);
        assert!(passed_on(&mut bench).is_empty(), "round {round}");
        bench.pass(ms(2));
        assert!(passed_on(&mut bench).is_empty(), "nothing goes by itself");
        bench.nak(1, &[5]);
        assert_eq!(passed_on(&mut bench), [[5]], "round {round}");
        bench.nak(1, &[5]);
        assert!(passed_on(&mut bench).is_empty(), "it is pending again");
    }
    assert_eq!(bench.element.counters().naks_eliminated, 3 + 2 * 3 - 1);
}

#[test]
fn s7_4_each_confirmation_starts_the_wait_for_the_repair_anew() {
    let mut bench = Bench::joined();
    bench.nak(1, &[5]);
    for _ in 0..4 {
        bench.ncf(0, &[5]);
        bench.pass(ms(1500));
        bench.nak(1, &[5]);
    }
    bench.ncf(0, &[5]);
    bench.take();
    bench.pass(ms(1500));
    bench.data(0, true, 5);
    assert_eq!(bench.told(), [(1, RDATA, vec![5])]);
}

#[test]
fn s7_4_the_elimination_interval_is_a_part_of_the_wait_for_the_repair() {
    let timers = ElementTimers {
        elimination: ms(5000),
        ..ElementTimers::default()
    };
    let settled = timers.settled();
    assert_eq!(settled.elimination, settled.rdata_wait / 4);
    let usual = ElementTimers::default();
    assert_eq!(usual.settled(), usual);
}

#[test]
fn packets_that_nobody_can_have_missed_yet_are_not_asked_for() {
    let mut bench = Bench::joined();
    let edge = LEAD + LEAD_AHEAD_MAX as u32;
    for sqn in [edge + 1, LEAD + (1 << 31) - 1] {
        let verdict = bench.nak(1, &[sqn]);
        assert_eq!(verdict, Verdict::Drop(DropReason::BeyondWindow), "{sqn}");
    }
    assert_eq!((bench.told(), bench.element.repair_count()), (vec![], 0));
    bench.nak(1, &[edge + 1, 5, edge, edge + 2]);
    let both = vec![5, edge];
    assert_eq!(bench.told(), [(0, NAK, both.clone()), (1, NCF, both)]);
    // What comes tells of later packets.
    bench.data(0, false, LEAD + 1);
    bench.take();
    bench.nak(1, &[edge + 1]);
    assert_eq!(passed_on(&mut bench), [[edge + 1]]);
}

#[test]
fn s7_5_an_ncf_that_nobody_asked_for_anticipates_naks_for_a_time() {
    let mut bench = Bench::joined();
    bench.ncf(0, &[5]);
    assert!(bench.take().is_empty(), "it goes no further");
    bench.pass(ms(10));
    bench.nak(1, &[5]);
    assert_eq!(
        bench.told(),
        [(1, NCF, vec![5])],
        "confirmed and eliminated"
    );
    bench.pass(ms(15));
    bench.nak(2, &[5]);
    assert_eq!(passed_on(&mut bench), [[5]]);
    bench.ncf(0, &[5]);
    bench.nak(2, &[5]);
    assert!(passed_on(&mut bench).is_empty());
    bench.data(0, true, 5);
    let ways: Vec<usize> = bench.told().iter().map(|(way, ..)| *way).collect();
    assert_eq!(ways, [1, 2]);
    // Without a NAK from behind the element, an NCF does not make the element pass the repair on.
    bench.ncf(0, &[6]);
    bench.data(0, true, 6);
    assert!(bench.told().is_empty());
    assert_eq!(bench.element.counters().rdata_unwanted, 1);
}

#[test]
fn s7_5_an_ncf_from_another_way_is_nothing() {
    let mut bench = Bench::joined();
    let verdict = bench.ncf(1, &[5]);
    assert_eq!(verdict, Verdict::Drop(DropReason::WrongSource));
    assert_eq!(bench.element.repair_count(), 0);
    bench.nak(1, &[6]);
    bench.take();
    bench.ncf(2, &[6]);
    bench.pass(ms(60));
    assert_eq!(passed_on(&mut bench), [[6]], "still pending");
}

#[test]
fn s7_8_repairs_go_where_they_were_asked_for_and_once() {
    let mut bench = Bench::joined();
    bench.nak(2, &[5]);
    bench.nak(2, &[5]);
    bench.nak(1, &[7]);
    bench.nak(2, &[7]);
    bench.take();
    bench.data(0, true, 6);
    assert!(bench.told().is_empty(), "nobody asked");
    bench.data(0, true, 5);
    assert_eq!(bench.told(), [(2, RDATA, vec![5])]);
    bench.data(0, true, 7);
    assert_eq!(bench.told(), [(1, RDATA, vec![7]), (2, RDATA, vec![7])]);
    bench.data(0, true, 7);
    assert!(bench.told().is_empty(), "the state is gone");
    assert_eq!(
        (
            bench.element.repair_count(),
            bench.element.next_timeout().is_some()
        ),
        (0, true)
    );
}

#[test]
fn s9_3_3_a_list_is_confirmed_as_it_is_and_goes_on_if_any_number_is_new() {
    let mut bench = Bench::joined();
    bench.nak(1, &[1, 2, 3]);
    assert_eq!(
        bench.told(),
        [(0, NAK, vec![1, 2, 3]), (1, NCF, vec![1, 2, 3])]
    );
    bench.nak(2, &[2, 3]);
    assert_eq!(
        bench.told(),
        [(2, NCF, vec![2, 3])],
        "all are outstanding or pending"
    );
    bench.nak(2, &[2, 3, 4]);
    assert_eq!(
        bench.told(),
        [(0, NAK, vec![2, 3, 4]), (2, NCF, vec![2, 3, 4])]
    );
    bench.ncf(0, &[8, 9]);
    bench.nak(1, &[9]);
    bench.nak(1, &[8]);
    assert!(
        passed_on(&mut bench).is_empty(),
        "each number of the NCF is anticipated"
    );
}

#[test]
fn s8_the_checksum_of_what_is_changed_is_made_anew() {
    // `send` verifies each checksum. Here it gets each kind of packet that the element changes.
    let mut bench = Bench::joined();
    bench.spm(0, SOURCE, &[PgmOption::Fin]);
    bench.nak(1, &[1, 2]);
    assert_eq!(bench.take().len(), 4);
}

#[test]
fn s15_3_2_an_unreachable_parent_is_told_below_and_not_asked() {
    let mut bench = Bench::joined();
    let special = |path_nla| {
        let body = Body::Spm(Spm {
            sqn: Sqn(1),
            trail: Sqn(0),
            lead: Sqn(0x8000_0000),
            path_nla,
        });
        down(&body, &[PgmOption::NbrUnreach], &[])
    };
    let other = bench.hand(0, SOURCE, &special(ip(0, 99)));
    assert_eq!(
        other,
        Verdict::Drop(DropReason::Unexpected),
        "another's parent"
    );
    bench.nak(1, &[4]);
    assert_eq!(passed_on(&mut bench), [[4]]);
    assert_eq!(bench.hand(0, SOURCE, &special(SOURCE)), Verdict::Control);
    assert_eq!(told_of(&mut bench), [SOURCE_LEAD; 2]);
    is_silent_until_an_spm(&mut bench);
}

/// Returns the sequence number, trail and lead of each SPM sent, all with OPT_NBR_UNREACH.
fn told_of(bench: &mut Bench) -> Vec<(Sqn, Sqn, Sqn)> {
    let sent = bench.take();
    let edges = sent.iter().map(|(way, _, bytes)| {
        let packet = Packet::parse(bytes).unwrap();
        let Body::Spm(spm) = packet.body() else {
            panic!("{packet}")
        };
        assert_eq!(spm.path_nla, own(*way));
        assert!(packet.options().any(|it| it == PgmOption::NbrUnreach));
        (spm.sqn, spm.trail, spm.lead)
    });
    edges.collect()
}

/// Sequence number, trail and lead of an SPM that announces no window.
const SOURCE_LEAD: (Sqn, Sqn, Sqn) = (Sqn(1), Sqn(0), Sqn(0x8000_0000));

fn is_silent_until_an_spm(bench: &mut Bench) {
    bench.nak(1, &[5]);
    bench.pass(ms(500));
    assert!(bench.told().is_empty());
    bench.spm(0, SOURCE, &[]);
    bench.nak(1, &[5]);
    assert_eq!(passed_on(bench), [[5]]);
}

#[test]
fn s15_3_2_an_ncf_that_says_so_makes_an_spm_that_says_so() {
    let ncf = |path: IpAddr| {
        let body = Body::Ncf(Nak {
            sqn: Sqn(5),
            source_nla: SOURCE,
            group_nla: group(0).ip(),
        });
        let path = PgmOption::PathNla(wire::pgm::PathNla { nla: path });
        down(&body, &[PgmOption::NbrUnreach, path], &[])
    };
    let mut bench = Bench::joined();
    let other = bench.hand(0, SOURCE, &ncf(ip(0, 99)));
    assert_eq!(other, Verdict::Drop(DropReason::Unexpected));
    assert!(bench.take().is_empty());
    assert_eq!(bench.hand(0, SOURCE, &ncf(SOURCE)), Verdict::Control);
    assert_eq!(told_of(&mut bench), [SOURCE_LEAD; 2]);
    is_silent_until_an_spm(&mut bench);
}

/// Asserts that an SPM goes on without `option`.
fn assert_left_out(option: PgmOption<'_>) {
    let mut bench = Bench::joined();
    bench.spm(0, SOURCE, &[option, PgmOption::Fin]);
    let sent = bench.take();
    assert_eq!(sent.len(), 2);
    for (_, _, bytes) in sent {
        let packet = Packet::parse(&bytes).unwrap();
        assert!(packet.options().eq([PgmOption::Fin]));
    }
}

#[test]
fn s15_2_1_a_back_off_of_one_network_goes_no_further() {
    assert_left_out(PgmOption::NakBackOffInterval(
        wire::pgm::NakBackOffInterval {
            interval_us: 50_000,
            poll_sqn: Sqn(0),
        },
    ));
}

#[test]
fn s7_1_a_session_stays_with_its_neighbour_while_that_one_is_heard() {
    let mut bench = Bench::joined();
    let other = ip(0, 9);
    let verdict = bench.spm(0, other, &[]);
    assert_eq!(verdict, Verdict::Drop(DropReason::WrongSource));
    let data = Body::Odata(Data {
        sqn: Sqn(3),
        trail: Sqn(0),
    });
    let verdict = bench.hand(0, other, &down(&data, &[], b"forged"));
    assert_eq!(verdict, Verdict::Drop(DropReason::WrongSource));
    // Data, without an SPM, is enough to show that the neighbour is still there.
    bench.pass(ms(4900));
    bench.data(0, false, 3);
    bench.pass(ms(200));
    assert_eq!(
        bench.spm(0, other, &[]),
        Verdict::Drop(DropReason::WrongSource)
    );
    bench.pass(ms(5000));
    assert_eq!(bench.spm(0, other, &[]), Verdict::Control);
    bench.take();
    bench.nak(1, &[5]);
    assert!(bench.take().iter().any(|(_, to, _)| to.ip() == other));
}

#[test]
fn s12_6_2_a_request_for_loads_that_the_element_does_not_report_goes_no_further() {
    let loads = wire::pgm::Loads {
        receiver: true,
        ..Default::default()
    };
    assert_left_out(PgmOption::Crqst(wire::pgm::Crqst { loads }));
}

/// Returns the marks of the SPMs sent since the last look, with their ways.
fn marks(bench: &mut Bench) -> Vec<(usize, Mark)> {
    let sent = bench.take();
    let marks = sent.iter().filter_map(|(way, _, bytes)| {
        let packet = Packet::parse(bytes).unwrap();
        let mark = packet.options().find_map(|option| match option {
            PgmOption::Mark(mark) => Some(mark),
            _ => None,
        });
        mark.map(|mark| (*way, mark))
    });
    marks.collect()
}

#[test]
fn reports_come_to_the_element_which_knows_where_they_go() {
    let mut bench = Bench::new();
    let mut mark = Mark::new(Profile::Objects, 42);
    bench.spm(0, SOURCE, &[PgmOption::Mark(mark)]);
    let ports = |bench: &mut Bench| marks(bench).iter().map(|(_, it)| it.control_port).collect();
    let told: Vec<u16> = ports(&mut bench);
    assert_eq!(told, [0, 0], "a source that takes no reports");
    assert_eq!(bench.element.control_address(42), None);
    mark.control_port = 9000;
    bench.spm(0, SOURCE, &[PgmOption::Mark(mark)]);
    let told: Vec<u16> = ports(&mut bench);
    assert_eq!(told, [7601, 7602]);
    let address = bench.element.control_address(42);
    assert_eq!(address, Some(SocketAddr::new(SOURCE, 9000)));
    assert_eq!(bench.element.control_address(43), None);
    // An SPM of another host with the same session number is dropped: that host gets no reports.
    let tsi = Tsi { port: 1, ..TSI };
    let mut spm = Vec::new();
    let body = Body::Spm(Spm {
        sqn: Sqn(1),
        trail: Sqn(0),
        lead: Sqn(9),
        path_nla: ip(0, 66),
    });
    let options = [PgmOption::Mark(mark)];
    emit(
        &mut spm,
        &Addressing::downstream(tsi, PORT),
        &body,
        &options,
        &[],
    );
    let verdict = bench.hand(0, ip(0, 66), &spm);
    assert_eq!(verdict, Verdict::Drop(DropReason::WrongSource));
    assert_eq!(bench.element.session_count(), 1);
}

#[test]
fn a_session_whose_spms_cannot_be_changed_is_not_carried() {
    let mut bench = Bench::new();
    let protected = Mark::new(Profile::Messages, 42).protected();
    let newer = Mark {
        version: 0x20,
        ..Mark::new(Profile::Messages, 42)
    };
    for mark in [protected, newer] {
        let verdict = bench.spm(0, SOURCE, &[PgmOption::Mark(mark)]);
        assert_eq!(verdict, Verdict::Drop(DropReason::Incompatible));
    }
    assert!(bench.take().is_empty());
    assert_eq!(bench.element.session_count(), 0);
}

#[test]
fn what_only_those_behind_have_missed_is_repaired_without_the_source() {
    let mut bench = Bench::keeping(1 << 20);
    bench.spm(0, SOURCE, &[]);
    for sqn in [4, 5, 7] {
        bench.data(0, false, sqn);
    }
    bench.take();
    // 6 was lost before the element, 5 and 7 behind it.
    bench.nak(1, &[5, 6, 7]);
    let mut told = bench.told();
    told.sort();
    let expected = [
        (0, NAK, vec![6]),
        (1, RDATA, vec![5]),
        (1, RDATA, vec![7]),
        (1, NCF, vec![5, 6, 7]),
    ];
    let mut expected = expected.to_vec();
    expected.sort();
    assert_eq!(told, expected);
    // Receivers on way 1 have just heard the repair of 5; those on way 2 have not.
    bench.nak(1, &[5]);
    bench.nak(2, &[5]);
    let told = bench.told();
    assert_eq!(
        told,
        [(1, NCF, vec![5]), (2, NCF, vec![5]), (2, RDATA, vec![5])]
    );
    // The source repairs 5 for its own network; the element passes on no NCF and no repair.
    bench.ncf(0, &[5]);
    bench.data(0, true, 5);
    assert!(bench.told().is_empty());
    bench.pass(ms(25));
    bench.nak(1, &[5]);
    assert_eq!(
        bench.told(),
        [(1, NCF, vec![5]), (1, RDATA, vec![5])],
        "it was lost again"
    );
    // A repair is kept, too.
    bench.data(0, true, 6);
    assert_eq!(bench.told(), [(1, RDATA, vec![6])]);
    bench.nak(2, &[6]);
    assert_eq!(bench.told(), [(2, NCF, vec![6]), (2, RDATA, vec![6])]);
    let counters = bench.element.counters();
    assert_eq!((counters.rdata_kept, counters.naks_forwarded), (5, 1));
}

#[test]
fn a_repair_that_an_ncf_announced_is_expected_though_the_element_sends_its_own() {
    let mut bench = Bench::keeping(1 << 20);
    bench.spm(0, SOURCE, &[]);
    bench.data(0, false, 5);
    bench.take();
    bench.ncf(0, &[5]);
    bench.nak(1, &[5]);
    assert_eq!(bench.told(), [(1, NCF, vec![5]), (1, RDATA, vec![5])]);
    bench.pass(ms(100));
    assert_eq!(bench.element.repair_count(), 1);
    bench.data(0, true, 5);
    assert_eq!((bench.told(), bench.element.repair_count()), (vec![], 0));
}

#[test]
fn s8_2_a_repair_of_what_is_kept_has_the_payload_and_the_present_trail() {
    let mut bench = Bench::keeping(1 << 20);
    bench.spm(0, SOURCE, &[]);
    bench.data(0, false, 5);
    let sent = bench.take().pop().unwrap().2;
    let body = Body::Spm(Spm {
        sqn: Sqn(2),
        trail: Sqn(3),
        lead: Sqn(9),
        path_nla: SOURCE,
    });
    bench.hand(0, SOURCE, &down(&body, &[], &[]));
    bench.take();
    bench.nak(1, &[5]);
    let repair = bench.take().pop().unwrap().2;
    let packet = Packet::parse(&repair).unwrap();
    let Body::Rdata(data) = packet.body() else {
        panic!("{packet}")
    };
    assert_eq!((data.sqn, data.trail), (Sqn(5), Sqn(3)));
    assert_eq!(repair[24..], sent[24..]);
    // `send` has verified the repair's checksum.
}

/// Makes a bench whose element keeps packet 5, of 40,000 bytes. A way may get 4 MiB of repairs at
/// once: 104 of this packet, but not 105.
fn keeping_a_large_packet() -> Bench {
    let mut bench = Bench::keeping(8 << 20);
    bench.spm(0, SOURCE, &[]);
    let data = Body::Odata(Data {
        sqn: Sqn(5),
        trail: Sqn(0),
    });
    bench.hand(0, SOURCE, &down(&data, &[], &[7; 40_000]));
    bench
}

#[test]
fn repairs_beyond_the_data_are_asked_for_upstream() {
    let mut bench = keeping_a_large_packet();
    bench.take();
    for _ in 0..104 {
        bench.nak(1, &[5]);
        assert_eq!(bench.told(), [(1, NCF, vec![5]), (1, RDATA, vec![5])]);
        bench.pass(ms(25));
    }
    bench.nak(1, &[5]);
    assert_eq!(bench.told(), [(0, NAK, vec![5]), (1, NCF, vec![5])]);
    assert_eq!(bench.element.counters().rdata_beyond_share, 1);
}

#[test]
fn a_way_beyond_its_share_waits_for_the_source_though_others_were_just_repaired() {
    // The ways take turns.
    let told = |bench: &mut Bench| {
        let mut told = bench.told();
        told.sort_by_key(|(way, kind, _)| (*way, *kind as u8 == RDATA as u8));
        told
    };
    let mut bench = keeping_a_large_packet();
    for _ in 0..104 {
        bench.nak(2, &[5]);
        bench.pass(ms(25));
    }
    bench.take();
    bench.nak(1, &[5]);
    assert_eq!(told(&mut bench), [(1, NCF, vec![5]), (1, RDATA, vec![5])]);
    // Way 2 has had its share: the source must repair the packet there.
    bench.nak(2, &[5]);
    assert_eq!(told(&mut bench), [(0, NAK, vec![5]), (2, NCF, vec![5])]);
    // What way 1 is given meanwhile does not end the wait of way 2.
    bench.nak(1, &[5]);
    assert_eq!(told(&mut bench), [(1, NCF, vec![5])]);
    bench.pass(ms(25));
    bench.nak(1, &[5]);
    assert_eq!(told(&mut bench), [(1, NCF, vec![5]), (1, RDATA, vec![5])]);
    bench.data(0, true, 5);
    assert_eq!(told(&mut bench), [(2, RDATA, vec![5])]);
}

#[test]
fn requests_for_spms_reach_the_source_once_for_all() {
    let mut bench = Bench::joined();
    let mut request = Vec::new();
    emit(
        &mut request,
        &Addressing::upstream(TSI, PORT),
        &Body::Spmr,
        &[],
        &[],
    );
    for host in 0..10 {
        assert_eq!(bench.hand(1, ip(1, host), &request), Verdict::Control);
    }
    assert_eq!(bench.told(), [(0, PacketType::Spmr, vec![])]);
}

#[test]
fn bounds_hold_whatever_is_asked_for() {
    let mut bench = Bench::joined();
    let naks = (0..1000).map(|sqn| bench.nak(1, &[sqn * 2]));
    let refused = naks
        .filter(|it| *it == Verdict::Drop(DropReason::NoRoom))
        .count();
    assert_eq!((refused, bench.element.repair_count()), (800, 200));
    bench.take();
    let forged = bench.hand(2, ip(2, 7), &nak_like(Body::Nak, true, 1, &[5]));
    assert_eq!(
        forged,
        Verdict::Drop(DropReason::NotForUs),
        "another way's addresses"
    );
    for number in 0..10 {
        let addressing = Addressing::downstream(
            Tsi {
                port: number,
                ..TSI
            },
            PORT,
        );
        let mut spm = Vec::new();
        let body = Body::Spm(Spm {
            sqn: Sqn(1),
            trail: Sqn(0),
            lead: Sqn(9),
            path_nla: SOURCE,
        });
        emit(&mut spm, &addressing, &body, &[], &[]);
        assert_eq!(bench.hand(0, SOURCE, &spm), Verdict::Control);
        assert!(bench.element.session_count() <= 4);
    }
    bench.pass(Duration::from_secs(61));
    assert_eq!(bench.element.counters().sessions_expired, 4);
    assert_eq!(bench.element.counters().sessions_evicted, 7);
    assert_eq!(
        (bench.element.repair_count(), bench.element.next_timeout()),
        (0, None)
    );
    let counters = bench.element.counters();
    let sum = counters.handled_packets + bench.element.drops().total();
    assert_eq!(counters.seen_packets, sum);
}

#[test]
fn s9_5_3_2_null_naks_are_not_confirmed_and_leave_no_state() {
    let mut bench = Bench::joined();
    let verdict = bench.hand(1, ip(1, 7), &nak_like(Body::Nnak, true, 1, &[5]));
    assert_eq!(verdict, Verdict::Drop(DropReason::Unexpected));
    bench.pass(ms(1500));
    assert!(bench.take().is_empty());
    assert_eq!(bench.element.repair_count(), 0);
    bench.data(0, true, 5);
    assert!(bench.take().is_empty(), "no way waits for the repair");
}

#[test]
fn a_full_queue_drops_and_counts() {
    let mut bench = Bench::joined();
    let data = Data {
        sqn: Sqn(1),
        trail: Sqn(0),
    };
    let packet = down(&Body::Odata(data), &[], &[7; 1400]);
    let mut arrival = Arrival::from(SocketAddr::new(SOURCE, 40_000), Socket::Group);
    arrival.path = PathId(0);
    for _ in 0..100 {
        bench.element.handle(bench.now, &arrival, &packet);
    }
    bench.send();
    let sent = bench.take().len();
    assert!((80..100).contains(&sent), "{sent}");
    assert_eq!(bench.element.counters().overflowed, 200 - sent as u64);
}
