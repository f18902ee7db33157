//! The faces for frames: images of a camera and other things of megabytes that are of use for a
//! moment only.

mod ends;

mod publisher;
pub use publisher::{FeedSent, FramePublisher, FramePublisherBuilder};

mod subscriber;
pub use subscriber::FrameSubscriber;
