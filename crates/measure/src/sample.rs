//! What became of each message of a run.

use serde::{Deserialize, Serialize};

/// One message that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The message's slot of the schedule, from 0; a number that is missing was never sent.
    pub sequence: u64,
    /// When the message was due, in nanoseconds after the start of the run.
    pub intended_ns: u64,
    /// When it was passed to the kernel, in nanoseconds after the start of the run; never before it
    /// was due.
    pub sent_ns: u64,
    /// Nanoseconds from passing it to the kernel until the application had the answer; `None` when
    /// no answer came.
    pub rtt_ns: Option<u64>,
}

impl Sample {
    /// Returns how much later than due the message was sent: the pacing error.
    #[must_use]
    pub const fn late_ns(&self) -> u64 {
        self.sent_ns.saturating_sub(self.intended_ns)
    }

    /// Returns the round trip, counted from when the message should have left.
    #[must_use]
    pub fn rtt_intended_ns(&self) -> Option<u64> {
        self.rtt_ns.map(|rtt| rtt + self.late_ns())
    }
}

/// Where one round trip's time went, by the kernel's own stamps.
///
/// ```text
///   send() -- queue --> SCHED -- device --> SND == link, far end, link ==> RX -- wake --> recv()
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// The message's slot.
    pub sequence: u64,
    /// From the application to the packet scheduler.
    pub queue_ns: u64,
    /// From the packet scheduler to the network device.
    pub device_ns: u64,
    /// From our device over the link, the far end and back to our kernel.
    pub link_ns: u64,
    /// From our kernel to the application.
    pub wake_ns: u64,
}

impl Split {
    /// Returns the time from the application to the device.
    #[must_use]
    pub const fn send_path_ns(&self) -> u64 {
        self.queue_ns + self.device_ns
    }
}

/// How many messages were stamped, by whose clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct StampCounts {
    /// Messages stamped by the kernel, with the wall clock.
    pub software: u64,
    /// Messages stamped by the network device on the way out and in, with its own clock.
    pub hardware: u64,
    /// Messages whose stamps were missing or made no sense.
    pub incomplete: u64,
}

impl StampCounts {
    /// Adds another run's counts.
    pub const fn add(&mut self, other: &Self) {
        self.software += other.software;
        self.hardware += other.hardware;
        self.incomplete += other.incomplete;
    }
}

/// Something that disturbed the measurement itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Disturbance {
    /// The kind of the disturbance.
    pub kind: DisturbanceKind,
    /// When it began, in nanoseconds after the start of the run.
    pub at_ns: u64,
    /// How long the disturbance lasted, in nanoseconds.
    pub lasted_ns: u64,
}

/// The kinds of disturbances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DisturbanceKind {
    /// The measuring thread did not run: another thread or the hypervisor had its processor.
    Pause,
    /// A pause whose length matches the kernel's limit on real-time threads
    /// (`/proc/sys/kernel/sched_rt_runtime_us`).
    Throttled,
    /// The wall clock was set. Messages under way at that time have no stamps in the result.
    ClockStep,
}

/// The counts of a run; they add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Counts {
    /// Slots of the schedule that came due.
    pub slots: u64,
    /// Messages sent. All other slots were missed or refused.
    pub sent: u64,
    /// Slots that were not used, because the sender was too late for them.
    pub missed: u64,
    /// Messages that the kernel refused.
    pub refused: u64,
    /// Echoes that answered a message in time.
    pub answered: u64,
    /// Messages without an answer in time.
    pub lost: u64,
    /// Echoes of messages that were already answered or given up; also late answers from before
    /// this run.
    pub late_or_twice: u64,
    /// Datagrams that do not belong to this run.
    pub foreign: u64,
    /// Echoes that came after one with a higher number.
    pub out_of_order: u64,
}

impl Counts {
    /// Adds another run's counts.
    pub const fn add(&mut self, other: &Self) {
        self.slots += other.slots;
        self.sent += other.sent;
        self.missed += other.missed;
        self.refused += other.refused;
        self.answered += other.answered;
        self.lost += other.lost;
        self.late_or_twice += other.late_or_twice;
        self.foreign += other.foreign;
        self.out_of_order += other.out_of_order;
    }
}

/// What PGM repaired beneath the messages, at the measuring end, which sends in one session and
/// receives in another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Repairs {
    /// NAKs that reflectors sent for messages that they missed.
    pub naks_received: u64,
    /// Packets sent again because of these NAKs.
    pub repairs_sent: u64,
    /// Bytes of these packets, PGM headers included.
    pub repair_bytes_sent: u64,
    /// NAKs that this end sent for answers that it missed.
    pub naks_sent: u64,
    /// Answers that arrived as repairs.
    pub repairs_received: u64,
}

impl Repairs {
    /// Adds another run's counts.
    pub const fn add(&mut self, other: &Self) {
        self.naks_received += other.naks_received;
        self.repairs_sent += other.repairs_sent;
        self.repair_bytes_sent += other.repair_bytes_sent;
        self.naks_sent += other.naks_sent;
        self.repairs_received += other.repairs_received;
    }

    /// Returns what was counted since `earlier`.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            naks_received: self.naks_received.saturating_sub(earlier.naks_received),
            repairs_sent: self.repairs_sent.saturating_sub(earlier.repairs_sent),
            repair_bytes_sent: self
                .repair_bytes_sent
                .saturating_sub(earlier.repair_bytes_sent),
            naks_sent: self.naks_sent.saturating_sub(earlier.naks_sent),
            repairs_received: self
                .repairs_received
                .saturating_sub(earlier.repairs_received),
        }
    }

    /// Returns how many packets were sent again, in both directions.
    #[must_use]
    pub const fn repairs(&self) -> u64 {
        self.repairs_sent + self.repairs_received
    }
}
