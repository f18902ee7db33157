//! Frames read from and written to a stream of bytes: a file, a pipe, standard input.
//!
//! A Y4M stream is a [`Header`] line and, before each frame, a line beginning with `FRAME`. A raw
//! stream is frames and nothing else.

use std::{
    fmt,
    io::{self, Read, Write},
};

use thiserror::Error;

use crate::{PixelFormat, Shape, ShapeError, packed::Packing, y4m::Header};

/// Reads frame after frame.
#[derive(Debug)]
pub struct VideoReader<R> {
    input: R,
    container: Container,
    header: Header,
    frames: u64,
}

impl<R: Read> VideoReader<R> {
    /// Reads the header of a Y4M stream. **Cost**: reads the header's bytes one by one.
    ///
    /// # Errors
    /// [`VideoError`] when the stream is no Y4M, holds colours that are not read here, or cannot be
    /// read.
    pub fn y4m(mut input: R) -> Result<Self, VideoError> {
        let mut line = Vec::new();
        read_line(&mut input, &mut line)?;
        let header = Header::parse(&line)?;
        if !header.is_y4m() {
            return Err(VideoError::header(
                "the first line of Y4M must begin with YUV4MPEG2, and this one does not",
                &line,
            ));
        }
        Ok(Self {
            input,
            container: Container::Y4m,
            header,
            frames: 0,
        })
    }

    /// Makes a reader of a stream that has frames as `header` says, and nothing else.
    pub const fn raw(input: R, header: Header) -> Self {
        Self {
            input,
            container: Container::Raw,
            header,
            frames: 0,
        }
    }

    /// Returns the header, which says how to read the frames.
    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// Fills `frame` with the next frame. Returns false at the end of the stream. **Cost**: `input`
    /// fills `frame` directly. In Y4M a line stands before each frame: six bytes of the line are
    /// read together, and the rest of the line byte by byte.
    ///
    /// **Panics** (bug): when `frame` has another length than [`Shape::frame_bytes`].
    ///
    /// # Errors
    /// [`VideoError::Cut`] when the stream ends within a frame, [`VideoError::Header`] when no
    /// frame begins where one should, and [`VideoError::Io`] when `input` cannot be read. What
    /// `frame` holds then is not specified.
    pub fn read_frame(&mut self, frame: &mut [u8]) -> Result<bool, VideoError> {
        let bytes = self.header.shape().frame_bytes();
        assert_eq!(frame.len(), bytes, "the caller has room for one frame");
        if self.container == Container::Y4m && !self.read_frame_line()? {
            return Ok(false);
        }
        match read_all(&mut self.input, frame)? {
            0 if self.container == Container::Raw => Ok(false),
            read if read < bytes => Err(VideoError::Cut {
                frame: self.frames,
                read,
                bytes,
            }),
            _ => {
                self.frames += 1;
                Ok(true)
            }
        }
    }

    /// Reads the line before a frame. Returns false at the end of the stream.
    fn read_frame_line(&mut self) -> Result<bool, VideoError> {
        let mut start = [0; FRAME.len() + 1];
        let read = read_all(&mut self.input, &mut start)?;
        if read == 0 {
            return Ok(false);
        }
        let mut line = start[..read].to_vec();
        let is_frame = line.starts_with(FRAME) && matches!(line.last(), Some(b'\n' | b' '));
        if read < start.len() && FRAME.starts_with(&line) {
            let what = format!(
                "the stream was cut: it ends in the line before frame {}",
                self.frames
            );
            return Err(VideoError::header(&what, &line));
        }
        if read < start.len() || !is_frame {
            let what = format!(
                "the line before frame {} should be FRAME, and begins with",
                self.frames
            );
            return Err(VideoError::header(&what, &line));
        }
        if line.pop() == Some(b' ') {
            // Parameters of this frame alone: how its lines interlace, and remarks.
            read_line(&mut self.input, &mut line)?;
        }
        Ok(true)
    }
}

/// Writes frame after frame.
#[derive(Debug)]
pub struct VideoWriter<W> {
    output: W,
    container: Container,
    shape: Shape,
    unpacked: Vec<u8>,
}

impl<W: Write> VideoWriter<W> {
    /// Makes a writer, and writes the header line if the stream is Y4M. If `header` is of Y4M, its
    /// own line is written, otherwise a new line. Packed pixels of 12 bits become `mono12`.
    ///
    /// # Errors
    /// [`VideoError::NotInY4m`] for RGB8 in Y4M, [`VideoError::Shape`] when frames that become
    /// `mono12` would be too large, and [`VideoError::Io`] when `output` cannot be written.
    pub fn new(mut output: W, container: Container, header: &Header) -> Result<Self, VideoError> {
        let shape = header.shape();
        if container == Container::Y4m {
            let line = match shape.format() {
                _ if header.is_y4m() => header.line().to_owned(),
                PixelFormat::Mono12Packed | PixelFormat::Mono12p => {
                    let shape = Shape::new(shape.width(), shape.height(), PixelFormat::Mono12)?;
                    Header::new(shape, header.rate()).line().to_owned()
                }
                PixelFormat::Rgb8 => return Err(VideoError::NotInY4m(shape.format())),
                // The header is a raw line that names a format which Y4M has, too.
                _ => Header::new(shape, header.rate()).line().to_owned(),
            };
            writeln!(output, "{line}")?;
        }
        Ok(Self {
            output,
            container,
            shape,
            unpacked: Vec::new(),
        })
    }

    /// Writes one frame.
    ///
    /// **Panics** (bug): when `frame` has another length than [`Shape::frame_bytes`].
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn write_frame(&mut self, frame: &[u8]) -> Result<(), VideoError> {
        assert_eq!(frame.len(), self.shape.frame_bytes(), "one whole frame");
        if self.container == Container::Raw {
            return Ok(self.output.write_all(frame)?);
        }
        self.output.write_all(b"FRAME\n")?;
        let packing = match self.shape.format() {
            PixelFormat::Mono12Packed => Packing::GigeVision,
            PixelFormat::Mono12p => Packing::Pfnc,
            _ => return Ok(self.output.write_all(frame)?),
        };
        self.unpacked.clear();
        let pixels = packing.unpack(frame).flat_map(u16::to_le_bytes);
        self.unpacked.extend(pixels);
        Ok(self.output.write_all(&self.unpacked)?)
    }

    /// Flushes the output and returns it.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn finish(mut self) -> Result<W, VideoError> {
        self.output.flush()?;
        Ok(self.output)
    }
}

/// What lies around the frames of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Container {
    /// A header line, and a line before each frame.
    Y4m,
    /// Nothing.
    Raw,
}

impl fmt::Display for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Y4m => "Y4M",
            Self::Raw => "raw frames",
        })
    }
}

/// Why a stream of video cannot be read or written.
#[derive(Debug, Error)]
pub enum VideoError {
    /// The input cannot be read, or the output cannot be written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// There are no frames of this size.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// A line of the stream cannot be read, or is not the line that should come in this place.
    #[error("{what}: {line:?}")]
    Header {
        /// What is wrong with the line.
        what: String,
        /// The line's beginning.
        line: String,
    },
    /// The stream ends within a frame.
    #[error(
        "the stream ends in frame {frame} after {read} of {bytes} bytes: it was cut, or \
             its frames have another size"
    )]
    Cut {
        /// The number of the frame, from 0.
        frame: u64,
        /// Bytes of the frame that are there.
        read: usize,
        /// Bytes that a frame has.
        bytes: usize,
    },
    /// Y4M has no such format.
    #[error("Y4M has no pixel format {0}; write raw frames")]
    NotInY4m(PixelFormat),
}

impl VideoError {
    pub(crate) fn header(what: &str, line: &[u8]) -> Self {
        let line = String::from_utf8_lossy(line);
        Self::Header {
            what: what.to_owned(),
            line: base::text::printable(&line, 80).into_owned(),
        }
    }
}

/// Fills `bytes` from `input`, up to the end of `input`. Returns how many bytes it has filled.
fn read_all(input: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < bytes.len() {
        match input.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Reads up to the end of a line, and appends to `line` what comes before that end.
fn read_line(input: &mut impl Read, line: &mut Vec<u8>) -> Result<(), VideoError> {
    let mut byte = [0];
    while line.len() <= Header::LINE_BYTES_MAX {
        if read_all(input, &mut byte)? == 0 {
            let what = match line.is_empty() {
                true => "the stream is empty, and Y4M begins with a line of text",
                false => "the stream ends before the end of this line",
            };
            return Err(VideoError::header(what, line));
        }
        if byte == *b"\n" {
            return Ok(());
        }
        line.push(byte[0]);
    }
    let what = "a line of Y4M has at most 1024 bytes, and this one is longer";
    Err(VideoError::header(what, line))
}

const FRAME: &[u8] = b"FRAME";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::FrameRate;

    /// A stream that gives one byte, then is interrupted, and so on.
    struct Trickle<'a>(&'a [u8], bool);

    impl Read for Trickle<'_> {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let most = bytes.len().min(1);
            self.0.read(&mut bytes[..most])
        }
    }

    fn frames(mut reader: VideoReader<impl Read>) -> Result<Vec<Vec<u8>>, VideoError> {
        let mut frames = Vec::new();
        let mut frame = vec![0; reader.header().shape().frame_bytes()];
        while reader.read_frame(&mut frame)? {
            frames.push(frame.clone());
        }
        Ok(frames)
    }

    const SMALL: &[u8] = b"YUV4MPEG2 W2 H2 F5:2 XA  Cmono\nFRAME\n0123FRAME Ip Xa\n4567";

    #[test]
    fn frames_of_y4m_come_one_by_one() {
        for count in [1, 2] {
            let reader = if count == 1 {
                frames(VideoReader::y4m(SMALL).expect("sound"))
            } else {
                frames(VideoReader::y4m(Trickle(SMALL, false)).expect("sound"))
            };
            assert_eq!(reader.expect("whole"), [b"0123", b"4567"]);
        }
    }

    #[test]
    fn an_end_elsewhere_than_behind_a_frame_is_an_error() {
        let first = SMALL
            .iter()
            .position(|byte| *byte == b'\n')
            .expect("a line")
            + 1;
        for end in 0..SMALL.len() {
            let read = VideoReader::y4m(&SMALL[..end]).and_then(frames);
            let wholes = [first, first + 10];
            match wholes.iter().position(|whole| *whole == end) {
                Some(count) => assert_eq!(read.expect("whole").len(), count),
                None => assert!(read.is_err(), "{end}"),
            }
        }
        let cut = VideoReader::y4m(&SMALL[..SMALL.len() - 1]).and_then(frames);
        assert_eq!(
            cut.expect_err("cut").to_string(),
            "the stream ends in frame 1 after 3 of 4 bytes: it was cut, or its \
             frames have another size"
        );
    }

    #[test]
    fn what_begins_no_frame_is_refused() {
        for (stream, what) in [
            (
                &b"YUV4MPEG2 W1 H1 Cmono\nFRAMES\n0"[..],
                "the line before frame 0 should be FRAME, and begins with: \"FRAMES\"",
            ),
            (
                b"YUV4MPEG2 W1 H1 Cmono\nFRA",
                "the stream was cut: it ends in the line before frame 0: \"FRA\"",
            ),
            (
                b"",
                "the stream is empty, and Y4M begins with a line of text",
            ),
            (b"YUV4MPEG2 W1 H1 Cmono", "ends before the end of this line"),
            (b"RAW W1 H1 CMono8\n0", "must begin with YUV4MPEG2"),
            (b"RIFF\0\0\0\x1b[2J", "ends before the end of this line"),
        ] {
            let error = VideoReader::y4m(stream)
                .and_then(frames)
                .expect_err("no video");
            let error = error.to_string();
            assert!(error.contains(what) && !error.contains('\x1b'), "{error}");
        }
        let endless = VideoReader::y4m(io::repeat(b'Y')).expect_err("endless");
        assert!(
            endless.to_string().contains("at most 1024 bytes"),
            "{endless}"
        );
        let mut endless = b"YUV4MPEG2 W1 H1 Cmono\nFRAME ".to_vec();
        endless.resize(1 << 20, b'X');
        let refused = VideoReader::y4m(&endless[..]).and_then(frames);
        assert!(refused.is_err());
    }

    #[test]
    fn packed_pixels_are_unpacked_for_y4m_and_colours_refused() {
        let shape = |format| Shape::new(3, 1, format).expect("small");
        let header = Header::new(shape(PixelFormat::Mono12p), FrameRate::new(20, 1));
        let frame = [0xBC, 0xFA, 0xDE, 0x23, 0x01];
        let mut writer = VideoWriter::new(Vec::new(), Container::Y4m, &header).expect("grey");
        writer.write_frame(&frame).expect("memory");
        let written = writer.finish().expect("memory");
        let expected = b"YUV4MPEG2 W3 H1 F20:1 Ip A0:0 Cmono12\nFRAME\n\xBC\x0A\xEF\x0D\x23\x01";
        assert_eq!(written, expected);
        let mut writer = VideoWriter::new(Vec::new(), Container::Raw, &header).expect("any");
        writer.write_frame(&frame).expect("memory");
        assert_eq!(writer.finish().expect("memory"), frame);
        let header = Header::new(shape(PixelFormat::Rgb8), None);
        let refused = VideoWriter::new(Vec::new(), Container::Y4m, &header).expect_err("colours");
        assert_eq!(
            refused.to_string(),
            "Y4M has no pixel format RGB8; write raw frames"
        );
    }

    proptest! {
        #[test]
        fn what_was_read_is_written_as_it_was(
            width in 1_u32..20, height in 1_u32..20, index in 0..PixelFormat::ALL.len(),
            rate in (1_u32..99, 1_u32..99), remark in "[ -~]{0,40}", seed: u64, count in 0_u64..4,
        ) {
            let shape = Shape::new(width, height, PixelFormat::ALL[index]).expect("small");
            let header = Header::new(shape, FrameRate::new(rate.0, rate.1));
            let mut rng = base::Rng::new(seed);
            let mut bytes = vec![0; shape.frame_bytes()];
            let mut stream = Vec::new();
            if header.is_y4m() {
                let remark = remark.replace(' ', "_");
                stream.extend(format!("{} X{remark}\n", header.line()).bytes());
            }
            for _ in 0..count {
                rng.fill(&mut bytes);
                if header.is_y4m() {
                    stream.extend(b"FRAME\n");
                }
                stream.extend(&bytes);
            }
            let (mut reader, container) = match header.is_y4m() {
                true => (VideoReader::y4m(&stream[..]).expect("our own"), Container::Y4m),
                false => (VideoReader::raw(&stream[..], header), Container::Raw),
            };
            // What a receiver knows of the stream is the label.
            let told = Header::parse(reader.header().label().as_bytes()).expect("a label");
            let mut writer = VideoWriter::new(Vec::new(), container, &told).expect("the same");
            while reader.read_frame(&mut bytes).expect("whole") {
                writer.write_frame(&bytes).expect("memory");
            }
            prop_assert_eq!(writer.finish().expect("memory"), stream);
        }
    }
}
