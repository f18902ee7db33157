//! The settings of an audience: which receivers are expected, and what a slow one may do.

use std::time::Duration;

use crate::parameters::{DROP_AFTER, GREETING_TIMEOUT, MESSAGE_REPORT_INTERVAL, RECEIVERS_MAX};
use crate::{Key, RateConfig};

/// What happens when a receiver is slower than the sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Policy {
    /// The sender is held back: nothing is forgotten that a tracked receiver has not been given.
    #[default]
    Wait,
    /// The receiver loses data, and is told how much.
    Lose,
    /// The sender drops a receiver that stays 2 s behind, and tells it. It also drops one that has
    /// held the sender back for 2 s while half of the others are at least half as far ahead. A
    /// receiver that is alone, or as slow as the others, is waited for until it is 2 s behind.
    Drop,
}

/// All settings of an audience, with their defaults.
#[derive(Clone, Debug)]
pub struct AudienceConfig {
    /// The session's number, as in the mark of its SPMs.
    pub session_id: u64,
    /// With a key, only receivers that have the key are admitted and believed. Default: none.
    pub key: Option<Key>,
    /// What happens when a receiver is too slow.
    pub policy: Policy,
    /// How many receivers must join before anything may be forgotten. Default 0.
    pub expected: u32,
    /// The most receivers admitted at once.
    pub receivers_max: u32,
    /// How long a receiver may be slow. Under [`Policy::Wait`] and [`Policy::Lose`]: the longest
    /// time behind without any progress; `None`, the default, sets no limit. Under
    /// [`Policy::Drop`]: the longest time behind, or in the way of the others; `None` stands for
    /// [`DROP_AFTER`].
    pub stall_timeout: Option<Duration>,
    /// The longest time from connection to greeting.
    pub greeting_timeout: Duration,
    /// The shortest interval of reports that the sender asks receivers for.
    pub report_interval: Duration,
    /// A receiver reports at the latest after this many positions. It is a share of the transmit
    /// window, so that waiting for reports never limits the rate. Default 0: never.
    pub report_sqns: u32,
    /// Adapts the sender's rate to what receivers report. Default none.
    pub rate: Option<RateConfig>,
}

impl AudienceConfig {
    /// The defaults, for session `session`.
    #[must_use]
    pub const fn new(session_id: u64) -> Self {
        Self {
            session_id,
            key: None,
            policy: Policy::Wait,
            expected: 0,
            receivers_max: RECEIVERS_MAX,
            stall_timeout: None,
            greeting_timeout: GREETING_TIMEOUT,
            report_interval: MESSAGE_REPORT_INTERVAL,
            report_sqns: 0,
            rate: None,
        }
    }

    /// How many names are remembered after their receivers have left.
    pub(super) const fn names_max(&self) -> usize {
        4 * self.receivers_max as usize
    }

    /// How often to look for slow receivers.
    pub(super) fn check_interval(&self) -> Duration {
        let fraction = self.stall_limit().unwrap_or_default() / 64;
        fraction.max(Duration::from_millis(250))
    }

    pub(super) const fn stall_limit(&self) -> Option<Duration> {
        match (self.stall_timeout, self.policy) {
            (Some(limit), _) => Some(limit),
            (None, Policy::Drop) => Some(DROP_AFTER),
            (None, Policy::Wait | Policy::Lose) => None,
        }
    }
}
