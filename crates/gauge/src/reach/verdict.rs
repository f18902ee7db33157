//! Turns the observations into findings in words, each with its fix. This module reads no clock and
//! makes no system call.

use std::{net::IpAddr, time::Duration};

use serde::Serialize;

use super::{Facts, Frames, PeerFacts, PeerWord, Refusal, Refused};

mod rules;
use rules::{chain_names, chains, passage};

mod wording;
use wording::{
    distance, groups, missing_route, of_silence, of_switch, other_group, reverse_path,
    wrong_interface,
};

/// Why a group does not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The interface is switched off or has no carrier.
    InterfaceDown,
    /// The interface does not carry multicast.
    NoMulticast,
    /// There is no route to the group.
    MissingRoute,
    /// No interface can be used, or this host cannot send, for another reason.
    NoInterface,
    /// The group arrives by an interface other than the joined one.
    WrongInterface,
    /// The kernel drops the group's packets: by its routes, their source is behind another
    /// interface.
    ReversePathFilter,
    /// The group's packets enter the host, and netfilter rules drop them.
    Firewall,
    /// The other host sends to another port.
    WrongPort,
    /// The other host sends to another group.
    WrongGroup,
    /// The time to live is too low: a router on the way drops the packets.
    TtlTooLow,
    /// The routers between the hosts do not forward groups.
    NoMulticastRouting,
    /// A switch forwards only to members, and no querier renews the memberships.
    SnoopingWithoutQuerier,
    /// Something on the way drops the packets, although a querier renews the memberships.
    DroppedOnTheWay,
    /// This host's rules for outgoing packets drop its report that it has joined the group.
    ReportDropped,
    /// The other host cannot send.
    PeerCannotSend,
    /// The other host uses the group on an interface of its own that does not lead here.
    PeerElsewhere,
    /// The other host says that it does not hear this one; the reason is there or on the way.
    PeerDoesNotHear,
    /// The named host says nothing.
    PeerSilent,
    /// Nobody sends to the group.
    NobodySends,
}

/// Something that is wrong.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Finding {
    /// Why.
    pub cause: Cause,
    /// What was seen.
    pub words: String,
    /// What to do.
    pub fix: String,
}

impl Finding {
    const fn new(cause: Cause, words: String, fix: String) -> Self {
        Self { cause, words, fix }
    }
}

/// Draws the conclusions. Returns no finding when all is well: this host has a route and can send,
/// another host sends to the group, the packets of each named or sending host arrive, and each
/// named host hears this one. What a full list leaves uncertain is no finding.
#[must_use]
pub fn judge(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(refusal) = &facts.refusal {
        findings.push(of_refusal(facts, refusal));
        return findings;
    }
    if let Some(error) = &facts.send_error {
        let words = format!("this host cannot send to {}: {error}", facts.group);
        let fix = "check the interface, its route and this host's rules for output".to_owned();
        findings.push(Finding::new(Cause::NoInterface, words, fix));
    }
    for peer in &facts.peers {
        // One cause often stops both directions, so one finding is enough.
        let deaf = || of_deaf(facts, peer);
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

/// Returns the library's words for a refusal.
pub(super) const fn refused(refusal: &Refusal) -> &Refused {
    match refusal {
        Refusal::Down(text)
        | Refusal::NoMulticast(text)
        | Refusal::NoRoute(text)
        | Refusal::NoReturnPath(text)
        | Refusal::Other(text) => text,
    }
}

fn of_refusal(facts: &Facts, refusal: &Refusal) -> Finding {
    let Refused { words, fix } = refused(refusal);
    let cause = match refusal {
        Refusal::Down(_) => Cause::InterfaceDown,
        Refusal::NoMulticast(_) => Cause::NoMulticast,
        Refusal::NoRoute(_) => Cause::MissingRoute,
        Refusal::NoReturnPath(_) => Cause::ReversePathFilter,
        Refusal::Other(_) => Cause::NoInterface,
    };
    let fix = match cause {
        Cause::MissingRoute => {
            format!("{fix}, or `ip route add {} dev INTERFACE`", groups(facts))
        }
        _ if fix.is_empty() => {
            "name another with --iface; `towline ifaces` shows all with their addresses".to_owned()
        }
        _ => fix.clone(),
    };
    Finding::new(cause, words.clone(), fix)
}

/// Finds why a named host's packets do not arrive; `None` when they do, or when a full list leaves
/// this uncertain.
fn of_peer(facts: &Facts, peer: &PeerFacts) -> Option<Finding> {
    let Some(word) = &peer.word else {
        return of_silent_peer(facts, peer);
    };
    let name = &facts.called(word);
    let heard = facts.heard.iter().filter(|heard| heard.token == word.token);
    let ours = facts.interface.as_ref().map(|it| it.name.as_str());
    let mut elsewhere = None;
    for heard in heard {
        if Some(heard.interface.as_str()) == ours {
            let has_stopped = heard.last + STOPPED < facts.lasted;
            return has_stopped.then(|| of_switch(facts, name, Some(heard.last)));
        }
        elsewhere = Some(heard.interface.clone());
    }
    if let Some(interface) = elsewhere.filter(|_| !is_heard_cut(facts)) {
        return Some(wrong_interface(facts, name, &interface));
    }
    if let Some(refusal) = &word.refusal {
        return Some(Finding::new(
            Cause::PeerCannotSend,
            format!("{name} cannot send to the group: {refusal}"),
            format!("run `towline reach` on {name} and follow its fix"),
        ));
    }
    if word.group != facts.group {
        return Some(other_group(facts, word));
    }
    if is_heard_cut(facts) {
        return None;
    }
    if let Some(found) = word.source.and_then(|source| of_frames(facts, source)) {
        return Some(found);
    }
    let found = elsewhere_of(facts, peer).or_else(|| of_distance(facts, word));
    Some(found.unwrap_or_else(|| of_unseen(facts, word)))
}

/// Returns true when this host heard more hosts than its list holds. Then a host that is not in the
/// list may have been heard all the same, and its absence is no finding.
const fn is_heard_cut(facts: &Facts) -> bool {
    facts.unlisted.heard > 0
}

/// Makes the finding that a named host does not hear this host, although this host sends. `None`
/// when the named host hears this one; when it cuts its list of heard hosts and does not name this
/// host there; when it has sent fewer than [`WORDS_MIN`] messages; or when another finding explains
/// the fault.
fn of_deaf(facts: &Facts, peer: &PeerFacts) -> Option<Finding> {
    let word = peer.word.as_ref()?;
    let is_explained = word.refusal.is_some()
        || word.group != facts.group
        || facts.send_error.is_some()
        || facts.interface.is_none();
    if word.hears_us != Some(false) || is_explained || word.times < WORDS_MIN {
        return None;
    }
    if let Some(found) = elsewhere_of(facts, peer) {
        return Some(found);
    }
    let name = &facts.called(word);
    let routers = word.routers.filter(|routers| *routers > 0);
    if let Some(routers) = routers {
        return Some(distance(facts.group.ip(), "this host", facts.hops, routers));
    }
    Some(Finding::new(
        Cause::PeerDoesNotHear,
        format!(
            "{name} reports that it does not hear this host through the group; this host sends to \
             the group on interface {}",
            facts.interface.as_ref().map_or("-", |it| &it.name)
        ),
        format!(
            "read the report of `towline reach` on {name}: the packets are lost on the network, \
             or dropped by that host (its rules, its reverse-path filter, or it joined on another \
             interface)"
        ),
    ))
}

fn of_silent_peer(facts: &Facts, peer: &PeerFacts) -> Option<Finding> {
    // If a host says nothing, only the address of its packets is known.
    let ip = peer.address.ip();
    if facts
        .heard
        .iter()
        .any(|heard| heard.source == ip && !heard.is_self)
    {
        return None;
    }
    if is_heard_cut(facts) {
        return None;
    }
    Some(of_frames(facts, ip).unwrap_or_else(|| {
        Finding::new(
            Cause::PeerSilent,
            format!(
                "nothing was heard from {}, neither through the group nor by unicast",
                peer.address
            ),
            format!(
                "run `towline reach --group {}` there at the same time, and let UDP port {} \
                 through firewalls",
                facts.group,
                peer.address.port()
            ),
        )
    }))
}

/// Makes the finding for frames of a source that entered the host. `None` when there are none, when
/// they reached the socket, or when a full list leaves this uncertain.
fn of_frames(facts: &Facts, source: IpAddr) -> Option<Finding> {
    if is_heard_cut(facts) {
        return None;
    }
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
    if facts.unlisted.frames > 0 {
        return None;
    }
    if let Some(frames) = elsewhere {
        return Some(wrong_interface(
            facts,
            &source.to_string(),
            &frames.interface,
        ));
    }
    let other = of_source().next()?;
    Some(Finding::new(
        Cause::WrongPort,
        format!(
            "{source} sends to port {} of the group, this host listens on port {}",
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

/// Makes the finding for frames that entered by the right interface to the right port, and never
/// reached the socket.
fn dropped_here(facts: &Facts, frames: &Frames) -> Finding {
    let path = facts.reverse_paths.iter();
    let path = path
        .into_iter()
        .find(|path| path.source == frames.source && path.interface == frames.interface);
    if let Some(path) = path.filter(|path| path.drops()) {
        return reverse_path(facts, path);
    }
    let rules = if chains(facts).next().is_none() {
        "no netfilter rules are seen here, so a BPF program may drop the packets".to_owned()
    } else {
        format!("these rules may drop the packets: {}", chain_names(facts))
    };
    Finding::new(
        Cause::Firewall,
        format!(
            "{} packets from {} entered through {} for port {}, and none reached a socket that has \
             joined; {rules}",
            frames.count, frames.source, frames.interface, frames.port
        ),
        passage(facts, frames.port),
    )
}

/// Makes the finding that a named host uses the group on an interface that does not lead here. Then
/// its packets to the group come from loopback, or from another network than this host's although
/// no router lies between the two.
fn elsewhere_of(facts: &Facts, peer: &PeerFacts) -> Option<Finding> {
    let word = peer.word.as_ref()?;
    let (source, reached) = (word.source?, peer.address.ip());
    let is_near = word.routers == Some(0);
    let is_local = source.is_loopback() && !reached.is_loopback();
    if !(is_local || is_near && facts.is_apart(source, reached)) {
        return None;
    }
    let (name, theirs) = (facts.called(word), &word.interface);
    Some(Finding::new(
        Cause::PeerElsewhere,
        format!(
            "{name} uses the group on its interface {theirs} ({source}), which does not lead here; \
             this host reaches it at {reached}"
        ),
        format!("on {name}, use --iface with the interface that has the address {reached}"),
    ))
}

/// Makes the finding from the number of routers between the hosts.
fn of_distance(facts: &Facts, word: &PeerWord) -> Option<Finding> {
    let routers = word.routers.filter(|routers| *routers > 0)?;
    Some(distance(
        facts.group.ip(),
        &facts.called(word),
        word.hops,
        routers,
    ))
}

/// Makes the finding for a host on the same network that has sent to the group and was never heard
/// here.
fn of_unseen(facts: &Facts, word: &PeerWord) -> Finding {
    if facts.sees_wire && facts.unlisted.frames == 0 {
        return of_switch(facts, &facts.called(word), None);
    }
    let path = facts.reverse_paths.iter().find(|path| path.drops());
    if let Some(path) = path.filter(|_| facts.reverse_path_drops > 0) {
        return reverse_path(facts, path);
    }
    let mut found = of_switch(facts, &facts.called(word), None);
    found.words += if facts.sees_wire {
        "; more hosts send to it than are listed here, so its packets may enter the host unseen"
    } else {
        "; run this as root to see whether the packets enter the host"
    };
    if chains(facts).next().is_some() {
        found.words += &format!(" and are dropped by its rules: {}", chain_names(facts));
        found.fix += &format!("; {}", passage(facts, facts.group.port()));
    }
    found
}

/// The number of messages, at five a second, after which a host must have heard others if it can.
const WORDS_MIN: u64 = 3;
/// How long a host is silent before it counts as stopped; beacons leave five times a second.
const STOPPED: Duration = Duration::from_millis(1_500);

#[cfg(test)]
mod tests;
