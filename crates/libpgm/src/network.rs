//! Network strings: which interface, which groups.
//!
//! ```text
//!   [INTERFACE[,INTERFACE]...] [; [RECEIVE_GROUP[,RECEIVE_GROUP]...] [; [SEND_GROUP]]]
//!   eth0;239.192.0.1    10.0.0.1;239.192.0.1,239.192.0.2;239.192.0.9    ;ff08::1
//! ```
//!
//! An interface is a name, an address, a prefix such as `10.0.0.0/8`, or empty for the kernel's
//! choice. Groups are addresses, or names of the hosts file or the DNS that stand for groups.
//! Without groups, the group is 239.192.0.1 or ff08::1.
//!
//! Deviation: an interface's name is looked for among the interfaces, not in the DNS. So it works
//! where there is no DNS.

use std::{
    ffi::{CStr, c_char},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs as _},
};

use cabi::{Out, guard};
use towline::{Interface, Interfaces, Selector};

use crate::{
    abi::{AddrInfo, Address, GroupReq},
    error::{self, Code, Domain, Fault, Slot},
    memory::{pgm_free, pgm_malloc0},
};

/// An interface of a network string, by its index and the address on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Via {
    index: u32,
    address: Option<IpAddr>,
}

/// What a network string stands for.
#[derive(Debug)]
struct Network {
    recv: Vec<(Via, IpAddr)>,
    send: (Via, IpAddr),
}

fn parse(text: &str, family: Option<Family>) -> Result<Network, Fault> {
    let parts: Vec<&str> = text.split(';').collect();
    let (interfaces, groups, own) = match parts[..] {
        [interfaces] => (interfaces, "", ""),
        [interfaces, groups] => (interfaces, groups, ""),
        [interfaces, groups, own] | [interfaces, groups, own, ""] => (interfaces, groups, own),
        _ => {
            return Err(inval(
                "a network has at most three parts, separated by semicolons: interface, groups to \
                 receive, group to send to",
            ));
        }
    };
    let groups = groups.split(',').filter(|group| !group.is_empty());
    let mut groups: Vec<IpAddr> = groups.map(group).collect::<Result<_, _>>()?;
    let own = match own {
        "" => None,
        own => Some(group(own)?),
    };
    let wanted = groups
        .first()
        .or(own.as_ref())
        .map(|ip| Family::of(*ip))
        .or(family);
    let vias = vias(interfaces, wanted)?;
    let by_address = vias.first().and_then(|via| via.address).map(Family::of);
    if groups.is_empty() {
        groups.push(family.or(by_address).unwrap_or(Family::V4).default_group());
    }
    let own = own.unwrap_or(groups[0]);
    let recv = vias
        .iter()
        .flat_map(|via| groups.iter().map(|group| (*via, *group)));
    let first = vias.first().ok_or_else(|| {
        inval("the network names no interface; name one, as in \"eth0;239.192.0.1\"")
    })?;
    Ok(Network {
        recv: recv.collect(),
        send: (*first, own),
    })
}

fn inval(text: &str) -> Fault {
    Fault::new(Domain::Interface, Code::Inval, text)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Family {
    const fn of(ip: IpAddr) -> Self {
        if ip.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    const fn default_group(self) -> IpAddr {
        match self {
            Self::V4 => IpAddr::V4(Ipv4Addr::new(239, 192, 0, 1)),
            Self::V6 => IpAddr::V6(Ipv6Addr::new(0xff08, 0, 0, 0, 0, 0, 0, 1)),
        }
    }
}

/// Reads a group: an address, or a name that stands for one.
fn group(text: &str) -> Result<IpAddr, Fault> {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b".:-_%[]".contains(&byte);
    if !text.bytes().all(is_known) {
        return Err(inval(&format!(
            "{text:?} is no group; write its address, as 239.192.0.1"
        )));
    }
    let ip = match text.trim_matches(['[', ']']).parse() {
        Ok(ip) => ip,
        Err(_) => look_up(text)?,
    };
    if ip.is_multicast() {
        Ok(ip)
    } else {
        Err(inval(&format!(
            "{text} is not a multicast group; write one of 224.0.0.0/4 or ff00::/8"
        )))
    }
}

fn look_up(name: &str) -> Result<IpAddr, Fault> {
    let unknown = |cause: &str| {
        let text = format!(
            "{name:?} is not an address, and looking it up as a name failed: {cause}; check \
             the name (`getent hosts`)"
        );
        Fault::new(Domain::Interface, Code::NoName, text)
    };
    let found = (name, 0).to_socket_addrs();
    let mut found = found.map_err(|error| unknown(&error.to_string()))?;
    let first = found.next().map(|address| address.ip());
    first.ok_or_else(|| unknown("it has no address"))
}

fn vias(text: &str, wanted: Option<Family>) -> Result<Vec<Via>, Fault> {
    if text.is_empty() {
        let (index, address) = (0, None);
        return Ok(vec![Via { index, address }]);
    }
    let fault = |code, text: String| Fault::new(Domain::Interface, code, text);
    let all = Interfaces::read().map_err(|error| fault(Code::Failed, error.to_string()))?;
    let via = |name: &str| {
        let selector: Selector = name.parse().map_err(|_| {
            inval(&format!(
                "{name:?} is not an interface; write a name, an address or a prefix"
            ))
        })?;
        let found = all
            .list()
            .iter()
            .find_map(|one| select(one, &selector, wanted));
        found.ok_or_else(|| {
            let text = format!(
                "no interface matches {name:?}; name one of this host, or one of its addresses \
                 (`ip address`)"
            );
            fault(Code::NoDev, text)
        })
    };
    text.split(',').map(via).collect()
}

fn select(one: &Interface, selector: &Selector, wanted: Option<Family>) -> Option<Via> {
    let addresses = || one.addresses.iter().map(|address| address.ip);
    let address = match selector {
        Selector::Name(name) if *name == one.name => {
            let of = |family| addresses().find(|ip| Family::of(*ip) == family);
            match wanted {
                Some(family) => of(family),
                None => of(Family::V4).or_else(|| of(Family::V6)),
            }
        }
        Selector::Address(ip) => Some(addresses().find(|own| own == ip)?),
        Selector::Prefix(network, bits) => {
            Some(addresses().find(|ip| is_within(*ip, *network, *bits))?)
        }
        Selector::Name(_) => return None,
    };
    Some(Via {
        index: one.index,
        address,
    })
}

fn is_within(ip: IpAddr, network: IpAddr, bits: u8) -> bool {
    let (ip, network, width) = match (ip, network) {
        (IpAddr::V4(ip), IpAddr::V4(network)) => {
            (u128::from(ip.to_bits()), u128::from(network.to_bits()), 32)
        }
        (IpAddr::V6(ip), IpAddr::V6(network)) => (ip.to_bits(), network.to_bits(), 128),
        _ => return false,
    };
    let unused = width - u32::from(bits);
    ip.checked_shr(unused).unwrap_or(0) == network.checked_shr(unused).unwrap_or(0)
}

#[unsafe(no_mangle)]
extern "C" fn pgm_getaddrinfo(
    network: *const c_char,
    hints: Option<&AddrInfo>,
    place: Out<'_, *mut AddrInfo>,
    slot: Slot<'_>,
) -> bool {
    guard(false, || {
        // SAFETY: the program's text ends with a zero byte.
        let text = unsafe { cabi::text(network) }.map(CStr::to_string_lossy);
        let (Some(text), Some(place)) = (text, place) else {
            return false;
        };
        let family = match hints.map_or(0, |hints| hints.family).into() {
            libc::AF_INET => Some(Family::V4),
            libc::AF_INET6 => Some(Family::V6),
            _ => None,
        };
        match parse(&text, family) {
            Ok(network) => {
                place.write(allocate(&network));
                true
            }
            Err(fault) => {
                error::put(slot, &fault);
                false
            }
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn pgm_freeaddrinfo(info: *mut AddrInfo) {
    pgm_free(info.cast());
}

/// Puts a network into one allocation, which the program frees.
fn allocate(network: &Network) -> *mut AddrInfo {
    let all: Vec<GroupReq> = network
        .recv
        .iter()
        .chain([&network.send])
        .map(request)
        .collect();
    let bytes = size_of::<AddrInfo>() + all.len() * size_of::<GroupReq>();
    let info: *mut AddrInfo = pgm_malloc0(bytes).cast();
    let first = info.wrapping_add(1).cast::<GroupReq>();
    // SAFETY: the allocation holds them behind the first structure, and overlaps nothing.
    unsafe { first.copy_from_nonoverlapping(all.as_ptr(), all.len()) };
    let value = AddrInfo {
        family: 0,
        recv_len: network.recv.len() as u32,
        recv: first,
        send_len: 1,
        send: first.wrapping_add(network.recv.len()),
    };
    // SAFETY: the allocation holds it.
    unsafe { info.write(value) };
    info
}

fn request((via, group): &(Via, IpAddr)) -> GroupReq {
    let unset = match Family::of(*group) {
        Family::V4 => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        Family::V6 => IpAddr::from(Ipv6Addr::UNSPECIFIED),
    };
    GroupReq {
        interface: via.index,
        group: Address::from(*group),
        // Without a source, this is the group, as in OpenPGM.
        source: Address::from(*group),
        address: Address::from(via.address.unwrap_or(unset)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(text: &str) -> String {
        match parse(text, None) {
            Ok(network) => {
                let recv = network.recv.iter().map(|(_, group)| group.to_string());
                format!(
                    "{} > {}",
                    recv.collect::<Vec<_>>().join(" "),
                    network.send.1
                )
            }
            Err(fault) => format!("{:?}", fault.code),
        }
    }

    #[test]
    fn parts_may_be_left_out() {
        for (text, expected) in [
            ("", "239.192.0.1 > 239.192.0.1"),
            (";;", "239.192.0.1 > 239.192.0.1"),
            (";239.192.7.1", "239.192.7.1 > 239.192.7.1"),
            (
                ";239.192.7.1,239.192.7.2",
                "239.192.7.1 239.192.7.2 > 239.192.7.1",
            ),
            (";;239.192.7.3", "239.192.0.1 > 239.192.7.3"),
            (";ff08::7", "ff08::7 > ff08::7"),
            (";10.0.0.1", "Inval"),
            (";a b", "Inval"),
            (";1;2;3", "Inval"),
            ("no-such-interface;239.192.7.1", "NoDev"),
        ] {
            assert_eq!(groups(text), expected, "{text}");
        }
    }

    #[test]
    fn prefixes_hold_their_addresses() {
        let is = |ip: &str, network: &str, bits| {
            is_within(ip.parse().unwrap(), network.parse().unwrap(), bits)
        };
        assert!(is("10.1.2.3", "10.0.0.0", 8) && is("10.1.2.3", "0.0.0.0", 0));
        assert!(!is("10.1.2.3", "10.1.2.2", 32) && !is("10.1.2.3", "::", 0));
        assert!(is("fd00::1", "fd00::", 64) && is("fd00::1", "::", 0));
    }
}
