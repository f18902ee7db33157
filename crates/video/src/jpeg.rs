//! Pictures as JPEG, by the crate `jpeg-encoder`.

use jpeg_encoder::{ColorType, Encoder};

use crate::{Picture, Pixels};

impl Picture {
    /// Returns the picture as a JPEG file (baseline, JFIF). `quality` is from 1 to 100.
    ///
    /// **Cost**: allocates the file; a megapixel takes some tens of milliseconds.
    #[must_use]
    pub fn jpeg(&self, quality: u8) -> Vec<u8> {
        let mut file = Vec::new();
        let encoder = Encoder::new(&mut file, quality.clamp(1, 100));
        let (pixels, colours) = match &self.pixels {
            Pixels::Grey(grey) => (grey, ColorType::Luma),
            Pixels::Rgb(rgb) => (rgb, ColorType::Rgb),
        };
        encoder
            .encode(pixels, self.width, self.height, colours)
            .expect("memory takes every byte, and a picture has the pixels of its size");
        file
    }
}
