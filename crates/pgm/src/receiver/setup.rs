//! What a receiver is told at its beginning, and the limits and timers that follow from it.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use base::{PathId, Rng};

use super::{apdu::PartLimits, held::HeldStore};
use crate::{Config, LateJoin};

/// The order in which a receiver gives data out. Fixed for its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the source's order, each message once; what comes early is held.
    Sequence,
    /// Each packet once, as it arrives; nothing is held.
    Arrival,
}

/// Who a receiver is and what it listens to.
#[derive(Clone, Copy, Debug)]
pub struct ReceiverSetup {
    /// The order in which data is given out.
    pub mode: Mode,
    /// The data-destination port: packets to another one are not ours.
    pub destination_port: u16,
    /// The group that data is sent to, with the UDP port that NAKs go to as well. May be unicast.
    pub group: SocketAddr,
    /// The interface that packets leave by until a sender was heard on another.
    pub path: PathId,
    /// Determines every random choice.
    pub seed: u64,
    /// This host's own address: requests that come from it are our own, looped back.
    pub own_nla: IpAddr,
}

/// The timers of NAK generation. One value a session, so that each can follow its own group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    /// Bounds of the random wait before a NAK (NAK_RB_IVL within NAK_BO_IVL).
    pub(super) back_off_min: Duration,
    pub(super) back_off_max: Duration,
    /// NAK_RPT_IVL.
    pub(super) wait_ncf: Duration,
    /// NAK_RDATA_IVL.
    pub(super) wait_data: Duration,
    /// NAK_NCF_RETRIES and NAK_DATA_RETRIES.
    pub(super) ncf_tries_max: u16,
    pub(super) data_tries_max: u16,
    /// Nothing is given up sooner.
    pub(super) repair_time_max: Duration,
    /// Between two looks at all gaps: bounds the work of a receiver with very many.
    pub(super) scan_interval: Duration,
}

impl Timing {
    fn new(config: &Config) -> Self {
        let back_off_max = config.nak_backoff_max();
        Self {
            back_off_min: config.nak_backoff_min(),
            back_off_max,
            wait_ncf: config.nak_repeat_interval(),
            wait_data: config.nak_rdata_interval(),
            ncf_tries_max: u16::try_from(config.nak_ncf_retries()).unwrap_or(u16::MAX),
            data_tries_max: u16::try_from(config.nak_data_retries()).unwrap_or(u16::MAX),
            repair_time_max: config.repair_time_max(),
            scan_interval: (back_off_max / 16).min(SCAN_INTERVAL_MAX),
        }
    }

    /// A random wait before a NAK. Never zero: nothing is asked for at the moment it is missed.
    pub(super) fn draw_back_off(&self, rng: &mut Rng) -> Duration {
        let spread = self.back_off_max.saturating_sub(self.back_off_min);
        let wait = self.back_off_min + rng.duration_up_to(spread);
        wait.max(Duration::from_nanos(1))
    }

    /// How long another receiver's NAK silences ours.
    pub(super) fn wait_silenced(&self) -> Duration {
        self.wait_ncf.max(self.wait_data)
    }
}

/// The bounds of everything that a receiver keeps, and how it joins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Positions that a window spans at most.
    pub(super) span_max: u64,
    pub(super) gaps_max: usize,
    pub(super) page_bytes: usize,
    pub(super) pages_max: usize,
    pub(super) total_bytes: usize,
    pub(super) parts: PartLimits,
    pub(super) peers_max: usize,
    pub(super) peer_expiry: Duration,
    pub(super) late_join: LateJoin,
    pub(super) timing: Timing,
    pub(super) spmr_delay: Duration,
    pub(super) spmr_interval: Duration,
    pub(super) spmr_retries: u32,
}

impl Limits {
    pub(super) fn new(config: &Config) -> Self {
        let window_bytes = config.rx_window_bytes();
        // A page must hold the longest TSDU; several pages make the bound a fine one.
        let page_bytes = (window_bytes / 16).clamp(config.mtu().max(2048), PAGE_BYTES_MAX);
        Self {
            span_max: u64::from(config.rx_window_sqns()),
            gaps_max: config.rx_gaps_max() as usize,
            page_bytes,
            pages_max: (window_bytes / page_bytes).max(1),
            total_bytes: config.rx_total_bytes(),
            parts: PartLimits {
                apdu_bytes_max: config.apdu_bytes_max(),
                fragments_max: config.fragments_max(),
            },
            peers_max: config.peers_max() as usize,
            peer_expiry: config.peer_expiry(),
            late_join: config.late_join(),
            timing: Timing::new(config),
            spmr_delay: config.spmr_delay(),
            spmr_interval: config.spmr_interval(),
            spmr_retries: config.spmr_retries(),
        }
    }

    /// The store for held data, with room kept for the longest message.
    pub(super) fn store(&self) -> HeldStore {
        HeldStore::new(self.total_bytes, self.page_bytes, self.parts.apdu_bytes_max)
    }
}

/// Bytes of a page of held data: the longest TSDU and its fragment description fit.
const PAGE_BYTES_MAX: usize = 65_536;

/// Longest pause between two looks at all gaps: what a timer of the host is late by anyway.
const SCAN_INTERVAL_MAX: Duration = Duration::from_micros(50);
