//! `mtu`, `reach` and `clock`.

use std::{net::SocketAddr, time::Duration};

use gauge::{
    clock::BetweenSpec,
    reach::{ReachSpec, new_token},
    rtt::{PORT, host},
};
use serde::{Serialize, Serializer};
use towline::{Group, InterfaceError, resolve};

use crate::{
    args::{ClockArgs, MtuArgs, ReachArgs},
    failure::Failure,
};

/// A path whose MTU is looked for.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct MtuPlan {
    pub(crate) target: String,
    pub(crate) hops: u8,
    #[serde(rename = "timeout_ms", serialize_with = "millis")]
    pub(crate) timeout: Duration,
}

impl MtuPlan {
    pub(crate) fn new(args: &MtuArgs) -> Self {
        Self {
            target: args.target.clone(),
            hops: args.hops,
            timeout: args.timeout,
        }
    }

    /// Where the path ends; resolves the target.
    pub(crate) fn peer(&self) -> Result<SocketAddr, Failure> {
        Ok(resolve(&self.target, PORT)?)
    }
}

/// A group that does not arrive.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ReachPlan {
    #[serde(serialize_with = "text")]
    group: Group,
    iface: Option<String>,
    hops: u8,
    peers: Vec<String>,
    port: u16,
    pub(crate) time: Duration,
}

impl ReachPlan {
    pub(crate) fn new(args: &ReachArgs) -> Result<Self, Failure> {
        if !args.group.is_multicast() {
            let text = format!("--group {}: not a multicast group", args.group);
            return Err(Failure::usage(text));
        }
        let written = args.group.interface().map(str::to_owned);
        Ok(Self {
            group: args.group.clone(),
            iface: args.iface.as_ref().map(ToString::to_string).or(written),
            hops: args.hops,
            peers: args.peers.clone(),
            port: args.port,
            time: args.time,
        })
    }

    /// What the library is to do; resolves the group and the other hosts.
    pub(crate) fn spec(&self) -> Result<ReachSpec, Failure> {
        let usage = |error: InterfaceError| Failure::usage(error.to_string());
        let group = self.group.resolve();
        let group = group.map_err(|error| Failure::usage(error.to_string()))?;
        let interface = self.iface.as_deref().map(str::parse).transpose();
        let peers = self.peers.iter().map(|peer| resolve(peer, self.port));
        let peers = peers.collect::<Result<Vec<_>, _>>()?;
        if let Some(other) = peers.iter().find(|peer| peer.is_ipv4() != group.is_ipv4()) {
            let text = format!("{other} and {group} are of different kinds of IP");
            return Err(Failure::usage(text));
        }
        Ok(ReachSpec {
            group,
            interface: interface.map_err(usage)?,
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
    target: Option<String>,
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
            peer: resolve(target, PORT)?,
            count: usize::try_from(self.count).unwrap_or(usize::MAX),
            gap: GAP,
            timeout: self.timeout,
            seed: new_token()?,
        }))
    }
}

fn text<S: Serializer>(group: &Group, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(group)
}

fn millis<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u128(time.as_millis())
}

/// Time between two exchanges.
const GAP: Duration = Duration::from_millis(10);
