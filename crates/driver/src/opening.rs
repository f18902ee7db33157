//! How a session begins, and what follows from its configuration.
//!
//! The owner says where the session is and who takes part. Programs draw identifiers from the
//! operating system; a simulation draws them from its seed. For both, this file decides the rest:
//! whether the rate follows the receivers, how often receivers report, and what the mark says.
//!
//! **Spec**: `docs/src/protocol.md` section 2 (the mark).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use base::{Instant, PathId};
use delivery::{AudienceConfig, Policy, RateConfig, SlowPolicy};
use pgm::{Config, Mode, Rate, Receiver, ReceiverSetup, Source, SourceSetup, fec::Combine};
use protection::{Key, PacketProtection};
use wire::{
    Sqn,
    pgm::{Gsi, Mark, Profile, Tsi},
};

/// The values that distinguish a session from all others. A host that does not see the packets must
/// not be able to guess them.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    /// The session's number in marks and control conversations.
    pub session_id: u64,
    /// The transport session identifier of its packets.
    pub tsi: Tsi,
    /// The sequence number of the session's first data packet.
    pub first_sqn: u32,
    /// The seed for the random choices that the sender makes during the session.
    pub seed: u64,
}

impl Identity {
    /// Draws an identity for a session to `destination_port`; each call of `random` gives 64 random
    /// bits.
    ///
    /// # Errors
    /// The error of `random`.
    pub fn draw<E>(
        destination_port: u16,
        mut random: impl FnMut() -> Result<u64, E>,
    ) -> Result<Self, E> {
        let session_id = random()?;
        let bits = random()?.to_le_bytes();
        let [a, b, c, d, e, f, high, low] = bits;
        let port = u16::from_le_bytes([high, low]);
        // A session's source port must differ from its destination port (RFC 3208 section 8).
        let port = if port == destination_port || port == 0 {
            destination_port ^ 1
        } else {
            port
        };
        let gsi = Gsi([a, b, c, d, e, f]);
        Ok(Self {
            session_id,
            tsi: Tsi { gsi, port },
            first_sqn: random()? as u32,
            seed: random()?,
        })
    }
}

/// A sending session, before it is opened.
#[derive(Clone, Copy, Debug)]
pub struct Sending {
    /// Protocol parameters.
    pub config: Config,
    /// The address and UDP port that data is sent to.
    pub group: SocketAddr,
    /// The PGM data-destination port; usually equal to the group's UDP port.
    pub destination_port: u16,
    /// The sender's own address.
    pub own: IpAddr,
    /// The TCP port on which receivers report; `None` when the sender asks for no reports.
    pub control_port: Option<u16>,
    /// The UDP port at which this sender takes NAKs and SPMRs, if another sender on this host has
    /// the group's port; 0 for the group's port.
    pub upstream_port: u16,
    /// The identity of this session.
    pub identity: Identity,
    /// The other feed's own address, when this session is one of the two feeds of a sender; set by
    /// [`Sending::pair`].
    pub partner: Option<IpAddr>,
    /// The function that computes parity.
    pub combine: Combine,
}

impl Sending {
    /// Makes this session and `other` the two feeds of one sender. Receivers recognize the pair by
    /// the two TSIs and, without a key, also by the addresses in the marks.
    pub fn pair(&mut self, other: &mut Self) {
        let taken = [0, self.destination_port, other.destination_port];
        let mut tsi = self.identity.tsi;
        // A session's source port must differ from its destination port (RFC 3208 section 8).
        while taken.contains(&tsi.port) || taken.contains(&tsi.partner().port) {
            tsi.port = tsi.port.wrapping_add(2);
        }
        self.identity.tsi = tsi;
        other.identity.tsi = tsi.partner();
        (self.partner, other.partner) = (Some(other.own), Some(self.own));
    }

    /// Makes the protection of this end's packets with `key`; `None` without a key. Give the
    /// endpoint of this session the same key, so that its mark says that packets are protected.
    #[must_use]
    pub fn protection(&self, key: Option<Key>) -> Option<PacketProtection> {
        let Identity {
            tsi,
            session_id,
            first_sqn,
            ..
        } = self.identity;
        let first = Sqn(first_sqn);
        key.map(|key| PacketProtection::source(key, tsi, session_id, self.own, first))
    }

    /// Makes the PGM source, which marks its session with `profile`.
    pub(crate) fn source(&self, profile: Profile, is_protected: bool, now: Instant) -> Source {
        let mut mark = Mark::new(profile, self.identity.session_id);
        if is_protected {
            mark = mark.protected();
        } else if profile == Profile::Frames {
            let none = Ipv4Addr::UNSPECIFIED.into();
            mark = mark.with_partner(Some(self.partner.unwrap_or(none)));
        }
        mark.control_port = self.control_port.unwrap_or(0);
        mark.upstream_port = self.upstream_port;
        let setup = SourceSetup {
            tsi: self.identity.tsi,
            destination_port: self.destination_port,
            group: self.group,
            nla: self.own,
            path: PathId(0),
            first_sqn: self.identity.first_sqn,
            seed: self.identity.seed,
            mark: Some(mark),
        };
        let mut source = Source::new(self.config, setup, now);
        source.set_combine(self.combine);
        source
    }
}

/// A receiving session, before it is opened.
#[derive(Clone, Copy, Debug)]
pub struct Receiving {
    /// Protocol parameters.
    pub config: Config,
    /// The group's address and UDP port, to which data is sent.
    pub group: SocketAddr,
    /// The PGM data-destination port; usually equal to the group's UDP port.
    pub destination_port: u16,
    /// The receiver's own address.
    pub own: IpAddr,
    /// The seed that determines every random choice of this receiver.
    pub seed: u64,
    /// A random number that no other receiver has; it tells the receivers' protected packets apart.
    pub instance: u64,
    /// The function that recovers packets from parity.
    pub combine: Combine,
}

impl Receiving {
    /// Makes the protection of this end's packets with `key`; `None` without a key. Give the
    /// endpoint of this session the same key.
    #[must_use]
    pub fn protection(&self, key: Option<Key>) -> Option<PacketProtection> {
        key.map(|key| PacketProtection::receiver(key, self.instance))
    }

    /// Makes the PGM receiver.
    pub(crate) fn receiver(&self, mode: Mode, is_protected: bool, now: Instant) -> Receiver {
        let setup = ReceiverSetup {
            mode,
            destination_port: self.destination_port,
            group: self.group,
            path: PathId(0),
            seed: self.seed,
            is_protected,
            own_nla: self.own,
        };
        let mut receiver = Receiver::new(self.config, setup, now);
        receiver.set_combine(self.combine);
        receiver
    }
}

/// Sets how often the receivers of messages report, and whether the rate follows the reports.
pub(crate) fn settle_audience(audience: &mut AudienceConfig, config: &Config) {
    audience.report_sqns = report_sqns(config, audience.expected);
    audience.rate = rate_control(config, audience.policy == Policy::Wait);
}

/// Sets how often the receivers of a transfer report, and whether the rate follows the reports.
pub(crate) fn settle_transfer(transfer: &mut delivery::TransferSenderConfig, config: &Config) {
    transfer.report_sqns = report_sqns(config, transfer.expected_count());
    transfer.rate = rate_control(config, transfer.slow == SlowPolicy::Wait);
}

/// Returns the settings for a rate that follows the receivers' reports. `None` when the user set a
/// rate, or when the sender does not wait for slow receivers: these must then slow down nobody.
fn rate_control(config: &Config, waits: bool) -> Option<RateConfig> {
    (config.rate() == Rate::Auto && waits).then(RateConfig::default)
}

/// Returns the number of packets after which a receiver reports at the latest. It is a quarter of
/// the flow window, so that waiting for reports does not limit the rate. From 16 receivers on, it
/// grows with the number of receivers, so that reports stay few.
fn report_sqns(config: &Config, receivers: u32) -> u32 {
    let in_bytes = config.flow_window_bytes() / 4 / config.mtu();
    let sqns = (config.flow_window_sqns() / 4).min(u32::try_from(in_bytes).unwrap_or(u32::MAX));
    sqns.max(1).saturating_mul((receivers / 8).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_feeds_have_partner_identifiers_and_no_port_of_theirs_is_an_application() {
        let sending = |destination_port, port| Sending {
            config: Config::default(),
            group: ([239, 192, 0, 1], destination_port).into(),
            destination_port,
            own: [10, 0, 0, 1].into(),
            control_port: None,
            upstream_port: 0,
            identity: Identity {
                session_id: 1,
                tsi: Tsi {
                    gsi: Gsi([1; 6]),
                    port,
                },
                first_sqn: 0,
                seed: 0,
            },
            partner: None,
            combine: pgm::fec::combine,
        };
        for (ports, drawn, expected) in [
            ([7500, 7600], 40_000, 40_000),
            ([7500, 7600], 7501, 7503),
            ([7500, 7502], 7501, 7505),
            ([7500, 7600], 1, 3),
            ([7500, 7600], u16::MAX, u16::MAX),
        ] {
            let [mut one, mut other] = ports.map(|port| sending(port, drawn));
            one.pair(&mut other);
            assert_eq!(one.identity.tsi.port, expected);
            assert_eq!(other.identity.tsi, one.identity.tsi.partner());
            assert_eq!(
                (one.partner, other.partner),
                (Some(other.own), Some(one.own))
            );
        }
    }

    #[test]
    fn the_identifier_of_a_session_is_drawn_anew() {
        let mut number = 0_u64;
        let mut random = || {
            number += 1;
            Ok::<_, ()>(number.wrapping_mul(0x9E37_79B9_7F4A_7C15))
        };
        let mut draw = || Identity::draw(7500, &mut random).unwrap().tsi;
        let mut drawn: Vec<_> = (0..1000).map(|_| draw()).collect();
        assert!(drawn.iter().all(|tsi| tsi.port != 7500 && tsi.port != 0));
        drawn.sort_unstable_by_key(|tsi| (tsi.gsi.0, tsi.port));
        drawn.dedup();
        assert_eq!(drawn.len(), 1000);
        // The port is never that of the application, whatever is drawn.
        let bits = u64::from(7500_u16) << 48;
        let tsi = Identity::draw(7500, || Ok::<_, ()>(bits)).unwrap().tsi;
        assert_eq!((tsi.gsi, tsi.port), (Gsi([0; 6]), 7501));
    }
}
