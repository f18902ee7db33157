//! Tests the rate control in virtual time: one sender, one receiver, and at times a TCP connection
//! share a slow link, whose full queue drops what arrives.
//!
//! The sender has bursts, a flow window, repairs and marks like the shipped one. The receiver
//! measures with the shipped [`ArrivalMeter`], and reports like a receiver that holds the sender
//! back. The TCP connection is ideal: [`CubicWindow`], selective acknowledgements, bursts of eight.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{window::CubicWindow, *};
use crate::feedback::ArrivalMeter;

/// The link, and what uses it.
#[derive(Clone, Debug)]
struct Model {
    bytes_per_s: u64,
    one_way: Duration,
    seconds: u64,
    /// When our sender begins, in seconds.
    begins: f64,
    /// When the rival TCP connection begins and ends, in seconds; `None` without one.
    rival: Option<[f64; 2]>,
    /// One packet in this many is lost by chance; 0 for none.
    loss: u64,
    /// With `(n, late)`: of every `n` packets, the marks among the first 20 are delayed by `late`,
    /// as on a busy host.
    noise: Option<(u64, Duration)>,
}

impl Model {
    /// A link of 200 Mbit/s with a queue of 16 ms, used by nobody else, for 8 s.
    const fn new() -> Self {
        Self {
            bytes_per_s: 25_000_000,
            one_way: Duration::from_micros(50),
            seconds: 8,
            begins: 0.0,
            rival: None,
            loss: 0,
            noise: None,
        }
    }

    fn run(&self) -> Course {
        let mut world = World::new(self.clone());
        world.run();
        Course {
            bytes_per_s: self.bytes_per_s,
            tenths: world.tenths,
        }
    }
}

/// The results of one run: one `Tenth` for each tenth of a second.
struct Course {
    bytes_per_s: u64,
    tenths: Vec<Tenth>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tenth {
    rate: u64,
    phase: &'static str,
    sent: u64,
    lost: u64,
    ours: u64,
    theirs: u64,
    queue_us: u64,
}

impl Course {
    fn sum(&self, from_s: usize, to_s: usize, value: fn(&Tenth) -> u64) -> u64 {
        self.tenths[from_s * 10..to_s * 10].iter().map(value).sum()
    }

    /// Returns the share of the link that our packets took, in thousandths.
    fn share(&self, from_s: usize, to_s: usize) -> u64 {
        let bytes = self.sum(from_s, to_s, |tenth| tenth.ours);
        bytes * 1000 / (self.bytes_per_s * (to_s - from_s) as u64)
    }

    /// Returns how many of every 100,000 packets of our sender were lost.
    fn lost(&self, from_s: usize, to_s: usize) -> u64 {
        let lost = self.sum(from_s, to_s, |tenth| tenth.lost);
        lost * 100_000 / self.sum(from_s, to_s, |tenth| tenth.sent).max(1)
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Turn,
    Arrives { position: u64 },
    MarkArrives { left_us: u64, lead: u64 },
    Asked { position: u64 },
    Reported(RateReport, u64),
    TcpTurn,
    Acknowledged { number: u64 },
}

struct World {
    model: Model,
    events: BTreeMap<(Instant, u64), Event>,
    serial: u64,
    now: Instant,
    free_at: Instant,
    passed: u64,
    control: RateControl,
    source: Source,
    receiver: Sink,
    tcp: Option<Tcp>,
    tenths: Vec<Tenth>,
}

struct Source {
    next: u64,
    confirmed: u64,
    repairs: VecDeque<u64>,
    mark_at: Instant,
    due: Instant,
    is_limited: bool,
}

struct Sink {
    meter: ArrivalMeter,
    bytes: u64,
    lead: u64,
    missing: BTreeSet<u64>,
    missed: u64,
    echo: Option<(u64, Instant)>,
    reported_at: Instant,
    reported: u64,
    reported_missed: u64,
}

struct Tcp {
    window: CubicWindow,
    is_starting: bool,
    next: u64,
    out: BTreeSet<u64>,
    recovers_at: u64,
    round_trip: Duration,
    sent_at: BTreeMap<u64, Instant>,
    heard_at: Instant,
}

impl World {
    fn new(model: Model) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        let source = Source {
            next: 0,
            confirmed: 0,
            repairs: VecDeque::new(),
            mark_at: now,
            due: now,
            is_limited: false,
        };
        let receiver = Sink {
            meter: ArrivalMeter::new(now),
            bytes: 0,
            lead: 0,
            missing: BTreeSet::new(),
            missed: 0,
            echo: None,
            reported_at: now,
            reported: 0,
            reported_missed: 0,
        };
        let mut world = Self {
            control: RateControl::new(RateConfig::default(), now),
            model,
            events: BTreeMap::new(),
            serial: 0,
            now,
            free_at: now,
            passed: 0,
            source,
            receiver,
            tcp: None,
            tenths: vec![Tenth::default()],
        };
        world.schedule(Duration::from_secs_f64(world.model.begins), Event::Turn);
        if let Some([from, _]) = world.model.rival {
            world.schedule(Duration::from_secs_f64(from), Event::TcpTurn);
        }
        world
    }

    fn schedule(&mut self, after: Duration, event: Event) {
        self.serial += 1;
        self.events.insert((self.now + after, self.serial), event);
    }

    fn seconds(&self) -> f64 {
        self.now
            .since(Instant::from_nanos(1_000_000_000))
            .as_secs_f64()
    }

    fn run(&mut self) {
        // The receiver is present from the start, so its first report has already come.
        let first = RateReport {
            round_trip: self.model.one_way * 2,
            answer: self.model.one_way * 2,
            ..RateReport::default()
        };
        self.control.report(self.now, 0, &first);
        while let Some(((now, _), event)) = self.events.pop_first() {
            self.now = now;
            let tenth = (self.seconds() * 10.0) as usize;
            if tenth >= self.model.seconds as usize * 10 {
                return;
            }
            if tenth >= self.tenths.len() {
                let rate = self.control.pace.to_number();
                let queue_us = self.free_at.since(now).as_micros() as u64;
                let phase = self.control.phase.name();
                self.tenths.resize(
                    tenth + 1,
                    Tenth {
                        rate,
                        queue_us,
                        phase,
                        ..Tenth::default()
                    },
                );
            }
            match event {
                Event::Turn => self.turn(),
                Event::Arrives { position } => self.arrives(position),
                Event::MarkArrives { left_us, lead } => {
                    self.receiver.meter.mark(now, left_us, now);
                    self.receiver.echo = Some((left_us, now));
                    // The mark shows whether the packets just before it were lost.
                    self.learns(lead + 1);
                    self.report();
                }
                Event::Asked { position } => {
                    self.source.repairs.push_back(position);
                }
                Event::Reported(report, contiguous) => {
                    let mut report = report;
                    let left_us = report.echo.as_nanos() / 1000;
                    let age = Duration::from_nanos(report.host_drops);
                    report.host_drops = 0;
                    report.answer = (now - age).since(Instant::from_nanos(left_us * 1000));
                    self.source.confirmed = contiguous;
                    self.control.report(now, 0, &report);
                }
                Event::TcpTurn => self.tcp_turn(),
                Event::Acknowledged { number } => self.acknowledged(number),
            }
        }
    }

    /// Sends bytes through the link. Returns the time until they come out, or `None` when they are
    /// lost.
    fn pass(&mut self, bytes: u64) -> Option<Duration> {
        self.passed += 1;
        if self.model.loss > 0 && self.passed.is_multiple_of(self.model.loss) {
            return None;
        }
        let wait = self.free_at.since(self.now);
        let queued = wait.as_nanos() as u64 * self.model.bytes_per_s / 1_000_000_000;
        if queued + bytes > self.model.bytes_per_s / 1000 * QUEUE_MS {
            return None;
        }
        let time = Duration::from_nanos(bytes * 1_000_000_000 / self.model.bytes_per_s);
        self.free_at = self.free_at.max(self.now) + time;
        Some(self.free_at.since(self.now) + self.model.one_way)
    }

    fn tenth(&mut self) -> &mut Tenth {
        self.tenths.last_mut().unwrap()
    }

    // The sender whose rate control is tested.

    fn turn(&mut self) {
        let pace = self.control.steer(self.now, self.source.is_limited);
        // The host can send at most 250 MB/s.
        let rate = pace.bytes_per_s().unwrap_or(u64::MAX).min(250_000_000);
        if self.now >= self.source.due {
            let count = (rate / 4000 / PACKET_BYTES).max(2);
            let mut sent = 0;
            for n in 0..count {
                let is_repair = n % 2 == 0 && !self.source.repairs.is_empty();
                if !is_repair && self.source.next >= self.source.confirmed + FLOW_WINDOW_PACKETS {
                    continue;
                }
                let position = if is_repair {
                    self.source.repairs.pop_front().unwrap()
                } else {
                    self.source.next += 1;
                    self.source.next
                };
                sent += PACKET_BYTES;
                self.tenth().sent += 1;
                match self.pass(PACKET_BYTES) {
                    Some(after) => self.schedule(after, Event::Arrives { position }),
                    None => {
                        self.tenth().lost += 1;
                        if is_repair {
                            self.schedule(Duration::from_millis(50), Event::Asked { position });
                        }
                    }
                }
            }
            self.source.is_limited = sent > 0;
            let time = Duration::from_nanos(sent * 1_000_000_000 / rate);
            self.source.due = self.source.due.max(self.now - Duration::from_millis(1)) + time;
        }
        if self.now >= self.source.mark_at {
            self.source.mark_at = self.now + Duration::from_millis(10);
            let left_us = self.now.as_nanos() / 1000;
            if let Some(mut after) = self.pass(120) {
                if let Some((nth, late)) = self.model.noise
                    && self.passed % nth < 20
                {
                    after += late;
                }
                let lead = self.source.next;
                self.schedule(after, Event::MarkArrives { left_us, lead });
            }
        }
        let next = self.source.due.max(self.now + Duration::from_micros(100));
        let next = next.min(self.source.mark_at);
        self.schedule(next.since(self.now), Event::Turn);
    }

    // The receiver of the sender under test.

    fn arrives(&mut self, position: u64) {
        let now = self.now;
        self.tenth().ours += PACKET_BYTES;
        self.receiver.bytes += PACKET_BYTES - 14;
        self.learns(position);
        let sink = &mut self.receiver;
        sink.lead = sink.lead.max(position);
        sink.missing.remove(&position);
        sink.meter.arrived(now, sink.bytes);
        self.report();
    }

    /// The receiver learns that everything before `end` exists, and asks for what it lacks.
    fn learns(&mut self, end: u64) {
        let gap = self.receiver.lead + 1..end;
        if gap.is_empty() {
            return;
        }
        self.receiver.lead = end - 1;
        self.receiver.missed += gap.end - gap.start;
        for position in gap {
            self.receiver.missing.insert(position);
            let after = self.model.one_way + Duration::from_millis(1);
            self.schedule(after, Event::Asked { position });
        }
    }

    fn report(&mut self) {
        let (now, one_way) = (self.now, self.model.one_way);
        let sink = &mut self.receiver;
        let contiguous = sink.missing.first().map_or(sink.lead, |first| first - 1);
        let moved = contiguous - sink.reported;
        let is_due = match moved {
            0 if sink.missed == sink.reported_missed => {
                now >= sink.reported_at + Duration::from_millis(1000)
            }
            700.. => now >= sink.reported_at + Duration::from_millis(1),
            _ => now >= sink.reported_at + Duration::from_millis(5),
        };
        let Some((left_us, echo_at)) = sink.echo else {
            return;
        };
        if is_due {
            (sink.reported_at, sink.reported) = (now, contiguous);
            sink.reported_missed = sink.missed;
            let report = RateReport {
                echo: Instant::from_nanos(left_us * 1000),
                round_trip: one_way * 2,
                answer: Duration::ZERO,
                delivery_bytes_per_s: sink.meter.bytes_per_s(),
                queue_delay: sink.meter.queue_delay(),
                lead: sink.lead,
                missed: sink.missed,
                // While the report is on its way, this field carries the nanoseconds since the
                // echoed mark arrived.
                host_drops: now.since(echo_at).as_nanos() as u64,
            };
            self.schedule(one_way, Event::Reported(report, contiguous));
        }
    }

    // The rival: a TCP connection that shares the link.

    fn tcp_turn(&mut self) {
        let [_, ends] = self.model.rival.unwrap();
        if self.seconds() >= ends {
            self.tcp = None;
            return;
        }
        let mut tcp = self.tcp.take().unwrap_or_else(|| Tcp {
            window: CubicWindow::new(10.0),
            is_starting: true,
            next: 0,
            out: BTreeSet::new(),
            recovers_at: 0,
            round_trip: self.model.one_way * 2,
            sent_at: BTreeMap::new(),
            heard_at: self.now,
        });
        if self.now.since(tcp.heard_at) >= Duration::from_millis(400) {
            // A time-out: every packet that was not acknowledged counts as lost.
            tcp.out.clear();
        }
        let is_idle = tcp.out.is_empty();
        self.tcp = Some(tcp);
        self.tcp_send(if is_idle { 0 } else { BURST });
        self.schedule(Duration::from_millis(200), Event::TcpTurn);
    }

    fn acknowledged(&mut self, number: u64) {
        self.tenth().theirs += TCP_BYTES;
        let Some(tcp) = &mut self.tcp else {
            return;
        };
        let now = self.now;
        tcp.heard_at = now;
        if let Some(at) = tcp.sent_at.remove(&number) {
            tcp.round_trip = now.since(at);
        }
        if !tcp.out.remove(&number) {
            return;
        }
        let mut lost = Vec::new();
        for &older in tcp.out.range(..number.saturating_sub(3)) {
            lost.push(older);
        }
        for older in &lost {
            tcp.out.remove(older);
            tcp.sent_at.remove(older);
        }
        if lost.last().is_some_and(|&older| older >= tcp.recovers_at) {
            tcp.window.lose();
            tcp.is_starting = false;
            tcp.recovers_at = tcp.next + 1;
        } else if number >= tcp.recovers_at {
            if tcp.is_starting {
                let more = CubicWindow::new(tcp.window.segments() + 1.0);
                tcp.window = more;
                tcp.is_starting =
                    tcp.round_trip < self.model.one_way * 2 + Duration::from_millis(4);
            } else {
                tcp.window.acknowledge(now, tcp.round_trip, 1.0);
            }
        }
        self.tcp_send(BURST);
    }

    /// Sends as much as the window allows, when it has room for at least `least` packets.
    fn tcp_send(&mut self, least: usize) {
        let tcp = self.tcp.as_mut().unwrap();
        let room = (tcp.window.segments() as usize).saturating_sub(tcp.out.len());
        if room < least {
            return;
        }
        for _ in 0..room {
            let tcp = self.tcp.as_mut().unwrap();
            tcp.next += 1;
            let number = tcp.next;
            tcp.out.insert(number);
            tcp.sent_at.insert(number, self.now);
            if let Some(after) = self.pass(TCP_BYTES) {
                self.schedule(after + self.model.one_way, Event::Acknowledged { number });
            }
        }
    }
}

/// How many milliseconds the link takes to send its queue when the queue is full.
const QUEUE_MS: u64 = 16;
/// Bytes on the wire: 1,400 and the headers of PGM, UDP, IP and Ethernet.
const PACKET_BYTES: u64 = 1400 + 24 + 8 + 20 + 14;
const TCP_BYTES: u64 = 1514;
const BURST: usize = 8;
/// The flow window: 4 MiB in packets of 1,500 bytes.
const FLOW_WINDOW_PACKETS: u64 = (4 << 20) / 1500;

impl Phase {
    const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Cruise => "cruise",
            Self::Drain { .. } => "drain",
            Self::Compete { .. } => "compete",
            Self::Look { .. } => "look",
        }
    }
}

/// Prints a line for each tenth of a second, for tests that fail.
impl fmt::Display for Course {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, tenth) in self.tenths.iter().enumerate() {
            let percent = |bytes: u64| bytes * 1000 / self.bytes_per_s;
            writeln!(
                f,
                "{:5.1} s {:8} {:9} B/s ours {:3} % theirs {:3} % lost {:4} queue {:5} us",
                n as f64 / 10.0,
                tenth.phase,
                tenth.rate,
                percent(tenth.ours),
                percent(tenth.theirs),
                tenth.lost,
                tenth.queue_us,
            )?;
        }
        Ok(())
    }
}

type Change = fn(&mut Model);

#[test]
fn alone_it_takes_the_whole_link_and_loses_hardly_anything() {
    let variants: [(&str, u64, u64, Change); 7] = [
        ("50 Mbit/s", 970, 10, |m| m.bytes_per_s = 6_250_000),
        ("200 Mbit/s", 970, 10, |_| {}),
        ("1 Gbit/s", 970, 10, |m| m.bytes_per_s = 125_000_000),
        ("1 % lost by chance", 960, 1010, |m| m.loss = 100),
        ("a fifth lost by chance", 500, 25_000, |m| m.loss = 5),
        ("marks that a busy host delays", 940, 10, |m| {
            m.noise = Some((997, Duration::from_millis(4)));
        }),
        ("100 ms to an answer", 900, 900, |m| {
            m.one_way = Duration::from_millis(50);
        }),
    ];
    for (name, share_min, lost_max, change) in variants {
        let mut model = Model::new();
        change(&mut model);
        let course = model.run();
        let (share, lost) = (course.share(3, 8), course.lost(3, 8));
        println!("{name}: {share} per mille, {lost} of 100,000 lost");
        assert!(
            share >= share_min && lost <= lost_max,
            "{name}: {share}, {lost}\n{course}"
        );
    }
}

#[test]
fn beside_tcp_it_takes_its_share() {
    let variants: [(&str, Change); 6] = [
        ("at the same time", |_| {}),
        ("TCP is later", |m| m.rival = Some([4.0, 60.0])),
        ("TCP is first", |m| m.begins = 4.0),
        ("50 Mbit/s", |m| m.bytes_per_s = 6_250_000),
        ("1 Gbit/s", |m| m.bytes_per_s = 125_000_000),
        ("20 ms away", |m| m.one_way = Duration::from_millis(10)),
    ];
    for (name, change) in variants {
        let mut model = Model::new();
        model.rival = Some([0.0, 60.0]);
        model.seconds = 20;
        change(&mut model);
        let course = model.run();
        let (share, lost) = (course.share(8, 20), course.lost(8, 20));
        println!("{name}: {share} per mille, {lost} of 100,000 lost");
        assert!(
            (333..=667).contains(&share) && lost < 1000,
            "{name}: {share}\n{course}"
        );
    }
}

#[test]
fn when_tcp_is_gone_all_of_the_link_and_no_queue_is_left() {
    let mut model = Model::new();
    model.rival = Some([3.0, 8.0]);
    model.seconds = 14;
    let course = model.run();
    let (share, lost) = (course.share(10, 14), course.lost(10, 14));
    let queue_us = course.tenths[100..]
        .iter()
        .map(|tenth| tenth.queue_us)
        .max();
    assert!(course.share(5, 8) < 700, "{course}");
    assert!(
        share > 970 && lost == 0 && queue_us < Some(6_000),
        "{share}, {lost}\n{course}"
    );
}
