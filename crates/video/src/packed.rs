//! Two pixels of 12 bits in three bytes, in both of the orders that cameras use.
//!
//! ```text
//!   Mono12Packed (GigE Vision)   a11..a4        | b3..b0 a3..a0 | b11..b4
//!   Mono12p      (PFNC)          a7..a0         | b3..b0 a11..a8| b11..b4
//! ```
//! Pairs go on over the ends of lines. A last pixel without a partner takes two bytes; the high
//! half of the second byte is 0.

/// The order in which the bits of two pixels lie in three bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// [`Mono12Packed`](crate::PixelFormat::Mono12Packed).
    GigeVision,
    /// [`Mono12p`](crate::PixelFormat::Mono12p).
    Pfnc,
}

impl Packing {
    /// Returns pixel number `index`, from 0, of a packed frame; `None` behind the frame's end.
    #[must_use]
    pub fn pixel(self, packed: &[u8], index: usize) -> Option<u16> {
        let at = index / 2 * 3;
        let middle = u16::from(*packed.get(at + 1)?);
        let value = match (index % 2, self) {
            (0, Self::GigeVision) => u16::from(packed[at]) << 4 | middle & 0xF,
            (0, Self::Pfnc) => u16::from(packed[at]) | (middle & 0xF) << 8,
            _ => u16::from(*packed.get(at + 2)?) << 4 | middle >> 4,
        };
        Some(value)
    }

    /// Returns all pixels of a packed frame. A single byte that is left at the end gives no pixel.
    pub fn unpack(self, packed: &[u8]) -> impl Iterator<Item = u16> {
        (0..).map_while(move |index| self.pixel(packed, index))
    }

    /// Appends the low 12 bits of each pixel to `packed`.
    pub fn pack(self, pixels: &[u16], packed: &mut Vec<u8>) {
        packed.reserve((pixels.len() * 3).div_ceil(2));
        let mut pairs = pixels.chunks_exact(2);
        for pair in &mut pairs {
            packed.extend(self.three(pair[0], pair[1]));
        }
        if let [last] = pairs.remainder() {
            packed.extend(&self.three(*last, 0)[..2]);
        }
    }

    /// Returns the three bytes of two pixels.
    const fn three(self, a: u16, b: u16) -> [u8; 3] {
        let (first, shared) = match self {
            Self::GigeVision => (a >> 4 & 0xFF, a & 0xF),
            Self::Pfnc => (a & 0xFF, a >> 8 & 0xF),
        };
        let middle = (b & 0xF) << 4 | shared;
        [first as u8, middle as u8, (b >> 4 & 0xFF) as u8]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn both_orders_are_those_of_their_standards() {
        for (packing, bytes) in [
            (Packing::GigeVision, [0xAB, 0xFC, 0xDE, 0x12, 0x03]),
            (Packing::Pfnc, [0xBC, 0xFA, 0xDE, 0x23, 0x01]),
        ] {
            let mut packed = Vec::new();
            packing.pack(&[0xABC, 0xDEF, 0x123], &mut packed);
            assert_eq!(packed, bytes);
        }
    }

    proptest! {
        #[test]
        fn pixels_come_back(pixels in proptest::collection::vec(0_u16..4096, 0..99)) {
            for packing in [Packing::GigeVision, Packing::Pfnc] {
                let mut packed = Vec::new();
                packing.pack(&pixels, &mut packed);
                prop_assert_eq!(packed.len(), (pixels.len() * 12).div_ceil(8));
                let back: Vec<_> = packing.unpack(&packed).collect();
                prop_assert_eq!(&back, &pixels);
            }
        }

        #[test]
        fn whole_pairs_of_bytes_come_back(bytes in proptest::collection::vec(any::<u8>(), 0..99)) {
            let whole = &bytes[..bytes.len() / 3 * 3];
            for packing in [Packing::GigeVision, Packing::Pfnc] {
                let pixels: Vec<_> = packing.unpack(whole).collect();
                let mut packed = Vec::new();
                packing.pack(&pixels, &mut packed);
                prop_assert_eq!(packed, whole);
                let all = packing.unpack(&bytes).count();
                prop_assert_eq!(all, pixels.len() + usize::from(bytes.len() % 3 == 2));
            }
        }
    }
}
