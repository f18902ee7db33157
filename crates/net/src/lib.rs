//! Input and output on a real system: packets and control connections over [`socket`]s, and files
//! on a [`disk`]. These two parts share only [`SystemError`]. Beside them, [`http`] serves the
//! pages of a running program.
//!
//! In the shipped programs, the run loop of a session with packets drives a [`UdpIo`], or several
//! as one [`WaysIo`]. The caller of [`UdpIo::open`] chooses the interface, and hands it in as an
//! index and a local address.
#![forbid(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "towline-net makes system calls of Linux; on other systems only the crates without input and \
     output build: base, wire, pgm, protection, delivery, measure, driver"
);

pub mod disk;
pub use disk::{
    Delete, DiskCall, DiskFault, Endings, Existing, FileContent, FileStore, KeepFree, Leftover,
    Modes, Owners, Room, RoomLimits, StoreOptions, Tree, TreeOptions, TreeSource, check_directory,
    discard_leftover, leftovers,
};

mod error;
pub use error::SystemError;
pub use sys::{THREAD_REMEDY, usual_remedy, with_usual_remedy};

pub mod http;

mod remedy;
pub use remedy::{Missing, Remedy};

pub mod socket;
pub use socket::{
    Encapsulation, Faults, Group, HeldBack, Intercept, Interface, InterfaceError, Interfaces,
    LinkIo, NetworkLimit, NetworkSigns, Role, SocketOptions, TcpLimit, TcpShares, UdpCounters,
    UdpIo, UdpSetup, WaitStrategy, Waker, WaysIo, intercept, interface, resolve,
};
