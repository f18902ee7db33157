//! Everything that was observed, as plain data; the verdict follows from it.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use serde::{Serialize, Serializer};

/// What one host has observed.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Facts {
    /// The group and its port.
    pub group: SocketAddr,
    /// Time to live of what this host sends to it.
    pub hops: u8,
    /// How long it looked.
    #[serde(rename = "lasted_s", serialize_with = "seconds")]
    #[cfg_attr(feature = "schema", schemars(with = "f64"))]
    pub lasted: Duration,
    /// The interface that is used.
    pub interface: Option<InterfaceFacts>,
    /// Why none can be used.
    pub refusal: Option<Refusal>,
    /// Whether the kernel has a route to the group.
    pub has_route: bool,
    /// Why the group could not be sent to.
    pub send_error: Option<String>,
    /// The hosts that were heard through the group, with the interface.
    pub heard: Vec<Heard>,
    /// Frames to the group that entered the host.
    pub frames: Vec<Frames>,
    /// Whether frames can be seen at all: it needs CAP_NET_RAW.
    pub sees_wire: bool,
    /// Queriers of memberships (IGMP, MLD) that were heard.
    pub queriers: Vec<Querier>,
    /// The hosts that were named.
    pub peers: Vec<PeerFacts>,
    /// How packets to each source would leave.
    pub reverse_paths: Vec<ReversePath>,
    /// Packets that the host's reverse-path filter dropped during the run: by its routes their
    /// source is behind another interface.
    pub reverse_path_drops: u64,
    /// Chains of netfilter rules that packets pass on their way in.
    pub chains: Vec<RuleChain>,
    /// What came of hosts for which the lists above had no room.
    pub unlisted: Unlisted,
}

/// What came of hosts for which a list had no room: each list takes 256.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Unlisted {
    /// Messages that were heard through the group.
    pub heard: u64,
    /// Messages that hosts sent to this one alone.
    pub peers: u64,
    /// Frames to the group that entered.
    pub frames: u64,
    /// Queries of memberships.
    pub queriers: u64,
}

/// A chain of netfilter rules, or a whole table of the older iptables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RuleChain {
    /// Family and name of its table, as `nft list ruleset` names them: `inet filter`; `iptables
    /// filter` for the older kind.
    pub table: String,
    /// Its name; empty for the older kind.
    pub name: String,
    /// It drops what no rule of it decides about.
    pub drops_by_default: bool,
}

impl RuleChain {
    /// As `nft` wants it named.
    pub(super) fn place(&self) -> String {
        format!("{} {}", self.table, self.name).trim().to_owned()
    }

    /// Whether packets of that kind of IP pass it.
    pub(super) fn takes(&self, is_ipv6: bool) -> bool {
        let other = if is_ipv6 { "ip" } else { "ip6" };
        let other_legacy = if is_ipv6 { "iptables" } else { "ip6tables" };
        let family = self.table.split(' ').next();
        family != Some(other) && family != Some(other_legacy)
    }
}

/// The interface that is used.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InterfaceFacts {
    /// Its name.
    pub name: String,
    /// Its address that is the source of what is sent.
    pub address: IpAddr,
    /// IGMP version that the kernel speaks there, where it tells: `V3`.
    pub igmp: Option<String>,
    /// Whether packets pass: `up`, `down`, `no carrier`.
    pub condition: &'static str,
    /// The library's remarks on the choice.
    pub notes: Vec<String>,
}

/// Why no interface can be used.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Refusal {
    /// It is switched off, or has no carrier.
    Down(Refused),
    /// It does not carry multicast.
    NoMulticast(Refused),
    /// No route, and several that could.
    NoRoute(Refused),
    /// Its way back is another.
    NoReturnPath(Refused),
    /// Anything else.
    Other(Refused),
}

/// What was refused, and what to do about it. One text in JSON.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(into = "String")]
pub struct Refused {
    /// What.
    pub words: String,
    /// What to do; empty where nothing is known.
    pub fix: String,
}

impl From<Refused> for String {
    fn from(Refused { words, fix }: Refused) -> Self {
        if fix.is_empty() {
            words
        } else {
            format!("{words}; {fix}")
        }
    }
}

/// A sender that was heard through the group.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Heard {
    /// What it calls itself.
    pub name: String,
    /// From which address.
    pub source: IpAddr,
    /// The interface that it arrived by.
    pub interface: String,
    /// Time to live: as sent, and what was left.
    pub hops: (u8, Option<u8>),
    /// How often.
    pub count: u64,
    /// When first, since the beginning.
    #[serde(rename = "first_s", serialize_with = "seconds")]
    #[cfg_attr(feature = "schema", schemars(with = "f64"))]
    pub first: Duration,
    /// When last, since the beginning.
    #[serde(rename = "last_s", serialize_with = "seconds")]
    #[cfg_attr(feature = "schema", schemars(with = "f64"))]
    pub last: Duration,
    /// It is this host itself.
    pub is_self: bool,
    #[serde(skip)]
    pub(super) token: u64,
}

/// Frames to the group from one source by one interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Frames {
    /// The interface.
    pub interface: String,
    /// Who sent them.
    pub source: IpAddr,
    /// UDP port that they were for.
    pub port: u16,
    /// Time to live that the last one had left.
    pub hops_left: u8,
    /// How many.
    pub count: u64,
}

/// Somebody who asks for memberships.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Querier {
    /// On which interface.
    pub interface: String,
    /// Who.
    pub source: IpAddr,
    /// `IGMPv1`, `IGMPv2`, `IGMPv3` or `MLD`.
    pub version: String,
}

/// A host that was named.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PeerFacts {
    /// Where it was looked for.
    pub address: SocketAddr,
    /// What it said.
    pub word: Option<PeerWord>,
}

/// What a peer said.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PeerWord {
    /// What it calls itself.
    pub name: String,
    /// The group and port that it uses.
    pub group: SocketAddr,
    /// Time to live of what it sends there.
    pub hops: u8,
    /// The address that its packets to the group come from.
    pub source: Option<IpAddr>,
    /// The interface it sends by.
    pub interface: String,
    /// What keeps it from sending.
    pub refusal: Option<String>,
    /// Whether it hears this host through the group; none when it hears more hosts than one message
    /// names, and this one is not among the named.
    pub hears_us: Option<bool>,
    /// Routers between the two hosts.
    pub routers: Option<u8>,
    #[serde(skip)]
    pub(super) token: u64,
    /// How often it has spoken.
    #[serde(skip)]
    pub(super) times: u64,
}

/// How packets to a source would leave, and what the kernel demands of that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReversePath {
    /// The source.
    pub source: IpAddr,
    /// The interface that its packets come by.
    pub interface: String,
    /// The interface that packets to it leave by; none without a route.
    pub leaves_by: Option<String>,
    /// `rp_filter` of the interface: 0 off, 1 strict, 2 loose.
    pub mode: u8,
}

impl ReversePath {
    /// Whether the kernel drops what comes from there.
    #[must_use]
    pub fn drops(&self) -> bool {
        match self.mode {
            1 => self.leaves_by.as_ref() != Some(&self.interface),
            2 => self.leaves_by.is_none(),
            _ => false,
        }
    }
}

fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}
