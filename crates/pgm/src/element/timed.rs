//! A bounded table of repair state by packet or transmission group, in which each entry has one
//! timer.
//!
//! Invariant: there are at most `len_max` entries; each entry whose timer is set is in `due`
//! exactly once.

use std::collections::{BTreeMap, BTreeSet};

use base::Instant;
use wire::pgm::Tsi;

/// The key of an entry: the session, and the sequence number of a packet or of a transmission
/// group's first packet.
pub(super) type Key = (Tsi, u32);

/// The entries, with their timers.
#[derive(Debug)]
pub(super) struct Timed<T> {
    len_max: usize,
    entries: BTreeMap<Key, (Instant, T)>,
    due: BTreeSet<(Instant, Key)>,
}

impl<T> Timed<T> {
    pub(super) const fn new(len_max: usize) -> Self {
        Self {
            len_max,
            entries: BTreeMap::new(),
            due: BTreeSet::new(),
        }
    }

    /// Returns true when the table has an entry for `key`, or has room for one more.
    pub(super) fn has_room(&self, key: Key) -> bool {
        self.entries.len() < self.len_max || self.entries.contains_key(&key)
    }

    pub(super) fn get(&self, key: Key) -> Option<&T> {
        self.entries.get(&key).map(|(_, value)| value)
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.entries.get_mut(&key).map(|(_, value)| value)
    }

    /// Returns the entry of `key`. Makes it first if there is none; `None` when there is no room
    /// for it. The caller sets the timer of a new entry with [`Timed::set_due`].
    pub(super) fn entry(
        &mut self,
        now: Instant,
        key: Key,
        new: impl FnOnce() -> T,
    ) -> Option<&mut T> {
        if !self.has_room(key) {
            return None;
        }
        let entry = self.entries.entry(key).or_insert_with(|| (now, new()));
        Some(&mut entry.1)
    }

    /// Makes or replaces the entry of `key`; its timer ends at `due`. The caller has checked that
    /// there is room ([`Timed::has_room`]).
    pub(super) fn set(&mut self, key: Key, due: Instant, value: T) {
        if let Some((before, _)) = self.entries.insert(key, (due, value)) {
            self.due.remove(&(before, key));
        }
        self.due.insert((due, key));
    }

    /// Sets the timer of an entry to end at `due`.
    pub(super) fn set_due(&mut self, key: Key, due: Instant) {
        if let Some((before, _)) = self.entries.get_mut(&key) {
            self.due.remove(&(*before, key));
            *before = due;
            self.due.insert((due, key));
        }
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<T> {
        let (due, value) = self.entries.remove(&key)?;
        self.due.remove(&(due, key));
        Some(value)
    }

    /// Forgets the entries of a session.
    pub(super) fn forget(&mut self, tsi: Tsi) {
        let range = self.entries.range((tsi, 0)..=(tsi, u32::MAX));
        let keys: Vec<Key> = range.map(|(key, _)| *key).collect();
        for key in keys {
            self.remove(key);
        }
    }

    /// Calls `next` for each entry whose timer has ended. `next` returns the new time for
    /// the timer, or `None` to remove the entry.
    pub(super) fn expire(
        &mut self,
        now: Instant,
        mut next: impl FnMut(Key, &T) -> Option<Instant>,
    ) {
        while let Some(&(_, key)) = self.due.first().filter(|(due, _)| *due <= now) {
            match self.get(key).and_then(|value| next(key, value)) {
                Some(due) => self.set_due(key, due),
                None => {
                    self.remove(key);
                }
            }
        }
    }

    /// Returns when the first timer ends; [`Instant::NEVER`] for an empty table.
    pub(super) fn due(&self) -> Instant {
        self.due.first().map_or(Instant::NEVER, |(due, _)| *due)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}
