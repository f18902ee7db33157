//! `mtu`, `reach` and `clock`.

use std::{net::SocketAddr, time::Duration};

use gauge::{
    clock::BetweenSpec,
    reach::{ReachSpec, new_token},
    rtt::{PORT, host},
};
use serde::{Serialize, Serializer};
use towline::{Group, Selector};

use super::{
    place::{address, interface, interface_of},
    session::{optional_text, text},
};
use crate::{
    args::{ClockArgs, MtuArgs, Place, ReachArgs},
    failure::Failure,
};

/// A path whose MTU is looked for.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct MtuPlan {
    pub(crate) target: Place,
    #[serde(serialize_with = "optional_text")]
    pub(crate) iface: Option<Selector>,
    pub(crate) hops: u8,
    #[serde(rename = "timeout_ms", serialize_with = "millis")]
    pub(crate) timeout: Duration,
}

impl MtuPlan {
    pub(crate) fn new(args: &MtuArgs) -> Result<Self, Failure> {
        Ok(Self {
            iface: interface_of(&args.target, args.interface.iface.as_ref())?,
            target: args.target.clone(),
            hops: args.hops,
            timeout: args.timeout,
        })
    }

    /// Where the path ends; resolves the target.
    pub(crate) fn peer(&self) -> Result<SocketAddr, Failure> {
        address(&self.target, PORT)
    }
}

/// A group that does not arrive.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ReachPlan {
    #[serde(serialize_with = "text")]
    group: Group,
    #[serde(serialize_with = "optional_text")]
    iface: Option<Selector>,
    hops: u8,
    peers: Vec<Place>,
    port: u16,
    pub(crate) time: Duration,
}

impl ReachPlan {
    pub(crate) fn new(args: &ReachArgs) -> Result<Self, Failure> {
        if !args.group.is_multicast() {
            let text = format!("--group {}: not a multicast group", args.group);
            return Err(Failure::usage(text));
        }
        Ok(Self {
            group: args.group.clone(),
            iface: interface(&args.group, args.iface.as_ref())?,
            hops: args.hops,
            peers: args.peers.clone(),
            port: args.port,
            time: args.time,
        })
    }

    /// What the library is to do; resolves the group and the other hosts.
    pub(crate) fn spec(&self) -> Result<ReachSpec, Failure> {
        let group = self.group.resolve();
        let group = group.map_err(|error| Failure::usage(error.to_string()))?;
        let peers = self.peers.iter().map(|peer| address(peer, self.port));
        let peers = peers.collect::<Result<Vec<_>, _>>()?;
        if let Some(other) = peers.iter().find(|peer| peer.is_ipv4() != group.is_ipv4()) {
            let text = format!("{other} and {group} are of different address families");
            return Err(Failure::usage(text));
        }
        Ok(ReachSpec {
            group,
            interface: self.iface.clone(),
            hops: self.hops,
            peers,
            port: self.port,
            time: self.time,
            name: host().name,
            token: new_token()?,
        })
    }
}

/// Clocks: this host's, and another's beside it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ClockPlan {
    target: Option<Place>,
    count: u32,
    timeout: Duration,
}

impl ClockPlan {
    pub(crate) fn new(args: &ClockArgs) -> Self {
        Self {
            target: args.target.clone(),
            count: args.count,
            timeout: args.timeout,
        }
    }

    /// How the two clocks are compared, when there are two; resolves the target.
    pub(crate) fn between(&self) -> Result<Option<BetweenSpec>, Failure> {
        let Some(target) = &self.target else {
            return Ok(None);
        };
        Ok(Some(BetweenSpec {
            peer: address(target, PORT)?,
            count: usize::try_from(self.count).unwrap_or(usize::MAX),
            gap: GAP,
            timeout: self.timeout,
            seed: new_token()?,
        }))
    }
}

fn millis<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u128(time.as_millis())
}

/// Time between two exchanges.
const GAP: Duration = Duration::from_millis(10);
