//! One run: builds the world that a plan describes, lets it happen, and judges it.
//!
//! The same plan and seed give the same run, with or without recording.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    time::Duration,
};

use base::{Instant, Rng, RunLimit};
use pgm::{Config, Mode};

use crate::{
    EndpointId, SimIo,
    check::{Ledger, SharedLedger, Totals},
    control_count::ControlCounts,
    fault::IoFaults,
    node::{
        Disk, DiskStore, IntruderNode, PublisherNode, PublisherPlan, ReceiverNode, ReceiverPlan,
        SenderNode, SimNode, TakerNode, Tree,
    },
    pipe::Fault,
    plan::{EndPlan, EventKind, EventPlan, Plan, PlanError, Who},
    quantity::Span,
    simulation::Simulation,
    trace::Trace,
    wire_count::{WireCounts, describe},
    world::{Action, CrashKind, CutDirection, EndpointSetup, HostId, World},
};

/// The results of one run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The plan's name.
    pub name: String,
    /// The seed.
    pub seed: u64,
    /// What went wrong; empty for a good run.
    pub failures: Vec<String>,
    /// Virtual time from the start of the run to its end.
    pub took: Duration,
    /// Turns of all loops.
    pub turns: u64,
    /// Messages published.
    pub published: u64,
    /// How many packets the new data was cut into.
    pub packets: u64,
    /// What each receiver process got, in the order in which they ended.
    pub receivers: Vec<Totals>,
    /// Packets on the wire by type.
    pub wire: WireCounts,
    /// Messages that reached the accepting ends of control connections.
    pub control: ControlCounts,
    /// Packets of new data that the link or the socket of some receiver lost, counted for each
    /// receiver.
    pub data_lost: u64,
    /// New packets that at least one receiver lost, each counted once.
    pub sqns_lost: u64,
    /// Two equal runs have the same fingerprint.
    pub fingerprint: u64,
}

impl Report {
    /// Returns true for a run in which everything held.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.failures.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = |part: fn(&Totals) -> u64| self.receivers.iter().map(part).sum::<u64>();
        write!(
            f,
            "seed {:<8} {:<32} {:>5} messages x {} receivers: {} got, {} damaged, \
             {} packets lost for good; {} lost on the way; {}; {:.3?}, {} turns",
            self.seed,
            self.name,
            self.published,
            self.receivers.len(),
            sum(|t| t.messages),
            sum(|t| t.damaged),
            sum(|t| t.lost),
            self.data_lost,
            self.wire,
            self.took,
            self.turns,
        )?;
        self.failures
            .iter()
            .try_for_each(|failure| write!(f, "\n    FAILED {failure}"))
    }
}

/// Runs `plan` with `seed`. A panic inside is a failure of the run, not of the caller.
///
/// # Errors
/// When the plan's parameters make no valid configuration, or an event names an end that does not
/// exist.
pub fn run(plan: &Plan, seed: u64) -> Result<Report, PlanError> {
    let setting = Setting::new(plan, seed)?;
    Ok(finish(setting, false).0)
}

/// Runs `plan` with `seed` as [`run`] does, and records the run.
///
/// # Errors
/// As [`run`].
pub fn run_recorded(plan: &Plan, seed: u64) -> Result<(Report, Trace), PlanError> {
    let setting = Setting::new(plan, seed)?;
    let started = Instant::ZERO;
    let (report, trace) = finish(setting, true);
    Ok((
        report,
        trace.unwrap_or_else(|| Trace::new(started, describe)),
    ))
}

fn finish(mut setting: Setting<'_>, records: bool) -> (Report, Option<Trace>) {
    if records {
        let trace = Trace::new(setting.started, describe);
        setting.simulation.world().borrow_mut().record(trace);
    }
    let world = setting.simulation.world().clone();
    let ledger = setting.ledger.clone();
    let name = setting.plan.name.clone();
    let seed = setting.seed;
    let report = catch_unwind(AssertUnwindSafe(|| setting.play())).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
        let failures = vec![format!("panic: {}", text.unwrap_or_default())];
        let fingerprint = ledger.try_borrow().map_or(0, |ledger| ledger.fingerprint());
        Report {
            name,
            seed,
            failures,
            took: Duration::ZERO,
            turns: 0,
            published: 0,
            packets: 0,
            receivers: Vec::new(),
            wire: WireCounts::default(),
            control: ControlCounts::default(),
            data_lost: 0,
            sqns_lost: 0,
            fingerprint,
        }
    });
    // If a panic has left the world borrowed, there is no record.
    let trace = world
        .try_borrow_mut()
        .ok()
        .and_then(|mut world| world.take_trace());
    (report, trace)
}

/// A run that is ready to start.
struct Setting<'a> {
    plan: &'a Plan,
    seed: u64,
    started: Instant,
    simulation: Simulation<SimNode>,
    ledger: SharedLedger,
    totals: Rc<RefCell<Vec<Totals>>>,
}

impl<'a> Setting<'a> {
    fn new(plan: &'a Plan, seed: u64) -> Result<Self, PlanError> {
        let config = config(plan)?;
        let mut world = World::new(seed);
        world.stream_conditions = plan.control;
        let mut rng = world.rng.fork();
        let started = world.now();
        let group = group(plan);
        let ends = || plan.senders.iter().chain(&plan.receivers).enumerate();
        for (i, end) in ends() {
            let host = world.add_host(address(plan, i), &end.egress, &end.ingress);
            let is_sender = i < plan.senders.len();
            world.add_endpoint(&endpoint(plan, end, host, is_sender, group, &config));
        }
        if plan.intruder.is_some() {
            let host = world.add_host(address(plan, ends().count()), &[], &[]);
            let setup = EndpointSetup::new(host, Some(group));
            world.add_endpoint(&EndpointSetup {
                receive_buffer_bytes: 64 << 10,
                ..setup
            });
        }
        for event in &plan.events {
            plan_event(&mut world, plan, event, started)?;
        }
        if let Some(calm_at) = plan.calm_at {
            calm(&mut world, plan, started + calm_at.0);
        }
        let mut ledger = Ledger::new(rng.next_u64());
        ledger.tolerate_strangers(plan.intruder.is_some());
        let ledger = Rc::new(RefCell::new(ledger));
        let totals = Rc::new(RefCell::new(Vec::new()));
        let maker = Maker {
            plan: plan.clone(),
            config,
            group,
            started,
            ledger: ledger.clone(),
            totals: totals.clone(),
            tree: plan.objects.map(|objects| Tree::generate(&objects, seed)),
            disks: vec![Disk::default(); plan.receivers.len()],
            rng,
        };
        let mut maker = maker;
        let simulation = Simulation::new(world.shared(), move |io| maker.make(io));
        Ok(Self {
            plan,
            seed,
            started,
            simulation,
            ledger,
            totals,
        })
    }

    fn play(&mut self) -> Report {
        let deadline = self.started + self.plan.check.deadline.0;
        let is_over = self.simulation.run(deadline, is_over);
        if !is_over {
            self.explain_hang();
        }
        for (_, node) in self.simulation.nodes() {
            node.judge(false);
        }
        if self.plan.objects.is_some() {
            self.judge_proofs();
        }
        self.judge_ends();
        self.judge()
    }

    fn explain_hang(&self) {
        let open = self
            .simulation
            .nodes()
            .filter(|(_, node)| !node.is_finished());
        let open: Vec<_> = open
            .map(|(id, node)| format!("endpoint {}: {}", id.0, node.explain()))
            .collect();
        let text = open.join("; ");
        self.ledger
            .borrow_mut()
            .fail(format!("not over by the deadline: {text}"));
    }

    /// Checks that all sessions of messages ended as the plan wants.
    fn judge_ends(&self) {
        let Some(wanted) = self.plan.check.ended else {
            return;
        };
        for (_, node) in self.simulation.nodes() {
            let SimNode::Publisher(publisher) = node else {
                continue;
            };
            let ended = publisher.ended();
            if !ended.is_some_and(|ended| wanted.is(ended)) {
                let name = publisher.name();
                let text = format!("{name} ended as {ended:?}, not as {wanted:?}");
                self.ledger.borrow_mut().fail(text);
            }
        }
    }

    /// Checks that senders claim no more deliveries than there are trees in place. Also checks that
    /// each sender has proof of delivery, if the plan wants that.
    fn judge_proofs(&self) {
        let mut claimed = 0;
        for (_, node) in self.simulation.nodes() {
            let SimNode::Sender(sender) = node else {
                continue;
            };
            let (done, is_proven) = sender.proven();
            claimed += done;
            if self.plan.check.proven && !is_proven {
                let text = format!("not proven: {}", sender.outcome_text());
                self.ledger.borrow_mut().fail(text);
            }
        }
        let delivered: u64 = self
            .totals
            .borrow()
            .iter()
            .map(|totals| totals.messages)
            .sum();
        if claimed as u64 > delivered {
            let text = format!("{claimed} deliveries claimed, {delivered} in place");
            self.ledger.borrow_mut().fail(text);
        }
    }

    fn judge(&self) -> Report {
        let world = self.simulation.world().borrow();
        let wire = *world.wire_counts();
        let receivers = self.totals.borrow().clone();
        let data_lost = world.data_lost();
        self.check_plan(&wire, data_lost, &receivers);
        let mut ledger = self.ledger.borrow_mut();
        ledger.witness(self.simulation.turns());
        ledger.witness(wire.total());
        Report {
            name: self.plan.name.clone(),
            seed: self.seed,
            failures: ledger.failures().to_vec(),
            took: world.now().since(self.started),
            turns: self.simulation.turns(),
            published: ledger.published(),
            packets: ledger.packets(),
            receivers,
            wire,
            control: world.control_counts(),
            data_lost,
            sqns_lost: world.sqns_lost() as u64,
            fingerprint: ledger.fingerprint(),
        }
    }

    fn check_plan(&self, wire: &WireCounts, data_lost: u64, receivers: &[Totals]) {
        let check = self.plan.check;
        let mut ledger = self.ledger.borrow_mut();
        for (i, got) in receivers
            .iter()
            .enumerate()
            .filter(|(_, got)| !got.is_crashed && !got.has_left)
        {
            let (taken, owed) = (got.messages + got.damaged - got.unowed, got.owed);
            if check.all_delivered && taken != owed {
                let text = format!("receiver {i} got {taken} of {owed} messages");
                ledger.fail(text);
            }
            if check.all_ended && got.ended != self.plan.senders.len() as u64 {
                ledger.fail(format!("receiver {i} heard of {} ends", got.ended));
            }
        }
        let dropped: u64 = receivers.iter().map(|got| got.dropped).sum();
        if check.dropped.is_some_and(|count| count != dropped) {
            ledger.fail(format!(
                "{dropped} sessions ended by their senders' dropping"
            ));
        }
        let broken_off: u64 = receivers.iter().map(|got| got.broken_off).sum();
        if check.broken_off.is_some_and(|count| count != broken_off) {
            ledger.fail(format!("{broken_off} sessions told as broken off"));
        }
        if check.some_lost && data_lost == 0 {
            ledger.fail("no packet was lost: the scenario tested nothing".to_owned());
        }
        let per_cent = |count: u64| (count * 100).checked_div(data_lost).unwrap_or(0);
        if check
            .naks_per_lost_percent_max
            .is_some_and(|max| per_cent(wire.naked_sqns) > max)
        {
            ledger.fail(format!(
                "{} NAKs for {data_lost} lost packets",
                wire.naked_sqns
            ));
        }
        if check
            .repairs_per_lost_percent_max
            .is_some_and(|max| per_cent(wire.rdata) > max)
        {
            ledger.fail(format!(
                "{} repairs for {data_lost} lost packets",
                wire.rdata
            ));
        }
    }
}

/// Returns true when no process has anything left to do.
fn is_over(simulation: &mut Simulation<SimNode>) -> bool {
    simulation.nodes().all(|(_, node)| node.is_finished())
}

/// Starts the processes, at the start of the run and after each restart.
struct Maker {
    plan: Plan,
    config: Config,
    group: SocketAddr,
    started: Instant,
    ledger: SharedLedger,
    totals: Rc<RefCell<Vec<Totals>>>,
    tree: Option<Tree>,
    /// Each receiving host's disk, which outlives the processes of the host.
    disks: Vec<Disk>,
    rng: Rng,
}

impl Maker {
    fn make(&mut self, io: SimIo) -> SimNode {
        let index = io.endpoint().0;
        let Some(number) = index.checked_sub(self.plan.senders.len()) else {
            return self.sending(io, index);
        };
        let Some(receiver) = self.plan.receivers.get(number) else {
            let plan = self.plan.intruder.unwrap_or_default();
            let node = IntruderNode::new(io, plan, self.group, self.rng.next_u64());
            return SimNode::Intruder(Box::new(node));
        };
        let starts_at = self.started + receiver.starts_at.0;
        if io.world_now() < starts_at {
            let endpoint = io.endpoint();
            let mut world = io.world().borrow_mut();
            world.keep_down(endpoint);
            world.plan(starts_at, Action::Restart { endpoint });
            return SimNode::Asleep;
        }
        self.receiving(io, index, number)
    }

    fn sending(&mut self, io: SimIo, index: usize) -> SimNode {
        let session = self.plan.session;
        let end = &self.plan.senders[index];
        let receivers = self.plan.receivers.iter();
        let wanted = receivers.filter(|receiver| receiver.secret == end.secret);
        let all = session.reports.then(|| wanted.count());
        let now = io.world_now();
        let plan = PublisherPlan {
            config: self.config,
            own: address(&self.plan, index),
            group: self.group,
            first_sqn: session.first_sqn.draw(&mut self.rng),
            seed: self.rng.next_u64(),
            policy: session.policy,
            expected: all.filter(|_| now == self.started),
            reports: session.reports || self.plan.objects.is_some(),
            control_port: CONTROL_PORT,
            workload: self.plan.workload,
            ends_at: self.ends_at(end),
            patience: end.patience.0,
            key: end.key(),
        };
        let ledger = self.ledger.clone();
        if let (Some(objects), Some(tree)) = (self.plan.objects, self.tree.clone()) {
            let receivers = self.plan.senders.len()..index_count(&self.plan);
            let dialled = receivers.filter(|_| objects.by_links);
            let peers = dialled.map(|index| SocketAddr::new(address(&self.plan, index), PORT));
            let node = SenderNode::new(io, &plan, &objects, (tree, peers.collect()), ledger);
            return SimNode::Sender(Box::new(node));
        }
        SimNode::Publisher(Box::new(PublisherNode::new(io, &plan, ledger)))
    }

    fn receiving(&mut self, io: SimIo, index: usize, number: usize) -> SimNode {
        let session = self.plan.session;
        let now = io.world_now();
        let plan = ReceiverPlan {
            name: format!("receiver {number}"),
            config: self.config,
            mode: if session.arrival {
                Mode::Arrival
            } else {
                Mode::Sequence
            },
            own: address(&self.plan, index),
            group: self.group,
            seed: self.rng.next_u64(),
            reports: session.reports,
            // The sender waits for receivers that start with the run: they miss nothing. A later
            // receiver begins where it joins.
            from_start: session.reports && now == self.started,
            ends_at: self.ends_at(&self.plan.receivers[number]),
            key: self.plan.receivers[number].key(),
        };
        if let Some(objects) = self.plan.objects
            && let Some(tree) = &self.tree
        {
            let disk = &self.disks[number];
            if self.had_power_cut(number, now) && self.rng.chance(1, 2) {
                disk.damage(&mut self.rng);
            }
            let store = DiskStore::new(disk.clone(), &objects);
            let (ledger, totals) = (self.ledger.clone(), self.totals.clone());
            let node = TakerNode::new(io, &plan, (store, objects.by_links), tree, ledger, totals);
            return SimNode::Taker(Box::new(node));
        }
        let node = ReceiverNode::new(io, &plan, &self.ledger, self.totals.clone());
        SimNode::Receiver(Box::new(node))
    }

    /// Returns when the owner of this end ends it.
    fn ends_at(&self, end: &EndPlan) -> Option<Instant> {
        end.ends_at.map(|at| self.started + at.0)
    }

    /// Returns true when the receiver starts now because its host has power again.
    fn had_power_cut(&self, number: usize, now: Instant) -> bool {
        self.plan.events.iter().any(|event| match event.does {
            EventKind::PowerOff {
                back_after: Some(after),
            } => event.who == Who::Receiver(number) && self.started + event.at.0 + after.0 == now,
            _ => false,
        })
    }
}

fn config(plan: &Plan) -> Result<Config, PlanError> {
    let mut builder = Config::builder();
    for (name, text) in &plan.config {
        builder
            .set(name, text)
            .map_err(|error| PlanError(error.to_string()))?;
    }
    builder
        .build()
        .map_err(|error| PlanError(error.to_string()))
}

fn address(plan: &Plan, index: usize) -> IpAddr {
    let number = u16::try_from(index + 1).unwrap_or(u16::MAX);
    if plan.session.ipv6 {
        return Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, number).into();
    }
    let [high, low] = number.to_be_bytes();
    Ipv4Addr::new(10, 0, high, low).into()
}

fn group(plan: &Plan) -> SocketAddr {
    if plan.session.unicast {
        return SocketAddr::new(address(plan, plan.senders.len()), PORT);
    }
    if plan.session.ipv6 {
        return SocketAddr::new(Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0, 1).into(), PORT);
    }
    SocketAddr::from(([239, 192, 0, 1], PORT))
}

/// Returns how many hosts send or receive.
const fn index_count(plan: &Plan) -> usize {
    plan.senders.len() + plan.receivers.len()
}

fn endpoint(
    plan: &Plan,
    end: &EndPlan,
    host: HostId,
    is_sender: bool,
    group: SocketAddr,
    config: &Config,
) -> EndpointSetup {
    let joins = !(plan.session.unicast && is_sender);
    EndpointSetup {
        upstream_port: if is_sender { PORT } else { 0 },
        control_port: match plan.objects {
            Some(objects) if objects.by_links => (!is_sender).then_some(PORT),
            _ => is_sender.then_some(CONTROL_PORT),
        },
        receive_buffer_bytes: end.receive_buffer_bytes,
        mtu: config.mtu() - if plan.session.ipv6 { 48 } else { 28 },
        run_limit: RunLimit {
            bytes: end.run_bytes,
            datagrams: end.run_datagrams,
        },
        faults: end.io,
        loops_back: end.loops_back,
        datagram_cost: end.datagram_cost.0,
        ..EndpointSetup::new(host, joins.then_some(group))
    }
}

/// Plans the end of faults at `at`. From then on, only the delay and the rate of the links remain,
/// and receive calls that join datagrams.
fn calm(world: &mut World, plan: &Plan, at: Instant) {
    let quiet = |faults: &[Fault]| -> Vec<Fault> {
        let stays = |fault: &&Fault| matches!(fault, Fault::Delay(_) | Fault::Rate { .. });
        faults.iter().filter(stays).copied().collect()
    };
    for (i, end) in plan.senders.iter().chain(&plan.receivers).enumerate() {
        let host = HostId(i);
        world.plan(
            at,
            Action::Ingress {
                host,
                faults: quiet(&end.ingress),
            },
        );
        world.plan(
            at,
            Action::Egress {
                host,
                faults: quiet(&end.egress),
            },
        );
        let faults = IoFaults {
            coalesce: end.io.coalesce,
            ..IoFaults::default()
        };
        world.plan(
            at,
            Action::Io {
                endpoint: EndpointId(i),
                faults,
            },
        );
    }
}

fn plan_event(
    world: &mut World,
    plan: &Plan,
    event: &EventPlan,
    started: Instant,
) -> Result<(), PlanError> {
    let (index, count) = match event.who {
        Who::Sender(i) => (Some(i), plan.senders.len()),
        Who::Receiver(i) => (Some(i), plan.receivers.len()),
    };
    let index = index.filter(|&i| i < count);
    let Some(index) = index else {
        return Err(PlanError(format!("{:?} does not exist", event.who)));
    };
    let number = match event.who {
        Who::Sender(_) => index,
        Who::Receiver(_) => plan.senders.len() + index,
    };
    let (host, endpoint) = (HostId(number), EndpointId(number));
    let at = started + event.at.0;
    let cut = |direction, length: Span| Action::Partition {
        island: BTreeSet::from([host]),
        direction,
        length: length.0,
    };
    let mut crash = |kind, back_after: Option<Span>| {
        if let Some(after) = back_after {
            world.plan(at + after.0, Action::Restart { endpoint });
        }
        Action::Crash { endpoint, kind }
    };
    let action = match event.does.clone() {
        EventKind::Pause(length) => Action::Pause {
            host,
            length: length.0,
        },
        EventKind::CutOff(length) => cut(CutDirection::Both, length),
        EventKind::Deaf(length) => cut(CutDirection::Into, length),
        EventKind::Mute(length) => cut(CutDirection::OutOf, length),
        EventKind::Kill { back_after } => crash(CrashKind::Process, back_after),
        EventKind::PowerOff { back_after } => crash(CrashKind::Host, back_after),
        EventKind::Ingress(faults) => Action::Ingress { host, faults },
        EventKind::Egress(faults) => Action::Egress { host, faults },
        EventKind::Mtu(mtu) => Action::Mtu { endpoint, mtu },
    };
    world.plan(at, action);
    Ok(())
}

/// UDP port and data-destination port of all simulated sessions.
pub(crate) const PORT: u16 = 7500;
const CONTROL_PORT: u16 = 7501;
