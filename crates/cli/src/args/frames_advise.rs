//! Flags of `frames advise`.

use std::time::Duration;

use clap::Args;
use towline::quantity::Chance;

use super::{
    FrameSize, PerSecond, positive_bit_rate, positive_duration as duration, positive_number,
};

/// Say what a stream of frames needs, and what limits it.
#[derive(Debug, Args)]
#[command(after_help = "\
It sends nothing: it computes, and asks this host's kernel for the MTU, the speed of the line, the
limit of socket buffers and the adapter's ring. A receiver's host may have other limits: run it
there, too. Exit code 1: there is something to change.

Examples:
  towline frames advise --size 1360x1024x2 --fps 20
  towline frames advise --size 4MB --fps 60 --iface eth1 --packet-loss 0.1% --json")]
pub(crate) struct FramesAdviseArgs {
    /// Size of each frame: width x height x bytes of a pixel, or the number of its bytes
    #[arg(long, value_name = "WxHxB|BYTES", default_value = "1360x1024x2")]
    pub(crate) size: FrameSize,
    /// How many frames are sent each second
    #[arg(long, visible_alias = "fps", value_name = "N", default_value = "20")]
    pub(crate) per_second: PerSecond,
    /// How long a frame is of use [default: twice the time from frame to frame, 100ms at least, 10s
    /// at most]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) deadline: Option<Duration>,
    /// Name of the interface by which the frames leave or arrive [default: that of the default
    /// route, or else the first that is up]
    #[arg(long, short, value_name = "IFACE")]
    pub(crate) iface: Option<String>,
    /// Largest IP packet of the path, 576 bytes or more [default: the interface's MTU]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(576..))]
    pub(crate) mtu: Option<u32>,
    /// Bits a second that the line carries, such as 10G [default: what the driver says]
    #[arg(long, value_name = "RATE", value_parser = positive_bit_rate)]
    pub(crate) link: Option<u64>,
    /// How long a receiver may pause without an overflow of its socket buffer
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "50ms")]
    pub(crate) pause: Duration,
    /// Share of packets that the network loses
    #[arg(long, value_name = "CHANCE", default_value = "0.1%")]
    pub(crate) packet_loss: Chance,
    /// How many packets of --mtu bytes a processor can carry each second: `towline udp run`
    /// measures it [default: not known, so no limit]
    #[arg(long, value_name = "N", value_parser = positive_number)]
    pub(crate) packets_per_second: Option<f64>,
}
