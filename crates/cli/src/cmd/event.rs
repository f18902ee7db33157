//! What happens to receivers, in words.

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

/// A receiver is gone that had not been given everything.
pub(super) const fn is_given_up(event: &RegistryEvent) -> bool {
    match event {
        RegistryEvent::Dropped { .. } => true,
        RegistryEvent::Left { behind, reason, .. } => {
            *behind > 0 || matches!(reason, LeaveReason::Error { .. })
        }
        _ => false,
    }
}
