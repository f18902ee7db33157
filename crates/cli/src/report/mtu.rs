//! The reports of `mtu`: the size, and which claims of routers can be trusted.

use std::net::IpAddr;

use gauge::mtu::{Confirmation, GroupMtuReport, MtuVerdict, PathMtuReport};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Document, text::wrap};

/// The report of `mtu` to a host.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct MtuReport {
    target: String,
    path_mtu_bytes: u32,
    /// The largest packet whose answer of the same size came back whole; null without a reflector.
    path_mtu_back_bytes: Option<u32>,
    interface_mtu_bytes: u32,
    udp_payload_bytes_max: u32,
    pgm_payload_bytes_max: u32,
    verdict: &'static str,
    confirmed_by: &'static str,
    claims: Vec<ClaimRow>,
    /// Claims that are not listed; a claim that was made twice counts twice.
    unlisted_claims: u64,
    probes: u64,
    #[serde(skip)]
    verdict_told: String,
    #[serde(skip)]
    confirmation_told: String,
}

/// A router's claim about the MTU of its next hop.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct ClaimRow {
    router: Option<IpAddr>,
    mtu_bytes: u32,
    is_true: bool,
    /// Larger packets arrived, so the claim is wrong.
    is_refuted: bool,
}

impl MtuReport {
    pub(crate) fn new(target: &str, found: &PathMtuReport) -> Self {
        let row = |claim: &gauge::mtu::Claim| ClaimRow {
            router: claim.router,
            mtu_bytes: claim.mtu_bytes,
            is_true: claim.mtu_bytes == found.path_mtu_bytes,
            is_refuted: claim.is_refuted(found.path_mtu_bytes),
        };
        Self {
            target: target.to_owned(),
            path_mtu_bytes: found.path_mtu_bytes,
            path_mtu_back_bytes: found.path_mtu_back_bytes,
            interface_mtu_bytes: found.interface_mtu_bytes,
            udp_payload_bytes_max: found.udp_payload_bytes_max,
            pgm_payload_bytes_max: found.pgm_payload_bytes_max,
            verdict: match found.verdict {
                MtuVerdict::Clear => "clear",
                MtuVerdict::Told => "told",
                MtuVerdict::BlackHole => "black-hole",
                MtuVerdict::FalseClaim => "false-claim",
                MtuVerdict::Unfinished => "unfinished",
            },
            confirmed_by: match found.confirmation {
                Confirmation::Reflector => "reflector",
                Confirmation::PortUnreachable => "port-unreachable",
            },
            claims: found.claims.iter().map(row).collect(),
            unlisted_claims: found.unlisted_claims,
            probes: found.probes,
            verdict_told: verdict(found),
            confirmation_told: confirmation(found),
        }
    }
}

fn verdict(found: &PathMtuReport) -> String {
    let claims: Vec<String> = found
        .claims
        .iter()
        .map(|claim| {
            let who = claim
                .router
                .map_or_else(|| "a router".to_owned(), |ip| ip.to_string());
            let refuted = claim.is_refuted(found.path_mtu_bytes);
            let but = if refuted {
                ", and larger packets arrive"
            } else {
                ""
            };
            format!("{who} says {}{but}", claim.mtu_bytes)
        })
        .collect();
    let claims = claims.join(", ");
    match found.verdict {
        MtuVerdict::Clear => "everything that leaves this interface arrives".to_owned(),
        MtuVerdict::Told => format!(
            "larger packets are refused, and the refusal is reported \
                                     correctly: {claims}"
        ),
        MtuVerdict::BlackHole => "a black hole: larger packets vanish without an ICMP message. \
            Let ICMP (IPv4: type 3 code 4; IPv6: type 2) pass, lower the interface's MTU, or \
            clamp the size"
            .to_owned(),
        MtuVerdict::FalseClaim => format!(
            "ICMP messages name a wrong MTU: {claims}; hosts that believe them send packets that \
             are too small or too large. Find the sender of these messages, and filter them"
        ),
        MtuVerdict::Unfinished => format!(
            "interrupted: packets of {} bytes arrive; the search was not over, and larger ones may \
             arrive, too",
            found.path_mtu_bytes
        ),
    }
}

fn confirmation(found: &PathMtuReport) -> String {
    let by = match (found.confirmation, found.path_mtu_back_bytes) {
        (Confirmation::Reflector, Some(back)) if back < found.path_mtu_bytes => format!(
            "a reflector's answers, in fragments above {back} bytes: there {}, back {back}",
            found.path_mtu_bytes
        ),
        (Confirmation::Reflector, Some(_)) => "a reflector's answers of the same size".to_owned(),
        (Confirmation::Reflector, None) => {
            "a reflector's answers, which all come in fragments; the way back is not known"
                .to_owned()
        }
        (Confirmation::PortUnreachable, _) => {
            "the host's \"port unreachable\"; the way back is not known".to_owned()
        }
    };
    format!("{by}; {} packets sent", found.probes)
}

impl Document for MtuReport {
    const SCHEMA: &'static str = "towline.mtu";
    const IS_DATA: bool = true;

    fn text(&self) -> String {
        let mut text = String::new();
        let path = format!(
            "{} bytes to {} (the interface here: {})",
            self.path_mtu_bytes, self.target, self.interface_mtu_bytes
        );
        row(&mut text, "path MTU", &path);
        let fits = format!(
            "UDP payload {}, PGM payload {}",
            self.udp_payload_bytes_max, self.pgm_payload_bytes_max
        );
        row(&mut text, "fits", &fits);
        row(&mut text, "verdict", &self.verdict_told);
        row(&mut text, "confirmed by", &self.confirmation_told);
        if self.unlisted_claims > 0 {
            let told = format!("{} more claims of routers", self.unlisted_claims);
            row(&mut text, "not listed", &told);
        }
        text
    }
}

/// The report of `mtu` to a group: the paths to its receivers.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct GroupMtuDocument {
    target: String,
    interface: String,
    interface_mtu_bytes: u32,
    path_mtu_bytes: u32,
    udp_payload_bytes_max: u32,
    receivers: Vec<ReceiverRow>,
    /// Answers of receivers that are not listed, because at most 4096 receivers are followed.
    unlisted_answers: u64,
    probes: u64,
}

/// A receiver that answered.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct ReceiverRow {
    address: IpAddr,
    path_mtu_bytes: u32,
}

impl GroupMtuDocument {
    pub(crate) fn new(target: &str, found: &GroupMtuReport) -> Self {
        let is_ipv6 = found.receivers.iter().any(|(address, _)| address.is_ipv6());
        let headers = if is_ipv6 { 48 } else { 28 };
        let row = |&(address, path_mtu_bytes): &(IpAddr, u32)| ReceiverRow {
            address,
            path_mtu_bytes,
        };
        Self {
            target: target.to_owned(),
            interface: found.interface.clone(),
            interface_mtu_bytes: found.interface_mtu_bytes,
            path_mtu_bytes: found.path_mtu(),
            udp_payload_bytes_max: found.path_mtu().saturating_sub(headers),
            receivers: found.receivers.iter().map(row).collect(),
            unlisted_answers: found.unlisted,
            probes: found.probes,
        }
    }
}

impl Document for GroupMtuDocument {
    const SCHEMA: &'static str = "towline.mtu-group";
    const IS_DATA: bool = true;

    fn text(&self) -> String {
        let mut text = String::new();
        let path = format!(
            "{} bytes to all {} receivers of {} ({}: {}); UDP payload {}",
            self.path_mtu_bytes,
            self.receivers.len(),
            self.target,
            self.interface,
            self.interface_mtu_bytes,
            self.udp_payload_bytes_max,
        );
        row(&mut text, "path MTU", &path);
        for one in &self.receivers {
            let told = format!("{} bytes to {}", one.path_mtu_bytes, one.address);
            row(&mut text, "receiver", &told);
        }
        if self.unlisted_answers > 0 {
            let told = format!("{} more answers of receivers", self.unlisted_answers);
            row(&mut text, "not listed", &told);
        }
        text
    }
}

fn row(text: &mut String, name: &str, value: &str) {
    wrap(text, &format!("{name:<13}"), value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_answers_confirm_the_way_back() {
        let found = |path_mtu_back_bytes| PathMtuReport {
            path_mtu_bytes: 1_404,
            interface_mtu_bytes: 1_500,
            path_mtu_back_bytes,
            confirmation: Confirmation::Reflector,
            claims: Vec::new(),
            unlisted_claims: 0,
            verdict: MtuVerdict::BlackHole,
            udp_payload_bytes_max: 1_376,
            pgm_payload_bytes_max: 1_352,
            probes: 20,
        };
        let told = |back| confirmation(&found(back));
        assert!(told(Some(1_404)).contains("answers of the same size"));
        let text = told(Some(1_400));
        assert!(text.contains("there 1404, back 1400"), "{text}");
        assert!(!text.contains("same size"), "{text}");
        assert!(told(None).contains("the way back is not known"));
    }
}
