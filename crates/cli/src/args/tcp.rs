//! Flags of `tcp watch`, `tcp writes` and `tcp serve`.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args, Subcommand};
use gauge::tcp::{Coalescing, PORT};

use super::{Place, bytes, duration, mirror, place, rtt};

/// Show what holds TCP connections back, and what each way of writing costs.
#[derive(Debug, Subcommand)]
pub(crate) enum TcpCommand {
    /// Show what holds each TCP connection of this host back
    Watch(TcpWatchArgs),
    /// Measure how long calls (requests with answers) take, by size and way of writing
    Writes(TcpWritesArgs),
    /// Serve `tcp writes` of other hosts: read what they write, and answer
    Serve(TcpServeArgs),
}

/// Show what holds TCP connections back.
#[derive(Debug, Args)]
#[command(after_help = "\
The shares say how long the sending side of a connection was held back: by its application, which
gave it nothing to send; by the receiver, whose window was full; by its own send buffer; or by the
network. They are the kernel's own counts, in steps of some ms, and sum to 100 %. On a terminal it
shows a row for each connection until q or Ctrl-C; elsewhere it prints all of them at the end. With
--json it prints a line for each connection at each reading, and one with all of them at the end.

Examples:
  towline tcp watch
  towline tcp watch --port 443 --for 10s
  towline tcp watch --pid 4711 --json")]
pub(crate) struct TcpWatchArgs {
    /// Only connections with this port at either end
    #[arg(long, value_name = "PORT", conflicts_with = "pid")]
    pub(crate) port: Option<u16>,
    /// Only connections of this process
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
    /// Also show connections on which no data has moved
    #[arg(long)]
    pub(crate) all: bool,
    /// Time between two readings of the connections, 100ms or more
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1s")]
    pub(crate) every: Duration,
    /// End after this time [default: at Ctrl-C, or when the process of --pid ends]
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub(crate) time: Option<Duration>,
}

/// Measure how long calls (requests with answers) take, by size and way of writing.
#[derive(Debug, Args)]
#[command(after_help = "\
A call is some writes and the read of a short answer. With Nagle's rule (the default of a socket) a
small write waits until what was written before is acknowledged. The other end delays the
acknowledgement by about 40 ms: calls of two writes show it. Each row of the output is one
combination of --size, --mode and --send-buffer.

Examples:
  towline tcp writes 10.0.0.1
  towline tcp writes 10.0.0.1 --size 64 --writes 1
  towline tcp writes 10.0.0.1 --to calls.svg
  towline tcp writes 10.0.0.1 --size 1448,65536 --send-buffer 16k,4M --mode no-delay")]
pub(crate) struct TcpWritesArgs {
    /// Host where `towline tcp serve` runs; port 7702 unless given
    #[arg(value_name = "HOST[:PORT]", value_parser = place)]
    pub(crate) target: Place,
    /// Bytes of each write; several are measured one after the other
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',', value_parser = bytes)]
    #[arg(default_value = "64,512,1448,4096,16384,65536")]
    pub(crate) size: Vec<u64>,
    /// Number of writes in one request; a call is a request and the read of its short answer
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) writes: u16,
    /// What the kernel does with segments that are not full
    #[arg(long, value_enum, value_name = "MODE,...", value_delimiter = ',')]
    #[arg(default_value = "nagle,no-delay,cork")]
    pub(crate) mode: Vec<CoalescingArg>,
    /// Size of the send buffer (SO_SNDBUF) [default: the kernel chooses]
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',', value_parser = bytes)]
    pub(crate) send_buffer: Vec<u64>,
    /// How many calls to measure for each combination of --size, --mode and --send-buffer
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) calls: u32,
    /// Draw the time of a call, by size of its writes, into this .png, .svg or .html
    #[arg(long, value_name = "FILE", help_heading = "Pictures")]
    pub(crate) to: Vec<PathBuf>,
}

/// Serve `tcp writes` of other hosts.
#[derive(Debug, Args)]
#[command(after_help = "\
No answer is longer than its call. It serves at most 16 clients at once, 4 of them of one host. It
closes the connection of a client that does not begin within 5 s, or finishes no call for 30 s.

Examples:
  towline tcp serve
  towline tcp serve --listen 10.0.0.1:7702")]
pub(crate) struct TcpServeArgs {
    /// Address and port to listen at, or only one of them
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = listen)]
    #[arg(default_value = "0.0.0.0:7702")]
    pub(crate) listen: SocketAddr,
}

mirror! {
    /// What the kernel does with segments that are not full.
    CoalescingArg of Coalescing {
        /// A segment that is not full waits while an earlier one is not acknowledged: the default
        /// of a socket
        Nagle,
        /// Each segment leaves at once (`TCP_NODELAY`)
        NoDelay,
        /// A segment that is not full waits until the whole call is written (`TCP_CORK`)
        Cork,
    }
}

fn listen(text: &str) -> Result<SocketAddr, String> {
    rtt::listen_with(text, PORT)
}
