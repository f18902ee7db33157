//! How a session begins: everything that follows from its configuration, decided here alone.
//!
//! The owner says where the session is and who takes part; the programs draw identifiers from the
//! system, a simulation from its seed. Everything else is decided here, the same for both: whether
//! the rate follows the receivers, how often receivers report, what the mark says, and which
//! windows a sender of files has.

use std::net::{IpAddr, SocketAddr};

use base::{Instant, PathId};
use delivery::{AudienceConfig, Policy, RateConfig, SlowPolicy};
use pgm::{Config, Mode, Rate, Receiver, ReceiverSetup, Source, SourceSetup, fec::Combine};
use wire::pgm::{Gsi, Mark, Profile, Tsi};

/// What tells a session from all others. Nobody off the path may be able to guess it.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    /// The session's number in marks and control conversations.
    pub session_id: u64,
    /// The transport session identifier of its packets.
    pub tsi: Tsi,
    /// The first sequence number.
    pub first_sqn: u32,
    /// For every other random choice.
    pub seed: u64,
}

impl Identity {
    /// Draws an identity for a session to this PGM port from 64 random bits at a time.
    ///
    /// # Errors
    /// What `random` fails with.
    pub fn draw<E>(
        destination_port: u16,
        mut random: impl FnMut() -> Result<u64, E>,
    ) -> Result<Self, E> {
        let session_id = random()?;
        let bits = random()?.to_le_bytes();
        let [a, b, c, d, e, f, high, low] = bits;
        let port = u16::from_le_bytes([high, low]);
        // The two ports of a session must differ (RFC 3208 section 8).
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
    /// Where data goes.
    pub group: SocketAddr,
    /// The PGM data-destination port; mostly the group's UDP port.
    pub destination_port: u16,
    /// The sender's own address.
    pub own: IpAddr,
    /// The TCP port on which receivers report; `None` when they are not asked to.
    pub control_port: Option<u16>,
    /// The UDP port on which NAKs and SPMRs arrive where it is not the group's, which another
    /// sender of this host has. 0: the group's.
    pub upstream_port: u16,
    /// The identity of this end.
    pub identity: Identity,
    /// What computes parity.
    pub combine: Combine,
}

impl Sending {
    /// The PGM source that marks its session with `profile`.
    pub(crate) fn source(&self, profile: Profile, now: Instant) -> Source {
        let mut mark = Mark::new(profile, self.identity.session_id);
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
    /// Where data comes to.
    pub group: SocketAddr,
    /// The PGM data-destination port; mostly the group's UDP port.
    pub destination_port: u16,
    /// The receiver's own address.
    pub own: IpAddr,
    /// For every random choice.
    pub seed: u64,
    /// What recovers packets from parity.
    pub combine: Combine,
}

impl Receiving {
    /// The PGM receiver.
    pub(crate) fn receiver(&self, mode: Mode, now: Instant) -> Receiver {
        let setup = ReceiverSetup {
            mode,
            destination_port: self.destination_port,
            group: self.group,
            path: PathId(0),
            seed: self.seed,
            own_nla: self.own,
        };
        let mut receiver = Receiver::new(self.config, setup, now);
        receiver.set_combine(self.combine);
        receiver
    }
}

/// The settings of a message sender's audience that are not its owner's choice.
pub(crate) fn settle_audience(audience: &mut AudienceConfig, config: &Config) {
    audience.report_sqns = report_sqns(config, audience.expected);
    audience.rate = rate_control(config, audience.policy == Policy::Wait);
}

/// The settings of a transfer sender that are not its owner's choice.
pub(crate) fn settle_transfer(transfer: &mut delivery::TransferSenderConfig, config: &Config) {
    transfer.report_sqns = report_sqns(config, transfer.expected_count());
    transfer.rate = rate_control(config, transfer.slow == SlowPolicy::Wait);
}

/// With a rate that nobody set, and a sender that waits for its receivers, the rate follows their
/// reports. By the other policies a receiver that is slow slows nobody down, whatever the reason.
fn rate_control(config: &Config, waits: bool) -> Option<RateConfig> {
    (config.rate() == Rate::Auto && waits).then(RateConfig::default)
}

/// Packets after which a receiver reports at the latest: a quarter of the flow window, so that
/// waiting for reports does not limit the rate; more with many receivers, so that their reports
/// stay few.
fn report_sqns(config: &Config, receivers: u32) -> u32 {
    let in_bytes = config.flow_window_bytes() / 4 / config.mtu();
    let sqns = (config.flow_window_sqns() / 4).min(u32::try_from(in_bytes).unwrap_or(u32::MAX));
    sqns.max(1).saturating_mul((receivers / 8).max(1))
}
