//! Chooses the interface for a group or host, and checks that it can be used.
//!
//! The user names the interface by name, address or prefix, or leaves the choice to the kernel's
//! route. These are the checks, in order. The interface is up. For a group, it carries multicast or
//! is the loopback interface. It has a usable address of the destination's family. For a group,
//! packets from the interface's own network pass reverse-path filtering. Lesser problems become
//! notes.

use std::{
    fmt, fs,
    net::{IpAddr, Ipv6Addr},
    str::FromStr,
};

use sys::netlink::{RouteKind, RouteQuery, Rtnetlink};

use super::{Interface, InterfaceAddress, InterfaceError, Interfaces, Scope, network};

/// How a user names an interface. The first row that a text fits says what it means:
///
/// | text | means | example |
/// |---|---|---|
/// | `ADDRESS/BITS` | the interface with an address in this network | `10.0.0.0/8`, `fe80::/10` |
/// | `ADDRESS` | the interface with this address | `10.0.0.7`, `::1` |
/// | any other | the interface of this name, or of this number | `eth0`, `2` |
///
/// When an address or prefix matches several interfaces, the choice fails, and the error names
/// them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// By its name, or by its number when no interface has that name.
    Name(String),
    /// By one of its addresses.
    Address(IpAddr),
    /// By the network that one of its addresses is in.
    Prefix(IpAddr, u8),
}

impl Selector {
    fn matches(&self, interface: &Interface) -> bool {
        match self {
            Self::Name(name) => interface.name == *name,
            Self::Address(ip) => {
                let has_it = interface.addresses.iter().any(|address| address.ip == *ip);
                // All of 127.0.0.0/8 belongs to the loopback interface, whichever addresses it
                // lists.
                has_it || interface.flags.loopback && ip.is_ipv4() && ip.is_loopback()
            }
            Self::Prefix(ip, bits) => {
                let mut same_family = interface
                    .addresses
                    .iter()
                    .filter(|address| address.ip.is_ipv4() == ip.is_ipv4());
                same_family.any(|address| network(address.ip, *bits) == *ip)
            }
        }
    }

    /// Returns the address that the user chose along with the interface.
    fn address(&self, interface: &Interface) -> Option<IpAddr> {
        match self {
            Self::Name(_) => None,
            Self::Address(ip) => Some(*ip),
            Self::Prefix(ip, bits) => interface
                .usable(*ip)
                .map(|address| address.ip)
                .find(|address| network(*address, *bits) == *ip),
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(ip) => write!(f, "{ip}"),
            Self::Prefix(ip, bits) => write!(f, "{ip}/{bits}"),
        }
    }
}

impl FromStr for Selector {
    type Err = InterfaceError;

    fn from_str(text: &str) -> Result<Self, InterfaceError> {
        let wrong = || InterfaceError::Syntax {
            text: text.to_owned(),
        };
        if let Some((ip, bits)) = text.split_once('/') {
            let ip: IpAddr = ip.parse().map_err(|_| wrong())?;
            let bits: u8 = bits.parse().map_err(|_| wrong())?;
            let bits_max = if ip.is_ipv4() { 32 } else { 128 };
            if bits > bits_max {
                return Err(wrong());
            }
            return Ok(Self::Prefix(network(ip, bits), bits));
        }
        if let Ok(ip) = text.parse() {
            return Ok(Self::Address(ip));
        }
        if text.is_empty() || text.contains(char::is_whitespace) {
            return Err(wrong());
        }
        Ok(Self::Name(text.to_owned()))
    }
}

/// The interface to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The interface.
    pub interface: Interface,
    /// The address to bind and to name as the source.
    pub local: IpAddr,
    /// What the user should know, one sentence each; usually nothing.
    pub notes: Vec<String>,
}

impl Interfaces {
    /// Chooses the interface by which to reach `destination`, a group or a host. It is the
    /// interface that `wanted` names. Without `wanted`, it is the first of these that there is: the
    /// interface that has this very address, that of the kernel's route, and the only one that can
    /// reach the group.
    ///
    /// # Errors
    /// When the interface cannot be used, or no interface is the obvious one; the text has the
    /// remedy.
    pub fn choose(
        &self,
        wanted: Option<&Selector>,
        destination: IpAddr,
    ) -> Result<Choice, InterfaceError> {
        self.choose_by(&mut Kernel::new()?, wanted, destination)
    }

    /// Returns the interface that `wanted` names, whatever its condition.
    ///
    /// # Errors
    /// When none or several match.
    pub fn find(&self, wanted: &Selector) -> Result<&Interface, InterfaceError> {
        let mut found: Vec<_> = self.list.iter().filter(|one| wanted.matches(one)).collect();
        if let (Selector::Name(name), true) = (wanted, found.is_empty()) {
            let index = name.parse().ok();
            found.extend(index.and_then(|index| self.with_index(index)));
        }
        match found[..] {
            [one] => Ok(one),
            [] => Err(InterfaceError::Unknown {
                wanted: wanted.to_string(),
                known: self.names(),
            }),
            _ => Err(InterfaceError::Ambiguous {
                wanted: wanted.to_string(),
                matches: found.iter().map(|one| one.name.clone()).collect(),
            }),
        }
    }

    pub(super) fn choose_by(
        &self,
        routing: &mut dyn Routing,
        wanted: Option<&Selector>,
        destination: IpAddr,
    ) -> Result<Choice, InterfaceError> {
        let mut notes = Vec::new();
        let interface = match wanted {
            Some(wanted) => self.find(wanted)?,
            None => self.by_route(routing, destination, &mut notes)?,
        };
        let is_multicast = destination.is_multicast();
        check_condition(interface, is_multicast, &mut notes)?;
        // A user who names the loopback interface knows that it reaches this machine only.
        if wanted.is_none() && is_multicast && interface.flags.loopback {
            let name = &interface.name;
            notes.push(format!(
                "{name} is loopback: the group reaches programs on this machine only; name another \
                 interface to reach other hosts"
            ));
        }
        let wanted = wanted
            .and_then(|wanted| wanted.address(interface))
            .filter(|ip| ip.is_ipv4() == destination.is_ipv4());
        let local = source_address(routing, interface, wanted, destination)?;
        let source = interface
            .addresses
            .iter()
            .find(|address| address.ip == local);
        let peer = source
            .and_then(neighbour)
            .filter(|_| !interface.flags.loopback);
        if let Some(peer) = peer.filter(|_| is_multicast) {
            notes.extend(self.return_path(routing, interface, local, peer)?);
        }
        Ok(Choice {
            interface: interface.clone(),
            local,
            notes,
        })
    }

    fn by_route(
        &self,
        routing: &mut dyn Routing,
        destination: IpAddr,
        notes: &mut Vec<String>,
    ) -> Result<&Interface, InterfaceError> {
        // The kernel routes to this host's own addresses by lo. The session would then speak from
        // an address of lo, which no other host can answer.
        let has_it = |one: &&Interface| one.addresses.iter().any(|it| it.ip == destination);
        let mut others = self.list.iter().filter(|one| !one.flags.loopback);
        if let Some(interface) = others.find(has_it) {
            return Ok(interface);
        }
        let query = RouteQuery {
            to: destination,
            from: None,
            interface: None,
        };
        let hop = routing.hop(&query);
        if let Some(interface) = hop.and_then(|hop| self.with_index(hop.interface)) {
            return Ok(interface);
        }
        // When there is no route to a group, the only interface that can reach it is used.
        let able: Vec<_> = self
            .list
            .iter()
            .filter(|one| {
                let flags = one.flags;
                let can_reach = destination.is_multicast() && flags.multicast && !flags.loopback;
                can_reach && flags.running && one.usable(destination).next().is_some()
            })
            .collect();
        if let [one] = able[..] {
            let name = &one.name;
            notes.push(format!(
                "no route to {destination}: using {name}, the only interface that can reach it"
            ));
            return Ok(one);
        }
        Err(InterfaceError::NoRoute {
            destination,
            candidates: able.iter().map(|one| one.name.clone()).collect(),
        })
    }

    /// Checks that the kernel accepts packets from `peer` that arrive by `interface`. Returns a
    /// note when replies to `peer` leave by another interface, or have no route.
    pub(super) fn return_path(
        &self,
        routing: &mut dyn Routing,
        interface: &Interface,
        local: IpAddr,
        peer: IpAddr,
    ) -> Result<Option<String>, InterfaceError> {
        let query = RouteQuery {
            to: peer,
            from: Some(local),
            interface: None,
        };
        let hop = routing.hop(&query);
        if hop.is_some_and(|hop| hop.interface == interface.index) {
            return Ok(None);
        }
        let via = hop
            .and_then(|hop| self.with_index(hop.interface))
            .map(|other| other.name.clone());
        let name = interface.name.clone();
        if peer.is_ipv4() && routing.is_strict(&name) {
            return Err(InterfaceError::NoReturnPath { name, peer, via });
        }
        let via = via.map_or("have no route".to_owned(), |via| {
            format!("leave by {via}, not by {name}")
        });
        Ok(Some(format!(
            "packets to {peer} {via}: replies may not reach {peer}; look at `ip route get {peer}`"
        )))
    }
}

/// Questions that only the kernel can answer while an interface is chosen.
pub(super) trait Routing {
    /// Says how a packet would leave; `None` when it could not.
    fn hop(&mut self, query: &RouteQuery) -> Option<Hop>;
    /// Returns true when the kernel accepts an IPv4 packet that arrives by `interface` only if
    /// packets to the packet's source would leave by `interface`, too.
    fn is_strict(&self, interface: &str) -> bool;
}

/// How a packet would leave.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hop {
    /// The number of the interface that the packet leaves by.
    pub(super) interface: u32,
    /// The packet's source address, when the kernel says.
    pub(super) source: Option<IpAddr>,
}

pub(super) struct Kernel {
    netlink: Rtnetlink,
}

impl Kernel {
    pub(super) fn new() -> Result<Self, InterfaceError> {
        let netlink = Rtnetlink::open().map_err(|error| InterfaceError::System {
            reason: error.to_string(),
        })?;
        Ok(Self { netlink })
    }
}

impl Routing for Kernel {
    fn hop(&mut self, query: &RouteQuery) -> Option<Hop> {
        // Any error means that the packet could not leave: no route, or the source address is not
        // ours.
        let route = self.netlink.route_to(query).ok()?;
        (route.kind != RouteKind::Refused).then_some(Hop {
            interface: route.interface?,
            source: route.source,
        })
    }

    fn is_strict(&self, interface: &str) -> bool {
        let read = |name: &str| -> u8 {
            let path = format!("/proc/sys/net/ipv4/conf/{name}/rp_filter");
            let text = fs::read_to_string(path).unwrap_or_default();
            text.trim().parse().unwrap_or(0)
        };
        // The kernel uses the larger of the two settings: 0 off, 1 strict, 2 loose.
        read("all").max(read(interface)) == 1
    }
}

/// Chooses the source address: the user's, the destination if that is this host, the kernel's, or
/// the first that fits.
fn source_address(
    routing: &mut dyn Routing,
    interface: &Interface,
    wanted: Option<IpAddr>,
    destination: IpAddr,
) -> Result<IpAddr, InterfaceError> {
    let is_own = |ip: &IpAddr| {
        let is_written = interface.usable(*ip).any(|one| one.ip == *ip);
        is_written || interface.flags.loopback && ip.is_loopback()
    };
    let own = Some(destination).filter(|ip| !ip.is_loopback());
    if let Some(own) = wanted.into_iter().chain(own).find(is_own) {
        return Ok(own);
    }
    let query = RouteQuery {
        to: destination,
        from: None,
        interface: Some(interface.index),
    };
    let preferred = routing.hop(&query).and_then(|hop| hop.source);
    let usable: Vec<_> = interface.usable(destination).collect();
    if let Some(one) = usable.iter().find(|one| Some(one.ip) == preferred) {
        return Ok(one.ip);
    }
    // Packets that go beyond the link need a source address that is valid beyond it.
    let global = usable.iter().find(|one| one.scope != Scope::Link);
    if let Some(one) = global.or_else(|| usable.first()) {
        return Ok(one.ip);
    }
    let is_ipv4 = destination.is_ipv4();
    let mut others = interface
        .addresses
        .iter()
        .filter(|one| one.ip.is_ipv4() == is_ipv4);
    Err(InterfaceError::NoAddress {
        name: interface.name.clone(),
        family: if is_ipv4 { "IPv4" } else { "IPv6" },
        destination,
        detail: others
            .next()
            .map(|one| format!("{} is {}", one.ip, one.state.name())),
    })
}

fn check_condition(
    interface: &Interface,
    is_multicast: bool,
    notes: &mut Vec<String>,
) -> Result<(), InterfaceError> {
    let name = interface.name.clone();
    if !interface.flags.up {
        return Err(InterfaceError::Down { name });
    }
    if is_multicast && !interface.flags.multicast && !interface.flags.loopback {
        return Err(InterfaceError::NoMulticast { name });
    }
    if !interface.flags.running {
        notes.push(format!(
            "{name} has no carrier: no packet passes until its cable or its other end is back"
        ));
    }
    Ok(())
}

/// Returns another address of the network of `address`, to test the path back with; `None` when
/// there is nothing to test.
fn neighbour(address: &InterfaceAddress) -> Option<IpAddr> {
    if let Some(peer) = address.peer {
        return Some(peer);
    }
    let prefix = address.prefix?;
    match (network(address.ip, prefix), address.ip) {
        (IpAddr::V4(net), IpAddr::V4(own)) if prefix < 31 => {
            let first = u32::from(net) + 1;
            let other = if u32::from(own) == first {
                first + 1
            } else {
                first
            };
            Some(IpAddr::V4(other.into()))
        }
        // A link-local address needs no test: answers to it always leave by the interface of its
        // link.
        (IpAddr::V6(net), IpAddr::V6(own)) if prefix < 127 && !is_link_local(own) => {
            let first = u128::from(net) + 1;
            let other = if u128::from(own) == first {
                first + 1
            } else {
                first
            };
            Some(IpAddr::V6(other.into()))
        }
        _ => None,
    }
}

fn is_link_local(ip: Ipv6Addr) -> bool {
    ip.segments()[0] & 0xffc0 == 0xfe80
}
