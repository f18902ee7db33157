//! The header line of a stream, which says how to read the frames behind it. YUV4MPEG2 ("Y4M")
//! files begin with such a line. A `RAW` line of the same form serves formats that Y4M does not
//! have.
//!
//! ```text
//!   YUV4MPEG2 W1360 H1024 F20:1 Ip A1:1 Cmono16 XANYTHING
//!   RAW W1360 H1024 F31:2 CMono12p
//! ```
//! `W` and `H` are needed. `F` is the rate (`0:0`: unknown), `I` how lines interlace (`p`, `t`,
//! `b`, `m`, `?`), `A` the shape of a pixel, `C` the pixel format, and each `X` a remark. Without
//! `C`, a line of Y4M means `420jpeg`. A line is kept as it came, so that a stream can be written
//! as it was read.
//!
//! **Spec**: yuv4mpeg(5) of the MJPEG tools; `mono10`, `mono12` and `mono16` as FFmpeg writes them.

use std::fmt;

use crate::{FrameRate, PixelFormat, Shape, VideoError};

/// A header line, and what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    line: String,
    shape: Shape,
    rate: Option<FrameRate>,
}

impl Header {
    /// The longest line, in bytes, without its end.
    pub const LINE_BYTES_MAX: usize = 1_024;
    /// The longest [`Header::label`], in bytes.
    pub const LABEL_BYTES_MAX: usize = 255;

    /// Makes the header for these frames: a line of Y4M if Y4M has the format, else a `RAW` line.
    #[must_use]
    pub fn new(shape: Shape, rate: Option<FrameRate>) -> Self {
        let (signature, colour) = match colour_of(shape.format()) {
            Some(colour) => (Y4M, colour),
            None => (RAW, shape.format().name()),
        };
        let (width, height) = (shape.width(), shape.height());
        let (frames, seconds) = rate.map_or((0, 0), FrameRate::fraction);
        let interlace = if signature == Y4M { " Ip A0:0" } else { "" };
        let line =
            format!("{signature} W{width} H{height} F{frames}:{seconds}{interlace} C{colour}");
        Self { line, shape, rate }
    }

    /// Reads a line, without its end.
    ///
    /// # Errors
    /// [`VideoError::Header`] when a parameter is missing, is unknown, comes twice, or has a value
    /// that is impossible or not read here; also when the line is too long or not text.
    /// [`VideoError::Shape`] when a frame would be empty or too large.
    pub fn parse(line: &[u8]) -> Result<Self, VideoError> {
        let wrong = |what: &str| Err(VideoError::header(what, line));
        let text = match std::str::from_utf8(line) {
            Ok(text) if text.len() > Self::LINE_BYTES_MAX => {
                return wrong("this line is longer than 1024 bytes");
            }
            Ok(text) if text.contains('\n') => return wrong("this text has more than one line"),
            Ok(text) => text,
            Err(_) => return wrong("this line is not text (UTF-8)"),
        };
        let mut words = text.split(' ');
        let signature = words.next().unwrap_or_default();
        if signature != Y4M && signature != RAW {
            return wrong("this line should begin with YUV4MPEG2, and does not");
        }
        let mut told = Told::default();
        for word in words.filter(|word| !word.is_empty()) {
            let fault = match told.take(word) {
                Some(true) => continue,
                Some(false) => "comes twice",
                None if word.starts_with(LETTERS) => "has an impossible value",
                None => "is unknown",
            };
            let word = printable(word);
            return wrong(&format!("the parameter {word:?} {fault} in"));
        }
        let format = match (signature, told.colour) {
            (Y4M, colour) => {
                let colour = colour.unwrap_or("420jpeg");
                format_of(colour).ok_or_else(|| {
                    format!(
                        "the colours {:?} are not read here (those read are 420, 420jpeg, \
                         420mpeg2, 420paldv, 422, 444, mono, mono10, mono12 and mono16), in",
                        printable(colour)
                    )
                })
            }
            (_, Some(name)) => name.parse(),
            (_, None) => Err("the pixel format (C) is missing in".to_owned()),
        };
        let format = match format {
            Ok(format) => format,
            Err(fault) => return wrong(&fault),
        };
        let (width, height) = match (told.width, told.height) {
            (Some(width), Some(height)) => (width, height),
            (None, Some(_)) => return wrong("the width (W) is missing in"),
            (Some(_), None) => return wrong("the height (H) is missing in"),
            (None, None) => return wrong("the width (W) and the height (H) are missing in"),
        };
        Ok(Self {
            line: text.to_owned(),
            shape: Shape::new(width, height, format)?,
            rate: told.rate.flatten(),
        })
    }

    /// Returns the line, without its end.
    #[must_use]
    pub fn line(&self) -> &str {
        &self.line
    }

    /// Returns a line of at most [`Header::LABEL_BYTES_MAX`] bytes that [`Header::parse`] reads as
    /// the same frames. It is this header's line if that is short enough, else the line without its
    /// remarks, else a new line for the same shape and rate.
    #[must_use]
    pub fn label(&self) -> String {
        if self.line.len() <= Self::LABEL_BYTES_MAX {
            return self.line.clone();
        }
        let needed = |word: &&str| !word.is_empty() && !word.starts_with('X');
        let words: Vec<_> = self.line.split(' ').filter(needed).collect();
        match words.join(" ") {
            label if label.len() <= Self::LABEL_BYTES_MAX => label,
            _ => Self::new(self.shape, self.rate).line,
        }
    }

    /// Returns the size and the meaning of the frames.
    #[must_use]
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// Returns the frames each second; `None` when the line does not say.
    #[must_use]
    pub const fn rate(&self) -> Option<FrameRate> {
        self.rate
    }

    /// Returns true when the line is one of Y4M.
    #[must_use]
    pub fn is_y4m(&self) -> bool {
        self.line.starts_with(Y4M)
    }
}

impl fmt::Display for Header {
    /// Writes, for example, `1360 x 1024 Mono12p, 15.50000 frames/s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (width, height) = (self.shape.width(), self.shape.height());
        write!(f, "{width} x {height} {}", self.shape.format())?;
        match self.rate {
            Some(rate) => write!(f, ", {:.5} frames/s", rate.per_s()),
            None => Ok(()),
        }
    }
}

/// The values of the parameters that were read so far.
#[derive(Default)]
struct Told<'a> {
    width: Option<u32>,
    height: Option<u32>,
    rate: Option<Option<FrameRate>>,
    interlace: Option<()>,
    aspect: Option<()>,
    colour: Option<&'a str>,
}

impl<'a> Told<'a> {
    /// Takes one parameter. Returns `None` when it is unknown or malformed, and false when it comes
    /// a second time; only remarks may come more than once.
    fn take(&mut self, word: &'a str) -> Option<bool> {
        let mut letters = word.chars();
        let (letter, value) = (letters.next()?, letters.as_str());
        match letter {
            'W' => once(&mut self.width, number(value)?),
            'H' => once(&mut self.height, number(value)?),
            'F' => {
                let (frames, seconds) = fraction(value)?;
                let rate = FrameRate::new(frames, seconds);
                // 0:0 is unknown; one zero alone is nonsense.
                let is_sound = rate.is_some() || (frames, seconds) == (0, 0);
                is_sound.then(|| once(&mut self.rate, rate))?
            }
            'I' => {
                let is_known = matches!(value, "p" | "t" | "b" | "m" | "?");
                is_known.then(|| once(&mut self.interlace, ()))?
            }
            'A' => fraction(value).and_then(|_| once(&mut self.aspect, ())),
            'C' => once(&mut self.colour, value),
            'X' => Some(true),
            _ => None,
        }
    }
}

fn once<T>(place: &mut Option<T>, value: T) -> Option<bool> {
    Some(place.replace(value).is_none())
}

fn number(text: &str) -> Option<u32> {
    let is_number = text.bytes().all(|digit| digit.is_ascii_digit());
    is_number.then(|| text.parse().ok())?
}

fn fraction(text: &str) -> Option<(u32, u32)> {
    let (above, below) = text.split_once(':')?;
    number(above).zip(number(below))
}

fn printable(text: &str) -> std::borrow::Cow<'_, str> {
    base::text::printable(text, 40)
}

/// Returns the format that a colour of Y4M means; `None` when it is not read here. The kinds of 420
/// differ only in the points between pixels at which the colours were sampled.
fn format_of(colour: &str) -> Option<PixelFormat> {
    Some(match colour {
        "420" | "420jpeg" | "420mpeg2" | "420paldv" => PixelFormat::I420,
        "422" => PixelFormat::I422,
        "444" => PixelFormat::I444,
        "mono" => PixelFormat::Mono8,
        "mono10" => PixelFormat::Mono10,
        "mono12" => PixelFormat::Mono12,
        "mono16" => PixelFormat::Mono16,
        _ => return None,
    })
}

/// Returns the colour of Y4M for a format; `None` when Y4M does not have the format.
pub(crate) const fn colour_of(format: PixelFormat) -> Option<&'static str> {
    match format {
        PixelFormat::I420 => Some("420jpeg"),
        PixelFormat::I422 => Some("422"),
        PixelFormat::I444 => Some("444"),
        PixelFormat::Mono8 => Some("mono"),
        PixelFormat::Mono10 => Some("mono10"),
        PixelFormat::Mono12 => Some("mono12"),
        PixelFormat::Mono16 => Some("mono16"),
        PixelFormat::Mono12Packed | PixelFormat::Mono12p | PixelFormat::Rgb8 => None,
    }
}

const Y4M: &str = "YUV4MPEG2";
const RAW: &str = "RAW";
/// The first letters of all parameters.
const LETTERS: [char; 7] = ['W', 'H', 'F', 'I', 'A', 'C', 'X'];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(line: &str) -> Result<Header, VideoError> {
        Header::parse(line.as_bytes())
    }

    #[test]
    fn what_ffmpeg_writes_is_read_and_kept() {
        let line = "YUV4MPEG2 W320 H240 F30000:1001 Ip A1:1 C420mpeg2 XYSCSS=420MPEG2 \
                    XCOLORRANGE=LIMITED";
        let header = parse(line).expect("a usual line");
        let shape = Shape::new(320, 240, PixelFormat::I420).expect("small");
        assert_eq!(
            (header.shape(), header.rate()),
            (shape, FrameRate::new(30_000, 1_001))
        );
        assert_eq!((header.line(), header.label().as_str()), (line, line));
        assert!(header.is_y4m());
        assert_eq!(header.to_string(), "320 x 240 I420, 29.97003 frames/s");
    }

    #[test]
    fn parameters_that_may_be_missing_have_their_defaults() {
        let header = parse("YUV4MPEG2 H2  W4").expect("enough");
        assert_eq!(header.shape().format(), PixelFormat::I420);
        assert_eq!(header.rate(), None);
        assert_eq!(parse("YUV4MPEG2 W4 H2 F0:0").expect("unknown").rate(), None);
        assert_eq!(header.to_string(), "4 x 2 I420");
    }

    #[test]
    fn what_is_not_possible_is_refused_with_its_name() {
        for (line, what) in [
            ("", "should begin with YUV4MPEG2"),
            ("YUV4MPEG3 W4 H2", "should begin with YUV4MPEG2"),
            ("YUV4MPEG2", "the width (W) and the height (H) are missing"),
            ("YUV4MPEG2 W4", "the height (H) is missing"),
            ("YUV4MPEG2 H4", "the width (W) is missing"),
            ("YUV4MPEG2 W4 H2 W4", "\"W4\" comes twice"),
            ("YUV4MPEG2 W-4 H2", "\"W-4\" has an impossible value"),
            ("YUV4MPEG2 W+4 H2", "\"W+4\""),
            ("YUV4MPEG2 W H2", "\"W\""),
            ("YUV4MPEG2 W4 H99999999999", "H99999999999"),
            ("YUV4MPEG2 W4 H2 F25", "\"F25\""),
            ("YUV4MPEG2 W4 H2 F25:0", "\"F25:0\""),
            ("YUV4MPEG2 W4 H2 Iq", "\"Iq\""),
            ("YUV4MPEG2 W4 H2 A1", "\"A1\""),
            ("YUV4MPEG2 W4 H2 Z", "\"Z\" is unknown"),
            ("YUV4MPEG2 W4 H2 C420p10", "420p10"),
            ("YUV4MPEG2 W4 H2 CMono8", "Mono8"),
            ("YUV4MPEG2 W0 H2", "each side must have 1 to 65535"),
            ("YUV4MPEG2 W65535 H65535", "at most 268435456"),
            ("RAW W4 H2", "the pixel format (C) is missing"),
            ("RAW W4 H2 C420jpeg", "Mono12Packed"),
            ("YUV4MPEG2 W4 H2\n", "more than one line"),
        ] {
            let error = parse(line).expect_err(line).to_string();
            assert!(error.contains(what), "{line}: {error}");
        }
        let long = format!("YUV4MPEG2 W4 H2 X{}", "y".repeat(Header::LINE_BYTES_MAX));
        assert!(parse(&long).is_err());
        assert!(Header::parse(b"YUV4MPEG2 W4 H2 X\xff").is_err());
    }

    #[test]
    fn a_long_line_gives_a_short_label_of_the_same_frames() {
        for long in [
            format!("YUV4MPEG2 W4 H2 F5:2 Xa X{} C444", "y".repeat(250)),
            format!("YUV4MPEG2 W4 H2 F5:2 A1:{}1 C444", "0".repeat(250)),
        ] {
            let header = parse(&long).expect("sound");
            let label = header.label();
            assert!(label.len() <= Header::LABEL_BYTES_MAX, "{label}");
            let again = parse(&label).expect("a line");
            assert_eq!(
                (again.shape(), again.rate()),
                (header.shape(), header.rate())
            );
        }
    }

    proptest! {
        #[test]
        fn the_line_of_any_frames_reads_as_them(
            width in 1_u32..999, height in 1_u32..999, index in 0..PixelFormat::ALL.len(),
            frames: u32, seconds: u32,
        ) {
            let shape = Shape::new(width, height, PixelFormat::ALL[index]).expect("small");
            let header = Header::new(shape, FrameRate::new(frames, seconds));
            prop_assert_eq!(&parse(header.line()).expect("our own"), &header);
            prop_assert_eq!(header.label(), header.line());
            prop_assert_eq!(header.is_y4m(), colour_of(shape.format()).is_some());
        }
    }
}
