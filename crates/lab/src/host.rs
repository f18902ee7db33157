//! One host of the lab: a network namespace with one interface, and what can be run inside it.

use std::{
    ffi::OsStr,
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::Path,
    process::Command,
};

use sys::{
    namespace::{CommandExt as _, Namespace, run_in},
    netlink::{Link, Mishap, NetlinkError, RandomLoss, Rtnetlink},
};

use crate::LabError;

/// One host of the lab.
#[derive(Debug)]
pub struct Host {
    number: u8,
    network: Namespace,
    name: Namespace,
    has_ipv6: bool,
}

impl Host {
    /// Makes the namespace; its interface appears when its cable is made.
    pub(crate) fn new(number: u8) -> Result<Self, LabError> {
        let network = Namespace::network()
            .map_err(|cause| LabError::no_network("make a host's network namespace", cause))?;
        // The host's name is its address, so the name resolves without a file.
        let name = Namespace::host_name(&ipv4(number).to_string())
            .map_err(|cause| LabError::os("give a host its name", cause))?;
        let has_ipv6 = in_namespace(&network, || {
            let has_ipv6 = Path::new("/proc/net/if_inet6").exists();
            for name in ["all", "default"].iter().filter(|_| has_ipv6) {
                // Without the check for duplicates, addresses can be used at once. Where /proc/sys
                // is read-only, `Lab::new` waits longer for them.
                let path = format!("/proc/sys/net/ipv6/conf/{name}/accept_dad");
                let _read_only = fs::write(path, "0");
            }
            has_ipv6
        })?;
        Ok(Self {
            number,
            network,
            name,
            has_ipv6,
        })
    }

    /// Gives `e0` and `lo` their addresses and routes and switches them on; harmless when repeated.
    pub(crate) fn configure(&self) -> Result<(), LabError> {
        self.with_netlink(|netlink| {
            let loopback = netlink.link_index("lo")?;
            netlink.set_up(loopback, true)?;
            let index = netlink.link_index(INTERFACE)?;
            netlink.set_up(index, true)?;
            netlink.add_address(index, self.ipv4().into(), 24)?;
            netlink.add_route(Ipv4Addr::new(224, 0, 0, 0).into(), 4, index, None)?;
            if self.has_ipv6 {
                netlink.add_address(index, self.ipv6().into(), 64)?;
                let groups = Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0);
                netlink.add_route(groups.into(), 8, index, None)?;
            }
            Ok(())
        })
    }

    /// Gives the second interface its addresses and switches it on.
    pub(crate) fn configure_second(&self) -> Result<(), LabError> {
        self.with_netlink(|netlink| {
            let index = netlink.link_index(SECOND_INTERFACE)?;
            netlink.set_up(index, true)?;
            netlink.add_address(index, self.second_ipv4().into(), 24)?;
            if self.has_ipv6 {
                let [.., last] = self.ipv6().segments();
                let own = Ipv6Addr::new(0xfd78, 0, 0, 0, 0, 0, 0, last);
                netlink.add_address(index, own.into(), 64)?;
            }
            Ok(())
        })
    }

    /// Returns true when packets pass the second interface.
    pub(crate) fn is_second_passing(&self) -> Result<bool, LabError> {
        self.with_netlink(|netlink| Ok(netlink.link(SECOND_INTERFACE)?.is_passing()))
    }

    /// Returns the host's IPv4 address on a cable of [`Lab::add_cable`](crate::Lab::add_cable), in
    /// 10.78.0.0/24.
    #[must_use]
    pub const fn second_ipv4(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 78, 0, self.number)
    }

    /// Makes a command that will run inside the host. Its process is killed when the lab is
    /// dropped, or when the thread that spawned it ends.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .namespace(&self.network)
            .namespace(&self.name)
            .dies_with_its_starter();
        command
    }

    /// Runs `body` on a new thread inside the host, waits for it and returns its result. Sockets
    /// opened there stay in the host, whichever thread uses them.
    ///
    /// **Panics**: when `body` panics.
    ///
    /// # Errors
    /// When the thread cannot be made or moved into the host.
    pub fn enter<T: Send>(&self, body: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        run_in(&[&self.network, &self.name], body)
            .map_err(|cause| LabError::os("enter a host of the lab", cause))
    }

    /// Drops packets at random as they arrive at `e0`: packets of UDP, and of PGM over raw IP. On
    /// average, `lost` in `of` packets are dropped. This takes netfilter rules, but not the `nft`
    /// program. `(0, 1000)` drops none and costs the same: the baseline for comparisons. A GSO run
    /// that is kept whole is dropped or kept as one packet. To drop single packets, build the lab
    /// with [`LabSpec::segments_at_switch`](crate::LabSpec::segments_at_switch).
    ///
    /// # Errors
    /// [`LabError::NoLoss`] when the kernel cannot do it: drop packets in the process instead.
    pub fn set_loss(&self, lost: u32, of: u32) -> Result<(), LabError> {
        self.set_mishap(Mishap::LosesDatagram, lost, of)
    }

    /// Drops TCP segments at random as they arrive at `e0`, as [`Host::set_loss`] drops UDP
    /// packets; one rule replaces the other.
    ///
    /// # Errors
    /// As [`Host::set_loss`].
    pub fn set_segment_loss(&self, lost: u32, of: u32) -> Result<(), LabError> {
        self.set_mishap(Mishap::LosesSegment, lost, of)
    }

    /// Drops every TCP segment that arrives at `e0`, and resets its sender's connection in this
    /// host's name. Programs on this host learn nothing of it.
    ///
    /// # Errors
    /// As [`Host::set_loss`].
    pub fn reset_senders(&self) -> Result<(), LabError> {
        self.set_mishap(Mishap::ResetsSender, 1, 1)
    }

    fn set_mishap(&self, mishap: Mishap, lost: u32, of: u32) -> Result<(), LabError> {
        self.with_loss(|loss| loss.set(INTERFACE, mishap, lost, of))
    }

    /// Removes the rule of [`Host::set_loss`], [`Host::set_segment_loss`] or
    /// [`Host::reset_senders`].
    ///
    /// # Errors
    /// [`LabError::NoLoss`] when the kernel cannot do it.
    pub fn clear_loss(&self) -> Result<(), LabError> {
        self.with_loss(RandomLoss::clear)
    }

    /// Returns the number of packets that the present rule has dropped; 0 when there is no rule. A
    /// GSO run that is kept whole counts as one packet.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn lost_packets(&self) -> Result<u64, LabError> {
        self.with_loss(|loss| Ok(loss.lost()?.unwrap_or(0)))
    }

    fn with_loss<T: Send>(
        &self,
        body: impl FnOnce(&mut RandomLoss) -> Result<T, NetlinkError> + Send,
    ) -> Result<T, LabError> {
        in_namespace(&self.network, || body(&mut RandomLoss::open()?))?.map_err(|error| {
            LabError::NoLoss {
                reason: error.to_string(),
            }
        })
    }

    /// Returns the host's number, 1 for the first: the last octet of its addresses.
    #[must_use]
    pub const fn number(&self) -> u8 {
        self.number
    }

    /// Returns the host's IPv4 address, in 10.77.0.0/24. Its text is also the machine's name inside
    /// the host.
    #[must_use]
    pub const fn ipv4(&self) -> Ipv4Addr {
        ipv4(self.number)
    }

    /// Returns the host's IPv6 address, in fd77::/64; the host has it only when [`Host::has_ipv6`].
    #[must_use]
    pub const fn ipv6(&self) -> Ipv6Addr {
        Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, self.number as u16)
    }

    /// Returns false when the kernel was started without IPv6.
    #[must_use]
    pub const fn has_ipv6(&self) -> bool {
        self.has_ipv6
    }

    /// Returns the name of the host's interface: `e0` on every host.
    #[must_use]
    pub const fn interface(&self) -> &'static str {
        INTERFACE
    }

    /// Returns the network namespace of the host.
    #[must_use]
    pub const fn namespace(&self) -> &Namespace {
        &self.network
    }

    /// Returns true when packets pass and every address is usable.
    pub(crate) fn is_ready(&self) -> Result<bool, LabError> {
        self.with_netlink(|netlink| {
            let link = netlink.link(INTERFACE)?;
            let addresses = netlink.addresses()?;
            let mut ours = addresses
                .iter()
                .filter(|address| address.index == link.index);
            let wanted = if self.has_ipv6 { 2 } else { 1 };
            let global = [IpAddr::V4(self.ipv4()), IpAddr::V6(self.ipv6())];
            let found = ours
                .clone()
                .filter(|address| global.contains(&address.ip))
                .count();
            Ok(link.is_passing()
                && found == wanted
                && ours.all(|address| !address.flags.is_tentative()))
        })
    }

    pub(crate) fn link(&self) -> Result<Link, LabError> {
        self.with_netlink(|netlink| Ok(netlink.link(INTERFACE)?))
    }

    /// Switches the host's interface off, as its administrator would.
    pub(crate) fn switch_off(&self) -> Result<(), LabError> {
        self.with_netlink(|netlink| {
            let index = netlink.link_index(INTERFACE)?;
            Ok(netlink.set_up(index, false)?)
        })
    }

    fn with_netlink<T: Send>(
        &self,
        body: impl FnOnce(&mut Rtnetlink) -> Result<T, LabError> + Send,
    ) -> Result<T, LabError> {
        in_namespace(&self.network, || body(&mut Rtnetlink::open()?))?
    }
}

const fn ipv4(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, number)
}

pub(crate) fn in_namespace<T: Send>(
    namespace: &Namespace,
    body: impl FnOnce() -> T + Send,
) -> Result<T, LabError> {
    run_in(&[namespace], body)
        .map_err(|cause| LabError::os("enter a network namespace of the lab", cause))
}

/// The name of every host's interface.
pub(crate) const INTERFACE: &str = "e0";
/// The name of the interface of a second cable.
pub(crate) const SECOND_INTERFACE: &str = "e1";
