//! Plans of `mtu`, `reach` and `clock`.

use std::{net::SocketAddr, time::Duration};

use gauge::{
    clock::BetweenSpec,
    reach::{ReachSpec, new_token},
    rtt::{PORT, host},
};
use schemars::JsonSchema;
use serde::Serialize;
use towline::{Group, Selector};

use super::{
    Plan,
    place::{address, interface, interface_of},
    session::{optional_text, seconds, text},
};
use crate::{
    args::{ClockArgs, MtuArgs, Place, ReachArgs},
    failure::Failure,
};

/// `mtu --dry-run`: a path whose MTU is looked for.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct MtuPlan {
    pub(crate) target: Place,
    #[serde(serialize_with = "optional_text")]
    #[schemars(with = "Option<String>")]
    pub(crate) iface: Option<Selector>,
    pub(crate) hops: u8,
    #[serde(rename = "timeout_s", serialize_with = "seconds")]
    #[schemars(with = "f64")]
    pub(crate) timeout: Duration,
}

impl Plan for MtuPlan {
    const SCHEMA: &'static str = "towline.plan.mtu";
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

    /// Returns the address where the path ends; resolves the target.
    pub(crate) fn peer(&self) -> Result<SocketAddr, Failure> {
        address(&self.target, PORT)
    }
}

/// `reach --dry-run`: a search for why a group's packets do not arrive.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct ReachPlan {
    #[serde(serialize_with = "text")]
    #[schemars(with = "String")]
    group: Group,
    #[serde(serialize_with = "optional_text")]
    #[schemars(with = "Option<String>")]
    iface: Option<Selector>,
    hops: u8,
    peers: Vec<Place>,
    port: u16,
    #[serde(rename = "time_s", serialize_with = "seconds")]
    #[schemars(with = "f64")]
    pub(crate) time: Duration,
}

impl Plan for ReachPlan {
    const SCHEMA: &'static str = "towline.plan.reach";
}

impl ReachPlan {
    pub(crate) fn new(args: &ReachArgs) -> Result<Self, Failure> {
        if !args.group.is_multicast() {
            let text = format!(
                "--group {}: it is not a multicast group; name one, such as 239.192.0.1",
                args.group
            );
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

    /// Makes the task for the library; resolves the group and the other hosts.
    pub(crate) fn spec(&self) -> Result<ReachSpec, Failure> {
        let group = self.group.resolve();
        let group = group.map_err(|error| Failure::usage(error.to_string()))?;
        let peers = self.peers.iter().map(|peer| address(peer, self.port));
        let peers = peers.collect::<Result<Vec<_>, _>>()?;
        if let Some(other) = peers.iter().find(|peer| peer.is_ipv4() != group.is_ipv4()) {
            let text = format!(
                "{other} and {group} are of different IP versions: name the host by an address of \
                 the group's version"
            );
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

/// `clock --dry-run`: a look at this host's clocks, and a comparison with another host's when it is
/// named.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct ClockPlan {
    target: Option<Place>,
    count: u32,
    #[serde(rename = "timeout_s", serialize_with = "seconds")]
    #[schemars(with = "f64")]
    timeout: Duration,
}

impl Plan for ClockPlan {
    const SCHEMA: &'static str = "towline.plan.clock";
}

impl ClockPlan {
    pub(crate) fn new(args: &ClockArgs) -> Self {
        Self {
            target: args.target.clone(),
            count: args.count,
            timeout: args.timeout,
        }
    }

    /// Makes the task of comparing the two hosts' clocks; `None` without a target. Resolves the
    /// target.
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

/// Time between two exchanges with the other host, when clocks are compared.
const GAP: Duration = Duration::from_millis(10);
