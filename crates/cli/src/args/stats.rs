//! Flags of `stats`.

use std::{path::PathBuf, time::Duration};

use capture::SourceAddress;
use clap::{Args, ValueEnum};

use super::{LiveArgs, duration, positive_count};

/// Count packets by protocol, size, address pair, filter and time, in one pass.
#[derive(Debug, Args)]
#[command(after_help = STATS_HELP)]
pub(crate) struct StatsArgs {
    /// Interface (IF, ring:IF, ring2:IF, int:IF or xdp:IF: see `towline capture --help`) or file
    /// (FILE, pcap:FILE or pcapng:FILE; - is standard input); several are counted together
    #[arg(value_name = "SOURCE", required_unless_present = "sweep")]
    pub(crate) sources: Vec<SourceAddress>,
    #[command(flatten)]
    pub(crate) live: LiveArgs,
    /// Also count the packets that match this filter, in tcpdump's language; may be repeated, and
    /// each filter has its own count
    #[arg(long, short, value_name = "EXPRESSION")]
    pub(crate) filter: Vec<String>,
    /// Do not look into packets: only counts, bytes, sizes and times
    #[arg(long)]
    pub(crate) summary: bool,
    /// Number of address pairs to list
    #[arg(long, value_name = "COUNT", default_value = "10")]
    pub(crate) talkers: usize,
    /// Stop after this many packets
    #[arg(long, short = 'c', value_name = "COUNT")]
    pub(crate) count: Option<u64>,
    /// Stop after this time; a plain number is seconds. In a sweep it is the length of each run;
    /// each size has several runs [default in a sweep: 2s]
    #[arg(long = "for", alias = "seconds", value_name = "TIME", value_parser = duration)]
    pub(crate) time: Option<Duration>,
    /// Count the packets that a wire would carry, not super-packets (GSO); for interfaces, not
    /// files
    #[arg(long)]
    pub(crate) segment: bool,
    /// Draw the rate over time, or the sweep, into this .png, .svg or .html
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
    /// Compare int:, ring: and ring2: on a virtual cable, at several sizes of the ring or of
    /// packets: which share of the packets each of them loses, and how much processor time it takes
    #[arg(long, value_name = "WHAT", conflicts_with_all = ["sources", "filter", "count"])]
    #[arg(help_heading = "Sweep")]
    pub(crate) sweep: Option<SweptSize>,
    /// Send this many packets a second in a sweep
    #[arg(long, value_name = "COUNT", value_parser = positive_count, default_value = "150k")]
    #[arg(help_heading = "Sweep", requires = "sweep")]
    pub(crate) pps: u64,
}

/// The size that a sweep varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SweptSize {
    /// Memory shared with the kernel: 16 KiB to 16 MiB
    RingSize,
    /// Packets: 60 to 1514 bytes without check sequence
    PacketSize,
}

const STATS_HELP: &str = "\
Bytes are those of frames, without check sequence; percentages are shares of the bytes. Frames
longer than the MTU are several packets in one piece; --segment counts what a wire would carry.

With xdp:IF no other program of this host gets what arrives by IF: see `towline capture --help`.

A sweep sends over a virtual cable to each of int:, ring: and ring2: at each size, each time for 2 s
(or --for). It shows the share of packets that were lost, and the machine's processor time for each
packet, less the cost of sending alone.

Examples:
  towline stats pcap:trace.pcap
  towline stats pcap:trace.pcap --summary
  tcpdump -w - | towline stats -
  towline stats ring:eth0 --for 10s --filter 'udp port 7500' --filter tcp
  towline stats pcapng:trace.pcapng.zst --plot rate.svg --json
  towline stats --sweep ring-size --plot rings.png";
