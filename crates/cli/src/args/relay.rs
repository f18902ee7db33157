//! Flags of `relay`.

use std::net::SocketAddr;

use clap::{Args, value_parser};
use towline::{Encapsulation, Faults, SocketOptions};

use super::{Place, bytes, long, metrics_address, place};

/// Carry sessions between networks that do not route multicast to each other.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, after_long_help = long(EXAMPLES, NOTES))]
pub(crate) struct RelayArgs {
    /// The networks, two or more: a group and the interface on which it is, or another host to
    /// which packets go by unicast
    #[arg(value_name = "GROUP@IFACE[:PORT]|HOST[:PORT]", num_args = 2.., required = true,
          value_parser = place)]
    pub(crate) networks: Vec<Place>,
    /// What carries the packets of the sessions: UDP, or raw IP (protocol 113), which needs
    /// CAP_NET_RAW
    #[arg(long, value_name = "udp|raw", default_value_t = Encapsulation::Udp)]
    pub(crate) encapsulation: Encapsulation,
    /// PGM data-destination port of the sessions; needed when the networks have different UDP ports
    /// [default: their UDP port]
    #[arg(long, value_name = "PORT")]
    pub(crate) pgm_port: Option<u16>,
    /// Time to live of the packets that leave
    #[arg(long, value_name = "N", default_value_t = SocketOptions::default().hops)]
    #[arg(value_parser = value_parser!(u8).range(1..))]
    pub(crate) hops: u8,
    /// TCP port on which receivers open their connections for reports; 0 lets the system choose
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(crate) control_port: u16,
    /// How much of the newest data the relay keeps to repair from, at most 64GiB; it asks the
    /// sender for older data
    #[arg(long, value_name = "SIZE", value_parser = bytes, default_value = "64MiB")]
    pub(crate) keep: u64,
    /// Serve the counters to Prometheus at http://ADDRESS:PORT/metrics; with a port alone, only on
    /// this machine (127.0.0.1)
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = metrics_address)]
    pub(crate) metrics: Option<SocketAddr>,
    /// Simulate a bad network: lose, duplicate or damage arriving packets, for example loss=5%
    #[arg(long, value_name = "FAULTS", hide_short_help = true)]
    pub(crate) faults: Option<Faults>,
}

const NOTES: &str = "\
Receivers behind a relay know it as the sender: with recv --from, name the relay's address. They ask
the relay for repairs, and it asks the sender only for what it has not got itself. They report to
the relay. For each of their connections the relay opens one to the sender of that session, and
passes on what both ends say. So neither network needs a route to the other.

A relay carries files and messages in all directions, each session away from the network where the
relay first heard it. It runs until it is interrupted, and is then done (exit code 0). It does not
carry sessions with a key, whose packets nobody may change.";

const EXAMPLES: &str = "\
Examples:
  towline relay 239.192.0.1@eth0 239.192.0.1@eth1
  towline relay 239.192.0.1@wlan0:7500 10.0.0.7:7501 --pgm-port 7500
  towline relay 239.192.0.1@eth0 239.192.0.1@br-lab --control-port 7600";
