//! Finds out why a group does not arrive. It observes what is sent and heard on each interface, and
//! what the kernel would do with it. It names each cause with its fix.
//!
//! ```text
//!   Talk:  beacons to the group, from each host that takes part, and to named peers (unicast)
//!   FrameWatch: frames to groups, and IGMP queries, as they enter the host (needs CAP_NET_RAW)
//!   Host:  interface, route, reverse path, netfilter chains, IGMP version
//!                          \         |         /
//!                           +---- Facts ----> judge() ----> findings
//! ```
//! When a frame enters this host and does not reach the socket, this host has dropped it. When a
//! peer says that it sends a frame, and the frame never enters this host, it was dropped on the way
//! or never sent. The unicast beacons tell how many routers are between the hosts, even when the
//! group does not arrive.

mod facts;
pub use facts::{
    Facts, Frames, Heard, InterfaceFacts, PeerFacts, PeerWord, Querier, Refusal, Refused,
    ReversePath, RuleChain, Unlisted,
};

mod host;

mod frames;

mod notes;

mod talk;
pub use talk::{ReachReport, ReachSpec, new_token, reach};

mod verdict;
pub use verdict::{Cause, Finding, judge};

/// The port on which participating hosts talk to each other, besides the group.
pub const PORT: u16 = 7702;
