//! The reports as people read them. Tests of results that are kept with the documentation are in
//! `tests/cli.rs`.

use gauge::{
    clock::{Between, ClockReport, Keeper, KeeperState, PtpClock, PtpOffset},
    load::Percentiles,
    mtu::{Claim, Confirmation, GroupMtuReport, MtuVerdict, PathMtuReport},
    reach::{
        Cause, Facts, Finding, Frames, InterfaceFacts, PeerFacts, Querier, ReachReport, Unlisted,
    },
    rtt::{ClockState, OneWay, OneWayTimes},
    udp::SweepReport,
};
use towline::text::is_plain;

use super::*;
use crate::args::SizeRange;

const GROUP: &str = "239.192.0.1:7500";

fn counters(of: &[(&str, u64)]) -> Counters {
    let named = of.iter().map(|&(name, count)| (name.to_owned(), count));
    Counters(named.collect())
}

fn usage() -> UsageReport {
    UsageReport {
        wall_s: 4.0,
        process_cpu_s: Some(1.5),
        machine_busy_s: Some(2.25),
        machine_steal_s: Some(0.0),
        cpu_count: 2,
    }
}

/// Returns a text whose lines fit into a terminal of 80 columns.
fn fit(text: String) -> String {
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    text
}

#[test]
fn publish() {
    let mut report = PublishReport {
        group: GROUP.into(),
        messages: 2_000,
        bytes: 250_000,
        discarded: 0,
        seconds: 2.0,
        failure: None,
        is_confirmed: true,
        is_interrupted: false,
        receivers: 2,
        given_up: 0,
        unconfirmed: Vec::new(),
        limited_by: None,
        census: None,
        drops: Counters::default(),
        counters: Counters::default(),
    };
    let mut text = report.text();
    report.receivers = 0;
    text += &report.text();
    (report.receivers, report.given_up, report.discarded) = (3, 1, 40);
    report.unconfirmed = (1..8).map(|nth| format!("host-{nth}")).collect();
    report.is_interrupted = true;
    report.limited_by = Some(LimitedBy {
        receiver: "host-b".into(),
        cause: "network".into(),
        bits_per_s: 12_500_000,
    });
    report.census = Some(CensusReport {
        receivers: 300,
        is_complete: false,
        farthest_round_trip_ns: Some(41_300_000),
    });
    report.drops = counters(&[("bad_checksum", 3)]);
    text += &report.text();
    insta::assert_snapshot!(fit(text));
}

#[test]
fn subscribe() {
    let mut report = SubscribeReport {
        group: GROUP.into(),
        messages: 1,
        bytes: 6,
        lost_packets: 0,
        discarded: 0,
        senders: SenderEnds {
            found: 1,
            ended: 1,
            ..SenderEnds::default()
        },
        is_interrupted: false,
        seconds: 0.0,
        failure: None,
        drops: Counters::default(),
        counters: Counters::default(),
    };
    let mut text = report.text();
    (report.messages, report.bytes, report.seconds) = (2_000, 250_000, 2.0);
    (report.lost_packets, report.discarded) = (17, 4);
    report.senders = SenderEnds {
        found: 4,
        ended: 1,
        expired: 1,
        reset: 1,
        dropped: 1,
    };
    report.drops = counters(&[("kernel", 7), ("no_room", 1)]);
    text += &report.text();
    insta::assert_snapshot!(fit(text));
}

#[test]
fn load() {
    let mut send = LoadSendReport {
        group: GROUP.into(),
        interface: "eth0".into(),
        size_bytes: SizeRange {
            min: 100,
            max: 1_400,
        },
        seed: 1,
        messages: 4_000,
        bytes: 3_000_000,
        seconds: 4.0,
        messages_per_s: 1_000.0,
        bits_per_s: 6e6,
        failure: None,
        is_confirmed: true,
        is_interrupted: false,
        receivers: 1,
        given_up: 0,
        limited_by: None,
        census: None,
        usage: usage(),
        drops: Counters::default(),
        counters: counters(&[
            ("source.odata_packets", 4_000),
            ("source.rdata_packets", 12),
        ]),
    };
    let mut text = send.text() + "\n";
    (send.is_interrupted, send.is_confirmed, send.given_up) = (true, false, 1);
    send.drops = counters(&[("bad_checksum", 3)]);
    text += &(send.text() + "\n");
    text += &load_recv().text();
    insta::assert_snapshot!(fit(text));
}

fn load_recv() -> LoadRecvReport {
    let percentiles = Percentiles {
        count: 3_996,
        p50_ns: 84_000,
        p99_ns: 310_000,
        p999_ns: 1_250_000,
        max_ns: 20_400_000,
        ..Percentiles::default()
    };
    LoadRecvReport {
        group: GROUP.into(),
        interface: "eth0".into(),
        seed: 1,
        messages: 3_996,
        bytes: 2_997_000,
        missing: 4,
        corrupt: 0,
        duplicates: 0,
        out_of_order: 0,
        lost_packets: 4,
        senders: SenderEnds {
            found: 1,
            ended: 1,
            ..SenderEnds::default()
        },
        is_interrupted: false,
        seconds: 4.0,
        messages_per_s: 999.0,
        bits_per_s: 5.994e6,
        delay: Some(DelayReport {
            percentiles,
            late_ns: 1_000_000,
            messages_late: 5,
            negative: 2,
            clock_error_ns_max: Some(31_000_000),
        }),
        usage: usage(),
        drops: counters(&[("kernel", 4)]),
        counters: Counters::default(),
    }
}

#[test]
fn recv() {
    let mut report = RecvReport::new(GROUP.into(), None, Duration::from_millis(1_500));
    report.error = Some("no sender came in time".into());
    let mut text = report.text() + "\n";
    report.error = None;
    report.is_complete = true;
    report.sender = Some("host-a".into());
    report.path = Some("incoming/site".into());
    report.root = Some("6e".repeat(32));
    (report.bytes, report.bytes_held) = (104_512_345, 104_512_345);
    (report.packets_lost, report.repairs_asked) = (1_505, 1_610);
    report.repairs_got = 1_505;
    report.absent = vec!["site/locked".into()];
    report.deleted = vec!["site/old".into()];
    report.passed_over = 1;
    report.passed_over_why = Some("host-c is not among those of --from".into());
    report.count(counters(&[("drop.bad_checksum", 3)]));
    text += &(report.text() + "\n");
    let mut serve = ServeReport::new(GROUP.into(), Duration::from_secs(90));
    serve.drops = counters(&[("kernel", 12)]);
    text += &serve.text();
    insta::assert_snapshot!(fit(text));
}

#[test]
fn mtu() {
    let mut found = PathMtuReport {
        path_mtu_bytes: 1_500,
        interface_mtu_bytes: 1_500,
        path_mtu_back_bytes: Some(1_500),
        confirmation: Confirmation::Reflector,
        claims: Vec::new(),
        unlisted_claims: 0,
        verdict: MtuVerdict::Clear,
        udp_payload_bytes_max: 1_472,
        pgm_payload_bytes_max: 1_448,
        probes: 3,
    };
    let told = |found: &PathMtuReport| MtuReport::new("10.0.0.2", found).text() + "\n";
    let mut text = told(&found);
    (found.path_mtu_bytes, found.udp_payload_bytes_max) = (1_404, 1_376);
    (found.pgm_payload_bytes_max, found.probes) = (1_352, 20);
    found.path_mtu_back_bytes = Some(1_400);
    found.unlisted_claims = 2;
    found.claims = [1_404, 1_300]
        .map(|mtu| Claim {
            router: Some([10, 0, 0, 1].into()),
            mtu_bytes: mtu,
        })
        .into();
    for verdict in [
        MtuVerdict::Told,
        MtuVerdict::BlackHole,
        MtuVerdict::FalseClaim,
        MtuVerdict::Unfinished,
    ] {
        found.verdict = verdict;
        text += &told(&found);
    }
    let group = GroupMtuReport {
        interface: "eth0".into(),
        interface_mtu_bytes: 1_500,
        receivers: vec![([10, 0, 0, 2].into(), 1_500), ([10, 0, 0, 3].into(), 1_400)],
        unlisted: 5,
        probes: 24,
    };
    text += &GroupMtuDocument::new("239.192.0.1", &group).text();
    insta::assert_snapshot!(fit(text));
}

fn facts() -> Facts {
    Facts {
        name: "here".into(),
        group: "239.192.0.1:7500".parse().expect("an address"),
        hops: 16,
        lasted: Duration::from_secs(10),
        interface: Some(InterfaceFacts {
            name: "eth0".into(),
            address: [10, 0, 0, 1].into(),
            prefix: Some(24),
            igmp: Some("v3".into()),
            condition: "up",
            notes: vec!["joined by 2 programs".into()],
        }),
        refusal: None,
        has_route: true,
        send_error: None,
        heard: Vec::new(),
        frames: vec![Frames {
            interface: "eth0".into(),
            source: [10, 0, 0, 2].into(),
            port: 7_501,
            hops_left: 15,
            count: 40,
        }],
        sees_wire: true,
        queriers: vec![Querier {
            interface: "eth0".into(),
            source: [10, 0, 0, 254].into(),
            version: "IGMPv3".into(),
        }],
        peers: Vec::new(),
        reverse_paths: Vec::new(),
        reverse_path_drops: 0,
        chains: Vec::new(),
        outgoing_chains: Vec::new(),
        has_reported: None,
        unlisted: Unlisted {
            frames: 3,
            ..Unlisted::default()
        },
    }
}

#[test]
fn reach() {
    let facts = facts();
    let arrives = ReachDocument(ReachReport {
        facts: facts.clone(),
        findings: Vec::new(),
    });
    let finding = Finding {
        cause: Cause::WrongPort,
        words: "10.0.0.2 sends to port 7501 of the group".into(),
        fix: "give both ends the same port".into(),
    };
    let fails = ReachDocument(ReachReport {
        facts: Facts {
            sees_wire: false,
            frames: Vec::new(),
            ..facts
        },
        findings: vec![finding],
    });
    insta::assert_snapshot!(fit(arrives.text() + "\n" + &fails.text()));
}

/// Returns the document's text, after a check that neither its text nor its JSON has a character
/// that a terminal obeys.
fn harmless<D: Document>(document: &D) -> String {
    let mut json = Vec::new();
    json::write(&mut json, D::SCHEMA, D::VERSION, document).expect("memory");
    let json = String::from_utf8(json).expect("UTF-8");
    let text = shown_text(document);
    for written in [&json, &text] {
        let is_fit = |c: char| c == '\n' || is_plain(c);
        assert!(written.chars().all(is_fit), "{written:?}");
    }
    text + "\n"
}

/// Checks each report that has names of files, or names and explanations from other hosts.
#[test]
fn hostile() {
    let odd = "\u{1b}]0;title\u{7}\u{1b}[1mbold\u{9b}0m\u{202e}gpj.exe\r";
    let file = format!("site/{odd}\nline two");
    let mut recv = RecvReport::new(GROUP.into(), None, Duration::from_millis(1_500));
    recv.error = Some(odd.into());
    recv.sender = Some(odd.into());
    recv.path = Some(file.clone());
    recv.absent = vec![file.clone()];
    recv.deleted = vec![file];
    (recv.passed_over, recv.passed_over_why) = (1, Some(odd.into()));
    let mut text = harmless(&recv);
    let publish = PublishReport {
        group: GROUP.into(),
        messages: 1,
        bytes: 1,
        discarded: 0,
        seconds: 0.0,
        failure: Some(odd.into()),
        is_confirmed: true,
        is_interrupted: false,
        receivers: 1,
        given_up: 0,
        unconfirmed: vec![odd.into()],
        limited_by: Some(LimitedBy {
            receiver: odd.into(),
            cause: "network".into(),
            bits_per_s: 1_000_000,
        }),
        census: None,
        drops: Counters::default(),
        counters: Counters::default(),
    };
    text += &harmless(&publish);
    let mut facts = facts();
    facts.peers = vec![PeerFacts {
        address: "10.0.0.2:7702".parse().expect("an address"),
        word: None,
    }];
    facts.send_error = Some(odd.into());
    let finding = Finding {
        cause: Cause::WrongPort,
        words: odd.into(),
        fix: odd.into(),
    };
    let findings = vec![finding];
    text += &harmless(&ReachDocument(ReachReport { facts, findings }));
    let sweep = SweepReport {
        servers: vec![odd.into()],
        group: None,
        interface: odd.into(),
        mtu_bytes: 1_500,
        link: None,
        is_ipv6: false,
        loss_max_share: 0.001,
        is_load_given: false,
        rows: Vec::new(),
        remarks: vec![odd.into()],
        cut: Some(odd.into()),
    };
    text += &harmless(&UdpReport(sweep));
    insta::assert_snapshot!(text);
}

/// Makes a clock that no daemon keeps right.
fn unkept_clock() -> ClockReport {
    ClockReport {
        source: "tsc".into(),
        sources: vec!["tsc".into(), "hpet".into()],
        ptp: Vec::new(),
        keepers: Vec::new(),
        is_synchronised: false,
        error_ns_max: 16_000_000_001,
        error_ns_estimated: 16_000_000_000,
        offset_ns: 0,
        frequency_ppb: -1_200,
        tai_offset_s: 0,
        has_leap: false,
        step_ns: 1,
        reading_ns: 24,
        one_way: "one-way delays to other hosts are not justified".into(),
        has_one_way: false,
    }
}

fn kept_clock() -> ClockReport {
    ClockReport {
        ptp: vec![PtpClock {
            device: "/dev/ptp0".into(),
            name: "e1000e".into(),
            adjustment_ppb_max: 23_999_999,
            offset: Some(PtpOffset {
                offset_ns: 37_000_001_500,
                error_ns_max: 801,
                from_utc_ns: Some(1_500),
                method: "read precisely",
            }),
            remark: None,
        }],
        keepers: vec![Keeper {
            program: "chronyd".into(),
            process: Some(712),
            state: Some(KeeperState {
                is_synchronised: true,
                stratum: Some(2),
                offset_ns: Some(-12_345),
                error_ns_max: Some(900_001),
            }),
        }],
        is_synchronised: true,
        error_ns_max: 900_001,
        error_ns_estimated: 20_000,
        tai_offset_s: 37,
        has_leap: true,
        ..unkept_clock()
    }
}

#[test]
fn clock() {
    let alone = ClockDocument {
        clock: unkept_clock(),
        between: None,
    };
    let times = OneWayTimes {
        min_ns: 21_000,
        p50_ns: 25_400,
        p99_ns: 80_000,
        max_ns: 120_000,
    };
    let state = ClockState {
        is_synchronised: true,
        error_ns_max: 900_001,
    };
    let between = Between {
        peer: "10.0.0.2:7700".parse().expect("an address"),
        here: state,
        there: state,
        is_one_clock: false,
        exchanges: 100,
        lost: 2,
        disturbed: 0,
        round_trip_p50_ns: 51_200,
        one_way: Some(OneWay {
            there: times,
            back: times,
            error_ns_max: 1_800_002,
        }),
        refusal: None,
    };
    let both = ClockDocument {
        clock: kept_clock(),
        between: Some(between),
    };
    insta::assert_snapshot!(fit(alone.text() + "\n" + &both.text()));
}
