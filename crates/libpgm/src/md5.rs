//! The MD5 digest (RFC 1321). It protects nothing here: its last six bytes are a global session
//! identifier (RFC 3208 section 8).

/// Returns the digest of `data`.
pub(crate) fn digest(data: &[u8]) -> [u8; 16] {
    let mut padded = data.to_vec();
    padded.push(0x80);
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    padded.extend_from_slice(&(data.len() as u64 * 8).to_le_bytes());
    let mut state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    for block in padded.chunks_exact(64) {
        add_block(&mut state, block);
    }
    let mut digest = [0; 16];
    for (place, word) in digest.chunks_exact_mut(4).zip(state) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    digest
}

fn add_block(state: &mut [u32; 4], block: &[u8]) {
    let word = |at: usize| {
        let bytes = block[4 * at..].first_chunk().expect("a block has 16 words");
        u32::from_le_bytes(*bytes)
    };
    let [mut a, mut b, mut c, mut d] = *state;
    for step in 0..64 {
        let round = step / 16;
        let (mix, at) = match round {
            0 => (b & c | !b & d, step),
            1 => (d & b | !d & c, (5 * step + 1) % 16),
            2 => (b ^ c ^ d, (3 * step + 5) % 16),
            _ => (c ^ (b | !d), 7 * step % 16),
        };
        let sum = a
            .wrapping_add(mix)
            .wrapping_add(constant(step))
            .wrapping_add(word(at));
        let turned = sum.rotate_left(TURNS[round][step % 4]);
        (a, d, c, b) = (d, c, b, b.wrapping_add(turned));
    }
    for (sum, part) in state.iter_mut().zip([a, b, c, d]) {
        *sum = sum.wrapping_add(part);
    }
}

/// Returns the constant of a step: the absolute sine of its number, counted from 1, as a fraction
/// of 2^32.
fn constant(step: usize) -> u32 {
    let angle = (step + 1) as f64;
    (angle.sin().abs() * 4_294_967_296.0) as u32
}

const TURNS: [[u32; 4]; 4] = [
    [7, 12, 17, 22],
    [5, 9, 14, 20],
    [4, 11, 16, 23],
    [6, 10, 15, 21],
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_the_rfc_hold() {
        let hex = |data: &str| {
            let digest = digest(data.as_bytes());
            digest.map(|byte| format!("{byte:02x}")).concat()
        };
        assert_eq!(hex(""), "d41d8cd98f00b204e9800998ecf8427e");
        assert_eq!(hex("abc"), "900150983cd24fb0d6963f7d28e17f72");
        let digits = "1234567890".repeat(8);
        assert_eq!(hex(&digits), "57edf4a22be3c955ac49da2e2107b67a");
    }
}
