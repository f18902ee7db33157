//! Flags of `mtu`.

use std::time::Duration;

use clap::Args;

use super::{IfaceArgs, Place, duration, place};

/// Find the largest packet that reaches a host, or the receivers of a group, unfragmented.
#[derive(Debug, Args)]
#[command(after_help = "\
It needs no privileges. With a reflector (`towline rtt reflect`) at the host, the size is proved in
both directions, and the report says when answers come back in fragments. Without one, only the way
there is proved: name a port where no program listens, so that the host answers \"port
unreachable\". Exit code 1: larger packets vanish without an ICMP message (a black hole), or a
router names a wrong MTU.

Examples:
  towline mtu 10.0.0.1
  towline mtu host:33434 --json
  towline mtu 239.192.0.1@eth0 --hops 4     # receivers run `towline rtt reflect --listen GROUP`")]
pub(crate) struct MtuArgs {
    /// A reflector, a group of reflectors, or a host and a port where no program listens, so that
    /// the host answers "port unreachable"; port 7700 unless given
    #[arg(value_name = "HOST|GROUP[@IFACE][:PORT]", value_parser = place)]
    pub(crate) target: Place,
    #[command(flatten)]
    pub(crate) interface: IfaceArgs,
    /// Time to live of packets to a group
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) hops: u8,
    /// Longest wait for the answer to a packet; each packet is sent up to three times
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1100ms")]
    pub(crate) timeout: Duration,
}
