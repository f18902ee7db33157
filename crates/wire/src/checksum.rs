//! The Internet checksum: 16-bit one's complement sum, fast enough to add no time to a copy.
//!
//! A sum is kept as a 64-bit *partial*: it adds up words in the host's byte order. Only [`fold`]
//! turns a partial into the 16-bit value, which is the same on every host. When parts of a packet
//! begin at even offsets, their partials add up to the partial of the whole packet; [`join`]
//! handles odd offsets.
//!
//! ```text
//! bytes --sum--> partial --(+ partial)--> fold --> u16 --!--> checksum field (0 is sent as 0xFFFF)
//! ```
//!
//! **Spec**: RFC 1071, RFC 1624; RFC 3208 section 8 (zero means "no checksum").

/// Returns the partial sum of `bytes`; an odd last byte counts as if a zero followed it.
///
/// **Cost**: about 48 bytes a nanosecond; no allocation. Partials of 16 GiB cannot overflow.
#[inline]
#[must_use]
pub fn sum(bytes: &[u8]) -> u64 {
    // `whole` sums the 64-bit words modulo 2^64, and `high` sums their upper halves. The sum of the
    // lower halves follows from both. The compiler makes vector instructions of this loop by
    // itself.
    let (words, rest) = bytes.as_chunks::<8>();
    let (mut whole, mut high) = (0_u64, 0_u64);
    for word in words {
        let word = u64::from_ne_bytes(*word);
        whole = whole.wrapping_add(word);
        high += word >> 32;
    }
    whole.wrapping_sub(high << 32) + high + sum_rest(rest)
}

/// Copies `src` into `dst` and returns the partial sum of the bytes.
///
/// Works block by block, so that each byte is fetched from memory once.
///
/// **Panics** (bug): when the lengths differ.
#[inline]
pub fn copy_and_sum(dst: &mut [u8], src: &[u8]) -> u64 {
    assert_eq!(dst.len(), src.len(), "copy between slices of two lengths");
    let mut total = 0;
    for (to, from) in dst.chunks_mut(BLOCK).zip(src.chunks(BLOCK)) {
        to.copy_from_slice(from);
        total += sum(from);
    }
    total
}

/// Returns the partial of bytes whose 16-bit big-endian words add up to `words`.
#[inline]
#[must_use]
pub const fn of_words(words: u32) -> u64 {
    fold_u32(words).to_be() as u64
}

/// Joins the partials of two adjacent parts. The first part has `first_len` bytes.
///
/// Needed only where `first_len` may be odd; otherwise the two partials simply add up.
#[inline]
#[must_use]
pub const fn join(first: u64, first_len: usize, second: u64) -> u64 {
    if first_len.is_multiple_of(2) {
        first + second
    } else {
        first + fold_native(second).swap_bytes() as u64
    }
}

/// Returns the 16-bit one's complement sum of a partial: the same on every host.
#[inline]
#[must_use]
pub const fn fold(partial: u64) -> u16 {
    u16::from_be(fold_native(partial))
}

/// Returns the value of the checksum field for a packet with this partial. The partial must count
/// the field itself as zero.
///
/// Zero is reserved for "no checksum", so a computed zero becomes 0xFFFF.
#[inline]
#[must_use]
pub const fn finish(partial: u64) -> u16 {
    never_zero(!fold(partial))
}

/// Returns the checksum after one 16-bit word of the packet changed from `old` to `new`.
///
/// When `check` was right before, the result is what [`finish`] gives for the changed packet.
/// **Spec**: RFC 1624 equation 3.
#[inline]
#[must_use]
pub const fn adjust(check: u16, old: u16, new: u16) -> u16 {
    let sum = !check as u32 + !old as u32 + new as u32;
    never_zero(!fold_u32(sum))
}

/// Returns the checksum after one 32-bit field at an even offset changed from `old` to `new`.
#[inline]
#[must_use]
pub const fn adjust_u32(check: u16, old: u32, new: u32) -> u16 {
    let check = adjust(check, (old >> 16) as u16, (new >> 16) as u16);
    adjust(check, old as u16, new as u16)
}

/// Returns the partial of fewer than eight bytes.
#[inline]
fn sum_rest(bytes: &[u8]) -> u64 {
    let (word, rest) = match bytes.split_first_chunk::<4>() {
        Some((word, rest)) => (u64::from(u32::from_ne_bytes(*word)), rest),
        None => (0, bytes),
    };
    word + match *rest {
        [] => 0,
        [a] => u64::from(u16::from_ne_bytes([a, 0])),
        [a, b] => u64::from(u16::from_ne_bytes([a, b])),
        [a, b, c, ..] => u64::from(u32::from_ne_bytes([a, b, c, 0])),
    }
}

const fn fold_u32_halves(partial: u64) -> u64 {
    (partial & 0xFFFF_FFFF) + (partial >> 32)
}

#[inline]
const fn fold_native(partial: u64) -> u16 {
    let partial = fold_u32_halves(partial);
    let partial = fold_u32_halves(partial) as u32;
    fold_u32(partial)
}

#[inline]
const fn fold_u32(sum: u32) -> u16 {
    let sum = (sum & 0xFFFF) + (sum >> 16);
    ((sum & 0xFFFF) + (sum >> 16)) as u16
}

const fn never_zero(check: u16) -> u16 {
    if check == 0 { 0xFFFF } else { check }
}

/// Number of bytes in a block of [`copy_and_sum`]. A block stays in the first-level cache. It is
/// also short enough for the C library to copy it without string instructions, which are slow to
/// start.
const BLOCK: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(fold(sum(&bytes)), 0xddf2);
        assert_eq!(finish(sum(&bytes)), 0x220d);
    }

    #[test]
    fn zero_is_never_sent() {
        assert_eq!(finish(sum(&[0xff, 0xff])), 0xffff);
        assert_eq!(finish(0), 0xffff);
    }

    #[test]
    fn parts_join_at_odd_offsets() {
        let bytes: Vec<u8> = (0..=255).collect();
        for cut in 0..=bytes.len() {
            let (a, b) = bytes.split_at(cut);
            let joined = join(sum(a), a.len(), sum(b));
            assert_eq!(fold(joined), fold(sum(&bytes)), "cut at {cut}");
        }
    }
}
