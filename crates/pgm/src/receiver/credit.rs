//! How many bytes of requests (NAKs, SPMRs) a receiver may send to one sender: no more than the
//! sender's packets are worth.
//!
//! Without this limit, one SPM with a forged source address would make each receiver of a group
//! send any number of NAKs to one host. So would one SPM whose lead is beyond the last packet
//! sent. This module is told how much of the session has arrived, and how many bytes of requests
//! were sent. It says how many may be sent now.
//!
//! ```text
//!   packet arrives --> a short NAK's bytes, or its share of bytes ----> credit --> NAKs, SPMRs
//!                                                                           |  at most CREDIT_MAX
//!   no request was ever answered: each wait between turns of asking is twice the last
//! ```
//!
//! A short NAK asks for a single packet, and each packet that arrives pays for one short NAK. In a
//! longer NAK, each further packet costs four bytes, and the repair that answers brings far more
//! credit. So credit does not limit a receiver whose sender answers.
//!
//! Invariant: the bytes sent to one sender are at most the credit that its packets brought, plus
//! one NAK. A data packet with one byte of payload brings 1.2 times its length over IPv4 (64 bytes
//! of credit for a packet of 53), and 1.5 times over IPv6 (108 bytes for a packet of 73).

use std::{net::IpAddr, time::Duration};

use super::outbox::SQNS_A_NAK;
use crate::ip_udp_header_bytes;

/// How much a receiver may ask of one session's sender.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Credit {
    /// How many bytes of requests may be sent now, IP and UDP headers included. Below zero after a
    /// request that was longer than expected.
    bytes: i64,
    /// How many of the received packets, and how many of their bytes, have had their credit added
    /// to `bytes`.
    packets_seen: u64,
    bytes_seen: u64,
    /// Number of SPMs, POLLs, confirmations, parity packets, and data packets that were duplicates
    /// or could not be kept.
    other_packets: u64,
    /// True when the sender has answered a request with a confirmation or a repair.
    is_answered: bool,
    /// How many times the pause between two turns of asking has been doubled.
    doublings: u32,
}

impl Credit {
    /// Counts a packet that arrived. Data packets that were kept are not counted here.
    pub(super) const fn heard(&mut self) {
        self.other_packets += 1;
    }

    /// Notes that the sender confirmed a request.
    pub(super) const fn confirmed(&mut self) {
        self.other_packets += 1;
        self.answered();
    }

    /// Notes that the sender answered a request.
    pub(super) const fn answered(&mut self) {
        self.is_answered = true;
        self.doublings = 0;
    }

    /// Adds the credit for packets that arrived since the last call. `packets` and `bytes` count
    /// all data kept from `source` so far. Each new packet earns the length of a NAK for one
    /// packet. The new bytes earn `share_percent` percent of their number. The larger sum is added.
    pub(super) fn earn(&mut self, source: IpAddr, packets: u64, bytes: u64, share_percent: u32) {
        let packets = packets + self.other_packets;
        let each = (packets - self.packets_seen).saturating_mul(NakBytes::of(source).short);
        let share = (bytes - self.bytes_seen).saturating_mul(u64::from(share_percent)) / 100;
        (self.packets_seen, self.bytes_seen) = (packets, bytes);
        let earned = i64::try_from(each.max(share)).unwrap_or(i64::MAX);
        self.bytes = self.bytes.saturating_add(earned).min(CREDIT_MAX);
    }

    /// Returns how many sequence numbers may be asked for.
    pub(super) fn sqns(&self, source: IpAddr) -> u64 {
        let nak = NakBytes::of(source);
        let bytes = u64::try_from(self.bytes).unwrap_or(0);
        let (full, rest) = (bytes / nak.full(), bytes % nak.full());
        let listed = rest.saturating_sub(nak.short + LIST_BYTES) / SQN_BYTES;
        let last = u64::from(rest >= nak.short) + listed;
        full * SQNS_A_NAK as u64 + last
    }

    /// Returns true when a request of `bytes` may be sent.
    pub(super) fn affords(&self, bytes: u64) -> bool {
        i64::try_from(bytes).is_ok_and(|bytes| bytes <= self.bytes)
    }

    /// Pays for `packets` packets sent to `source`. Their total length is `bytes` bytes without IP
    /// and UDP headers.
    pub(super) fn spend(&mut self, source: IpAddr, packets: u64, bytes: u64) {
        let all = bytes + packets * ip_udp_header_bytes(source) as u64;
        let all = i64::try_from(all).unwrap_or(i64::MAX);
        self.bytes = self.bytes.saturating_sub(all);
    }

    /// Returns the time from one turn of asking to the next: `turn` once the sender has answered a
    /// request. Until then, the time doubles from turn to turn, up to [`TURN_MAX`].
    pub(super) fn turn(&self, turn: Duration) -> Duration {
        (turn * (1 << self.doublings)).min(TURN_MAX).max(turn)
    }

    /// Notes the end of a turn in which the receiver asked for something.
    pub(super) fn turn_ended(&mut self) {
        if !self.is_answered {
            self.doublings = (self.doublings + 1).min(DOUBLINGS_MAX);
        }
    }
}

/// Lengths of NAKs in bytes, with IP and UDP headers.
struct NakBytes {
    /// Length of a NAK for one packet.
    short: u64,
}

impl NakBytes {
    const fn of(source: IpAddr) -> Self {
        let addresses = if source.is_ipv4() { 2 * 8 } else { 2 * 20 };
        let short = ip_udp_header_bytes(source) as u64 + 16 + 4 + addresses;
        Self { short }
    }

    const fn full(&self) -> u64 {
        self.short + LIST_BYTES + SQN_BYTES * (SQNS_A_NAK as u64 - 1)
    }
}

/// Length of OPT_LENGTH and the head of OPT_NAK_LIST, in bytes.
const LIST_BYTES: u64 = 8;
const SQN_BYTES: u64 = 4;
/// Judgement: the most credit, in bytes. It is enough to ask at once for 50,000 packets that went
/// missing while this host stood still.
const CREDIT_MAX: i64 = 256 << 10;
/// Judgement: the limit of doubling the time between two turns of asking a sender that has answered
/// no request. A time that is longer undoubled stays as it is.
const TURN_MAX: Duration = Duration::from_secs(1);
const DOUBLINGS_MAX: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn a_packet_is_worth_a_short_nak_or_its_share() {
        let mut credit = Credit::default();
        assert_eq!(credit.sqns(SOURCE), 0);
        credit.heard();
        credit.earn(SOURCE, 0, 0, 5);
        assert!(credit.affords(64) && !credit.affords(65));
        assert_eq!(credit.sqns(SOURCE), 1);
        credit.spend(SOURCE, 1, 36);
        assert_eq!(credit.sqns(SOURCE), 0);
        credit.earn(SOURCE, 2, 2800, 5);
        assert_eq!(credit.sqns(SOURCE), 1 + (2800 / 20 - 72) / 4);
        credit.earn(SOURCE, 2, 2800, 5);
        assert_eq!(credit.sqns(SOURCE), 18, "each packet counts once");
    }

    #[test]
    fn credit_is_bounded_and_may_be_overdrawn_by_one_nak() {
        let mut credit = Credit::default();
        credit.earn(SOURCE, 1_000_000, 1_400_000_000, 5);
        let sqns = credit.sqns(SOURCE);
        assert!((50_000..52_000).contains(&sqns), "{sqns}");
        credit.spend(SOURCE, 820, 820 * 292 + 300);
        assert_eq!(credit.sqns(SOURCE), 0);
    }

    #[test]
    fn who_never_answers_is_asked_ever_less_often() {
        let ms = Duration::from_millis;
        let mut credit = Credit::default();
        let mut times = Vec::new();
        for _ in 0..12 {
            times.push(credit.turn(ms(2)).as_millis());
            credit.turn_ended();
        }
        assert_eq!(
            times,
            [2, 4, 8, 16, 32, 64, 128, 256, 512, 1000, 1000, 1000]
        );
        credit.confirmed();
        credit.turn_ended();
        assert_eq!(credit.turn(ms(2)), ms(2));
        assert_eq!(credit.turn(ms(3000)), ms(3000), "a long back-off is kept");
    }
}
