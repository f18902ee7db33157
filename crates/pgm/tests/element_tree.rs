//! A source, three network elements in a row, and receivers behind each, over networks that lose
//! packets, in virtual time.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use base::{Arrival, Budget, Instant, Outcome, Pace, PathId, Rng, Run, Socket, Verdict};
use towline_pgm::{
    Config, ConfigBuilder, Element, ElementSetup, ElementTimers, Mode, Rate, Ready, Receiver,
    ReceiverSetup, Source, SourceSetup, Way,
};
use wire::pgm::{Gsi, Header, PacketType, Tsi};

const PORT: u16 = 7500;
const HOPS: usize = 3;
const RECEIVERS_EACH: usize = 2;

fn address(network: usize, host: usize) -> IpAddr {
    IpAddr::from([10, 0, network as u8, host as u8])
}

fn group(network: usize) -> SocketAddr {
    SocketAddr::from(([239, 1, network as u8, 1], PORT))
}

enum Machine {
    Source(Box<Source>),
    /// Joins the network of its number and the next one.
    Element(Box<Element>),
    Receiver(Box<Receiver>, Vec<Vec<u8>>, u64),
}

struct Node {
    machine: Machine,
    /// The network and address of each way.
    ways: Vec<(usize, IpAddr)>,
}

/// A packet under way: to which node, by which of its ways, from where, its bytes.
type Flying = (usize, usize, SocketAddr, Vec<u8>);

/// Network 0 has the source, network `k` what element `k - 1` sends on.
struct World {
    now: Instant,
    rng: Rng,
    loss_per_mille: u64,
    nodes: Vec<Node>,
    /// Packets under way, by when they arrive, and in which order they were sent.
    flying: BTreeMap<(Instant, u64), Flying>,
    launched: u64,
    /// Repairs on each network.
    repairs: [u64; HOPS + 1],
}

impl World {
    fn new(loss_per_mille: u64, config: impl Fn() -> ConfigBuilder) -> Self {
        let (now, mut nodes) = (Instant::from_nanos(1_000_000_000), Vec::new());
        let setup = SourceSetup {
            tsi: Tsi {
                gsi: Gsi([1; 6]),
                port: 4,
            },
            destination_port: PORT,
            group: group(0),
            nla: address(0, 1),
            path: PathId(0),
            first_sqn: u32::MAX - 500,
            seed: 1,
            mark: None,
        };
        nodes.push(Node {
            machine: Machine::Source(Box::new(Source::new(config().build().unwrap(), setup, now))),
            ways: vec![(0, address(0, 1))],
        });
        for hop in 0..HOPS {
            let ways = [(hop, address(hop, 254)), (hop + 1, address(hop + 1, 253))];
            let joined = ways.iter().enumerate().map(|(way, (network, nla))| Way {
                path: PathId(way as u8),
                nla: *nla,
                group: group(*network),
                control_port: 0,
            });
            let setup = ElementSetup {
                destination_port: PORT,
                ways: joined.collect(),
                timers: ElementTimers::default(),
                sessions_max: 16,
                repairs_max: 10_000,
                queue_bytes_max: 8 << 20,
                kept_bytes_max: 0,
                seed: 1,
            };
            nodes.push(Node {
                machine: Machine::Element(Box::new(Element::new(setup))),
                ways: ways.to_vec(),
            });
        }
        for place in 0..HOPS * RECEIVERS_EACH {
            let network = 1 + place / RECEIVERS_EACH;
            let own = address(network, 10 + place);
            let setup = ReceiverSetup {
                mode: Mode::Sequence,
                destination_port: PORT,
                group: group(network),
                path: PathId(0),
                seed: 100 + place as u64,
                is_protected: false,
                own_nla: own,
            };
            let receiver = Receiver::new(config().build().unwrap(), setup, now);
            nodes.push(Node {
                machine: Machine::Receiver(Box::new(receiver), Vec::new(), 0),
                ways: vec![(network, own)],
            });
        }
        Self {
            now,
            rng: Rng::new(7),
            loss_per_mille,
            nodes,
            flying: BTreeMap::new(),
            launched: 0,
            repairs: [0; HOPS + 1],
        }
    }

    fn source(&mut self) -> &mut Source {
        match &mut self.nodes[0].machine {
            Machine::Source(source) => source,
            _ => unreachable!("the source is the first"),
        }
    }

    /// Puts the packets of a run on the network of the way that they leave by.
    fn launch(&mut self, from: usize, way: usize, to: SocketAddr, packets: Vec<Vec<u8>>) {
        let (network, own) = self.nodes[from].ways[way];
        for bytes in packets {
            if Header::parse(&bytes).unwrap().kind == PacketType::Rdata {
                self.repairs[network] += 1;
            }
            for (node, there) in self.nodes.iter().enumerate() {
                let joined = there.ways.iter().position(|(of, _)| *of == network);
                let Some(joined) = joined.filter(|_| node != from) else {
                    continue;
                };
                let is_for = to.ip().is_multicast() || to.ip() == there.ways[joined].1;
                if !is_for || self.rng.chance(self.loss_per_mille, 1000) {
                    continue;
                }
                self.launched += 1;
                let at = self.now + Duration::from_millis(1);
                let source = SocketAddr::new(own, 40_000);
                let packet = (node, joined, source, bytes.clone());
                self.flying.insert((at, self.launched), packet);
            }
        }
    }

    fn send(&mut self) {
        for node in 0..self.nodes.len() {
            while let Some((way, to, packets)) = self.nodes[node].machine.run(self.now) {
                self.launch(node, way, to, packets);
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.send();
            let timers = self
                .nodes
                .iter()
                .filter_map(|node| node.machine.next_timeout());
            let flying = self.flying.keys().map(|(at, _)| *at).next();
            let due = timers.chain(flying).min().unwrap_or(end).max(self.now);
            if due > end {
                break;
            }
            self.now = due;
            while let Some(entry) = self.flying.first_entry().filter(|it| it.key().0 <= due) {
                let (node, way, from, bytes) = entry.remove();
                self.nodes[node].machine.handle(due, way, from, &bytes);
            }
            for node in &mut self.nodes {
                node.machine.timeout(due);
            }
        }
        self.now = end;
    }
}

impl Machine {
    fn handle(&mut self, now: Instant, way: usize, from: SocketAddr, bytes: &[u8]) {
        let mut arrival = Arrival::from(from, Socket::Group);
        arrival.path = PathId(way as u8);
        match self {
            Self::Source(source) => {
                source.handle(now, &arrival, bytes);
            }
            Self::Element(element) => {
                element.handle(now, &arrival, bytes);
            }
            Self::Receiver(receiver, messages, lost) => {
                let verdict = receiver.handle(now, &arrival, bytes);
                if let Verdict::Payload { range, .. } = verdict {
                    messages.push(bytes[range].to_vec());
                }
                pop(receiver, messages, lost);
            }
        }
    }

    fn timeout(&mut self, now: Instant) {
        match self {
            Self::Source(source) => source.handle_timeout(now),
            Self::Element(element) => element.handle_timeout(now),
            Self::Receiver(receiver, messages, lost) => {
                receiver.handle_timeout(now);
                pop(receiver, messages, lost);
            }
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        match self {
            Self::Source(source) => source.next_timeout(),
            Self::Element(element) => element.next_timeout(),
            Self::Receiver(receiver, ..) => receiver.next_timeout(),
        }
    }

    fn run(&mut self, now: Instant) -> Option<(usize, SocketAddr, Vec<Vec<u8>>)> {
        let budget = Budget {
            bytes: 64_000,
            datagrams: 40,
        };
        let of = |run: Run<'_>| {
            let packets: Vec<_> = run.datagrams().map(<[u8]>::to_vec).collect();
            (usize::from(run.path.0), run.to, packets)
        };
        let sent = match self {
            Self::Source(source) => source.poll_run(now, budget).map(of),
            Self::Element(element) => element.poll_run(now, budget).map(of),
            Self::Receiver(receiver, ..) => receiver.poll_run(now, budget).map(of),
        }?;
        let datagrams = sent.2.len();
        let outcome = Outcome::Sent { datagrams };
        match self {
            Self::Source(source) => source.run_done(now, outcome),
            Self::Element(element) => element.run_done(now, outcome),
            Self::Receiver(receiver, ..) => receiver.run_done(now, outcome),
        }
        Some(sent)
    }
}

fn pop(receiver: &mut Receiver, messages: &mut Vec<Vec<u8>>, lost: &mut u64) {
    while let Some(ready) = receiver.pop_ready() {
        match ready {
            Ready::Message { data, .. } => messages.push(data.to_vec()),
            Ready::Lost { count, .. } => *lost += count,
            _ => {}
        }
    }
}

/// Sends 2,000 messages, and returns the world when all is repaired.
fn sent(loss_per_mille: u64) -> World {
    let rate = Rate::Fixed(Pace::of(5_000_000));
    let mut world = World::new(loss_per_mille, || Config::builder().rate(rate));
    world.pass(Duration::from_millis(100));
    for number in 0..2000_u32 {
        let message = [&number.to_be_bytes()[..], &[7; 996]].concat();
        world.source().offer(&message).unwrap();
    }
    world.pass(Duration::from_secs(8));
    world
}

#[test]
fn all_arrives_in_order_behind_three_elements_that_lose_packets() {
    let world = sent(20);
    for node in &world.nodes {
        let Machine::Receiver(receiver, messages, lost) = &node.machine else {
            continue;
        };
        assert_eq!(
            (messages.len(), *lost),
            (2000, 0),
            "{:?}",
            receiver.counters()
        );
        let numbers = messages
            .iter()
            .map(|it| it[..4].try_into().map(u32::from_be_bytes));
        assert!(numbers.map(Result::unwrap).eq(0..2000));
    }
}

#[test]
fn repairs_stay_where_they_are_missing() {
    let world = sent(20);
    let [first, one, two, three] = world.repairs;
    // Of each hop 2 % of the packets get lost, and at each receiver.
    assert!(
        first > one && one > two && two > three,
        "{:?}",
        world.repairs
    );
    assert!(three < 2000 * 15 / 100, "{:?}", world.repairs);
    // Where nothing is lost, nothing is sent twice.
    assert_eq!(sent(0).repairs, [0; HOPS + 1]);
}
