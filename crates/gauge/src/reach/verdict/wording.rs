//! Findings in words: what was seen, and what to do.

use std::{net::IpAddr, time::Duration};

use super::{
    Cause, Finding,
    rules::{exit, named, outgoing},
};
use crate::reach::{Facts, PeerWord, ReversePath};

/// Returns the network that holds all groups of the group's IP version.
pub(super) const fn groups(facts: &Facts) -> &'static str {
    if facts.group.is_ipv6() {
        "ff00::/8"
    } else {
        "224.0.0.0/4"
    }
}

pub(super) fn missing_route(facts: &Facts) -> Finding {
    let name = facts.interface.as_ref().map_or("INTERFACE", |it| &it.name);
    let net = groups(facts);
    Finding::new(
        Cause::MissingRoute,
        format!(
            "the kernel has no route to {}: programs that do not choose an interface themselves \
             cannot reach it",
            facts.group.ip()
        ),
        format!("`ip route add {net} dev {name}`"),
    )
}

pub(super) fn other_group(facts: &Facts, word: &PeerWord) -> Finding {
    let (name, theirs, ours) = (facts.called(word), word.group, facts.group);
    if theirs.ip() == ours.ip() {
        return Finding::new(
            Cause::WrongPort,
            format!(
                "{name} uses port {} of the group, this host uses port {}",
                theirs.port(),
                ours.port()
            ),
            format!("use the same port on both hosts, such as --group {theirs} here"),
        );
    }
    Finding::new(
        Cause::WrongGroup,
        format!("{name} uses the group {theirs}, this host uses {ours}"),
        format!("use the same group on both hosts, such as --group {theirs} here"),
    )
}

pub(super) fn wrong_interface(facts: &Facts, name: &str, interface: &str) -> Finding {
    let ours = facts.interface.as_ref().map_or("none", |it| &it.name);
    let bits = if facts.group.is_ipv6() { 128 } else { 32 };
    Finding::new(
        Cause::WrongInterface,
        format!(
            "packets of {name} arrive on {interface}, but this host joined the group on \
                 {ours}"
        ),
        format!(
            "use --iface {interface}, or route the group through it: `ip route replace {}/{bits} \
             dev {interface}`",
            facts.group.ip()
        ),
    )
}

pub(super) fn reverse_path(facts: &Facts, path: &ReversePath) -> Finding {
    let (name, source) = (&path.interface, path.source);
    // In the names of `sysctl`, a slash stands for a dot in an interface's name.
    let setting = name.replace('.', "/");
    let way = path.leaves_by.as_ref().map_or_else(
        || "there is no route to it".to_owned(),
        |via| format!("packets to it leave by {via}"),
    );
    Finding::new(
        Cause::ReversePathFilter,
        format!(
            "packets of {source} arrive by {name}, but {way}: the kernel's reverse-path filter \
             (rp_filter {}) drops them, {} packets meanwhile",
            path.mode, facts.reverse_path_drops
        ),
        format!(
            "`ip route add {source}/32 dev {name}`, or `sysctl -w \
             net.ipv4.conf.{setting}.rp_filter=0 net.ipv4.conf.all.rp_filter=0`"
        ),
    )
}

/// Makes the finding for packets that leave with a TTL of `hops` and have to pass `routers`
/// routers.
pub(super) fn distance(group: IpAddr, name: &str, hops: u8, routers: u8) -> Finding {
    if hops <= routers {
        let needed = routers.saturating_add(1);
        return Finding::new(
            Cause::TtlTooLow,
            format!(
                "{name} sends with a TTL of {hops}, but {routers} routers lie between: its \
                 packets expire on the way"
            ),
            format!("send with --hops {needed} or more on {name}"),
        );
    }
    Finding::new(
        Cause::NoMulticastRouting,
        format!(
            "{name} sends with a TTL of {hops}, enough for the {routers} routers between; they do \
             not forward the group {group}"
        ),
        "switch multicast routing (PIM) on in every router between, and IGMP on the network of \
         whoever receives"
            .to_owned(),
    )
}

/// Makes the finding that this host's report of its membership was dropped before it left. Without
/// the report, a switch with snooping sends this host nothing. `None` when the report left, or when
/// that is not known.
fn of_report(facts: &Facts, seen: &str) -> Option<Finding> {
    if facts.has_reported != Some(false) {
        return None;
    }
    let protocol = if facts.group.is_ipv6() { "MLD" } else { "IGMP" };
    let ours = facts.interface.as_ref().map_or("-", |it| &it.name);
    let (rules, fix) = if outgoing(facts).next().is_none() {
        let rules = "no netfilter rules are seen here, so a BPF program may drop it".to_owned();
        let fix = "list BPF programs with `bpftool net` and `bpftool cgroup tree`, and detach the \
                   one that drops it";
        (rules, fix.to_owned())
    } else {
        let names = named(outgoing(facts));
        let rules = format!("these rules for outgoing packets may drop it: {names}");
        (rules, format!("accept it: {}", exit(facts)))
    };
    let words = format!(
        "{seen}, and this host's own {protocol} report, by which switches learn that it is a \
         member of {}, never left through {ours}; {rules}",
        facts.group.ip()
    );
    Some(Finding::new(Cause::ReportDropped, words, fix))
}

/// Makes the finding of a switch that forwards only to members; this host can only infer it.
pub(super) fn of_switch(facts: &Facts, name: &str, last: Option<Duration>) -> Finding {
    let seen = match last {
        Some(last) => format!(
            "packets of {name} arrived until {:.1} s after this host joined, and then no more",
            last.as_secs_f64()
        ),
        None => format!("{name} is on the same network and sends, but nothing arrives here"),
    };
    if let Some(found) = of_report(facts, &seen) {
        return found;
    }
    let seconds = facts.lasted.as_secs();
    let ours = facts.interface.as_ref().map(|it| it.name.as_str());
    let querier = facts
        .queriers
        .iter()
        .find(|it| Some(it.interface.as_str()) == ours);
    match querier {
        Some(querier) => Finding::new(
            Cause::DroppedOnTheWay,
            format!(
                "{seen}, although {} asks for members ({} queries)",
                querier.source, querier.version
            ),
            format!(
                "look at the snooping table of the switch for {}, at its storm control, and at \
                 the firewall rules of {name} for outgoing packets",
                facts.group.ip()
            ),
        ),
        None => Finding::new(
            Cause::SnoopingWithoutQuerier,
            format!(
                "{seen}, and no query for members (IGMP or MLD) arrived within {seconds} s: a \
                 switch with snooping forgets members when there is no querier"
            ),
            "switch an IGMP/MLD querier on in the switch or router (Linux bridge: `ip link set \
             BRIDGE type bridge mcast_querier 1`), or snooping off (`mcast_snooping 0`); queriers \
             ask every 125 s: look for longer with --time 130s to be sure"
                .to_owned(),
        ),
    }
}

pub(super) fn of_silence(facts: &Facts) -> Finding {
    let seconds = facts.lasted.as_secs();
    let wire = if facts.sees_wire {
        "no frame to it entered this host"
    } else {
        "frames cannot be seen without CAP_NET_RAW"
    };
    Finding::new(
        Cause::NobodySends,
        format!(
            "no other host was heard in {} within {seconds} s; {wire}",
            facts.group
        ),
        "run this on the sending host at the same time, each with the other's address: `towline \
         reach --group GROUP OTHER`"
            .to_owned(),
    )
}
