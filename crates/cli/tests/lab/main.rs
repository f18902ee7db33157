//! The program on hosts of its own: real sockets, real loss, peers that stop and die.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test says why it is skipped, and what a failed program said"
)]

mod addresses;
mod attacker;
mod crash;
mod crowd;
mod demo;
mod ends;
mod files;
mod frames;
mod hostile;
mod interop;
mod left_out;
mod liar;
mod messages;
mod mtu;
mod parity;
mod plain;
mod presence;
mod rate;
mod relay;
#[path = "../schema_kit/mod.rs"]
mod schema_kit;
mod secrecy;
mod service;
mod siege;
mod signals;
mod tcp;
mod tcp_limits;
mod tcp_watch;
mod trees;
mod tshark;
