//! The library's types for frames: images of a camera, and other data of megabytes that is of use
//! for a moment only.

mod ends;

mod publisher;
pub use publisher::{FeedSent, FramePublisher, FramePublisherBuilder};

mod subscriber;
pub use subscriber::FrameSubscriber;
