//! What the hosts that take part send, to the group and to each other: one JSON document a
//! datagram.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

/// Where a host stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Beacon {
    /// The version of this message.
    pub(super) towline_reach: u32,
    /// Drawn when the host began.
    pub(super) token: u64,
    pub(super) name: String,
    pub(super) group: SocketAddr,
    /// Time to live of what it sends to the group.
    pub(super) hops: u8,
    /// By which interface, and from which address.
    pub(super) interface: String,
    pub(super) address: Option<IpAddr>,
    /// What keeps it from sending.
    pub(super) refusal: Option<String>,
    /// Tokens of those that it hears through the group, at most [`HEARD_MAX`].
    pub(super) heard: Vec<u64>,
    /// True when it hears more than it names in `heard`.
    #[serde(default)]
    pub(super) is_cut: bool,
    /// True when it was sent to the group itself.
    pub(super) is_group: bool,
}

impl Beacon {
    pub(super) fn emit(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// `None` for what is not ours.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let beacon: Self = serde_json::from_slice(bytes).ok()?;
        let is_sound = beacon.towline_reach == VERSION
            && beacon.name.len() <= NAME_BYTES_MAX
            && beacon.heard.len() <= HEARD_MAX;
        is_sound.then_some(beacon)
    }

    /// Whether its sender hears the host of `token`; none when a list that was cut does not say.
    pub(super) fn hears(&self, token: u64) -> Option<bool> {
        if self.heard.contains(&token) {
            return Some(true);
        }
        (!self.is_cut).then_some(false)
    }
}

pub(super) const VERSION: u32 = 1;
/// So many tokens leave a beacon within one packet.
pub(super) const HEARD_MAX: usize = 32;
const NAME_BYTES_MAX: usize = 256;
/// Time to live of what hosts send to each other: each router on the path lowers it by one.
pub(super) const UNICAST_HOPS: u8 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beacon_survives_and_strangers_are_none() {
        let beacon = Beacon {
            towline_reach: VERSION,
            token: u64::MAX,
            name: "camera".to_owned(),
            group: "239.192.0.1:7500".parse().unwrap(),
            hops: 1,
            interface: "e0".to_owned(),
            address: Some([10, 0, 0, 1].into()),
            refusal: None,
            heard: vec![u64::MAX; HEARD_MAX],
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
}
