//! PGM (RFC 3208) as pure state machines: one source, one receiver of many sources, or a network
//! element between networks.
//!
//! A [`Source`] numbers messages, keeps them for repair, answers NAKs and announces its window. A
//! [`Receiver`] finds gaps, asks for repairs and hands out messages, in order or as they arrive.
//! The crate has no socket, clock, thread or lock: bytes and times go in, bytes and deadlines come
//! out (the base crate states the contract). Packet formats are in the wire crate, reports and flow
//! control in the delivery crate, sockets in the net crate.
//!
//! ```text
//!                 Source                                   Receiver
//!   offer ---> transmit log --ODATA-------------------> window ---> message
//!              repair set   <--------------------NAK--- gaps
//!              NCF queue    --NCF, RDATA--------------> gaps, window
//!              SPM schedule --SPM---------------------> peer: window edges, way for NAKs
//!                           <-------------------SPMR--- a new peer without an SPM
//! ```
//!
//! | where | what |
//! |---|---|
//! | `config` | every parameter, declared once: default, range, origin, help |
//! | `source/log` | ring and index of sent and unsent packets: the window's edges |
//! | `source/write`, `source/transmit`, `source/upstream` | messages in, datagrams out, NAKs in |
//! | `source/repair`, `source/ncf`, `source/spm`, `source/pacer` | one mechanism each |
//! | `source/polling`, `poll` | receivers counted by polls, and their replies |
//! | `receiver/peer`, `receiver/window`, `receiver/gaps` | one sender, its data, what is missing |
//! | `source/parity`, `receiver/groups` | parity: asked for, sent, kept until it recovers a loss |
//! | `element` | between networks: gathers NAKs, sends repairs only where packets are missing |
//! | `fec` | makes parity packets of a transmission group, recovers lost packets from them |
//!
//! A packet is lost and repaired, in virtual time:
//!
//! ```
//! use std::{net::{IpAddr, SocketAddr}, time::Duration};
//! use base::{Arrival, Budget, Instant, Outcome, PathId, Socket, Verdict};
//! use towline_pgm::{Config, Mode, Ready, Receiver, ReceiverSetup, Source, SourceSetup};
//! use wire::pgm::{Gsi, Tsi};
//!
//! let [sender, listener, group] = ["10.0.0.1", "10.0.0.2", "239.192.0.1"]
//!     .map(|text| text.parse::<IpAddr>().unwrap());
//! let (port, path, seed) = (7500, PathId(0), 1);
//! let tsi = Tsi { gsi: Gsi([1, 2, 3, 4, 5, 6]), port: 40_000 };
//! let group = SocketAddr::new(group, port);
//! let mut now = Instant::from_nanos(1_000_000_000);
//! let setup = SourceSetup {
//!     tsi, destination_port: port, group, nla: sender, path, first_sqn: 7, seed, mark: None,
//! };
//! let mut source = Source::new(Config::default(), setup, now);
//! let setup = ReceiverSetup {
//!     mode: Mode::Sequence, destination_port: port, group, path, seed, is_protected: false,
//!     own_nla: listener,
//! };
//! let mut receiver = Receiver::new(Config::default(), setup, now);
//!
//! for text in ["one", "two", "three"] {
//!     source.offer(text.as_bytes()).unwrap();
//! }
//! let (budget, mut heard, mut lost) = (Budget { bytes: 64_000, datagrams: 1 }, Vec::new(), 0);
//! while heard.len() < 3 {
//!     // Downstream. The third datagram, which carries "two", is lost on the way.
//!     while let Some(run) = source.poll_run(now, budget) {
//!         let tpdu = run.datagrams().next().unwrap().to_vec();
//!         source.run_done(now, Outcome::Sent { datagrams: 1 });
//!         lost += 1;
//!         if lost == 3 { continue; }
//!         let from = Arrival::from(SocketAddr::new(sender, 50_000), Socket::Group);
//!         if let Verdict::Payload { range, .. } = receiver.handle(now, &from, &tpdu) {
//!             heard.push(tpdu[range].to_vec());
//!         }
//!         while let Some(ready) = receiver.pop_ready() {
//!             if let Ready::Message { data, .. } = ready { heard.push(data.to_vec()); }
//!         }
//!     }
//!     // Upstream: the NAK.
//!     while let Some(run) = receiver.poll_run(now, budget) {
//!         let tpdu = run.datagrams().next().unwrap().to_vec();
//!         receiver.run_done(now, Outcome::Sent { datagrams: 1 });
//!         let from = Arrival::from(SocketAddr::new(listener, 50_001), Socket::Upstream);
//!         source.handle(now, &from, &tpdu);
//!     }
//!     // Time passes until the next deadline of either end.
//!     let due = base::earliest(source.next_timeout(), receiver.next_timeout()).unwrap();
//!     now = due.max(now);
//!     let is_due = |timeout: Option<base::Instant>| timeout.is_some_and(|at| at <= now);
//!     if is_due(source.next_timeout()) { source.handle_timeout(now); }
//!     if is_due(receiver.next_timeout()) { receiver.handle_timeout(now); }
//! }
//! assert_eq!(heard, [&b"one"[..], b"two", b"three"]);
//! assert_eq!((source.counters().ncfs, source.counters().rdata_packets), (1, 1));
//! assert!(now.since(Instant::from_nanos(1_000_000_000)) < Duration::from_millis(10));
//! ```
#![forbid(unsafe_code)]

mod config;
pub use config::{
    Config, ConfigBuilder, ConfigError, FecForm, Intervals, LateJoin, PARAMETERS, Parameter, Rate,
    Role, Timer,
};

mod element;
pub use element::{Element, ElementCounters, ElementSetup, ElementTimers, Way};

pub mod fec;

mod poll;

mod queue;

mod rdata;

mod receiver;
pub use receiver::{
    Arrived, Mode, Position, Ready, Receiver, ReceiverCounters, ReceiverSetup, Status, Told,
};

mod source;
pub use source::{Burst, Census, Full, Slot, Source, SourceCounters, SourceSetup};

mod spm_sequence;

/// Returns the length in bytes of the IP and UDP headers of a packet, for the address family of
/// `ip`.
pub const fn ip_udp_header_bytes(ip: std::net::IpAddr) -> usize {
    if ip.is_ipv4() { 20 + 8 } else { 40 + 8 }
}
