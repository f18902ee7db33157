//! What a scenario can plan to happen in the world, at a time it gives.

use std::{collections::BTreeSet, time::Duration};

use super::{EndpointId, HostId};
use crate::{fault::IoFaults, pipe::Fault};

/// What can be planned to happen.
#[derive(Clone, Debug)]
pub enum Action {
    /// The host runs nothing for a time; its sockets go on filling.
    Pause {
        /// Which.
        host: HostId,
        /// How long.
        length: Duration,
    },
    /// The hosts of the island and the others do not hear each other for a time.
    Partition {
        /// The hosts cut off.
        island: BTreeSet<HostId>,
        /// Which way nothing passes.
        direction: CutDirection,
        /// How long.
        length: Duration,
    },
    /// Ends the partitions whose time is over.
    Heal,
    /// Replaces the faults on a host's way in.
    Ingress {
        /// Which.
        host: HostId,
        /// The new faults.
        faults: Vec<Fault>,
    },
    /// Replaces the faults on a host's way out.
    Egress {
        /// Which.
        host: HostId,
        /// The new faults.
        faults: Vec<Fault>,
    },
    /// Replaces the faults of an endpoint's socket calls.
    Io {
        /// Which.
        endpoint: EndpointId,
        /// The new faults.
        faults: IoFaults,
    },
    /// Changes the longest datagram that leaves an endpoint.
    Mtu {
        /// Which.
        endpoint: EndpointId,
        /// UDP payload bytes.
        mtu: usize,
    },
    /// Ends an endpoint's process.
    Crash {
        /// Which.
        endpoint: EndpointId,
        /// With or without its host.
        kind: CrashKind,
    },
    /// Starts an endpoint's process anew, with empty memory, if none is running.
    Restart {
        /// Which.
        endpoint: EndpointId,
    },
    /// Nothing in the world: [`step`](super::World::step) returns [`Step::Tick`](super::Step::Tick)
    /// with this number.
    Tick(u32),
}

/// Which way a partition stops datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutDirection {
    /// Both ways.
    Both,
    /// Nothing reaches the island.
    Into,
    /// Nothing leaves the island.
    OutOf,
}

/// How an endpoint ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashKind {
    /// Its process is killed; the kernel closes its connections.
    Process,
    /// Its host loses power; its peers are not notified.
    Host,
}
