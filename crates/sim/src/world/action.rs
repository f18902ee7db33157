//! The events that a scenario can plan.

use std::{collections::BTreeSet, time::Duration};

use super::{EndpointId, HostId};
use crate::{fault::IoFaults, pipe::Fault};

/// A planned event.
#[derive(Clone, Debug)]
pub enum Action {
    /// The host runs nothing for a time; datagrams go on filling its socket buffers.
    Pause {
        /// The host that pauses.
        host: HostId,
        /// How long.
        length: Duration,
    },
    /// For a time datagrams do not pass between the island's hosts and the others.
    Partition {
        /// The hosts that are cut off.
        island: BTreeSet<HostId>,
        /// In which direction datagrams do not pass.
        direction: CutDirection,
        /// How long.
        length: Duration,
    },
    /// Ends the partitions whose time is over.
    Heal,
    /// Replaces the faults on a host's way in.
    Ingress {
        /// The host.
        host: HostId,
        /// The new faults.
        faults: Vec<Fault>,
    },
    /// Replaces the faults on a host's way out.
    Egress {
        /// The host.
        host: HostId,
        /// The new faults.
        faults: Vec<Fault>,
    },
    /// Replaces the faults of an endpoint's socket calls.
    Io {
        /// The endpoint.
        endpoint: EndpointId,
        /// The new faults.
        faults: IoFaults,
    },
    /// Changes the longest datagram that leaves an endpoint.
    Mtu {
        /// The endpoint.
        endpoint: EndpointId,
        /// UDP payload bytes.
        mtu: usize,
    },
    /// Ends an endpoint's process.
    Crash {
        /// The endpoint.
        endpoint: EndpointId,
        /// Only the process, or its whole host.
        kind: CrashKind,
    },
    /// Starts an endpoint's process anew, with empty memory, if none is running.
    Restart {
        /// The endpoint.
        endpoint: EndpointId,
    },
    /// Changes nothing in the world: [`step`](super::World::step) returns
    /// [`Step::Tick`](super::Step::Tick) with this number.
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
