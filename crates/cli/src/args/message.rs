//! `pub` and `sub`.

use std::{num::NonZeroU64, time::Duration};

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::{Receiving, Sending, SessionArgs, duration, long, mirror};
use crate::framing::Framing;

/// Send messages from standard input to a group.
#[derive(Debug, Args)]
#[command(after_help = PUBLISH_EXAMPLES, after_long_help = long(PUBLISH_EXAMPLES, PUBLISH_NOTES))]
pub(crate) struct PublishArgs {
    /// How messages stand in the input: a line each, or each after its length (u32 big-endian)
    #[arg(long, value_enum, value_name = "FORM", default_value = "lines")]
    pub(crate) framing: Framing,
    /// When the window is full: wait, and let the writer of the input wait; or throw the message
    /// away and count it
    #[arg(long, value_name = "yes|no", value_parser = yes_or_no, default_value = "yes",
          default_missing_value = "yes", num_args = 0..=1, require_equals = true,
          hide_short_help = true)]
    pub(crate) block: YesNo,
    /// What a receiver that cannot keep up does to the others
    #[arg(long, value_enum, value_name = "WHAT", default_value = "wait")]
    pub(crate) policy: PolicyArg,
    /// Begin when this many receivers have reported; 0 begins at once
    ///
    /// With 0 nobody is waited for: a message reaches the receivers that have joined by then, and
    /// goes nowhere when there are none, which is no error. Whoever joins later gets what is sent
    /// from then on. With N, exit code 0 says that N receivers have been given every message.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) receivers: u32,
    /// Give up when nothing moves for this long: receivers missing, or one that holds back the rest
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    #[command(flatten)]
    pub(crate) session: SessionArgs<Sending>,
}

/// Print the messages of a group.
#[derive(Debug, Args)]
#[command(after_help = SUBSCRIBE_EXAMPLES,
          after_long_help = long(SUBSCRIBE_EXAMPLES, SUBSCRIBE_NOTES))]
pub(crate) struct SubscribeArgs {
    /// How messages stand in the output: a line each, or each after its length (u32 big-endian)
    #[arg(long, value_enum, value_name = "FORM", default_value = "lines")]
    pub(crate) framing: Framing,
    /// When the reader of the output is slow: wait, and so hold back the senders that wait for
    /// receivers; or throw messages away and count them
    #[arg(long, value_name = "yes|no", value_parser = yes_or_no, default_value = "yes",
          default_missing_value = "yes", num_args = 0..=1, require_equals = true,
          hide_short_help = true)]
    pub(crate) block: YesNo,
    /// Put the sender's identifier and a tab before each message
    #[arg(long)]
    pub(crate) tag: bool,
    /// Stop after this many messages
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<NonZeroU64>,
    /// Stop when every sender found has ended its session (exit code 1 if one vanished instead)
    #[arg(long)]
    pub(crate) once: bool,
    /// Give up (exit code 1) when no message comes for this long
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// End with exit code 1 on a finding
    #[arg(long, value_enum, value_name = "WHAT", default_value = "none")]
    pub(crate) fail_on: FailOn,
    #[command(flatten)]
    pub(crate) session: SessionArgs<Receiving>,
}

mirror! {
    /// What becomes of a receiver that cannot keep up.
    PolicyArg of towline::Policy {
        /// It holds back the sender, and so all others.
        Wait,
        /// It loses messages, and is told how many.
        Lose,
        /// It is dropped from the session, and told.
        Drop,
    }
}

/// What counts as failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FailOn {
    /// Nothing: findings are reported and no more.
    None,
    /// Lost messages.
    Loss,
    /// Anything that is not as it was sent.
    Any,
}

/// A truth value that takes its word: for a plain `bool` the parser would make a bare flag.
pub(crate) type YesNo = bool;

fn yes_or_no(text: &str) -> Result<YesNo, String> {
    match text {
        "yes" | "true" => Ok(true),
        "no" | "false" => Ok(false),
        _ => Err(format!("{text:?} is not yes or no")),
    }
}

const PUBLISH_NOTES: &str = "\
Messages reach every receiver in order. Policies other than wait need receivers that report; plain
PGM receivers (OpenPGM, ZeroMQ) take part without reports.";

const PUBLISH_EXAMPLES: &str = "\
Examples:
  towline pub --group 239.192.0.1:7500
  tail -f log | towline pub -g 239.192.0.1:7500 --iface eth0 --receivers 3
  make-records | towline pub -g 10.0.0.7:7500 --framing length --rate 20MB/s";

const SUBSCRIBE_NOTES: &str = "\
Messages of one sender come in order. What cannot be repaired is named on standard error.
A sender that dies, or breaks its session off, may have had more to say: with --once and without
--count that is a failure (exit code 1).";

const SUBSCRIBE_EXAMPLES: &str = "\
Examples:
  towline sub --group 239.192.0.1:7500
  towline sub -g 239.192.0.1:7500 --iface 10.0.0.0/8 --once --fail-on loss > messages
  towline sub -g 239.192.0.1:7500 --framing length | process-records";
