//! Io over real sockets: groups, interfaces, control connections, fault interception.
//!
//! [`UdpIo`] is what the run loop drives in the shipped programs. Which interface to use is decided
//! elsewhere and handed in as an index and a local address.
#![forbid(unsafe_code)]

mod content;
pub use content::FileContent;

mod error;
pub use error::NetError;

mod group;
pub use group::Group;

pub mod intercept;
pub use intercept::{Faults, Intercept};

pub mod interface;
pub use interface::{Interface, InterfaceError, Interfaces};

mod options;
pub use options::{SocketOptions, WaitStrategy};

mod resolve;
pub use resolve::resolve;

mod store;
pub use store::{
    DiskCall, DiskFault, Existing, FileStore, Leftover, StoreOptions, discard_leftover, leftovers,
};

mod tree;
pub use tree::{Tree, TreeSource};

mod udp;
pub use udp::{Role, UdpCounters, UdpIo, UdpSetup, Waker};
