//! Frames of a camera, in numbers: how many get lost, how sure that is, and what a stream of frames
//! needs from a path.
//!
//! ```text
//!   expected, lost ----> LossCount --(lasted)--> Stability: very stable, or what is missing
//!   size, rate, MTU ---> FrameLoad ----------> packets, buffers, window, expected loss
//!                                    `--(Resource)--> the rate at which it becomes the limit
//! ```
//!
//! "Very stable" is a published definition for video in control systems: fewer than one frame in a
//! thousand lost, over more than ten minutes. The proportion in a count is not the proportion of
//! the path. So the claim must hold for the highest proportion that the count allows at 95 %.
//!
//! **Sources**: C. J. Clopper and E. S. Pearson, "The use of confidence or fiducial limits
//! illustrated in the case of the binomial", Biometrika 26 (1934), for the bounds; the rule of
//! three (3/n after n successes) approximates the upper bound of a run without a loss. socket(7)
//! for what the kernel makes of a socket buffer's size.

mod binomial;

mod loss;
pub use loss::{LossCount, Stability, VERY_STABLE_LOSS, VERY_STABLE_TIME};

mod stream;
pub use stream::{FrameLoad, Repair, Resource, tightest};
