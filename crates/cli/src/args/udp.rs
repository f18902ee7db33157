//! Flags of `udp serve`, `udp run` and `udp plot`.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args, Subcommand};
use gauge::udp::{Direction, Mode, PORT, Profile};
use towline::{Group, Selector};

use super::{EveryArgs, Place, bytes, count, duration, mirror, place, positive_bit_rate, rtt};

/// Measure what a path carries, by size of datagram.
#[derive(Debug, Subcommand)]
pub(crate) enum UdpCommand {
    /// Serve `udp run` of other hosts: receive, send and count
    Serve(UdpServeArgs),
    /// Find the highest rate at which at most --loss-max is lost, for each size of datagram
    Run(Box<UdpRunArgs>),
    /// Draw results of `udp run --json` again
    Plot(UdpPlotArgs),
}

/// Serve `udp run` of other hosts.
#[derive(Debug, Args)]
#[command(after_help = "\
It sends to the host that asks, and to no group unless --allow-group names it. It stops sending when
that host's connection ends. It serves one host at a time. A host that is idle for 2 s makes room
for another. A host that has measured for 30 minutes is refused for at least 30 minutes.

Examples:
  towline udp serve
  towline udp serve --listen 10.0.0.1:7701 --rate-max 1Gbit/s
  towline udp serve --allow-group 239.192.0.1")]
pub(crate) struct UdpServeArgs {
    /// Address and port to listen at, or only one of them, for TCP and UDP
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = listen)]
    #[arg(default_value = "0.0.0.0:7701")]
    pub(crate) listen: SocketAddr,
    /// Groups that the server joins, and sends to, when an asking host names them; port 7500 unless
    /// given. 224.0.0.0/24 and ff02::/16 are refused: they are reserved for protocols of the local
    /// link [default: none]
    #[arg(long, value_name = "GROUP[:PORT],...", value_delimiter = ',', value_parser = group)]
    pub(crate) allow_group: Vec<Group>,
    /// Maximum bits a second that the server sends, headers included [default: 100Mbit/s to a
    /// group, no limit to the host that asks]
    #[arg(long, value_name = "RATE", value_parser = positive_bit_rate)]
    pub(crate) rate_max: Option<u64>,
    /// Highest time to live of what the server sends to a group; a host that asks for more is
    /// refused
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) hops_max: u8,
}

/// Sweep over sizes of datagrams.
#[derive(Debug, Args)]
#[command(after_help = "\
Rates are as the receiver counted them. Losses are split by cause: dropped by the sender's own
interface, receiver's socket full, fragments not reassembled, lost on the way.

Examples:
  towline udp run 10.0.0.1
  towline udp run 10.0.0.1 --size 1024,1025 --mode one,batch,gso --direction there
  towline udp run 10.0.0.1 --to sizes.html
  towline udp run 10.0.0.1 10.0.0.2 --group 239.192.0.1 --profile standard,tuned")]
pub(crate) struct UdpRunArgs {
    /// Host where `towline udp serve` runs; port 7701 unless given; several only with --group
    #[arg(value_name = "HOST[:PORT]", value_parser = place, required = true)]
    pub(crate) targets: Vec<Place>,
    /// Send to this group, if the servers' --allow-group names it; each server joins the group on
    /// the interface by which this host reaches the server
    #[arg(long, short, value_name = "GROUP[@IFACE]")]
    pub(crate) group: Option<Group>,
    /// Interface of this host for the group, by name, address or prefix [default: the one that
    /// leads to the first server]
    #[arg(long, short, value_name = "IFACE", requires = "group")]
    pub(crate) iface: Option<Selector>,
    /// Time to live of packets to the group
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) hops: u8,
    /// Payload bytes of a datagram, 20 to 65507
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',', value_parser = bytes)]
    #[arg(default_value = "64,512,1024,1025,1472,1473,8192,65507")]
    pub(crate) size: Vec<u64>,
    /// How to hand datagrams to the kernel: one a call, many a call, or as super-packets (GSO)
    #[arg(long, value_enum, value_name = "MODE,...", value_delimiter = ',')]
    #[arg(default_value = "one")]
    pub(crate) mode: Vec<ModeArg>,
    /// Who sends
    #[arg(long, value_enum, value_name = "WHO,...", value_delimiter = ',')]
    #[arg(default_value = "there,back,both")]
    pub(crate) direction: Vec<DirectionArg>,
    /// Socket buffers: the system's default, or large ones
    #[arg(long, value_enum, value_name = "NAME,...", value_delimiter = ',')]
    #[arg(default_value = "tuned")]
    pub(crate) profile: Vec<ProfileArg>,
    /// Measure at this rate (datagrams a second) instead of searching for the highest
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) rate: Option<u64>,
    /// Send as fast as possible and count what arrives, instead of searching for the highest rate
    #[arg(long, conflicts_with = "rate")]
    pub(crate) flood: bool,
    /// How long each trial sends, 50ms to 60s; each combination of --size, --mode, --direction and
    /// --profile takes about eight trials, or one with --rate or --flood
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "500ms")]
    pub(crate) time: Duration,
    /// Highest acceptable share of lost datagrams, in percent
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "0.1")]
    pub(crate) loss_max: f64,
    /// Number of the first trial; further trials count up from it. Each datagram carries the number
    /// of its trial
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) intervals: EveryArgs,
    /// Draw rates, losses and processor time by size into this .png, .svg or .html
    #[arg(long, value_name = "FILE", help_heading = "Pictures")]
    pub(crate) to: Vec<PathBuf>,
}

/// Draw a sweep again.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  towline udp run 10.0.0.1 --json > sizes.json
  towline udp plot sizes.json
  towline udp run 10.0.0.1 --json | towline udp plot - --to sizes.png
  towline udp plot sizes.json --to sizes.png")]
pub(crate) struct UdpPlotArgs {
    /// Result that `towline udp run --json` printed; - for standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Draw rates, losses and processor time by size into this .png, .svg or .html
    #[arg(long, value_name = "FILE", help_heading = "Pictures")]
    pub(crate) to: Vec<PathBuf>,
}

mirror! {
    /// How datagrams are handed over.
    ModeArg of Mode {
        /// `send` and `recv`
        One,
        /// `sendmmsg` and `recvmmsg`
        Batch,
        /// UDP segmentation offload at the sender, coalescing at the receiver
        Gso,
    }
}

mirror! {
    /// Who sends.
    DirectionArg of Direction {
        /// This host
        There,
        /// The server
        Back,
        /// Both at once
        Both,
    }
}

mirror! {
    /// How sockets are set up.
    ProfileArg of Profile {
        /// The system's default buffers
        Standard,
        /// Buffers of 8 MiB, as far as the system permits
        Tuned,
    }
}

fn listen(text: &str) -> Result<SocketAddr, String> {
    rtt::listen_with(text, PORT)
}

/// Reads a group; refuses one that names an interface or a source.
fn group(text: &str) -> Result<Group, String> {
    let group = text.parse::<Group>().map_err(|error| error.to_string())?;
    let is_plain = group.is_multicast() && group.source().is_none() && group.interface().is_none();
    if is_plain {
        return Ok(group);
    }
    Err(format!(
        "{text:?} is not a multicast group alone; write GROUP or GROUP:PORT, such as \
         239.192.0.1:7500"
    ))
}

fn percent(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.trim_end_matches('%').parse().ok();
    number
        .filter(|number| (0.0..100.0).contains(number))
        .ok_or_else(|| {
            format!("{text:?} is not a percentage from 0 to below 100, such as 0.1 for 0.1 %")
        })
}
