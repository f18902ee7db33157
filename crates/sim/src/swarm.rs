//! Swarm testing: a seed chooses which faults a run has, and how strong each is.
//!
//! In a run with every fault the strongest hides the others. So each run leaves some out, and the
//! rest meet in combinations that nobody would write down.

use std::collections::BTreeMap;

use base::Rng;

use crate::{
    fault::IoFaults,
    frame::index,
    pipe::Fault,
    plan::{
        CheckPlan, EndPlan, EventKind, EventPlan, FileChange, FirstSqn, Forgery, IntruderPlan,
        ObjectsPlan, Plan, PolicyPlan, SessionPlan, Who, Workload,
    },
    quantity::{Ratio, Span},
    stream::StreamConditions,
};

mod later;
use later::{with_endings, with_forger, with_keys};

/// Returns the plan that `seed` stands for.
#[must_use]
pub fn plan(seed: u64) -> Plan {
    with_forger(
        seed,
        with_keys(seed, with_endings(seed, without_endings(seed))),
    )
}

fn without_endings(seed: u64) -> Plan {
    let mut rng = Rng::new(seed ^ 0x5eed_5eed);
    let rng = &mut rng;
    // In some runs faults go on for 8 s, so that the workload ends under faults.
    let calm_ms = if rng.chance(1, 4) {
        8_000
    } else {
        rng.between(100, 3_000)
    };
    let session = session(rng);
    let senders = if rng.chance(1, 10) && !session.unicast {
        2
    } else {
        1
    };
    let receivers = if session.unicast {
        1
    } else {
        index(rng.between(1, 8))
    };
    let share = Menu::draw(rng);
    let sender = |rng: &mut Rng| EndPlan {
        // The end of a sender's session may take this long, which is less than the run's deadline.
        patience: Span::millis(100_000),
        ..end(rng, share, false)
    };
    let senders: Vec<_> = (0..senders).map(|_| sender(rng)).collect();
    let receivers: Vec<_> = (0..receivers)
        .map(|_| end(rng, share, !session.reports))
        .collect();
    let events = events(rng, share, calm_ms, senders.len(), receivers.len());
    let objects = (senders.len() == 1 && rng.chance(1, 5)).then(|| objects(rng, receivers.len()));
    let is_survivable = events.iter().all(|event| is_survivable(&event.does));
    let starts_together = receivers.iter().all(|end| end.starts_at == Span::default());
    let hears_the_sender_first = match objects {
        Some(objects) => objects.expected > 0 && objects.join_timeout >= Span::millis(12_000),
        None => session.reports,
    };
    let intruder = rng.chance(1, 6).then(|| IntruderPlan {
        gap: Span::micros(rng.between(20, 5_000)),
        stops_after: Span::millis(calm_ms.min(2_000)),
        forges: match hears_the_sender_first && is_survivable && starts_together {
            true => Forgery::Sessions,
            false => Forgery::Nothing,
        },
    });
    let is_promised = match objects {
        Some(objects) => objects.expected > 0 && objects.join_timeout >= Span::millis(12_000),
        None => session.reports && session.policy == PolicyPlan::Wait,
    };
    Plan {
        name: format!("swarm {seed}"),
        about: String::new(),
        seeds: 1,
        config: parity(seed, config(rng, session)),
        workload: workload(rng, session),
        objects,
        control: control(rng),
        check: CheckPlan {
            // The margin of 130 s is for a far receiver with room for eight packets, which takes 13
            // packets a second (seed 18870).
            deadline: Span::millis(calm_ms + 130_000),
            // These promises hold while no process is killed and no MTU changes.
            all_delivered: is_promised && is_survivable,
            proven: objects.is_some() && is_promised && is_survivable,
            ..CheckPlan::default()
        },
        session,
        senders,
        receivers,
        intruder,
        events,
        calm_at: Some(Span::millis(calm_ms)),
    }
}

/// Returns the plan of a tree that `seed` stands for: 1 to 50 receivers, the same faults, and more
/// crashes.
///
/// The sender must have a proof from each receiver if it waits long enough for them to join, and if
/// no process ends except receivers that soon come back. In other runs only this must hold: no
/// wrong content, no false claim, and no end without a reason.
#[must_use]
pub fn tree_plan(seed: u64) -> Plan {
    let mut plan = without_endings(seed ^ 0x7ee5);
    let mut rng = Rng::new(seed ^ 0x00b7_ec75);
    let rng = &mut rng;
    plan.name = format!("tree {seed}");
    plan.session = SessionPlan {
        unicast: false,
        arrival: false,
        ..plan.session
    };
    plan.senders.truncate(1);
    let menu = Menu::draw(rng);
    let receivers = match rng.below(3) {
        0 => rng.between(1, 4),
        1 => rng.between(5, 15),
        _ => rng.between(16, 50),
    };
    plan.receivers = (0..receivers).map(|_| end(rng, menu, false)).collect();
    let calm_ms = plan.calm_at.map_or(3_000, |calm| calm.0.as_millis() as u64);
    let count = plan.receivers.len();
    plan.events = events(rng, menu, calm_ms, 1, count);
    let crashes = rng.below(4).saturating_sub(1);
    plan.events
        .extend((0..crashes).map(|_| crash(rng, calm_ms, count)));
    let mut tree = objects(rng, count);
    tree.expected = if rng.chance(5, 6) { count } else { 0 };
    if rng.chance(2, 3) {
        tree.join_timeout = Span::millis(20_000);
    }
    plan.objects = Some(tree);
    plan.intruder = None;
    let mild = |event: &EventPlan| is_survivable(&event.does) || comes_back(event);
    let is_promised = tree.expected > 0 && tree.join_timeout >= Span::millis(12_000);
    let all_live = plan.events.iter().all(|event| is_survivable(&event.does));
    plan.check = CheckPlan {
        deadline: Span::millis(calm_ms + 400_000),
        all_delivered: is_promised && all_live,
        proven: is_promised && plan.events.iter().all(mild),
        ..CheckPlan::default()
    };
    with_forger(seed, with_endings(seed, plan))
}

/// Draws an event that ends a process: in one of five cases the sender's. In three of four the
/// process is started again.
fn crash(rng: &mut Rng, calm_ms: u64, receivers: usize) -> EventPlan {
    let who = if rng.chance(1, 5) {
        Who::Sender(0)
    } else {
        Who::Receiver(index(rng.below(receivers as u64)))
    };
    let back_after = rng
        .chance(3, 4)
        .then(|| Span::millis(rng.between(1, 2_000)));
    let does = if rng.chance(2, 3) {
        EventKind::Kill { back_after }
    } else {
        EventKind::PowerOff { back_after }
    };
    EventPlan {
        at: Span::millis(rng.between(1, calm_ms)),
        who,
        does,
    }
}

/// Returns true for a receiver that is killed and soon started again.
const fn comes_back(event: &EventPlan) -> bool {
    let is_receiver = matches!(event.who, Who::Receiver(_));
    let is_soon = matches!(
        event.does,
        EventKind::Kill {
            back_after: Some(_)
        }
    );
    is_receiver && is_soon
}

/// Which kinds of fault a run has.
#[derive(Clone, Copy, Debug)]
struct Menu {
    loss: bool,
    burst: bool,
    jitter: bool,
    reorder: bool,
    duplicate: bool,
    corrupt: bool,
    rate: bool,
    io: bool,
    small_buffers: bool,
    events: bool,
    crashes: bool,
    far: bool,
}

impl Menu {
    fn draw(rng: &mut Rng) -> Self {
        let mut one_in = |n: u64| rng.chance(1, n);
        Self {
            loss: !one_in(3),
            burst: one_in(3),
            jitter: one_in(2),
            reorder: one_in(2),
            duplicate: one_in(3),
            corrupt: one_in(3),
            rate: one_in(4),
            io: one_in(2),
            small_buffers: one_in(4),
            events: one_in(3),
            crashes: one_in(6),
            far: one_in(6),
        }
    }
}

fn session(rng: &mut Rng) -> SessionPlan {
    let first_sqn = match rng.below(4) {
        0 => FirstSqn::Random,
        1 => FirstSqn::NearHalf,
        _ => FirstSqn::NearWrap,
    };
    let policy = match rng.below(4) {
        0 => PolicyPlan::Lose,
        1 => PolicyPlan::Drop,
        _ => PolicyPlan::Wait,
    };
    let reports = rng.chance(2, 3);
    SessionPlan {
        first_sqn,
        policy: if reports { policy } else { PolicyPlan::Lose },
        reports,
        ipv6: rng.chance(1, 4),
        unicast: rng.chance(1, 10),
        arrival: !reports && rng.chance(1, 3),
    }
}

fn objects(rng: &mut Rng, receivers: usize) -> ObjectsPlan {
    let files = rng.between(0, 60);
    ObjectsPlan {
        files,
        // Files of up to 400,000 bytes, so that some trees have more than one slab of 1 MiB.
        file_bytes_max: if files < 8 {
            400_000
        } else {
            rng.between(1, 20_000)
        },
        expected: if rng.chance(3, 4) { receivers } else { 0 },
        join_timeout: Span::millis(rng.between(100, 20_000)),
        store_full_every: if rng.chance(1, 4) {
            rng.between(5, 200)
        } else {
            0
        },
        hashes_wrong: rng.below(8) / 6,
        change: change(rng.clone()),
        ..ObjectsPlan::default()
    }
}

/// Draws, for one tree of four, a file that changes, at the latest in the middle of a second pass.
/// `rng` is a copy, so that these draws do not change the rest of a seed's plan.
fn change(mut rng: Rng) -> Option<FileChange> {
    rng.next_u64();
    rng.chance(1, 4).then(|| FileChange {
        position: rng.next_u64(),
        after_bytes: rng.below(1_500_000),
    })
}

fn config(rng: &mut Rng, session: SessionPlan) -> BTreeMap<String, String> {
    let mut config = BTreeMap::new();
    let mut set = |name: &str, value: String| {
        config.insert(name.to_owned(), value);
    };
    if rng.chance(1, 2) {
        set("mtu", rng.between(576, 1500).to_string());
    }
    windows(rng, &mut set);
    if rng.chance(1, 3) {
        set("rate", format!("{}B/s", rng.between(500_000, 50_000_000)));
    }
    if rng.chance(1, 3) {
        set(
            "elimination_interval",
            format!("{}us", rng.between(0, 10_000)),
        );
    }
    // A send call takes no simulated time, so an automatic cork would always be zero.
    if rng.chance(1, 3) {
        set("cork", format!("{}us", rng.between(0, 2_000)));
    }
    if rng.chance(1, 4) {
        let low = rng.between(0, 2_000);
        set("nak_backoff_min", format!("{low}us"));
        set(
            "nak_backoff_max",
            format!("{}us", low + rng.between(1, 20_000)),
        );
    }
    // Receivers may give up early only in sessions that allow loss.
    if rng.chance(1, 3) && session.policy != PolicyPlan::Wait {
        set("nak_ncf_retries", rng.between(2, 10).to_string());
        set("nak_data_retries", rng.between(2, 10).to_string());
        set("repair_time_max", format!("{}ms", rng.between(50, 500)));
    }
    if rng.chance(1, 6) {
        set("send_syn", "true".into());
    }
    if rng.chance(1, 6) {
        set("send_join", "true".into());
        set("late_join", "offered".into());
    } else if rng.chance(1, 6) {
        set("late_join", "window".into());
    }
    config
}

/// Adds parity in one run of three. The generator is separate, so that adding parity did not change
/// the other draws of a seed.
fn parity(seed: u64, mut config: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let rng = &mut Rng::new(seed ^ 0x000f_ec00);
    if !rng.chance(1, 3) {
        return config;
    }
    let mut group = 2 << rng.below(7);
    // The windows of the run must hold two groups.
    while !is_sound(&config, group) && group > 2 {
        group /= 2;
    }
    let mut set = |name: &str, value: String| {
        config.insert(name.to_owned(), value);
    };
    set("fec_group", group.to_string());
    let most = group.min(4);
    if rng.chance(1, 2) {
        set("fec_proactive", rng.between(0, most).to_string());
        set(
            "fec_proactive_max",
            rng.between(0, group.min(8)).to_string(),
        );
    }
    if rng.chance(1, 8) {
        set("fec_on_demand", "false".into());
    }
    if rng.chance(1, 4) {
        set("rx_fec_bytes", format!("{}KiB", rng.between(0, 200)));
    }
    config
}

fn is_sound(config: &BTreeMap<String, String>, group: u64) -> bool {
    let mut builder = pgm::Config::builder();
    let mut set = |name: &str, value: &str| builder.set(name, value).is_ok();
    let is_set = config.iter().all(|(name, value)| set(name, value));
    is_set && set("fec_group", &group.to_string()) && builder.build().is_ok()
}

/// Draws small windows, so that runs reach their edges.
fn windows(rng: &mut Rng, set: &mut dyn FnMut(&str, String)) {
    let (tx_kib, tx_sqns) = match rng.below(3) {
        0 => (rng.between(64, 128), rng.between(64, 256)),
        1 => (rng.between(64, 512), rng.between(256, 4096)),
        _ => (8 << 10, 65_536),
    };
    set("tx_window_bytes", format!("{tx_kib}KiB"));
    set("object_window_bytes", format!("{tx_kib}KiB"));
    set("tx_window_sqns", tx_sqns.to_string());
    set("apdu_bytes_max", "20000".into());
    // Half the window, and enough for 20,000 bytes in packets of 576.
    set("fragments_max", (tx_sqns / 2).min(64).to_string());
    let is_small = rng.chance(1, 6);
    let held_kib = if is_small {
        rng.between(32, 128)
    } else {
        8 << 10
    };
    set("rx_window_bytes", format!("{held_kib}KiB"));
    // The bound on the memory of a receiver, shared by up to two senders; the run checks it.
    set("rx_total_bytes", format!("{}KiB", held_kib + 64));
    set(
        "rx_window_sqns",
        if is_small {
            rng.between(64, 1024)
        } else {
            65_536
        }
        .to_string(),
    );
}

fn workload(rng: &mut Rng, session: SessionPlan) -> Workload {
    let size_max = match rng.below(4) {
        0 => rng.between(1, 200),
        1 => rng.between(200, 1_500),
        2 => rng.between(1_500, 6_000),
        _ => rng.between(6_000, 20_000),
    };
    // In arrival mode a receiver refuses a message of several packets and reports each packet lost.
    let size_max = if session.arrival && rng.chance(3, 4) {
        size_max.min(480)
    } else {
        size_max
    };
    let is_bursty = rng.chance(1, 2);
    Workload {
        messages: if size_max > 6_000 {
            rng.between(5, 150)
        } else {
            rng.between(20, 600)
        },
        size_min: 1,
        size_max: index(size_max),
        small_one_in: rng.below(4),
        gap: Span::micros(if is_bursty {
            rng.between(1_000, 50_000)
        } else {
            rng.between(0, 2_000)
        }),
        burst: if is_bursty {
            rng.between(5, 80)
        } else {
            rng.between(1, 5)
        },
    }
}

fn control(rng: &mut Rng) -> StreamConditions {
    StreamConditions {
        delay: Span::micros(rng.between(20, 5_000)),
        jitter: Span::micros(rng.between(0, 5_000)),
        loss: if rng.chance(1, 3) {
            Ratio::percent(drawn(rng, 1, 10))
        } else {
            Ratio::ZERO
        },
        unsent_bytes_max: if rng.chance(1, 4) { 300 } else { 64 << 10 },
        unread_bytes_max: if rng.chance(1, 4) { 4_000 } else { 64 << 10 },
        ..StreamConditions::default()
    }
}

fn end(rng: &mut Rng, menu: Menu, may_start_late: bool) -> EndPlan {
    let mut plan = EndPlan {
        egress: faults(rng, menu),
        ingress: faults(rng, menu),
        loops_back: rng.chance(1, 5),
        ..EndPlan::default()
    };
    if menu.io {
        plan.io = io(rng);
        plan.run_datagrams = index(rng.between(1, 64));
        plan.run_bytes = index(rng.between(1_500, 64_000));
    }
    if menu.small_buffers && rng.chance(1, 2) {
        plan.receive_buffer_bytes = index(rng.between(4, 64) << 10);
        plan.datagram_cost = Span::micros(rng.between(1, 100));
    }
    if may_start_late && rng.chance(1, 5) {
        plan.starts_at = Span::millis(rng.between(1, 300));
    }
    plan
}

fn faults(rng: &mut Rng, menu: Menu) -> Vec<Fault> {
    let mut list = Vec::new();
    // In a run with a fault half the links have the fault, so that receivers differ.
    let here = |on: bool, rng: &mut Rng| on && rng.chance(1, 2);
    if here(menu.loss, rng) {
        let strong = rng.chance(1, 4);
        list.push(Fault::Loss(Ratio::percent(drawn(
            rng,
            1,
            if strong { 30 } else { 8 },
        ))));
    }
    if here(menu.burst, rng) {
        list.push(Fault::Burst {
            enter: Ratio::per_mille(drawn(rng, 1, 20)),
            leave: Ratio::percent(drawn(rng, 5, 50)),
            loss: Ratio::percent(drawn(rng, 50, 100)),
        });
    }
    if here(menu.rate, rng) {
        list.push(Fault::Rate {
            bytes_per_s: rng.between(1_000_000, 100_000_000),
            queue_bytes: rng.between(8, 256) << 10,
        });
    }
    let delay_us = if menu.far {
        rng.between(1_000, 50_000)
    } else {
        rng.between(5, 500)
    };
    list.push(Fault::Delay(Span::micros(delay_us)));
    if here(menu.jitter, rng) {
        list.push(Fault::Jitter(Span::micros(rng.between(1, 5_000))));
    }
    if here(menu.reorder, rng) {
        let chance = Ratio::percent(drawn(rng, 1, 20));
        list.push(Fault::Reorder {
            chance,
            by: Span::micros(rng.between(10, 10_000)),
        });
    }
    if here(menu.duplicate, rng) {
        let chance = Ratio::percent(drawn(rng, 1, 20));
        list.push(Fault::Duplicate {
            chance,
            after: Span::micros(rng.between(0, 20_000)),
        });
    }
    if here(menu.corrupt, rng) {
        let chance = Ratio::per_mille(drawn(rng, 1, 50));
        list.push(Fault::Corrupt {
            chance,
            bits_max: drawn(rng, 1, 8),
        });
    }
    list
}

fn io(rng: &mut Rng) -> IoFaults {
    let mut some = |percent_max: u32| {
        if rng.chance(1, 2) {
            Ratio::percent(drawn(rng, 0, percent_max))
        } else {
            Ratio::ZERO
        }
    };
    IoFaults {
        blocked: some(20),
        short: some(30),
        failed: some(5),
        too_big: some(2),
        coalesce: some(90),
        partial_batch: some(50),
        blocked_for: Span::micros(500),
    }
}

fn events(
    rng: &mut Rng,
    menu: Menu,
    calm_ms: u64,
    senders: usize,
    receivers: usize,
) -> Vec<EventPlan> {
    let mut list = Vec::new();
    let count = if menu.events { rng.between(1, 4) } else { 0 };
    for _ in 0..count {
        let who = if rng.chance(1, 4) {
            Who::Sender(index(rng.below(senders as u64)))
        } else {
            Who::Receiver(index(rng.below(receivers as u64)))
        };
        let length = Span::millis(rng.between(1, calm_ms.min(1_500)));
        let does = match rng.below(6) {
            0 | 1 => EventKind::Pause(length),
            2 => EventKind::CutOff(length),
            3 => EventKind::Deaf(length),
            4 => EventKind::Mute(length),
            _ => EventKind::Ingress(faults(rng, menu)),
        };
        list.push(EventPlan {
            at: Span::millis(rng.between(0, calm_ms)),
            who,
            does,
        });
    }
    if menu.crashes {
        let who = if rng.chance(1, 4) {
            Who::Sender(index(rng.below(senders as u64)))
        } else {
            Who::Receiver(index(rng.below(receivers as u64)))
        };
        let back_after = rng
            .chance(2, 3)
            .then(|| Span::millis(rng.between(1, 2_000)));
        let does = if rng.chance(1, 2) {
            EventKind::Kill { back_after }
        } else {
            EventKind::PowerOff { back_after }
        };
        list.push(EventPlan {
            at: Span::millis(rng.between(1, calm_ms)),
            who,
            does,
        });
    }
    list
}

/// Returns true for an event after which a session with reports still delivers everything: no
/// process ends, and the MTU stays.
const fn is_survivable(event: &EventKind) -> bool {
    !matches!(
        event,
        EventKind::Kill { .. } | EventKind::PowerOff { .. } | EventKind::Mtu(_)
    )
}

fn drawn(rng: &mut Rng, low: u32, high: u32) -> u32 {
    u32::try_from(rng.between(u64::from(low), u64::from(high))).unwrap_or(high)
}
