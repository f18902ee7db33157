//! Why a group does not arrive: what is sent and heard on each interface, what the kernel would do
//! with it, and each cause in words with its fix.
//!
//! ```text
//!   Talk:  beacons to the group, from each host that takes part, and to named peers (unicast)
//!   Wire:  frames to groups, and IGMP queries, as they enter the host (needs CAP_NET_RAW)
//!   Host:  interface, route, reverse path, netfilter chains, IGMP version
//!                          \         |         /
//!                           +---- Facts ----> judge() ----> findings
//! ```
//! A frame that enters the host and does not reach the socket was dropped by this host; one that a
//! peer says it sends, and that never enters, was not sent, or was dropped on the way. The unicast
//! beacons tell how many routers lie between, whatever becomes of the group.

mod beacon;

mod facts;
pub use facts::{
    Facts, Frames, Heard, InterfaceFacts, PeerFacts, PeerWord, Querier, Refusal, Refused,
    ReversePath, RuleChain, Unlisted,
};

mod host;

mod notes;

mod talk;
pub use talk::{ReachReport, ReachSpec, new_token, reach};

mod verdict;
pub use verdict::{Cause, Finding, judge};

mod wire;

/// Where hosts that take part talk to each other, besides the group.
pub const PORT: u16 = 7702;
