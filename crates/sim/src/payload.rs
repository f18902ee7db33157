//! The content of the simulated messages: bytes that prove which message they are.
//!
//! PGM's own checksum has 16 bits, too few to find every bit error. So every message of at least 16
//! bytes carries a 64-bit checksum and its number. Every message, however short, is also compared
//! byte by byte with what was sent.
//!
//! ```text
//!   | checksum 8 | number 8 | bytes drawn from (stream, number) ... |     shorter ones are cut off
//! ```

use base::Rng;

/// Fills `out` with message `number` of `stream`.
pub fn fill(stream: u64, number: u64, out: &mut [u8]) {
    let mut rng = Rng::new(stream ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut head = [0_u8; HEAD_BYTES];
    head[8..].copy_from_slice(&number.to_be_bytes());
    if let Some(body) = out.get_mut(HEAD_BYTES..) {
        rng.fill(body);
    }
    let sum = checksum(stream, &head[8..], out.get(HEAD_BYTES..).unwrap_or(&[]));
    head[..8].copy_from_slice(&sum.to_be_bytes());
    let short = out.len().min(HEAD_BYTES);
    out[..short].copy_from_slice(&head[..short]);
}

/// Returns the number of the message in `bytes`, when it is a whole and intact message of `stream`.
#[must_use]
pub fn identify(stream: u64, bytes: &[u8]) -> Option<u64> {
    let (head, body) = bytes.split_at_checked(HEAD_BYTES)?;
    let (sum, number) = head.split_at(8);
    let is_intact = checksum(stream, number, body).to_be_bytes() == *sum;
    is_intact.then(|| u64::from_be_bytes(number.try_into().expect("split at 8 of 16")))
}

/// Computes FNV-1a over eight bytes at a time, mixed with the stream.
fn checksum(stream: u64, number: &[u8], body: &[u8]) -> u64 {
    let mut hash = Fnv::new(stream);
    hash.write(number);
    hash.write(body);
    hash.finish()
}

/// A 64-bit hash for checksums and for comparing runs; not for secrets.
#[derive(Clone, Copy, Debug)]
pub struct Fnv(u64);

impl Fnv {
    /// Makes a hash that starts from `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(0xcbf2_9ce4_8422_2325 ^ seed)
    }

    /// Adds bytes.
    pub fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.word(u64::from_le_bytes(word) ^ (chunk.len() as u64).rotate_left(56));
        }
    }

    /// Adds a number.
    pub const fn word(&mut self, word: u64) {
        self.0 = (self.0 ^ word)
            .wrapping_mul(0x0000_0100_0000_01b3)
            .rotate_left(29);
    }

    /// Returns the hash so far.
    #[must_use]
    pub const fn finish(self) -> u64 {
        let mixed = (self.0 ^ (self.0 >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        mixed ^ (mixed >> 32)
    }
}

/// Messages from this length on carry their checksum and number.
pub const HEAD_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_known_by_its_bytes_and_one_flipped_bit_is_seen() {
        for len in [16, 17, 100, 20_000] {
            let mut bytes = vec![0; len];
            fill(7, 42, &mut bytes);
            assert_eq!(identify(7, &bytes), Some(42));
            assert_eq!(identify(8, &bytes), None);
            bytes[len / 2] ^= 0x10;
            assert_eq!(identify(7, &bytes), None);
        }
        let mut short = [0; 3];
        fill(7, 42, &mut short);
        assert_ne!(short, [0; 3]);
        assert_eq!(identify(7, &short), None);
    }
}
