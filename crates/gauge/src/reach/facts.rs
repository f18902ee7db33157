//! Everything that a host observed, as plain data from which the verdict follows.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use serde::{Serialize, Serializer};
use towline::Allowed;

/// What one host has observed.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Facts {
    /// This host's name for itself.
    pub name: String,
    /// The group and its port.
    pub group: SocketAddr,
    /// Time to live of this host's packets to the group.
    pub hops: u8,
    /// How long the host observed.
    #[serde(rename = "lasted_s", serialize_with = "seconds")]
    #[cfg_attr(feature = "schema", schemars(with = "f64"))]
    pub lasted: Duration,
    /// The interface that the host uses.
    pub interface: Option<InterfaceFacts>,
    /// Why no interface can be used.
    pub refusal: Option<Refusal>,
    /// Whether the kernel has a route to the group.
    pub has_route: bool,
    /// Why this host could not send to the group.
    pub send_error: Option<String>,
    /// The hosts that this host heard through the group, each with its interface.
    pub heard: Vec<Heard>,
    /// Frames to the group that entered the host.
    pub frames: Vec<Frames>,
    /// True when the host can see frames, for which it needs CAP_NET_RAW.
    pub sees_wire: bool,
    /// The queriers of memberships (IGMP, MLD) that the host heard.
    pub queriers: Vec<Querier>,
    /// The hosts that the user named.
    pub peers: Vec<PeerFacts>,
    /// For each source: by which interface packets to it would leave.
    pub reverse_paths: Vec<ReversePath>,
    /// Packets that the host's reverse-path filter dropped during the run, because by its routes
    /// their source is behind another interface.
    pub reverse_path_drops: u64,
    /// Chains of netfilter rules that incoming packets pass.
    pub chains: Vec<RuleChain>,
    /// Chains of netfilter rules that outgoing packets pass.
    pub outgoing_chains: Vec<RuleChain>,
    /// Whether the interface has sent this host's report that it has joined the group. None when no
    /// report was due, for example because another program of this host had joined before; when the
    /// run was too short to tell; or when frames cannot be seen.
    pub has_reported: Option<bool>,
    /// Counts of what came from hosts for which `heard`, `peers`, `frames` or `queriers` had no
    /// room.
    pub unlisted: Unlisted,
}

impl Facts {
    /// Returns true when `reached` is in the network of this host's interface and `source` is not.
    pub(super) fn is_apart(&self, source: IpAddr, reached: IpAddr) -> bool {
        let network = self.interface.as_ref().and_then(|it| {
            let (ip, bits) = (it.address, it.prefix?);
            Some(Allowed::Network { ip, bits })
        });
        network.is_some_and(|network| network.admits(reached) && !network.admits(source))
    }

    /// Returns what to call a host: its name. If another host or this one has the same name, as
    /// containers often have, adds the host's address.
    #[must_use]
    pub fn called(&self, word: &PeerWord) -> String {
        let mut words = self.peers.iter().filter_map(|peer| peer.word.as_ref());
        let has_like = self.name == word.name
            || words.any(|other| other.token != word.token && other.name == word.name);
        let is_of = |peer: &&PeerFacts| {
            let said = peer.word.as_ref();
            said.is_some_and(|said| said.token == word.token)
        };
        let address = word.source.or_else(|| {
            let peer = self.peers.iter().find(is_of)?;
            Some(peer.address.ip())
        });
        match address.filter(|_| has_like) {
            Some(address) => format!("{} ({address})", word.name),
            None => word.name.clone(),
        }
    }
}

/// Counts of what came from hosts for which a list had no room. Each list holds 256 entries, at
/// most 16 of one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Unlisted {
    /// Messages heard through the group.
    pub heard: u64,
    /// Messages sent to this host alone.
    pub peers: u64,
    /// Frames to the group that entered the host.
    pub frames: u64,
    /// Queries for memberships.
    pub queriers: u64,
}

/// A chain of netfilter rules, or a whole table of the older iptables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RuleChain {
    /// Family and name of the chain's table, as `nft list ruleset` prints them: `inet filter`. For
    /// the older kind: `iptables filter`.
    pub table: String,
    /// The chain's name; empty for the older kind.
    pub name: String,
    /// The chain drops packets that none of its rules decides about.
    pub drops_by_default: bool,
}

impl RuleChain {
    /// Returns table and chain, as `nft` commands name them.
    pub(super) fn place(&self) -> String {
        format!("{} {}", self.table, self.name).trim().to_owned()
    }

    /// Returns true when packets of this IP version pass through the chain.
    pub(super) fn takes(&self, is_ipv6: bool) -> bool {
        let other = if is_ipv6 { "ip" } else { "ip6" };
        let other_legacy = if is_ipv6 { "iptables" } else { "ip6tables" };
        let family = self.table.split(' ').next();
        family != Some(other) && family != Some(other_legacy)
    }
}

/// The interface that the host uses.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InterfaceFacts {
    /// Its name.
    pub name: String,
    /// The interface's address, from which the host's packets come.
    pub address: IpAddr,
    /// How many leading bits of the address are those of its network.
    pub prefix: Option<u8>,
    /// The IGMP version that the kernel speaks on the interface, when it tells: `V3`.
    pub igmp: Option<String>,
    /// Whether the interface passes packets: `up`, `down`, `no carrier`.
    pub condition: &'static str,
    /// The library's remarks on its choice of interface.
    pub notes: Vec<String>,
}

/// Why no interface can be used.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Refusal {
    /// The interface is switched off, or has no carrier.
    Down(Refused),
    /// The interface does not carry multicast.
    NoMulticast(Refused),
    /// There is no route to the group, and several interfaces could be used.
    NoRoute(Refused),
    /// By the routes, packets would come back by another interface.
    NoReturnPath(Refused),
    /// Anything else.
    Other(Refused),
}

/// What was refused, and what to do about it; in JSON one text.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(into = "String")]
pub struct Refused {
    /// What was refused.
    pub words: String,
    /// What the user can do; empty where nothing is known.
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

/// A host that was heard through the group.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Heard {
    /// The host's name for itself.
    pub name: String,
    /// The address that its packets came from.
    pub source: IpAddr,
    /// The interface by which they arrived.
    pub interface: String,
    /// Time to live as it was sent, and as it arrived.
    pub hops: (u8, Option<u8>),
    /// How many messages were heard.
    pub count: u64,
    /// When it was heard first, counted from the start of the run.
    #[serde(rename = "first_s", serialize_with = "seconds")]
    #[cfg_attr(feature = "schema", schemars(with = "f64"))]
    pub first: Duration,
    /// When it was heard last, counted from the start of the run.
    #[serde(rename = "last_s", serialize_with = "seconds")]
    #[cfg_attr(feature = "schema", schemars(with = "f64"))]
    pub last: Duration,
    /// True when this is the observing host itself.
    pub is_self: bool,
    #[serde(skip)]
    pub(super) token: u64,
    /// Bytes of its beacons that came from `source`.
    #[serde(skip)]
    pub(super) bytes: u64,
}

/// Frames to the group that came from one source by one interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Frames {
    /// The interface.
    pub interface: String,
    /// The address that sent them.
    pub source: IpAddr,
    /// Their UDP port of destination.
    pub port: u16,
    /// Time to live that the last frame arrived with.
    pub hops_left: u8,
    /// How many frames there were.
    pub count: u64,
}

/// A router or switch that asks for memberships.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Querier {
    /// The interface by which its queries came.
    pub interface: String,
    /// The querier's address.
    pub source: IpAddr,
    /// `IGMPv1`, `IGMPv2`, `IGMPv3` or `MLD`.
    pub version: String,
}

/// A host that the user named.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PeerFacts {
    /// The address that was given for it.
    pub address: SocketAddr,
    /// What the host told this one; none when it said nothing.
    pub word: Option<PeerWord>,
}

/// What a named host told this one.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PeerWord {
    /// The host's name for itself.
    pub name: String,
    /// The group and port that it uses.
    pub group: SocketAddr,
    /// Time to live of its packets to the group.
    pub hops: u8,
    /// The address that its packets to the group come from.
    pub source: Option<IpAddr>,
    /// The interface by which it sends.
    pub interface: String,
    /// Why it cannot send.
    pub refusal: Option<String>,
    /// Whether it hears this host through the group. None when it hears more hosts than one message
    /// can name, and its message does not name this one.
    pub hears_us: Option<bool>,
    /// How many routers are between the two hosts.
    pub routers: Option<u8>,
    #[serde(skip)]
    pub(super) token: u64,
    /// How many messages it has sent to this host.
    #[serde(skip)]
    pub(super) times: u64,
}

/// The way back to a source: by which interface packets to it would leave, and how the kernel
/// checks this.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReversePath {
    /// The source.
    pub source: IpAddr,
    /// The interface by which the source's packets arrive.
    pub interface: String,
    /// The interface by which packets to the source leave; none without a route.
    pub leaves_by: Option<String>,
    /// The `rp_filter` in force at `interface`: 0 off, 1 strict, 2 loose.
    pub mode: u8,
}

impl ReversePath {
    /// Returns true when the kernel drops packets from this source.
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
