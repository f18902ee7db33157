//! Files: what a sender reads ([`Tree`], [`FileContent`]) and what a receiver writes
//! ([`FileStore`]: staged, journalled, synced, then named). This module knows nothing of sockets.

mod content;
pub use content::FileContent;

mod store;
pub use store::{
    Delete, DiskCall, DiskFault, Endings, Existing, FileStore, KeepFree, Leftover, Modes, Owners,
    Room, RoomLimits, StoreOptions, check_directory, discard_leftover, leftovers,
};

mod tree;
pub use tree::{Tree, TreeOptions, TreeSource};
