//! RFC 3208 sections 9.5.4, 12.5, 15.2.2 and 15.3.2: what network elements, repairers and
//! congestion control ask of receivers.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod receiver_kit;

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use base::{DropReason, Verdict};
use receiver_kit::{
    Bench, NEIGHBOUR, OWN, SOURCE, downstream, dropped, joined, joined_with, made, nak_body, spm,
    upstream,
};
use towline_pgm::{Config, ConfigBuilder, Mode, Timer};
use wire::{
    Sqn,
    pgm::{
        Body, Cr, Crqst, Loads, NakBackOffInterval, NakBackOffRange, Packet, PathNla, PgmOption,
        Poll, Polr, Redirect, Spm,
    },
};

const ELEMENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9));
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 8));

fn follows_elements() -> ConfigBuilder {
    Config::builder().network_elements(true)
}

/// An SPM that came by the element at `path_nla`.
fn spm_by(path_nla: IpAddr, sqn: u32, lead: u32, options: &[PgmOption<'_>]) -> Vec<u8> {
    let body = Body::Spm(Spm {
        sqn: Sqn(sqn),
        trail: Sqn(10),
        lead: Sqn(lead),
        path_nla,
    });
    made(&downstream(), &body, options, &[])
}

#[test]
fn s9_5_4_redirects_are_counted_and_not_followed() {
    let mut bench = joined(Mode::Sequence, 10);
    let body = Body::Polr(Polr {
        sqn: Sqn(1),
        round: 0,
    });
    let redirect = PgmOption::Redirect(Redirect { dlr_nla: NEIGHBOUR });
    let offer = made(&upstream(), &body, &[redirect], &[]);
    let plain = made(&upstream(), &body, &[], &[]);
    // A repairer sends in the source's name.
    assert_eq!(bench.packet(&offer), Verdict::Control);
    assert_eq!(bench.packet(&plain), dropped(DropReason::Unexpected));
    assert_eq!(bench.receiver.counters().redirects_heard, 1);
    bench.odata(12, b"c");
    bench.pass_ms(5);
    let sent = bench.take_sent();
    assert_eq!(sent[0].nak_sqns(), [11]);
    assert_eq!(sent[0].to.ip(), SOURCE);
    bench.assert_accounts();
    let mut stranger = Bench::new(Mode::Sequence);
    let verdict = stranger.packet(&offer);
    assert_eq!(verdict, dropped(DropReason::UnknownSession));
}

/// The congestion reports of the NAKs that a lost packet brings about.
fn reports(bench: &mut Bench) -> Vec<Option<Cr>> {
    let sent = bench.take_sent();
    let naks = sent.iter().filter(|sent| !sent.nak_sqns().is_empty());
    let report = |bytes: &[u8]| {
        let packet = Packet::parse(bytes).unwrap();
        packet.options().find_map(|option| match option {
            PgmOption::Cr(report) => Some(report),
            _ => None,
        })
    };
    naks.map(|nak| report(&nak.bytes)).collect()
}

#[test]
fn s12_5_naks_report_the_loads_that_spms_ask_for() {
    let all = Loads {
        link: true,
        path: true,
        receiver: true,
    };
    let link = Loads {
        receiver: false,
        path: false,
        ..all
    };
    let mut bench = joined(Mode::Sequence, 1000);
    let mut sqn = 1000;
    for loads in [None, Some(all), Some(link), None] {
        let request = loads.map(|loads| PgmOption::Crqst(Crqst { loads }));
        bench.spm(sqn, request.as_slice());
        for _ in 0..99 {
            sqn += 1;
            bench.odata(sqn, b"x");
        }
        sqn += 2;
        bench.odata(sqn, b"x");
        bench.pass_ms(5);
        let expected = loads.map(|loads| Cr {
            loads,
            reference: Sqn(sqn),
            worst_link: 0,
            worst_path: 0,
            // Two of 203 packets were missing.
            worst_receiver_path: if loads.receiver {
                (65_535_u32 * 2 / 203) as u16
            } else {
                0
            },
            worst_receiver: OWN,
        });
        let found = reports(&mut bench);
        assert!(
            !found.is_empty() && found.iter().all(|report| *report == expected),
            "{found:?}"
        );
        bench.rdata(sqn - 1, b"x");
    }
    assert!(bench.receiver.counters().congestion_reports >= 2);
}

#[test]
fn s12_5_a_full_list_has_room_for_a_report() {
    let mut bench = joined(Mode::Sequence, 10);
    let loads = Loads {
        receiver: true,
        ..Loads::default()
    };
    bench.spm(10, &[PgmOption::Crqst(Crqst { loads })]);
    bench.odata(74, b"x");
    bench.pass_ms(5);
    let sent = bench.take_sent();
    assert_eq!(sent[0].nak_sqns(), (11..74).collect::<Vec<_>>());
    let packet = Packet::parse(&sent[0].bytes).unwrap();
    let kind = packet.header().kind;
    assert_eq!(packet.options().count(), 2);
    assert!(
        packet
            .options()
            .all(|option| option.is_network_significant(kind))
    );
}

/// The longest of 60 waits before a NAK, after packets that `prepare` hands in.
fn longest_wait(config: ConfigBuilder, prepare: impl FnOnce(&mut Bench)) -> Duration {
    let config = config.nak_backoff_min(Timer::Fixed(Duration::from_micros(1)));
    let mut bench = joined_with(Mode::Sequence, config, 10);
    prepare(&mut bench);
    // What is found at one time shares one draw.
    bench.pass_ms(1);
    let mut longest = Duration::ZERO;
    for sqn in (12..132).step_by(2) {
        let since = bench.now;
        bench.odata(sqn, b"x");
        while bench.sent.is_empty() {
            bench.pass(Duration::from_micros(100));
        }
        longest = longest.max(bench.take_sent()[0].at.since(since));
        bench.rdata(sqn - 1, b"x");
    }
    longest
}

fn interval(interval_us: u32, poll_sqn: u32) -> PgmOption<'static> {
    PgmOption::NakBackOffInterval(NakBackOffInterval {
        interval_us,
        poll_sqn: Sqn(poll_sqn),
    })
}

fn range(min_us: u32, max_us: u32) -> PgmOption<'static> {
    PgmOption::NakBackOffRange(NakBackOffRange { max_us, min_us })
}

fn us(from: u64, to: u64) -> std::ops::Range<Duration> {
    Duration::from_micros(from)..Duration::from_micros(to)
}

#[test]
fn s15_2_2_the_range_of_back_offs_in_spms_bounds_the_back_off() {
    let wait_in = |option: Option<PgmOption<'_>>| {
        longest_wait(Config::builder(), |bench| {
            bench.spm(10, option.as_slice());
        })
    };
    let usual = wait_in(None);
    assert!(us(1000, 5000).contains(&usual), "{usual:?}");
    let longer = wait_in(Some(range(40_000, 60_000)));
    assert!(us(20_000, 41_000).contains(&longer), "{longer:?}");
    let shorter = wait_in(Some(range(1, 300)));
    assert!(us(100, 400).contains(&shorter), "{shorter:?}");
    for nonsense in [range(9, 0), range(60_000, 40_000), range(0, 0)] {
        assert_eq!(wait_in(Some(nonsense)), usual);
    }
    // Nobody can stop the NAKs of an hour.
    let forged = wait_in(Some(range(u32::MAX, u32::MAX)));
    assert!(forged <= Duration::from_secs(1), "{forged:?}");
    let set = Config::builder().nak_backoff_max(Timer::Fixed(Duration::from_micros(700)));
    let own = longest_wait(set, |bench| {
        bench.spm(10, &[range(40_000, 60_000)]);
    });
    assert!(
        own <= Duration::from_micros(800),
        "what is set stays: {own:?}"
    );
}

#[test]
fn s15_2_2_a_back_off_that_a_poll_found_waits_for_that_poll() {
    let poll = |sqn: u32, round: u16| {
        let body = Body::Poll(Poll {
            sqn: Sqn(sqn),
            round,
            sub_type: Poll::GENERAL,
            path_nla: SOURCE,
            back_off_us: 0,
            random: 0,
            mask: u32::MAX,
        });
        made(&downstream(), &body, &[], &[])
    };
    let told = us(20_000, 41_000);
    for (polled, poll_sqn, is_used) in [
        (None, 0, true),
        (None, 7, false),
        (Some((7, 0)), 7, true),
        (Some((6, 0)), 7, true),
        (Some((7, 1)), 7, false),
        (Some((8, 0)), 7, false),
    ] {
        for by_ncf in [false, true] {
            let wait = longest_wait(Config::builder(), |bench| {
                if let Some((sqn, round)) = polled {
                    bench.packet(&poll(sqn, round));
                    bench.pass_ms(1);
                    bench.take_sent();
                }
                if by_ncf {
                    let ncf = Body::Ncf(nak_body(10));
                    bench.packet(&made(
                        &downstream(),
                        &ncf,
                        &[interval(40_000, poll_sqn)],
                        &[],
                    ));
                } else {
                    bench.spm(10, &[interval(40_000, poll_sqn)]);
                }
            });
            assert_eq!(
                told.contains(&wait),
                is_used,
                "{polled:?} {poll_sqn}: {wait:?}"
            );
        }
    }
}

/// A receiver that misses packet 11 and sends its NAKs to `ELEMENT`, before its first NAK.
fn below_an_element() -> Bench {
    let mut bench = joined_with(Mode::Sequence, follows_elements(), 10);
    let by_element = spm_by(ELEMENT, 9000, 10, &[]);
    assert_eq!(bench.packet(&by_element), Verdict::Control);
    bench.odata(12, b"c");
    bench
}

fn ncf_unreachable(path: Option<IpAddr>) -> Vec<u8> {
    let path = path.map(|nla| PgmOption::PathNla(PathNla { nla }));
    let options = [Some(PgmOption::NbrUnreach), path];
    let options: Vec<_> = options.into_iter().flatten().collect();
    made(&downstream(), &Body::Ncf(nak_body(11)), &options, &[])
}

#[test]
fn s15_3_2_an_unreachable_parent_is_not_asked_until_a_regular_spm() {
    // The special SPM has the number of the last regular one, and a window that means nothing.
    let special = spm_by(ELEMENT, 9000, 70_000, &[PgmOption::NbrUnreach]);
    for packet in [special, ncf_unreachable(Some(ELEMENT))] {
        let mut bench = below_an_element();
        assert_eq!(bench.packet(&packet), Verdict::Control);
        bench.pass_ms(3000);
        assert!(bench.take_sent().is_empty());
        bench.packet(&spm_by(ELEMENT, 9001, 12, &[]));
        bench.pass_ms(5);
        assert_eq!(
            bench.take_naks(),
            [11],
            "and nothing of a window up to 70,000"
        );
    }
    // By default NAKs go to the source, and no element can stop them.
    let mut bench = joined(Mode::Sequence, 10);
    bench.odata(12, b"c");
    bench.packet(&spm_by(SOURCE, 9000, 70_000, &[PgmOption::NbrUnreach]));
    bench.pass_ms(5);
    assert_eq!(bench.take_naks(), [11]);
}

#[test]
fn s15_3_2_what_another_element_says_of_its_reach_is_ignored() {
    let special = spm_by(OTHER, 9001, 70_000, &[PgmOption::NbrUnreach]);
    for packet in [special, ncf_unreachable(Some(OTHER)), ncf_unreachable(None)] {
        let mut bench = below_an_element();
        assert_eq!(bench.packet(&packet), dropped(DropReason::Unexpected));
        bench.pass_ms(5);
        let sent = bench.take_sent();
        assert_eq!((sent[0].nak_sqns(), sent[0].to.ip()), (vec![11], ELEMENT));
    }
}

#[test]
fn an_unreachable_parent_of_no_session_is_nothing() {
    let mut bench = Bench::with(Mode::Sequence, follows_elements());
    let first = spm_by(ELEMENT, 1, 70_000, &[PgmOption::NbrUnreach]);
    assert_eq!(bench.packet(&first), dropped(DropReason::Unexpected));
    assert_eq!(bench.packet(&spm(5, 10, 9, &[])), Verdict::Control);
    bench.assert_accounts();
}
