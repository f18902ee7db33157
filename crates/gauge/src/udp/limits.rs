//! What a server lets its clients ask for.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use net::SystemError;

use super::{SIZES, protocol::TrialSpec};
use crate::Error;

/// How a server works, and what it lets its clients ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServeSpec {
    /// Where the server listens for control connections (TCP) and datagrams (UDP).
    pub listen: SocketAddr,
    /// The groups, each with its port, that clients may name. The server joins no other group and
    /// sends to no other. 224.0.0.0/24 and ff02::/16 are errors: hosts are members of such groups
    /// without being asked.
    pub groups: Vec<SocketAddr>,
    /// The most that the server sends, in bits each second with the headers of UDP, IP and
    /// Ethernet. `None`: as much as it can to the host that asks, [`GROUP_BITS_PER_S_MAX`] to a
    /// group.
    pub bits_per_s_max: Option<u64>,
    /// The highest time to live of its packets to a group.
    pub hops_max: u8,
}

impl ServeSpec {
    /// Makes a specification without groups.
    #[must_use]
    pub const fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            groups: Vec::new(),
            bits_per_s_max: None,
            hops_max: 1,
        }
    }

    /// Checks the groups.
    ///
    /// # Errors
    /// When one of them is no group, or is a group that no server may send to.
    pub fn check(&self) -> Result<(), Error> {
        for group in &self.groups {
            let cause = if !group.ip().is_multicast() {
                "it is not a multicast group; name one"
            } else if is_local_control(group.ip()) {
                "its range is reserved for protocols of the local link; name another"
            } else {
                continue;
            };
            return Err(SystemError::refused("allow", group, cause).into());
        }
        Ok(())
    }

    /// Returns the trial as the server makes it, and the server's own rate when the client asks for
    /// a higher one.
    ///
    /// # Errors
    /// When the server does not make such a trial; the text is for the client.
    pub(super) fn allow(&self, asked: &TrialSpec) -> io::Result<(TrialSpec, Option<u64>)> {
        if !SIZES.contains(&asked.size_bytes) {
            let asked = asked.size_bytes;
            let text =
                format!("the client asks for datagrams of {asked} bytes: choose 20 to 65507 bytes");
            return Err(io::Error::other(text));
        }
        if asked.duration_ms > DURATION_MS_MAX {
            let asked = asked.duration_ms;
            let text = format!("the client asks for a trial of {asked} ms: choose at most 60 s");
            return Err(io::Error::other(text));
        }
        if let Some(group) = asked.group {
            self.allow_group(group, asked.hops)?;
        }
        let default = asked.group.map(|_| GROUP_BITS_PER_S_MAX);
        let rate_max = self.bits_per_s_max.or(default).map(|bits_per_s| {
            let bits = packet_bytes(asked.size_bytes) * 8;
            (bits_per_s / bits).max(1)
        });
        let lower =
            rate_max.filter(|max| asked.is_back && asked.rate_per_s.is_none_or(|it| it > *max));
        let spec = TrialSpec {
            rate_per_s: lower.or(asked.rate_per_s),
            ..*asked
        };
        Ok((spec, lower))
    }

    fn allow_group(&self, group: SocketAddr, hops: u8) -> io::Result<()> {
        let is_allowed = |it: &SocketAddr| (it.ip(), it.port()) == (group.ip(), group.port());
        if !self.groups.iter().any(is_allowed) {
            let text = format!(
                "the server does not allow group {group}: start it with --allow-group {group}"
            );
            return Err(io::Error::other(text));
        }
        if hops > self.hops_max {
            let text = format!(
                "the server allows a TTL of at most {} for groups: start it with --hops-max \
                 {hops}, or measure with a smaller --hops",
                self.hops_max
            );
            return Err(io::Error::other(text));
        }
        Ok(())
    }
}

/// Returns true for groups of a link's own protocols, which hosts and routers join without being
/// asked.
fn is_local_control(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip & Ipv4Addr::new(255, 255, 255, 0) == Ipv4Addr::new(224, 0, 0, 0),
        IpAddr::V6(ip) => ip.segments()[0] == 0xff02,
    }
}

/// Returns the most bytes that a datagram takes on the wire: each packet has headers of Ethernet,
/// IPv6, fragments and UDP.
fn packet_bytes(size_bytes: usize) -> u64 {
    let size_bytes = size_bytes as u64;
    size_bytes + HEADER_BYTES * size_bytes.div_ceil(FRAGMENT_BYTES).max(1)
}

/// The most bits each second that a server sends to a group, unless its operator says otherwise. It
/// is a tenth of a common link, because every member of the group receives them.
pub const GROUP_BITS_PER_S_MAX: u64 = 100_000_000;
pub(super) const DURATION_MS_MAX: u64 = 60_000;
const HEADER_BYTES: u64 = 70;
/// Payload of a fragment on a link with an MTU of 1500 bytes.
const FRAGMENT_BYTES: u64 = 1_448;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::{Mode, Profile};

    fn trial(group: Option<&str>) -> TrialSpec {
        TrialSpec {
            token: 1,
            size_bytes: 1_400,
            mode: Mode::One,
            profile: Profile::Standard,
            rate_per_s: None,
            duration_ms: 1_000,
            is_there: false,
            is_back: true,
            group: group.map(|group| group.parse().unwrap()),
            hops: 1,
        }
    }

    fn spec(groups: &[&str]) -> ServeSpec {
        ServeSpec {
            groups: groups.iter().map(|group| group.parse().unwrap()).collect(),
            ..ServeSpec::new("0.0.0.0:7701".parse().unwrap())
        }
    }

    #[test]
    fn only_groups_that_somebody_joined_can_be_allowed() {
        assert!(
            spec(&["239.1.2.3:9", "[ff15::1]:9", "232.1.1.1:9"])
                .check()
                .is_ok()
        );
        for wrong in [
            "224.0.0.1:9",
            "224.0.0.251:5353",
            "[ff02::1]:9",
            "10.0.0.1:9",
            "[::1]:9",
        ] {
            let error = spec(&["239.1.2.3:9", wrong])
                .check()
                .unwrap_err()
                .to_string();
            assert!(error.contains(wrong), "{error}");
        }
    }

    #[test]
    fn groups_hops_and_rates_are_those_that_the_operator_allows() {
        let mut server = spec(&["239.1.2.3:9"]);
        let refusal =
            |server: &ServeSpec, trial: TrialSpec| server.allow(&trial).unwrap_err().to_string();
        for other in ["239.1.2.4:9", "239.1.2.3:10", "10.0.0.1:9"] {
            let text = refusal(&server, trial(Some(other)));
            assert!(text.contains(&format!("--allow-group {other}")), "{text}");
        }
        let group = trial(Some("239.1.2.3:9"));
        let text = refusal(&server, TrialSpec { hops: 2, ..group });
        assert!(text.contains("--hops-max 2"), "{text}");
        // A flood to a group has the default rate, one to the host that asks has none.
        let (made, lower) = server.allow(&group).unwrap();
        let rate = GROUP_BITS_PER_S_MAX / ((1_400 + 70) * 8);
        assert_eq!((made.rate_per_s, lower), (Some(rate), Some(rate)));
        assert_eq!(server.allow(&trial(None)).unwrap(), (trial(None), None));
        // What a server does not send needs no limit.
        let there = TrialSpec {
            is_back: false,
            ..group
        };
        assert_eq!(server.allow(&there).unwrap(), (there, None));
        server.bits_per_s_max = Some(1_000);
        let slow = TrialSpec {
            rate_per_s: Some(1),
            ..trial(None)
        };
        assert_eq!(server.allow(&slow).unwrap(), (slow, None));
        let fast = TrialSpec {
            rate_per_s: Some(2),
            ..trial(None)
        };
        assert_eq!(server.allow(&fast).unwrap(), (slow, Some(1)));
    }

    #[test]
    fn a_small_datagram_costs_its_headers_and_a_large_one_those_of_its_fragments() {
        assert_eq!(packet_bytes(20), 90);
        assert_eq!(packet_bytes(1_448), 1_448 + 70);
        assert_eq!(packet_bytes(65_507), 65_507 + 46 * 70);
    }
}
