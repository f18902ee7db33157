//! The chains of netfilter rules that incoming or outgoing packets pass.
//!
//! The module names the chains and changes nothing. The kernel does not report what a chain does
//! with a packet.

use std::fs;

use crate::netlink::{Attributes, NetlinkError, NetlinkSocket, Protocol, Request};

/// A chain that a packet passes on its way in or out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Family and table, as `nft list ruleset` names them.
    pub table: String,
    /// The chain's name.
    pub name: String,
    /// True when the chain drops packets that none of its rules decides about.
    pub drops_by_default: bool,
}

/// The way of packets through the host's rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the network to this host's programs: hooks ingress, prerouting and input.
    In,
    /// From this host's programs to the network: hooks output, postrouting and egress.
    Out,
}

/// Returns the chains of this network namespace that packets pass on their `way`. Each table of the
/// older iptables has one entry, with only the table's name.
///
/// # Errors
/// When the kernel has no nf_tables, or does not let this user read the rules.
pub fn chains(way: Way) -> Result<Vec<Chain>, NetlinkError> {
    let mut chains: Vec<Chain> = Vec::new();
    let mut request = Request::new(LIST_CHAINS, 0);
    request.fixed(&[0; HEADER_LEN]);
    let found = std::cell::RefCell::new(Vec::new());
    NetlinkSocket::open(Protocol::Netfilter)?.dump(
        &request,
        &mut || found.borrow_mut().clear(),
        &mut |reply| {
            let family = reply.payload.first().copied().unwrap_or(0);
            let attributes = reply.payload.get(HEADER_LEN..).unwrap_or_default();
            found
                .borrow_mut()
                .extend(parse(family, Attributes::parse(attributes)?, way));
            Ok(())
        },
    )?;
    chains.append(&mut found.into_inner());
    let legacy = fs::read_to_string("/proc/thread-self/net/ip_tables_names").unwrap_or_default();
    chains.extend(legacy.lines().map(|table| Chain {
        table: format!("iptables {table}"),
        name: String::new(),
        drops_by_default: false,
    }));
    Ok(chains)
}

/// Reads a chain; `None` when the chain is at no hook of `way`, or its attributes are malformed.
fn parse(family: u8, attributes: Attributes<'_>, way: Way) -> Option<Chain> {
    let (mut table, mut name, mut hook, mut policy) = (String::new(), String::new(), None, ACCEPT);
    let number = |payload: &[u8]| Some(u32::from_be_bytes(payload.try_into().ok()?));
    for attribute in attributes {
        match attribute.kind {
            CHAIN_TABLE => table = attribute.text(),
            CHAIN_NAME => name = attribute.text(),
            CHAIN_HOOK => {
                let mut nested = attribute.nested().ok()?;
                let found = nested.find(|it| it.kind == HOOK_NUMBER);
                hook = found.and_then(|it| number(it.payload));
            }
            CHAIN_POLICY => policy = number(attribute.payload)?,
            _ => {}
        }
    }
    // The netdev family has numbers of its own for its hooks.
    let hooks: &[u32] = match (family == NETDEV, way) {
        (true, Way::In) => &[DEVICE_INGRESS],
        (true, Way::Out) => &[DEVICE_EGRESS],
        (false, Way::In) => &[HOOK_PREROUTING, HOOK_INPUT, HOOK_INGRESS],
        (false, Way::Out) => &[HOOK_OUTPUT, HOOK_POSTROUTING],
    };
    if hook.is_none_or(|hook| !hooks.contains(&hook)) {
        return None;
    }
    let family = match family {
        1 => "inet",
        2 => "ip",
        NETDEV => "netdev",
        7 => "bridge",
        10 => "ip6",
        _ => "table",
    };
    Some(Chain {
        table: format!("{family} {table}"),
        name,
        drops_by_default: policy == DROP,
    })
}

/// Length of `struct nfgenmsg` in bytes.
const HEADER_LEN: usize = 4;
/// The message that lists chains: subsystem nf_tables, NFT_MSG_GETCHAIN.
/// <https://github.com/torvalds/linux/blob/v6.1/include/uapi/linux/netfilter/nf_tables.h>
const LIST_CHAINS: u16 = 10 << 8 | 4;
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_POLICY: u16 = 5;
const HOOK_NUMBER: u16 = 1;
const HOOK_PREROUTING: u32 = 0;
const HOOK_INPUT: u32 = 1;
const HOOK_OUTPUT: u32 = 3;
const HOOK_POSTROUTING: u32 = 4;
const HOOK_INGRESS: u32 = 5;
/// NFPROTO_NETDEV, and its hooks.
const NETDEV: u8 = 5;
const DEVICE_INGRESS: u32 = 0;
const DEVICE_EGRESS: u32 = 1;
const DROP: u32 = 0;
const ACCEPT: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(hook: u32, policy: u32) -> Vec<u8> {
        let mut request = Request::new(0, 0);
        request.text(CHAIN_TABLE, "filter").text(CHAIN_NAME, "in");
        request.nested(CHAIN_HOOK, |nested| {
            nested.attribute(HOOK_NUMBER, &hook.to_be_bytes());
        });
        request.attribute(CHAIN_POLICY, &policy.to_be_bytes());
        // Behind the netlink header of 16 bytes.
        request.finish(0, 0).split_off(16)
    }

    #[test]
    fn chains_of_one_way_are_named_and_no_others() {
        let parsed = |bytes: &[u8]| parse(1, Attributes::parse(bytes).unwrap(), Way::In);
        let found = parsed(&chain(HOOK_INPUT, DROP)).unwrap();
        assert_eq!(
            (found.table.as_str(), found.name.as_str()),
            ("inet filter", "in")
        );
        assert!(found.drops_by_default);
        assert!(
            !parsed(&chain(HOOK_PREROUTING, ACCEPT))
                .unwrap()
                .drops_by_default
        );
        assert_eq!(parsed(&chain(HOOK_OUTPUT, DROP)), None);
        for (family, hook, expected) in [
            (1, HOOK_OUTPUT, true),
            (2, HOOK_POSTROUTING, true),
            (1, HOOK_INPUT, false),
            (NETDEV, DEVICE_EGRESS, true),
            (NETDEV, DEVICE_INGRESS, false),
        ] {
            let bytes = chain(hook, ACCEPT);
            let attributes = Attributes::parse(&bytes).unwrap();
            let found = parse(family, attributes, Way::Out).is_some();
            assert_eq!(found, expected, "{family} {hook}");
        }
    }
}
