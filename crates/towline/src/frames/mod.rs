//! The library's types for frames: camera images, and other data of several megabytes that is
//! useful only for a moment.

mod ends;

mod publisher;
pub use publisher::{FeedSent, FramePublisher, FramePublisherBuilder};

mod subscriber;
pub use subscriber::FrameSubscriber;
