//! The wire formats: whatever can be parsed must be the same when it is written again. And frames
//! that the kernel leaves to us to cut.

mod delivered;
pub use delivered::delivered;

mod link;
pub use link::{headers, segments};

mod object;
pub use object::{block, manifest, stream};

mod packet;
pub use packet::packet;

mod trace_file;
pub use trace_file::file;
