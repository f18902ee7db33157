//! Audience and reporters over control connections in memory.

use std::net::IpAddr;

use base::Rng;
use wire::{
    object::{Decoder, HELLO_LEN_MAX},
    pgm::{Mark, Profile},
};

use super::*;
use crate::{
    Key, Reporter, ReporterConfig, ReporterEvent, StreamState,
    fabric::{Fabric, Linked, linked},
};

mod guests;

linked!(Reporter);

impl Linked for Audience {
    fn handle_link(&mut self, now: Instant, link: LinkId, event: LinkEvent, data: &[u8]) {
        Self::handle_link(self, now, link, event, data);
    }
    fn poll_link(&mut self) -> Option<LinkCommand<'_>> {
        Self::poll_link(self)
    }
    fn link_sent(&mut self, link: LinkId, taken: usize) {
        Self::link_sent(self, link, taken);
    }
    fn link_opened(&mut self, _key: u32, _link: LinkId) {}
}

const SESSION: u64 = 77;
const FIRST: u64 = (1 << 32) + 4_000_000_000;

/// A sender (node 0) and receivers (nodes 1..) in virtual time.
struct World {
    now: Instant,
    fabric: Fabric,
    audience: Audience,
    reporters: Vec<Reporter>,
    /// A stopped receiver does nothing but keep its connection.
    stopped: Vec<bool>,
    /// The next position each application has not been given.
    positions: Vec<u64>,
    lead: u64,
}

impl World {
    fn new(receivers: usize, policy: Policy) -> Self {
        let mut config = AudienceConfig::new(SESSION);
        config.policy = policy;
        config.expected = u32::try_from(receivers).unwrap();
        let reporters = (1..=receivers)
            .map(|n| Reporter::new(ReporterConfig::new(format!("r{n}"), n as u64)))
            .collect();
        Self {
            now: Instant::from_nanos(1_000_000),
            fabric: Fabric::new(5),
            audience: Audience::new(config),
            reporters,
            stopped: vec![false; receivers],
            positions: vec![FIRST; receivers],
            lead: FIRST - 1,
        }
    }

    fn mark() -> Mark {
        let mut mark = Mark::new(Profile::Messages, SESSION);
        mark.control_port = Fabric::address(0).port();
        mark
    }

    /// Runs one millisecond.
    fn step(&mut self) {
        self.now += Duration::from_millis(1);
        self.audience.set_lead(self.lead);
        let mut mark = Self::mark();
        mark.limiting_receiver = self.audience.limiting().unwrap_or(Mark::NO_RECEIVER);
        self.fabric.deliver(self.now, 0, &mut self.audience, 1000);
        self.audience.handle_timeout(self.now);
        while self.fabric.pump(0, &mut self.audience) {}
        for (index, reporter) in self.reporters.iter_mut().enumerate() {
            if self.stopped[index] {
                continue;
            }
            let node = index + 1;
            self.fabric.deliver(self.now, node, reporter, 1000);
            reporter.mark(self.now, 9, Fabric::address(0).ip(), &mark);
            // Receivers number positions from their own origin: only the low 32 bits agree.
            let at = StreamState::at(self.positions[index] - (1 << 32), self.lead - (1 << 32));
            reporter.observe(self.now, 9, &at);
            if reporter.next_timeout().is_some_and(|due| due <= self.now) {
                reporter.handle_timeout(self.now);
            }
            while self.fabric.pump(node, reporter) {}
        }
    }

    fn run(&mut self, steps: u32) {
        for _ in 0..steps {
            self.step();
        }
    }

    fn events(&mut self) -> Vec<AudienceEvent> {
        std::iter::from_fn(|| self.audience.pop_event()).collect()
    }
}

#[test]
fn the_slowest_receiver_holds_the_sender_back() {
    let mut world = World::new(3, Policy::Wait);
    assert_eq!(world.audience.hold(), Some(0), "nobody has joined");
    world.run(60);
    assert_eq!(world.audience.receiver_count(), 3);
    assert_eq!(world.audience.hold(), Some(FIRST));
    world.lead = FIRST + 999;
    world.positions = vec![FIRST + 1000, FIRST + 400, FIRST + 700];
    world.run(60);
    assert_eq!(world.audience.hold(), Some(FIRST + 400));
    let names: Vec<_> = world
        .audience
        .receivers()
        .map(|r| (r.slot, r.name.to_owned()))
        .collect();
    let limiting = world.audience.limiting().unwrap();
    assert!(names.contains(&(limiting, "r2".to_owned())));
    assert!(!world.audience.has_confirmed(FIRST + 1000));
    world.positions = vec![FIRST + 1000; 3];
    world.run(20);
    assert!(world.audience.has_confirmed(FIRST + 1000));
}

#[test]
fn positions_run_over_the_32_bit_boundary() {
    let mut world = World::new(1, Policy::Wait);
    world.run(60);
    world.lead = (2 << 32) + 10;
    world.positions[0] = (2 << 32) + 5;
    world.run(60);
    assert_eq!(world.audience.hold(), Some((2 << 32) + 5));
}

#[test]
fn a_killed_receiver_leaves_and_the_rest_go_on() {
    let mut world = World::new(2, Policy::Wait);
    world.run(60);
    world.lead = FIRST + 99;
    world.positions = vec![FIRST + 10, FIRST + 100];
    world.run(60);
    assert_eq!(world.audience.hold(), Some(FIRST + 10));
    world.events();
    world.stopped[0] = true;
    world.fabric.crash(1);
    world.run(5);
    assert_eq!(world.audience.hold(), Some(FIRST + 100));
    let events = world.events();
    let [
        AudienceEvent::Left {
            name,
            behind,
            reason,
            ..
        },
    ] = &events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!(
        (name.as_str(), *behind, reason),
        ("r1", 90, &LeaveReason::Closed)
    );
}

#[test]
fn a_stopped_receiver_is_waited_for_and_named() {
    let mut world = World::new(2, Policy::Wait);
    world.run(60);
    world.events();
    world.stopped[0] = true;
    world.lead = FIRST + 99;
    world.positions = vec![FIRST, FIRST + 100];
    world.run(3_000);
    assert_eq!(world.audience.hold(), Some(FIRST));
    let events = world.events();
    assert!(
        matches!(&events[..], [AudienceEvent::Stalled { name, behind: 100, .. }] if name == "r1"),
        "{events:?}"
    );
    world.stopped[0] = false;
    world.positions[0] = FIRST + 100;
    world.run(100);
    assert_eq!(world.audience.hold(), Some(FIRST + 100));
    let events = world.events();
    assert!(matches!(&events[..], [AudienceEvent::Resumed { name, .. }] if name == "r1"));
}

#[test]
fn policy_drop_drops_the_slow_one_and_tells_it() {
    let mut world = World::new(2, Policy::Drop);
    world.run(60);
    world.events();
    for n in 0..4_000 {
        world.lead = FIRST + 10 * n;
        // The first is alive and makes progress, at a tenth of the pace.
        world.positions = vec![FIRST + n, FIRST + 10 * n + 1];
        world.step();
    }
    let events = world.events();
    assert!(
        matches!(&events[..], [AudienceEvent::Dropped { name, .. }] if name == "r1"),
        "{events:?}"
    );
    assert!(world.audience.hold() > Some(FIRST + 39_000));
    let told = std::iter::from_fn(|| world.reporters[0].pop_event()).last();
    assert!(matches!(
        told,
        Some(ReporterEvent::Dropped {
            code: ErrorCode::TooSlow,
            ..
        })
    ));
    assert!(
        !world.reporters[0].is_reporting(9),
        "and it does not come back"
    );
}

#[test]
fn policy_lose_never_holds_back() {
    let mut world = World::new(1, Policy::Lose);
    world.run(60);
    world.lead = FIRST + 99;
    world.run(60);
    assert_eq!(world.audience.hold(), None);
    assert_eq!(world.audience.receivers().next().unwrap().behind, 100);
}

#[test]
fn a_cut_connection_is_dialled_again() {
    let mut world = World::new(1, Policy::Wait);
    world.run(60);
    world.fabric.cut(1);
    world.run(2_000);
    assert_eq!(world.audience.receiver_count(), 1);
    assert_eq!(world.reporters[0].counters().connections_lost, 1);
}

#[test]
fn a_second_receiver_of_one_name_is_refused() {
    let mut world = World::new(2, Policy::Wait);
    world.reporters[1] = Reporter::new(ReporterConfig::new("r1", 99));
    world.run(50_000);
    assert_eq!(world.audience.receiver_count(), 1);
    let told: Vec<_> = world
        .reporters
        .iter_mut()
        .flat_map(|r| std::iter::from_fn(|| r.pop_event()))
        .collect();
    let is_refusal = |event: &ReporterEvent| {
        matches!(
            event,
            ReporterEvent::Refused {
                reason: Refusal::DuplicateName,
                ..
            }
        )
    };
    assert_eq!(told.iter().filter(|event| is_refusal(event)).count(), 1);
    let is_warning = |event: &&ReporterEvent| **event == ReporterEvent::NameTaken { session: 9 };
    assert_eq!(told.iter().filter(is_warning).count(), 1);
}

#[test]
fn a_receiver_started_anew_takes_the_place_of_the_dead_one_of_its_name() {
    let mut world = World::new(2, Policy::Wait);
    world.reporters[1] = Reporter::new(ReporterConfig::new("r1", 99));
    world.stopped[1] = true;
    world.run(60);
    // Its host loses its power, and the sender is not told.
    world.stopped = vec![true, false];
    world.run(1_000);
    let told = world.reporters[1].pop_event();
    assert_eq!(told, Some(ReporterEvent::NameTaken { session: 9 }));
    assert_eq!(world.audience.receiver_count(), 1, "the first");
    world.events();
    // One that lives would have reported by now.
    world.run(6_000);
    let told = world.reporters[1].pop_event();
    let joined = ReporterEvent::Joined {
        session: 9,
        slot: 0,
    };
    assert_eq!(told, Some(joined), "told once that the name is taken");
    assert!(world.reporters[1].is_reporting(9));
    assert_eq!(world.audience.receiver_count(), 1);
    let events = world.events();
    let is_change = |event: &&AudienceEvent| !matches!(event, AudienceEvent::Refused { .. });
    let changes: Vec<_> = events.iter().filter(is_change).collect();
    assert!(
        matches!(
            changes[..],
            [
                AudienceEvent::Left {
                    reason: LeaveReason::Closed,
                    ..
                },
                AudienceEvent::Joined { slot: 0, .. }
            ]
        ),
        "{changes:?}"
    );
}

/// Makes a world of one receiver and a sender with these keys.
fn keyed(sender: Option<&str>, receiver: Option<&str>) -> World {
    let key = |secret: Option<&str>| {
        secret.map(|secret| Key::derive(secret.as_bytes(), protection::portable))
    };
    let mut world = World::new(1, Policy::Wait);
    let mut config = AudienceConfig::new(SESSION);
    config.expected = 1;
    config.key = key(sender);
    world.audience = Audience::new(config);
    let mut config = ReporterConfig::new("r1", 1);
    config.key = key(receiver);
    world.reporters[0] = Reporter::new(config);
    world
}

#[test]
fn with_one_key_at_both_ends_a_receiver_joins_reports_and_comes_back() {
    let mut world = keyed(Some("secret"), Some("secret"));
    world.run(60);
    assert_eq!(world.audience.receiver_count(), 1);
    world.lead = FIRST + 99;
    world.positions = vec![FIRST + 40];
    world.run(60);
    assert_eq!(world.audience.hold(), Some(FIRST + 40));
    world.fabric.cut(1);
    world.run(2_000);
    assert_eq!(world.audience.hold(), Some(FIRST + 40));
    assert_eq!(world.audience.counters().challenged, 2);
    assert_eq!(world.audience.counters().refused, 0);
}

#[test]
fn without_the_right_key_nobody_joins_and_nothing_is_reported() {
    for (sender, receiver, reason) in [
        (Some("secret"), Some("other"), Refusal::WrongKey),
        (Some("secret"), None, Refusal::KeyRequired),
        (None, Some("secret"), Refusal::NoKey),
    ] {
        let mut world = keyed(sender, receiver);
        world.run(5_000);
        assert_eq!(world.audience.receiver_count(), 0, "{reason:?}");
        assert_eq!(
            world.audience.hold(),
            Some(0),
            "who is expected is not here"
        );
        let counters = *world.audience.counters();
        assert!(counters.refused > 0 && counters.reports == 0, "{reason:?}");
        let peer = Fabric::address(1);
        let refused = AudienceEvent::Refused { peer, reason };
        assert!(world.events().iter().all(|event| *event == refused));
        let reporter = &mut world.reporters[0];
        let told = reporter.pop_event();
        let is_told =
            matches!(&told, Some(ReporterEvent::Refused { reason: r, .. }) if *r == reason);
        assert!(is_told, "{told:?}");
        assert_eq!(reporter.pop_event(), None, "once");
        // One with a key dials again: another host may stand between.
        let doubted = reporter.counters().not_believed;
        assert_eq!(doubted > 1, receiver.is_some(), "{reason:?}: {doubted}");
        assert_eq!(reporter.counters().reports, 0);
    }
}

#[test]
fn a_greeting_that_was_heard_and_is_played_again_is_refused_and_counted() {
    let mut world = keyed(Some("secret"), Some("secret"));
    let mut bytes = Vec::new();
    Message::Hello(Hello {
        version_min: VERSION,
        version_max: VERSION,
        instance: 1,
        session_id: SESSION,
        name: "r1",
        nonce: Some([9; 16]),
    })
    .emit(&mut bytes);
    let link = world.fabric.dial(7, 0);
    world.fabric.send(7, link, bytes.clone(), false);
    world.run(10);
    let answer: Vec<u8> = (world.fabric.take(7).into_iter())
        .flat_map(|(_, data)| data)
        .collect();
    let mut decoder = Decoder::new(HELLO_LEN_MAX);
    decoder.push(&answer);
    let challenge = decoder.next_message().unwrap();
    assert!(matches!(challenge, Some(Message::Challenge(_))));
    // The protected greeting of another connection stands for what somebody has recorded.
    wire::object::protect_frame(&mut bytes, 0, |_, _| [3; 16]);
    world.fabric.send(7, link, bytes, false);
    world.run(60);
    let peer = Fabric::address(7);
    let reason = Refusal::WrongKey;
    let refused = AudienceEvent::Refused { peer, reason };
    let events = world.events();
    assert_eq!(events.iter().filter(|event| **event == refused).count(), 1);
    assert_eq!(world.audience.counters().refused, 1);
    assert_eq!(world.audience.receiver_count(), 1, "the one with the key");
}

#[test]
fn words_put_into_a_connection_end_it_and_are_not_believed() {
    let mut world = keyed(Some("secret"), Some("secret"));
    world.run(60);
    let mut bye = Vec::new();
    Message::Bye.emit(&mut bye);
    let now = world.now;
    for link in (1..6).map(LinkId) {
        world.audience.handle_link(now, link, LinkEvent::Data, &bye);
    }
    assert_eq!(world.audience.counters().violations, 1);
    let closed = |event: &AudienceEvent| {
        let reason = LeaveReason::Closed;
        matches!(event, AudienceEvent::Left { reason: r, .. } if *r == reason)
    };
    assert!(world.events().iter().any(closed), "and no good-bye");
    world.run(2_000);
    assert_eq!(world.audience.receiver_count(), 1, "it comes back");
}

#[test]
fn good_byes_go_both_ways() {
    let mut world = World::new(2, Policy::Wait);
    world.run(60);
    let now = world.now;
    world.reporters[0].leave(now);
    world.run(10);
    assert!(world.reporters[0].is_idle());
    let left = world.events().into_iter().filter_map(|event| match event {
        AudienceEvent::Left { reason, .. } => Some(reason),
        _ => None,
    });
    assert_eq!(left.collect::<Vec<_>>(), [LeaveReason::Bye]);
    world.audience.close(now);
    world.run(10);
    assert_eq!(world.audience.hold(), None);
    assert!(world.audience.is_idle());
    let told = std::iter::from_fn(|| world.reporters[1].pop_event()).last();
    assert_eq!(told, Some(ReporterEvent::Closed { session: 9 }));
}

#[test]
fn nobody_is_dialled_but_a_unicast_address() {
    let mut reporter = Reporter::new(ReporterConfig::new("r", 1));
    let mark = World::mark();
    let later = Instant::from_nanos(10_000_000_000);
    for source in ["239.1.1.1", "255.255.255.255", "0.0.0.0", "ff02::1", "::"] {
        reporter.mark(Instant::ZERO, 1, source.parse::<IpAddr>().unwrap(), &mark);
        reporter.handle_timeout(later);
        assert_eq!(reporter.poll_link(), None, "{source}");
    }
    let mut silent = mark;
    silent.control_port = 0;
    reporter.mark(Instant::ZERO, 1, "10.0.0.9".parse().unwrap(), &silent);
    assert_eq!(reporter.next_timeout(), None);
    reporter.mark(Instant::ZERO, 1, "10.0.0.9".parse().unwrap(), &mark);
    reporter.handle_timeout(later);
    let peer = "10.0.0.9:4000".parse().unwrap();
    assert_eq!(
        reporter.poll_link(),
        Some(LinkCommand::Open { peer, key: 1 })
    );
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "time goes back")]
fn an_owner_whose_time_goes_back_is_named() {
    let mut audience = Audience::new(AudienceConfig::new(SESSION));
    audience.handle_timeout(Instant::from_nanos(5));
    audience.handle_timeout(Instant::from_nanos(4));
}

/// Sends `bytes` to an audience on a fresh connection. Returns the audience and what it answers.
fn speak(bytes: &[u8]) -> (Audience, Vec<(LinkEvent, Vec<u8>)>) {
    let mut fabric = Fabric::new(1);
    let mut audience = Audience::new(AudienceConfig::new(SESSION));
    let link = fabric.dial(1, 0);
    fabric.send(1, link, bytes.to_vec(), false);
    let mut now = Instant::ZERO;
    for _ in 0..20 {
        now += Duration::from_millis(500);
        fabric.deliver(now, 0, &mut audience, 10);
        audience.handle_timeout(now);
        while fabric.pump(0, &mut audience) {}
    }
    let told = fabric.take(1);
    (audience, told)
}

fn frame(message: &Message<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.emit(&mut bytes);
    bytes
}

fn hello(name: &str) -> Vec<u8> {
    frame(&Message::Hello(Hello {
        version_min: 1,
        version_max: 1,
        instance: 1,
        session_id: SESSION,
        name,
        nonce: None,
    }))
}

#[test]
fn hostile_greetings_end_the_connection_and_nothing_else() {
    let mut wrong_session = hello("x");
    wrong_session[8 + 14] ^= 1;
    let mut wrong_version = hello("x");
    wrong_version[8 + 4] = 7;
    wrong_version[8 + 5] = 9;
    let cases: [(&str, Vec<u8>); 7] = [
        ("silence", Vec::new()),
        ("http", b"GET / HTTP/1.1\r\n\r\n".to_vec()),
        ("a huge claim", vec![0xFF; 64]),
        ("no greeting", frame(&Message::Bye)),
        ("another session", wrong_session),
        ("another version", wrong_version),
        ("a report first", frame(&Message::Pos(Pos::default()))),
    ];
    for (what, bytes) in cases {
        let (audience, told) = speak(&bytes);
        assert_eq!(audience.receiver_count(), 0, "{what}");
        assert_eq!(
            told.last().map(|(event, _)| *event),
            Some(LinkEvent::Closed),
            "{what}"
        );
        assert!(audience.is_idle(), "{what}");
    }
}

#[test]
fn a_receiver_that_dials_again_takes_its_old_connections_place_and_loses_nothing() {
    let mut config = AudienceConfig::new(SESSION);
    config.receivers_max = 1;
    let mut audience = Audience::new(config);
    let peer = Fabric::address(1);
    let (old, new, now) = (LinkId(1), LinkId(2), Instant::ZERO);
    audience.set_lead(FIRST + 9);
    audience.handle_link(now, old, LinkEvent::Accepted { peer }, &[]);
    audience.handle_link(now, old, LinkEvent::Data, &hello("r"));
    let pos = Pos {
        contiguous: FIRST + 4,
        ..Pos::default()
    };
    audience.handle_link(now, old, LinkEvent::Data, &frame(&Message::Pos(pos)));
    // The old connection is cut, and its end has not been heard here.
    audience.handle_link(now, new, LinkEvent::Accepted { peer }, &[]);
    audience.handle_link(now, new, LinkEvent::Data, &hello("r"));
    assert_eq!(audience.counters().refused, 0);
    assert_eq!(audience.counters().reconnected, 1);
    audience.handle_link(now, old, LinkEvent::Closed, &[]);
    assert_eq!(audience.receiver_count(), 1);
    assert_eq!(audience.hold(), Some(FIRST + 4), "as before");
    let told = std::iter::from_fn(|| audience.pop_event());
    assert_eq!(told.count(), 1, "it joined once, and has not left");
}

#[test]
fn a_receiver_that_claims_the_future_is_cut_to_the_lead() {
    let mut audience = Audience::new(AudienceConfig::new(SESSION));
    let peer = Fabric::address(1);
    let (link, now) = (LinkId(1), Instant::ZERO);
    audience.set_lead(FIRST + 9);
    audience.handle_link(now, link, LinkEvent::Accepted { peer }, &[]);
    audience.handle_link(now, link, LinkEvent::Data, &hello("liar"));
    for contiguous in [FIRST + 1_000_000, FIRST - 5, u64::MAX] {
        let pos = Pos {
            contiguous,
            ..Pos::default()
        };
        audience.handle_link(now, link, LinkEvent::Data, &frame(&Message::Pos(pos)));
        assert_eq!(audience.hold(), Some(FIRST + 10));
    }
    assert!(audience.counters().reports_ahead > 0);
    // Told once; and what it says confirms nothing.
    let told: Vec<_> = std::iter::from_fn(|| audience.pop_event()).collect();
    assert!(matches!(
        &told[..],
        [AudienceEvent::Joined { .. }, AudienceEvent::Astray { name, .. }] if name == "liar"
    ));
    let all: Vec<_> = audience.confirmations(FIRST + 10).collect();
    assert!(matches!(&all[..], [all] if all.is_astray && !all.is_confirmed));
    let done = frame(&Message::Acknowledged);
    audience.handle_link(now, link, LinkEvent::Data, &done);
    assert_eq!(audience.receiver_count(), 0);
    assert_eq!(audience.counters().violations, 1);
}

#[test]
fn connections_are_bounded() {
    let mut config = AudienceConfig::new(SESSION);
    config.receivers_max = 2;
    let mut audience = Audience::new(config);
    let now = Instant::ZERO;
    let peer = Fabric::address(1);
    for n in 0..2_000 {
        audience.handle_link(now, LinkId(n), LinkEvent::Accepted { peer }, &[]);
        audience.handle_link(now, LinkId(n), LinkEvent::Data, &hello(&format!("r{n}")));
        while audience
            .poll_link()
            .is_some_and(|c| matches!(c, LinkCommand::Close { .. }))
        {}
    }
    assert_eq!(
        audience.receiver_count(),
        1,
        "half of the places, for one host"
    );
}

#[test]
fn random_bytes_after_a_greeting_never_disturb_another() {
    let mut world = World::new(1, Policy::Wait);
    world.run(60);
    let mut rng = Rng::new(3);
    for n in 0..300_u64 {
        let link = world.fabric.dial(50, 0);
        let mut bytes = hello(&format!("x{n}"));
        let mut noise = vec![0; usize::try_from(rng.below(200)).unwrap()];
        rng.fill(&mut noise);
        if rng.chance(1, 2) && noise.len() > 8 {
            noise[..6].copy_from_slice(&[0, 0, 0, 10, 0, 10]);
        }
        bytes.extend_from_slice(&noise);
        world.fabric.send(50, link, bytes, false);
        world.step();
        if rng.chance(1, 2) {
            world.fabric.crash(50);
        }
    }
    world.fabric.crash(50);
    world.run(20);
    assert_eq!(world.audience.receiver_count(), 1);
    assert_eq!(world.audience.hold(), Some(FIRST));
}

#[test]
fn who_lost_messages_has_everything_that_comes_and_has_confirmed_nothing() {
    let mut audience = Audience::new(AudienceConfig::new(SESSION));
    let now = Instant::ZERO;
    audience.set_lead(FIRST + 9);
    for (link, name, lost) in [(1, "whole", 0), (2, "short", 3)] {
        let link = LinkId(link);
        let peer = Fabric::address(link.0 as usize);
        audience.handle_link(now, link, LinkEvent::Accepted { peer }, &[]);
        audience.handle_link(now, link, LinkEvent::Data, &hello(name));
        for _ in 0..2 {
            let pos = Pos {
                contiguous: FIRST + 10,
                lost,
                ..Pos::default()
            };
            audience.handle_link(now, link, LinkEvent::Data, &frame(&Message::Pos(pos)));
        }
    }
    assert!(audience.has_confirmed(FIRST + 10), "nobody is waited for");
    let whole = |audience: &Audience| {
        let all = audience.confirmations(FIRST + 10);
        all.map(|it| (it.name.to_owned(), it.is_confirmed, it.lost))
            .collect::<Vec<_>>()
    };
    let expected = [
        ("short".to_owned(), false, 3),
        ("whole".to_owned(), true, 0),
    ];
    assert_eq!(whole(&audience), expected);
    let told = std::iter::from_fn(|| audience.pop_event());
    let lost: Vec<_> = told
        .filter(|event| matches!(event, AudienceEvent::Lost { .. }))
        .collect();
    let (slot, name) = (1, "short".to_owned());
    assert_eq!(
        lost,
        [AudienceEvent::Lost {
            slot,
            name,
            lost: 3
        }]
    );
    // Nor later, when it is gone.
    audience.handle_link(now, LinkId(2), LinkEvent::Closed, &[]);
    assert_eq!(whole(&audience), expected);
}
