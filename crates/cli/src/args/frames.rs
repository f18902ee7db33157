//! Flags of `frames send` and `frames recv`.

use std::{fmt, num::NonZeroU64, str::FromStr, time::Duration};

use clap::{Args, Subcommand};
use gauge::frames::FrameRate;
use schemars::JsonSchema;
use serde::Serialize;
use towline::Allowed;

use super::{
    EveryArgs, FailOn, FramesAdviseArgs, FramesFrom, FramesTo, Place, Receiving, Sending,
    SessionArgs, bytes, duration, long, place,
};

/// Send frames, or receive them.
#[derive(Debug, Subcommand)]
pub(crate) enum FramesCommand {
    /// Send frames to a group, evenly in time
    Send(FramesSendArgs),
    /// Receive the frames of a group, and say what was lost, and why
    Recv(FramesRecvArgs),
    /// Say what a stream of frames needs, and what limits it; sends nothing
    Advise(FramesAdviseArgs),
}

/// Send frames to a group.
#[derive(Debug, Args)]
#[command(after_help = SEND_EXAMPLES, after_long_help = long(SEND_EXAMPLES, SEND_NOTES))]
pub(crate) struct FramesSendArgs {
    /// Size of each frame: width x height x bytes of a pixel, or simply its number of bytes
    #[arg(long, value_name = "WxHxB|BYTES", default_value = "1360x1024x2")]
    pub(crate) size: FrameSize,
    #[command(flatten)]
    pub(crate) source: FramesFrom,
    /// How many frames to send each second [default: what Y4M says, else 20]
    #[arg(long, visible_alias = "fps", value_name = "N")]
    pub(crate) per_second: Option<PerSecond>,
    /// Stop after this many frames, including any that could not be sent
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<NonZeroU64>,
    /// Stop after this time; a plain number is seconds
    #[arg(long = "for", alias = "seconds", value_name = "TIME", value_parser = duration)]
    pub(crate) seconds: Option<Duration>,
    /// How long a frame is of use: a receiver that has not got all of it by then drops it [default:
    /// twice the time from frame to frame, 100ms at least, 10s at most]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) deadline: Option<Duration>,
    /// Send bursts of at most this many packets instead of evenly; --micro-delay sets the pause
    /// between them
    #[arg(long, value_name = "PACKETS", hide_short_help = true,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) burst_limit: Option<u32>,
    /// With --burst-limit, the pause after each burst
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "burst_limit",
          default_value = "0", hide_short_help = true)]
    pub(crate) micro_delay: Duration,
    /// With --burst-limit, the pause after the last packet of a frame
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "burst_limit",
          default_value = "0", hide_short_help = true)]
    pub(crate) cycle_delay: Duration,
    /// Size of the socket's send buffer [default: 208KiB]
    #[arg(long, value_name = "BYTES", value_parser = bytes, hide_short_help = true)]
    pub(crate) send_buffer: Option<u64>,
    /// Send even while no receiver reports; without this flag, frames are sent only while one
    /// reports
    #[arg(long)]
    pub(crate) always: bool,
    /// Send every frame to this group, too: a second feed, best over another network; the port of
    /// --group unless given
    #[arg(long, value_name = "GROUP[@IFACE][:PORT]", value_parser = place)]
    pub(crate) also: Option<Place>,
    /// Begin when this many receivers have reported [default: 1; 0 with --always]
    #[arg(long, value_name = "N")]
    pub(crate) receivers: Option<u32>,
    /// Longest wait for --receivers to report, and at the end for what has not arrived [default: no
    /// limit for --receivers, 15s at the end]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// Seed of the generated content; the receiver needs the same
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) intervals: EveryArgs,
    #[command(flatten)]
    pub(crate) session: SessionArgs<Sending>,
}

/// Receive the frames of a group.
#[derive(Debug, Args)]
#[command(after_help = RECV_EXAMPLES, after_long_help = long(RECV_EXAMPLES, RECV_NOTES))]
pub(crate) struct FramesRecvArgs {
    /// Stop after this many whole frames; exit with code 1 if fewer arrive
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<NonZeroU64>,
    /// Stop this long after the first frame; a plain number is seconds
    #[arg(long = "for", alias = "seconds", value_name = "TIME", value_parser = duration)]
    pub(crate) seconds: Option<Duration>,
    #[command(flatten)]
    pub(crate) sinks: FramesTo,
    /// Longest frame that is accepted; longer ones count as lost
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value = "64MiB")]
    pub(crate) max_frame: u64,
    /// Seed of the generated content, the same as the sender's
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Take frames only from senders at these addresses or prefixes; 'any' takes all [default: any]
    #[arg(long, value_name = "ADDRESS[/BITS]|any", value_delimiter = ',')]
    pub(crate) from: Vec<Allowed>,
    /// Take the same frames from this group, too, as a second feed: a frame is lost only if neither
    /// feed brings it in time; the port of --group unless given
    #[arg(long, value_name = "GROUP[@IFACE][:PORT]", value_parser = place)]
    pub(crate) also: Option<Place>,
    /// Give up after this time without a whole frame [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// Which faults make the exit code 1: none, lost frames (loss), or lost or damaged frames
    /// (any). The code is 1 anyway when no whole frame came, when fewer than --count came, and,
    /// without --count, when a sender vanished or broke off its session
    #[arg(long, value_enum, value_name = "WHAT", default_value = "any")]
    pub(crate) fail_on: FailOn,
    #[command(flatten)]
    pub(crate) intervals: EveryArgs,
    #[command(flatten)]
    pub(crate) session: SessionArgs<Receiving>,
}

/// The size of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct FrameSize {
    /// Width and height in pixels, and bytes of a pixel, where they were given.
    pub(crate) pixels: Option<[u32; 3]>,
    /// Bytes of the whole frame.
    pub(crate) bytes: usize,
}

impl FromStr for FrameSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is not a size of frames, such as 1360x1024x2 (2 bytes a pixel) or 3MB"
            )
        };
        let parts: Vec<&str> = text.split('x').collect();
        let (pixels, size) = if let [width, height, depth] = parts[..] {
            let number = |text: &str| text.parse::<u32>().map_err(|_| wrong());
            let pixels = [number(width)?, number(height)?, number(depth)?];
            let size = pixels
                .iter()
                .fold(1_u64, |product, &part| product.saturating_mul(part.into()));
            (Some(pixels), size)
        } else {
            (None, bytes(text).map_err(|_| wrong())?)
        };
        match usize::try_from(size) {
            Ok(bytes) if bytes > 0 && size <= BYTES_MAX => Ok(Self { pixels, bytes }),
            Ok(0) => Err(wrong()),
            _ => Err(format!("{text:?}: a frame has at most 400 MiB")),
        }
    }
}

impl fmt::Display for FrameSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pixels {
            Some([width, height, depth]) => write!(f, "{width}x{height}x{depth}"),
            None => write!(f, "{}", self.bytes),
        }
    }
}

/// A number of frames each second, which need not be whole.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct PerSecond(pub(crate) f64);

impl PerSecond {
    /// The rate of frames when neither the user nor the source names one.
    pub(crate) const USUAL: Self = Self(20.0);

    /// Returns the rate; `None` when `frames` is not from 0.01 to 100,000.
    pub(crate) fn new(frames: f64) -> Option<Self> {
        (0.01..=100_000.0).contains(&frames).then_some(Self(frames))
    }

    /// Returns the rate as a fraction; never `None` for a rate that [`PerSecond::new`] accepts.
    pub(crate) fn rate(self) -> Option<FrameRate> {
        FrameRate::nearest(self.0)
    }

    /// Returns the time from one frame to the next.
    pub(crate) fn interval(self) -> Duration {
        Duration::from_secs_f64(1.0 / self.0)
    }
}

impl FromStr for PerSecond {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().ok().and_then(Self::new).ok_or_else(|| {
            format!(
                "{text:?} is not a number of frames a second from 0.01 to 100000, such as 20 or \
                 59.94"
            )
        })
    }
}

/// Bytes of the largest frame. The longest transmit window is 2 GiB, and a frame with all its
/// headers must fit a quarter of it, 512 MiB.
const BYTES_MAX: u64 = 400 << 20;

const SEND_NOTES: &str = "\
Sends a numbered pattern, which `frames recv` checks. With --y4m or --raw it sends the frames of a
file or of any program instead, and stops after the last of them (ffmpeg: `-f yuv4mpegpipe -`). A
receiver gets each frame whole and by its deadline, or not at all; a slow receiver does not slow the
others. The packets of a frame leave evenly over most of the time until the next frame, unless
--burst-limit or --rate is given. With --also, each frame leaves by two feeds, and neither waits for
the other.";

const SEND_EXAMPLES: &str = "\
Examples:
  towline frames send --group 239.192.0.1:7500 --for 1m
  towline frames send -g 239.192.0.1:7500 --size 1920x1080x3 --fps 30 --receivers 2
  towline frames send -g 239.192.0.1@eth0 --also 239.192.0.2@eth1
  towline frames send -g 239.192.0.1:7500 --burst-limit 32 --micro-delay 400us
  ffmpeg -re -i film.mkv -f yuv4mpegpipe - | towline frames send -g 239.192.0.1 --y4m -
  towline frames send -g 239.192.0.1 --raw a.bin --width 1360 --height 1024 --pixel-format Mono12p";

const RECV_NOTES: &str = "\
Receives video and patterns; only patterns are compared with what they should be. Writing and
showing frames never slows reception: frames that a slow disk or pipe has no time for are counted.
Counts frames that came whole and in time, and those that were lost, by cause: the network, the
socket buffer of this host, lateness, a sender that had no room for them, or refusal (a frame longer
than --max-frame, or no memory for it). The latency is from the sender's timestamp to the delivery,
by the wall clocks of both hosts; `towline clock` says how far they agree. It stops when every
sender found has ended its session, broken it off or vanished. With --also, a frame is whole when
one of the two feeds brings it in time, and the report says what each feed lost.";

const RECV_EXAMPLES: &str = "\
Examples:
  towline frames recv --group 239.192.0.1:7500
  towline frames recv -g 239.192.0.1:7500 --for 10m --every 1s --json
  towline frames recv -g 239.192.0.1@eth0 --also 239.192.0.2@eth1
  towline frames recv -g 239.192.0.1:7500 --preview 8080 --last 100 --output frames/
  towline frames recv -g 239.192.0.1:7500 --output - | ffplay -";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_pixels_or_bytes() {
        let size = |text: &str| text.parse::<FrameSize>().map(|it| it.bytes);
        assert_eq!(size("1360x1024x2"), Ok(2_785_280));
        assert_eq!(size("3MB"), Ok(3_000_000));
        for wrong in [
            "",
            "0",
            "2x3",
            "0x3x1",
            "axbxc",
            "65536x65536x65536",
            "401MiB",
        ] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rates_need_not_be_whole() {
        let interval = |text: &str| text.parse::<PerSecond>().map(PerSecond::interval);
        assert_eq!(interval("20"), Ok(Duration::from_millis(50)));
        assert!(interval("59.94").is_ok());
        for wrong in ["0", "-1", "NaN", "inf", "x"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}
