//! The settings that the owner gives a new receiver, and the limits and timers that follow from
//! them.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use base::PathId;

use super::{apdu::PartLimits, held::HeldStore, timing::Timing};
use crate::{Config, LateJoin};

/// The order in which a receiver gives data out. It never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the source's order, each message once; the receiver holds what comes early.
    Sequence,
    /// Each packet once, as it arrives; no packet waits for earlier ones.
    Arrival,
}

/// The identity of a receiver and the group it listens to.
#[derive(Clone, Copy, Debug)]
pub struct ReceiverSetup {
    /// The order in which data is given out.
    pub mode: Mode,
    /// The data-destination port: packets to another port are not for this receiver.
    pub destination_port: u16,
    /// The group or unicast address that data is sent to, and the UDP port. NAKs go to the same
    /// port, unless the source's mark names another.
    pub group: SocketAddr,
    /// The interface that packets leave by, until a sender is heard on another interface.
    pub path: PathId,
    /// The seed that determines every random choice.
    pub seed: u64,
    /// True when a stage between the network and the receiver checks and decrypts all packets with
    /// a key. Then data packets need no PGM checksum. The packets are genuine, but may be old
    /// recordings. So the receiver takes no data and requests none before the owner vouches for the
    /// sender ([`super::Receiver::vouch`]).
    pub is_protected: bool,
    /// This host's own address: requests from this address are this host's own, looped back.
    pub own_nla: IpAddr,
}

/// The bounds of everything that a receiver keeps, and how it joins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The most positions that a window spans.
    pub(super) span_max: u64,
    pub(super) gaps_max: usize,
    pub(super) page_bytes: usize,
    pub(super) pages_max: usize,
    pub(super) total_bytes: usize,
    /// The longest payload that parity can recover, in bytes.
    pub(super) payload_bytes_max: usize,
    /// The memory that each sender may take for parity, in bytes.
    pub(super) fec_bytes: usize,
    pub(super) parts: PartLimits,
    pub(super) peers_max: usize,
    pub(super) peer_expiry: Duration,
    pub(super) late_join: LateJoin,
    /// True when NAKs go to the address that SPMs name (path NLA); otherwise they go to the source.
    pub(super) asks_path: bool,
    /// True when the receiver asks only senders that the owner vouches for.
    pub(super) asks_known_only: bool,
    /// The most bytes of requests, in percent of the received bytes.
    pub(super) nak_share: u32,
    pub(super) timing: Timing,
    pub(super) spmr_delay: Duration,
    pub(super) spmr_interval: Duration,
    pub(super) spmr_retries: u32,
}

impl Limits {
    pub(super) fn new(config: &Config) -> Self {
        let window_bytes = config.rx_window_bytes();
        // Small pages (a 16th of `window_bytes` if possible) use up the memory limit in small
        // steps. But every page must hold the longest TSDU.
        let page_bytes = (window_bytes / 16).clamp(config.mtu().max(2048), PAGE_BYTES_MAX);
        Self {
            span_max: u64::from(config.rx_window_sqns()),
            gaps_max: config.rx_gaps_max() as usize,
            page_bytes,
            pages_max: (window_bytes / page_bytes).max(1),
            total_bytes: config.rx_total_bytes(),
            payload_bytes_max: config.mtu() - HEADS_BYTES,
            fec_bytes: config.rx_fec_bytes(),
            parts: PartLimits {
                apdu_bytes_max: config.apdu_bytes_max(),
                fragments_max: config.fragments_max(),
            },
            peers_max: config.peers_max() as usize,
            peer_expiry: config.peer_expiry(),
            late_join: config.late_join(),
            asks_path: config.network_elements(),
            asks_known_only: false,
            nak_share: config.nak_share(),
            timing: Timing::new(config),
            spmr_delay: config.spmr_delay(),
            spmr_interval: config.spmr_interval(),
            spmr_retries: config.spmr_retries(),
        }
    }

    /// Makes the store for held data, with a reserve for the longest message.
    pub(super) fn store(&self) -> HeldStore {
        HeldStore::new(self.total_bytes, self.page_bytes, self.parts.apdu_bytes_max)
    }
}

/// Length of the headers of IPv4, UDP and a data packet, in bytes.
const HEADS_BYTES: usize = 20 + 8 + wire::pgm::Data::HEAD_LEN;

/// The most bytes of a page of held data: the longest TSDU fits with its fragment description.
const PAGE_BYTES_MAX: usize = 65_536;
