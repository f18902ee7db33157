//! Makes system calls fail on purpose. The socket code asks here before it sends a part of a run
//! and before it receives.

use std::io;

use base::{Rng, quantity::Chance};
use sys::errno;

use super::Faults;

/// The failures to inject on one side. Sending and receiving each have an `Edge` of their own.
#[derive(Debug)]
pub(crate) struct Edge {
    faults: Faults,
    rng: Rng,
    /// True when the next send is to find the socket full, which ends a run early.
    is_full_next: bool,
}

impl Edge {
    /// Makes an edge; `None` when no call is to fail. `side` is a different number for sending and
    /// for receiving, so that their random draws differ.
    pub(crate) fn new(faults: &Faults, side: u64) -> Option<Self> {
        let chances = [
            faults.short,
            faults.eintr,
            faults.eagain,
            faults.enobufs,
            faults.enomem,
            faults.eio,
        ];
        let is_needed = chances.iter().any(|chance| !chance.is_never());
        is_needed.then(|| Self {
            faults: *faults,
            rng: Rng::new(faults.seed ^ (side << 32)),
            is_full_next: false,
        })
    }

    /// Draws at random whether a send fails. `is_segmented` is true when the kernel is to segment
    /// the run.
    pub(crate) fn before_send(&mut self, is_segmented: bool) -> io::Result<()> {
        let eio = if is_segmented {
            self.faults.eio
        } else {
            Chance::NEVER
        };
        if std::mem::take(&mut self.is_full_next) {
            return Err(io::Error::from_raw_os_error(errno::EAGAIN));
        }
        self.fail_by(&[
            (self.faults.eintr, errno::EINTR),
            (self.faults.eagain, errno::EAGAIN),
            (self.faults.enobufs, errno::ENOBUFS),
            (self.faults.enomem, errno::ENOMEM),
            (eio, errno::EIO),
        ])
    }

    /// Draws at random whether a receive fails.
    pub(crate) fn before_receive(&mut self) -> io::Result<()> {
        self.fail_by(&[
            (self.faults.eintr, errno::EINTR),
            (self.faults.eagain, errno::EAGAIN),
            (self.faults.enomem, errno::ENOMEM),
        ])
    }

    /// Draws at random how many of `datagrams` datagrams a send may take.
    pub(crate) fn shorten(&mut self, datagrams: usize) -> usize {
        if datagrams > 1 && self.faults.short.draw(&mut self.rng) {
            self.is_full_next = true;
            let bound = datagrams as u64 - 1;
            return 1 + usize::try_from(self.rng.below(bound)).unwrap_or(0);
        }
        datagrams
    }

    fn fail_by(&mut self, failures: &[(Chance, i32)]) -> io::Result<()> {
        for &(chance, errno) in failures {
            if chance.draw(&mut self.rng) {
                return Err(io::Error::from_raw_os_error(errno));
            }
        }
        Ok(())
    }
}
