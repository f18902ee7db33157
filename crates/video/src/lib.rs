//! Uncompressed video: what the bytes of a frame mean, how they are read and written, and how
//! people look at them.
//!
//! ```text
//!   Y4M or raw bytes --> VideoReader --> frame (bytes) --> VideoWriter --> Y4M or raw bytes
//!                                      Shape: its size `--> Picture --> half blocks of a terminal
//!                                      and its meaning          `-----> JPEG --> mjpeg
//! ```
//!
//! A frame is a slice of bytes as long as its [`Shape`] says. Readers and writers take any stream;
//! this crate opens no files, knows no network and keeps no time. What it reads is bounded: a
//! frame holds at most [`Shape::FRAME_BYTES_MAX`], a header line at most 1,024 bytes.
#![forbid(unsafe_code)]

mod format;
pub use format::PixelFormat;

mod shape;
pub use shape::{Plane, Shape, ShapeError};

pub mod packed;

mod rate;
pub use rate::FrameRate;

pub mod y4m;

mod stream;
pub use stream::{Container, VideoError, VideoReader, VideoWriter};

mod picture;
pub use picture::{HalfBlock, Picture, Pixels};

mod jpeg;

pub mod mjpeg;
