//! Flags of `ifaces`, `top`, `stat`, `completions`, `man`, and the hidden `docs`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use clap_complete::Shell;

use super::duration;

/// Show the machine's network interfaces and what they can do.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  towline ifaces
  towline ifaces eth0 --json")]
pub(crate) struct IfacesArgs {
    /// Show only this interface, by name or by one of its addresses
    #[arg(value_name = "NAME|ADDRESS")]
    pub(crate) which: Option<String>,
}

/// Watch the sessions of this user's running processes.
#[derive(Debug, Args)]
#[command(after_help = "\
On a terminal it shows a row for each session: Enter opens its counters, Esc goes back, q or Ctrl-C
ends it. RATE is what a session sends or receives. LOSS is the share of packets, since the last
update, that a receiver missed or a sender sent again. LOST counts packets that were never repaired.
LAG counts the sent packets that the slowest receiver does not have yet. With --once or --json, and
where standard output is no terminal, it prints the counters once.

Examples:
  towline top
  towline top --once --json")]
pub(crate) struct TopArgs {
    /// Show only these processes
    #[arg(value_name = "PID", value_parser = process)]
    pub(crate) pids: Vec<u32>,
    /// Time between two updates
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1s")]
    pub(crate) interval: Duration,
    /// Print once and stop
    #[arg(long)]
    pub(crate) once: bool,
    /// Also show counters that are zero
    #[arg(long)]
    pub(crate) all: bool,
}

/// Print the counters of one running process.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  towline stat 4711 --nonzero
  towline stat 4711 source.rdata_packets
  towline stat 4711 --format prometheus > towline.prom")]
pub(crate) struct StatArgs {
    /// Process ID
    #[arg(value_name = "PID", value_parser = process)]
    pub(crate) pid: u32,
    /// Print only this counter, as NAME or SET.NAME
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Leave out counters that are zero
    #[arg(long, conflicts_with = "name")]
    pub(crate) nonzero: bool,
    /// Output format; prometheus and --json exclude each other
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: StatFormat,
}

/// Reads the number of a process.
fn process(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| {
        format!(
            "{text:?} is not a process ID, which is a number; `towline top --once` lists the \
             processes there are"
        )
    })
}

/// How `stat` writes counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StatFormat {
    /// A table for people
    Text,
    /// The text format that Prometheus scrapes
    Prometheus,
}

/// Print completions of this command line for a shell.
#[derive(Debug, Args)]
#[command(after_help = COMPLETIONS_HELP)]
pub(crate) struct CompletionsArgs {
    /// Shell that is to complete the command line
    #[arg(value_enum, value_name = "SHELL")]
    pub(crate) shell: Shell,
}

/// Print a manual page, or write those of all commands.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  towline man | man -l -
  towline man load send | man -l -
  towline man --to ~/.local/share/man/man1")]
pub(crate) struct ManArgs {
    /// Print the page of this command; without one, of towline itself
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
    /// Write the pages of all commands into this directory; created if missing
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    pub(crate) to: Option<PathBuf>,
}

/// Write the reference pages of the book.
#[derive(Debug, Args)]
pub(crate) struct DocsArgs {
    /// Directory to write the pages into
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}

const COMPLETIONS_HELP: &str = "\
Examples:
  towline completions bash > ~/.local/share/bash-completion/completions/towline
  towline completions zsh > ~/.zfunc/_towline
  towline completions fish > ~/.config/fish/completions/towline.fish";
