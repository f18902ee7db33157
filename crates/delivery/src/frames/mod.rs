//! Frames: data of megabytes that is of use for a moment only, such as images of a camera.
//!
//! A frame is cut into pieces. Each piece goes into one packet of a stream that can lose, repair
//! and reorder packets. The sender numbers all frames. A receiver delivers a frame whole by its
//! deadline, in order, or drops it whole and says why. Neither end uses sockets or reads a clock.
//!
//! ```text
//!   FrameSender                                       FrameReceiver
//!   frame --next--> headers --fill--> pieces  ~~~~~>  take --> the frame's own buffer
//!                                                      |         whole, by its deadline --> pop
//!                                                      '---- deadline over: dropped, counted
//! ```
//!
//! A sender can send the same frames twice, as two feeds over two networks. Then a receiver has a
//! [`FrameReceiver`] for each feed, and an [`Arbiter`] makes one stream of both.
//!
//! Invariants:
//! - a delivered frame has every byte, and its deadline has not passed;
//! - for each stream, from the first frame after joining on, every number that the sender gave is
//!   counted once: as whole, or as lost by one cause;
//! - an [`Arbiter`] gives each number out at most once, in order: as a whole frame if either feed
//!   had it in time;
//! - a receiver's memory is bounded by its configuration, whatever the network sends.
//!
//! **Spec**: `docs/src/protocol.md`, the section on frames.

mod arbiter;
pub use arbiter::{Apart, Arbiter, ArbiterCounters, FoundStream};

mod clock;

mod counts;
pub use counts::{FeedCounts, FrameCounts, FrameLoss};

mod edge;

mod entry;

mod feed;
pub use feed::Feed;

mod merge;

mod receiver;
pub use receiver::{
    Frame, FrameEvent, FrameReceiver, FrameReceiverConfig, FrameReceiverCounters, PieceVerdict,
};

mod room;

mod sender;
pub use sender::{FramePieces, FrameSender, FrameSenderConfig, FrameSenderCounters, NoFrame};

mod stream;

mod whole;

#[cfg(test)]
mod tests;
