//! The reports of the commands when they end, as plain data. Field names carry their units.

use std::{collections::BTreeMap, fmt};

use gauge::load::{LoadTally, Percentiles};
use schemars::JsonSchema;
use serde::Serialize;
use towline::{
    Interface, Snapshot, Usage,
    counters::{CounterReading, ProcessCounters, SessionCounters},
};

use super::quantity::{self, per_second};
use crate::args::SizeRange;

/// Counters by `set.name`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct Counters(pub(crate) BTreeMap<String, u64>);

impl Counters {
    pub(crate) fn new(snapshot: &Snapshot) -> Self {
        let named = |(set, name, value): (&str, &str, u64)| (format!("{set}.{name}"), value);
        Self(
            snapshot
                .iter()
                .map(|(set, info, value)| named((set, info.name, value)))
                .collect(),
        )
    }

    pub(crate) fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Returns the counters of dropped packets, by reason, without reasons that did not occur.
    /// `kernel` counts socket buffers that the kernel dropped because the receive buffer was full.
    pub(crate) fn drops(&self) -> Self {
        let reasons = self.0.iter().filter_map(|(name, count)| {
            let reason = name.strip_prefix("drop.").or_else(|| {
                let is_kernel = name == "udp.kernel_drops";
                is_kernel.then_some("kernel")
            })?;
            (*count > 0).then(|| (reason.to_owned(), *count))
        });
        Self(reasons.collect())
    }

    /// Words drops for a person, or says that there are none. The last packets of a sender are no
    /// news: it repeats them, and whoever has the first needs no other.
    pub(crate) fn drops_told(&self) -> String {
        let told = self.0.iter().filter(|(reason, _)| *reason != ENDED);
        let told: Vec<_> = told
            .map(|(name, count)| format!("{name} {count}"))
            .collect();
        if told.is_empty() {
            return "none".to_owned();
        }
        told.join(", ")
    }
}

/// The reason why packets of a session that is over are dropped.
const ENDED: &str = "ended";

/// Processor time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct UsageReport {
    /// The wall-clock time that these figures cover.
    pub(crate) wall_s: f64,
    /// Processor time of this process: all threads, user and kernel.
    pub(crate) process_cpu_s: Option<f64>,
    /// Processor time of the whole machine, because the kernel bills softirq time to whichever
    /// process happens to run.
    pub(crate) machine_busy_s: Option<f64>,
    /// Time that a hypervisor gave to other machines; more than 1 % voids a measurement.
    pub(crate) machine_steal_s: Option<f64>,
    pub(crate) cpu_count: u32,
}

impl From<Usage> for UsageReport {
    fn from(usage: Usage) -> Self {
        Self {
            wall_s: usage.wall.as_secs_f64(),
            process_cpu_s: usage.process_cpu_s,
            machine_busy_s: usage.machine_busy_s,
            machine_steal_s: usage.machine_steal_s,
            cpu_count: usage.cpu_count,
        }
    }
}

/// `pub`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct PublishReport {
    pub(crate) group: String,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    /// With `--block=no`: messages thrown away because the window was full.
    pub(crate) discarded: u64,
    pub(crate) seconds: f64,
    /// Why the command did not finish its work.
    pub(crate) failure: Option<String>,
    /// At least one receiver has confirmed everything, and none that has joined or is expected
    /// lacks anything. False when no receiver reports: nobody could confirm.
    pub(crate) is_confirmed: bool,
    /// A signal ended the command.
    pub(crate) is_interrupted: bool,
    pub(crate) receivers: u64,
    /// Receivers that were dropped or left before everything had been sent to them.
    pub(crate) given_up: u64,
    /// With an automatic rate: the receiver that limited the rate last.
    pub(crate) limited_by: Option<LimitedBy>,
    /// Packets that the session dropped, by reason, without reasons that did not occur.
    pub(crate) drops: Counters,
    pub(crate) counters: Counters,
}

/// The receiver that limits an automatic rate.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct LimitedBy {
    pub(crate) receiver: String,
    /// `network` or `host`.
    pub(crate) cause: String,
    pub(crate) bits_per_s: u64,
}

impl fmt::Display for LimitedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = quantity::bits(self.bits_per_s as f64);
        let Self {
            receiver, cause, ..
        } = self;
        write!(f, "limited to {rate} by {receiver} (its {cause})")
    }
}

/// How the sessions of a group's senders went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct SenderEnds {
    pub(crate) found: u64,
    pub(crate) ended: u64,
    pub(crate) expired: u64,
    pub(crate) reset: u64,
    /// Senders that gave this receiver up.
    pub(crate) dropped: u64,
}

impl SenderEnds {
    /// Returns true when at least one sender was found and all of them are gone.
    pub(crate) const fn is_over(&self) -> bool {
        self.found > 0 && self.ended + self.broken() >= self.found
    }

    /// Returns how many senders left without ending their sessions: nobody knows what they still
    /// had to send.
    pub(crate) const fn broken(&self) -> u64 {
        self.expired + self.reset + self.dropped
    }
}

/// `sub`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct SubscribeReport {
    pub(crate) group: String,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    /// Packets that could not be repaired.
    pub(crate) lost_packets: u64,
    /// With `--block=no`: messages thrown away because the output was slow.
    pub(crate) discarded: u64,
    pub(crate) senders: SenderEnds,
    /// A signal ended the command.
    pub(crate) is_interrupted: bool,
    /// From the first message to the last.
    pub(crate) seconds: f64,
    /// Why the command did not finish its work.
    pub(crate) failure: Option<String>,
    /// Packets that the session dropped, by reason, without reasons that did not occur.
    pub(crate) drops: Counters,
    pub(crate) counters: Counters,
}

/// `load send`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct LoadSendReport {
    pub(crate) group: String,
    pub(crate) interface: String,
    pub(crate) size_bytes: SizeRange,
    pub(crate) seed: u64,
    pub(crate) messages: u64,
    /// Of payload.
    pub(crate) bytes: u64,
    /// From the first message until the last packet had left.
    pub(crate) seconds: f64,
    pub(crate) messages_per_s: f64,
    /// Of payload.
    pub(crate) bits_per_s: f64,
    /// Why it did not do all that it was to do.
    pub(crate) failure: Option<String>,
    /// At least one receiver has confirmed everything, and none that has joined or is expected
    /// lacks anything. False when no receiver reports: nobody could confirm.
    pub(crate) is_confirmed: bool,
    /// A signal ended the command.
    pub(crate) is_interrupted: bool,
    pub(crate) receivers: u64,
    /// Receivers that were dropped or left before everything had been sent to them.
    pub(crate) given_up: u64,
    /// With an automatic rate: the receiver that limited the rate last.
    pub(crate) limited_by: Option<LimitedBy>,
    pub(crate) usage: UsageReport,
    /// Packets that the session dropped, by reason, without reasons that did not occur.
    pub(crate) drops: Counters,
    pub(crate) counters: Counters,
}

/// `load recv`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct LoadRecvReport {
    pub(crate) group: String,
    pub(crate) interface: String,
    pub(crate) seed: u64,
    /// Intact messages, each counted once.
    pub(crate) messages: u64,
    /// Payload bytes of these messages.
    pub(crate) bytes: u64,
    pub(crate) missing: u64,
    pub(crate) corrupt: u64,
    pub(crate) duplicates: u64,
    pub(crate) out_of_order: u64,
    /// Packets that the protocol reported as lost.
    pub(crate) lost_packets: u64,
    pub(crate) senders: SenderEnds,
    /// A signal ended the command.
    pub(crate) is_interrupted: bool,
    /// From the first message to the last.
    pub(crate) seconds: f64,
    pub(crate) messages_per_s: f64,
    /// Of payload.
    pub(crate) bits_per_s: f64,
    /// With `--stamp`: the time from when each message was due until it was delivered.
    pub(crate) delay: Option<DelayReport>,
    pub(crate) usage: UsageReport,
    /// Packets that the session dropped, by reason, without reasons that did not occur.
    pub(crate) drops: Counters,
    pub(crate) counters: Counters,
}

/// One-way delays by the wall clocks of both ends, which agree to within `clock_error_ns_max`.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct DelayReport {
    #[serde(flatten)]
    pub(crate) percentiles: Percentiles,
    /// A message counts as late when its delay is longer than this.
    pub(crate) late_ns: u64,
    /// How many messages were late.
    pub(crate) messages_late: u64,
    /// How many messages came before they were due, which means that the clocks disagree.
    pub(crate) negative: u64,
    /// How far the clocks of a sender and of this host may be apart, as their daemons state it: the
    /// greatest sum of both errors. Null when a clock has no daemon that keeps it right. On one
    /// host there is one clock, which is not apart from itself.
    pub(crate) clock_error_ns_max: Option<u64>,
}

impl LoadRecvReport {
    /// Returns true when any message was lost, damaged, duplicated or out of order.
    pub(crate) const fn has_damage(&self) -> bool {
        self.has_loss() || self.corrupt + self.duplicates + self.out_of_order > 0
    }

    /// Returns true when messages or packets are missing.
    pub(crate) const fn has_loss(&self) -> bool {
        self.missing + self.lost_packets > 0
    }

    /// Adds what the checks have found.
    pub(crate) fn count(&mut self, tally: &LoadTally) {
        self.messages += tally.received;
        self.bytes += tally.bytes;
        self.missing = self.missing.saturating_add(tally.missing);
        self.corrupt += tally.corrupt;
        self.duplicates += tally.duplicates;
        self.out_of_order += tally.out_of_order;
        self.messages_per_s = per_second(self.messages, self.seconds);
        self.bits_per_s = per_second(self.bytes, self.seconds) * 8.0;
    }
}

/// `demo` when a signal ended it.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct InterruptedDemo {
    is_proven: bool,
    is_interrupted: bool,
    /// The user asked to keep what the receivers have written, so it is still there.
    pub(crate) is_kept: bool,
}

impl InterruptedDemo {
    pub(crate) const fn new(is_kept: bool) -> Self {
        Self {
            is_proven: false,
            is_interrupted: true,
            is_kept,
        }
    }
}

/// `ifaces`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct InterfacesReport {
    pub(crate) interfaces: Vec<InterfaceRow>,
    /// The library's own table.
    #[serde(skip)]
    pub(crate) table: String,
}

/// One interface.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct InterfaceRow {
    name: String,
    index: u32,
    kind: String,
    /// `up`, `down` or `no carrier`.
    condition: &'static str,
    /// The operational state as the kernel names it.
    state: String,
    mtu_bytes: u32,
    is_up: bool,
    is_running: bool,
    is_loopback: bool,
    has_broadcast: bool,
    has_multicast: bool,
    is_point_to_point: bool,
    has_default_route_v4: bool,
    has_default_route_v6: bool,
    gso_bytes_max: Option<u32>,
    /// The kernel's driver of the device; none for virtual interfaces, whose kind says it.
    driver: Option<String>,
    /// The speed that the driver names. Those of virtual interfaces do not keep to theirs.
    speed_bits_per_s: Option<u64>,
    addresses: Vec<AddressRow>,
}

/// One address of an interface.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct AddressRow {
    ip: String,
    /// Length of the prefix; absent when it cannot be known.
    prefix: Option<u8>,
    scope: String,
    peer: Option<String>,
    state: String,
}

impl From<&Interface> for InterfaceRow {
    fn from(interface: &Interface) -> Self {
        let addresses = interface.addresses.iter().map(|address| AddressRow {
            ip: address.ip.to_string(),
            prefix: address.prefix,
            scope: address.scope.name().to_owned(),
            peer: address.peer.map(|peer| peer.to_string()),
            state: address.state.name().to_owned(),
        });
        Self {
            name: interface.name.clone(),
            index: interface.index,
            kind: interface.kind.clone(),
            condition: interface.condition(),
            state: interface.state.name().to_owned(),
            mtu_bytes: interface.mtu_bytes,
            is_up: interface.flags.up,
            is_running: interface.flags.running,
            is_loopback: interface.flags.loopback,
            has_broadcast: interface.flags.broadcast,
            has_multicast: interface.flags.multicast,
            is_point_to_point: interface.flags.point_to_point,
            has_default_route_v4: interface.default_route_v4,
            has_default_route_v6: interface.default_route_v6,
            gso_bytes_max: interface.gso_bytes_max,
            driver: interface.driver.clone(),
            speed_bits_per_s: interface.speed_bits_per_s,
            addresses: addresses.collect(),
        }
    }
}

/// `top`: every process with its sessions and counters.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct TopReport {
    pub(crate) processes: Vec<ProcessCounters>,
    /// The counters of the reading before and the seconds since, for rates.
    #[serde(skip)]
    pub(crate) before: Option<(Vec<ProcessCounters>, f64)>,
    /// Counters that are zero are shown too.
    #[serde(skip)]
    pub(crate) is_complete: bool,
}

impl TopReport {
    /// Returns how fast a counter of a session has grown since the last reading, in counts a
    /// second.
    pub(crate) fn rate(
        &self,
        pid: u32,
        session: &SessionCounters,
        counter: &CounterReading,
    ) -> Option<f64> {
        let (before, seconds) = self.before.as_ref()?;
        let process = before.iter().find(|process| process.pid == pid)?;
        let session = process
            .sessions
            .iter()
            .find(|known| known.id == session.id)?;
        let mut same = session.counters.iter();
        let known = same.find(|known| known.set == counter.set && known.name == counter.name)?;
        Some(per_second(
            counter.value.saturating_sub(known.value),
            *seconds,
        ))
    }
}

/// `stat`: all counters of one process, or one counter in each session that has it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct StatReport {
    #[serde(flatten)]
    pub(crate) process: ProcessFields,
    /// The text form prints only the value.
    #[serde(skip)]
    pub(crate) is_one_counter: bool,
}

/// The document of a process without its schema, which the report adds itself.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct ProcessFields {
    pub(crate) pid: u32,
    pub(crate) command: String,
    pub(crate) uptime_s: f64,
    pub(crate) sessions: Vec<SessionCounters>,
}

impl From<ProcessCounters> for ProcessFields {
    fn from(process: ProcessCounters) -> Self {
        let ProcessCounters {
            pid,
            command,
            uptime_s,
            sessions,
            ..
        } = process;
        Self {
            pid,
            command,
            uptime_s,
            sessions,
        }
    }
}

/// A host that was dialled and has no receiver that joined.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct UnreachedRow {
    pub(crate) address: String,
    pub(crate) why: String,
}
