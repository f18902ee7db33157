//! Safe functions around system calls: sockets, GSO/GRO, multicast, files, netlink.
//!
//! The crate knows no protocol: its functions take bytes, addresses, options and descriptors, and
//! return results. Every unsafe block holds one operation; a comment proves that it is sound. Most
//! errors are [`std::io::Error`]s with the errno. The callers add operation, target and, where
//! [`usual_remedy`] is not enough, the remedy.
#![cfg(target_os = "linux")]
#![allow(
    unsafe_code,
    reason = "this crate exists to hold the unsafe code of the others"
)]

mod address;
pub use address::RawAddress;

mod bpf;

mod buffers;
pub use buffers::SocketBuffers;

mod call;

pub mod clock;

pub mod datagram;

#[cfg(feature = "rings")]
mod datagram_ring;
#[cfg(feature = "rings")]
pub use datagram_ring::DatagramRing;

mod driver;
pub use driver::DriverCounters;

pub mod discipline;

/// The errno values that callers tell apart.
pub mod errno {
    pub use libc::{
        EACCES, EADDRINUSE, EADDRNOTAVAIL, EAFNOSUPPORT, EAGAIN, EBADF, EBUSY, ECONNREFUSED,
        ECONNRESET, EDQUOT, EEXIST, EHOSTDOWN, EHOSTUNREACH, EINTR, EINVAL, EIO, EMFILE, EMSGSIZE,
        ENETDOWN, ENETUNREACH, ENFILE, ENOBUFS, ENODEV, ENOMEM, ENOPROTOOPT, ENOSPC, ENOSYS,
        ENOTSOCK, EOPNOTSUPP, EPERM, EPROTO, EROFS,
    };
}

pub mod account;

pub mod file;

#[cfg(feature = "filter")]
mod filter;
#[cfg(feature = "filter")]
pub use filter::{FilterError, FilterProgram};

pub mod hardware_stamp;

mod host;
pub use host::{
    host_name, limit_open_files, open_files_max, random, random_u64, resident_bytes, spawn_as_given,
};

mod mapping;

pub mod message;
pub use message::{Control, Inbox, Received};

pub mod packet;

pub mod phc;

pub mod netfilter;

pub mod poll;
pub use poll::{Epoll, Interest, Ready, TimerFd, WakeFd};

pub mod reception;

#[cfg(feature = "privilege")]
pub mod privilege;

mod remedy;
pub use remedy::{THREAD_REMEDY, panicked, usual_remedy, with_usual_remedy};

pub mod scheduler;

mod signal;
pub use signal::{request_end, watch_end_requests};

pub mod stamp;

pub mod tcp;

mod tcp_info;
pub use tcp_info::{TcpField, TcpInfo};

pub mod transmit;

mod udp;
pub use udp::{Family, PathMtu, UdpSocket};

pub mod namespace;
pub mod netlink;

pub mod xdp;
