//! Flags of `load send` and `load recv`.

use std::{num::NonZeroU64, str::FromStr, time::Duration};

use clap::{Args, Subcommand};
use schemars::JsonSchema;
use serde::Serialize;
use towline::Allowed;

use super::{
    EveryArgs, FailOn, PolicyArg, Receiving, Sending, SessionArgs, bytes, duration, long,
    nonzero_count,
};

/// Generate messages, or receive and verify them.
#[derive(Debug, Subcommand)]
pub(crate) enum LoadCommand {
    /// Send generated messages, as fast as possible or at a rate
    Send(LoadSendArgs),
    /// Receive and verify generated messages
    Recv(LoadRecvArgs),
}

/// Send generated messages.
#[derive(Debug, Args)]
#[command(after_help = SEND_EXAMPLES, after_long_help = long(SEND_EXAMPLES, ""))]
pub(crate) struct LoadSendArgs {
    /// Bytes of each message, or a range from which the size of each is drawn
    #[arg(long, value_name = "BYTES[-BYTES]", default_value = "1400")]
    pub(crate) size: SizeRange,
    /// Stop after this many messages
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<NonZeroU64>,
    /// Stop after this time; a plain number is seconds
    #[arg(long = "for", alias = "seconds", value_name = "TIME", value_parser = duration)]
    pub(crate) seconds: Option<Duration>,
    /// Send N messages a second, each at its own time, instead of as fast as possible
    #[arg(long, value_name = "N", value_parser = nonzero_count)]
    pub(crate) per_second: Option<NonZeroU64>,
    /// Write into each message the time at which it was due (without --per-second: at which it was
    /// handed over), so that receivers can measure delays
    ///
    /// Needs messages of at least 32 bytes, and `--stamp` at the receivers.
    #[arg(long)]
    pub(crate) stamp: bool,
    /// Seed of the generated content; the receiver needs the same
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// What to do when a receiver cannot keep up
    #[arg(long, value_enum, value_name = "WHAT", default_value = "wait")]
    pub(crate) policy: PolicyArg,
    /// Begin when this many receivers have reported; 0 begins at once
    ///
    /// With 0, a receiver that joins later misses what was sent before; with no receiver at all the
    /// messages are lost without an error.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) receivers: u32,
    /// Longest wait at each of three points. At the start, for --receivers to report [default: no
    /// limit]. While sending, for a receiver that is behind to make progress, or with --policy drop
    /// to catch up; then the sender gives up on it [default: 300s; drop: 2s; lose: no limit]. At
    /// the end, for what has not arrived [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    #[command(flatten)]
    pub(crate) intervals: EveryArgs,
    #[command(flatten)]
    pub(crate) session: SessionArgs<Sending>,
}

/// Receive and verify generated messages.
#[derive(Debug, Args)]
#[command(after_help = RECV_EXAMPLES, after_long_help = long(RECV_EXAMPLES, RECV_NOTES))]
pub(crate) struct LoadRecvArgs {
    /// Stop after this many intact messages; exit with code 1 if fewer arrive
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<NonZeroU64>,
    /// Stop this long after the first message; a plain number is seconds
    #[arg(long = "for", alias = "seconds", value_name = "TIME", value_parser = duration)]
    pub(crate) seconds: Option<Duration>,
    /// Seed of the generated content, the same as the sender's
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Measure the delay of each message since it was due; needs the sender's `--stamp`
    ///
    /// Compares the wall clocks of both hosts: `towline clock` says how far they agree. On one
    /// machine there is only one clock.
    #[arg(long)]
    pub(crate) stamp: bool,
    /// With --stamp, count the messages that took longer than this
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "500us")]
    pub(crate) late: Duration,
    /// Take messages only from senders at these addresses or prefixes; 'any' takes all [default:
    /// any]
    #[arg(long, value_name = "ADDRESS[/BITS]|any", value_delimiter = ',')]
    pub(crate) from: Vec<Allowed>,
    /// Give up after this time without an intact message [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// Exit with code 1 when messages or packets were lost ('loss'), or also when messages were
    /// damaged, duplicated or out of order ('any'). The code is 1 anyway when no intact message
    /// came, when fewer than --count came, and, without --count, when a sender vanished or broke
    /// off its session
    #[arg(long, value_enum, value_name = "WHAT", default_value = "any")]
    pub(crate) fail_on: FailOn,
    #[command(flatten)]
    pub(crate) intervals: EveryArgs,
    #[command(flatten)]
    pub(crate) session: SessionArgs<Receiving>,
}

/// Smallest and largest message, in bytes, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct SizeRange {
    /// Smallest.
    pub(crate) min: usize,
    /// Largest.
    pub(crate) max: usize,
}

impl FromStr for SizeRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let one = |text: &str| {
            let size = bytes(text).map_err(|error| error.to_string())?;
            Ok::<_, String>(usize::try_from(size).unwrap_or(usize::MAX))
        };
        let (min, max) = match text.split_once('-') {
            Some((min, max)) => (one(min)?, one(max)?),
            None => (one(text)?, one(text)?),
        };
        if min == 0 {
            return Err(format!("{text:?}: a message has 1 byte or more"));
        }
        if min > max {
            return Err(format!(
                "{text:?}: the smaller size comes first, as in 64-1400"
            ));
        }
        Ok(Self { min, max })
    }
}

const SEND_EXAMPLES: &str = "\
Examples:
  towline load send --group 239.192.0.1:7500 --size 1400 --for 10s
  towline load send -g 239.192.0.1:7500 --size 1-20000 --count 200000 --receivers 3
  towline load send -g 239.192.0.1:7500 --size 64 --rate 50MB/s --every 1s --json
  towline load send -g 239.192.0.1:7500 --size 64 --pack
  towline load send -g 239.192.0.1:7500 --size 224 --per-second 50000 --stamp --for 10s";

const RECV_NOTES: &str = "\
Reports how many messages are intact, missing, corrupt, duplicated or out of order; the rate from
the first to the last message; processor time of this process and of the whole machine; and
discarded packets by reason. It stops when every sender found has ended its session, broken it off
or vanished. Without --count, one that broke it off or vanished is a failure (exit code 1).";

const RECV_EXAMPLES: &str = "\
Examples:
  towline load recv --group 239.192.0.1:7500
  towline load recv -g 239.192.0.1:7500 --count 200000 --timeout 30s --json
  towline load recv -g 239.192.0.1:7500 --stamp --late 1ms";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(
            "1-20000".parse(),
            Ok(SizeRange {
                min: 1,
                max: 20_000
            })
        );
        assert_eq!(
            "1KiB".parse(),
            Ok(SizeRange {
                min: 1024,
                max: 1024
            })
        );
        for wrong in ["0", "5-4", "-", "", "1-"] {
            assert!(wrong.parse::<SizeRange>().is_err(), "{wrong}");
        }
    }
}
