//! The settings of an audience: which receivers are expected, and what happens to a slow one.

use std::time::Duration;

use crate::parameters::{
    DROP_AFTER, HISTORY_MAX, LOOK_INTERVAL, MESSAGE_REPORT_INTERVAL, RECEIVERS_MAX, STALL_TIMEOUT,
};
use crate::{Admission, Key, RateConfig};

/// What happens when a receiver is slower than the sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Policy {
    /// The sender is held back: it keeps all data that a receiver in the session still lacks.
    ///
    /// Exception: without a key, receivers that are not expected are guests. The guests of one host
    /// may hold the receivers of other hosts back for 5 s, plus a quarter of the time that passes.
    /// Guests that have used up this time may lose data, and are told how much.
    #[default]
    Wait,
    /// The receiver loses data, and is told how much.
    Lose,
    /// The sender drops a receiver that still lacks a packet 2 s after the packet was sent, and
    /// tells the receiver. It also drops a receiver that holds the sender back for 2 s, if at least
    /// half of the receivers are less than half as far behind. A receiver that is alone, or as slow
    /// as the others, is dropped by the first rule only. [`AudienceConfig::stall_timeout`] changes
    /// both times.
    Drop,
}

/// All settings of an audience, with their defaults.
#[derive(Clone, Debug)]
pub struct AudienceConfig {
    /// The session's number, which is also in the mark of the session's SPMs.
    pub session_id: u64,
    /// The sender's name, which receivers are told, cut to 255 bytes. Default: empty, which means
    /// that they are told no name.
    pub name: String,
    /// The key. With one, only receivers that have it are admitted and believed. Default: none.
    pub key: Option<Key>,
    /// With a key, a random and secret number: the nonces of challenges depend on it. Default: the
    /// session's number, which is not secret.
    pub seed: u64,
    /// The hosts whose receivers are admitted. Default: all.
    pub admission: Option<Admission>,
    /// What happens when a receiver is too slow.
    pub policy: Policy,
    /// How many receivers are expected. Under [`Policy::Wait`] the sender forgets nothing before
    /// this many have joined. Default 0.
    pub expected: u32,
    /// The most receivers that may be admitted at the same time.
    pub receivers_max: u32,
    /// How long a receiver may be slow. Under [`Policy::Wait`] and [`Policy::Lose`]: how long it
    /// may be behind without any progress. Under [`Policy::Drop`]: how long it may be behind, or
    /// hold the others back. `None`, the default, means [`STALL_TIMEOUT`] under [`Policy::Wait`],
    /// [`DROP_AFTER`] under [`Policy::Drop`], and no limit under [`Policy::Lose`].
    pub stall_timeout: Option<Duration>,
    /// The shortest interval at which the sender asks receivers to report.
    pub report_interval: Duration,
    /// A receiver that has moved by this many positions since its last report may report before the
    /// report interval is over. If this is a fraction of the transmit window, the sender need not
    /// slow down to wait for reports. Default 0: only the report interval counts.
    pub report_sqns: u32,
    /// The settings of the rate control, which adapts the sender's rate to reports. Default: no
    /// rate control.
    pub rate: Option<RateConfig>,
}

impl AudienceConfig {
    /// Makes the default settings for session `session_id`.
    #[must_use]
    pub const fn new(session_id: u64) -> Self {
        Self {
            session_id,
            name: String::new(),
            key: None,
            seed: session_id,
            admission: None,
            policy: Policy::Wait,
            expected: 0,
            receivers_max: RECEIVERS_MAX,
            stall_timeout: None,
            report_interval: MESSAGE_REPORT_INTERVAL,
            report_sqns: 0,
            rate: None,
        }
    }

    /// Returns the most names of receivers that are remembered, those of present ones included.
    pub(super) const fn names_max(&self) -> usize {
        4 * self.receivers_max as usize
    }

    /// Returns the lowest number that a guest (a receiver that is not expected) can have; `None`
    /// with a key, because then there are no guests.
    pub(super) fn guests_from(&self) -> Option<u32> {
        self.key.is_none().then_some(self.expected)
    }

    /// Returns the time between two records of the sender's lead. From these records, the audience
    /// tells how late a receiver is.
    pub(super) fn history_interval(&self) -> Duration {
        let fraction = self.stall_limit().unwrap_or_default() / (HISTORY_MAX / 2);
        fraction.max(LOOK_INTERVAL)
    }

    pub(super) const fn stall_limit(&self) -> Option<Duration> {
        match (self.stall_timeout, self.policy) {
            (Some(limit), _) => Some(limit),
            (None, Policy::Drop) => Some(DROP_AFTER),
            (None, Policy::Wait) => Some(STALL_TIMEOUT),
            (None, Policy::Lose) => None,
        }
    }
}
