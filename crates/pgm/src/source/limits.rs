//! The longest messages and packets, which follow from the configuration and the address family.
//!
//! In: the parameters. Out: [`Limits`], fixed for the life of a source.

use super::{SourceSetup, parity::Parity};
use crate::{Config, ip_udp_header_bytes};
use wire::pgm::MarkTag;

/// Sizes that follow from the configuration, in bytes unless a name says otherwise.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) tsdu: usize,
    pub(super) fragment_tsdu: usize,
    pub(super) apdu: usize,
    pub(super) apdu_limit: &'static str,
    pub(super) burst_bytes: usize,
    pub(super) backlog_bytes: usize,
    pub(super) backlog_sqns: u64,
    pub(super) datagram_overhead: usize,
}

impl Limits {
    pub(super) fn new(config: &Config, setup: &SourceSetup) -> Self {
        let added = if setup.is_protected() {
            MarkTag::PACKET_BYTES_MAX
        } else {
            0
        };
        let datagram_overhead = ip_udp_header_bytes(setup.nla) + added;
        let tpdu = config.mtu() - datagram_overhead;
        let syn = if config.send_syn() { SYN_BYTES } else { 0 };
        let parity = if config.fec_group() > 0 {
            Parity::BYTES_MAX
        } else {
            0
        };
        let row = if config.pack() { ROW_BYTES } else { 0 };
        let tsdu = tpdu - DATA_HEAD - (syn + row).max(parity);
        let fragment_tsdu = tpdu - DATA_HEAD - (syn + row + FRAGMENT_BYTES).max(parity);
        let (window, sqns) = (config.tx_window_bytes(), config.tx_window_sqns());
        let pieces = |fragments: u32| {
            let fragments = fragments.max(1) as usize;
            fragments.saturating_mul(fragment_tsdu).max(tsdu)
        };
        let bounds = [
            (config.apdu_bytes_max(), "apdu_bytes_max"),
            (pieces(config.fragments_max()), "fragments_max"),
            (pieces(sqns / 2), "tx_window_sqns"),
            // In the window, a message of n bytes takes n * tpdu / fragment_tsdu bytes.
            (window / 2 * fragment_tsdu / tpdu, "tx_window_bytes"),
        ];
        let mut apdu = bounds[0];
        for bound in bounds {
            if bound.0 < apdu.0 {
                apdu = bound;
            }
        }
        Self {
            tsdu,
            fragment_tsdu,
            // In a packet with several messages (a row), 4 bytes of length precede each message.
            apdu: apdu.0.saturating_sub(row.min(4)),
            apdu_limit: apdu.1,
            burst_bytes: window / 4,
            backlog_bytes: config.tx_backlog_bytes().min(window / 4),
            backlog_sqns: u64::from(sqns / 4).max(1),
            datagram_overhead,
        }
    }
}

/// Length of an ODATA packet's header and body together, in bytes.
pub(super) const DATA_HEAD: usize = wire::pgm::Data::HEAD_LEN;
/// Length of OPT_LENGTH and OPT_FRAGMENT together, in bytes.
pub(super) const FRAGMENT_BYTES: usize = 20;
/// Length of OPT_LENGTH and Towline's option for a row (several messages in one packet) together,
/// in bytes.
pub(super) const ROW_BYTES: usize = 12;
/// Length of OPT_LENGTH and OPT_SYN together, in bytes.
pub(super) const SYN_BYTES: usize = 8;
