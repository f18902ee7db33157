//! `mtu`.

use std::time::Duration;

use clap::Args;

use super::duration;

/// Find the largest packet that reaches a host, or the receivers of a group, unfragmented.
#[derive(Debug, Args)]
#[command(after_help = "\
It needs no privileges. A reflector (`towline rtt reflect`) there proves both directions, and what
comes back in fragments is told; without one, name a port where nobody listens: the host's own
\"port unreachable\" is the answer. Exit code 1: larger packets vanish without a word (a black
hole), or a router names an MTU that is not the path's.

Examples:
  towline mtu 10.0.0.1
  towline mtu host:33434 --json
  towline mtu 239.192.0.1:7700 --hops 4     # receivers run `towline rtt reflect --listen GROUP`")]
pub(crate) struct MtuArgs {
    /// A reflector, a group of them, or a host and a port where nobody listens; port 7700 unless
    /// given
    #[arg(value_name = "HOST[:PORT]")]
    pub(crate) target: String,
    /// Time to live of what is sent to a group
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) hops: u8,
    /// How long the answer to a packet may take; each is sent up to three times
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1100ms")]
    pub(crate) timeout: Duration,
}
