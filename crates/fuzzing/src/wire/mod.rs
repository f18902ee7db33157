//! The formats: whatever parses is written again as it came.

mod object;
pub use object::{block, manifest, stream};

mod packet;
pub use packet::packet;

mod trace_file;
pub use trace_file::file;
