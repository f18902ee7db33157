//! The command line: raw flags, each checked by itself. Nothing here knows what belongs together.

use clap::{ArgAction, Parser, Subcommand};

mod inspect;
pub(crate) use inspect::{DocsArgs, IfacesArgs, StatArgs, TopArgs};

mod load;
pub(crate) use load::{LoadCommand, LoadRecvArgs, LoadSendArgs, SizeRange};

mod message;
pub(crate) use message::{FailOn, PolicyArg, PublishArgs, SubscribeArgs};

mod quantity;
pub(crate) use quantity::{bytes, duration};

mod session;
pub(crate) use session::{Given, Receiving, SESSION_OPTIONS, Sending, SessionArgs, dscp, flag};

mod transfer;
pub(crate) use transfer::{DemoArgs, RecvArgs, SendArgs};

#[cfg(test)]
mod tests;

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "towline",
    version,
    about = "Moves data over IP networks completely, one-to-one and one-to-many",
    after_help = AFTER_HELP,
    max_term_width = 100,
    disable_help_subcommand = false,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command prints, and how.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct OutputArgs {
    /// Print one JSON document instead of text
    #[arg(long, global = true, help_heading = "Output")]
    pub(crate) json: bool,
    /// Say nothing on standard error but errors
    #[arg(
        long,
        short,
        global = true,
        help_heading = "Output",
        conflicts_with = "verbose"
    )]
    pub(crate) quiet: bool,
    /// Say more on standard error; twice for more still
    #[arg(long, short, global = true, help_heading = "Output", action = ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Check flags and configuration, print what would be done as JSON, and stop
    #[arg(long, global = true, help_heading = "Output")]
    pub(crate) dry_run: bool,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Send files or trees; done when every receiver has confirmed them
    Send(SendArgs),
    /// Receive files or trees into a directory
    Recv(RecvArgs),
    /// Send messages from standard input to a group
    Pub(PublishArgs),
    /// Print the messages of a group
    Sub(SubscribeArgs),
    /// Generate messages, or receive and verify them
    #[command(subcommand)]
    Load(LoadCommand),
    /// Show the machine's network interfaces and what they can do
    Ifaces(IfacesArgs),
    /// Watch the sessions of this user's running processes
    Top(TopArgs),
    /// Print the counters of one running process
    Stat(StatArgs),
    /// Show the main job on this machine: one sender, several receivers, random loss
    Demo(DemoArgs),
    /// Write shell completions, manual pages and the table of parameters
    #[command(hide = true)]
    Docs(DocsArgs),
}

const AFTER_HELP: &str = "\
Exit code: 0 done and proven; 1 not delivered or not proven; 2 wrong usage or environment.

Examples:
  towline demo
  towline sub --group 239.192.0.1:7500
  echo hello | towline pub --group 239.192.0.1:7500
  towline help pub";
