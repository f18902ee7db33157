//! Frames under faults: a sender, some receivers, and a judge of every frame.
//!
//! A seed draws what the network does, how frames leave, and whether receivers pause. Whatever the
//! seed, this must hold at each receiver:
//! - frames come in order and not late, and only bit errors that no checksum detects damage them;
//! - each number from the first frame on is whole, or lost for one cause;
//! - if the sender's END came, the numbers reach to the sender's last one.

use std::{cell::RefCell, convert::Infallible, fmt, net::SocketAddr, rc::Rc, time::Duration};

use base::{Instant, Rng};
use delivery::{
    AudienceConfig, ReporterConfig,
    frames::{FrameEvent, FrameLoss, FrameReceiverConfig, FrameSenderConfig},
};
use driver::{
    Driver, FramePacing, FramePublisher, FrameSink, FrameStream, FrameSubscriber, Identity,
    Offered, Receiving, Sending, SessionEvent,
};
use pgm::Config;

use crate::{
    Action, EndpointSetup, Fault, HostId, Node, Ratio, SimIo, Simulation, Span, World, node::batch,
};

mod feeds;
pub use feeds::{FeedsReport, run_feeds};

/// What a run of frames came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FramesReport {
    /// Frames that the sender numbered.
    pub numbered: u64,
    /// Frames delivered, at all receivers together.
    pub whole: u64,
    /// Frames among `whole` in which a packet, mostly a repair, came after later packets.
    pub repaired: u64,
    /// Frames lost, at all receivers together, in the order of [`FrameLoss::ALL`].
    pub lost: [u64; FrameLoss::ALL.len()],
    /// Packets that came to receivers with bit errors that no checksum detects.
    pub tainted: u64,
    /// Frames delivered with wrong bytes, because of bit errors that no checksum detects.
    pub damaged: u64,
}

impl fmt::Display for FramesReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            numbered,
            whole,
            repaired,
            lost,
            tainted,
            damaged,
        } = self;
        write!(
            f,
            "{numbered} frames numbered; {whole} whole, {repaired} repaired, lost {lost:?}, \
             {damaged} damaged by {tainted} packets"
        )
    }
}

/// Runs the frames of `seed`.
///
/// # Errors
/// Every promise that did not hold, a line each.
pub fn run(seed: u64) -> Result<FramesReport, String> {
    let plan = Plan::draw(seed);
    let mut world = World::new(seed);
    let mut rng = Rng::new(seed ^ 0xF4A3);
    let record = Rc::new(RefCell::new(Record::default()));
    for index in 0..=plan.receivers {
        let host = world.add_host(
            address(index),
            &plan.faults(&mut rng),
            &plan.faults(&mut rng),
        );
        let is_sender = index == 0;
        world.add_endpoint(&EndpointSetup {
            upstream_port: if is_sender { PORT } else { 0 },
            control_port: is_sender.then_some(PORT),
            receive_buffer_bytes: plan.receive_buffer_bytes,
            mtu: plan.mtu - 28,
            ..EndpointSetup::new(host, Some(group()))
        });
        // No receiver pauses at first. Its deadlines count from the fastest frame that it knows,
        // and this would be a frame that the pause delayed.
        if plan.pauses && !is_sender && rng.chance(1, 2) {
            let at = world.now() + Duration::from_millis(rng.between(300, 1500));
            let length = Duration::from_millis(rng.between(1, 400));
            world.plan(
                at,
                Action::Pause {
                    host: HostId(index),
                    length,
                },
            );
        }
    }
    let started = world.now();
    let (made, shared) = (plan.clone(), record.clone());
    let mut simulation = Simulation::new(world.shared(), move |io| {
        let seed = rng.next_u64();
        match io.endpoint().0 {
            0 => FramesNode::Sender(Box::new(SenderNode::new(io, &made, seed, shared.clone()))),
            number => FramesNode::Receiver(Box::new(ReceiverNode::new(
                io,
                &made,
                (number, seed),
                shared.clone(),
            ))),
        }
    });
    let is_over = simulation.run(started + TIME_MAX, |simulation| {
        simulation.nodes().all(|(_, node)| node.is_finished())
    });
    let mut record = record.borrow_mut();
    if !is_over {
        record.faults.push("not over by the deadline".to_owned());
    }
    record.judge();
    if record.faults.is_empty() {
        Ok(record.report)
    } else {
        Err(record.faults.join("\n"))
    }
}

/// What a seed stands for.
#[derive(Clone, Debug)]
struct Plan {
    receivers: usize,
    frames: u64,
    bytes_max: u64,
    interval: Duration,
    deadline: Duration,
    pacing: FramePacing,
    mtu: usize,
    receive_buffer_bytes: usize,
    fec_group: u32,
    loss_percent_max: u64,
    delay_ms_max: u64,
    pauses: bool,
}

impl Plan {
    fn draw(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x0F2A_3E5D);
        let rng = &mut rng;
        let interval = Duration::from_millis(rng.between(5, 50));
        let pacing = if rng.chance(1, 3) {
            FramePacing::Bursts {
                limit: rng.between(1, 40) as u32,
                micro_delay: Duration::from_micros(rng.between(0, 500)),
                cycle_delay: Duration::from_micros(rng.between(0, 2_000)),
            }
        } else {
            FramePacing::Even
        };
        Self {
            receivers: 1 + rng.below(3) as usize,
            frames: rng.between(1, 40),
            bytes_max: rng.between(1, 60_000),
            interval,
            deadline: interval * rng.between(1, 6) as u32,
            pacing,
            mtu: if rng.chance(1, 3) { 600 } else { 1500 },
            receive_buffer_bytes: if rng.chance(1, 4) {
                rng.between(8, 64) as usize * 1024
            } else {
                1 << 20
            },
            fec_group: if rng.chance(1, 3) {
                1 << rng.between(1, 5)
            } else {
                0
            },
            loss_percent_max: if rng.chance(1, 4) { 30 } else { 5 },
            delay_ms_max: if rng.chance(1, 4) { 20 } else { 1 },
            pauses: rng.chance(1, 4),
        }
    }

    /// Draws the faults of one direction of a link.
    fn faults(&self, rng: &mut Rng) -> Vec<Fault> {
        let mut list = Vec::new();
        if rng.chance(1, 2) {
            let percent = rng.between(0, self.loss_percent_max) as u32;
            list.push(Fault::Loss(Ratio::percent(percent)));
        }
        if rng.chance(1, 4) {
            list.push(Fault::Burst {
                enter: Ratio::per_mille(rng.between(1, 10) as u32),
                leave: Ratio::percent(rng.between(5, 50) as u32),
                loss: Ratio::percent(90),
            });
        }
        let by = Span::micros(rng.between(1, self.delay_ms_max * 1000));
        list.push(Fault::Delay(by));
        if rng.chance(1, 3) {
            list.push(Fault::Jitter(by));
        }
        if rng.chance(1, 3) {
            let chance = Ratio::percent(rng.between(1, 20) as u32);
            list.push(Fault::Reorder { chance, by });
        }
        if rng.chance(1, 4) {
            let chance = Ratio::percent(rng.between(1, 10) as u32);
            list.push(Fault::Duplicate { chance, after: by });
        }
        if rng.chance(1, 4) {
            // A checksum detects any single bit error. But two links may flip one bit each, and the
            // two errors may hide each other.
            let chance = Ratio::per_mille(rng.between(1, 20) as u32);
            list.push(Fault::Corrupt {
                chance,
                bits_max: 1,
            });
        }
        list
    }

    fn stream(&self) -> FrameStream {
        FrameStream {
            frames: FrameSenderConfig {
                interval: self.interval,
                deadline: self.deadline,
                format: b"sim".to_vec(),
            },
            frame_bytes_max: self.bytes_max as usize,
            pacing: self.pacing,
            is_always_sent: true,
        }
    }

    fn config(&self) -> Config {
        let builder = Config::builder()
            .mtu(self.mtu)
            .fec_group(self.fec_group)
            .tx_window_bytes(2 << 20)
            .object_window_bytes(2 << 20);
        builder.build().expect("the drawn parameters fit together")
    }

    /// Returns the greatest age that a frame may have when it is given out. A deadline counts from
    /// the fastest frame known. The first packet of that frame to come may have left up to an
    /// interval after the frame was made.
    fn latest(&self) -> Duration {
        self.deadline + self.interval + Duration::from_millis(4 * self.delay_ms_max + 5)
    }
}

/// What the processes tell the judge.
#[derive(Debug, Default)]
struct Record {
    faults: Vec<String>,
    report: FramesReport,
    overruns: u64,
    /// The first number and the count of each receiver that knows the end.
    ends: Vec<(u64, u64)>,
}

impl Record {
    fn judge(&mut self) {
        for &(first, count) in &self.ends {
            let numbered = self.report.numbered;
            if first + count != numbered {
                let text = format!("{count} frames from {first} on, of {numbered}");
                self.faults.push(text);
            }
        }
    }
}

enum FramesNode {
    Sender(Box<SenderNode>),
    Receiver(Box<ReceiverNode>),
}

impl FramesNode {
    fn is_finished(&self) -> bool {
        match self {
            Self::Sender(node) => node.has_exited,
            Self::Receiver(node) => node.sink.found == 0 || node.sink.is_over,
        }
    }
}

impl Node for FramesNode {
    fn turn(&mut self) {
        match self {
            Self::Sender(node) => node.turn(),
            Self::Receiver(node) => node.turn(),
        }
    }
}

/// A process that sends frames.
struct SenderNode {
    driver: Driver<SimIo, FramePublisher>,
    plan: Plan,
    rng: Rng,
    next: u64,
    due: Instant,
    has_exited: bool,
    record: Rc<RefCell<Record>>,
}

impl SenderNode {
    fn new(io: SimIo, plan: &Plan, seed: u64, record: Rc<RefCell<Record>>) -> Self {
        let (now, mut rng) = (io.world_now(), Rng::new(seed));
        let drawn = Identity::draw(PORT, || Ok::<_, Infallible>(rng.next_u64()));
        let Ok(identity) = drawn;
        let own = address(0);
        let stream = plan.stream();
        let config = stream.settle(plan.config(), own);
        let sending = Sending {
            config: config.expect("the parameters fit together"),
            group: group(),
            destination_port: PORT,
            own,
            control_port: Some(PORT),
            upstream_port: 0,
            identity,
            partner: None,
            combine: pgm::fec::combine,
        };
        let audience = AudienceConfig::new(identity.session_id);
        let endpoint = FramePublisher::open(&sending, &stream, audience, now);
        Self {
            driver: Driver::new(io, endpoint, batch()),
            plan: plan.clone(),
            rng,
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
            self.offer(now);
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

    fn offer(&mut self, now: Instant) {
        let (id, len) = (self.next, self.rng.between(1, self.plan.bytes_max) as usize);
        let offered = self.driver.endpoint.offer(now.as_nanos(), len, |at, room| {
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

/// A process that receives frames, and checks each.
struct ReceiverNode {
    driver: Driver<SimIo, FrameSubscriber>,
    sink: Sink,
}

impl ReceiverNode {
    fn new(
        io: SimIo,
        plan: &Plan,
        (number, seed): (usize, u64),
        record: Rc<RefCell<Record>>,
    ) -> Self {
        let now = io.world_now();
        let receiving = Receiving {
            config: plan.config(),
            group: group(),
            destination_port: PORT,
            own: address(number),
            seed,
            instance: seed,
            combine: pgm::fec::combine,
        };
        let reporter = ReporterConfig::new(format!("r{number}"), seed);
        let bounds = FrameReceiverConfig {
            memory_bytes_max: 1 << 20,
            ..FrameReceiverConfig::default()
        };
        let endpoint = FrameSubscriber::open(&receiving, bounds, Some(reporter), now);
        Self {
            driver: Driver::new(io, endpoint, batch()),
            sink: Sink {
                now,
                latest: plan.latest(),
                next: None,
                found: 0,
                tainted: 0,
                damaged: 0,
                has_ended: false,
                is_over: false,
                record,
            },
        }
    }

    fn turn(&mut self) {
        let now = self.driver.io.world_now();
        let endpoint = self.driver.io.endpoint();
        let drops = self.driver.io.world().borrow().counts(endpoint).overflowed;
        self.driver.endpoint.set_host_drops(drops);
        self.sink.now = now;
        match self.driver.turn(&mut self.sink) {
            Ok(turn) if turn.is_idle() => self.driver.wait(None),
            Ok(_) => base::Io::wait(&mut self.driver.io, Some(now)),
            Err(fault) => self.sink.fail(fault.to_string()),
        }
        let hidden = self.driver.io.world().borrow().counts(endpoint).tainted;
        // A packet with a bit error that no checksum detects also spoils the packets that are
        // recovered with it.
        let spoiled = match hidden {
            0 => 0,
            _ => self.driver.endpoint.receiver().counters().recovered_sqns,
        };
        let news = hidden - self.sink.tainted;
        self.sink.tainted = hidden;
        self.sink.record.borrow_mut().report.tainted += news;
        if self.sink.damaged > hidden + spoiled {
            let damaged = self.sink.damaged;
            self.sink.fail(format!(
                "{damaged} damaged frames, {hidden} hidden bit errors"
            ));
        }
        if self.driver.endpoint.frames().memory_bytes() > 1 << 20 {
            self.sink.fail("memory grew beyond its bound".to_owned());
        }
    }
}

/// The application of a receiver.
struct Sink {
    now: Instant,
    latest: Duration,
    /// The next frame's number; `None` before the first frame.
    next: Option<u64>,
    found: u64,
    tainted: u64,
    damaged: u64,
    /// True once the stream has ended. It must not begin anew after that: nobody forges packets
    /// here, so no stream contradicts itself.
    has_ended: bool,
    is_over: bool,
    record: Rc<RefCell<Record>>,
}

impl Sink {
    fn fail(&self, text: String) {
        self.record.borrow_mut().faults.push(text);
    }

    fn follow(&mut self, first: u64, count: u64) {
        if self.has_ended {
            self.fail(format!("frame {first} after the end"));
        }
        let next = self.next.replace(first + count);
        if next.is_some_and(|next| next != first) {
            self.fail(format!("frame {first} after {next:?}"));
        }
    }
}

impl FrameSink for Sink {
    fn frame(&mut self, event: &FrameEvent<'_>) {
        match *event {
            FrameEvent::Whole(frame) => {
                self.follow(frame.id, 1);
                let mut bytes = frame.data.iter().enumerate();
                let is_intact = bytes.all(|(at, &byte)| byte == byte_of(frame.id, at));
                self.damaged += u64::from(!is_intact);
                let made = Instant::from_nanos(frame.timestamp_ns);
                if self.now >= made + self.latest {
                    let age = self.now.since(made);
                    self.fail(format!("frame {} came after {age:?}", frame.id));
                }
                let report = &mut self.record.borrow_mut().report;
                report.whole += 1;
                report.repaired += u64::from(frame.is_repaired);
                report.damaged += u64::from(!is_intact);
            }
            FrameEvent::Lost {
                first,
                count,
                cause,
                ..
            } => {
                self.follow(first, count);
                self.record.borrow_mut().report.lost[cause as usize] += count;
            }
            FrameEvent::Ended { counts, .. } => {
                self.has_ended = true;
                let mut record = self.record.borrow_mut();
                if counts.whole + counts.lost_all() != counts.frames {
                    record.faults.push(format!("counts contradict: {counts:?}"));
                }
                if counts.lost_by(FrameLoss::Overrun) > record.overruns {
                    let told = record.overruns;
                    record
                        .faults
                        .push(format!("{told} overruns, but {counts:?}"));
                }
                if let Some(first) = counts.first_id.filter(|_| counts.is_end_known) {
                    record.ends.push((first, counts.frames));
                }
            }
        }
    }

    fn event(&mut self, event: SessionEvent) {
        match event {
            SessionEvent::Found { .. } => self.found += 1,
            SessionEvent::Ended { .. }
            | SessionEvent::Expired { .. }
            | SessionEvent::Reset { .. }
            | SessionEvent::Dropped { .. } => self.is_over = true,
            _ => {}
        }
    }
}

/// Returns the byte at `at` of frame `id`.
const fn byte_of(id: u64, at: usize) -> u8 {
    (id as usize * 31 + at * 7 + at / 251) as u8
}

fn address(index: usize) -> std::net::IpAddr {
    [10, 0, 0, 1 + index as u8].into()
}

fn group() -> SocketAddr {
    ([239, 192, 0, 1], PORT).into()
}

const PORT: u16 = 7500;
const TIME_MAX: Duration = Duration::from_secs(120);
