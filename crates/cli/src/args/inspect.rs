//! `ifaces`, `top`, `stat`, and the hidden `docs`.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use super::duration;

/// Show the machine's network interfaces and what they can do.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  towline ifaces
  towline ifaces eth0 --json")]
pub(crate) struct IfacesArgs {
    /// Only this one: its name or one of its addresses
    #[arg(value_name = "NAME|ADDRESS")]
    pub(crate) which: Option<String>,
}

/// Watch the sessions of this user's running processes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  towline top
  towline top --once --json")]
pub(crate) struct TopArgs {
    /// Only these processes
    #[arg(value_name = "PID")]
    pub(crate) pids: Vec<u32>,
    /// Time between two looks
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1s")]
    pub(crate) interval: Duration,
    /// Look once and stop
    #[arg(long)]
    pub(crate) once: bool,
    /// Show counters that are zero too
    #[arg(long)]
    pub(crate) all: bool,
}

/// Print the counters of one running process.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  towline stat 4711
  towline stat 4711 source.rdata_packets")]
pub(crate) struct StatArgs {
    /// The process
    #[arg(value_name = "PID")]
    pub(crate) pid: u32,
    /// Only this counter, as NAME or SET.NAME
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
}

/// Write shell completions, manual pages and the table of parameters.
#[derive(Debug, Args)]
pub(crate) struct DocsArgs {
    /// Directory to write into
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}
