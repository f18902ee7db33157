//! Flags of `reach`.

use std::time::Duration;

use clap::Args;
use towline::{Group, Selector};

use super::{Place, duration, place};

/// Find out why a group does not arrive.
#[derive(Debug, Args)]
#[command(after_help = "\
Run it on both hosts at the same time, each with the other's address: then it knows what each host
sends, what arrives, and how many routers lie between. As root (CAP_NET_RAW) it also sees what
enters the host and is dropped there. Exit code 1: something is wrong, and the report says what it
is and how to mend it.

Examples:
  towline reach --group 239.192.0.1:7500
  towline reach --group 239.192.0.1:7500 10.0.0.2          # on 10.0.0.1
  towline reach --group 239.192.0.1:7500 10.0.0.1          # on 10.0.0.2")]
pub(crate) struct ReachArgs {
    /// Other hosts that run this at the same time; the port is that of --port unless given
    #[arg(value_name = "HOST[:PORT]", value_parser = place)]
    pub(crate) peers: Vec<Place>,
    /// The group, which may name its interface; port 7500 unless given
    #[arg(long, short, value_name = "GROUP[@IFACE][:PORT]")]
    pub(crate) group: Group,
    /// Interface by name, address or prefix [default: by the kernel's route]
    #[arg(long, short, value_name = "IFACE")]
    pub(crate) iface: Option<Selector>,
    /// Time to live of packets to the group
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) hops: u8,
    /// UDP port on which the hosts talk to each other directly
    #[arg(long, value_name = "PORT", default_value_t = gauge::reach::PORT)]
    pub(crate) port: u16,
    /// How long to look
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "5s")]
    pub(crate) time: Duration,
}
