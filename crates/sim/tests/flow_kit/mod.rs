//! One publisher and some receivers with the shipped loop, and when each message came.
#![allow(dead_code, reason = "each test binary uses its own part of the kit")]
#![allow(
    clippy::unwrap_used,
    reason = "test code, though not in a test function"
)]

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use base::{Instant, Io as _, Pace, RecvBatch};
use delivery::{AudienceConfig, Policy, RateLimit, ReporterConfig};
use driver::{
    Driver, Identity, MessageSink, Publisher, Receiving, Sending, SessionEvent, Subscriber,
};
use pgm::{Census, Config, Mode};
use towline_sim::{
    Action, EndpointId, EndpointSetup, Fault, HostId, Node, SimIo, Simulation, Span,
    StreamConditions, World,
};
use wire::pgm::{Gsi, Tsi};

/// What is sent to whom.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) seed: u64,
    pub(crate) config: Config,
    pub(crate) policy: Policy,
    /// The sender's port for NAKs.
    pub(crate) upstream_port: u16,
    /// Bytes of a message, at least 16.
    pub(crate) bytes: usize,
    /// Messages in a burst, and the time between two bursts.
    pub(crate) burst: u64,
    pub(crate) gap: Duration,
    /// Half of the round trip, between the sender and every receiver.
    pub(crate) one_way: Duration,
    pub(crate) egress: Vec<Fault>,
    /// One for each receiver: what its way in is like, beside the delay.
    pub(crate) receivers: Vec<Vec<Fault>>,
    pub(crate) receive_buffer_bytes: usize,
    /// When which receiver's host stops for how long.
    pub(crate) pauses: Vec<(Duration, usize, Duration)>,
    /// What a datagram costs the first receiver's host.
    pub(crate) first_datagram_cost: Duration,
    /// How long messages are sent; a second more is waited for the last.
    pub(crate) length: Duration,
}

impl Flow {
    /// 1,000 messages a second of 1,000 bytes for 5 s to receivers with these ways in.
    pub(crate) fn to(receivers: &[&[Fault]]) -> Self {
        Self {
            seed: 1,
            config: Config::default(),
            policy: Policy::Lose,
            upstream_port: group().port(),
            bytes: 1000,
            burst: 1,
            gap: Duration::from_millis(1),
            one_way: Duration::from_micros(50),
            egress: Vec::new(),
            receivers: receivers.iter().map(|faults| faults.to_vec()).collect(),
            receive_buffer_bytes: 4 << 20,
            pauses: Vec::new(),
            first_datagram_cost: Duration::from_nanos(500),
            length: Duration::from_secs(5),
        }
    }

    /// Messages of 1,400 bytes as fast as they are taken, at a rate that sets itself.
    pub(crate) fn flood(receivers: &[&[Fault]]) -> Self {
        Self {
            bytes: 1400,
            gap: Duration::ZERO,
            policy: Policy::Wait,
            ..Self::to(receivers)
        }
    }

    /// Parameters by name.
    pub(crate) fn set(mut self, settings: &[(&str, &str)]) -> Self {
        let mut builder = self.config.to_builder();
        for (name, text) in settings {
            builder.set(name, text).unwrap();
        }
        self.config = builder.build().unwrap();
        self
    }

    /// What happens, in virtual time.
    pub(crate) fn run(&self) -> Outcome {
        let mut world = World::new(self.seed);
        let delay = Fault::Delay(Span(self.one_way));
        let way = |faults: &[Fault]| [&[delay], faults].concat();
        let sender = world.add_host(address(0), &self.egress, &way(&[]));
        let mut setup = EndpointSetup::new(sender, None);
        setup.control_port = Some(CONTROL);
        setup.upstream_port = self.upstream_port;
        setup.receive_buffer_bytes = self.receive_buffer_bytes;
        world.add_endpoint(&setup);
        for (i, faults) in self.receivers.iter().enumerate() {
            let host = world.add_host(address(i + 1), &[], &way(faults));
            let mut setup = EndpointSetup::new(host, Some(group()));
            setup.receive_buffer_bytes = self.receive_buffer_bytes;
            if i == 0 {
                setup.datagram_cost = self.first_datagram_cost;
            }
            world.add_endpoint(&setup);
        }
        let start = world.now();
        for &(at, receiver, length) in &self.pauses {
            let host = HostId(receiver + 1);
            world.plan(start + at, Action::Pause { host, length });
        }
        world.set_streams(StreamConditions {
            delay: Span(self.one_way),
            ..StreamConditions::default()
        });
        let flow = self.clone();
        let mut simulation = Simulation::new(world.shared(), move |io| FlowNode::new(io, &flow));
        simulation.run(start + self.length + Duration::from_secs(1), |_| false);
        let mut receivers = Vec::new();
        let mut sender = None;
        for (id, node) in simulation.nodes() {
            match node {
                FlowNode::Sends(sends) => sender = Some(sends.summary()),
                FlowNode::Takes(takes) => receivers.push(Taken {
                    came: takes.sink.came.clone(),
                    lost: takes.sink.lost,
                    naks: takes.driver.endpoint.receiver().counters().nak_packets,
                    overflowed: simulation.world().borrow().counts(id).overflowed,
                }),
            }
        }
        Outcome {
            sender: sender.unwrap(),
            receivers,
        }
    }
}

/// What came of a flow.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) sender: Sent,
    pub(crate) receivers: Vec<Taken>,
}

/// The sender's part.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) messages: u64,
    pub(crate) repairs: u64,
    pub(crate) spms: u64,
    pub(crate) census: Option<Census>,
    /// What was so every 100 ms.
    pub(crate) samples: Vec<Sample>,
}

/// The sender at one time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) pace: Pace,
    pub(crate) packets: u64,
    pub(crate) repairs: u64,
    pub(crate) wire_bytes: u64,
    pub(crate) limit: Option<RateLimit>,
    /// The host of the receiver that sets it.
    pub(crate) limiting_host: Option<IpAddr>,
}

/// A receiver's part.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    /// Each message with the time since it was offered, in the order of arrival.
    pub(crate) came: Vec<Came>,
    /// Packets lost for good.
    pub(crate) lost: u64,
    pub(crate) naks: u64,
    pub(crate) overflowed: u64,
}

/// One message at one receiver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Came {
    /// Counted from 0.
    pub(crate) number: u64,
    pub(crate) after: Duration,
}

impl Taken {
    /// How long messages took that a repair brought, beyond `usual`, in ascending order.
    pub(crate) fn repaired(&self, usual: Duration) -> Vec<Duration> {
        let mut all: Vec<_> = self.came.iter().map(|came| came.after).collect();
        all.retain(|&after| after > usual);
        all.sort_unstable();
        all
    }
}

/// The value that a part of all in `sorted` do not exceed.
pub(crate) fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted[(sorted.len() - 1) * percent / 100]
}

enum FlowNode {
    Sends(Box<Sends>),
    Takes(Box<Takes>),
}

struct Sends {
    driver: Driver<SimIo, Publisher>,
    flow: Flow,
    next: u64,
    burst_at: Instant,
    end: Instant,
    message: Vec<u8>,
    samples: Vec<Sample>,
    sample_at: Instant,
}

struct Takes {
    driver: Driver<SimIo, Subscriber>,
    sink: Sink,
}

struct Sink {
    io: SimIo,
    came: Vec<Came>,
    lost: u64,
}

impl FlowNode {
    fn new(io: SimIo, flow: &Flow) -> Self {
        let seed = flow.seed << 8 | io.endpoint().0 as u64;
        if io.endpoint() == EndpointId(0) {
            Self::Sends(Box::new(Sends::new(io, flow, seed)))
        } else {
            Self::Takes(Box::new(Takes::new(io, flow, seed)))
        }
    }
}

impl Node for FlowNode {
    fn turn(&mut self) {
        match self {
            Self::Sends(node) => node.turn(),
            Self::Takes(node) => node.turn(),
        }
    }
}

impl Sends {
    fn new(io: SimIo, flow: &Flow, seed: u64) -> Self {
        let now = io.world_now();
        let gsi = Gsi([1; 6]);
        let sending = Sending {
            config: flow.config,
            group: group(),
            destination_port: group().port(),
            own: address(0),
            control_port: Some(CONTROL),
            upstream_port: match flow.upstream_port {
                port if port == group().port() => 0,
                port => port,
            },
            identity: Identity {
                session_id: SESSION,
                tsi: Tsi { gsi, port: 4 },
                first_sqn: 100,
                seed,
            },
            partner: None,
            combine: pgm::fec::combine,
        };
        let mut audience = AudienceConfig::new(SESSION);
        audience.policy = flow.policy;
        let endpoint = Publisher::open(&sending, audience, now);
        Self {
            driver: Driver::new(io, endpoint, RecvBatch::new(4, 65_535)),
            flow: flow.clone(),
            next: 0,
            burst_at: now + WARM_UP,
            end: now + flow.length,
            message: vec![7; flow.bytes],
            samples: Vec::new(),
            sample_at: now,
        }
    }

    fn turn(&mut self) {
        let now = self.driver.io.now();
        while now >= self.sample_at {
            self.sample_at += Duration::from_millis(100);
            self.samples.push(self.sample());
        }
        while now >= self.burst_at && now < self.end && self.offer(now) {
            self.next += 1;
            if self.next.is_multiple_of(self.flow.burst) {
                self.burst_at += self.flow.gap;
            }
        }
        let turn = self.driver.turn(&mut ()).unwrap();
        while self.driver.endpoint.pop_event().is_some() {}
        if turn.is_idle() {
            let next = self.burst_at.max(now + Duration::from_micros(20));
            self.driver.wait((now < self.end).then_some(next));
        } else {
            self.driver.io.wait(Some(now));
        }
    }

    fn offer(&mut self, now: Instant) -> bool {
        self.message[..8].copy_from_slice(&self.next.to_be_bytes());
        self.message[8..16].copy_from_slice(&now.as_nanos().to_be_bytes());
        self.driver.endpoint.offer(&self.message).is_ok()
    }

    fn sample(&self) -> Sample {
        let (source, audience) = (
            self.driver.endpoint.source(),
            self.driver.endpoint.audience(),
        );
        let counters = source.counters();
        let slot = audience.rate_limit().map(|limit| limit.slot);
        Sample {
            pace: source.pace(),
            packets: counters.odata_packets,
            repairs: counters.rdata_packets,
            wire_bytes: counters.wire_bytes,
            limit: audience.rate_limit(),
            limiting_host: audience
                .receivers()
                .find(|receiver| Some(receiver.slot) == slot)
                .map(|receiver| receiver.peer.ip()),
        }
    }

    fn summary(&self) -> Sent {
        let counters = self.driver.endpoint.source().counters();
        Sent {
            messages: self.next,
            repairs: counters.rdata_packets,
            spms: counters.spms,
            census: self.driver.endpoint.source().census(),
            samples: self.samples.clone(),
        }
    }
}

impl Takes {
    fn new(io: SimIo, flow: &Flow, seed: u64) -> Self {
        let now = io.world_now();
        let receiving = Receiving {
            config: flow.config,
            group: group(),
            destination_port: group().port(),
            own: io.local_ip(),
            seed,
            instance: 1,
            combine: pgm::fec::combine,
        };
        let reporter = ReporterConfig::new(format!("r{seed}"), seed);
        let endpoint = Subscriber::open(&receiving, Mode::Arrival, Some(reporter), now);
        Self {
            sink: Sink {
                io: io.clone(),
                came: Vec::new(),
                lost: 0,
            },
            driver: Driver::new(io, endpoint, RecvBatch::new(4, 65_535)),
        }
    }

    fn turn(&mut self) {
        let now = self.driver.io.now();
        let id = self.driver.io.endpoint();
        let drops = self.driver.io.world().borrow().counts(id).overflowed;
        self.driver.endpoint.set_host_drops(drops);
        if self.driver.turn(&mut self.sink).unwrap().is_idle() {
            self.driver.wait(None);
        } else {
            self.driver.io.wait(Some(now));
        }
    }
}

impl MessageSink for Sink {
    fn message(&mut self, _session: u32, _position: u64, data: &[u8]) {
        let number = |at: usize| u64::from_be_bytes(data[at..at + 8].try_into().unwrap());
        self.came.push(Came {
            number: number(0),
            after: self.io.world_now().since(Instant::from_nanos(number(8))),
        });
    }

    fn event(&mut self, event: SessionEvent) {
        if let SessionEvent::Lost { count, .. } = event {
            self.lost += count;
        }
    }
}

fn address(host: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, 1 + u8::try_from(host).unwrap()])
}

fn group() -> SocketAddr {
    SocketAddr::from(([239, 1, 1, 1], 7500))
}

const SESSION: u64 = 9;
const CONTROL: u16 = 9000;
/// Receivers join and dial before the first message.
const WARM_UP: Duration = Duration::from_millis(500);
