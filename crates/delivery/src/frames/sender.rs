//! The sending end of frames: numbers frames, makes their headers, and cuts them into pieces.

use std::time::Duration;

use wire::object::{FrameHeader, FrameKind};

base::counters! {
    /// What a sender of frames has done.
    pub struct FrameSenderCounters: "frame_sender" {
        frames_sent: Events, "frames taken to be sent";
        frame_bytes: Bytes, "bytes of these frames";
        frames_overrun: Events, "frames numbered and not sent, as those before them had not left";
        frames_unheard: Events, "frames not sent because no receiver listens";
    }
}

/// The settings that all frames of a sender have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameSenderConfig {
    /// The time from one frame to the next, which receivers are told; zero when it is not known.
    pub interval: Duration,
    /// How long after its timestamp a frame is of use.
    pub deadline: Duration,
    /// Description for the receivers' applications: how to read a frame. At most 255 bytes.
    pub format: Vec<u8>,
}

impl FrameSenderConfig {
    /// The longest deadline; a longer one is cut to this.
    pub const DEADLINE_MAX: Duration = crate::parameters::FRAME_DEADLINE_MAX;
    /// The longest format, in bytes.
    pub const FORMAT_BYTES_MAX: usize = u8::MAX as usize;
}

/// The numbers and headers of one stream of frames.
#[derive(Clone, Debug)]
pub struct FrameSender {
    config: FrameSenderConfig,
    next_id: u64,
    skipped: u32,
    counters: FrameSenderCounters,
}

/// Why a frame cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoFrame {
    /// The frame has no bytes.
    Empty,
    /// The frame, its format included, has more bytes than 32 bits can count.
    TooLong,
    /// A packet has no room for a header and the shortest piece.
    SmallPackets,
}

impl FrameSender {
    /// Makes the sender of a stream whose first frame has the number 0. Cuts a format or deadline
    /// that is longer than [`FrameSenderConfig`] allows.
    #[must_use]
    pub fn new(mut config: FrameSenderConfig) -> Self {
        config.format.truncate(FrameSenderConfig::FORMAT_BYTES_MAX);
        config.deadline = config.deadline.min(FrameSenderConfig::DEADLINE_MAX);
        Self {
            config,
            next_id: 0,
            skipped: 0,
            counters: FrameSenderCounters::default(),
        }
    }

    /// Cuts the next frame, of `len` bytes, into pieces for packets that hold `packet_bytes`.
    /// The frame gets its number with [`FrameSender::taken`] or [`FrameSender::overrun`].
    ///
    /// # Errors
    /// See [`NoFrame`].
    pub fn next(
        &self,
        timestamp_ns: u64,
        len: usize,
        packet_bytes: usize,
    ) -> Result<FramePieces<'_>, NoFrame> {
        let format = &self.config.format[..];
        let stride = packet_bytes.saturating_sub(FrameHeader::LEN);
        let stride = u16::try_from(stride).unwrap_or(u16::MAX) & !(ALIGNED - 1);
        if usize::from(stride) < FrameHeader::STRIDE_MIN {
            return Err(NoFrame::SmallPackets);
        }
        let whole = len.checked_add(format.len());
        let whole = whole.and_then(|whole| u32::try_from(whole).ok());
        let header = FrameHeader {
            kind: FrameKind::Piece,
            format_len: format.len() as u8,
            stride,
            index: 0,
            id: self.next_id,
            timestamp_ns,
            len: whole.ok_or(NoFrame::TooLong)?,
            interval_us: micros(self.config.interval),
            deadline_us: micros(self.config.deadline),
            skipped: self.skipped,
        };
        if len == 0 {
            return Err(NoFrame::Empty);
        }
        Ok(FramePieces { header, format })
    }

    /// Notes that the frame from [`FrameSender::next`] will be sent. Returns the frame's number.
    pub const fn taken(&mut self, len: usize) -> u64 {
        self.counters.frames_sent += 1;
        self.counters.frame_bytes += len as u64;
        self.next_id += 1;
        self.next_id - 1
    }

    /// Notes that a frame is not sent because earlier frames have not left. The frame gets a
    /// number all the same, which is returned. The next frame that is sent tells receivers how many
    /// frames were skipped so far.
    pub const fn overrun(&mut self) -> u64 {
        self.counters.frames_overrun += 1;
        self.skipped = self.skipped.saturating_add(1);
        self.next_id += 1;
        self.next_id - 1
    }

    /// Notes that a frame was not sent because nobody listens; the frame gets no number.
    pub const fn unheard(&mut self) {
        self.counters.frames_unheard += 1;
    }

    /// Returns the payload of the END packet, which tells receivers that there are no more frames.
    #[must_use]
    pub fn end(&self) -> [u8; FrameHeader::LEN] {
        let header = FrameHeader {
            kind: FrameKind::End,
            format_len: 0,
            stride: 0,
            index: 0,
            id: self.next_id,
            timestamp_ns: 0,
            len: 0,
            interval_us: micros(self.config.interval),
            deadline_us: micros(self.config.deadline),
            skipped: self.skipped,
        };
        header.to_bytes()
    }

    /// Returns the number of the next frame.
    #[must_use]
    pub const fn next_id(&self) -> u64 {
        self.next_id
    }

    /// Returns the settings that all frames have in common.
    pub const fn config(&self) -> &FrameSenderConfig {
        &self.config
    }

    /// Returns the counters.
    #[must_use]
    pub const fn counters(&self) -> &FrameSenderCounters {
        &self.counters
    }
}

/// One frame, cut into pieces.
#[derive(Clone, Copy, Debug)]
pub struct FramePieces<'a> {
    header: FrameHeader,
    format: &'a [u8],
}

impl FramePieces<'_> {
    /// Returns how many pieces there are.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.header.pieces() as usize
    }

    /// Returns the length of each piece except the last, with its header, in bytes.
    #[must_use]
    pub const fn piece_len(&self) -> usize {
        FrameHeader::LEN + self.header.stride as usize
    }

    /// Returns the length of the last piece, with its header, in bytes.
    #[must_use]
    pub const fn last_len(&self) -> usize {
        let before = (self.count() - 1) * self.header.stride as usize;
        FrameHeader::LEN + self.header.len as usize - before
    }

    /// Writes piece `index` into `room`, which has the piece's length. `fill` gets an offset in the
    /// frame, and writes the frame's bytes from there on.
    #[inline]
    pub fn fill(&self, index: usize, room: &mut [u8], fill: impl FnOnce(usize, &mut [u8])) {
        let header = FrameHeader {
            index: index as u32,
            ..self.header
        };
        let (head, piece) = room.split_at_mut(FrameHeader::LEN);
        head.copy_from_slice(&header.to_bytes());
        let data_len = header.len as usize - self.format.len();
        let at = header.offset();
        let (data, format) = piece.split_at_mut(data_len.saturating_sub(at).min(piece.len()));
        if !data.is_empty() {
            fill(at, data);
        }
        let from = (at + data.len()).saturating_sub(data_len);
        format.copy_from_slice(&self.format[from..from + format.len()]);
    }
}

/// Returns a time in microseconds, as headers have it.
fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

/// Pieces begin at multiples of this many bytes, so that no sample of a pixel is cut in two.
const ALIGNED: u16 = 8;
