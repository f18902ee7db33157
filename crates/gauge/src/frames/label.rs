//! The label of frames: a header line that says how to read them, a mark that they are a pattern,
//! or both.

use video::{FrameRate, PixelFormat, Shape, y4m::Header};

/// Returns the label of a [`FramePattern`](super::FramePattern). `pixels` gives width, height, and
/// bytes of a pixel. When a pixel format fits them, the label also says how to show the frames as
/// pictures.
#[must_use]
pub fn label_of_pattern(pixels: Option<[u32; 3]>, frames_per_s: f64) -> String {
    let header = pixels.and_then(|[width, height, pixel_bytes]| {
        let format = match pixel_bytes {
            1 => PixelFormat::Mono8,
            2 => PixelFormat::Mono16,
            3 => PixelFormat::Rgb8,
            _ => return None,
        };
        let shape = Shape::new(width, height, format).ok()?;
        Some(Header::new(shape, FrameRate::nearest(frames_per_s)))
    });
    match header {
        Some(header) => format!("{} X{MARK}", header.line()),
        None => MARK.to_owned(),
    }
}

/// Returns true when frames with this label are a [`FramePattern`](super::FramePattern).
#[must_use]
pub fn is_pattern(label: &[u8]) -> bool {
    let mut words = label.split(|byte| *byte == b' ');
    words.any(|word| word.strip_prefix(b"X").unwrap_or(word) == MARK.as_bytes())
}

/// The header in a label, read once for all frames that have the label.
#[derive(Debug, Default)]
pub struct LabelReading {
    label: Vec<u8>,
    header: Option<Header>,
}

impl LabelReading {
    /// Returns the header in `label`; `None` when there is none, or when it says that a frame has
    /// another length than `frame_bytes`.
    ///
    /// **Cost**: a comparison, unless the label differs from that of the last call.
    pub fn of(&mut self, label: &[u8], frame_bytes: usize) -> Option<&Header> {
        if self.label != label {
            self.header = Header::parse(label).ok();
            self.label = label.to_vec();
        }
        let header = self.header.as_ref();
        header.filter(|header| header.shape().frame_bytes() == frame_bytes)
    }
}

const MARK: &str = "TOWLINE_PATTERN";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_marked_and_its_pixels_are_told() {
        let label = label_of_pattern(Some([1360, 1024, 2]), 20.0);
        assert_eq!(
            label,
            "YUV4MPEG2 W1360 H1024 F20:1 Ip A0:0 Cmono16 XTOWLINE_PATTERN"
        );
        assert!(is_pattern(label.as_bytes()));
        let header = Header::parse(label.as_bytes()).unwrap();
        assert_eq!(header.shape().frame_bytes(), 2_785_280);
        for pixels in [None, Some([1, 1, 7]), Some([0, 1, 1]), Some([70_000, 1, 1])] {
            let label = label_of_pattern(pixels, 20.0);
            assert!(is_pattern(label.as_bytes()), "{label}");
            assert!(Header::parse(label.as_bytes()).is_err(), "{label}");
        }
        let plain = label.replace("XTOWLINE_PATTERN", "XTOWLINE_PATTERNS");
        assert!(!is_pattern(plain.as_bytes()) && !is_pattern(b""));
    }
}
