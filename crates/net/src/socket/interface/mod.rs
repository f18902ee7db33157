//! The machine's network interfaces, as plain data, and the choice of one for a group.
//!
//! [`Interfaces::read`] asks the kernel for all of them, those that are down included, with their
//! IPv4 and IPv6 addresses. [`Interfaces::choose`] picks the one to use, or says in words why none
//! can be used. What the kernel does not report is absent.
//!
//! This module opens no socket for data and changes nothing.

use std::{fs, net::IpAddr, path::Path};

use sys::netlink::{Address, Ethtool, Link, NetlinkError, Route, Rtnetlink};
pub use sys::netlink::{LinkState, Scope};

mod choice;
pub use choice::{Choice, Selector};

mod error;
pub use error::InterfaceError;

mod table;

/// All interfaces of this machine (of the calling thread's network namespace) at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interfaces {
    list: Vec<Interface>,
}

impl Interfaces {
    /// Reads all interfaces from the kernel.
    ///
    /// # Errors
    /// When the kernel does not answer.
    ///
    /// **Cost**: three netlink dumps, well below a millisecond for a handful of interfaces.
    pub fn read() -> Result<Self, InterfaceError> {
        let read = || -> Result<Self, NetlinkError> {
            let mut netlink = Rtnetlink::open()?;
            let links = netlink.links()?;
            let addresses = netlink.addresses()?;
            let routes = netlink.routes()?;
            let list = links
                .iter()
                .map(|link| Interface::new(link, &addresses, &routes));
            Ok(Self {
                list: list.collect(),
            })
        };
        read().map_err(|error| InterfaceError::System {
            reason: error.to_string(),
        })
    }

    /// Wraps a list that was made elsewhere, for tests and for replaying a report.
    #[must_use]
    pub const fn from_list(list: Vec<Interface>) -> Self {
        Self { list }
    }

    /// Adds each interface's driver and speed, which [`Interfaces::choose`] does not need. What the
    /// system does not tell stays `None`.
    ///
    /// **Cost**: a system call and a request to the kernel for each interface.
    #[must_use]
    pub fn with_drivers(mut self) -> Self {
        let mut ethtool = Ethtool::open().ok();
        for interface in &mut self.list {
            let home = Path::new("/sys/class/net").join(&interface.name);
            let driver = fs::read_link(home.join("device/driver")).ok();
            interface.driver = driver
                .as_deref()
                .and_then(Path::file_name)
                .map(|name| name.to_string_lossy().into_owned());
            let speed = ethtool
                .as_mut()
                .and_then(|ethtool| ethtool.speed_bits(interface.index).ok());
            interface.speed_bits_per_s = speed.flatten();
        }
        self
    }

    /// Returns every interface, in the kernel's order.
    #[must_use]
    pub fn list(&self) -> &[Interface] {
        &self.list
    }

    /// Returns the interface that has the address `local`.
    #[must_use]
    pub fn with_address(&self, local: IpAddr) -> Option<&Interface> {
        let has_it = |one: &&Interface| one.addresses.iter().any(|it| it.ip == local);
        self.list.iter().find(has_it)
    }

    /// Returns the interface that the kernel numbers `index`.
    #[must_use]
    pub fn with_index(&self, index: u32) -> Option<&Interface> {
        self.list.iter().find(|interface| interface.index == index)
    }

    fn names(&self) -> Vec<String> {
        self.list
            .iter()
            .map(|interface| interface.name.clone())
            .collect()
    }
}

/// One network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The interface's name.
    pub name: String,
    /// The kernel's number for the interface.
    pub index: u32,
    /// The kind of interface: `loopback`, `ethernet`, `veth`, `bridge`, `vlan`, ...
    pub kind: String,
    /// The interface's flags: what it can do, and whether it is up and running.
    pub flags: InterfaceFlags,
    /// Largest IP packet in bytes.
    pub mtu_bytes: u32,
    /// Operational state; `unknown` is usual for loopback interfaces.
    pub state: LinkState,
    /// The interface's addresses, in the kernel's order.
    pub addresses: Vec<InterfaceAddress>,
    /// True when the IPv4 default route leaves by this interface.
    pub default_route_v4: bool,
    /// True when the IPv6 default route leaves by this interface.
    pub default_route_v6: bool,
    /// Largest GSO run that the interface takes in one piece, in bytes with all headers, where
    /// known.
    pub gso_bytes_max: Option<u32>,
    /// The device's driver, such as `mlx5_core`; `None` for interfaces without a device, such as
    /// bridges, and before [`Interfaces::with_drivers`] has asked.
    pub driver: Option<String>,
    /// Speed in bits per second, as the driver states it; `None` where it states none, and before
    /// [`Interfaces::with_drivers`] has asked. Virtual interfaces do not keep to the stated speed.
    pub speed_bits_per_s: Option<u64>,
}

impl Interface {
    fn new(link: &Link, addresses: &[Address], routes: &[Route]) -> Self {
        let flags = link.flags;
        let mine = addresses
            .iter()
            .filter(|address| address.index == link.index);
        let has_default = |is_ipv6| {
            let mut defaults = routes.iter().filter(|route| route.is_default());
            defaults.any(|route| route.is_ipv6 == is_ipv6 && route.interface == Some(link.index))
        };
        Self {
            name: link.name.clone(),
            index: link.index,
            kind: kind(link),
            flags: InterfaceFlags {
                up: flags.is_up(),
                loopback: flags.is_loopback(),
                broadcast: flags.is_broadcast(),
                multicast: flags.is_multicast(),
                running: flags.is_running(),
                point_to_point: flags.is_point_to_point(),
            },
            mtu_bytes: link.mtu_bytes,
            state: link.state,
            addresses: mine.map(InterfaceAddress::new).collect(),
            default_route_v4: has_default(false),
            default_route_v6: has_default(true),
            gso_bytes_max: link.gso_max_size,
            driver: None,
            speed_bits_per_s: None,
        }
    }

    /// Says in one or two words whether packets pass: `up`, `down`, or `no carrier`.
    #[must_use]
    pub const fn condition(&self) -> &'static str {
        match (self.flags.up, self.flags.running) {
            (false, _) => "down",
            (true, false) => "no carrier",
            (true, true) => "up",
        }
    }

    /// Returns the addresses of the family of `like` that can be used as a source.
    pub(crate) fn usable(&self, like: IpAddr) -> impl Iterator<Item = &InterfaceAddress> {
        self.addresses.iter().filter(move |address| {
            address.ip.is_ipv4() == like.is_ipv4()
                && matches!(
                    address.state,
                    AddressState::Usable | AddressState::Deprecated
                )
        })
    }
}

/// The flags of an interface: what it can do, and whether it is up and running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the kernel's flags, one field each"
)]
pub struct InterfaceFlags {
    /// Switched on by the administrator.
    pub up: bool,
    /// The loopback interface.
    pub loopback: bool,
    /// Can send to all stations.
    pub broadcast: bool,
    /// Claims to carry multicast. The loopback interface makes no such claim, though Linux delivers
    /// multicast on it.
    pub multicast: bool,
    /// Up and with a carrier.
    pub running: bool,
    /// Has exactly one peer.
    pub point_to_point: bool,
}

impl InterfaceFlags {
    /// Returns the names of the flags that are set, in a fixed order.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let all = [
            (self.up, "up"),
            (self.running, "running"),
            (self.loopback, "loopback"),
            (self.point_to_point, "point-to-point"),
            (self.broadcast, "broadcast"),
            (self.multicast, "multicast"),
        ];
        all.into_iter()
            .filter_map(|(is_set, name)| is_set.then_some(name))
    }
}

/// One address of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The address.
    pub ip: IpAddr,
    /// How many leading bits belong to the network; `None` where the system does not say.
    pub prefix: Option<u8>,
    /// How far the address is valid.
    pub scope: Scope,
    /// The other end of a point-to-point link.
    pub peer: Option<IpAddr>,
    /// Whether the address can be used.
    pub state: AddressState,
}

impl InterfaceAddress {
    fn new(address: &Address) -> Self {
        let flags = address.flags;
        let state = if flags.is_duplicate() {
            AddressState::Duplicate
        } else if flags.is_tentative() {
            AddressState::Tentative
        } else if flags.is_deprecated() {
            AddressState::Deprecated
        } else {
            AddressState::Usable
        };
        Self {
            ip: address.ip,
            prefix: Some(address.prefix),
            scope: address.scope,
            peer: address.peer,
            state,
        }
    }

    /// Returns true when `ip` is in this address's network. Where the prefix is unknown, the
    /// network is the address alone.
    #[must_use]
    pub fn contains(&self, ip: IpAddr) -> bool {
        let full = if self.ip.is_ipv4() { 32 } else { 128 };
        network(self.ip, self.prefix.unwrap_or(full)) == network(ip, self.prefix.unwrap_or(full))
            && self.ip.is_ipv4() == ip.is_ipv4()
    }
}

/// Whether an address can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressState {
    /// Usable.
    Usable,
    /// Not usable yet: the kernel is checking whether another host has the address.
    Tentative,
    /// Another host has the address.
    Duplicate,
    /// Usable, but new connections should prefer another address.
    Deprecated,
}

impl AddressState {
    /// Returns the state's name in output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Usable => "usable",
            Self::Tentative => "tentative",
            Self::Duplicate => "duplicate",
            Self::Deprecated => "deprecated",
        }
    }
}

/// Returns the address with all but its first `prefix` bits cleared.
fn network(ip: IpAddr, prefix: u8) -> IpAddr {
    match ip {
        IpAddr::V4(v4) => {
            let host = u32::MAX.checked_shr(u32::from(prefix)).unwrap_or(0);
            IpAddr::V4((u32::from(v4) & !host).into())
        }
        IpAddr::V6(v6) => {
            let host = u128::MAX.checked_shr(u32::from(prefix)).unwrap_or(0);
            IpAddr::V6((u128::from(v6) & !host).into())
        }
    }
}

/// Returns the driver kind if the kernel names one, otherwise a name for the hardware type.
fn kind(link: &Link) -> String {
    if let Some(kind) = &link.kind {
        return kind.clone();
    }
    match link.hardware {
        1 => "ethernet".to_owned(),
        32 => "infiniband".to_owned(),
        512 => "ppp".to_owned(),
        768 | 769 | 776 | 778 => "tunnel".to_owned(),
        772 => "loopback".to_owned(),
        801..=804 => "wifi".to_owned(),
        65_534 => "none".to_owned(),
        other => format!("hardware type {other}"),
    }
}

#[cfg(test)]
mod tests;
