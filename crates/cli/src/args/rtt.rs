//! Flags of `rtt reflect`, `rtt run` and `rtt plot`.

use std::{
    net::{IpAddr, SocketAddr},
    num::NonZeroU32,
    path::PathBuf,
    time::Duration,
};

use clap::{Args, Subcommand, ValueEnum};
use gauge::rtt::{self, Engine, Scheduling, Wait};
use schemars::JsonSchema;
use serde::Serialize;

use super::{EveryArgs, IfaceArgs, Place, bit_rate, bytes, count, duration, mirror, place};

/// Measure round trips, and draw them.
#[derive(Debug, Subcommand)]
pub(crate) enum RttCommand {
    /// Answer the messages of measurements, for any number of clients
    Reflect(RttReflectArgs),
    /// Measure round trips to a reflector on a fixed schedule
    Run(Box<RttRunArgs>),
    /// Draw results again, compare them, export them
    Plot(RttPlotArgs),
}

/// Settings of the thread that moves packets.
#[derive(Clone, Debug, Args)]
pub(crate) struct ThreadArgs {
    /// How the thread waits: asleep (block), asleep or spinning by turns (busy), or always
    /// spinning, which uses a whole processor (spin) [default: spin for run, block for reflect]
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) wait: Option<WaitArg>,
    /// Which system calls move the packets
    #[arg(long, value_enum, value_name = "CALLS", default_value = "recv")]
    pub(crate) engine: EngineArg,
    /// Scheduling class: other (ordinary), fifo (priority 50), or fifo:PRIORITY (1 to 99)
    #[arg(long, value_name = "CLASS", value_parser = scheduling, default_value = "other")]
    pub(crate) sched: Scheduling,
    /// Bind the thread to this processor
    #[arg(long, value_name = "N")]
    pub(crate) cpu: Option<u32>,
    /// Do not lock the memory of the process; unlocked memory may be slow to reach
    #[arg(long)]
    pub(crate) no_mlock: bool,
}

/// Answer the messages of measurements.
#[derive(Debug, Args)]
#[command(after_help = "\
It answers each message with one of the same size and never answers an answer, so it cannot be
used to amplify traffic. Run it on a processor of its own; with --wait spin it uses all of it.

Examples:
  towline rtt reflect
  towline rtt reflect --listen 10.0.0.1:7700 --wait spin --sched fifo --cpu 1
  towline rtt reflect --listen 239.192.0.1@eth0")]
pub(crate) struct RttReflectArgs {
    /// Address and port to listen at, or only one of them; or a group to join, GROUP[@IFACE][:PORT]
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = listen)]
    #[arg(default_value = "0.0.0.0:7700")]
    pub(crate) listen: Listen,
    #[command(flatten)]
    pub(crate) interface: IfaceArgs,
    /// What carries the messages
    #[arg(long, value_enum, value_name = "PROTOCOL", default_value = "udp")]
    pub(crate) over: OverArg,
    #[command(flatten)]
    pub(crate) thread: ThreadArgs,
}

/// Measure round trips to a reflector.
#[derive(Debug, Args)]
#[command(after_help = RUN_HELP)]
pub(crate) struct RttRunArgs {
    /// Host where `towline rtt reflect` runs, or its group; port 7700 unless given. When several of
    /// a group answer a message, the first answer counts
    #[arg(value_name = "HOST|GROUP[@IFACE][:PORT]", value_parser = place)]
    pub(crate) target: Place,
    #[command(flatten)]
    pub(crate) interface: IfaceArgs,
    /// What carries the messages; PGM needs a group, and uses the next group address for answers
    /// (239.1.1.2 after 239.1.1.1)
    #[arg(long, value_enum, value_name = "PROTOCOL", default_value = "udp")]
    pub(crate) over: OverArg,
    /// Messages each second; several make a sweep: 10k,20k,40k
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = count)]
    #[arg(default_value = "10k")]
    pub(crate) rate: Vec<u64>,
    /// Send each message as soon as the answer to the one before has arrived, without a schedule
    #[arg(long, conflicts_with_all = ["rate", "window"])]
    pub(crate) ping_pong: bool,
    /// Payload bytes of a message, 24 to 65507
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value = "64")]
    pub(crate) size: u64,
    /// How long to measure each combination of rate, scheduling class and engine
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10s")]
    pub(crate) time: Duration,
    /// How long each combination of rate, scheduling class and engine runs before it is measured
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "500ms")]
    pub(crate) warm_up: Duration,
    /// Longest wait for an answer, also after Ctrl-C
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1s")]
    pub(crate) timeout: Duration,
    /// Maximum number of messages that wait for an answer; a further message then leaves late, or
    /// not at all when it would be more than 1 s late [default: no limit]
    #[arg(long, value_name = "N")]
    pub(crate) window: Option<NonZeroU32>,
    /// Have the kernel stamp every N-th message, to show where its time went; 0 stamps none
    /// [default: 100; 0 over TCP and PGM, and with the engines mmsg and io_uring]
    #[arg(long, value_name = "N")]
    pub(crate) stamp_every: Option<u64>,
    /// Compare two scheduling classes, other and fifo, in alternate turns
    #[arg(long)]
    pub(crate) compare_sched: bool,
    /// Compare these engines in alternate turns
    #[arg(long, value_enum, value_name = "CALLS,...", value_delimiter = ',')]
    pub(crate) compare_engine: Vec<EngineArg>,
    /// Length of a turn when comparing
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1s")]
    pub(crate) slice: Duration,
    /// Rate of the line in bit/s, such as 1G or 10G, where the system does not know it; the report
    /// compares --rate with it
    #[arg(long, value_name = "BITS", value_parser = bit_rate)]
    pub(crate) link: Option<u64>,
    /// Result file, which must not exist yet [default: a new file in the current directory]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Number of the first measurement; further ones count up from it. Each message carries the
    /// number of its measurement
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) intervals: EveryArgs,
    #[command(flatten)]
    pub(crate) thread: ThreadArgs,
    #[command(flatten)]
    pub(crate) picture: PictureArgs,
}

/// Draw results again.
#[derive(Debug, Args)]
#[command(after_help = "\
The ending of --to chooses the format: .png, .svg, .html (with a read-out under the pointer), .hlog
(an HdrHistogram log), or .csv (a line for each message).

Examples:
  towline rtt plot rtt-1700000000.rtt --to map.png --to map.html
  towline rtt plot before.rtt after.rtt --diff --to both.svg
  towline rtt plot run.rtt --hops --to hops.png")]
pub(crate) struct RttPlotArgs {
    /// Results of `towline rtt run`; several are drawn on one scale
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Compare the other files with the first: print ratios, and name results by host and kernel
    #[arg(long)]
    pub(crate) diff: bool,
    #[command(flatten)]
    pub(crate) picture: PictureArgs,
}

/// What is drawn, and how.
#[derive(Clone, Debug, Args)]
pub(crate) struct PictureArgs {
    /// Draw or export into this .png, .svg, .html, .hlog or .csv; may be repeated
    #[arg(long, value_name = "FILE", help_heading = "Pictures")]
    pub(crate) to: Vec<PathBuf>,
    /// Measure round trips from the intended or from the actual time of sending
    #[arg(long, value_enum, value_name = "TIME", default_value = "intended")]
    #[arg(help_heading = "Pictures")]
    pub(crate) view: ViewArg,
    /// Use a linear time axis instead of a logarithmic one
    #[arg(long, help_heading = "Pictures")]
    pub(crate) linear: bool,
    /// Scale colours by counts instead of by the logarithms of counts
    #[arg(long, help_heading = "Pictures")]
    pub(crate) linear_colours: bool,
    /// For messages that the kernel stamped (rtt run --stamp-every), draw where their time went
    #[arg(long, help_heading = "Pictures")]
    pub(crate) hops: bool,
    /// Print the heat maps as text too; on a terminal that is the default
    #[arg(long, help_heading = "Pictures")]
    pub(crate) map: bool,
}

mirror! {
    /// What carries messages.
    OverArg of rtt::Transport {
        /// Datagrams
        Udp,
        /// One connection
        Tcp,
        /// PGM (RFC 3208) over UDP, through a group
        Pgm,
    }
}

mirror! {
    /// How a thread waits.
    WaitArg of Wait {
        /// Sleep until a packet arrives or a message is due
        Block,
        /// run: sleep until shortly before a message is due, then spin; reflect: spin for 200 us,
        /// then sleep
        Busy,
        /// Never sleep: uses a whole processor
        Spin,
    }
}

mirror! {
    /// Which system calls move packets.
    EngineArg of Engine {
        /// One datagram a call
        Recv,
        /// One datagram a call; epoll for every wait
        Epoll,
        /// Many datagrams a call
        Mmsg,
        /// Requests and completions through rings; where the kernel refuses them, recv is used
        #[value(name = "io_uring")]
        #[serde(rename = "io_uring")]
        IoUring,
    }
}

/// The time from which a round trip is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ViewArg {
    /// When the message should have left, so that no stall is hidden
    Intended,
    /// When it left
    Actual,
}

/// Reads `other`, `fifo` or `fifo:80`.
fn scheduling(text: &str) -> Result<Scheduling, String> {
    let priority = match text {
        "other" => return Ok(Scheduling::Other),
        "fifo" => Some(FIFO_PRIORITY),
        text => text
            .strip_prefix("fifo:")
            .and_then(|text| text.parse().ok()),
    };
    priority
        .filter(|priority| (1..=99).contains(priority))
        .map(Scheduling::Fifo)
        .ok_or_else(|| {
            format!("{text:?} is not a scheduling class: write other, fifo, or fifo:1 to fifo:99")
        })
}

/// Where a reflector listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listen {
    pub(crate) address: SocketAddr,
    /// The group, as it was written.
    pub(crate) group: Option<Place>,
}

/// Reads `ADDRESS:PORT`, `ADDRESS` or `PORT`, or a group with its interface.
fn listen(text: &str) -> Result<Listen, String> {
    // Text with an @ is meant as a group. When it is not a valid group, the error is about a group,
    // not an address.
    let group = match place(text) {
        Ok(found) if found.is_group() => Some(found),
        Err(error) if text.contains('@') => return Err(error),
        _ => None,
    };
    let address = match &group {
        Some(group) => {
            let resolved = group.at_port(rtt::PORT).resolve();
            resolved.map_err(|error| error.to_string())?
        }
        None => listen_with(text, rtt::PORT)?,
    };
    Ok(Listen { address, group })
}

/// Reads `ADDRESS:PORT`, `ADDRESS` or `PORT`; takes `port` where none is written. A port alone
/// means all IPv4 addresses.
pub(super) fn listen_with(text: &str, port: u16) -> Result<SocketAddr, String> {
    let any = IpAddr::from([0, 0, 0, 0]);
    let as_port = || text.parse().map(|port| SocketAddr::new(any, port));
    let as_address = || text.parse().map(|ip| SocketAddr::new(ip, port));
    let found = text.parse().ok().or_else(|| as_port().ok());
    found
        .or_else(|| as_address().ok())
        .ok_or_else(|| format!("{text:?} is not an address, a port, or ADDRESS:PORT"))
}

/// By default, one message in this many is stamped. **Cost**: for each stamped message, two
/// messages from the kernel and about 1 us of the sender's time.
pub(crate) const STAMP_EVERY: u64 = 100;
/// The priority of `fifo` without a number: above ordinary threads and most of the kernel's, below
/// its watchdogs.
pub(crate) const FIFO_PRIORITY: u8 = 50;

const RUN_HELP: &str = "\
Each message has its time in a schedule, except with --ping-pong. A round trip is counted from when
the message should have left (intended) and from when it left (actual). The actual figures hide what
held the sender up. All times are whole round trips between two applications. Half a round trip is
not a one-way delay.

Examples:
  towline rtt run 10.0.0.1
  towline rtt run 10.0.0.1 --rate 10k,20k,30k,40k --time 60s --sched fifo --cpu 1 --to map.png
  towline rtt run host:7701 --ping-pong --wait block --size 1400
  towline rtt run 239.192.0.1@eth0 --rate 1k
  towline rtt run 10.0.0.1 --rate 20k --compare-sched --to sched.html";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_and_addresses() {
        assert_eq!(scheduling("fifo"), Ok(Scheduling::Fifo(50)));
        assert_eq!(scheduling("fifo:99"), Ok(Scheduling::Fifo(99)));
        for wrong in ["fifo:0", "fifo:100", "rr", "FIFO"] {
            assert!(scheduling(wrong).is_err(), "{wrong}");
        }
        let found = ["7701", "10.0.0.1", "[::1]:5", "239.192.0.1@eth0"]
            .map(|text| listen(text).map(|it| it.address.to_string()));
        assert_eq!(
            found,
            [
                "0.0.0.0:7701",
                "10.0.0.1:7700",
                "[::1]:5",
                "239.192.0.1:7700"
            ]
            .map(|it| Ok(it.to_owned()))
        );
        assert!(listen("host").is_err());
        assert!(listen("10.0.0.1@eth0").unwrap_err().contains("multicast"));
    }
}
