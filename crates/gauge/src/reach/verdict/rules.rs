//! Chains of netfilter rules that stop a group, and how to let the group pass them.

use crate::reach::{Facts, RuleChain};

/// Returns the chains through which packets of the group's IP version pass.
pub(super) fn chains(facts: &Facts) -> impl Iterator<Item = &RuleChain> {
    let is_ipv6 = facts.group.is_ipv6();
    facts
        .chains
        .iter()
        .filter(move |chain| chain.takes(is_ipv6))
}

pub(super) fn chain_names(facts: &Facts) -> String {
    named(chains(facts))
}

/// Returns the chains through which outgoing packets of the group's IP version pass.
pub(super) fn outgoing(facts: &Facts) -> impl Iterator<Item = &RuleChain> {
    let is_ipv6 = facts.group.is_ipv6();
    let chains = facts.outgoing_chains.iter();
    chains.filter(move |chain| chain.takes(is_ipv6))
}

/// Returns the commands that let reports of memberships leave through the chains that were found.
pub(super) fn exit(facts: &Facts) -> String {
    let is_ipv6 = facts.group.is_ipv6();
    let (rule, legacy) = if is_ipv6 {
        ("icmpv6 type { 131, 143 }", "ipv6-icmp")
    } else {
        ("ip protocol igmp", "igmp")
    };
    let steps = outgoing(facts).map(|chain| {
        let place = chain.place();
        match place
            .split_once("tables ")
            .filter(|_| chain.name.is_empty())
        {
            Some((family, table)) => {
                format!("`{family}tables -t {table} -I OUTPUT -p {legacy} -j ACCEPT`")
            }
            None => format!("`nft insert rule {place} {rule} accept`"),
        }
    });
    steps.collect::<Vec<_>>().join("; ")
}

pub(super) fn named<'a>(chains: impl Iterator<Item = &'a RuleChain>) -> String {
    let name = |chain: &RuleChain| {
        let default = if chain.drops_by_default {
            " (drops by default)"
        } else {
            ""
        };
        format!("{}{default}", chain.place())
    };
    chains.map(name).collect::<Vec<_>>().join(", ")
}

/// Returns the commands that let the group's packets to `port` pass the chains that were found.
pub(super) fn passage(facts: &Facts, port: u16) -> String {
    let group = facts.group.ip();
    let word = if group.is_ipv6() { "ip6" } else { "ip" };
    let mut steps: Vec<String> = Vec::new();
    for chain in chains(facts) {
        let place = chain.place();
        // An nftables table may have any name; tables of the older iptables are named by their
        // kind.
        let older = place
            .split_once("tables ")
            .filter(|_| chain.name.is_empty());
        steps.push(match older {
            Some((family, table)) => {
                let hook = if table == "filter" {
                    "INPUT"
                } else {
                    "PREROUTING"
                };
                format!(
                    "`{family}tables -t {table} -I {hook} -d {group} -p udp --dport {port} -j \
                     ACCEPT`"
                )
            }
            None => format!(
                "`nft insert rule {place} {word} daddr {group} udp dport {port} accept` (or find \
                 the rule by `nft -a list chain {place}`, and `nft delete rule {place} handle N`)"
            ),
        });
    }
    match steps.len() {
        0 => "list BPF programs with `bpftool net`, and detach the one that drops them".to_owned(),
        1 => format!("accept the packets before that rule: {}", steps[0]),
        _ => format!(
            "accept the packets in each chain, because an accept in one chain does not undo a \
             drop in another: {}",
            steps.join("; ")
        ),
    }
}
