//! Frames of video outside the session that carries them: read from files and pipes, kept in files,
//! and shown to people while they arrive.
//!
//! The thread that receives frames must not wait. So a [`Preview`] copies a frame only when
//! somebody looks and the preview's own thread is idle. A [`Film`] copies a frame only while its
//! queue has room. A [`Reel`] reads frames ahead of the thread that sends them. Everything slow
//! happens in the threads of these three.

mod advice;
pub use advice::{Advice, ExpectedLoss, FRAME_HEADER_BYTES, FramesAsked, Limit, PathFacts};

mod film;
pub use film::{Film, FilmCounts, FilmPlace};

mod glimpse;
pub use glimpse::Glimpse;

mod label;
pub use label::{LabelReading, is_pattern, label_of_pattern};

mod pattern;
pub use pattern::FramePattern;

mod preview;
pub use preview::{Preview, VIEWERS_MAX};

mod reel;
pub use reel::{Next, Reel};

pub use measure::{
    Delays, Percentiles,
    frames::{FrameLoad, LossCount, Stability},
};
pub use video::{
    Container, FrameRate, HalfBlock, Picture, PixelFormat, Shape, VideoError, VideoReader,
    y4m::Header,
};
