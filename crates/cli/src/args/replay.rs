//! `replay`.

use std::time::Duration;

use clap::{ArgGroup, Args};
use towline::capture::{Pace, SendOptions, SinkAddress, SourceAddress};

use super::{bytes, duration};

/// Send packets of a file, or generated ones, at a pace that is kept and reported.
#[derive(Debug, Args)]
#[command(after_help = REPLAY_HELP)]
#[command(group(ArgGroup::new("pace").args(["pps", "rate", "speed", "top_speed"])))]
pub(crate) struct ReplayArgs {
    /// pcap:FILE, pcapng:FILE or gen:SPEC
    #[arg(value_name = "SOURCE")]
    pub(crate) source: SourceAddress,
    /// ring:IF or int:IF
    #[arg(long, short, value_name = "SINK")]
    pub(crate) output: SinkAddress,
    /// So many packets a second
    #[arg(long, value_name = "COUNT", value_parser = bytes, help_heading = "Pace")]
    pub(crate) pps: Option<u64>,
    /// So many bits of frames a second
    #[arg(long, value_name = "BITS", value_parser = bytes, help_heading = "Pace")]
    pub(crate) rate: Option<u64>,
    /// The file's own timing, so many times as fast
    #[arg(long, value_name = "FACTOR", value_parser = speed, help_heading = "Pace")]
    pub(crate) speed: Option<f64>,
    /// As fast as the interface takes them; what generated packets do unless told otherwise
    #[arg(long, help_heading = "Pace")]
    pub(crate) top_speed: bool,
    /// Stop after so many packets
    #[arg(long, short = 'c', value_name = "COUNT")]
    pub(crate) count: Option<u64>,
    /// Stop after this time
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub(crate) time: Option<Duration>,
    /// Packets with each system call, at top speed
    #[arg(
        long,
        value_name = "COUNT",
        default_value = "64",
        help_heading = "Interface"
    )]
    pub(crate) batch: usize,
    /// Memory shared with the kernel
    #[arg(long, value_name = "SIZE", value_parser = bytes, default_value = "1MiB")]
    #[arg(help_heading = "Interface")]
    pub(crate) ring: u64,
    /// Go through the queueing discipline, where other taps see the packets
    #[arg(long, help_heading = "Interface")]
    pub(crate) queue: bool,
}

impl ReplayArgs {
    pub(crate) fn pace(&self) -> Pace {
        match (self.pps, self.rate, self.speed) {
            (Some(pps), _, _) => Pace::Packets(pps),
            (_, Some(bits), _) => Pace::Bits(bits),
            (_, _, Some(speed)) => Pace::Stamps(speed),
            _ if self.top_speed || matches!(self.source, SourceAddress::Generated(_)) => {
                Pace::TopSpeed
            }
            _ => Pace::Stamps(1.0),
        }
    }

    pub(crate) fn send_options(&self) -> SendOptions {
        SendOptions {
            ring_bytes: usize::try_from(self.ring).unwrap_or(usize::MAX),
            batch: self.batch,
            bypasses_queue: !self.queue,
        }
    }
}

fn speed(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(speed) if speed > 0.0 && speed < 1e9 => Ok(speed),
        _ => Err(format!("{text:?} is not a factor such as 0.5 or 2")),
    }
}

const REPLAY_HELP: &str = "\
Deadlines count from the first packet, so that no error adds up. The report says how far the gaps
between packets were from what was wanted, as the time at which the system call returned.

Examples:
  towline replay pcapng:trace.pcapng -o ring:eth0
  towline replay pcap:trace.pcap -o ring:eth0 --speed 2
  towline replay gen:size=60-1514,count=1000000 -o ring:eth0 --pps 100k --json";
