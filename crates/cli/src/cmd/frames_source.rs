//! Where `frames send` takes frames from: a generated pattern, or video from a file or a pipe.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use gauge::frames::{FramePattern, Next, Reel, VideoError, VideoReader, label_of_pattern};

use crate::{
    args::PerSecond,
    failure::Failure,
    plan::{FrameSourcePlan, FramesSendPlan},
};

/// Where the frames to send come from.
pub(super) enum Source {
    /// Generated frames: a frame's number and the seed determine its bytes.
    Pattern {
        pattern: FramePattern,
        frame_bytes: usize,
        label: String,
        rate: PerSecond,
    },
    /// Frames are read from a file or from standard input.
    Video {
        reel: Reel,
        /// A frame that was read and is not sent yet.
        next: Option<Vec<u8>>,
        rate: PerSecond,
    },
}

/// Whether the next frame is ready to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ready {
    Yes,
    NotYet,
    Over,
}

impl Source {
    /// Opens the source that the plan names. For Y4M it waits for the header.
    pub(super) fn open(plan: &FramesSendPlan) -> Result<Self, Failure> {
        let reel = match &plan.source {
            FrameSourcePlan::Pattern { size, seed } => {
                let rate = plan.per_second.unwrap_or(PerSecond::USUAL);
                return Ok(Self::Pattern {
                    pattern: FramePattern::new(*seed),
                    frame_bytes: size.bytes,
                    label: label_of_pattern(size.pixels, rate.0),
                    rate,
                });
            }
            FrameSourcePlan::Y4m { path } => {
                let reader = VideoReader::y4m(open(path)?);
                let doing = format!("reading {}", path.display());
                Reel::start(reader.map_err(|error| unreadable(&doing, &error))?)
            }
            FrameSourcePlan::Raw { path, header } => {
                Reel::start(VideoReader::raw(open(path)?, header.clone()))
            }
        };
        let reel = reel.map_err(|error| Failure::Environment(error.to_string()))?;
        let rate = match (plan.per_second, reel.header().rate()) {
            (Some(rate), _) => rate,
            (None, Some(told)) => PerSecond::new(told.per_s()).ok_or_else(|| {
                let text = format!(
                    "the Y4M header says {} frames a second, and 0.01 to 100000 can be sent: \
                     give --fps",
                    told.per_s()
                );
                Failure::Usage(text)
            })?,
            (None, None) => PerSecond::USUAL,
        };
        Ok(Self::Video {
            rate,
            reel,
            next: None,
        })
    }

    /// Returns the size of each frame, in bytes.
    pub(super) fn frame_bytes(&self) -> usize {
        match self {
            Self::Pattern { frame_bytes, .. } => *frame_bytes,
            Self::Video { reel, .. } => reel.header().shape().frame_bytes(),
        }
    }

    /// Returns the label, which tells receivers how to read the frames.
    pub(super) fn label(&self) -> String {
        match self {
            Self::Pattern { label, .. } => label.clone(),
            Self::Video { reel, .. } => reel.header().label(),
        }
    }

    /// Returns how many frames are sent each second.
    pub(super) const fn rate(&self) -> PerSecond {
        match self {
            Self::Pattern { rate, .. } | Self::Video { rate, .. } => *rate,
        }
    }

    /// Returns true when frames come from a file or a program, where the next one may be late.
    pub(super) const fn is_live(&self) -> bool {
        matches!(self, Self::Video { .. })
    }

    /// Looks, without waiting, whether the next frame is there.
    pub(super) fn look(&mut self) -> Result<Ready, Failure> {
        let Self::Video { reel, next, .. } = self else {
            return Ok(Ready::Yes);
        };
        if next.is_some() {
            return Ok(Ready::Yes);
        }
        match reel.next_frame() {
            Ok(Next::Frame(frame)) => {
                *next = Some(frame);
                Ok(Ready::Yes)
            }
            Ok(Next::NotYet) => Ok(Ready::NotYet),
            Ok(Next::Over) => Ok(Ready::Over),
            Err(error) => Err(unreadable("reading frames", &error)),
        }
    }

    /// Fills `room` with bytes of the next frame (number `id`), beginning at the frame's byte
    /// `offset`.
    pub(super) fn fill(&self, id: u64, offset: usize, room: &mut [u8]) {
        match self {
            Self::Pattern { pattern, .. } => pattern.fill(id, offset, room),
            Self::Video { next, .. } => {
                let frame = next
                    .as_deref()
                    .expect("a frame is looked for before it is sent");
                room.copy_from_slice(&frame[offset..][..room.len()]);
            }
        }
    }

    /// Moves on to the next frame, after the publisher was offered the present one.
    pub(super) fn advance(&mut self) {
        if let Self::Video { reel, next, .. } = self
            && let Some(frame) = next.take()
        {
            reel.give_back(frame);
        }
    }
}

fn open(path: &Path) -> Result<Box<dyn Read + Send>, Failure> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin()));
    }
    match File::open(path) {
        Ok(file) => Ok(Box::new(file)),
        Err(error) => Err(Failure::Environment(crate::failure::unreadable(
            path, &error,
        ))),
    }
}

fn unreadable(doing: &str, error: &VideoError) -> Failure {
    match error {
        VideoError::Io(error) => Failure::system(doing, error),
        other => Failure::environment(doing, other),
    }
}
