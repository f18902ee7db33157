//! From what was observed to what is wrong, in words, with the fix. Pure: no clock, no system.

use std::{net::IpAddr, time::Duration};

use serde::Serialize;

use super::{Facts, Frames, PeerFacts, PeerWord, Refusal, ReversePath, RuleChain};

/// Why a group does not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The interface is switched off or has no carrier.
    InterfaceDown,
    /// The interface does not carry multicast.
    NoMulticast,
    /// There is no route to the group.
    MissingRoute,
    /// No interface can be used, for another reason.
    NoInterface,
    /// The group arrives by another interface than the one that was joined.
    WrongInterface,
    /// The kernel drops it because its source is elsewhere by its routes.
    ReversePathFilter,
    /// It enters the host, and rules drop it.
    Firewall,
    /// It is sent to another port.
    WrongPort,
    /// It is sent to another group.
    WrongGroup,
    /// It dies in a router on the way.
    TtlTooLow,
    /// Routers between do not forward groups.
    NoMulticastRouting,
    /// A switch filters by memberships that nobody keeps alive.
    SnoopingWithoutQuerier,
    /// Something between drops it, although memberships are asked for.
    DroppedOnTheWay,
    /// The other host cannot send.
    PeerCannotSend,
    /// The other host says that it does not hear this one, for a reason that lies there or on the
    /// way.
    PeerDoesNotHear,
    /// The named host says nothing.
    PeerSilent,
    /// Nobody sends to the group.
    NobodySends,
}

/// Something that is wrong.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// Why.
    pub cause: Cause,
    /// What was seen.
    pub words: String,
    /// What to do.
    pub fix: String,
}

/// Draws the verdict; nothing when the group arrives from everybody who was named or heard.
#[must_use]
pub fn judge(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(refusal) = &facts.refusal {
        findings.push(of_refusal(refusal));
        return findings;
    }
    if let Some(error) = &facts.send_error {
        let words = format!("this host cannot send to {}: {error}", facts.group);
        let fix = "see the interface, its route and the rules of the host's output".to_owned();
        findings.push(Finding {
            cause: Cause::NoInterface,
            words,
            fix,
        });
    }
    for peer in &facts.peers {
        // What keeps it from being heard here mostly keeps it from hearing, too.
        let deaf = || of_deaf(facts, peer.word.as_ref()?);
        findings.extend(of_peer(facts, peer).or_else(deaf));
    }
    let is_of_peer = |frames: &Frames| {
        let mut words = facts.peers.iter().filter_map(|peer| peer.word.as_ref());
        words.any(|word| word.source == Some(frames.source))
    };
    let mut judged: Vec<IpAddr> = Vec::new();
    for frames in facts.frames.iter().filter(|frames| !is_of_peer(frames)) {
        if !judged.contains(&frames.source) {
            judged.push(frames.source);
            findings.extend(of_frames(facts, frames.source));
        }
    }
    let is_alone = facts.peers.is_empty() && facts.frames.is_empty();
    if is_alone && facts.heard.iter().all(|heard| heard.is_self) {
        findings.push(of_silence(facts));
    }
    if !facts.has_route && facts.interface.is_some() {
        findings.push(missing_route(facts));
    }
    findings
}

fn finding(cause: Cause, words: String, fix: String) -> Finding {
    Finding { cause, words, fix }
}

/// What was refused, as the library says it.
pub(super) fn words_of(refusal: &Refusal) -> &str {
    match refusal {
        Refusal::Down(text)
        | Refusal::NoMulticast(text)
        | Refusal::NoRoute(text)
        | Refusal::NoReturnPath(text)
        | Refusal::Other(text) => text,
    }
}

fn of_refusal(refusal: &Refusal) -> Finding {
    let text = words_of(refusal);
    let cause = match refusal {
        Refusal::Down(_) => Cause::InterfaceDown,
        Refusal::NoMulticast(_) => Cause::NoMulticast,
        Refusal::NoRoute(_) => Cause::MissingRoute,
        Refusal::NoReturnPath(_) => Cause::ReversePathFilter,
        Refusal::Other(_) => Cause::NoInterface,
    };
    // The library's texts say what to do behind a semicolon.
    let (words, fix) = text.split_once("; ").unwrap_or((text, ""));
    let fix = match cause {
        Cause::MissingRoute => format!("{fix}, or `ip route add 224.0.0.0/4 dev INTERFACE`"),
        _ => fix.to_owned(),
    };
    finding(cause, words.to_owned(), fix)
}

fn missing_route(facts: &Facts) -> Finding {
    let name = facts.interface.as_ref().map_or("INTERFACE", |it| &it.name);
    let net = if facts.group.is_ipv6() {
        "ff00::/8"
    } else {
        "224.0.0.0/4"
    };
    finding(
        Cause::MissingRoute,
        format!(
            "the kernel has no route to {}: programs that do not choose an interface themselves \
             cannot reach it",
            facts.group.ip()
        ),
        format!("`ip route add {net} dev {name}`"),
    )
}

/// What keeps a named host's packets from arriving; nothing when they do.
fn of_peer(facts: &Facts, peer: &PeerFacts) -> Option<Finding> {
    let Some(word) = &peer.word else {
        return of_silent_peer(facts, peer);
    };
    let name = &word.name;
    let heard = facts.heard.iter().filter(|heard| heard.token == word.token);
    let ours = facts.interface.as_ref().map(|it| it.name.as_str());
    let mut elsewhere = None;
    for heard in heard {
        if Some(heard.interface.as_str()) == ours {
            let (_, last) = heard.first_and_last;
            let has_stopped = last + STOPPED < facts.lasted;
            return has_stopped.then(|| of_switch(facts, name, Some(last)));
        }
        elsewhere = Some(heard.interface.clone());
    }
    if let Some(interface) = elsewhere {
        return Some(wrong_interface(facts, name, &interface));
    }
    if let Some(refusal) = &word.refusal {
        return Some(finding(
            Cause::PeerCannotSend,
            format!("{name} cannot send to the group: {refusal}"),
            format!("run `towline reach` on {name} and do what it says"),
        ));
    }
    if word.group != facts.group {
        return Some(other_group(facts, word));
    }
    if let Some(found) = word.source.and_then(|source| of_frames(facts, source)) {
        return Some(found);
    }
    Some(of_distance(facts, word).unwrap_or_else(|| of_unseen(facts, word)))
}

/// What a named host says that it does not hear, though this one sends; nothing when it does, and
/// when something else that was found must keep it from hearing.
fn of_deaf(facts: &Facts, word: &PeerWord) -> Option<Finding> {
    let is_explained = word.refusal.is_some()
        || word.group != facts.group
        || facts.send_error.is_some()
        || facts.interface.is_none();
    if word.hears_us || is_explained || word.times < WORDS_MIN {
        return None;
    }
    let name = &word.name;
    let routers = word.routers.filter(|routers| *routers > 0);
    if let Some(routers) = routers {
        return Some(distance(facts.group.ip(), "this host", facts.hops, routers));
    }
    Some(finding(
        Cause::PeerDoesNotHear,
        format!(
            "{name} says that it does not hear this host through the group, which this host sends \
             to by {}",
            facts.interface.as_ref().map_or("-", |it| &it.name)
        ),
        format!(
            "read what `towline reach` on {name} says meanwhile: the packets are lost on the way \
             there, or dropped by that host (its rules, its reverse-path filter, the interface \
             that it joined on)"
        ),
    ))
}

fn of_silent_peer(facts: &Facts, peer: &PeerFacts) -> Option<Finding> {
    // Its packets may be known by their address alone.
    let ip = peer.address.ip();
    if facts
        .heard
        .iter()
        .any(|heard| heard.source == ip && !heard.is_self)
    {
        return None;
    }
    Some(of_frames(facts, ip).unwrap_or_else(|| {
        finding(
            Cause::PeerSilent,
            format!("{} says nothing, by unicast either", peer.address),
            format!(
                "run `towline reach --group {}` there at the same time, and let UDP port {} \
                 through firewalls",
                facts.group,
                peer.address.port()
            ),
        )
    }))
}

fn other_group(facts: &Facts, word: &PeerWord) -> Finding {
    let (name, theirs, ours) = (&word.name, word.group, facts.group);
    if theirs.ip() == ours.ip() {
        return finding(
            Cause::WrongPort,
            format!(
                "{name} uses port {} of the group, this host port {}",
                theirs.port(),
                ours.port()
            ),
            format!("use one port on both, such as --group {theirs} here"),
        );
    }
    finding(
        Cause::WrongGroup,
        format!("{name} uses the group {theirs}, this host {ours}"),
        format!("use one group on both, such as --group {theirs} here"),
    )
}

/// What frames of a source that entered the host say; nothing when they reached the socket.
fn of_frames(facts: &Facts, source: IpAddr) -> Option<Finding> {
    let ours = facts.interface.as_ref().map(|it| it.name.as_str());
    let of_source = || facts.frames.iter().filter(|frames| frames.source == source);
    let right_port = of_source().filter(|frames| frames.port == facts.group.port());
    let mut elsewhere = None;
    for frames in right_port {
        if Some(frames.interface.as_str()) != ours {
            elsewhere = Some(frames);
            continue;
        }
        let is_heard = facts
            .heard
            .iter()
            .any(|it| it.source == source && !it.is_self);
        return (!is_heard).then(|| dropped_here(facts, frames));
    }
    if let Some(frames) = elsewhere {
        return Some(wrong_interface(
            facts,
            &source.to_string(),
            &frames.interface,
        ));
    }
    let other = of_source().next()?;
    Some(finding(
        Cause::WrongPort,
        format!(
            "{source} sends to the group on port {}, this host listens on port {}",
            other.port,
            facts.group.port()
        ),
        format!(
            "use --group {}:{} here, or port {} there",
            facts.group.ip(),
            other.port,
            facts.group.port()
        ),
    ))
}

fn wrong_interface(facts: &Facts, name: &str, interface: &str) -> Finding {
    let ours = facts.interface.as_ref().map_or("none", |it| &it.name);
    finding(
        Cause::WrongInterface,
        format!("what {name} sends arrives by {interface}, and the group was joined on {ours}"),
        format!(
            "use --iface {interface}, or route the group by it: `ip route replace {}/32 dev \
             {interface}`",
            facts.group.ip()
        ),
    )
}

/// Frames that entered by the right interface for the right port, and never reached the socket.
fn dropped_here(facts: &Facts, frames: &Frames) -> Finding {
    let path = facts.reverse_paths.iter();
    let path = path
        .into_iter()
        .find(|path| path.source == frames.source && path.interface == frames.interface);
    if let Some(path) = path.filter(|path| path.drops()) {
        return reverse_path(facts, path);
    }
    let rules = if chains(facts).next().is_none() {
        "no rules of netfilter are seen here, so a BPF program may".to_owned()
    } else {
        format!("these rules are in the way: {}", chain_names(facts))
    };
    finding(
        Cause::Firewall,
        format!(
            "{} packets of {} entered by {} for port {}, and none reached a socket that has \
             joined; {rules}",
            frames.count, frames.source, frames.interface, frames.port
        ),
        passage(facts, frames.port),
    )
}

/// Chains that packets of the group's kind of IP pass.
fn chains(facts: &Facts) -> impl Iterator<Item = &RuleChain> {
    let is_ipv6 = facts.group.is_ipv6();
    facts
        .chains
        .iter()
        .filter(move |chain| chain.takes(is_ipv6))
}

fn chain_names(facts: &Facts) -> String {
    let name = |chain: &RuleChain| {
        let default = if chain.drops_by_default {
            " (drops by default)"
        } else {
            ""
        };
        format!("{}{default}", chain.place())
    };
    chains(facts).map(name).collect::<Vec<_>>().join(", ")
}

/// How to let the group's packets to `port` pass the chains that were found.
fn passage(facts: &Facts, port: u16) -> String {
    let group = facts.group.ip();
    let word = if group.is_ipv6() { "ip6" } else { "ip" };
    let mut steps: Vec<String> = Vec::new();
    for chain in chains(facts) {
        let place = chain.place();
        // A table of nftables may have any name; the older ones have no chains of their own here.
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
        1 => format!("let them pass before that rule: {}", steps[0]),
        _ => format!(
            "let them pass in each chain, as an accept in one does not undo a drop in another: {}",
            steps.join("; ")
        ),
    }
}

fn reverse_path(facts: &Facts, path: &ReversePath) -> Finding {
    let (name, source) = (&path.interface, path.source);
    let way = path.leaves_by.as_ref().map_or_else(
        || "there is no route to it".to_owned(),
        |via| format!("packets to it leave by {via}"),
    );
    finding(
        Cause::ReversePathFilter,
        format!(
            "packets of {source} arrive by {name}, but {way}: the kernel's reverse-path filter \
             (rp_filter {}) drops them, {} packets meanwhile",
            path.mode, facts.reverse_path_drops
        ),
        format!(
            "`ip route add {source}/32 dev {name}`, or `sysctl -w net.ipv4.conf.{name}.rp_filter=0 \
             net.ipv4.conf.all.rp_filter=0`"
        ),
    )
}

/// What the number of routers between says.
fn of_distance(facts: &Facts, word: &PeerWord) -> Option<Finding> {
    let routers = word.routers.filter(|routers| *routers > 0)?;
    Some(distance(facts.group.ip(), &word.name, word.hops, routers))
}

/// What becomes of a group that `name` sends with a TTL of `hops` over so many routers.
fn distance(group: IpAddr, name: &str, hops: u8, routers: u8) -> Finding {
    if hops <= routers {
        let needed = routers.saturating_add(1);
        return finding(
            Cause::TtlTooLow,
            format!(
                "{name} sends with a TTL of {hops}, and {routers} routers lie between: it dies on \
                 the way"
            ),
            format!("send with --hops {needed} or more on {name}"),
        );
    }
    finding(
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

/// On the same network, sent, and never seen here.
fn of_unseen(facts: &Facts, word: &PeerWord) -> Finding {
    if facts.sees_wire {
        return of_switch(facts, &word.name, None);
    }
    let path = facts.reverse_paths.iter().find(|path| path.drops());
    if let Some(path) = path.filter(|_| facts.reverse_path_drops > 0) {
        return reverse_path(facts, path);
    }
    let mut found = of_switch(facts, &word.name, None);
    found.words += "; run this as root to see whether the packets enter the host";
    if chains(facts).next().is_some() {
        found.words += &format!(" and are dropped by its rules: {}", chain_names(facts));
        found.fix += &format!("; {}", passage(facts, facts.group.port()));
    }
    found
}

/// A switch that filters by memberships, as far as can be told.
fn of_switch(facts: &Facts, name: &str, last: Option<Duration>) -> Finding {
    let seen = match last {
        Some(last) => format!(
            "what {name} sends arrived until {:.1} s after joining, and then no more",
            last.as_secs_f64()
        ),
        None => format!("{name} is on the same network and sends, and nothing arrives here"),
    };
    let seconds = facts.lasted.as_secs();
    let ours = facts.interface.as_ref().map(|it| it.name.as_str());
    let querier = facts
        .queriers
        .iter()
        .find(|it| Some(it.interface.as_str()) == ours);
    match querier {
        Some(querier) => finding(
            Cause::DroppedOnTheWay,
            format!(
                "{seen}, although {} asks for memberships ({})",
                querier.source, querier.version
            ),
            format!(
                "look at the snooping table of the switch for {}, at its storm control, and at \
                 the rules for what {name} sends",
                facts.group.ip()
            ),
        ),
        None => finding(
            Cause::SnoopingWithoutQuerier,
            format!(
                "{seen}, and nobody has asked for memberships within {seconds} s: a switch that \
                 snoops forgets members when no querier asks"
            ),
            "switch an IGMP/MLD querier on in the switch or router (Linux bridge: `ip link set \
             BRIDGE type bridge mcast_querier 1`), or snooping off (`mcast_snooping 0`); queriers \
             ask every 125 s: look for longer with --time 130s to be sure"
                .to_owned(),
        ),
    }
}

fn of_silence(facts: &Facts) -> Finding {
    let seconds = facts.lasted.as_secs();
    let wire = if facts.sees_wire {
        "no frame to it entered this host"
    } else {
        "frames cannot be seen without CAP_NET_RAW"
    };
    finding(
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

/// A host that has just begun has not heard anybody yet: it speaks five times a second.
const WORDS_MIN: u64 = 3;
/// Beacons leave five times a second: this long without any is an end.
const STOPPED: Duration = Duration::from_millis(1_500);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reach::{Heard, InterfaceFacts};

    fn facts() -> Facts {
        Facts {
            group: "239.192.0.7:7500".parse().unwrap(),
            hops: 1,
            lasted: Duration::from_secs(5),
            interface: Some(InterfaceFacts {
                name: "e0".to_owned(),
                address: [10, 0, 0, 1].into(),
                igmp: Some("V3".to_owned()),
                condition: "up",
                notes: Vec::new(),
            }),
            refusal: None,
            has_route: true,
            send_error: None,
            heard: Vec::new(),
            frames: vec![Frames {
                interface: "e0".to_owned(),
                source: [10, 9, 9, 9].into(),
                port: 7_500,
                hops_left: 3,
                count: 7,
            }],
            sees_wire: true,
            queriers: Vec::new(),
            peers: Vec::new(),
            reverse_paths: Vec::new(),
            reverse_path_drops: 7,
            chains: Vec::new(),
        }
    }

    #[test]
    fn what_enters_and_vanishes_was_dropped_by_the_reverse_path_filter_or_by_rules() {
        let mut facts = facts();
        let found = judge(&facts);
        assert_eq!(found[0].cause, Cause::Firewall);
        assert!(found[0].words.contains("BPF"), "{found:?}");
        for (mode, leaves_by, is_dropped) in [
            (1, Some("e1"), true),
            (1, Some("e0"), false),
            (2, Some("e1"), false),
            (2, None, true),
            (0, None, false),
        ] {
            facts.reverse_paths = vec![ReversePath {
                source: [10, 9, 9, 9].into(),
                interface: "e0".to_owned(),
                leaves_by: leaves_by.map(str::to_owned),
                mode,
            }];
            let is_named = judge(&facts)[0].cause == Cause::ReversePathFilter;
            assert_eq!(is_named, is_dropped, "{:?}", facts.reverse_paths);
        }
    }

    #[test]
    fn rules_are_passed_where_they_are() {
        let chain = |table: &str, name: &str| RuleChain {
            table: table.to_owned(),
            name: name.to_owned(),
            drops_by_default: false,
        };
        let mut facts = facts();
        assert!(judge(&facts)[0].fix.contains("bpftool"));
        facts.chains = vec![chain("inet guard", "entry"), chain("ip6 other", "entry")];
        let fix = &judge(&facts)[0].fix;
        let insert =
            "`nft insert rule inet guard entry ip daddr 239.192.0.7 udp dport 7500 accept`";
        assert!(fix.contains(insert) && !fix.contains("other"), "{fix}");
        assert!(
            fix.contains("nft delete rule inet guard entry handle"),
            "{fix}"
        );
        facts.chains.push(chain("iptables filter", ""));
        let fix = &judge(&facts)[0].fix;
        assert!(fix.contains("does not undo a drop in another"), "{fix}");
        assert!(
            fix.contains("`iptables -t filter -I INPUT -d 239.192.0.7 -p udp"),
            "{fix}"
        );
    }

    #[test]
    fn a_peer_that_does_not_hear_is_a_finding_here_too() {
        let mut facts = facts();
        facts.frames.clear();
        facts.heard = vec![Heard {
            name: "vm".to_owned(),
            source: [10, 0, 0, 2].into(),
            interface: "e0".to_owned(),
            hops: (1, Some(1)),
            count: 25,
            first_and_last: (Duration::ZERO, facts.lasted),
            is_self: false,
            token: 2,
        }];
        let word = PeerWord {
            name: "vm".to_owned(),
            group: facts.group,
            hops: 1,
            source: Some([10, 0, 0, 2].into()),
            interface: "e0".to_owned(),
            refusal: None,
            hears_us: true,
            routers: Some(0),
            token: 2,
            times: 25,
        };
        let judged = |facts: &mut Facts, word: PeerWord| {
            facts.peers = vec![PeerFacts {
                address: "10.0.0.2:7702".parse().unwrap(),
                word: Some(word),
            }];
            judge(facts)
        };
        assert!(judged(&mut facts, word.clone()).is_empty());
        let deaf = PeerWord {
            hears_us: false,
            ..word
        };
        let found = judged(&mut facts, deaf.clone());
        assert_eq!(found[0].cause, Cause::PeerDoesNotHear);
        assert!(
            found[0].words.contains("vm says that it does not hear"),
            "{found:?}"
        );
        // Just begun, it could not have heard; behind a router, the TTL explains it.
        let begun = PeerWord {
            times: 1,
            ..deaf.clone()
        };
        assert!(judged(&mut facts, begun).is_empty());
        let far = PeerWord {
            routers: Some(1),
            ..deaf
        };
        let found = judged(&mut facts, far);
        assert_eq!(found[0].cause, Cause::TtlTooLow);
        assert!(
            found[0].fix.contains("--hops 2 or more on this host"),
            "{found:?}"
        );
    }

    #[test]
    fn silence_says_what_was_not_looked_at() {
        let mut facts = facts();
        facts.frames.clear();
        facts.sees_wire = false;
        let found = judge(&facts);
        assert_eq!(found[0].cause, Cause::NobodySends);
        assert!(found[0].words.contains("CAP_NET_RAW"), "{found:?}");
        facts.has_route = false;
        assert_eq!(judge(&facts)[1].cause, Cause::MissingRoute);
    }
}
