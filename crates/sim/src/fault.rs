//! Faults of an endpoint's own socket calls.

use std::time::Duration;

use serde::Deserialize;

use crate::quantity::{Ratio, Span};

/// How often a socket call does something rare. In a scenario file: `io = { blocked = "5%" }`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IoFaults {
    /// A send finds the socket full, and the socket stays full for up to `blocked_for`.
    pub blocked: Ratio,
    /// The longest time for which a full socket stays full.
    pub blocked_for: Span,
    /// A send takes only the first datagrams of a run.
    pub short: Ratio,
    /// A send fails with an error that trying again does not mend.
    pub failed: Ratio,
    /// A send says that the datagram is too long although it is not.
    pub too_big: Ratio,
    /// A receive call joins datagrams of one flow into one buffer, as GRO does.
    pub coalesce: Ratio,
    /// A receive call returns only some of the datagrams that are there.
    pub partial_batch: Ratio,
}

impl IoFaults {
    /// Returns the longest time for which a send stays blocked; at least a microsecond, so that the
    /// clock moves.
    #[must_use]
    pub fn blocked_for(&self) -> Duration {
        self.blocked_for.0.max(Duration::from_micros(1))
    }
}
