//! Tests when reports are sent. Tests of the audience show what reports cause.

use wire::object::{StreamPhase, VERSION, Window};

use super::*;
use crate::{
    fabric::{Fabric, over_ipv4_and_ipv6},
    parameters::{GREETING_TIMEOUT, REDIAL_MIN},
};

const LINK: LinkId = LinkId(4);

fn source() -> IpAddr {
    Fabric::address(1).ip()
}

fn at(ms: u64) -> Instant {
    Instant::from_nanos(1_000_000_000 + ms * 1_000_000)
}

fn mark(limiting: u32) -> Mark {
    let mut mark = Mark::new(Profile::Messages, 5);
    mark.control_port = 4000;
    mark.limiting_receiver = limiting;
    mark
}

/// Makes a reporter that was admitted as slot 2, and asked to report every 50 ms or 100 positions.
fn reporting() -> Reporter {
    one_of(3, 1)
}

/// Makes such a reporter as one of `count` receivers; more than 250 report less often.
fn one_of(count: u32, seed: u64) -> Reporter {
    let mut reporter = greeting_with(seed);
    welcome(&mut reporter, at(0), count);
    sent(&mut reporter);
    reporter
}

/// Makes a reporter that has sent its greeting.
fn greeting() -> Reporter {
    let mut reporter = greeting_with(1);
    assert_eq!(said(&mut reporter), ["HELLO"]);
    reporter
}

fn greeting_with(seed: u64) -> Reporter {
    let mut reporter = Reporter::new(ReporterConfig::new("r", seed));
    reporter.mark(at(0), 0, source(), &mark(u32::MAX));
    reporter.handle_timeout(at(0));
    let Some(LinkCommand::Open { key, .. }) = reporter.poll_link() else {
        panic!("no connection asked for");
    };
    reporter.link_opened(key, LINK);
    reporter.handle_link(at(0), LINK, LinkEvent::Opened, &[]);
    reporter
}

/// Lets the sender admit the reporter as slot 2, one of `count` receivers.
fn welcome(reporter: &mut Reporter, now: Instant, count: u32) {
    let mut bytes = Vec::new();
    let welcome = Welcome {
        version: VERSION,
        slot: 2,
        manifest: [0; 16],
        session_id: 5,
        receiver_count: count,
        report_interval_us: (200 * count).max(50_000),
        report_sqns: 100,
        manifest_bytes: 0,
        is_late: false,
        nonce: [0; 16],
    };
    Message::Welcome(welcome).emit(&mut bytes);
    reporter.handle_link(now, LINK, LinkEvent::Data, &bytes);
}

/// Takes the queued messages. Returns their names.
fn said(reporter: &mut Reporter) -> Vec<&'static str> {
    let mut names = Vec::new();
    while let Some(command) = reporter.poll_link() {
        let LinkCommand::Send { link, bytes } = command else {
            continue;
        };
        let mut decoder = Decoder::new(1000);
        decoder.push(bytes);
        let len = bytes.len();
        while let Some(message) = decoder.next_message().unwrap() {
            names.push(message.name());
        }
        reporter.link_sent(link, len);
    }
    names
}

/// Takes the queued bytes of one command. Returns how many there were.
fn sent(reporter: &mut Reporter) -> usize {
    match reporter.poll_link() {
        Some(LinkCommand::Send { link, bytes }) => {
            let len = bytes.len();
            reporter.link_sent(link, len);
            len
        }
        _ => 0,
    }
}

#[test]
fn reports_come_on_change_and_at_least_once_a_second() {
    let mut reporter = reporting();
    assert_eq!(reporter.next_timeout(), None, "no position is known");
    reporter.observe(at(0), 0, &StreamState::at(10, 50));
    assert!(sent(&mut reporter) > 0, "the first at once");
    reporter.observe(at(20), 0, &StreamState::at(20, 50));
    assert_eq!(sent(&mut reporter), 0);
    assert_eq!(reporter.next_timeout(), Some(at(50)));
    reporter.handle_timeout(at(50));
    assert!(sent(&mut reporter) > 0);
    assert_eq!(
        reporter.next_timeout(),
        Some(at(1050)),
        "nothing has changed"
    );
}

#[test]
fn who_moves_far_or_limits_or_has_caught_up_reports_sooner() {
    for (limiting, contiguous, expected) in [(9, 120, 1), (2, 20, 5), (9, 51, 5), (9, 20, 50)] {
        let mut reporter = reporting();
        reporter.observe(at(0), 0, &StreamState::at(10, 50));
        reporter.mark(at(0), 0, source(), &mark(limiting));
        let lead = contiguous.max(51) - 1;
        let lead = if contiguous == 120 { 500 } else { lead };
        reporter.observe(at(0), 0, &StreamState::at(contiguous, lead));
        assert_eq!(
            reporter.next_timeout(),
            Some(at(expected)),
            "{limiting} {contiguous}"
        );
    }
}

#[test]
fn a_thousand_that_see_the_same_packets_report_within_the_bound_of_all_together() {
    let mut group: Vec<Reporter> = (0..1000).map(|seed| one_of(1000, seed)).collect();
    let mut each_ms = Vec::new();
    // Silence, then packets at a rate that makes every report due by distance at once, then a
    // sender that waits: everybody has caught up.
    for ms in 0..3000 {
        let contiguous = match ms {
            ..500 => 10,
            500..2000 => 10 + (ms - 500) * 50,
            _ => 75_010,
        };
        let lead = if ms < 2000 { contiguous + 9 } else { 75_009 };
        let mut count = 0;
        for reporter in &mut group {
            reporter.observe(at(ms), 0, &StreamState::at(contiguous, lead));
            reporter.handle_timeout(at(ms));
            count += u64::from(sent(reporter) > 0);
        }
        each_ms.push(count);
    }
    let all: u64 = group.iter().map(|one| one.counters().reports).sum();
    assert!(each_ms.iter().sum::<u64>() == all && all > 6_000, "{all}");
    for length in [100, 1000] {
        let busiest = each_ms.windows(length).map(|part| part.iter().sum::<u64>());
        let busiest = busiest.max().unwrap();
        // One in 0.2 ms, and four standard deviations of as many draws.
        let bound = 5 * length as u64;
        let most = bound + 4 * bound.isqrt();
        println!("{busiest} reports in the busiest {length} ms, of {all}");
        assert!(busiest <= most, "{busiest} in {length} ms, {most} allowed");
    }
}

#[test]
fn a_sender_that_does_not_read_costs_no_memory() {
    let mut reporter = reporting();
    for n in 0..10_000 {
        reporter.observe(at(60 * n), 0, &StreamState::at(10 + n, 1 << 30));
    }
    assert!(reporter.counters().reports_skipped > 9_000);
    let Some(LinkCommand::Send { bytes, .. }) = reporter.poll_link() else {
        panic!("nothing queued");
    };
    assert!(bytes.len() < 2 * REPORTS_QUEUED_MAX);
}

#[test]
fn hostile_answers_are_survived_and_dialled_again_later() {
    for bytes in [&b"\xff\xff\xff\xff"[..], b"\0\0\0\x01\0\x02\0\0\x01"] {
        let mut reporter = reporting();
        reporter.handle_link(at(1), LINK, LinkEvent::Data, bytes);
        assert!(!reporter.is_reporting(0));
        assert_eq!(reporter.counters().violations, 1);
        assert!(reporter.next_timeout().unwrap() >= at(1) + REDIAL_MIN);
    }
}

/// Lets the reporter dial as often as it wants, until it has nothing left to do or a minute is
/// over. `answer` gives the sender's message on each connection, or `None` when the connection
/// fails. The reporter hears the sender's marks all the time. Returns the time at the end and the
/// number of answers.
fn dialled(
    reporter: &mut Reporter,
    mut answer: impl FnMut(Instant) -> Option<Message<'static>>,
) -> (Instant, u32) {
    let (mut now, mut answers) = (at(0), 0);
    while let Some(due) = reporter.next_timeout().filter(|&due| due < at(60_000)) {
        now = now.max(due);
        reporter.handle_timeout(now);
        let Some(LinkCommand::Open { key, .. }) = reporter.poll_link() else {
            continue;
        };
        reporter.link_opened(key, LINK);
        reporter.mark(now, 0, source(), &mark(u32::MAX));
        let Some(message) = answer(now) else {
            reporter.handle_link(now, LINK, LinkEvent::Closed, &[]);
            continue;
        };
        reporter.handle_link(now, LINK, LinkEvent::Opened, &[]);
        sent(reporter);
        let mut bytes = Vec::new();
        message.emit(&mut bytes);
        reporter.handle_link(now, LINK, LinkEvent::Data, &bytes);
        while let Some(LinkCommand::Close { .. } | LinkCommand::Send { .. }) = reporter.poll_link()
        {
            sent(reporter);
        }
        answers += 1;
    }
    (now, answers)
}

#[test]
fn a_sender_that_knows_no_questions_is_waited_for_once() {
    let mut reporter = reporting();
    reporter.observe(at(0), 0, &StreamState::at(10, 50));
    sent(&mut reporter);
    assert!(reporter.ask(at(10), 0));
    assert_eq!(said(&mut reporter), ["ASK"]);
    assert!(reporter.ask(at(900), 0), "it waits");
    assert!(!reporter.ask(at(1_010), 0), "no answer came");
    assert!(!reporter.ask(at(5_000), 0));
    assert_eq!(said(&mut reporter), [""; 0]);
    // A late answer shows that it does know them.
    let mut bytes = Vec::new();
    let window = Window {
        trail: 1,
        end: 20,
        phase: StreamPhase::Open,
    };
    Message::Window(window).emit(&mut bytes);
    reporter.handle_link(at(5_100), LINK, LinkEvent::Data, &bytes);
    assert!(reporter.ask(at(5_200), 0));
    assert_eq!(said(&mut reporter), ["ASK"]);
}

const TAKEN: Message<'_> = Message::Refused {
    reason: Refusal::DuplicateName,
    text: "taken",
};

#[test]
fn a_name_that_stays_taken_is_believed_once_a_dead_connection_would_be_gone() {
    let mut reporter = Reporter::new(ReporterConfig::new("r", 1));
    reporter.mark(at(0), 0, source(), &mark(u32::MAX));
    let (ended, refusals) = dialled(&mut reporter, |_| Some(TAKEN));
    let told: Vec<_> = std::iter::from_fn(|| reporter.pop_event()).collect();
    assert!(
        matches!(
            told[..],
            [
                ReporterEvent::NameTaken { session: 0 },
                ReporterEvent::Refused { .. }
            ]
        ),
        "{told:?}"
    );
    assert_eq!(reporter.next_timeout(), None, "no more of it");
    assert!(ended >= at(7_000) && refusals < 20, "{ended:?} {refusals}");
}

#[test]
fn a_name_taken_by_our_own_dead_connection_is_waited_for_after_dials_that_failed() {
    let mut reporter = Reporter::new(ReporterConfig::new("r", 1));
    reporter.mark(at(0), 0, source(), &mark(u32::MAX));
    let welcome = Welcome {
        version: VERSION,
        slot: 0,
        manifest: [0; 16],
        session_id: 5,
        receiver_count: 1,
        report_interval_us: 50_000,
        report_sqns: 100,
        manifest_bytes: 0,
        is_late: false,
        nonce: [0; 16],
    };
    // The link is cut for two seconds; the sender lets go of the old connection five later.
    let (welcomed, _) = dialled(&mut reporter, |now| {
        let answer = match now < at(7_000) {
            true => TAKEN,
            false => Message::Welcome(welcome),
        };
        (now >= at(2_000)).then_some(answer)
    });
    assert!(reporter.is_reporting(0), "{:?}", reporter.pop_event());
    assert!(reporter.counters().dialled > 5 && welcomed >= at(7_000));
}

#[test]
fn a_sender_that_shows_no_key_is_not_reported_to_by_one_that_has_one() {
    let mut config = ReporterConfig::new("r", 1);
    config.key = Some(crate::Key::derive(b"secret", protection::portable));
    let mut reporter = Reporter::new(config);
    reporter.mark(at(0), 0, source(), &mark(u32::MAX));
    // As senders answer that know of no keys for messages.
    let welcome = Welcome {
        version: VERSION,
        slot: 0,
        manifest: [0; 16],
        session_id: 5,
        receiver_count: 1,
        report_interval_us: 50_000,
        report_sqns: 100,
        manifest_bytes: 0,
        is_late: false,
        nonce: [0; 16],
    };
    let (_, answers) = dialled(&mut reporter, |_| Some(Message::Welcome(welcome)));
    assert!(
        answers > 1,
        "it is dialled again: its SPMs have shown the key"
    );
    reporter.observe(at(60_000), 0, &StreamState::at(10, 50));
    assert_eq!(sent(&mut reporter), 0);
    assert!(!reporter.is_reporting(0));
    assert_eq!(reporter.counters().not_believed, answers.into());
    let told = reporter.pop_event();
    let is_told = matches!(
        told,
        Some(ReporterEvent::Refused {
            reason: Refusal::NoKey,
            is_proven: false,
            ..
        })
    );
    assert!(is_told, "{told:?}");
    assert_eq!(reporter.pop_event(), None, "once");
}

#[test]
fn what_was_over_before_the_welcome_is_reported_with_it() {
    let mut reporter = greeting();
    reporter.observe(at(1), 0, &StreamState::at(8, 7));
    reporter.session_over(at(1), 0);
    assert_eq!(said(&mut reporter), [""; 0], "the sender has yet to answer");
    assert!(!reporter.is_idle());
    welcome(&mut reporter, at(2), 3);
    assert_eq!(said(&mut reporter), ["POS", "BYE"]);
    assert!(reporter.is_idle());
}

#[test]
fn a_sender_that_does_not_answer_is_not_waited_for_after_its_session() {
    let mut reporter = greeting();
    reporter.observe(at(1), 0, &StreamState::at(8, 7));
    reporter.session_over(at(1), 0);
    let due = reporter.next_timeout().unwrap();
    assert_eq!(due, at(1) + GREETING_TIMEOUT);
    reporter.handle_timeout(due);
    assert_eq!(
        reporter.poll_link(),
        Some(LinkCommand::Close { link: LINK })
    );
    assert!(reporter.is_idle());
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "time goes back")]
fn an_owner_whose_time_goes_back_is_named() {
    let mut reporter = greeting();
    reporter.handle_timeout(at(5));
    reporter.handle_timeout(at(4));
}

#[test]
fn senders_that_do_not_answer_are_waited_for_up_to_a_bound() {
    let mut reporter = greeting();
    reporter.sessions_max = 1;
    reporter.session_over(at(1), 0);
    reporter.mark(at(1), 0, source(), &mark(u32::MAX));
    reporter.handle_timeout(at(1_000));
    let Some(LinkCommand::Open { key, .. }) = reporter.poll_link() else {
        panic!("no connection asked for");
    };
    let other = LinkId(LINK.0 + 1);
    reporter.link_opened(key, other);
    reporter.handle_link(at(1_000), other, LinkEvent::Opened, &[]);
    assert_eq!(said(&mut reporter), ["HELLO"]);
    reporter.session_over(at(1_001), 0);
    assert_eq!(said(&mut reporter), ["BYE"]);
    assert_eq!(reporter.counters().parted_unreported, 1);
}

fn opened(reporter: &mut Reporter) -> Vec<(SocketAddr, u32)> {
    let mut opened = Vec::new();
    while let Some(command) = reporter.poll_link() {
        match command {
            LinkCommand::Open { peer, key } => opened.push((peer, key)),
            LinkCommand::Send { link, bytes } => {
                let taken = bytes.len();
                reporter.link_sent(link, taken);
            }
            LinkCommand::Close { .. } | LinkCommand::Pause { .. } => {}
        }
    }
    opened
}

#[test]
fn forged_marks_make_it_dial_at_a_rate_and_keep_no_sender_out() {
    // Dialling sees addresses of TCP and no group: the two families are all kinds.
    for host in ["10.0.0.1", "fd00::1"] {
        let host: IpAddr = host.parse().unwrap();
        let mut reporter = Reporter::new(ReporterConfig::new("r", 1));
        let (mut dials, mut link, mut waited) = (0, 100, None);
        // 2,000 marks a second with sessions that are not there, as many as a table of peers keeps;
        // from 8 s on a sender that is there is heard every 50 ms.
        for ms in 0..10_000 {
            for n in 0..2 {
                let mut forged = mark(u32::MAX);
                (forged.session_id, forged.control_port) = (1000 + 2 * ms + n, 22);
                let session = 1 + (2 * ms + n) as u32 % 250;
                reporter.mark(at(ms), session, host, &forged);
            }
            if ms >= 8_000 && ms % 50 == 0 {
                let other = host_beside(host);
                reporter.mark(at(ms), 0, other, &mark(u32::MAX));
            }
            reporter.handle_timeout(at(ms));
            for (peer, key) in opened(&mut reporter) {
                link += 1;
                reporter.link_opened(key, LinkId(link));
                if peer.ip() == host {
                    dials += 1;
                    reporter.handle_link(at(ms), LinkId(link), LinkEvent::Closed, &[]);
                } else {
                    waited.get_or_insert(ms - 8_000);
                }
            }
        }
        assert!(
            (30..=16 + 4 * 10).contains(&dials),
            "{dials} dials of {host}"
        );
        assert!(waited.is_some_and(|ms| ms <= 1_000), "{waited:?}");
    }
}

/// Returns another address on the same network.
fn host_beside(host: IpAddr) -> IpAddr {
    match host {
        IpAddr::V4(_) => "10.0.0.2".parse().unwrap(),
        IpAddr::V6(_) => "fd00::2".parse().unwrap(),
    }
}

#[test]
fn silent_senders_of_one_host_take_half_of_the_places() {
    over_ipv4_and_ipv6(|| {
        let host = source();
        let mut reporter = Reporter::new(ReporterConfig::new("r", 1));
        let mut peers = Vec::new();
        for ms in (0..20_000).step_by(50) {
            for session in 1..40 {
                let mut silent = mark(u32::MAX);
                silent.session_id = 100 + u64::from(session);
                reporter.mark(at(ms), session, host, &silent);
            }
            if ms >= 10_000 {
                reporter.mark(at(ms), 0, host_beside(host), &mark(u32::MAX));
            }
            reporter.handle_timeout(at(ms));
            for (peer, key) in opened(&mut reporter) {
                let link = LinkId(1000 + peers.len() as u32);
                reporter.link_opened(key, link);
                reporter.handle_link(at(ms), link, LinkEvent::Opened, &[]);
                peers.push((ms, peer.ip()));
            }
        }
        let other = peers.iter().find(|(_, peer)| *peer == host_beside(host));
        assert_eq!(other.map(|(ms, _)| *ms), Some(10_000), "{peers:?}");
        let together = peers.iter().filter(|(ms, _)| *ms < 2_900).count();
        assert_eq!(together, 8, "half of the places");
    });
}

#[test]
fn a_mark_of_another_session_does_not_end_the_reports() {
    over_ipv4_and_ipv6(|| {
        let mut reporter = reporting();
        reporter.observe(at(0), 0, &StreamState::at(10, 50));
        assert!(sent(&mut reporter) > 0);
        let mut forged = mark(u32::MAX);
        forged.session_id = 6;
        reporter.mark(at(1), 0, source(), &forged);
        assert_eq!(said(&mut reporter), [""; 0], "no good-bye");
        assert!(reporter.is_reporting(0));
        assert_eq!(reporter.counters().marks_refused, 1);
    });
}
