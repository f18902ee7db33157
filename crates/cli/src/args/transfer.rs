//! Flags of `send`, `recv` and `demo`.

use std::{
    net::{Ipv6Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, error::Error};
use towline::{
    Allowed, Delete, Existing, Group, KeepFree, Modes, Owners, SlowPolicy, TRANSFERS_MAX,
    options::check_name,
};

use super::{
    Receiving, Sending, SessionArgs, bytes, duration, long, mirror, positive_duration,
    receiver_count, rtt::listen_with,
};

/// Send files or trees; done when all expected receivers have confirmed them.
#[derive(Debug, Args)]
#[command(after_help = SEND_HELP, after_long_help = long(SEND_HELP, SEND_NOTES))]
pub(crate) struct SendArgs {
    /// Files and directories to send, DIR/ for what is in a directory; - for standard input, which
    /// is first kept in a temporary file (not with --plain)
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// Send over TCP to the receivers at these hosts (recv --listen), separated by commas, instead
    /// of a group; port 7500 unless given
    #[arg(long, value_name = "HOST[:PORT],...", value_delimiter = ',',
          conflicts_with_all = ["group", "receivers", "expect", "join_for", "slow"])]
    pub(crate) to: Vec<String>,
    /// Send one file, or standard input, to any program that listens at --to, such as nc or socat.
    /// Such a program confirms nothing, so the exit code is 1 unless --accept-unconfirmed is given
    #[arg(long, requires = "to",
          conflicts_with_all = ["spool", "stdin_name", INCLUDE, EXCLUDE, "skip_changed",
                                "hard_links", "sparse", "owner", "xattrs", "hash",
                                "join_timeout"])]
    pub(crate) plain: bool,
    /// With --plain, exit with code 0 if the peer's kernel has acknowledged everything and the peer
    /// has then closed without a reset
    #[arg(long, requires = "plain")]
    pub(crate) accept_unconfirmed: bool,
    /// Directory in which standard input is kept while it is sent [default: $TMPDIR, or /tmp]
    #[arg(long, value_name = "DIR")]
    pub(crate) spool: Option<PathBuf>,
    /// File name for standard input at the receivers [default: stdin]
    #[arg(long, value_name = "NAME", value_parser = file_name)]
    pub(crate) stdin_name: Option<String>,
    #[command(flatten)]
    pub(crate) rules: RuleArgs,
    /// Leave out files below PATH that cannot be read, or that change or vanish before they are
    /// sent, and name them (exit code 1), instead of ending the transfer
    #[arg(long)]
    pub(crate) skip_changed: bool,
    /// Send a file that has several names once; receivers make its further names hard links.
    /// Receivers that are too old for this refuse the transfer and say so
    #[arg(short = 'H', long)]
    pub(crate) hard_links: bool,
    /// Ask receivers to make holes of runs of zeros, so that the zeros take no room on their disks;
    /// what is sent stays the same
    #[arg(short = 'S', long)]
    pub(crate) sparse: bool,
    /// Tell receivers the user and group of files, directories and links, by name and number;
    /// recv --owner sets them. Receivers that are too old for this refuse the transfer and say so
    #[arg(long)]
    pub(crate) owner: bool,
    /// Tell receivers the extended attributes of files and directories: those of users (user.*),
    /// and as root all but file capabilities and access lists; recv --xattrs sets them. Receivers
    /// that are too old for this refuse the transfer and say so
    #[arg(short = 'X', long)]
    pub(crate) xattrs: bool,
    /// Print the checksums of all files, as b3sum does; with --dry-run, without sending them
    #[arg(long)]
    pub(crate) hash: bool,
    /// Expect this many receivers, the first to join; others are guests [default: expect all that
    /// join, and begin when no new one has joined for 300 ms]
    #[arg(long, value_name = "N", value_parser = receiver_count)]
    pub(crate) receivers: Option<u32>,
    /// Expect the receivers with these names (recv --name), separated by commas; others are guests
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = receiver_name,
          conflicts_with = "receivers")]
    pub(crate) expect: Vec<String>,
    /// Begin after this time; the receivers that have joined by then are expected, later ones are
    /// guests
    #[arg(long, value_name = "TIME", value_parser = duration,
          conflicts_with_all = ["receivers", "expect", "join_timeout"])]
    pub(crate) join_for: Option<Duration>,
    /// Longest wait for all expected receivers (--receivers, --expect, --to) to join; without these
    /// flags, for the first receiver. After it, send to those that have joined, if any, and exit
    /// with code 1. While a busy receiver of --to keeps this sender waiting, --line-timeout counts
    /// instead
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10s")]
    pub(crate) join_timeout: Duration,
    /// Longest wait for a receiver of --to that is busy with other senders; then send to the
    /// others, and exit with code 1
    #[arg(long, value_name = "TIME", value_parser = positive_duration, default_value = "3600s",
          requires = "to", conflicts_with = "plain")]
    pub(crate) line_timeout: Duration,
    /// Give up on a receiver after this time without progress; exit code 1 if it is expected
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30s")]
    pub(crate) timeout: Duration,
    /// What to do with a receiver that holds back all others for 5 s
    #[arg(long, value_enum, value_name = "WHAT", default_value = "wait")]
    pub(crate) slow: SlowArg,
    #[command(flatten)]
    pub(crate) session: SessionArgs<Sending>,
}

mirror! {
    /// What is done about a receiver that holds all others back.
    SlowArg of SlowPolicy {
        /// Send to all at its pace
        Wait,
        /// Send it the rest over its own connection, at its own pace
        Demote,
        /// Give up on it; exit code 1 if it is expected
        Drop,
    }
}

/// `--include` and `--exclude` in the order in which they were given: the order matters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuleArgs {
    /// For each rule: true if it includes files, false if it excludes them; and its pattern.
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
                "Send what matches, even if a later --exclude matches it too: the first pattern \
                 that matches decides. --include '*.mxf' --exclude '*' sends only the *.mxf that \
                 are directly in PATH",
            ))
            .arg(rule(
                EXCLUDE,
                "Leave out what matches: *.o matches a name anywhere, build/ only directories, \
                 /tree/*.c a whole path",
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
    /// Directory to receive into; created if missing
    #[arg(value_name = "DIR", conflicts_with = "to_stdout")]
    pub(crate) directory: Option<PathBuf>,
    /// Receive over TCP from senders that name this host (send --to), instead of a group; with a
    /// port alone, on all addresses
    #[arg(long, value_name = "[ADDRESS:]PORT", conflicts_with = "group", value_parser = listen)]
    pub(crate) listen: Option<SocketAddr>,
    /// Instead of storing the received file, print it once all of it is verified; refuse a tree
    #[arg(long, conflicts_with_all = ["serve", "existing", "overwrite"])]
    pub(crate) to_stdout: bool,
    /// With --to-stdout, directory in which the file is kept until it is verified [default:
    /// $TMPDIR, or /tmp]
    #[arg(long, value_name = "DIR", requires = "to_stdout")]
    pub(crate) spool: Option<PathBuf>,
    /// List what unfinished transfers have left in DIR, and receive nothing
    #[arg(long, requires = "directory")]
    pub(crate) leftovers: bool,
    /// With --leftovers, remove them, except those of transfers under way
    #[arg(long, requires = "leftovers")]
    pub(crate) clean: bool,
    /// What to do with files that exist already [default: refuse]
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) existing: Option<ExistingArg>,
    /// Replace files that exist already; the same as --existing replace
    #[arg(long, conflicts_with = "existing")]
    pub(crate) overwrite: bool,
    /// Turn runs of zeros into holes, which take no room, even when the sender does not ask for it
    #[arg(short = 'S', long, conflicts_with = "to_stdout")]
    pub(crate) sparse: bool,
    /// Set the user and group that `send --owner` tells: by their names where both ends know them,
    /// otherwise by their numbers; with --owner=numbers, always by their numbers. What this process
    /// may not set is named (exit code 1)
    #[arg(long, value_enum, value_name = "WHICH", num_args = 0..=1, require_equals = true,
          default_missing_value = "names", conflicts_with = "to_stdout")]
    pub(crate) owner: Option<OwnerArg>,
    /// Set the extended attributes of files and directories that `send --xattrs` tells, and remove
    /// those named user.* that the sender's file does not have. File capabilities and access lists
    /// are never set. What this process may not set is named (exit code 1)
    #[arg(short = 'X', long, conflicts_with = "to_stdout")]
    pub(crate) xattrs: bool,
    /// Which permission bits of the sender's files and directories to set
    #[arg(
        long,
        value_enum,
        value_name = "WHICH",
        default_value = "umask",
        conflicts_with = "to_stdout"
    )]
    pub(crate) permissions: ModesArg,
    /// Also accept names that begin with a dot, such as .bashrc, at the top of a transfer;
    /// otherwise they are refused, because in a home directory they are settings of programs
    #[arg(long, conflicts_with = "to_stdout")]
    pub(crate) allow_dot_names: bool,
    /// When a transfer is complete, delete from the directories that it brought what the sender
    /// does not have; needs --overwrite or --existing skip-unchanged. --delete=list only names what
    /// would be deleted
    #[arg(long, value_enum, value_name = "WHAT", num_args = 0..=1, require_equals = true,
          default_missing_value = "surplus", conflicts_with = "to_stdout")]
    pub(crate) delete: Option<DeleteArg>,
    /// Maximum number of bytes that DIR may hold, as its filesystem counts them, whoever wrote
    /// them: a transfer that does not fit is refused, or fails once the limit is reached [default:
    /// no limit]
    #[arg(long, value_name = "SIZE", value_parser = bytes, conflicts_with = "to_stdout")]
    pub(crate) quota: Option<u64>,
    /// How much of the filesystem stays free, such as 2GiB or 10% [default: 5%, at most 1GiB]
    #[arg(long, value_name = "SIZE|PERCENT", conflicts_with = "to_stdout")]
    pub(crate) keep_free: Option<KeepFree>,
    /// Maximum number of files, directories and links in one transfer
    #[arg(long, value_name = "N", default_value_t = ENTRIES_MAX,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(ENTRIES_MAX)))]
    pub(crate) max_files: u32,
    /// Run until stopped, accepting several transfers at a time; --json then prints one line for
    /// each transfer and one at the end
    #[arg(long, alias = "keep")]
    pub(crate) serve: bool,
    /// With --serve, maximum number of transfers at a time; one host may have at most half of them;
    /// further senders wait
    #[arg(long, value_name = "N", default_value_t = TRANSFERS_MAX, requires = "serve",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(TRANSFERS_LIMIT)))]
    pub(crate) max_transfers: u32,
    /// Accept files only from these addresses or prefixes; 'any' accepts all. Required on an
    /// interface that others can reach, unless there is a key or the group names its source
    #[arg(long, value_name = "ADDRESS[/BITS]|any", value_delimiter = ',')]
    pub(crate) from: Vec<Allowed>,
    /// Run this program after each complete transfer (without a shell), with TOWLINE_PATH,
    /// TOWLINE_MANIFEST, TOWLINE_SENDER, TOWLINE_BYTES and TOWLINE_ROOT in its environment
    #[arg(long, value_name = "COMMAND")]
    pub(crate) exec: Option<String>,
    /// Longest time that the program of --exec may run; then it is ended (exit code 1), so that the
    /// programs of further transfers can run
    #[arg(long, value_name = "TIME", value_parser = positive_duration, default_value = "1h")]
    pub(crate) exec_timeout: Duration,
    /// Give up (exit code 1) after this time without a transfer, or without progress of the
    /// transfer; with --serve, end only the transfer without progress, and go on [default: no
    /// limit; 5m with --serve]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    #[command(flatten)]
    pub(crate) session: SessionArgs<Receiving>,
}

mirror! {
    /// What becomes of a file that is there already.
    ExistingArg of Existing {
        /// Refuse the transfer before any byte of it arrives
        Refuse,
        /// Replace the file when the transfer is complete
        Replace,
        /// Like replace, but do not transfer a file that already has the same size, time and
        /// content
        SkipUnchanged,
    }
}

mirror! {
    /// Which permission bits are set.
    ModesArg of Modes {
        /// The bits that this process's umask leaves; the owner of a directory may always enter
        /// and list it
        Umask,
        /// The bits for reading, writing and executing as the sender has them; never set-user-id,
        /// set-group-id or sticky
        Exact,
    }
}

mirror! {
    /// Who owns what arrives.
    OwnerArg of Owners {
        /// Users and groups with the same names; where an end knows no name, with the same numbers
        Names,
        /// Users and groups with the same numbers
        Numbers,
    }
}

mirror! {
    /// What becomes of files and directories that a transfer does not bring.
    DeleteArg of Delete {
        /// Delete what the sender does not have; delete nothing when the sender's patterns have
        /// left something out, or the sender could not read all of its files
        Surplus,
        /// Delete also what the sender's patterns have left out; delete nothing when the sender
        /// could not read all of its files
        Excluded,
        /// Delete nothing, and name what --delete=surplus would delete
        List,
    }
}

/// Demonstrate a file transfer on this machine.
#[derive(Debug, Args)]
#[command(after_help = DEMO_HELP)]
pub(crate) struct DemoArgs {
    /// Tree to send [default: directories of this machine, such as those in /usr/share, that
    /// together have at least --min-bytes and --min-files]
    #[arg(value_name = "PATH")]
    pub(crate) path: Option<PathBuf>,
    /// Number of receivers
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(crate) receivers: u32,
    /// Percentage of packets that each receiver loses at random
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, value_parser = percent)]
    pub(crate) loss: f64,
    /// Seed of the random loss
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Without PATH: minimum total size of the directories that are sent
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value = "200MB")]
    pub(crate) min_bytes: u64,
    /// Without PATH: minimum total number of files in the directories that are sent
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) min_files: u64,
    /// Maximum rate of the sender, for example 100MB/s
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<String>,
    /// Receive into this directory, and keep it [default: a temporary one, removed at the end]
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,
}

/// Reads a file name: one component of a path.
fn file_name(text: &str) -> Result<String, String> {
    if matches!(text, "" | "." | "..") || text.contains(['/', '\0']) || text.len() > 255 {
        return Err(format!("{text:?} cannot be the name of a file"));
    }
    Ok(text.to_owned())
}

/// Reads one name of a list.
fn receiver_name(text: &str) -> Result<String, String> {
    let name = text.trim();
    if name.is_empty() {
        return Err("a name is empty; write names with one comma between them".into());
    }
    check_name(name)?;
    Ok(name.to_owned())
}

fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse() {
        Ok(percent) if (0.0..=90.0).contains(&percent) => Ok(percent),
        _ => Err(format!("{text:?} is not a percentage from 0 to 90")),
    }
}

/// The most files, directories and links of a transfer; `--max-files` cannot raise it.
const ENTRIES_MAX: u32 = 1_000_000;
/// The highest value of `--max-transfers`: each transfer has a thread that writes to the disk.
const TRANSFERS_LIMIT: u32 = 10_000;
const INCLUDE: &str = "include";
const EXCLUDE: &str = "exclude";

const SEND_NOTES: &str = "\
Exit code 0 means that every expected receiver has all bytes, that the hashes are equal, and that
the files are synced and under their final names. With exit code 1, the report names the receivers
that lack something. A file that cannot be read ends the command before it waits for receivers, with
exit code 2. A file that changes while it is sent ends the transfer, with exit code 1. With
--skip-changed such files are left out and named, the receivers prove the rest, and the exit code is
1 at both ends. When a directory cannot be listed, only the sender names it; the receivers say that
something was left out.

By default all receivers that join before the end are expected. A flag can limit them: to the first
N (--receivers), to those named by --expect, to all that join within --join-for, or to one at each
host of --to. All other receivers are guests. They get data, too. When all expected receivers are
done, guests that make progress are served for as long again as the transfer has taken (1 s at
least, --timeout at most). A guest that fails does not change the exit code. With --key-file at all
ends, packets and connections are encrypted and authenticated.

With --plain the receiver is any program that reads to the end of its connection. towline sends the
file, ends its side, and waits until the peer's kernel has acknowledged every byte and the peer has
closed. That is all that can be known: an application that confirms nothing may have read less. The
report says how many bytes were acknowledged, also when the connection breaks. What the peer answers
is thrown away. --timeout limits the wait for the connection, and each time without progress.

Without --plain, standard input is kept whole in the directory of --spool before anything is sent,
because receivers are told its length first. The space is free again when the command ends, however
it ends.

--dry-run lists what would be sent, with --hash its checksums; with --json that is one document,
towline.plan.send: plan (every setting), files, bytes, entries (kind, bytes and path of each) and
sums (path and blake3 of each file, with --hash). Without --dry-run, --json prints one document at
the end, towline.send: is_proven, a row for each receiver, and sums too. The lines of --hash are
those of b3sum 1.5.5 and later; older versions do not escape carriage returns in names.

PATH is delivered under its last component. PATH/ delivers what is in the directory, each entry
under its own name. What the command line names is sent even when a pattern excludes it.

A pattern without / matches a file name anywhere. A pattern with a leading / matches a whole path as
it is delivered; any other pattern with / matches the end of a path. A pattern with a trailing /
matches directories only. * and ? do not match /, ** does. All below an excluded directory is left
out: to send only *.mxf from all directories, write --include '*/' --include '*.mxf' --exclude '*'.
What no pattern matches is sent, so --include without --exclude changes nothing, as in rsync.";

const SEND_HELP: &str = "\
Examples:
  towline send release --group 239.192.0.1:7500 --receivers 12
  towline send src -g 239.192.0.1:7500 --exclude '*.o' --exclude .git/ --expect rack1,rack2
  tar c . | towline send - --stdin-name site.tar -g 239.192.0.1:7500 --join-for 10s
  towline send image.iso -g 10.0.0.7:7500
  towline send image.iso --to 10.0.0.7,10.0.0.8:7600
  towline send image.iso --to 10.0.0.7:9000 --plain";

const RECV_NOTES: &str = "\
Files appear under their final names once the whole transfer is verified. An interrupted transfer
keeps what it has in .towline beneath the directory, and the next attempt sends only the rest. Such
leftovers are removed after 7 days; when another transfer needs their room; when the same files have
arrived in another transfer; and, the oldest first but never the newest, while all together hold
more than 10 GB. What is less than 1 MiB and less than 1 % of its transfer is not kept. --leftovers
lists leftovers, --leftovers --clean removes them.

A transfer takes room on the disk as its content arrives: at most about twice what has arrived, and
never what --quota and --keep-free forbid. All directories and files in DIR count for --quota.

When a transfer is verified, synced and in place, --delete looks into the directories that it
brought, and deletes there what it did not bring. When the sender named DIR/, it also looks into the
receiver's DIR itself. It follows no link and no mount point. Whoever may send may then delete
there. The report names what was deleted.

--to-stdout keeps the whole file in the directory of --spool until it is verified; the space is
free again when the command ends, however it ends.

--json prints one document at the end, towline.recv. With --serve there are several, each on one
line (JSON Lines): a towline.recv for each finished transfer, and at the end one towline.recv-serve
with the sums and counters of all.

The file of --config takes all long flags as keys, and DIR under the key `directory`. The program of
--exec finds TOWLINE_PATH (the directory, or the one thing in it that the transfer brought),
TOWLINE_MANIFEST, TOWLINE_SENDER, TOWLINE_BYTES and TOWLINE_ROOT in its environment, and reads from
its standard input every path in the directory that the transfer brought, with a zero byte behind
each (xargs -0). Such programs run one after the other, each for --exec-timeout at most; one that
fails makes the exit code 1.

One host has at most half of the transfers that --serve takes at a time. With --listen, senders for
which there is no place stay connected and wait in line; the hosts take turns. The line holds 10,000
senders, or fewer where the process may have few descriptors (ulimit -Hn), and at most half of them
are of one host. Each transfer needs 10 descriptors; when there are too few for --max-transfers,
recv says how many transfers it takes at a time.";

const RECV_HELP: &str = "\
Examples:
  towline recv incoming/ --group 239.192.0.1:7500 --from 10.0.0.0/8
  towline recv incoming/ -g 10.0.0.1@232.1.1.1:7500 --serve --exec '/usr/local/bin/publish --now'
  towline recv --to-stdout -g 239.192.0.1:7500 --from any | tar x
  towline recv incoming/ --listen 7500 --from 10.0.0.0/8 --serve
  towline recv incoming/ --listen 7500 --from 10.0.0.0/8 --serve --max-transfers 200
  towline recv --config /etc/towline/recv.toml --serve";

const DEMO_HELP: &str = "\
Creates hosts as network namespaces where the machine permits it, and uses loopback addresses
otherwise; the output says which. Nothing leaves the machine.

Examples:
  towline demo
  towline demo ~/src --receivers 5 --loss 20";

/// Reads where to listen. A port alone means all addresses, of IPv6 and of IPv4, because the name
/// `localhost` may stand for either.
fn listen(text: &str) -> Result<SocketAddr, String> {
    match text.parse() {
        Ok(port) => Ok(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))),
        Err(_no_port_alone) => listen_with(text, Group::PORT),
    }
}
