//! The products of each constant by all low and all high halves of a byte.

use super::product;

/// For one constant: its products by 0, 1, .. 15, then by 0, 16, .. 240.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
pub(super) struct Halves {
    pub(super) low: [u8; 16],
    pub(super) high: [u8; 16],
}

/// The table of each constant: 8 KiB, which stay in the first-level cache.
pub(super) static HALVES: [Halves; 256] = {
    let mut table = [Halves {
        low: [0; 16],
        high: [0; 16],
    }; 256];
    let mut constant = 0;
    while constant < 256 {
        let mut half = 0;
        while half < 16 {
            table[constant].low[half] = product(constant as u8, half as u8);
            table[constant].high[half] = product(constant as u8, (half << 4) as u8);
            half += 1;
        }
        constant += 1;
    }
    table
};

/// The product by each constant as an 8 x 8 bit matrix: byte 7 - i holds the input bits whose
/// parity is bit i of the product, as GF2P8AFFINEQB wants it.
#[cfg(any(target_arch = "x86_64", test))]
pub(super) static MATRICES: [u64; 256] = {
    let mut matrices = [0; 256];
    let mut constant = 0;
    while constant < 256 {
        let mut input = 0;
        while input < 8 {
            let image = product(constant as u8, 1 << input);
            let mut output = 0;
            while output < 8 {
                let bit = (image >> output) as u64 & 1;
                matrices[constant] |= bit << ((7 - output) * 8 + input);
                output += 1;
            }
            input += 1;
        }
        constant += 1;
    }
    matrices
};

#[cfg(test)]
mod tests {
    use super::*;

    /// What GF2P8AFFINEQB does to one byte, from its description.
    fn affine(matrix: u64, byte: u8) -> u8 {
        let bytes = matrix.to_le_bytes();
        (0..8).fold(0, |sum, bit| {
            let parity = (bytes[7 - bit] & byte).count_ones() as u8 & 1;
            sum | parity << bit
        })
    }

    #[test]
    fn tables_and_matrices_give_every_product() {
        for constant in (0..=255).step_by(if cfg!(miri) { 51 } else { 1 }) {
            let halves = &HALVES[usize::from(constant)];
            for byte in 0..=255_u8 {
                let expected = product(constant, byte);
                let [low, high] = [byte & 15, byte >> 4].map(usize::from);
                assert_eq!(halves.low[low] ^ halves.high[high], expected);
                assert_eq!(affine(MATRICES[usize::from(constant)], byte), expected);
            }
        }
    }
}
