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
    /// The receiver loses data, and learns how much.
    Lose,
    /// A receiver that stays 2 s behind, or holds the sender back for so long while half of the
    /// others are at least half as far ahead, is dropped, and learns it. A receiver that is alone,
    /// or as slow as the others, is waited for until it is 2 s behind.
    Drop,
}

/// All settings of an audience, with their defaults.
#[derive(Clone, Debug)]
pub struct AudienceConfig {
    /// The session's number, as in the mark of its SPMs.
    pub session_id: u64,
    /// With a key, only receivers that have it are admitted and believed. Default: none.
    pub key: Option<Key>,
    /// What happens to slow receivers.
    pub policy: Policy,
    /// How many receivers are to join before anything may be forgotten. Default 0.
    pub expected: u32,
    /// The most receivers admitted at once.
    pub receivers_max: u32,
    /// The longest time a receiver may be behind: without any progress under [`Policy::Wait`] and
    /// [`Policy::Lose`] (`None`, the default: for ever), behind at all, or in the way of the
    /// others, under [`Policy::Drop`] (`None`: [`DROP_AFTER`]).
    pub stall_timeout: Option<Duration>,
    /// The longest time from connection to greeting.
    pub greeting_timeout: Duration,
    /// The shortest report interval that receivers are asked for.
    pub report_interval: Duration,
    /// A receiver reports at the latest after this many positions: a share of the transmit window,
    /// so that waiting for reports never limits the rate. Default 0, never.
    pub report_sqns: u32,
    /// Steers the sender's rate by what receivers report. Default none.
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

    /// Names remembered after their receivers have left.
    pub(super) const fn names_max(&self) -> usize {
        4 * self.receivers_max as usize
    }

    /// How often slowness is looked at.
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
