//! One datagram on the simulated wire, and what bit errors do to it.

use std::{net::SocketAddr, rc::Rc};

use base::{PathId, Rng};

use crate::EndpointId;

/// A datagram in flight. Cloning shares the bytes.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The UDP payload.
    pub bytes: Rc<[u8]>,
    /// Who sent it.
    pub from: EndpointId,
    /// The path that the sender chose.
    pub path: PathId,
    /// Network source address and UDP source port.
    pub source: SocketAddr,
    /// Network destination.
    pub to: SocketAddr,
    /// Time to live.
    pub hops: u8,
    /// True when the payload has a bit error that the PGM checksum does not notice.
    pub is_tainted: bool,
    /// The bytes as sent, once a bit error has changed them: several errors may hit one datagram.
    pub sent: Option<Rc<[u8]>>,
}

impl Frame {
    /// Changes some bytes and corrects the checksum, as a host on the path can.
    pub fn forge(&mut self, rng: &mut Rng) {
        let mut bytes = self.bytes.to_vec();
        forge(&mut bytes, rng);
        self.sent.get_or_insert_with(|| self.bytes.clone());
        self.bytes = bytes.into();
    }

    /// Flips up to `bits_max` random bits.
    ///
    /// When the Internet checksum misses an error in the data of ODATA or RDATA, the frame is
    /// tainted. If the checksum misses an error elsewhere, the bits are drawn again. After 32 such
    /// draws the frame stays as it is. A header that is wrong and looks right is a forgery, which
    /// 16 bits cannot prevent.
    pub fn corrupt(&mut self, bits_max: u32, rng: &mut Rng) {
        if self.bytes.is_empty() {
            return;
        }
        let sent = self.sent.clone().unwrap_or_else(|| self.bytes.clone());
        let data_at = data_start(&sent);
        for _ in 0..DRAWS_MAX {
            let mut bytes = self.bytes.to_vec();
            for _ in 0..rng.between(1, u64::from(bits_max.max(1))) {
                let bit = index(rng.below(bytes.len() as u64 * 8));
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            let is_clean = bytes[..] == sent[..];
            let is_hidden = !is_clean && ones_sum(&bytes) == ones_sum(&sent);
            if !is_hidden || bytes[..data_at] == sent[..data_at] {
                self.is_tainted = is_hidden;
                self.bytes = bytes.into();
                self.sent = Some(sent);
                return;
            }
        }
    }
}

/// Changes 1 to 4 of the first 128 bytes of a packet, and writes its checksum anew.
pub(crate) fn forge(tpdu: &mut [u8], rng: &mut Rng) {
    for _ in 0..rng.between(1, 4) {
        if let Some(byte) = tpdu.get_mut(index(rng.below(128))) {
            *byte = rng.next_u32() as u8;
        }
    }
    seal(tpdu);
}

/// Writes the correct checksum of a packet.
pub(crate) fn seal(tpdu: &mut [u8]) {
    if tpdu.len() >= 8 {
        tpdu[6..8].fill(0);
        // A field of zero would say that there is no checksum.
        let sum = match !ones_sum(tpdu) {
            0 => 0xffff,
            sum => sum,
        };
        tpdu[6..8].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Returns where the payload of an ODATA or RDATA starts; the end of the packet for everything
/// else, and for data without a checksum.
fn data_start(tpdu: &[u8]) -> usize {
    let is_data = tpdu.len() >= 24 && matches!(tpdu[4], 0x04 | 0x05);
    let has_checksum = is_data && tpdu[6..8] != [0, 0];
    if !has_checksum {
        return tpdu.len();
    }
    tpdu.len()
        .saturating_sub(usize::from(u16::from_be_bytes([tpdu[14], tpdu[15]])))
}

/// Returns the sum of the Internet checksum. It is not computed by `wire`, whose checksum it tests.
pub(crate) fn ones_sum(bytes: &[u8]) -> u16 {
    let mut sum: u64 = 0;
    for pair in bytes.chunks(2) {
        sum += u64::from(u16::from_be_bytes([
            pair[0],
            pair.get(1).copied().unwrap_or(0),
        ]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    // Ones' complement arithmetic has two zeros; both count as 0 here.
    if sum == 0xffff {
        0
    } else {
        u16::try_from(sum).unwrap_or(0)
    }
}

/// Returns a number as an index; the number is below the length of something in memory.
pub(crate) fn index(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

const DRAWS_MAX: u32 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn odata(payload: usize) -> Frame {
        let mut bytes = vec![0_u8; 24 + payload];
        Rng::new(1).fill(&mut bytes[24..]);
        bytes[4] = 4;
        bytes[6] = 1;
        bytes[14..16].copy_from_slice(&u16::try_from(payload).unwrap().to_be_bytes());
        Frame {
            bytes: bytes.into(),
            from: EndpointId(0),
            path: PathId(0),
            source: SocketAddr::from(([10, 0, 0, 1], 1)),
            to: SocketAddr::from(([239, 1, 1, 1], 7500)),
            hops: 1,
            is_tainted: false,
            sent: None,
        }
    }

    #[test]
    fn a_hidden_error_taints_and_stays_in_the_data() {
        let (clean, mut rng) = (odata(64), Rng::new(3));
        let mut tainted = 0;
        for _ in 0..3_000 {
            let mut frame = clean.clone();
            frame.corrupt(4, &mut rng);
            if rng.chance(1, 2) {
                frame.corrupt(4, &mut rng);
            }
            let is_clean = frame.bytes == clean.bytes;
            let is_hidden = !is_clean && ones_sum(&frame.bytes) == ones_sum(&clean.bytes);
            assert_eq!(frame.is_tainted, is_hidden);
            assert!(!is_hidden || frame.bytes[..24] == clean.bytes[..24]);
            tainted += u32::from(is_hidden);
        }
        assert!(tainted > 0, "two flips in one column must happen");
    }
}
