//! Drives a source by lists of operations, and checks its every packet against a simple model.
//!
//! The model keeps every payload that was offered, the next position that may leave as ODATA, and
//! the time of each repair. It has no rings, bitmaps or runs.

use std::{
    collections::{BTreeMap, VecDeque},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use base::{
    Arrival, Budget, CounterSet as _, Instant, Outcome, Pace, PathId, Run, Socket, Verdict,
};
use pgm::{Config, Full, Rate, Source, SourceSetup, Timer};
use wire::{
    Sqn,
    pgm::{
        Addressing, Body, ChecksumState, Data, Fragment, Gsi, Mark, Nak, NakList, Packet,
        PgmOption, Profile, Spm, Tsi, emit, verify_checksum,
    },
};

/// One thing that happens to a source.
#[derive(Clone, Debug)]
pub enum SourceOp {
    /// Offers a message of this length.
    Offer(u16),
    /// Reserves a slot, and commits or drops it.
    Reserve(u16, bool),
    /// Reserves a burst, and commits the first few slots of it.
    Burst(u16, u8, u8),
    /// Sends a run: the budget in datagrams and bytes, and how many datagrams the network takes.
    Send(u8, u16, u8),
    /// The network fails or refuses one run: blocked, too big, failed.
    Refuse(u8),
    /// A NAK for the packet this far behind the unsent edge, and for further ones at these
    /// distances.
    Nak(u16, Vec<u8>),
    /// A request for an SPM.
    Spmr,
    /// Time passes, in microseconds.
    Wait(u16),
    /// Time passes until the next deadline.
    WaitDue,
    /// Flow control holds the packet this far behind the unsent edge; with 0 it holds nothing.
    Hold(u16),
    /// The rate changes, in kilobytes a second; 0 for no limit.
    Rate(u16),
    /// Arbitrary bytes arrive.
    Noise(Vec<u8>),
    /// The source is closed.
    Close,
}

/// A configuration and a list of operations.
#[derive(Clone, Debug)]
pub struct SourcePlan {
    /// The first sequence number.
    pub first_sqn: u32,
    /// Parameters.
    pub config: Config,
    /// The operations in order. At the end of the plan everything is sent.
    pub ops: Vec<SourceOp>,
}

/// Reads a plan from arbitrary bytes and plays it.
///
/// **Panics** (bug): when an invariant of the source breaks.
pub fn source_ops(data: &[u8]) {
    SourcePlan::read(data).play();
}

impl SourcePlan {
    fn read(data: &[u8]) -> Self {
        let mut bytes = Bytes(data);
        let near = [0, 5, (1 << 31) - 3, u32::MAX - 2, u32::MAX];
        let first_sqn = near[usize::from(bytes.u8()) % near.len()];
        let config = Self::config(bytes.u8(), bytes.u8(), bytes.u16());
        let mut ops = Vec::new();
        while !bytes.0.is_empty() && ops.len() < OPS_MAX {
            ops.push(SourceOp::read(&mut bytes));
        }
        Self {
            first_sqn,
            config,
            ops,
        }
    }

    /// Makes a small configuration, chosen by three numbers.
    ///
    /// **Panics** (bug): when the rules of the parameter table refuse the configuration.
    #[must_use]
    pub fn config(size: u8, flags: u8, rate_kb: u16) -> Config {
        Config::builder()
            .mtu([576, 600, 1000][usize::from(size % 3)])
            .tx_window_bytes([4096, 6001, 20_000][usize::from(size / 4 % 3)])
            .tx_window_sqns([16, 40, 300][usize::from(size / 16 % 3)])
            .apdu_bytes_max(2000)
            .flow_window_sqns(64)
            .rate(Rate::Fixed(Pace::of(u64::from(rate_kb) * 1000)))
            .send_syn(flags & 1 != 0)
            .send_join(flags & 2 != 0)
            .strict_pgm(flags & 4 != 0)
            .elimination_interval(match flags >> 4 {
                15 => Timer::Auto,
                halves => Timer::Fixed(Duration::from_micros(u64::from(halves) * 500)),
            })
            .pacing_catch_up(Duration::from_micros(u64::from(flags >> 3 & 1) * 1000))
            .build()
            .expect("the small configuration obeys the table's rules")
    }

    /// Plays the plan against the model and checks every step.
    ///
    /// **Panics** (bug): when an invariant of the source breaks.
    pub fn play(&self) {
        let mut model = Model::new(self);
        for op in &self.ops {
            model.apply(op);
            model.check_edges();
        }
        model.finish();
    }
}

impl SourceOp {
    fn read(bytes: &mut Bytes<'_>) -> Self {
        match bytes.u8() % 16 {
            0 | 1 => Self::Offer(bytes.u16() % 2100),
            2 => Self::Reserve(bytes.u16() % 600, bytes.u8() != 0),
            3 => Self::Burst(bytes.u16() % 600, bytes.u8() % 12, bytes.u8() % 12),
            4..=6 => Self::Send(bytes.u8() % 20, bytes.u16(), bytes.u8()),
            7 => Self::Refuse(bytes.u8()),
            8 | 9 => {
                let behind = bytes.u16() % 400;
                let steps = (0..bytes.u8() % 63).map(|_| bytes.u8()).collect();
                Self::Nak(behind, steps)
            }
            10 => Self::Spmr,
            11 => Self::Wait(bytes.u16()),
            12 => Self::WaitDue,
            13 => Self::Hold(bytes.u16() % 400),
            14 => match bytes.u8() % 8 {
                0 => Self::Close,
                1 => Self::Rate(bytes.u16()),
                _ => Self::WaitDue,
            },
            _ => Self::Noise((0..bytes.u8()).map(|_| bytes.u8()).collect()),
        }
    }
}

/// The payload that was offered for one position.
struct Offered {
    payload: Vec<u8>,
    fragment: Option<Fragment>,
}

struct Model {
    source: Source,
    config: Config,
    now: Instant,
    first: u64,
    offered: Vec<Offered>,
    next_odata: u64,
    repaired: BTreeMap<u64, Instant>,
    asked: BTreeMap<u64, u32>,
    ncfs: VecDeque<(Sqn, Vec<Sqn>)>,
    spm_sqn: Option<Sqn>,
    flow_hold: u64,
    trail: u64,
    excess: f64,
    excess_at: Instant,
    seen: u64,
    is_closed: bool,
    blocked: bool,
}

impl Model {
    fn new(plan: &SourcePlan) -> Self {
        let setup = SourceSetup {
            tsi: TSI,
            destination_port: PORT,
            group: SocketAddr::new(GROUP, PORT),
            nla: NLA,
            path: PathId(3),
            first_sqn: plan.first_sqn,
            seed: 9,
            mark: Some(Mark::new(Profile::Messages, 77)),
        };
        let now = Instant::from_nanos(5_000_000_000);
        let first = (1 << 32) + u64::from(plan.first_sqn);
        Self {
            source: Source::new(plan.config, setup, now),
            config: plan.config,
            now,
            first,
            offered: Vec::new(),
            next_odata: first,
            repaired: BTreeMap::new(),
            asked: BTreeMap::new(),
            ncfs: VecDeque::new(),
            spm_sqn: None,
            flow_hold: u64::MAX,
            trail: first,
            excess: 0.0,
            excess_at: now,
            seen: 0,
            is_closed: false,
            blocked: false,
        }
    }

    fn apply(&mut self, op: &SourceOp) {
        match op {
            SourceOp::Offer(len) => self.offer(usize::from(*len)),
            SourceOp::Reserve(len, commit) => self.reserve(usize::from(*len), *commit),
            SourceOp::Burst(len, count, take) => {
                self.burst(usize::from(*len), usize::from(*count), usize::from(*take));
            }
            SourceOp::Send(datagrams, bytes, taken) => self.send(
                Budget {
                    bytes: usize::from(*bytes),
                    datagrams: usize::from(*datagrams),
                },
                usize::from(*taken),
            ),
            SourceOp::Refuse(kind) => self.refuse(*kind),
            SourceOp::Nak(behind, steps) => self.nak(u64::from(*behind), steps),
            SourceOp::Spmr => self.control(&Body::Spmr, &[]),
            SourceOp::Wait(us) => self.now += Duration::from_micros(u64::from(*us)),
            SourceOp::WaitDue => self.wait_due(),
            SourceOp::Hold(behind) => {
                let hold = self.source.unsent().saturating_sub(u64::from(*behind));
                self.flow_hold = if *behind == 0 { u64::MAX } else { hold };
                self.source.set_hold((*behind != 0).then_some(hold));
            }
            SourceOp::Rate(kb) => {
                self.source.set_pace(Pace::of(u64::from(*kb) * 1000));
                (self.excess, self.excess_at) = (0.0, self.now);
            }
            SourceOp::Noise(bytes) => {
                self.seen += 1;
                let arrival = Arrival::from(SocketAddr::new(NLA, 9), Socket::Upstream);
                self.source.handle(self.now, &arrival, bytes);
            }
            SourceOp::Close => {
                self.is_closed = true;
                self.source.close(self.now);
            }
        }
    }

    fn payload(&self, len: usize) -> Vec<u8> {
        let start = self.offered.len() * 31;
        (start..start + len).map(|i| (i % 251) as u8).collect()
    }

    fn note(&mut self, payload: Vec<u8>, fragment: Option<Fragment>) {
        self.offered.push(Offered { payload, fragment });
    }

    fn offer(&mut self, len: usize) {
        let apdu = self.payload(len);
        let lead = self.source.lead();
        match self.source.offer(&apdu) {
            Ok(position) => {
                assert_eq!(position, lead);
                assert!(!self.is_closed && len <= self.source.max_apdu());
                if len <= self.source.max_tsdu() {
                    return self.note(apdu, None);
                }
                let piece_len = self.source.max_fragment_tsdu();
                for (index, piece) in apdu.chunks(piece_len).enumerate() {
                    let fragment = Fragment {
                        first: Sqn::of(position),
                        offset: (index * piece_len) as u32,
                        apdu_len: len as u32,
                    };
                    self.note(piece.to_vec(), Some(fragment));
                }
            }
            Err(full) => self.check_refusal(full, len, lead),
        }
    }

    fn check_refusal(&self, full: Full, len: usize, lead: u64) {
        assert_eq!(self.source.lead(), lead, "a refused message left a trace");
        match full {
            Full::Closed => assert!(self.is_closed),
            Full::TooLong { max } => assert!(len > max, "{len} refused, {max} allowed"),
            Full::Window => {
                let has_reason = self.source.unsent() < lead || self.source.hold() < lead;
                assert!(has_reason, "an empty window refused {len} bytes");
            }
        }
    }

    fn reserve(&mut self, len: usize, commit: bool) {
        let payload = self.payload(len);
        let lead = self.source.lead();
        match self.source.reserve(len) {
            Ok(mut slot) => {
                slot.payload_mut().copy_from_slice(&payload);
                if commit {
                    assert_eq!(slot.commit(), lead);
                    self.note(payload, None);
                }
            }
            Err(full) => self.check_refusal(full, len, lead),
        }
    }

    fn burst(&mut self, len: usize, count: usize, take: usize) {
        let lead = self.source.lead();
        let payload = self.payload(len);
        match self.source.reserve_burst(len, count) {
            Ok(mut burst) => {
                for index in 0..burst.count() {
                    burst.slot(index).copy_from_slice(&payload);
                    if let Some(first) = burst.slot(index).first_mut() {
                        *first = index as u8;
                    }
                }
                assert_eq!(burst.commit_first(take), lead);
                for index in 0..take.min(count) {
                    let mut payload = payload.clone();
                    if let Some(first) = payload.first_mut() {
                        *first = index as u8;
                    }
                    self.note(payload, None);
                }
            }
            Err(full) => assert!(
                !matches!(full, Full::Closed) || self.is_closed,
                "an open source said it was closed"
            ),
        }
    }

    fn send(&mut self, budget: Budget, taken: usize) {
        let due = self.source.next_timeout();
        let Some(run) = self.source.poll_run(self.now, budget) else {
            self.check_silence(due);
            return;
        };
        assert!(
            self.blocked || due.is_some_and(|due| due <= self.now),
            "a run came before its time"
        );
        let packets = copy_checked(&run, budget);
        let taken = match taken {
            TAKE_ALL.. => packets.len(),
            some => some % (packets.len() + 1),
        };
        let outcome = match taken {
            0 => Outcome::Blocked,
            datagrams => Outcome::Sent { datagrams },
        };
        self.check_packets(&packets);
        self.blocked = taken == 0;
        self.sent(&packets[..taken]);
        self.source.run_done(self.now, outcome);
    }

    /// Checks that nothing was due when the source gave no run, unless it is blocked or over.
    fn check_silence(&mut self, due: Option<Instant>) {
        if self.blocked || self.source.is_over() {
            return;
        }
        assert!(
            due.is_none_or(|due| due > self.now),
            "something was due but nothing came"
        );
    }

    fn refuse(&mut self, kind: u8) {
        let outcome = match kind % 3 {
            0 => Outcome::Blocked,
            1 => Outcome::TooBig,
            _ => Outcome::Failed,
        };
        let Some(run) = self.source.poll_run(self.now, BUDGET) else {
            return;
        };
        let packets = copy_checked(&run, BUDGET);
        self.check_packets(&packets);
        if outcome == Outcome::Blocked {
            self.blocked = true;
        } else {
            self.blocked = false;
            // Packets that the network lost count as sent: from now on they can only be repaired.
            self.sent(&packets);
        }
        self.source.run_done(self.now, outcome);
    }

    /// Checks the packets of a run before any of them is sent.
    fn check_packets(&self, packets: &[Vec<u8>]) {
        let mut next = self.next_odata;
        for bytes in packets {
            let packet = Packet::parse(bytes).expect("a source sends packets that parse");
            assert_eq!(verify_checksum(bytes), ChecksumState::Good);
            assert_eq!(packet.header().tsi(), TSI);
            assert_eq!(packet.header().destination_port, PORT);
            match packet.body() {
                Body::Odata(data) => {
                    let flow_end = self
                        .flow_hold
                        .saturating_add(64)
                        .max(self.source.trail() + 64);
                    assert!(next < flow_end, "sent beyond the flow window");
                    assert_eq!(data.sqn, Sqn::of(next), "ODATA out of order");
                    let trail = data.trail.extend(self.source.trail());
                    assert!(trail <= self.source.trail(), "ODATA ran ahead of the trail");
                    self.check_data(&packet, next);
                    next += 1;
                }
                Body::Rdata(data) => self.check_rdata(&packet, data),
                Body::Ncf(nak) => self.check_ncf(&packet, nak),
                Body::Spm(spm) => self.check_spm(&packet, spm),
                other => panic!("a source does not send {other}"),
            }
        }
    }

    fn check_data(&self, packet: &Packet<'_>, position: u64) {
        let offered = &self.offered[(position - self.first) as usize];
        assert_eq!(packet.tsdu(), offered.payload, "payload of {position}");
        let mut fragment = None;
        let mut has_syn = false;
        for option in packet.options() {
            match option {
                PgmOption::Fragment(contents) => fragment = Some(contents),
                PgmOption::Syn => has_syn = true,
                other => panic!("{other} in a data packet"),
            }
        }
        assert_eq!(fragment, offered.fragment);
        assert_eq!(has_syn, self.config.send_syn() && position == self.first);
    }

    fn check_rdata(&self, packet: &Packet<'_>, data: Data) {
        let position = data.sqn.extend(self.next_odata);
        assert!(
            position < self.next_odata,
            "a repair of what was never sent"
        );
        assert!(position >= self.source.trail());
        assert_eq!(data.trail, Sqn::of(self.source.trail()));
        assert!(self.asked.contains_key(&position), "nobody asked for it");
        if let Some(&last) = self.repaired.get(&position) {
            assert!(
                self.now.since(last) >= self.config.elimination_interval().or(ELIMINATION_AUTO),
                "repaired twice within the elimination interval"
            );
        }
        self.check_data(packet, position);
    }

    fn check_ncf(&self, packet: &Packet<'_>, nak: Nak) {
        assert_eq!((nak.source_nla, nak.group_nla), (NLA, GROUP));
        let list: Vec<_> = packet
            .options()
            .flat_map(|option| match option {
                PgmOption::NakList(list) => list.iter().collect::<Vec<_>>(),
                other => panic!("{other} in an NCF"),
            })
            .collect();
        let is_expected = self.ncfs.contains(&(nak.sqn, list));
        assert!(is_expected, "a confirmation for no NAK");
    }

    fn check_spm(&self, packet: &Packet<'_>, spm: Spm) {
        assert!(self.spm_sqn.is_none_or(|last| spm.sqn == last.next()));
        assert_eq!(spm.trail, Sqn::of(self.source.trail()));
        assert_eq!(spm.lead.next(), Sqn::of(self.next_odata));
        assert_eq!(spm.path_nla, NLA);
        let options: Vec<_> = packet.options().collect();
        let has = |wanted| options.contains(&wanted);
        let is_drained = self.source.unsent() == self.source.lead();
        assert_eq!(has(PgmOption::Fin), self.is_closed && is_drained);
        let is_marked = matches!(options.last(), Some(PgmOption::Mark(mark))
            if mark.tx_time_us == self.now.as_nanos() / 1000);
        assert_eq!(is_marked, !self.config.strict_pgm());
    }

    /// Notes in the model that these packets have left.
    fn sent(&mut self, packets: &[Vec<u8>]) {
        let mut on_wire = 0;
        for bytes in packets {
            on_wire += bytes.len() + 28;
            let packet = Packet::parse(bytes).expect("it was checked before");
            match packet.body() {
                Body::Odata(_) => self.next_odata += 1,
                Body::Rdata(data) => {
                    let position = data.sqn.extend(self.next_odata);
                    self.asked.remove(&position);
                    self.repaired.insert(position, self.now);
                }
                Body::Ncf(nak) => {
                    while let Some((sqn, _)) = self.ncfs.pop_front()
                        && sqn != nak.sqn
                    {}
                }
                Body::Spm(spm) => self.spm_sqn = Some(spm.sqn),
                _ => {}
            }
        }
        self.charge(on_wire);
    }

    /// Checks that no interval exceeds the rate by more than one run and the allowed catch-up.
    fn charge(&mut self, on_wire: usize) {
        let Some(bytes_per_s) = self.source.pace().bytes_per_s() else {
            return;
        };
        let rate = bytes_per_s as f64;
        let passed = self.now.since(self.excess_at).as_secs_f64();
        self.excess = (self.excess - rate * passed).max(0.0) + on_wire as f64;
        self.excess_at = self.now;
        let quantum = rate * self.config.pacing_quantum().as_secs_f64();
        let run = quantum
            .max(2.0 * self.config.mtu() as f64)
            .max(16.0 * 320.0);
        let catch_up = rate * self.config.pacing_catch_up().as_secs_f64();
        assert!(
            self.excess <= run + catch_up + 1.0,
            "{} bytes above the rate, {run} + {catch_up} allowed",
            self.excess
        );
    }

    fn nak(&mut self, behind: u64, steps: &[u8]) {
        let mut position = self.next_odata.saturating_sub(behind);
        let mut list = Vec::new();
        let first = position;
        for step in steps.iter().take(NakList::SQNS_MAX) {
            position += 1 + u64::from(step % 5);
            list.push(position);
        }
        let sqns: Vec<_> = list.iter().map(|&position| Sqn::of(position)).collect();
        let nak = Nak {
            sqn: Sqn::of(first),
            source_nla: NLA,
            group_nla: GROUP,
        };
        // The source passes over positions that it never sent.
        let is_possible = first < self.next_odata && !self.source.is_over();
        if is_possible {
            list.retain(|&position| position < self.next_odata);
            let confirmed = list.iter().map(|&position| Sqn::of(position)).collect();
            for asked in list.into_iter().chain([first]) {
                if asked >= self.source.trail() {
                    self.asked.insert(asked, 1);
                }
            }
            self.ncfs.push_back((nak.sqn, confirmed));
        }
        let options = [PgmOption::NakList(NakList::new(&sqns))];
        let options = if sqns.is_empty() { &[][..] } else { &options };
        let handled = self.source.counters().upstream_handled;
        self.control(&Body::Nak(nak), options);
        let is_handled = self.source.counters().upstream_handled > handled;
        assert_eq!(is_handled, is_possible, "a NAK for {first}..={position}");
    }

    fn control(&mut self, body: &Body, options: &[PgmOption<'_>]) {
        let mut bytes = Vec::new();
        let addressing = Addressing::upstream(TSI, PORT);
        emit(&mut bytes, &addressing, body, options, &[]);
        let arrival = Arrival::from(SocketAddr::new(NLA, 9), Socket::Upstream);
        self.seen += 1;
        let verdict = self.source.handle(self.now, &arrival, &bytes);
        assert!(matches!(verdict, Verdict::Control | Verdict::Drop(_)));
    }

    fn wait_due(&mut self) {
        if let Some(due) = self.source.next_timeout() {
            self.now = self.now.max(due);
            self.source.handle_timeout(self.now);
        }
    }

    fn check_edges(&mut self) {
        let source = &self.source;
        let (trail, hold) = (source.trail(), source.hold());
        let (unsent, lead) = (source.unsent(), source.lead());
        assert!(trail <= hold && hold <= unsent && unsent <= lead);
        assert_eq!(unsent, self.next_odata);
        assert_eq!(lead - self.first, self.offered.len() as u64);
        assert!(
            trail == self.trail || trail <= self.flow_hold,
            "flow control was ignored"
        );
        assert!(self.trail <= trail, "the trail went back");
        assert!(lead - trail <= u64::from(self.config.tx_window_sqns()));
        self.trail = trail;
        let counters = source.counters();
        assert_eq!(counters.upstream_packets, self.seen);
        assert_eq!(
            counters.upstream_handled + source.drops().total(),
            self.seen
        );
        assert_eq!(counters.value_of("taken"), Some(lead - self.first));
        self.asked.retain(|&position, _| position >= trail);
    }

    /// Lets everything leave: then each packet must have been sent, and each queued repair made.
    fn finish(&mut self) {
        self.source.set_hold(None);
        self.flow_hold = u64::MAX;
        for _ in 0..ROUNDS_MAX {
            self.send(BUDGET, TAKE_ALL);
            self.check_edges();
            if self.source.is_drained() {
                break;
            }
            if !self.source.is_over() && !self.blocked {
                self.wait_due();
            }
        }
        assert!(
            self.source.is_drained() || self.source.is_over(),
            "not everything could be sent"
        );
        if self.source.is_drained() {
            assert_eq!(self.next_odata, self.first + self.offered.len() as u64);
        }
    }
}

/// Checks the shape of a run, and copies its datagrams.
fn copy_checked(run: &Run<'_>, budget: Budget) -> Vec<Vec<u8>> {
    assert!(!run.is_empty() && run.segment > 0);
    assert_eq!((run.path, run.to.ip(), run.hops), (PathId(3), GROUP, None));
    let (last, others) = run.ranges.split_last().expect("a run is never empty");
    assert!(others.iter().all(|range| range.len() % run.segment == 0));
    assert!(!last.is_empty());
    let packets: Vec<_> = run.datagrams().map(<[u8]>::to_vec).collect();
    assert_eq!(packets.len(), run.datagram_count());
    assert!(packets.len() == 1 || run.len() <= budget.bytes);
    assert!(packets.len() <= budget.datagrams.max(1));
    packets
}

struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn u8(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        first
    }

    fn u16(&mut self) -> u16 {
        u16::from_be_bytes([self.u8(), self.u8()])
    }
}

const TSI: Tsi = Tsi {
    gsi: Gsi([1, 2, 3, 4, 5, 6]),
    port: 40_000,
};
const PORT: u16 = 7500;
const NLA: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 192, 0, 1));
const BUDGET: Budget = Budget {
    bytes: 64_000,
    datagrams: 128,
};
/// From this count on, the network takes the whole run.
const TAKE_ALL: usize = 100;
/// The automatic elimination interval while no round trip is known.
const ELIMINATION_AUTO: Duration = Duration::from_millis(4);
const OPS_MAX: usize = 2000;
const ROUNDS_MAX: usize = 100_000;
