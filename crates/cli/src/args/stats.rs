//! `stats`.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use towline::capture::SourceAddress;

use super::{LiveArgs, seconds};

/// Count packets by protocol, size, pair of addresses, filter and time, in one pass.
#[derive(Debug, Args)]
#[command(after_help = STATS_HELP)]
pub(crate) struct StatsArgs {
    /// ring:IF, ring2:IF, int:IF, pcap:FILE or pcapng:FILE; several are counted together
    #[arg(value_name = "SOURCE", required = true)]
    pub(crate) sources: Vec<SourceAddress>,
    #[command(flatten)]
    pub(crate) live: LiveArgs,
    /// Count what this filter accepts, in tcpdump's language; may be repeated
    #[arg(long, short, value_name = "EXPRESSION")]
    pub(crate) filter: Vec<String>,
    /// Look into no packet: only counts, bytes, sizes and times
    #[arg(long)]
    pub(crate) summary: bool,
    /// Name so many pairs of addresses
    #[arg(long, value_name = "COUNT", default_value = "10")]
    pub(crate) talkers: usize,
    /// Stop after so many packets
    #[arg(long, short = 'c', value_name = "COUNT")]
    pub(crate) count: Option<u64>,
    /// Stop after this time; a plain number is seconds
    #[arg(long = "for", alias = "seconds", value_name = "TIME", value_parser = seconds)]
    pub(crate) time: Option<Duration>,
    /// Cut super-packets (GSO) into the packets that the wire would carry
    #[arg(long)]
    pub(crate) segment: bool,
    /// Draw the rate over time into this file, as SVG
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
}

const STATS_HELP: &str = "\
Bytes are those of frames on the wire, without check sequence. Frames longer than the MTU are
several packets in one piece; --segment counts what the wire would carry.

Examples:
  towline stats pcap:trace.pcap
  towline stats pcap:trace.pcap --summary
  towline stats ring:eth0 --for 10s --filter 'udp port 7500' --filter tcp
  towline stats pcapng:trace.pcapng.zst --plot rate.svg --json";
