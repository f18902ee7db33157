//! What the sockets of a session report to their owner: counters, and warnings in words.

use std::{collections::VecDeque, net::SocketAddr};

use super::counters::UdpCounters;

/// The counters of a session's sockets, and the warnings that the owner has not collected yet.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) counters: UdpCounters,
    /// Destination and errno of the last run of datagrams that the kernel refused whole, for a
    /// reason other than lack of room.
    pub(super) refused: Option<(SocketAddr, i32)>,
    warnings: VecDeque<String>,
}

impl Tally {
    /// Keeps a warning for the owner. Beyond [`WARNINGS_MAX`], the oldest warning is forgotten. The
    /// counter includes forgotten ones.
    pub(super) fn warn(&mut self, text: String) {
        self.counters.warnings += 1;
        if self.warnings.len() == WARNINGS_MAX {
            self.warnings.pop_front();
        }
        self.warnings.push_back(text);
    }

    pub(super) fn take_warning(&mut self) -> Option<String> {
        self.warnings.pop_front()
    }
}

const WARNINGS_MAX: usize = 32;
