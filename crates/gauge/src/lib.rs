//! Instruments for networks and hosts. Each can be used from a program and from the command line.
//!
//! | module | asks | answers |
//! |---|---|---|
//! | [`rtt`] | a reflector, on a fixed schedule | round trips, as raw samples and pictures |
//! | [`udp`] | a server | what a path carries by size of datagram, and which end lost the rest |
//! | [`mtu`] | a host or a group | the largest packet that passes unfragmented |
//! | [`tcp`] | this host's kernel, a responder | what holds connections back, what writes cost |
//! | [`reach`] | the hosts that take part | why a group does not arrive, each cause with its fix |
//! | [`clock`] | this host, a reflector | whose clock is right, one-way delays with their error |
//! | [`frames`] | nobody: it is given frames, or a path | files and pages of them, advice |
//! | [`load`] | nobody: it makes messages | what of them was lost, repeated or altered |
//! | [`sweep`] | a lab of two hosts | what captures lose and cost by size |
//! | [`demo`] | the shipped program | that files reach several receivers whole, under loss |
//!
//! The crate does not move an application's messages and files. `towline` does, and does not depend
//! on this crate.
//!
//! # How they work
//!
//! `towline rtt` is followed from end to end in `ARCHITECTURE.md`. Five others:
//!
//! - `towline udp`: `udp/sweep.rs` tells the server of each trial over TCP, `udp/sender.rs` sends
//!   it at the load that `measure::sweep::RateSearch` asks for next, `udp/receiver.rs` counts it,
//!   and both ends read their kernels' counters before and after (`udp/counters.rs`).
//!   `udp::report::Losses` splits what is missing by cause; `udp/picture.rs` draws it through
//!   `measure::plot::sizes`.
//! - `towline tcp watch`: `sys::netlink::TcpSocket` lists all connections with `sys::TcpInfo`,
//!   `net::TcpShares` is a pure function from two looks to shares of the time, and
//!   [`tcp::Watch`] joins them with their processes.
//! - `towline mtu`: `mtu.rs` sends packets that must not be fragmented and halves between what
//!   arrived and what did not. A router's word (the socket's error queue,
//!   `sys::stamp::receive_report`) only says what to try next; an arrival refutes it.
//! - `towline reach`: `reach/talk.rs` (`measure::Beacon` between the hosts that take part),
//!   `reach/frames.rs` (frames as they enter) and `reach/host.rs` (routes, filters, IGMP) gather
//!   `Facts`; `reach/verdict.rs` is a pure function from them to findings, each with its fix.
//! - `towline clock`: `clock.rs` reads clock sources, PTP devices (`sys::phc`) and the kernel's
//!   clock discipline (`sys::discipline`); `clock/keeper.rs` asks the daemons. `clock/between.rs`
//!   exchanges times with a reflector (`rtt/clock_exchange.rs`, `measure::ClockWord`);
//!   `measure::OneWay::of` is a pure function from these to delays with their error, or to the
//!   reason why there are none.
#![forbid(unsafe_code)]

pub mod clock;

mod control_link;

pub mod demo;

mod error;
pub use error::Error;

pub mod frames;

pub mod load;

pub mod mtu;

mod places;

pub mod reach;

pub mod rtt;

pub mod sweep;

pub mod tcp;

pub mod udp;

/// Makes a text of another host fit for a line of a report.
fn shown(text: &str) -> String {
    base::text::printable(text, SHOWN_BYTES_MAX).into_owned()
}

/// The most bytes of a text of another host: a name is shorter, and a refusal is a sentence or two.
const SHOWN_BYTES_MAX: usize = 512;
