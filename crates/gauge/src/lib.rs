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
