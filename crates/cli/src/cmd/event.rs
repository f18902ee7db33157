//! What happens to receivers, in words.

use std::cmp::Ordering;

use towline::{LeaveReason, RegistryEvent};

use crate::report::count;

/// A sending end is told about a receiver.
pub(super) fn receiver(event: &RegistryEvent) -> String {
    match event {
        RegistryEvent::Joined { name, peer, .. } => format!("receiver {name} joined from {peer}"),
        RegistryEvent::Left {
            name,
            reason: LeaveReason::Bye,
            ..
        } => {
            format!("receiver {name} left")
        }
        RegistryEvent::Left {
            name,
            behind,
            reason,
            ..
        } => {
            let reason = match reason {
                LeaveReason::Error { text, .. } => text,
                _ => "connection closed",
            };
            let behind = count(*behind, "packet");
            format!("receiver {name} is gone ({reason}), {behind} behind")
        }
        RegistryEvent::Stalled { name, behind, .. } => {
            let behind = count(*behind, "packet");
            format!("receiver {name} has stopped, {behind} behind")
        }
        RegistryEvent::Resumed { name, .. } => format!("receiver {name} goes on"),
        RegistryEvent::Dropped { name, behind, .. } => {
            let behind = count(*behind, "packet");
            format!("receiver {name} was dropped as too slow, {behind} behind")
        }
        RegistryEvent::Refused { peer, reason } => format!("refused {peer}: {reason}"),
    }
}

/// Counts the receivers that are gone without having been given everything, which is known only
/// at the end: who has everything so far has not when more is sent.
#[derive(Debug, Default)]
pub(super) struct Departed {
    short: u64,
    /// The farthest position that any of them had been given, and how many have.
    farthest: (u64, u64),
}

impl Departed {
    pub(super) fn note(&mut self, event: &RegistryEvent) {
        match event {
            RegistryEvent::Dropped { .. } => self.short += 1,
            RegistryEvent::Left { contiguous, .. } => self.note_at(*contiguous),
            _ => {}
        }
    }

    fn note_at(&mut self, contiguous: u64) {
        match contiguous.cmp(&self.farthest.0) {
            Ordering::Less => self.short += 1,
            Ordering::Equal => self.farthest.1 += 1,
            Ordering::Greater => {
                self.short += self.farthest.1;
                self.farthest = (contiguous, 1);
            }
        }
    }

    /// How many lack something of a session whose next position is `end`.
    pub(super) const fn short_of(&self, end: u64) -> u64 {
        let (at, whole) = self.farthest;
        if at < end {
            self.short + whole
        } else {
            self.short
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_left_with_everything_so_far_lacks_what_came_later() {
        let mut departed = Departed::default();
        for at in [70, 0, 100, 100] {
            departed.note_at(at);
        }
        assert_eq!(departed.short_of(100), 2);
        assert_eq!(departed.short_of(101), 4);
        departed.note_at(101);
        assert_eq!(departed.short_of(101), 4);
    }
}
