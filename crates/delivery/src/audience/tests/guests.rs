//! What a host that nobody expects can cost the others when it joins a session without a key.

use super::*;
use crate::fabric::over_ipv4_and_ipv6;
use crate::parameters::{GUEST_PATIENCE, GUEST_SHARE, STALL_TIMEOUT};

/// What a hostile receiver does in each millisecond.
type Attack = fn(&mut World, u64);

/// `WINDOW` is how many packets may be on their way, and `BURST` how many leave in each
/// millisecond.
const WINDOW: u64 = 1_000;
const BURST: u64 = 10;

/// A sender that always has something to send, an honest receiver on the first host, and a hostile
/// one on the last.
struct Siege {
    world: World,
    /// Milliseconds in which nothing could be sent.
    held_ms: u64,
}

impl Siege {
    fn new(config: AudienceConfig, hosts: usize) -> Self {
        let mut world = World::new(hosts, Policy::Wait);
        world.audience = Audience::new(config);
        Self { world, held_ms: 0 }
    }

    /// Runs `ms` milliseconds; `hostile` sets what the last receiver does.
    fn run(&mut self, ms: u64, mut hostile: impl FnMut(&mut World, u64)) {
        for at in 0..ms {
            let world = &mut self.world;
            let hold = world.audience.hold().unwrap_or(u64::MAX - WINDOW);
            let is_held = world.lead + BURST >= hold + WINDOW;
            self.held_ms += u64::from(is_held);
            world.lead += if is_held { 0 } else { BURST };
            world.positions[0] = world.lead + 1;
            hostile(world, at);
            let source = SourceState {
                lead: world.lead,
                trail: FIRST,
                phase: StreamPhase::Open,
                is_rate_limited: false,
                is_held,
                window_packets: WINDOW,
            };
            world.audience.observe(world.now, &source);
            world.step();
        }
    }

    /// Replaces the last host's receiver by a new one with this name.
    fn join_again(world: &mut World, name: String) {
        let node = world.reporters.len();
        world.fabric.crash(node);
        world.reporters[node - 1] = Reporter::new(ReporterConfig::new(name, 7));
        world.positions[node - 1] = FIRST;
    }
}

fn open(policy: Policy) -> AudienceConfig {
    let mut config = AudienceConfig::new(SESSION);
    config.policy = policy;
    config
}

#[test]
fn a_host_of_guests_holds_the_others_back_for_a_stated_share_of_the_time() {
    over_ipv4_and_ipv6(|| {
        const TIME: Duration = Duration::from_secs(120);
        let allowed = GUEST_PATIENCE + TIME / GUEST_SHARE + Duration::from_secs(2);
        let attacks: [(&str, Policy, Attack); 4] = [
            ("stands still", Policy::Wait, |_, _| {}),
            ("crawls", Policy::Wait, |world, ms| {
                world.positions[1] += u64::from(ms % 100 == 0);
            }),
            ("joins under new names", Policy::Wait, |world, ms| {
                if ms % 300 == 0 {
                    Siege::join_again(world, format!("x{ms}"));
                }
            }),
            ("joins when it was dropped", Policy::Drop, |world, ms| {
                if ms % 1_500 == 0 {
                    Siege::join_again(world, format!("x{ms}"));
                }
            }),
        ];
        for (what, policy, attack) in attacks {
            let mut siege = Siege::new(open(policy), 2);
            siege.run(TIME.as_millis() as u64, attack);
            let held = Duration::from_millis(siege.held_ms);
            assert!(held <= allowed, "{what}: {held:?} of {TIME:?}");
            assert!(
                held >= GUEST_PATIENCE / 4,
                "{what}: {held:?}: a pause is waited for"
            );
            let told = siege.world.events();
            let is_told = |event: &AudienceEvent| matches!(event, AudienceEvent::PassedOver { .. });
            assert_eq!(
                told.iter().any(is_told),
                policy == Policy::Wait,
                "{what}: {told:?}"
            );
        }
    });
}

#[test]
fn who_is_expected_has_the_key_or_is_alone_is_waited_for_until_it_has_stalled() {
    let key = || Some(Key::derive(b"secret", protection::portable));
    for (what, expected, key, hosts) in [
        ("expected", 2, None, 2),
        ("has the key", 0, key(), 2),
        ("alone", 0, None, 1),
    ] {
        let mut config = open(Policy::Wait);
        (config.expected, config.key) = (expected, key.clone());
        let mut siege = Siege::new(config, hosts);
        for (n, reporter) in siege.world.reporters.iter_mut().enumerate() {
            let mut config = ReporterConfig::new(format!("r{n}"), n as u64);
            config.key.clone_from(&key);
            *reporter = Reporter::new(config);
        }
        // It takes what is sent in the first second and nothing more.
        let crawl = |world: &mut World, ms: u64| {
            let last = world.positions.len() - 1;
            world.positions[last] = FIRST + 100 + ms / 1_000;
        };
        siege.run(40_000, crawl);
        assert!(
            siege.held_ms > 35_000,
            "{what}: held for {} ms",
            siege.held_ms
        );
        assert_eq!(siege.world.audience.counters().passed_over, 0, "{what}");
        let last = siege.world.positions.len() - 1;
        let at = FIRST + 1_000;
        let is_over = |world: &World| world.audience.counters().dropped > 0;
        siege.run(STALL_TIMEOUT.as_millis() as u64 - 5_000, |world, _| {
            world.positions[last] = at;
        });
        assert!(!is_over(&siege.world), "{what}");
        siege.run(12_000, |world, _| world.positions[last] = at);
        assert!(is_over(&siege.world), "{what}");
    }
}

/// Joins from `host` under `name`. Returns true if the receiver was admitted.
fn join(audience: &mut Audience, link: u32, host: usize, name: &str) -> bool {
    let (link, peer) = (LinkId(link), Fabric::address(host));
    let before = audience.receiver_count();
    audience.handle_link(Instant::ZERO, link, LinkEvent::Accepted { peer }, &[]);
    audience.handle_link(Instant::ZERO, link, LinkEvent::Data, &hello(name));
    for _ in 0..4 {
        if let Some(LinkCommand::Send { link, bytes }) = audience.poll_link() {
            let taken = bytes.len();
            audience.link_sent(link, taken);
        }
    }
    audience.receiver_count() > before
}

#[test]
fn names_that_come_and_go_keep_nobody_out() {
    over_ipv4_and_ipv6(|| {
        let mut config = open(Policy::Wait);
        (config.receivers_max, config.expected) = (4, 1);
        let mut audience = Audience::new(config);
        assert!(join(&mut audience, 0, 1, "expected"));
        audience.handle_link(Instant::ZERO, LinkId(0), LinkEvent::Closed, &[]);
        for n in 1..=1_000 {
            assert!(join(&mut audience, n, 2, &format!("x{n}")), "{n}");
            audience.handle_link(Instant::ZERO, LinkId(n), LinkEvent::Closed, &[]);
        }
        assert!(join(&mut audience, 2_000, 3, "honest"));
        assert!(audience.counters().names_forgotten > 900);
        assert_eq!(audience.joined(), 1_002);
        let names: Vec<_> = audience
            .confirmations(0)
            .map(|it| it.name.to_owned())
            .collect();
        assert!(names.len() <= 16, "{} names", names.len());
        let keeps = |name| names.iter().any(|it| it == name);
        assert!(
            keeps("expected") && keeps("honest") && !keeps("x1"),
            "{names:?}"
        );
    });
}

#[test]
fn a_host_of_guests_takes_half_of_the_places_and_a_network_three_quarters() {
    over_ipv4_and_ipv6(|| {
        let is_network = Fabric::address(1).is_ipv6();
        let mut config = open(Policy::Wait);
        config.receivers_max = 8;
        let mut audience = Audience::new(config);
        let taken = (0..8).filter(|&n| join(&mut audience, n, 1, &format!("x{n}")));
        assert_eq!(taken.count(), 4);
        // All hosts of the fabric are in one /64, if they have one.
        let others = (2..6).map(|host| (host, format!("honest{host}")));
        let taken = others.filter(|(host, name)| {
            let link = 100 + u32::try_from(*host).unwrap();
            join(&mut audience, link, *host, name)
        });
        assert_eq!(taken.count(), if is_network { 2 } else { 4 });
    });
}

#[test]
fn a_host_that_changes_its_address_within_its_network_gains_little() {
    over_ipv4_and_ipv6(|| {
        const TIME: Duration = Duration::from_secs(120);
        let is_network = Fabric::address(1).is_ipv6();
        let mut siege = Siege::new(open(Policy::Wait), 20);
        // The honest receiver is the first; of the others one after the other stands still.
        siege.run(TIME.as_millis() as u64, |world, ms| {
            let turn = (ms / 5_000) as usize % 19 + 1;
            let lead = world.lead + 1;
            for (index, position) in world.positions.iter_mut().enumerate().skip(1) {
                if index != turn {
                    *position = lead;
                }
            }
        });
        let held = Duration::from_millis(siege.held_ms);
        let allowed = (GUEST_PATIENCE + TIME / GUEST_SHARE) * 3 / 2 + Duration::from_secs(2);
        if is_network {
            assert!(held <= allowed, "{held:?} of {TIME:?}");
        } else {
            assert!(held > allowed, "each address counts for itself: {held:?}");
        }
    });
}

#[test]
fn how_long_a_guest_is_waited_for_does_not_depend_on_the_stall_limit() {
    let mut config = open(Policy::Wait);
    config.stall_timeout = Some(Duration::from_secs(36_000));
    let mut siege = Siege::new(config, 2);
    siege.run(20_000, |_, _| {});
    let held = Duration::from_millis(siege.held_ms);
    let allowed = GUEST_PATIENCE + Duration::from_secs(20) / GUEST_SHARE + Duration::from_secs(2);
    assert!(held <= allowed, "{held:?}");
}
