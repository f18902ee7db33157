//! `send`, `recv` and `demo`.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use super::{Receiving, Sending, SessionArgs, bytes, duration};

/// Send files or trees; done when every receiver has confirmed them.
#[derive(Debug, Args)]
#[command(after_help = SEND_HELP)]
pub(crate) struct SendArgs {
    /// Files and directories to send
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// Begin when this many receivers have the list of files, or at the join deadline
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) receivers: u32,
    /// How long to wait for the receivers that are expected
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10s")]
    pub(crate) join_timeout: Duration,
    /// Give up (exit code 1) on a receiver that makes no progress for this long
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30s")]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) session: SessionArgs<Sending>,
}

/// Receive files or trees into a directory.
#[derive(Debug, Args)]
#[command(after_help = RECV_HELP)]
pub(crate) struct RecvArgs {
    /// Directory to receive into; made when it is not there
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// Replace files that are there already
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Go on receiving after the first transfer
    #[arg(long)]
    pub(crate) keep: bool,
    /// Give up (exit code 1) when no transfer begins, or one makes no progress, for this long
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    #[command(flatten)]
    pub(crate) session: SessionArgs<Receiving>,
}

/// Show the main job on this machine.
#[derive(Debug, Args)]
#[command(after_help = DEMO_HELP)]
pub(crate) struct DemoArgs {
    /// Tree to send; without it one of at least --min-bytes and --min-files is looked for
    #[arg(value_name = "PATH")]
    pub(crate) path: Option<PathBuf>,
    /// Receivers
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(crate) receivers: u32,
    /// Packets that each receiver loses at random, in per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, value_parser = percent)]
    pub(crate) loss: f64,
    /// Seed of the random loss
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Bytes that a tree to be found must have
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value = "200MB")]
    pub(crate) min_bytes: u64,
    /// Files that a tree to be found must have
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) min_files: u64,
    /// Limit of the sender's rate, as 100MB/s
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<String>,
    /// Keep the directories that the receivers wrote
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,
}

fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse() {
        Ok(percent) if (0.0..=90.0).contains(&percent) => Ok(percent),
        _ => Err(format!("{text:?} is not a share from 0 to 90 per cent")),
    }
}

const SEND_HELP: &str = "\
Exit code 0 says that every expected receiver has all bytes, that the hashes are equal, and that the
files are synced and under their names. Otherwise the receivers that lack something are named.

Examples:
  towline send release/ --group 239.192.0.1:7500 --receivers 12
  towline send image.iso -g 10.0.0.7:7500";

const RECV_HELP: &str = "\
Files appear under their names when they are complete and their hashes are right. An interrupted
transfer leaves nothing under final names and starts anew.

Examples:
  towline recv incoming/ --group 239.192.0.1:7500
  towline recv incoming/ -g 239.192.0.1:7500 --keep --name rack7";

const DEMO_HELP: &str = "\
Makes hosts of network namespaces where the machine permits it, otherwise uses loopback addresses,
and says which. Nothing leaves the machine.

Examples:
  towline demo
  towline demo ~/src --receivers 5 --loss 20";
