//! What the reports of sessions have in common: counters, drops, processor time.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use towline::{Snapshot, Usage};

/// Counters by name, such as `source.rdata_packets`.
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

    /// Returns the counters of dropped packets, by reason; reasons that did not occur are left out.
    /// `kernel` counts packets that the kernel dropped because a receive buffer was full.
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

    /// Says how many new packets and how many repairs a source has sent.
    pub(super) fn packets_told(&self) -> String {
        let [sent, rdata, parity] = ["odata_packets", "rdata_packets", "parity_packets"]
            .map(|name| self.get(&format!("source.{name}")));
        format!("{sent} and {} repairs", rdata + parity)
    }

    /// Lists drops for a person, or says that there are none. Leaves out [`ENDED`], because these
    /// drops are normal: a sender repeats its last packets, and a receiver whose session is over
    /// drops the copies.
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

/// The drop reason of packets whose session is over.
const ENDED: &str = "ended";

/// The processor time of this process and of the whole machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct UsageReport {
    /// The wall-clock time that these figures cover.
    pub(crate) wall_s: f64,
    /// Processor time of this process: all threads, user and kernel.
    pub(crate) process_cpu_s: Option<f64>,
    /// Processor time of the whole machine. This figure matters because the kernel bills the work
    /// of its network interrupts to whichever process happens to run.
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

#[cfg(test)]
impl Counters {
    /// The counters of a session with losses.
    pub(super) fn of_losses() -> Self {
        let counters = [
            ("drop.bad_checksum", 3),
            ("drop.stale", 0),
            ("udp.kernel_drops", 12),
            ("udp.received_bytes", 9),
        ];
        let named = counters.map(|(name, count)| (name.to_owned(), count));
        Self(named.into())
    }
}
