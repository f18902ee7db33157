//! The document that a process answers with: schema `towline.counters`, version 1.

use serde::{Deserialize, Serialize};

/// Every session of one process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessCounters {
    /// Always [`ProcessCounters::SCHEMA`].
    pub schema: String,
    /// Grows with every change that an older reader would misread.
    pub version: u32,
    /// Process identifier.
    pub pid: u32,
    /// Command line of the process, for a person.
    pub command: String,
    /// Seconds since the process began to serve its counters.
    pub uptime_s: f64,
    /// The sessions, oldest first.
    pub sessions: Vec<SessionCounters>,
}

/// One session and its counters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SessionCounters {
    /// Number of the session within its process; never reused.
    pub id: u64,
    /// What this end is, such as `publisher`, `subscriber`, `sender`, `receiver` or `relay`.
    pub role: String,
    /// A name for people: the group, and the TSI when there is one.
    pub name: String,
    /// Seconds since the counters were taken.
    pub age_s: f64,
    /// The counters in the order of their declaration.
    pub counters: Vec<CounterReading>,
    /// How many receivers a sending session has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receivers: Option<u32>,
    /// How many packets the slowest receiver of a sending session is behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<u64>,
}

/// One counter's value and declaration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CounterReading {
    /// The set that the counter belongs to.
    pub set: String,
    /// The counter's name within the set.
    pub name: String,
    /// What one count stands for.
    pub unit: String,
    /// What the counter counts.
    pub help: String,
    /// The count.
    pub value: u64,
}

impl ProcessCounters {
    /// The name of the document's schema.
    pub const SCHEMA: &'static str = "towline.counters";
    /// The schema's version that this library writes and reads.
    pub const VERSION: u32 = 1;
}

impl SessionCounters {
    /// Returns the value of the counter called `name`, plain or as `set.name`. A plain name takes
    /// the first set that has such a counter.
    #[must_use]
    pub fn value_of(&self, name: &str) -> Option<u64> {
        self.counters
            .iter()
            .find(|counter| counter.is_called(name))
            .map(|counter| counter.value)
    }
}

impl CounterReading {
    /// Returns true when `name` is this counter's name, plain or as `set.name`.
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        match name.split_once('.') {
            Some((set, plain)) => self.set == set && self.name == plain,
            None => self.name == name,
        }
    }
}
