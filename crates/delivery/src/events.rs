//! A bounded queue of the events that a machine reports to its owner.

use crate::parameters::EVENTS_MAX;
use std::collections::VecDeque;

/// The events of a machine. When the queue is full, a new event overwrites the oldest.
#[derive(Debug)]
pub(crate) struct Events<T>(VecDeque<T>);

impl<T> Default for Events<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> Events<T> {
    /// Adds an event; returns how many events it overwrote.
    pub(crate) fn push(&mut self, event: T) -> u64 {
        let is_full = self.0.len() == EVENTS_MAX as usize;
        if is_full {
            self.0.pop_front();
        }
        self.0.push_back(event);
        u64::from(is_full)
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        self.0.pop_front()
    }
}
