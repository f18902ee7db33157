//! The wire formats: whatever can be parsed must be the same when it is written again. Frames that
//! the kernel leaves uncut are cut here, too.

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
