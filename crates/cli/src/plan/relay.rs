//! Plan of `relay`.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::Serialize;
use towline::{Encapsulation, Faults, Group, SessionBuilder, SocketOptions};

use super::{Plan, session::text};
use crate::{
    args::{Place, RelayArgs},
    failure::Failure,
};

/// `relay --dry-run`: a relay that carries sessions from each network to all others.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct RelayPlan {
    pub(crate) networks: Vec<Place>,
    /// The protocol below PGM that carries the packets.
    #[serde(serialize_with = "text")]
    #[schemars(with = "String")]
    pub(crate) encapsulation: Encapsulation,
    /// PGM's data-destination port when it differs from the UDP ports.
    pub(crate) pgm_port: Option<u16>,
    /// Time to live of the packets that leave.
    pub(crate) hops: u8,
    /// TCP port for reports; 0 lets the system choose.
    pub(crate) control_port: u16,
    /// The most bytes of data that are kept for repairs.
    pub(crate) kept_bytes_max: u64,
    /// The address at which the relay serves its counters to Prometheus.
    pub(crate) metrics: Option<SocketAddr>,
    /// Faults to inject.
    #[serde(serialize_with = "text")]
    #[schemars(with = "String")]
    pub(crate) faults: Faults,
}

impl Plan for RelayPlan {
    const SCHEMA: &'static str = "towline.plan.relay";
}

impl RelayPlan {
    pub(crate) fn new(args: &RelayArgs) -> Result<Self, Failure> {
        let ports = args
            .networks
            .iter()
            .map(|it| it.at_port(Group::PORT).port());
        let (least, most) = (ports.clone().min(), ports.max());
        if args.pgm_port.is_none() && least != most {
            return Err(Failure::usage(
                "the networks have different ports: write the same port for all; or give \
                 --pgm-port, the senders' PGM port, here and at each receiver whose UDP port \
                 differs from it",
            ));
        }
        if args.keep > KEPT_BYTES_MAX {
            return Err(Failure::usage("--keep: give at most 64 GiB"));
        }
        Ok(Self {
            networks: args.networks.clone(),
            encapsulation: args.encapsulation,
            pgm_port: args.pgm_port,
            hops: args.hops,
            control_port: args.control_port,
            kept_bytes_max: args.keep,
            metrics: args.metrics,
            faults: args.faults.unwrap_or_default(),
        })
    }

    /// Makes the settings of each network for the library.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = SessionBuilder> {
        let sockets = SocketOptions::default()
            .hops(self.hops)
            .encapsulation(self.encapsulation);
        self.networks.iter().map(move |network| {
            SessionBuilder::at(network.at_port(Group::PORT))
                .sockets(sockets.clone())
                .faults(self.faults)
                .pgm_port(self.pgm_port)
                .control_port(self.control_port)
        })
    }

    /// Returns the names of the networks, for people.
    pub(crate) fn told(&self) -> String {
        let names: Vec<String> = self.networks.iter().map(ToString::to_string).collect();
        names.join(", ")
    }
}

/// The highest accepted setting for the bytes kept for repairs; a higher one counts as a typing
/// error.
const KEPT_BYTES_MAX: u64 = 64 << 30;
