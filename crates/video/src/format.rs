//! The formats of pixels: what the bytes of a pixel mean.

use std::{fmt, str::FromStr};

/// A layout of pixels. The names of planar formats are FFmpeg's four-letter codes. The other names
/// are those of GenICam's PFNC (Pixel Format Naming Convention).
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
    /// Grey, 12 bits, two pixels in three bytes as GigE Vision packs them. The outer bytes hold the
    /// high bits of one pixel each; the byte between holds the low bits of both.
    Mono12Packed,
    /// Grey, 12 bits, two pixels in three bytes as PFNC packs them: the lowest bit first.
    Mono12p,
    /// Red, green, blue, 8 bits each.
    Rgb8,
    /// Planes of brightness and of two colours, 8 bits; the colours have half the width and
    /// height.
    I420,
    /// As [`Self::I420`], but the colours have half the width and the full height.
    I422,
    /// As [`Self::I420`], but the colours are as large as the brightness.
    I444,
}

impl PixelFormat {
    /// All formats.
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

    /// Returns the format's name.
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

    /// Returns the format's number. For a planar format, the number is the four letters of its
    /// name, the first letter in the lowest byte. For any other format, it is the number of
    /// GenICam's PFNC, which GigE Vision sends.
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

    /// Returns the format whose [`PixelFormat::code`] is `code`.
    #[must_use]
    pub fn of_code(code: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.code() == code)
    }

    /// Returns the number of bits of a grey value that count; `None` for a format with colours.
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

    /// Reads a name, in upper or lower case.
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
