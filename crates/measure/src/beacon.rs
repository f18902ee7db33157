//! Beacons: what hosts send to a group and to each other while they search for the group's faults.
//! Each datagram is one JSON document.

use std::net::{IpAddr, SocketAddr};

use base::text::printable;
use serde::{Deserialize, Serialize};

/// What a host says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beacon {
    /// The version of this message's format: [`Beacon::VERSION`].
    pub towline_reach: u32,
    /// A random number that the host drew when its run began.
    pub token: u64,
    /// The host's name, of at most 256 bytes.
    pub name: String,
    /// The group whose faults are searched for.
    pub group: SocketAddr,
    /// Time to live of the host's packets to the group.
    pub hops: u8,
    /// The interface by which the host sends to the group.
    pub interface: String,
    /// The host's address on that interface.
    pub address: Option<IpAddr>,
    /// Why the host cannot send.
    pub refusal: Option<String>,
    /// Tokens of the hosts that this host hears through the group, at most [`Beacon::HEARD_MAX`].
    pub heard: Vec<u64>,
    /// True when this host hears more hosts than `heard` names.
    #[serde(default)]
    pub is_cut: bool,
    /// True for a beacon to the group; false for one to a single host.
    pub is_group: bool,
}

impl Beacon {
    /// The version of the format that this library writes and reads.
    pub const VERSION: u32 = 1;
    /// The most tokens of a beacon, so that it fits one packet.
    pub const HEARD_MAX: usize = 32;
    /// Time to live of beacons between two hosts. Each router on the path lowers it by one, so the
    /// receiver can count routers.
    pub const UNICAST_HOPS: u8 = 64;

    /// Writes the beacon as one datagram.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads a beacon; `None` for any other datagram. What the host says of itself is made fit for
    /// a line of a report: characters that command a terminal are escaped, and long texts are cut.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let beacon: Self = serde_json::from_slice(bytes).ok()?;
        let is_sound = beacon.towline_reach == Self::VERSION
            && beacon.name.len() <= NAME_BYTES_MAX
            && beacon.heard.len() <= Self::HEARD_MAX;
        is_sound.then(|| Self {
            name: printable(&beacon.name, NAME_BYTES_MAX).into_owned(),
            interface: shown(&beacon.interface),
            refusal: beacon.refusal.as_deref().map(shown),
            ..beacon
        })
    }

    /// Says whether the beacon's sender hears the host of `token`; `None` when its list is cut and
    /// does not name that host.
    #[must_use]
    pub fn hears(&self, token: u64) -> Option<bool> {
        if self.heard.contains(&token) {
            return Some(true);
        }
        (!self.is_cut).then_some(false)
    }
}

fn shown(text: &str) -> String {
    printable(text, TEXT_BYTES_MAX).into_owned()
}

const NAME_BYTES_MAX: usize = 256;
/// Bytes kept of any other text, such as a refusal, which is a sentence or two.
const TEXT_BYTES_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beacon_survives_and_strangers_are_none() {
        let beacon = Beacon {
            towline_reach: Beacon::VERSION,
            token: u64::MAX,
            name: "camera".to_owned(),
            group: "239.192.0.1:7500".parse().unwrap(),
            hops: 1,
            interface: "e0".to_owned(),
            address: Some([10, 0, 0, 1].into()),
            refusal: None,
            heard: vec![u64::MAX; Beacon::HEARD_MAX],
            is_cut: true,
            is_group: true,
        };
        let bytes = beacon.emit();
        assert!(bytes.len() < 1_200, "{} bytes", bytes.len());
        assert_eq!(Beacon::parse(&bytes), Some(beacon.clone()));
        let later = Beacon {
            towline_reach: 2,
            ..beacon
        };
        assert_eq!(Beacon::parse(&later.emit()), None);
        for cut in 0..bytes.len() {
            assert_eq!(Beacon::parse(&bytes[..cut]), None);
        }
    }

    #[test]
    fn what_a_host_says_of_itself_commands_no_terminal() {
        let odd = "\u{1b}]0;x\u{7}\nverdict     all is well\u{202e}\u{9b}1m";
        let beacon = Beacon {
            towline_reach: Beacon::VERSION,
            token: 1,
            name: odd.to_owned(),
            group: "239.192.0.1:7500".parse().unwrap(),
            hops: 1,
            interface: odd.to_owned(),
            address: None,
            refusal: Some("\u{1b}[5mR".repeat(200)),
            heard: Vec::new(),
            is_cut: false,
            is_group: true,
        };
        let heard = Beacon::parse(&beacon.emit()).unwrap();
        let shown = r"\u{1b}]0;x\u{7}\nverdict     all is well\u{202e}\u{9b}1m";
        assert_eq!(
            (heard.name.as_str(), heard.interface.as_str()),
            (shown, shown)
        );
        let refusal = heard.refusal.unwrap();
        assert!(refusal.len() <= TEXT_BYTES_MAX && refusal.ends_with("..."));
        assert!(refusal.chars().all(base::text::is_plain));
    }
}
