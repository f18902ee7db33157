//! `send`, `recv` and `demo`.

use std::{path::PathBuf, time::Duration};

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, error::Error};
use towline::{Allowed, Existing, SlowPolicy};

use super::{Receiving, Sending, SessionArgs, bytes, check_name, duration, long, mirror};

/// Send files or trees; done when every receiver has confirmed them.
#[derive(Debug, Args)]
#[command(after_help = SEND_HELP, after_long_help = long(SEND_HELP, SEND_NOTES))]
pub(crate) struct SendArgs {
    /// Files and directories to send; - for standard input, whose length need not be known
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// The name that standard input is delivered under [default: stdin]
    #[arg(long, value_name = "NAME", value_parser = file_name)]
    pub(crate) stdin_name: Option<String>,
    #[command(flatten)]
    pub(crate) rules: RuleArgs,
    /// Print the checksums of all files as b3sum does; with --dry-run without sending them
    #[arg(long)]
    pub(crate) hash: bool,
    /// Begin when this many receivers have the list of files, or at the join deadline
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) receivers: u32,
    /// Begin when the receivers of these names have the list of files; others are served too, and
    /// neither waited for nor asked for proof. Commas separate names, blanks around them are cut
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = receiver_name,
          conflicts_with = "receivers")]
    pub(crate) expect: Vec<String>,
    /// Begin after this time, with whoever has joined
    #[arg(long, value_name = "TIME", value_parser = duration,
          conflicts_with_all = ["receivers", "expect", "join_timeout"])]
    pub(crate) join_for: Option<Duration>,
    /// How long to wait for the receivers that are expected; then those that came are served, and
    /// the exit code is 1
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10s")]
    pub(crate) join_timeout: Duration,
    /// Give up (exit code 1) on a receiver that makes no progress for this long
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30s")]
    pub(crate) timeout: Duration,
    /// What to do about a receiver that holds all others back for 5 s
    #[arg(long, value_enum, value_name = "WHAT", default_value = "wait")]
    pub(crate) slow: SlowArg,
    #[command(flatten)]
    pub(crate) session: SessionArgs<Sending>,
}

mirror! {
    /// What is done about a receiver that holds all others back.
    SlowArg of SlowPolicy {
        /// All go at its pace
        Wait,
        /// It gets the rest by itself, at its own pace
        Demote,
        /// It is given up: exit code 1 if it is expected
        Drop,
    }
}

/// `--include` and `--exclude` in the order they were given in, which matters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuleArgs {
    /// Whether a rule includes, and its pattern.
    pub(crate) rules: Vec<(bool, String)>,
}

impl Args for RuleArgs {
    fn augment_args(command: Command) -> Command {
        let rule = |name: &'static str, help: &'static str| {
            Arg::new(name)
                .long(name)
                .value_name("PATTERN")
                .action(ArgAction::Append)
                .help(help)
        };
        command
            .arg(rule(
                INCLUDE,
                "Send what matches; of all --include and --exclude the first that matches decides",
            ))
            .arg(rule(
                EXCLUDE,
                "Leave out what matches: *.o by name anywhere, build/ directories only, /tree/*.c \
                 from the beginning",
            ))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for RuleArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut rules = Vec::new();
        for (name, is_included) in [(INCLUDE, true), (EXCLUDE, false)] {
            let indices = matches.indices_of(name).into_iter().flatten();
            let patterns = matches.get_many::<String>(name).into_iter().flatten();
            rules.extend(
                indices
                    .zip(patterns)
                    .map(|(at, text)| (at, is_included, text)),
            );
        }
        rules.sort_unstable();
        let rules = rules.into_iter();
        Ok(Self {
            rules: rules
                .map(|(_, is_included, text)| (is_included, text.clone()))
                .collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Receive files or trees into a directory.
#[derive(Debug, Args)]
#[command(after_help = RECV_HELP, after_long_help = long(RECV_HELP, RECV_NOTES))]
pub(crate) struct RecvArgs {
    /// Directory to receive into; made when it is not there
    #[arg(value_name = "DIR", conflicts_with = "to_stdout")]
    pub(crate) directory: Option<PathBuf>,
    /// Print the one file that is received instead, when all of it is verified; a tree is refused
    #[arg(long, conflicts_with_all = ["serve", "existing", "overwrite"])]
    pub(crate) to_stdout: bool,
    /// What to do about files that are there already [default: refuse]
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) existing: Option<ExistingArg>,
    /// Replace files that are there already: --existing replace
    #[arg(long, conflicts_with = "existing")]
    pub(crate) overwrite: bool,
    /// Go on after the first transfer, and take several at a time, until stopped; --json then
    /// prints one document a line, for each transfer and at the end
    #[arg(long, alias = "keep")]
    pub(crate) serve: bool,
    /// Take files only from these senders, written as address or prefix; any for everybody who
    /// reaches this machine. Needed on an interface that others can reach, unless there is a key
    /// or the group names its source
    #[arg(long, value_name = "ADDRESS[/BITS]|any", value_delimiter = ',')]
    pub(crate) from: Vec<Allowed>,
    /// Run this program after each transfer: words, without a shell; it finds TOWLINE_PATH,
    /// TOWLINE_PLAN, TOWLINE_SENDER, TOWLINE_BYTES and TOWLINE_ROOT in its environment
    #[arg(long, value_name = "COMMAND")]
    pub(crate) exec: Option<String>,
    /// Give up (exit code 1) when no transfer begins, or one makes no progress, for this long; with
    /// --serve only that transfer is given up, and the service goes on
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    #[command(flatten)]
    pub(crate) session: SessionArgs<Receiving>,
}

mirror! {
    /// What becomes of a file that is there already.
    ExistingArg of Existing {
        /// The transfer is refused before any byte of it arrives
        Refuse,
        /// It is replaced when the transfer is complete
        Replace,
        /// As replace, but what is there with the same size, time and content is not transferred
        /// again
        SkipUnchanged,
    }
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

/// One component of a path.
fn file_name(text: &str) -> Result<String, String> {
    if matches!(text, "" | "." | "..") || text.contains(['/', '\0']) || text.len() > 255 {
        return Err(format!("{text:?} cannot be the name of a file"));
    }
    Ok(text.to_owned())
}

/// One name of a list.
fn receiver_name(text: &str) -> Result<String, String> {
    let name = text.trim();
    if name.is_empty() {
        return Err("a name is empty; names are separated by one comma each, and hold none".into());
    }
    check_name(name)?;
    Ok(name.to_owned())
}

fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse() {
        Ok(percent) if (0.0..=90.0).contains(&percent) => Ok(percent),
        _ => Err(format!("{text:?} is not a share from 0 to 90 per cent")),
    }
}

const INCLUDE: &str = "include";
const EXCLUDE: &str = "exclude";

const SEND_NOTES: &str = "\
Exit code 0 says that every expected receiver has all bytes, that the hashes are equal, and that the
files are synced and under their names. Otherwise (1) the receivers that lack something are named.
What cannot be read is found before anybody is waited for (2).

--dry-run lists what would be sent, with --hash its checksums; with --json that is one document,
towline.plan.send: plan (every setting), files, bytes, entries (kind, bytes and path of each) and
sums (path and blake3 of each file, with --hash). Without --dry-run, --json prints one document at
the end, towline.send: is_proven, a row for each receiver, and sums too. The lines of --hash are
those of b3sum 1.5.5 and later; older ones do not escape carriage returns in names.

A pattern without / matches the last component of a path anywhere, one with a leading / the whole
path as it is delivered, any other the end of a path; one with a trailing / only directories. * and
? do not match a /, ** does. Nothing below an excluded directory is looked at.";

const SEND_HELP: &str = "\
Examples:
  towline send release/ --group 239.192.0.1:7500 --receivers 12
  towline send src/ -g 239.192.0.1:7500 --exclude '*.o' --exclude .git/ --expect rack1,rack2
  tar c . | towline send - --stdin-name site.tar -g 239.192.0.1:7500 --join-for 10s
  towline send image.iso -g 10.0.0.7:7500";

const RECV_NOTES: &str = "\
Files appear under their names when they are complete and their hashes are right. An interrupted
transfer leaves nothing under final names; what it has is kept, in .towline beneath the directory,
and not sent again.

--json prints one document at the end, towline.recv. With --serve there are several, each on one
line as JSON Lines has it: a towline.recv for each transfer when it is over, and at the end one
towline.recv-serve with the sums and the counters of all.

The file of --config takes the long flags as keys, those of this command too: directory, existing,
serve, from, key-file, exec and timeout. The program of --exec finds TOWLINE_PATH (the directory, or
the one thing in it that the transfer brought), TOWLINE_PLAN, TOWLINE_SENDER, TOWLINE_BYTES and
TOWLINE_ROOT in its environment. Such programs run one after the other; one that fails makes the
exit code 1.";

const RECV_HELP: &str = "\
Examples:
  towline recv incoming/ --group 239.192.0.1:7500 --from 10.0.0.0/8
  towline recv incoming/ -g 10.0.0.1@232.1.1.1:7500 --serve --exec '/usr/local/bin/publish --now'
  towline recv --to-stdout -g 239.192.0.1:7500 --from any | tar x
  towline recv --config /etc/towline/recv.toml --serve";

const DEMO_HELP: &str = "\
Makes hosts of network namespaces where the machine permits it, otherwise uses loopback addresses,
and says which. Nothing leaves the machine.

Examples:
  towline demo
  towline demo ~/src --receivers 5 --loss 20";
