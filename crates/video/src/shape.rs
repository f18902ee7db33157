//! Width, height and pixel format: how long a frame is and where its lines lie.

use thiserror::Error;

use crate::PixelFormat;

/// The size of a frame and the meaning of its bytes.
///
/// **Invariant**: width and height are from 1 to [`Shape::SIDE_MAX`], and a frame has at most
/// [`Shape::FRAME_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    width: u32,
    height: u32,
    format: PixelFormat,
}

impl Shape {
    /// The most pixels of a line, and the most lines.
    pub const SIDE_MAX: u32 = 65_535;
    /// The longest frame, in bytes.
    pub const FRAME_BYTES_MAX: usize = 256 << 20;

    /// Makes the shape of a frame of `width` times `height` pixels.
    ///
    /// # Errors
    /// [`ShapeError`] when a frame would be empty or too large.
    pub fn new(width: u32, height: u32, format: PixelFormat) -> Result<Self, ShapeError> {
        let is_side = |side: u32| (1..=Self::SIDE_MAX).contains(&side);
        if !is_side(width) || !is_side(height) {
            return Err(ShapeError::Sides { width, height });
        }
        let shape = Self {
            width,
            height,
            format,
        };
        match shape.bytes() {
            bytes if bytes > Self::FRAME_BYTES_MAX as u64 => Err(ShapeError::Bytes(bytes)),
            _ => Ok(shape),
        }
    }

    /// Returns the number of pixels of a line.
    #[must_use]
    pub const fn width(self) -> u32 {
        self.width
    }

    /// Returns the number of lines of a frame.
    #[must_use]
    pub const fn height(self) -> u32 {
        self.height
    }

    /// Returns what the bytes mean.
    #[must_use]
    pub const fn format(self) -> PixelFormat {
        self.format
    }

    /// Returns the number of bytes in one frame.
    #[must_use]
    pub fn frame_bytes(self) -> usize {
        usize::try_from(self.bytes()).expect("at most FRAME_BYTES_MAX")
    }

    /// Returns the planes of a frame in order: three for a planar format, one for any other. A row
    /// of packed 12-bit pixels may end within a byte, so a packed frame is one plane of one row.
    pub fn planes(self) -> impl Iterator<Item = Plane> {
        let plane = |row_bytes, rows| Plane { row_bytes, rows };
        let (width, height) = (self.width as usize, self.height as usize);
        let packed = width.saturating_mul(height).saturating_mul(3).div_ceil(2);
        let (half_width, half_height) = (width.div_ceil(2), height.div_ceil(2));
        let (first, colours) = match self.format {
            PixelFormat::Mono8 => (plane(width, height), None),
            PixelFormat::Mono10 | PixelFormat::Mono12 | PixelFormat::Mono16 => {
                (plane(width * 2, height), None)
            }
            PixelFormat::Mono12Packed | PixelFormat::Mono12p => (plane(packed, 1), None),
            PixelFormat::Rgb8 => (plane(width * 3, height), None),
            PixelFormat::I420 => (plane(width, height), Some(plane(half_width, half_height))),
            PixelFormat::I422 => (plane(width, height), Some(plane(half_width, height))),
            PixelFormat::I444 => (plane(width, height), Some(plane(width, height))),
        };
        [Some(first), colours, colours].into_iter().flatten()
    }

    /// Returns the number of bytes in a frame, even above [`Shape::FRAME_BYTES_MAX`].
    fn bytes(self) -> u64 {
        let bytes = |plane: Plane| plane.row_bytes as u64 * plane.rows as u64;
        self.planes().map(bytes).sum()
    }
}

/// A part of a frame: rows of bytes, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plane {
    /// Bytes of a row.
    pub row_bytes: usize,
    /// Rows of the plane.
    pub rows: usize,
}

/// Why no frame can have the shape that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ShapeError {
    /// A side is 0, or too long.
    #[error(
        "a frame of {width} x {height} pixels is not possible: each side must have 1 to {max}",
        max = Shape::SIDE_MAX
    )]
    Sides {
        /// Pixels of a line.
        width: u32,
        /// Lines.
        height: u32,
    },
    /// A frame would have this many bytes, which is too many.
    #[error(
        "a frame of {0} bytes is too long: at most {max} bytes are possible",
        max = Shape::FRAME_BYTES_MAX
    )]
    Bytes(u64),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_the_bytes_that_their_format_says() {
        use PixelFormat::{I420, I422, I444, Mono8, Mono12, Mono12Packed, Mono12p, Mono16, Rgb8};
        for (width, height, format, bytes) in [
            (1360, 1024, Mono16, 2_785_280),
            (1360, 1024, Mono12, 2_785_280),
            (1360, 1024, Mono12p, 2_088_960),
            (3, 3, Mono8, 9),
            (3, 3, Mono12Packed, 14),
            (1, 1, Mono12p, 2),
            (3, 3, Rgb8, 27),
            (3, 3, I420, 9 + 2 * 4),
            (3, 3, I422, 9 + 2 * 6),
            (3, 3, I444, 27),
        ] {
            let shape = Shape::new(width, height, format).expect("a small one");
            assert_eq!(shape.frame_bytes(), bytes, "{shape:?}");
        }
    }

    #[test]
    fn what_is_empty_or_too_large_is_refused() {
        for (width, height) in [(0, 1), (1, 0), (65_536, 1), (1, u32::MAX)] {
            let refused = Shape::new(width, height, PixelFormat::Mono8);
            assert_eq!(refused, Err(ShapeError::Sides { width, height }));
        }
        let largest = PixelFormat::ALL.map(|format| Shape::new(65_535, 65_535, format));
        assert!(largest.iter().all(Result::is_err), "none fits");
        let error = Shape::new(16_384, 16_385, PixelFormat::Mono8).expect_err("a row too many");
        assert_eq!(
            error.to_string(),
            "a frame of 268451840 bytes is too long: at most 268435456 bytes are possible"
        );
        assert!(Shape::new(16_384, 16_384, PixelFormat::Mono8).is_ok());
    }
}
