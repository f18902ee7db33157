//! The same frames over two networks. Each network has faults of its own, and one may be cut for a
//! while.
//!
//! A process with two feeds is two nodes here, one for each feed. Both nodes share what joins the
//! feeds.

use std::{
    cell::RefCell, collections::BTreeSet, convert::Infallible, fmt, net::SocketAddr, rc::Rc,
    time::Duration,
};

use base::{Instant, Rng};
use delivery::{
    AudienceConfig, ReporterConfig,
    frames::{Feed, FeedCounts, FrameReceiverConfig},
};
use driver::{
    Driver, Feeds, FramePublisher, FrameSubscriber, Identity, Offered, Receiving, Sending,
};

use super::{FramesReport, PORT, Plan, Record, Sink, TIME_MAX, byte_of};
use crate::{
    Action, CutDirection, EndpointSetup, Fault, HostId, Node, SimIo, Simulation, Span, World,
    node::batch,
};

/// What a run of two feeds came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeedsReport {
    /// What came of both feeds together.
    pub frames: FramesReport,
    /// What each feed brought, at all receivers together.
    pub feeds: [FeedCounts; 2],
}

impl fmt::Display for FeedsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second] = self.feeds;
        write!(f, "{}; feeds {first:?} and {second:?}", self.frames)
    }
}

/// Runs the frames of `seed` over two networks.
///
/// # Errors
/// Every promise that did not hold, a line each.
pub fn run_feeds(seed: u64) -> Result<FeedsReport, String> {
    let mut rng = Rng::new(seed ^ 0xFEED5);
    let (plan, troubles) = draw(seed, &mut rng);
    let mut world = World::new(seed);
    let record = Rc::new(RefCell::new(Record::default()));
    let started = world.now();
    troubles.set_up(&plan, &mut world, &mut rng);
    let latest = plan.latest() + troubles.delay.1;
    let courts = (0..plan.receivers).map(|_| Court::new(started, latest, &record));
    let courts: Vec<_> = courts.map(|it| Rc::new(RefCell::new(it))).collect();
    let (made, shared, joined) = (plan.clone(), record.clone(), courts.clone());
    let identity = draw_identity(&mut rng);
    let mut simulation = Simulation::new(world.shared(), move |io| {
        let (machine, feed) = (io.endpoint().0 / 2, Feed::ALL[io.endpoint().0 % 2]);
        match machine.checked_sub(1) {
            None => {
                let sender = FeedSender::new(io, &made, feed, identity, shared.clone());
                FeedNode::Sender(Box::new(sender))
            }
            Some(receiver) => {
                let court = joined[receiver].clone();
                let seed = rng.next_u64();
                let node = FeedReceiver::new(io, &made, (machine, feed), seed, court);
                FeedNode::Receiver(Box::new(node))
            }
        }
    });
    let is_over = simulation.run(started + TIME_MAX, |simulation| {
        simulation.nodes().all(|(_, node)| node.is_finished())
    });
    let mut record = record.borrow_mut();
    if !is_over {
        record.faults.push("not over by the deadline".to_owned());
    }
    let mut report = FeedsReport::default();
    for court in &courts {
        court.borrow().judge(&mut record, &mut report);
    }
    // Both feeds have numbered each frame.
    record.report.numbered /= 2;
    record.judge();
    report.frames = record.report;
    if record.faults.is_empty() {
        Ok(report)
    } else {
        Err(record.faults.join("\n"))
    }
}

/// What happens besides the faults of each link.
struct Troubles {
    /// A feed that is slower than the other, and by how much.
    delay: (Feed, Duration),
    /// The longest time for which a feed is cut.
    cut_ms_max: u64,
}

/// Draws what a seed stands for. With some seeds, a feed may be cut for more than the
/// `FRAMES_OPEN_MAX` frames that a receiver follows at once.
fn draw(seed: u64, rng: &mut Rng) -> (Plan, Troubles) {
    let mut plan = Plan::draw(seed);
    let mut cut_ms_max = 1500;
    if rng.chance(1, 10) {
        plan.receivers = 1;
        plan.frames = rng.between(300, 450);
        plan.interval = Duration::from_millis(rng.between(5, 8));
        plan.deadline = plan.interval * rng.between(4, 20) as u32;
        plan.bytes_max = plan.bytes_max.min(6000);
        cut_ms_max = 3000;
    }
    let delay = if rng.chance(1, 3) {
        plan.interval.mul_f64(rng.between(1, 300) as f64 / 100.0)
    } else {
        Duration::ZERO
    };
    let delay = (Feed::ALL[rng.below(2) as usize], delay);
    (plan, Troubles { delay, cut_ms_max })
}

impl Troubles {
    /// Adds all hosts, and plans what happens to them.
    fn set_up(&self, plan: &Plan, world: &mut World, rng: &mut Rng) {
        let started = world.now();
        for machine in 0..=plan.receivers {
            for feed in Feed::ALL {
                let (mut egress, ingress) = (plan.faults(rng), plan.faults(rng));
                let is_sender = machine == 0;
                if is_sender && feed == self.delay.0 {
                    egress.push(Fault::Delay(Span(self.delay.1)));
                }
                let host = world.add_host(address(machine, feed), &egress, &ingress);
                world.add_endpoint(&EndpointSetup {
                    upstream_port: if is_sender { PORT } else { 0 },
                    control_port: is_sender.then_some(PORT),
                    receive_buffer_bytes: plan.receive_buffer_bytes,
                    mtu: plan.mtu - 28,
                    ..EndpointSetup::new(host, Some(group(feed)))
                });
            }
            // No process of a receiver pauses at first. Its deadlines count from the fastest frame
            // that it knows, and this would be a frame that the pause delayed.
            if plan.pauses && machine > 0 && rng.chance(1, 2) {
                let at = started + Duration::from_millis(rng.between(300, 1500));
                let length = Duration::from_millis(rng.between(1, 400));
                for feed in Feed::ALL {
                    let host = HostId(2 * machine + feed.index());
                    world.plan(at, Action::Pause { host, length });
                }
            }
        }
        if rng.chance(2, 3) {
            let cut = Action::Partition {
                // The sender's hosts are the first two.
                island: BTreeSet::from([HostId(rng.below(2) as usize)]),
                direction: CutDirection::Both,
                length: Duration::from_millis(rng.between(1, self.cut_ms_max)),
            };
            world.plan(started + Duration::from_millis(rng.between(100, 1500)), cut);
        }
    }
}

fn draw_identity(rng: &mut Rng) -> Identity {
    let Ok(mut identity) = Identity::draw(PORT, || Ok::<_, Infallible>(rng.next_u64()));
    // No port of the pair is that of the group.
    identity.tsi.port |= 0x8000;
    identity
}

enum FeedNode {
    Sender(Box<FeedSender>),
    Receiver(Box<FeedReceiver>),
}

impl FeedNode {
    fn is_finished(&self) -> bool {
        match self {
            Self::Sender(node) => node.has_exited,
            Self::Receiver(node) => {
                let court = node.court.borrow();
                court.sink.found == 0 || court.sink.is_over
            }
        }
    }
}

impl Node for FeedNode {
    fn turn(&mut self) {
        match self {
            Self::Sender(node) => node.turn(),
            Self::Receiver(node) => node.turn(),
        }
    }
}

/// One feed of the sender. Both feeds offer the same frames at the same times.
struct FeedSender {
    driver: Driver<SimIo, FramePublisher>,
    plan: Plan,
    next: u64,
    due: Instant,
    has_exited: bool,
    record: Rc<RefCell<Record>>,
}

impl FeedSender {
    fn new(
        io: SimIo,
        plan: &Plan,
        feed: Feed,
        mut identity: Identity,
        record: Rc<RefCell<Record>>,
    ) -> Self {
        let now = io.world_now();
        if feed == Feed::Second {
            identity.tsi = identity.tsi.partner();
            identity.session_id ^= 1;
            identity.seed ^= 1;
        }
        let own = address(0, feed);
        let stream = plan.stream();
        let config = stream.settle(plan.config(), own);
        let sending = Sending {
            config: config.expect("the parameters fit together"),
            group: group(feed),
            destination_port: PORT,
            own,
            control_port: Some(PORT),
            upstream_port: 0,
            identity,
            partner: Some(address(0, feed.other())),
            combine: pgm::fec::combine,
        };
        let audience = AudienceConfig::new(identity.session_id);
        let endpoint = FramePublisher::open(&sending, &stream, audience, now);
        Self {
            driver: Driver::new(io, endpoint, batch()),
            plan: plan.clone(),
            next: 0,
            due: now + Duration::from_millis(50),
            has_exited: false,
            record,
        }
    }

    fn turn(&mut self) {
        if self.has_exited {
            return;
        }
        let now = self.driver.io.world_now();
        if self.next < self.plan.frames && now >= self.due {
            self.offer();
            if self.next == self.plan.frames {
                let by = now + Duration::from_secs(20);
                self.driver.endpoint.close(now, by);
            }
        }
        match self.driver.turn(&mut ()) {
            Ok(turn) if turn.is_idle() => {
                let more = (self.next < self.plan.frames).then_some(self.due);
                self.driver.wait(more);
            }
            Ok(_) => base::Io::wait(&mut self.driver.io, Some(now)),
            Err(fault) => self.record.borrow_mut().faults.push(fault.to_string()),
        }
        if self.driver.endpoint.ended().is_some() {
            self.has_exited = true;
            self.driver.io.exit();
        }
    }

    fn offer(&mut self) {
        let id = self.next;
        let len = Rng::new(id).between(1, self.plan.bytes_max) as usize;
        let made = self.due.as_nanos();
        let offered = self.driver.endpoint.offer_heard(made, len, |at, room| {
            for (index, byte) in room.iter_mut().enumerate() {
                *byte = byte_of(id, at + index);
            }
        });
        let mut record = self.record.borrow_mut();
        record.report.numbered += 1;
        match offered {
            Ok(Offered::Taken(number)) if number == id => {}
            Ok(Offered::Overrun(number)) if number == id => record.overruns += 1,
            other => record.faults.push(format!("frame {id}: {other:?}")),
        }
        self.next += 1;
        self.due += self.plan.interval;
    }
}

/// The part that joins the feeds of a receiver, and its application.
struct Court {
    feeds: Feeds,
    sink: Sink,
    /// By feed: packets with bit errors that no checksum detects.
    tainted: [u64; 2],
    /// By feed: packets that were recovered, perhaps with the help of a tainted packet.
    spoiled: [u64; 2],
    /// Frames that the receiver of each feed had whole.
    whole: [u64; 2],
}

impl Court {
    fn new(now: Instant, latest: Duration, record: &Rc<RefCell<Record>>) -> Self {
        Self {
            feeds: Feeds::new(1 << 19),
            sink: Sink {
                now,
                latest,
                next: None,
                found: 0,
                tainted: 0,
                damaged: 0,
                has_ended: false,
                is_over: false,
                record: record.clone(),
            },
            tainted: [0; 2],
            spoiled: [0; 2],
            whole: [0; 2],
        }
    }

    fn judge(&self, record: &mut Record, report: &mut FeedsReport) {
        let counts = self.feeds.arbiter().feeds();
        for (sum, counts) in report.feeds.iter_mut().zip(counts) {
            *sum += counts;
        }
        self.judge_counts(counts, record);
        let [tainted, spoiled] = [self.tainted, self.spoiled].map(|it| it.iter().sum::<u64>());
        record.report.tainted += tainted;
        if self.sink.damaged > tainted + spoiled {
            let damaged = self.sink.damaged;
            let text = format!("{damaged} damaged frames, {tainted} hidden bit errors");
            record.faults.push(text);
        }
        if self.sink.found > 1 {
            let text = format!("{} senders of one with two feeds", self.sink.found);
            record.faults.push(text);
        }
    }

    /// Checks what the feeds are said to have brought against what was given out: each number is
    /// counted at most once for each feed.
    fn judge_counts(&self, counts: [FeedCounts; 2], record: &mut Record) {
        let all = self.feeds.arbiter().counters();
        let [one, other] = counts;
        let mut is_true = one.first + other.first == all.frames_whole
            && one.saved + other.saved == all.frames_saved;
        for (feed, [own, other]) in Feed::ALL.into_iter().zip([[one, other], [other, one]]) {
            is_true &= own.second + own.saved <= other.first
                && own.late + own.lost <= all.frames_lost
                && own.whole() <= self.whole[feed.index()];
        }
        if !is_true {
            let text = format!("of {:?} whole and {all:?}: {counts:?}", self.whole);
            record.faults.push(text);
        }
    }
}

/// One feed of a receiver.
struct FeedReceiver {
    driver: Driver<SimIo, FrameSubscriber>,
    feed: Feed,
    court: Rc<RefCell<Court>>,
}

impl FeedReceiver {
    fn new(
        io: SimIo,
        plan: &Plan,
        (machine, feed): (usize, Feed),
        seed: u64,
        court: Rc<RefCell<Court>>,
    ) -> Self {
        let now = io.world_now();
        let receiving = Receiving {
            config: plan.config(),
            group: group(feed),
            destination_port: PORT,
            own: address(machine, feed),
            seed,
            instance: seed,
            combine: pgm::fec::combine,
        };
        let reporter = ReporterConfig::new(format!("r{machine}"), seed);
        let bounds = FrameReceiverConfig {
            memory_bytes_max: 1 << 20,
            ..FrameReceiverConfig::default()
        };
        let endpoint = FrameSubscriber::open(&receiving, bounds, Some(reporter), now);
        Self {
            driver: Driver::new(io, endpoint, batch()),
            feed,
            court,
        }
    }

    fn turn(&mut self) {
        let now = self.driver.io.world_now();
        let endpoint = self.driver.io.endpoint();
        let drops = self.driver.io.world().borrow().counts(endpoint).overflowed;
        self.driver.endpoint.set_host_drops(drops);
        let Court {
            feeds,
            sink,
            tainted,
            spoiled,
            whole,
        } = &mut *self.court.borrow_mut();
        sink.now = now;
        let turn = self.driver.turn(&mut feeds.sink(now, self.feed, sink));
        feeds.settle(now, sink);
        match turn {
            Ok(turn) if turn.is_idle() => self.driver.wait(feeds.next_timeout()),
            Ok(_) => base::Io::wait(&mut self.driver.io, Some(now)),
            Err(fault) => sink.fail(fault.to_string()),
        }
        let hidden = self.driver.io.world().borrow().counts(endpoint).tainted;
        tainted[self.feed.index()] = hidden;
        if hidden > 0 {
            let recovered = self.driver.endpoint.receiver().counters().recovered_sqns;
            spoiled[self.feed.index()] = recovered;
        }
        let frames = self.driver.endpoint.frames();
        whole[self.feed.index()] = frames.counters().frames_whole;
        if frames.memory_bytes() > 1 << 20 {
            sink.fail("memory grew beyond its bound".to_owned());
        }
    }
}

fn address(machine: usize, feed: Feed) -> std::net::IpAddr {
    [10, 0, feed as u8, 1 + machine as u8].into()
}

fn group(feed: Feed) -> SocketAddr {
    ([239, 192, 0, 1 + feed as u8], PORT).into()
}
