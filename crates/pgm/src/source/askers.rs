//! The hosts that ask a source for repairs, and the service that each host gets.
//!
//! - A host that has the key of the session has full service: it has no limits of its own.
//! - A host that reports, in a session without a key, has full service up to a bound on its repairs
//!   that grows with the data sent (`reporters`). Beyond the bound, it gets a part of the rate of
//!   strangers. Repairs of one packet stay unlimited: a host whose buffers are full may need many.
//! - A host that does not report, a stranger, gets a part of the rate of strangers, too, and
//!   has also a bound on the repairs of each packet (`strangers`).

use std::net::SocketAddr;

use base::Instant;

use super::{
    reporters::Reporters,
    strangers::{REPAIRS_MAX, Strangers},
};
use crate::Config;

/// A host that asks for repairs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asker {
    pub(super) address: SocketAddr,
    pub(super) standing: Standing,
}

/// What a host that asks for repairs has proven about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// The host has the session's key.
    Key,
    /// The host has a control connection, which proves that its address is not forged.
    Address,
    Nothing,
}

/// How a host that asks for repairs is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    /// The host has no limits of its own, only those of all repairs together.
    Full,
    /// The host has a part of the rate at which strangers get repairs.
    Rate,
    /// The host has the limit of `Rate`. After [`REPAIRS_MAX`] repairs of a packet, the bytes of
    /// the host's NAKs also limit the bytes of further repairs.
    Few,
}

/// The limits of repairs for each kind of host.
#[derive(Debug)]
pub(super) struct Askers {
    reporters: Reporters,
    strangers: Strangers,
}

impl Askers {
    pub(super) fn new(config: &Config, now: Instant) -> Self {
        Self {
            reporters: Reporters::new(config.tx_window_bytes()),
            strangers: Strangers::new(config, now),
        }
    }

    /// Notes that new data has left: `bytes` bytes, or `on_wire` bytes with IP and UDP headers.
    #[inline]
    pub(super) fn data_sent(&mut self, now: Instant, bytes: usize, on_wire: usize) {
        self.reporters.data_sent(bytes);
        self.strangers.data_sent(now, on_wire);
    }

    /// Notes that a NAK of `on_wire` bytes came, IP and UDP headers included. This matters only for
    /// a stranger.
    pub(super) fn asked(&mut self, now: Instant, from: Asker, on_wire: usize) {
        if from.standing == Standing::Nothing {
            self.strangers.asked(now, from.address.ip(), on_wire);
        }
    }

    pub(super) fn service_of(&self, from: Asker) -> Service {
        let has_rest = || self.reporters.has_full_service(from.address.ip());
        match from.standing {
            Standing::Key => Service::Full,
            Standing::Address if has_rest() => Service::Full,
            Standing::Address => Service::Rate,
            Standing::Nothing => Service::Few,
        }
    }

    /// Notes that `bytes` bytes are repaired for the host `from` with full service.
    pub(super) fn served(&mut self, from: Asker, bytes: usize) {
        if from.standing == Standing::Address {
            self.reporters.repaired(from.address.ip(), bytes);
        }
    }

    /// Returns true when `on_wire` bytes may be repaired without full service, and then counts them
    /// as repaired. `repairs` says how many times the packet was repaired for strangers; it is 0
    /// for [`Service::Rate`].
    pub(super) fn grant(
        &mut self,
        now: Instant,
        from: Asker,
        on_wire: usize,
        repairs: u32,
    ) -> bool {
        let host = from.address.ip();
        self.strangers.grant(now, host, on_wire, repairs)
    }

    /// Returns how many of `more` parity packets of a group may be granted to a stranger at once,
    /// and the argument `repairs` for [`Askers::grant`]. Strangers have had `granted` parity
    /// packets of this group of `size` packets. The first [`REPAIRS_MAX`] times `size` parity
    /// packets are granted with 0 repairs, further ones one by one with [`REPAIRS_MAX`] repairs.
    pub(super) fn parity_part(granted: u32, more: u32, size: u32) -> (u32, u32) {
        match size.saturating_mul(REPAIRS_MAX).saturating_sub(granted) {
            0 => (more.min(1), REPAIRS_MAX),
            free => (more.min(free), 0),
        }
    }
}
