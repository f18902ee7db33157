//! Counters of a session at one moment.

use std::fmt;
#[cfg(feature = "counters")]
use std::time::Instant;

use base::{CounterInfo, CounterSet};

/// Counters at one moment.
#[derive(Default)]
pub struct Snapshot {
    pub(crate) values: Vec<(&'static str, &'static CounterInfo, u64)>,
    #[cfg(feature = "counters")]
    pub(crate) taken: Option<Instant>,
    pub(crate) receivers: Option<u32>,
    pub(crate) behind: Option<u64>,
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("counters", &self.values.len())
            .field("receivers", &self.receivers)
            .finish_non_exhaustive()
    }
}

impl Snapshot {
    /// Sets how many receivers a sending session has. This is no counter, because it may fall.
    pub const fn set_receivers(&mut self, receivers: u32) {
        self.receivers = Some(receivers);
    }

    /// Sets how many packets the slowest receiver of a sending session is behind.
    pub const fn set_behind(&mut self, packets: u64) {
        self.behind = Some(packets);
    }

    /// Adds every counter of a set.
    pub fn add<S: CounterSet>(&mut self, set: &S) {
        set.for_each(&mut |name, info, value| self.values.push((name, info, value)));
    }

    /// Forgets all values and keeps the memory.
    pub fn clear(&mut self) {
        self.values.clear();
        self.receivers = None;
        self.behind = None;
    }

    /// Appends the counters of another snapshot. Takes its numbers of receivers and of packets
    /// behind where this snapshot has none.
    pub fn append(&mut self, other: &Self) {
        self.values.extend_from_slice(&other.values);
        self.receivers = self.receivers.or(other.receivers);
        self.behind = self.behind.or(other.behind);
    }

    /// Adds another snapshot, counter by counter. The number of receivers and the number of packets
    /// behind are no counters and are not added: of each, the greater value stays.
    pub(crate) fn sum_up(&mut self, other: &Self) {
        for (set, info, value) in &other.values {
            let mut own = self.values.iter_mut();
            match own.find(|own| std::ptr::eq(own.1, *info)) {
                Some(own) => own.2 += value,
                None => self.values.push((set, info, *value)),
            }
        }
        self.receivers = self.receivers.max(other.receivers);
        self.behind = self.behind.max(other.behind);
    }

    /// Returns the value of the counter `name` of the set `set`.
    #[must_use]
    pub fn value_of(&self, set: &str, name: &str) -> Option<u64> {
        let mut all = self.iter();
        let found = all.find(|(of, info, _)| *of == set && info.name == name);
        found.map(|(_, _, value)| value)
    }

    /// Returns every counter that was added: the name of its set, its declaration, its value.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &'static CounterInfo, u64)> {
        self.values.iter().copied()
    }
}
