//! What the kernel of this host says about interface, route, reverse paths and rules.

use std::{
    fs,
    net::{IpAddr, SocketAddr},
};

use net::{
    InterfaceError, Interfaces,
    interface::{Choice, Selector},
};
use sys::{
    netfilter::Way,
    netlink::{RouteQuery, Rtnetlink},
};

use super::{InterfaceFacts, Refusal, Refused, ReversePath, RuleChain};

/// This host's interfaces and routes.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) interfaces: Interfaces,
    netlink: Rtnetlink,
}

impl Host {
    pub(super) fn read() -> Result<Self, InterfaceError> {
        let netlink = Rtnetlink::open().map_err(|error| InterfaceError::System {
            reason: error.to_string(),
        })?;
        Ok(Self {
            interfaces: Interfaces::read()?,
            netlink,
        })
    }

    /// Chooses the interface as a session would, or says why there is none.
    pub(super) fn choose(
        &self,
        wanted: Option<&Selector>,
        group: IpAddr,
    ) -> Result<Choice, Refusal> {
        let choice = self.interfaces.choose(wanted, group).map_err(refusal)?;
        if choice.interface.condition() == "no carrier" {
            let name = &choice.interface.name;
            return Err(Refusal::Down(Refused {
                words: format!("{name} has no carrier"),
                fix: "plug its cable in, or look at its other end".to_owned(),
            }));
        }
        Ok(choice)
    }

    pub(super) fn name(&self, index: u32) -> String {
        let found = self.interfaces.with_index(index);
        found.map_or_else(|| format!("interface {index}"), |it| it.name.clone())
    }

    /// Returns true when the kernel has a route to the group.
    pub(super) fn has_route(&mut self, group: IpAddr) -> bool {
        self.leaves_by(group, None).is_some()
    }

    /// Says by which interface packets to `source` would leave; packets from it arrive by
    /// `interface`.
    pub(super) fn reverse_path(&mut self, source: IpAddr, interface: &str) -> ReversePath {
        let leaves_by = self.leaves_by(source, None).map(|index| self.name(index));
        ReversePath {
            source,
            interface: interface.to_owned(),
            leaves_by,
            mode: filter_mode(interface),
        }
    }

    fn leaves_by(&mut self, to: IpAddr, interface: Option<u32>) -> Option<u32> {
        let query = RouteQuery {
            to,
            from: None,
            interface,
        };
        self.netlink.route_to(&query).ok()?.interface
    }
}

pub(super) fn interface_facts(choice: &Choice) -> InterfaceFacts {
    let name = choice.interface.name.clone();
    let igmp = fs::read_to_string("/proc/thread-self/net/igmp").unwrap_or_default();
    let mut addresses = choice.interface.addresses.iter();
    let own = addresses.find(|own| own.ip == choice.local);
    InterfaceFacts {
        prefix: own.and_then(|own| own.prefix),
        igmp: igmp_version(&igmp, &name),
        address: choice.local,
        condition: choice.interface.condition(),
        notes: choice.notes.clone(),
        name,
    }
}

fn refusal(error: InterfaceError) -> Refusal {
    let text = Refused {
        words: error.problem(),
        fix: error.remedy().map_or_else(String::new, |it| it.to_string()),
    };
    match error {
        InterfaceError::Down { .. } => Refusal::Down(text),
        InterfaceError::NoMulticast { .. } => Refusal::NoMulticast(text),
        InterfaceError::NoRoute { .. } => Refusal::NoRoute(text),
        InterfaceError::NoReturnPath { .. } => Refusal::NoReturnPath(text),
        _ => Refusal::Other(text),
    }
}

/// Returns the `rp_filter` in force: the larger of the interface's and that for all interfaces.
fn filter_mode(interface: &str) -> u8 {
    let read = |name: &str| -> u8 {
        let path = format!("/proc/sys/net/ipv4/conf/{name}/rp_filter");
        let text = fs::read_to_string(path).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    };
    read("all").max(read(interface))
}

/// Returns how many packets the host's reverse-path filter has dropped.
pub(super) fn reverse_path_drops() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/net/netstat").unwrap_or_default();
    let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else {
        return 0;
    };
    let at = names
        .split_whitespace()
        .position(|it| it == "IPReversePathFilter");
    let value = at.and_then(|at| values.split_whitespace().nth(at)?.parse().ok());
    value.unwrap_or(0)
}

/// Returns true when this host is a member of the group on an interface already: then no report
/// leaves when one more program joins.
pub(super) fn is_member(group: IpAddr, interface: &str) -> bool {
    let file = match group {
        IpAddr::V4(_) => "/proc/thread-self/net/igmp",
        IpAddr::V6(_) => "/proc/thread-self/net/igmp6",
    };
    let text = fs::read_to_string(file).unwrap_or_default();
    is_listed(&text, group, interface)
}

/// Reads the kernel's list of memberships. IPv4: a line for each interface, and below it one for
/// each group, `010000E0` in the byte order of the host. IPv6: `2 eth0 ff15...01 1 0000000C 0`.
fn is_listed(text: &str, group: IpAddr, interface: &str) -> bool {
    let mut current = "";
    text.lines().any(|line| {
        let mut words = line.split_whitespace();
        match group {
            IpAddr::V4(group) if line.starts_with(['\t', ' ']) => {
                let number = words.next().and_then(|it| u32::from_str_radix(it, 16).ok());
                current == interface && number == Some(u32::from_ne_bytes(group.octets()))
            }
            IpAddr::V4(_) => {
                current = words.nth(1).unwrap_or_default().trim_end_matches(':');
                false
            }
            IpAddr::V6(group) => {
                let name = words.nth(1);
                let number = words
                    .next()
                    .and_then(|it| u128::from_str_radix(it, 16).ok());
                name == Some(interface) && number == Some(group.to_bits())
            }
        }
    })
}

/// Returns the chains of rules that packets pass on their way.
pub(super) fn chains(way: Way) -> Vec<RuleChain> {
    let chains = sys::netfilter::chains(way).unwrap_or_default();
    let facts = |chain: sys::netfilter::Chain| RuleChain {
        table: chain.table,
        name: chain.name,
        drops_by_default: chain.drops_by_default,
    };
    chains.into_iter().map(facts).collect()
}

/// Reads the IGMP version in an interface's line: `2  eth0  :  1  V3`.
fn igmp_version(text: &str, interface: &str) -> Option<String> {
    let lines = text.lines().filter(|line| !line.starts_with(['\t', ' ']));
    let mut of_interface = lines.filter(|line| {
        let name = line.split_whitespace().nth(1);
        name.is_some_and(|name| name.trim_end_matches(':') == interface)
    });
    let version = of_interface.next()?.split_whitespace().next_back()?;
    version.starts_with('V').then(|| version.to_owned())
}

pub(super) fn with_port(ip: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(ip, port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_igmp_table_is_read() {
        let table = "Idx\tDevice    : Count Querier\tGroup    Users Timer\tReporter\n\
                     1\tlo        :     1      V3\n\
                     \t\t\t\t010000E0     1 0:00000000\t\t0\n\
                     2\teth0      :     2      V2\n";
        assert_eq!(igmp_version(table, "eth0").as_deref(), Some("V2"));
        assert_eq!(igmp_version(table, "lo").as_deref(), Some("V3"));
        assert_eq!(igmp_version(table, "eth1"), None);
        let all_hosts = [224, 0, 0, 1];
        let table = table.replace(
            "010000E0",
            &format!("{:08X}", u32::from_ne_bytes(all_hosts)),
        );
        assert!(is_listed(&table, all_hosts.into(), "lo"));
        assert!(!is_listed(&table, all_hosts.into(), "eth0"));
        assert!(!is_listed(&table, [239, 0, 0, 1].into(), "lo"));
        let table = "2    eth0     ff150000000000000000000000000077     1 00000004 0\n";
        let group = "ff15::77".parse().unwrap();
        assert!(is_listed(table, group, "eth0") && !is_listed(table, group, "lo"));
        assert!(!is_listed(table, "ff15::78".parse().unwrap(), "eth0"));
    }
}
