//! Synchronous netlink: interfaces, addresses, routes, device features, packet loss.
//!
//! [`Rtnetlink`] does the work of the program `ip`, without running it. [`Ethtool`] switches device
//! features. [`RandomLoss`] makes the network lose packets; [`TokenBucket`] slows it. [`TcpSocket`]
//! lists sockets as the program `ss` does. [`Request`] and [`Reply`] are the codec, pure and
//! bounds-checked. Only [`NetlinkSocket`] makes system calls. The module holds no state: each call
//! asks the kernel.
//!
//! Sockets belong to the network namespace of the thread that opened them.

mod address;
pub use address::{Address, AddressFlags, Scope};

mod bucket;
pub use bucket::TokenBucket;

mod ethtool;
pub use ethtool::Ethtool;

mod link;
pub use link::{Link, LinkFlags, LinkState, Veth};

mod message;
pub use message::{Attribute, Attributes, Malformed, Replies, Reply, Request};

mod nftables;
pub use nftables::{Mishap, RandomLoss};

mod route;
pub use route::{Route, RouteKind, RouteQuery};

mod rtnetlink;
pub use rtnetlink::Rtnetlink;

mod socket;
pub use socket::{NetlinkError, NetlinkSocket, Protocol};

mod sockets;
pub use sockets::TcpSocket;

mod statistics;
pub use statistics::LinkStatistics;

#[cfg(test)]
mod tests;
