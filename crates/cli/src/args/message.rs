//! Flags of `pub` and `sub`.

use std::{num::NonZeroU64, time::Duration};

use clap::{Args, ValueEnum};
use schemars::JsonSchema;
use serde::Serialize;
use towline::Allowed;

use super::{Receiving, Sending, SessionArgs, duration, long, mirror};
use crate::framing::Framing;

/// Send messages to a group: those of standard input, or one from the command line.
#[derive(Debug, Args)]
#[command(after_help = PUBLISH_EXAMPLES, after_long_help = long(PUBLISH_EXAMPLES, PUBLISH_NOTES))]
pub(crate) struct PublishArgs {
    /// Send this one message instead of standard input
    #[arg(value_name = "MESSAGE", conflicts_with = "framing")]
    pub(crate) message: Option<String>,
    /// How the input separates messages: by line ends, by zero bytes, or each after its length
    /// (u32, big-endian); zmq: by line ends, and packets hold ZeroMQ's frames [default: lines; with
    /// --profile zmq: zmq]
    ///
    /// A ZeroMQ subscriber aborts when packets hold anything but its frames. With zmq, each line is
    /// a message of one part, which may be longer than a packet. With another form, a packet holds
    /// a message as it is read, also with --profile zmq: then the input has to bring the frames.
    #[arg(long, value_enum, value_name = "FORM")]
    pub(crate) framing: Option<Framing>,
    /// What to do when the session cannot take another message yet: stop reading standard input
    /// (yes), or drop the message and count it (no)
    #[arg(long, value_name = "yes|no", value_parser = yes_or_no, default_value = "yes",
          default_missing_value = "yes", num_args = 0..=1, require_equals = true,
          hide_short_help = true)]
    pub(crate) block: YesNo,
    /// What to do when a receiver cannot keep up
    #[arg(long, value_enum, value_name = "WHAT", default_value = "wait")]
    pub(crate) policy: PolicyArg,
    /// Begin when this many receivers have reported; 0 begins at once
    ///
    /// With 0, a message reaches the receivers that have joined by then; if there are none, it is
    /// lost without an error. A receiver that joins later gets what is sent from then on. With N,
    /// exit code 0 means that N receivers were given every message.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) receivers: u32,
    /// Longest wait at each of three points. At the start, for --receivers to report [default: no
    /// limit]. While sending, for a receiver that is behind to make progress, or with --policy drop
    /// to catch up; then the sender gives up on it [default: 300s; drop: 2s; lose: no limit]. At
    /// the end, for what has not arrived [default: 60s]
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
    /// How the output separates messages: by line ends, by zero bytes, or each after its length
    /// (u32, big-endian); zmq: by line ends, and packets hold ZeroMQ's frames [default: lines; with
    /// --profile zmq: zmq]
    ///
    /// With zmq, a line is a message of ZeroMQ; a tab precedes each of its parts after the first.
    /// With another form, the output has what is in each packet, also with --profile zmq.
    #[arg(long, value_enum, value_name = "FORM")]
    pub(crate) framing: Option<Framing>,
    /// What to do when the program that reads the output is slow: take no more messages, which
    /// holds back senders that wait for receivers (yes), or drop messages and count them (no)
    #[arg(long, value_name = "yes|no", value_parser = yes_or_no, default_value = "yes",
          default_missing_value = "yes", num_args = 0..=1, require_equals = true,
          hide_short_help = true)]
    pub(crate) block: YesNo,
    /// Put the sender's identifier and a tab before each message; only with --framing lines or zmq
    #[arg(long)]
    pub(crate) tag: bool,
    /// Take messages only from senders at these addresses or prefixes; 'any' takes all [default:
    /// any]
    #[arg(long, value_name = "ADDRESS[/BITS]|any", value_delimiter = ',')]
    pub(crate) from: Vec<Allowed>,
    /// Stop after this many messages; exit with code 1 if fewer come
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<NonZeroU64>,
    /// Stop when all senders found are gone; without --count, exit with code 1 if one of them
    /// vanished or broke off instead of ending its session
    #[arg(long)]
    pub(crate) once: bool,
    /// Give up (exit code 1) after this time without a message [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// Exit with code 1 when messages were lost or dropped ('loss'; 'any' means the same here)
    #[arg(long, value_enum, value_name = "WHAT", default_value = "none")]
    pub(crate) fail_on: FailOn,
    #[command(flatten)]
    pub(crate) session: SessionArgs<Receiving>,
}

mirror! {
    /// What becomes of a receiver that cannot keep up.
    PolicyArg of towline::Policy {
        /// Hold back the sender, and so all other receivers.
        Wait,
        /// Let the receiver lose messages; the report says how many.
        Lose,
        /// Drop the receiver from the session, and tell it so.
        Drop,
    }
}

/// What counts as failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FailOn {
    /// Nothing; losses are only reported.
    None,
    /// Any loss: of messages, of frames (`frames recv`), of packets (`capture`).
    Loss,
    /// Any loss, damage, duplicate or disorder.
    Any,
}

/// A truth value that is written as yes or no. For a field of type `bool`, clap would declare a
/// flag without a value; the alias hides the type from clap.
pub(crate) type YesNo = bool;

fn yes_or_no(text: &str) -> Result<YesNo, String> {
    match text {
        "yes" | "true" => Ok(true),
        "no" | "false" => Ok(false),
        _ => Err(format!("{text:?} is not yes or no")),
    }
}

const PUBLISH_NOTES: &str = "\
Every receiver gets the messages in order. OpenPGM and ZeroMQ receivers do not report: no --policy
applies to them, and when they cannot keep up, they may lose messages. With --policy wait and no
--key-file, a receiver beyond the N of --receivers holds others back for a limited time only; after
that it may lose messages.";

const PUBLISH_EXAMPLES: &str = "\
Examples:
  towline pub --group 239.192.0.1:7500 'the door is open'
  tail -f log | towline pub -g 239.192.0.1:7500 --iface eth0 --receivers 3
  make-records | towline pub -g 10.0.0.7:7500 --framing length --rate 20MB/s";

const SUBSCRIBE_NOTES: &str = "\
--json prints JSON Lines: a document for each message when it comes, and the report at the end.
Messages of one sender arrive in order. Standard error says what could not be repaired. A sender
that dies or breaks off its session may have had more to send: with --once and without --count that
is a failure (exit code 1). Messages are neither encrypted nor signed, unless all ends have the same
--key-file.";

const SUBSCRIBE_EXAMPLES: &str = "\
Examples:
  towline sub --group 239.192.0.1:7500
  towline sub -g 239.192.0.1:7500 --iface 10.0.0.0/8 --once --fail-on loss > messages
  towline sub -g 239.192.0.1:7500 --framing length | process-records";
