//! The report of `reach`: what was seen, what is wrong, and how to mend it.

use gauge::reach::{Facts, ReachReport, Unlisted};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Document, text::wrap};

/// The report of `reach`: observations and findings.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct ReachDocument(pub(crate) ReachReport);

impl Document for ReachDocument {
    const SCHEMA: &'static str = "towline.reach";
    const IS_DATA: bool = true;

    fn text(&self) -> String {
        let ReachReport { facts, findings } = &self.0;
        let mut text = String::new();
        seen(&mut text, facts);
        if findings.is_empty() {
            line(&mut text, "verdict", &arrives(facts));
        }
        for finding in findings {
            line(&mut text, "wrong", &finding.words);
            line(&mut text, "fix", &finding.fix);
        }
        text
    }
}

/// Says that nothing is wrong: the group's packets arrive here. Names the other hosts that receive
/// this host's packets, as far as they have said so.
fn arrives(facts: &Facts) -> String {
    let words = facts.peers.iter().filter_map(|peer| peer.word.as_ref());
    let hearing: Vec<String> = words
        .filter(|word| word.hears_us == Some(true))
        .map(|word| facts.called(word))
        .collect();
    if hearing.is_empty() {
        return "the group arrives here".to_owned();
    }
    format!(
        "the group arrives here, and from here at {}",
        hearing.join(", ")
    )
}

fn seen(text: &mut String, facts: &Facts) {
    let group = format!("{}, sent with a TTL of {}", facts.group, facts.hops);
    line(text, "group", &group);
    if let Some(interface) = &facts.interface {
        let igmp = interface.igmp.as_deref().unwrap_or("version unknown");
        let told = format!(
            "{} ({}), {}, IGMP {igmp}",
            interface.name, interface.address, interface.condition
        );
        line(text, "interface", &told);
        for note in &interface.notes {
            line(text, "", note);
        }
    }
    for heard in &facts.heard {
        let name = if heard.is_self {
            "this host itself"
        } else {
            &heard.name
        };
        let (sent, left) = heard.hops;
        let left = left.map_or_else(|| "?".to_owned(), |left| left.to_string());
        let told = format!(
            "{name} ({}) by {}, {} times, TTL {left} left of {sent}",
            heard.source, heard.interface, heard.count
        );
        line(text, "heard", &told);
    }
    for frames in &facts.frames {
        let told = format!(
            "{} frames from {} through {} for port {}, TTL {} left",
            frames.count, frames.source, frames.interface, frames.port, frames.hops_left
        );
        line(text, "entered", &told);
    }
    if !facts.sees_wire {
        line(text, "entered", "not seen: that needs CAP_NET_RAW");
    }
    for querier in &facts.queriers {
        let told = format!(
            "{} by {} ({})",
            querier.source, querier.interface, querier.version
        );
        line(text, "querier", &told);
    }
    for peer in &facts.peers {
        let told = peer.word.as_ref().map_or_else(
            || "says nothing".to_owned(),
            |word| {
                let hears = match word.hears_us {
                    Some(true) => "hears this host",
                    Some(false) => "does not hear this host",
                    None => "hears more hosts than it names, perhaps this one,",
                };
                let routers = word
                    .routers
                    .map_or_else(String::new, |count| format!(", {count} routers between"));
                let name = facts.called(word);
                format!("{name} {hears} through the group{routers}")
            },
        );
        line(text, "peer", &format!("{}: {told}", peer.address));
    }
    left_out(text, &facts.unlisted);
}

/// Writes how much came from hosts that are not listed.
fn left_out(text: &mut String, unlisted: &Unlisted) {
    for (count, what) in [
        (unlisted.heard, "messages heard through the group"),
        (unlisted.frames, "frames that entered"),
        (unlisted.queriers, "queries of memberships"),
        (unlisted.peers, "messages sent to this host alone"),
    ] {
        if count > 0 {
            let told = format!("{count} {what}, of hosts beyond the 256 that are listed");
            line(text, "not listed", &told);
        }
    }
}

fn line(text: &mut String, name: &str, value: &str) {
    wrap(text, &format!("{name:<11}"), value);
}
