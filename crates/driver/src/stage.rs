//! The stage between the loop and the network. With a key it protects what leaves and opens what
//! enters; without one it hands everything on as it is.

use base::{Arrival, Budget, Io, Outcome, Run, RunLimit};
use protection::PacketProtection;

/// The protection of one end's packets with a key; `None` without a key.
#[derive(Debug, Default)]
pub(crate) struct Stage(Option<PacketProtection>);

impl Stage {
    pub(crate) const fn new(protection: Option<PacketProtection>) -> Self {
        Self(protection)
    }

    pub(crate) const fn protection(&self) -> Option<&PacketProtection> {
        self.0.as_ref()
    }

    pub(crate) const fn protection_mut(&mut self) -> Option<&mut PacketProtection> {
        self.0.as_mut()
    }

    /// Returns how many packets this stage has thrown away. Without a key it throws none away.
    pub(crate) fn refused(&self) -> u64 {
        self.0.as_ref().map_or(0, |p| p.drops().total())
    }

    /// Returns the PGM packet that a datagram holds; `None` when the datagram was counted and
    /// thrown away.
    #[inline]
    pub(crate) fn open<'t>(&mut self, arrival: &Arrival, tpdu: &'t mut [u8]) -> Option<&'t [u8]> {
        match &mut self.0 {
            None => Some(tpdu),
            Some(protection) => protection.unprotect(arrival, tpdu).ok(),
        }
    }

    /// Returns how much an endpoint may put into a run, so that the run still fits `limit` once it
    /// is protected.
    pub(crate) fn budget(&mut self, limit: RunLimit) -> Budget {
        let limit = match &mut self.0 {
            None => limit,
            Some(protection) => protection.room(limit),
        };
        Budget {
            bytes: limit.bytes,
            datagrams: limit.datagrams,
        }
    }

    /// Sends a run; with a key, protects it first. The protected run may hold only the first
    /// packets of `run`; the others leave with the next run.
    #[inline]
    pub(crate) fn send(&mut self, run: &Run<'_>, io: &mut impl Io) -> Outcome {
        match &mut self.0 {
            None => io.send(run),
            Some(protection) => match protection.protect(run) {
                Some(protected) => io.send(&protected),
                // The first packet cannot be protected, so it must not leave:
                // `ProtectionCounters::failed` has counted it. Reported as sent, it counts as lost
                // on the way. The packets behind it leave with the next run.
                None => Outcome::Sent { datagrams: 1 },
            },
        }
    }
}
