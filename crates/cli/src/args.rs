//! The command line: raw flags, each checked by itself. `plan` checks which flags fit together.

use clap::{ArgAction, Parser, Subcommand};

mod capture;
pub(crate) use capture::{CaptureArgs, LiveArgs};

mod clock;
pub(crate) use clock::ClockArgs;

mod every;
pub(crate) use every::EveryArgs;

mod file;
pub(crate) use file::parse_from;

mod frames;
pub(crate) use frames::{FrameSize, FramesCommand, FramesRecvArgs, FramesSendArgs, PerSecond};

mod frames_advise;
pub(crate) use frames_advise::FramesAdviseArgs;

mod frames_media;
pub(crate) use frames_media::{FramesFrom, FramesTo};

mod inspect;
pub(crate) use inspect::{
    CompletionsArgs, DocsArgs, IfacesArgs, ManArgs, StatArgs, StatFormat, TopArgs,
};

mod load;
pub(crate) use load::{LoadCommand, LoadRecvArgs, LoadSendArgs, SizeRange};

mod message;
pub(crate) use message::{FailOn, PolicyArg, PublishArgs, SubscribeArgs};

mod mirror;
use mirror::mirror;

mod mtu;
pub(crate) use mtu::MtuArgs;

mod place;
pub(crate) use place::{IfaceArgs, Place, place};

mod quantity;
use quantity::{
    nonzero_count, positive_bit_rate, positive_count, positive_duration, positive_number,
    receiver_count,
};
pub(crate) use towline::quantity::duration;
use towline::quantity::{bit_rate, count, size as bytes};

mod reach;
pub(crate) use reach::ReachArgs;

mod relay;
pub(crate) use relay::RelayArgs;

mod replay;
pub(crate) use replay::ReplayArgs;

mod rtt;
pub(crate) use rtt::{
    EngineArg, FIFO_PRIORITY, OverArg, PictureArgs, RttCommand, RttPlotArgs, RttReflectArgs,
    RttRunArgs, STAMP_EVERY, ThreadArgs, ViewArg, WaitArg,
};

mod session;
pub(crate) use session::{
    Given, Receiving, Sending, SessionArgs, flag, metrics_address, session_options, with_flags,
};

mod stats;
pub(crate) use stats::{StatsArgs, SweptSize};

mod tcp;
pub(crate) use tcp::{CoalescingArg, TcpCommand, TcpServeArgs, TcpWatchArgs, TcpWritesArgs};

mod transfer;
pub(crate) use transfer::{
    DeleteArg, DemoArgs, ExistingArg, ModesArg, OwnerArg, RecvArgs, SendArgs, SlowArg,
};

mod udp;
pub(crate) use udp::{
    DirectionArg, ModeArg, ProfileArg, UdpCommand, UdpPlotArgs, UdpRunArgs, UdpServeArgs,
};

#[cfg(test)]
mod tests;

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "towline",
    version,
    about = "Moves data over IP networks completely, one-to-one and one-to-many",
    after_help = AFTER_HELP,
    after_long_help = long(AFTER_HELP, ""),
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
    /// Print JSON instead of text: one document, unless the command's help says otherwise
    #[arg(long, global = true, help_heading = "Output")]
    pub(crate) json: bool,
    /// Print only errors on standard error
    #[arg(
        long,
        short,
        global = true,
        help_heading = "Output",
        conflicts_with = "verbose"
    )]
    pub(crate) quiet: bool,
    /// Print more on standard error: events of sessions; with -vv also those of their connections
    #[arg(long, short, global = true, help_heading = "Output", action = ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Check flags and configuration, print the resulting plan as JSON, and stop
    ///
    /// `towline send` without --plain prints the list of its files instead: as text, or with --json
    /// as JSON that also holds the plan. `towline recv DIR --leftovers --clean` lists the leftovers
    /// and keeps them. Commands without a plan ignore the flag and do their work: ifaces, top,
    /// stat, completions, man and frames advise.
    #[arg(long, global = true, help_heading = "Output", hide_short_help = true)]
    pub(crate) dry_run: bool,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Send files or trees; done when all expected receivers have confirmed them
    Send(SendArgs),
    /// Receive files or trees into a directory
    Recv(RecvArgs),
    /// Send messages from standard input, or one message, to a group
    Pub(PublishArgs),
    /// Print the messages of a group
    Sub(SubscribeArgs),
    /// Carry sessions between networks that do not route multicast to each other
    Relay(RelayArgs),
    /// Generate messages, or receive and verify them
    #[command(subcommand)]
    Load(LoadCommand),
    /// Send frames, such as images of a camera, each whole and by its deadline; or receive them
    #[command(subcommand)]
    Frames(FramesCommand),
    /// Capture packets, with an account of every packet lost
    Capture(CaptureArgs),
    /// Send packets of a file, or generated ones, at a given pace, and report how well it was kept
    Replay(ReplayArgs),
    /// Count packets by protocol, size, pair of addresses, filter and time
    Stats(StatsArgs),
    /// Measure round trips, and draw them
    #[command(subcommand)]
    Rtt(RttCommand),
    /// Find the largest packet that reaches a host unfragmented
    Mtu(MtuArgs),
    /// Measure what a path carries, by size of datagram
    #[command(subcommand)]
    Udp(UdpCommand),
    /// Show what holds TCP connections back, and what each way of writing costs
    #[command(subcommand)]
    Tcp(TcpCommand),
    /// Find out why a multicast group does not arrive
    Reach(ReachArgs),
    /// Show how accurate this host's clocks are, or compare them with another host's
    Clock(ClockArgs),
    /// Show the machine's network interfaces and what they can do
    Ifaces(IfacesArgs),
    /// Watch the sessions of this user's running processes
    Top(TopArgs),
    /// Print the counters of one running process
    Stat(StatArgs),
    /// Demonstrate a file transfer on this machine: one sender, several receivers, random loss
    Demo(DemoArgs),
    /// Print completions of this command line for a shell
    Completions(CompletionsArgs),
    /// Print a manual page, or write those of all commands
    Man(ManArgs),
    /// Write the reference pages of the book
    #[command(hide = true)]
    Docs(DocsArgs),
}

/// Makes the text after the long help of a command: `notes`, exit codes, then `examples`, which
/// also end the short help.
pub(crate) fn long(examples: &str, notes: &str) -> String {
    let separator = if notes.is_empty() { "" } else { "\n\n" };
    let mut codes = String::from(EXIT_HEADING);
    for (code, meaning) in EXIT_CODES {
        let meaning = meaning.replace('\n', "\n       ");
        codes += &format!("\n  {code:<5}{meaning}");
    }
    format!("{notes}{separator}{codes}\n\n{examples}")
}

/// Every exit code with its meaning; the lines are broken for a help text.
pub(crate) const EXIT_CODES: &[(&str, &str)] = &[
    ("0", "done, and proven where proof is promised"),
    ("1", "not delivered, not proven, or a check found a fault"),
    ("2", "wrong usage, or this machine or network cannot do it"),
    (
        "130",
        "interrupted by Ctrl-C or SIGTERM: the session was closed and the report printed, marked\n\
         as interrupted; a second signal, half a second later or more, ends the command at once.\n\
         These commands may run until a signal ends them, and then exit with another code: relay,\n\
         rtt reflect, stats, tcp serve, tcp watch, top and udp serve with 0, capture and\n\
         recv --serve with 0 or 1",
    ),
];
/// The line above the exit codes in a help text.
pub(crate) const EXIT_HEADING: &str = "Exit code:";
/// The line above the examples in a help text.
pub(crate) const EXAMPLES: &str = "Examples:";

const AFTER_HELP: &str = "\
Examples:
  towline demo
  towline sub --group 239.192.0.1:7500
  echo hello | towline pub --group 239.192.0.1:7500
  towline help pub";
