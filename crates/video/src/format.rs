//! What the bytes of one pixel are.

use std::{fmt, str::FromStr};

/// A layout of pixels, under the name that the PFNC of GenICam, or for the planar ones FFmpeg,
/// gives it.
///
/// Numbers of more than one byte are little-endian. Lines follow each other without padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PixelFormat {
    /// Grey, 8 bits.
    Mono8,
    /// Grey, 10 bits in the low part of 16.
    Mono10,
    /// Grey, 12 bits in the low part of 16.
    Mono12,
    /// Grey, 16 bits.
    Mono16,
    /// Grey, 12 bits, two pixels in three bytes as GigE Vision packs them: the high bits first,
    /// the low ones of both share the byte between.
    Mono12Packed,
    /// Grey, 12 bits, two pixels in three bytes as PFNC packs them: the lowest bit first.
    Mono12p,
    /// Red, green, blue, 8 bits each.
    Rgb8,
    /// Planes of brightness and of two colours, 8 bits; the colours have half the width and
    /// height.
    I420,
    /// As [`Self::I420`]; the colours have half the width.
    I422,
    /// As [`Self::I420`]; the colours are as large as the brightness.
    I444,
}

impl PixelFormat {
    /// Each of them.
    pub const ALL: [Self; 10] = [
        Self::Mono8,
        Self::Mono10,
        Self::Mono12,
        Self::Mono16,
        Self::Mono12Packed,
        Self::Mono12p,
        Self::Rgb8,
        Self::I420,
        Self::I422,
        Self::I444,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mono8 => "Mono8",
            Self::Mono10 => "Mono10",
            Self::Mono12 => "Mono12",
            Self::Mono16 => "Mono16",
            Self::Mono12Packed => "Mono12Packed",
            Self::Mono12p => "Mono12p",
            Self::Rgb8 => "RGB8",
            Self::I420 => "I420",
            Self::I422 => "I422",
            Self::I444 => "I444",
        }
    }

    /// A number for it that fits 32 bits: the one of the PFNC of GenICam, which GigE Vision sends,
    /// or the four letters of the planar ones in the order in which they are written.
    #[must_use]
    pub const fn code(self) -> u32 {
        match self {
            Self::Mono8 => 0x0108_0001,
            Self::Mono10 => 0x0110_0003,
            Self::Mono12 => 0x0110_0005,
            Self::Mono16 => 0x0110_0007,
            Self::Mono12Packed => 0x010C_0006,
            Self::Mono12p => 0x010C_0047,
            Self::Rgb8 => 0x0218_0014,
            Self::I420 => u32::from_le_bytes(*b"I420"),
            Self::I422 => u32::from_le_bytes(*b"I422"),
            Self::I444 => u32::from_le_bytes(*b"I444"),
        }
    }

    /// The format with that [`PixelFormat::code`].
    #[must_use]
    pub fn of_code(code: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.code() == code)
    }

    /// How many of the bits of a grey value count; `None` for colours.
    #[must_use]
    pub const fn grey_bits(self) -> Option<u32> {
        match self {
            Self::Mono8 => Some(8),
            Self::Mono10 => Some(10),
            Self::Mono12 | Self::Mono12Packed | Self::Mono12p => Some(12),
            Self::Mono16 => Some(16),
            Self::Rgb8 | Self::I420 | Self::I422 | Self::I444 => None,
        }
    }
}

impl fmt::Display for PixelFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for PixelFormat {
    type Err = String;

    /// Reads a name, in upper or lower case; `Mono12p` and `Mono12Packed` differ in more.
    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL
            .into_iter()
            .find(|format| format.name().eq_ignore_ascii_case(text));
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("a pixel format is one of {names}")
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_and_codes_lead_back() {
        for format in PixelFormat::ALL {
            assert_eq!(format.name().to_lowercase().parse(), Ok(format));
            assert_eq!(PixelFormat::of_code(format.code()), Some(format));
        }
        let codes: BTreeSet<_> = PixelFormat::ALL.map(PixelFormat::code).into();
        assert_eq!(codes.len(), PixelFormat::ALL.len());
        let unknown = "Mono14".parse::<PixelFormat>().expect_err("none of ours");
        assert!(unknown.contains("Mono12Packed, Mono12p"), "{unknown}");
        assert_eq!(PixelFormat::of_code(0), None);
    }
}
