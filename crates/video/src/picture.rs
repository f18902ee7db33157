//! Small pictures of frames, for people to look at: 8 bits, grey or coloured.

use crate::{PixelFormat, Shape, packed::Packing};

/// A small picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Pixels of a line.
    pub width: u16,
    /// Lines.
    pub height: u16,
    /// The pixels, line after line.
    pub pixels: Pixels,
}

/// The pixels of a [`Picture`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pixels {
    /// One byte each.
    Grey(Vec<u8>),
    /// Red, green and blue.
    Rgb(Vec<u8>),
}

/// Two pixels, one above the other, that a terminal shows as one character. The character is an
/// upper half block: the upper pixel gives its foreground, the lower pixel its background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HalfBlock {
    /// Red, green and blue of the upper pixel.
    pub upper: [u8; 3],
    /// Red, green and blue of the lower pixel; black where the picture has no such line.
    pub lower: [u8; 3],
}

impl HalfBlock {
    /// The character: its foreground is the upper half.
    pub const CHARACTER: char = '▀';
}

impl Picture {
    /// Makes a picture of a frame. The picture keeps the frame's proportions, is at most
    /// `width_max` wide and `height_max` high, and is never larger than the frame. Each pixel is
    /// the mean of up to 16 pixels of the frame, spread evenly over the part that it stands for.
    ///
    /// **Cost**: allocates the picture; reads at most 16 pixels of the frame for each pixel of the
    /// picture.
    ///
    /// **Panics** (bug): when `frame` has another length than [`Shape::frame_bytes`].
    #[must_use]
    pub fn of(shape: Shape, frame: &[u8], width_max: u16, height_max: u16) -> Self {
        assert_eq!(frame.len(), shape.frame_bytes(), "one whole frame");
        let (width, height) = fit(shape, width_max.max(1), height_max.max(1));
        let spread = |of: u32, to: u16| Spread {
            of: of as usize,
            to: usize::from(to),
        };
        let (columns, rows) = (spread(shape.width(), width), spread(shape.height(), height));
        let frame = Frame { shape, frame };
        let is_grey = shape.format().grey_bits().is_some();
        let mut pixels = Vec::with_capacity(columns.to * rows.to * if is_grey { 1 } else { 3 });
        for row in 0..rows.to {
            for column in 0..columns.to {
                let (mut sum, mut count) = ([0_u32; 3], 0);
                for y in rows.places(row) {
                    for x in columns.places(column) {
                        let rgb = frame.pixel(x, y);
                        sum = [0, 1, 2].map(|i| sum[i] + u32::from(rgb[i]));
                        count += 1;
                    }
                }
                let mean = sum.map(|sum| (sum / count) as u8);
                pixels.extend_from_slice(&mean[..if is_grey { 1 } else { 3 }]);
            }
        }
        let pixels = if is_grey {
            Pixels::Grey(pixels)
        } else {
            Pixels::Rgb(pixels)
        };
        Self {
            width,
            height,
            pixels,
        }
    }

    /// Returns red, green and blue of a pixel; `None` outside the picture.
    #[must_use]
    pub fn pixel(&self, column: u16, row: u16) -> Option<[u8; 3]> {
        if column >= self.width || row >= self.height {
            return None;
        }
        let index = usize::from(row) * usize::from(self.width) + usize::from(column);
        match &self.pixels {
            Pixels::Grey(grey) => grey.get(index).map(|grey| [*grey; 3]),
            Pixels::Rgb(rgb) => rgb.as_chunks().0.get(index).copied(),
        }
    }

    /// Returns what a character of a terminal shows; `None` outside the picture. The picture has
    /// `height / 2` rows of characters, rounded up.
    #[must_use]
    pub fn half_block(&self, column: u16, row: u16) -> Option<HalfBlock> {
        let upper = self.pixel(column, row.checked_mul(2)?)?;
        let lower = self.pixel(column, row * 2 + 1).unwrap_or_default();
        Some(HalfBlock { upper, lower })
    }
}

/// Returns the largest size with the frame's proportions that exceeds neither the frame nor the
/// limits.
fn fit(shape: Shape, width_max: u16, height_max: u16) -> (u16, u16) {
    let (width, height) = (u64::from(shape.width()), u64::from(shape.height()));
    let (wide, high) = (u64::from(width_max), u64::from(height_max));
    let (wide, high) = if width <= wide && height <= high {
        (width, height)
    } else if width * high >= height * wide {
        (wide, height * wide / width)
    } else {
        (width * high / height, high)
    };
    let side = |pixels: u64| u16::try_from(pixels.max(1)).expect("at most a limit");
    (side(wide), side(high))
}

/// How the `of` columns or rows of a frame are divided among the `to` columns or rows of a picture.
#[derive(Clone, Copy)]
struct Spread {
    of: usize,
    to: usize,
}

impl Spread {
    /// Returns up to four columns or rows of the frame. They are spread evenly over the part of the
    /// frame that column or row `index` of the picture stands for.
    fn places(self, index: usize) -> impl Iterator<Item = usize> {
        let (start, end) = (index * self.of / self.to, (index + 1) * self.of / self.to);
        let len = (end - start).max(1);
        let count = len.min(4);
        (0..count).map(move |i| start + (2 * i + 1) * len / (2 * count))
    }
}

/// A frame whose length was compared with its shape.
struct Frame<'a> {
    shape: Shape,
    frame: &'a [u8],
}

impl Frame<'_> {
    /// Returns red, green and blue of a pixel.
    fn pixel(&self, x: usize, y: usize) -> [u8; 3] {
        let (width, height) = (self.shape.width() as usize, self.shape.height() as usize);
        let index = y * width + x;
        let wide = || u16::from_le_bytes([self.frame[2 * index], self.frame[2 * index + 1]]);
        let packed = |packing: Packing| packing.pixel(self.frame, index).unwrap_or_default() >> 4;
        let grey = match self.shape.format() {
            PixelFormat::Mono8 => self.frame[index],
            PixelFormat::Mono10 => (wide() >> 2).min(255) as u8,
            PixelFormat::Mono12 => (wide() >> 4).min(255) as u8,
            PixelFormat::Mono16 => (wide() >> 8) as u8,
            PixelFormat::Mono12Packed => packed(Packing::GigeVision) as u8,
            PixelFormat::Mono12p => packed(Packing::Pfnc) as u8,
            PixelFormat::Rgb8 => return [0, 1, 2].map(|i| self.frame[3 * index + i]),
            PixelFormat::I420 => return self.colour(index, x / 2, y / 2, height.div_ceil(2)),
            PixelFormat::I422 => return self.colour(index, x / 2, y, height),
            PixelFormat::I444 => return self.colour(index, x, y, height),
        };
        [grey; 3]
    }

    /// Returns red, green and blue of a pixel in a planar format: by BT.601 with brightness from 16
    /// to 235, as video is usually coded. `index` is the pixel's place in the brightness plane; `x`
    /// and `y` are its place in each of the two colour planes, which have `rows` rows.
    fn colour(&self, index: usize, x: usize, y: usize, rows: usize) -> [u8; 3] {
        let pixels = self.shape.width() as usize * self.shape.height() as usize;
        let plane = (self.frame.len() - pixels) / 2;
        let at = pixels + y * (plane / rows) + x;
        let luma = (i32::from(self.frame[index]) - 16) * 298;
        let blue = i32::from(self.frame[at]) - 128;
        let red = i32::from(self.frame[at + plane]) - 128;
        let rgb = [
            luma + 409 * red,
            luma - 100 * blue - 208 * red,
            luma + 516 * blue,
        ];
        rgb.map(|value| ((value + 128) >> 8).clamp(0, 255) as u8)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shape(width: u32, height: u32, format: PixelFormat) -> Shape {
        Shape::new(width, height, format).expect("small")
    }

    #[test]
    fn all_grey_formats_show_the_same() {
        // Two rows: dark and half bright, the brightest and dark.
        let pixels: [u16; 4] = [0, 0x800, 0xFFF, 0];
        let wide = |shift: i32| -> Vec<u8> {
            let shifted = pixels.map(|pixel| match shift {
                0.. => pixel << shift,
                _ => pixel >> -shift,
            });
            shifted.into_iter().flat_map(u16::to_le_bytes).collect()
        };
        let packed = |packing: Packing| {
            let mut bytes = Vec::new();
            packing.pack(&pixels, &mut bytes);
            bytes
        };
        for (format, frame) in [
            (PixelFormat::Mono8, vec![0, 0x80, 0xFF, 0]),
            (PixelFormat::Mono10, wide(-2)),
            (PixelFormat::Mono12, wide(0)),
            (PixelFormat::Mono16, wide(4)),
            (PixelFormat::Mono12Packed, packed(Packing::GigeVision)),
            (PixelFormat::Mono12p, packed(Packing::Pfnc)),
        ] {
            let picture = Picture::of(shape(2, 2, format), &frame, 9, 9);
            assert_eq!(
                picture.pixels,
                Pixels::Grey(vec![0, 0x80, 0xFF, 0]),
                "{format}"
            );
            let [upper, lower] = [[0x80; 3], [0; 3]];
            assert_eq!(picture.half_block(1, 0), Some(HalfBlock { upper, lower }));
            assert_eq!(
                (picture.half_block(2, 0), picture.half_block(0, 1)),
                (None, None)
            );
        }
    }

    #[test]
    fn colours_are_those_of_the_standard() {
        // BT.601: white, black and pure red, as other programs code them.
        for (yuv, rgb) in [
            ([235, 128, 128], [255, 255, 255]),
            ([16, 128, 128], [0, 0, 0]),
            ([81, 90, 240], [255, 0, 0]),
        ] {
            for format in [PixelFormat::I420, PixelFormat::I422, PixelFormat::I444] {
                let shape = shape(3, 3, format);
                let mut frame = Vec::new();
                for (plane, value) in shape.planes().zip(yuv) {
                    frame.resize(frame.len() + plane.row_bytes * plane.rows, value);
                }
                let picture = Picture::of(shape, &frame, 3, 3);
                let pixel = picture.pixel(2, 2).expect("inside");
                let is_near = pixel.iter().zip(rgb).all(|(a, b)| a.abs_diff(b) <= 2);
                assert!(is_near, "{format}: {pixel:?}, {rgb:?}");
            }
        }
        let frame = [1, 2, 3, 4, 5, 6];
        let picture = Picture::of(shape(2, 1, PixelFormat::Rgb8), &frame, 9, 9);
        assert_eq!(picture.pixel(1, 0), Some([4, 5, 6]));
    }

    #[test]
    fn sizes_keep_the_proportions() {
        for (sides, most, fits) in [
            ((1360, 1024), (80, 48), (63, 48)),
            ((1360, 1024), (40, 48), (40, 30)),
            ((1360, 1024), (2000, 2000), (1360, 1024)),
            ((65_535, 1), (80, 48), (80, 1)),
            ((1, 65_535), (80, 48), (1, 48)),
            ((5, 5), (0, 0), (1, 1)),
        ] {
            let shape = shape(sides.0, sides.1, PixelFormat::Mono8);
            let frame = vec![7; shape.frame_bytes()];
            let picture = Picture::of(shape, &frame, most.0, most.1);
            assert_eq!((picture.width, picture.height), fits);
            let count = usize::from(fits.0) * usize::from(fits.1);
            assert_eq!(picture.pixels, Pixels::Grey(vec![7; count]));
        }
    }

    proptest! {
        #[test]
        fn any_frame_gives_a_picture(
            width in 1_u32..40, height in 1_u32..40, index in 0..PixelFormat::ALL.len(),
            width_max in 0_u16..50, height_max in 0_u16..50, seed: u64,
        ) {
            let shape = shape(width, height, PixelFormat::ALL[index]);
            let mut frame = vec![0; shape.frame_bytes()];
            base::Rng::new(seed).fill(&mut frame);
            let picture = Picture::of(shape, &frame, width_max, height_max);
            let (column, row) = (picture.width - 1, picture.height - 1);
            prop_assert!(picture.pixel(column, row).is_some());
            prop_assert!(picture.half_block(column, row / 2).is_some());
            prop_assert!(picture.jpeg(70).starts_with(&[0xFF, 0xD8]));
        }
    }
}
