//! One source and its receivers over a network that loses, delays and reorders, in virtual time:
//! everything arrives, and the receivers together ask for little more than was lost.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use base::{Arrival, Budget, CounterSet as _, Instant, Outcome, PathId, Rng, Run, Socket, Verdict};
use towline_pgm::{
    Config, ConfigBuilder, Mode, Ready, Receiver, ReceiverSetup, Source, SourceSetup, Timer,
};
use wire::{
    Sqn,
    pgm::{Addressing, Body, Gsi, Nak, NakList, PgmOption, Tsi, emit},
};

const PORT: u16 = 7500;
const GROUP: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(239, 192, 0, 1)), PORT);
const BUDGET: Budget = Budget {
    bytes: 64_000,
    datagrams: 45,
};

/// Host 0 is the source, the others are receivers.
fn address(host: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, u8::try_from(host + 1).unwrap()))
}

struct World {
    now: Instant,
    rng: Rng,
    source: Source,
    receivers: Vec<Receiver>,
    /// Messages that each receiver gave out.
    given: Vec<Vec<Vec<u8>>>,
    ended: Vec<bool>,
    lost: u64,
    /// On the way: when, in which order, from and to whom.
    flights: BTreeMap<(Instant, u64), (usize, usize, Vec<u8>)>,
    flight: u64,
    loss_per_mille: u64,
    /// The source knows none of the receivers as one that reports.
    are_strangers: bool,
    delay: Duration,
    jitter: Duration,
}

impl World {
    fn new(mode: Mode, config: ConfigBuilder, receivers: usize, first_sqn: u32) -> Self {
        let config = config.build().unwrap();
        let now = Instant::from_nanos(1);
        let setup = SourceSetup {
            tsi: Tsi {
                gsi: Gsi([1; 6]),
                port: 4000,
            },
            destination_port: PORT,
            group: GROUP,
            nla: address(0),
            path: PathId(0),
            first_sqn,
            seed: 3,
            mark: None,
        };
        let receiver = |host: usize| {
            let setup = ReceiverSetup {
                mode,
                destination_port: PORT,
                group: GROUP,
                path: PathId(0),
                seed: host as u64,
                is_protected: false,
                own_nla: address(host),
            };
            Receiver::new(config, setup, now)
        };
        Self {
            now,
            rng: Rng::new(11),
            source: Source::new(config, setup, now),
            receivers: (1..=receivers).map(receiver).collect(),
            given: vec![Vec::new(); receivers],
            ended: vec![false; receivers],
            lost: 0,
            flights: BTreeMap::new(),
            flight: 0,
            loss_per_mille: 0,
            are_strangers: false,
            delay: Duration::from_micros(100),
            jitter: Duration::from_micros(50),
        }
    }

    /// Lets one host's packets go their way: to all others, or to one.
    fn launch(&mut self, from: usize, run: &[(SocketAddr, Vec<u8>)]) {
        for (to, bytes) in run {
            for host in 0..=self.receivers.len() {
                let is_for = to.ip().is_multicast() || to.ip() == address(host);
                if host == from || !is_for || self.rng.chance(self.loss_per_mille, 1000) {
                    continue;
                }
                let at = self.now + self.delay + self.rng.duration_up_to(self.jitter);
                self.flight += 1;
                self.flights
                    .insert((at, self.flight), (from, host, bytes.clone()));
            }
        }
    }

    fn send(&mut self) {
        let mut out = Vec::new();
        while let Some(run) = self.source.poll_run(self.now, BUDGET) {
            let datagrams = collect(&run, &mut out);
            self.source.run_done(self.now, Outcome::Sent { datagrams });
        }
        self.launch(0, &out);
        for host in 1..=self.receivers.len() {
            let mut out = Vec::new();
            let receiver = &mut self.receivers[host - 1];
            while let Some(run) = receiver.poll_run(self.now, BUDGET) {
                let datagrams = collect(&run, &mut out);
                receiver.run_done(self.now, Outcome::Sent { datagrams });
            }
            self.launch(host, &out);
        }
    }

    fn deliver(&mut self, from: usize, to: usize, bytes: &[u8]) {
        let arrival = Arrival::from(SocketAddr::new(address(from), PORT), Socket::Group);
        if to == 0 {
            if self.are_strangers {
                self.source.handle(self.now, &arrival, bytes);
            } else {
                self.source.handle_reporter(self.now, &arrival, bytes);
            }
            return;
        }
        let verdict = self.receivers[to - 1].handle(self.now, &arrival, bytes);
        if let Verdict::Payload { range, .. } = verdict {
            self.given[to - 1].push(bytes[range].to_vec());
        }
        self.pop(to);
    }

    fn pop(&mut self, host: usize) {
        while let Some(ready) = self.receivers[host - 1].pop_ready() {
            match ready {
                Ready::Message { data, .. } => self.given[host - 1].push(data.to_vec()),
                Ready::Lost { count, .. } => self.lost += count,
                Ready::Ended { .. } => self.ended[host - 1] = true,
                Ready::Found { .. } | Ready::Mark { .. } => {}
                other => panic!("unexpected {other:?}"),
            }
        }
    }

    /// Goes on to the next thing that happens, but not past `end`. False when nothing does.
    fn step(&mut self, end: Instant) -> bool {
        self.send();
        let flight = self.flights.first_key_value().map(|(&(at, _), _)| at);
        let timers = self.receivers.iter().filter_map(Receiver::next_timeout);
        let timers = timers.chain(self.source.next_timeout());
        let Some(next) = timers.chain(flight).min().filter(|&next| next <= end) else {
            self.now = end;
            return false;
        };
        self.now = self.now.max(next);
        while let Some(entry) = self.flights.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let (from, to, bytes) = entry.remove();
            self.deliver(from, to, &bytes);
        }
        self.source.handle_timeout(self.now);
        for host in 1..=self.receivers.len() {
            self.receivers[host - 1].handle_timeout(self.now);
            self.pop(host);
        }
        true
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.step(end) {}
    }

    /// Lets every receiver hear of the session, sends `messages` and ends it.
    fn transfer(&mut self, messages: &[Vec<u8>]) {
        self.pass(Duration::from_millis(50));
        for message in messages {
            while self.source.offer(message).is_err() {
                self.step(Instant::NEVER);
            }
            if self.rng.chance(1, 20) {
                self.pass(Duration::from_micros(300));
            }
        }
        self.source.close(self.now);
        let end = self.now + Duration::from_secs(60);
        while self.ended.contains(&false) && self.step(end) {}
        assert!(
            !self.ended.contains(&false),
            "{:?}",
            self.receivers[0].position(0)
        );
    }
}

fn collect(run: &Run<'_>, out: &mut Vec<(SocketAddr, Vec<u8>)>) -> usize {
    out.extend(run.datagrams().map(|bytes| (run.to, bytes.to_vec())));
    run.datagram_count()
}

fn messages(count: usize, len_max: u64) -> Vec<Vec<u8>> {
    let mut rng = Rng::new(1);
    let message = |_| {
        let mut message = vec![0; usize::try_from(rng.between(0, len_max)).unwrap()];
        rng.fill(&mut message);
        message
    };
    (0..count).map(message).collect()
}

#[test]
fn messages_of_all_lengths_arrive_in_order_over_a_bad_network() {
    // Each of three strangers may lose a tenth, beside a share of a quarter for all of them.
    for (per_mille, first_sqn, are_strangers) in [
        (0, 0, false),
        (10, u32::MAX - 100, true),
        (100, (1 << 31) - 50, true),
        (300, 5, false),
    ] {
        let mut world = World::new(Mode::Sequence, Config::builder(), 3, first_sqn);
        world.are_strangers = are_strangers;
        world.loss_per_mille = per_mille;
        let messages = messages(2000, 6000);
        world.transfer(&messages);
        assert_eq!(world.lost, 0);
        assert!(
            world.given.iter().all(|given| given == &messages),
            "{per_mille}"
        );
    }
}

#[test]
fn a_host_that_asks_for_everything_all_the_time_costs_plain_receivers_nothing() {
    let config = || Config::builder().stranger_repair_bytes_per_s_min(1_000_000);
    let mut world = World::new(Mode::Sequence, config(), 3, 0);
    world.are_strangers = true;
    world.loss_per_mille = 100;
    world.pass(Duration::from_millis(50));
    // 200 kB/s: each packet can get all its eight repairs because of the flood alone.
    let messages = vec![vec![7; 1000]; 2000];
    let mut asked = 0;
    for (sent, message) in messages.iter().enumerate() {
        world.source.offer(message).unwrap();
        for _ in 0..5 {
            world.pass(Duration::from_millis(1));
            let oldest = sent.saturating_sub(500);
            let first = oldest + asked * 63 % (sent + 1 - oldest);
            asked += 1;
            let nak = nak_of(first as u32..(sent + 1).min(first + 63) as u32);
            let arrival = Arrival::from(SocketAddr::new(address(99), PORT), Socket::Upstream);
            world.source.handle(world.now, &arrival, &nak);
        }
    }
    world.transfer(&[]);
    assert_eq!(world.lost, 0);
    assert!(world.given.iter().all(|given| given == &messages));
    assert!(
        world.source.counters().nak_refused > 0,
        "the flood was bounded"
    );
}

#[test]
fn packets_on_arrival_are_complete_over_a_bad_network() {
    for per_mille in [10, 100, 300] {
        let mut world = World::new(Mode::Arrival, Config::builder(), 3, u32::MAX - 1000);
        world.loss_per_mille = per_mille;
        let mut messages = messages(5000, 1400);
        world.transfer(&messages);
        assert_eq!(world.lost, 0);
        // They report, and no real loss takes the full service from them.
        assert_eq!(world.source.counters().nak_overdrawn, 0, "{per_mille}");
        messages.sort();
        for given in &mut world.given {
            given.sort();
            assert!(*given == messages, "{per_mille}");
        }
    }
}

/// A NAK for all of `sqns`.
fn nak_of(sqns: std::ops::Range<u32>) -> Vec<u8> {
    let tsi = Tsi {
        gsi: Gsi([1; 6]),
        port: 4000,
    };
    let body = Body::Nak(Nak {
        sqn: Sqn(sqns.start),
        source_nla: address(0),
        group_nla: GROUP.ip(),
    });
    let list: Vec<_> = sqns.skip(1).map(Sqn).collect();
    let options = [PgmOption::NakList(NakList::new(&list))];
    let options = if list.is_empty() { &[][..] } else { &options };
    let mut out = Vec::new();
    emit(
        &mut out,
        &Addressing::upstream(tsi, PORT),
        &body,
        options,
        &[],
    );
    out
}

fn parity(group: u32, proactive: u32) -> ConfigBuilder {
    let proactive_max = proactive * 2;
    Config::builder()
        .fec_group(group)
        .fec_proactive(proactive)
        .fec_proactive_max(proactive_max)
}

/// What all receivers together count under `name`.
fn counted(world: &World, name: &str) -> u64 {
    let of = |receiver: &Receiver| receiver.counters().value_of(name).unwrap();
    world.receivers.iter().map(of).sum()
}

#[test]
fn with_parity_all_messages_arrive_in_order_over_a_bad_network() {
    for (per_mille, first_sqn, group, proactive) in [
        (0, 0, 64, 0),
        (10, u32::MAX - 100, 64, 0),
        (50, u32::MAX - 100, 16, 1),
        (100, (1 << 31) - 50, 8, 2),
        (100, 3, 128, 10),
        (300, 5, 32, 4),
        (300, 5, 2, 1),
    ] {
        let mut world = World::new(Mode::Sequence, parity(group, proactive), 3, first_sqn);
        world.loss_per_mille = per_mille;
        let messages = messages(1200, 6000);
        world.transfer(&messages);
        assert_eq!(world.lost, 0);
        assert!(
            world.given.iter().all(|given| given == &messages),
            "{group}"
        );
        if per_mille > 0 {
            assert!(counted(&world, "recovered_sqns") > 0, "{group}");
        }
        assert_eq!(counted(&world, "barred_groups"), 0);
        let held = world.receivers.iter().map(Receiver::held_memory_bytes);
        assert_eq!(held.sum::<usize>(), 0, "an ended session keeps nothing");
    }
}

#[test]
fn with_parity_packets_on_arrival_are_complete_over_a_bad_network() {
    for per_mille in [10, 100, 300] {
        let mut world = World::new(Mode::Arrival, parity(32, 1), 3, u32::MAX - 1000);
        world.loss_per_mille = per_mille;
        let mut messages = messages(2000, 1400);
        world.transfer(&messages);
        assert_eq!(world.lost, 0);
        assert!(counted(&world, "recovered_sqns") > 0);
        messages.sort();
        for given in &mut world.given {
            given.sort();
            assert!(*given == messages, "{per_mille}");
        }
    }
}

#[test]
fn receivers_with_and_without_parity_are_served_side_by_side() {
    let mut world = World::new(Mode::Sequence, parity(16, 0), 2, 9);
    let plain = Config::builder().rx_fec_bytes(0).build().unwrap();
    let setup = ReceiverSetup {
        mode: Mode::Sequence,
        destination_port: PORT,
        group: GROUP,
        path: PathId(0),
        seed: 2,
        is_protected: false,
        own_nla: address(2),
    };
    world.receivers[1] = Receiver::new(plain, setup, world.now);
    world.loss_per_mille = 50;
    let messages = messages(1000, 3000);
    world.transfer(&messages);
    assert_eq!(world.lost, 0);
    assert!(world.given.iter().all(|given| given == &messages));
    let recovered = |host: usize| world.receivers[host].counters().recovered_sqns;
    assert!(recovered(0) > 0);
    assert_eq!(recovered(1), 0);
    assert!(world.source.counters().rdata_packets > 0);
}

#[test]
fn parity_repairs_eight_receivers_with_half_the_packets() {
    let repairs = |config: ConfigBuilder| {
        let mut world = World::new(Mode::Sequence, config, 8, 0);
        world.loss_per_mille = 50;
        let messages = vec![vec![7; 1000]; 3200];
        world.transfer(&messages);
        assert_eq!(world.lost, 0);
        assert!(world.given.iter().all(|given| given == &messages));
        let counters = world.source.counters();
        counters.rdata_packets + counters.parity_packets
    };
    let (selective, parity) = (repairs(Config::builder()), repairs(parity(64, 0)));
    assert!(
        parity * 2 <= selective,
        "{parity} with parity, {selective} without"
    );
}

#[test]
fn a_late_joiner_gets_the_window_when_it_wants_it() {
    let config = Config::builder().late_join(towline_pgm::LateJoin::Window);
    let mut world = World::new(Mode::Sequence, config, 1, 77);
    let late = world.receivers.pop().unwrap();
    let messages = messages(3000, 3000);
    for message in &messages[..1500] {
        world.source.offer(message).unwrap();
        world.pass(Duration::from_micros(20));
    }
    world.receivers.push(late);
    world.transfer(&messages[1500..]);
    assert_eq!((world.lost, world.given[0].len()), (0, 3000));
    assert!(world.given[0] == messages);
}

#[test]
fn a_group_that_loses_together_asks_for_little_more_than_one_receiver() {
    let naks = |receivers: usize| {
        let config = Config::builder().nak_backoff_max(Timer::Fixed(Duration::from_millis(5)));
        let mut world = World::new(Mode::Sequence, config, receivers, 0);
        world.pass(Duration::from_millis(50));
        for round in 0..100 {
            // Every tenth packet reaches nobody.
            world.loss_per_mille = if round % 10 == 5 { 1000 } else { 0 };
            world.source.offer(&[7; 100]).unwrap();
            world.pass(Duration::from_micros(10));
            world.loss_per_mille = 0;
            world.pass(Duration::from_millis(15));
        }
        world.transfer(&[]);
        assert_eq!(world.lost, 0);
        let sqns = |receiver: &Receiver| receiver.counters().nak_sqns;
        world.receivers.iter().map(sqns).sum::<u64>()
    };
    let (one, fifty) = (naks(1), naks(50));
    assert_eq!(one, 10);
    assert!(
        fifty <= 6 * one,
        "{fifty} NAKs of 50 receivers for {one} losses"
    );
}
