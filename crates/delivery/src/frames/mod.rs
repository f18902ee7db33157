//! Frames: data of megabytes that is of use for a moment only, such as images of a camera.
//!
//! A frame is cut into pieces, each of which fills one packet of a stream that can lose, repair and
//! reorder packets. The sender numbers all frames. A receiver delivers a frame whole by its
//! deadline, in order, or drops it whole and says why. Neither machine knows packets, sockets or
//! clocks.
//!
//! ```text
//!   FrameSender                                       FrameReceiver
//!   frame --next--> headers --fill--> pieces  ~~~~~>  take --> the frame's own buffer
//!                                                      |         whole, by its deadline --> pop
//!                                                      '---- deadline over: dropped, counted
//! ```
//!
//! Invariants:
//! - a delivered frame has every byte, and its deadline has not passed;
//! - for each stream, from the first frame after joining on:
//!   `whole + lost by each cause == the sender's numbers`;
//! - what a receiver keeps is bounded by its configuration, whatever the network sends.
//!
//! **Spec**: `docs/src/protocol.md`, the section on frames.

mod clock;

mod counts;
pub use counts::{FrameCounts, FrameLoss};

mod edge;

mod receiver;
pub use receiver::{
    Frame, FrameEvent, FrameReceiver, FrameReceiverConfig, FrameReceiverCounters, PieceVerdict,
};

mod room;

mod sender;
pub use sender::{FramePieces, FrameSender, FrameSenderConfig, FrameSenderCounters, NoFrame};

mod stream;

#[cfg(test)]
mod tests;
