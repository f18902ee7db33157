//! Plans of `send`, `recv` and `demo`.

use std::{fmt, fs, path::PathBuf, time::Duration};

use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use towline::{Allowed, KeepFree, Place, SETTLE_TIME, Selection};

use super::{
    Plan, SessionPlan,
    message::STRICT_PGM,
    session::{optional_seconds, seconds, text},
};
use crate::{
    args::{DeleteArg, DemoArgs, ExistingArg, ModesArg, OwnerArg, RecvArgs, SendArgs, SlowArg},
    failure::{Failure, unreadable},
};

/// `send --dry-run`: files and trees to a group, or to hosts over TCP.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct SendPlan {
    /// What to send: paths, and `-` for standard input.
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) stdin_name: String,
    /// The directory in which standard input is kept while it is sent; `None` for the system's
    /// temporary directory.
    pub(crate) spool: Option<PathBuf>,
    /// For each rule: true if it includes files, false if it excludes them; and its pattern.
    pub(crate) rules: Vec<(bool, String)>,
    #[serde(skip)]
    pub(crate) selection: Selection,
    /// Files that change, vanish or cannot be read are left out.
    pub(crate) is_skipping: bool,
    /// The content of a file with several names is sent once; its further names become hard links.
    pub(crate) has_hard_links: bool,
    /// Receivers are asked to store runs of zeros as holes.
    pub(crate) is_sparse: bool,
    /// Receivers are told who owns files.
    pub(crate) has_owners: bool,
    /// Receivers are told the extended attributes of files and directories.
    pub(crate) has_xattrs: bool,
    pub(crate) is_hashing: bool,
    /// How many receivers are expected; 0 for all that join.
    pub(crate) receivers: u32,
    /// Names of the receivers that are expected.
    pub(crate) names: Vec<String>,
    #[serde(rename = "join_timeout_s", serialize_with = "seconds")]
    #[schemars(with = "f64")]
    pub(crate) join_timeout: Duration,
    #[serde(rename = "line_timeout_s", serialize_with = "seconds")]
    #[schemars(with = "f64")]
    pub(crate) line_timeout: Duration,
    /// The transfer begins when no new receiver has joined for this long. `None` with
    /// `--receivers`, `--expect`, `--join-for` or `--to`.
    #[serde(rename = "settle_s", serialize_with = "optional_seconds")]
    #[schemars(with = "Option<f64>")]
    pub(crate) settle: Option<Duration>,
    #[serde(rename = "timeout_s", serialize_with = "seconds")]
    #[schemars(with = "f64")]
    pub(crate) timeout: Duration,
    pub(crate) slow: SlowArg,
    /// The session to send in; `None` for a dry run that names neither a group nor hosts.
    session: Option<SessionPlan>,
}

impl SendPlan {
    pub(crate) fn new(args: &SendArgs, is_dry_run: bool) -> Result<Self, Failure> {
        let session = Self::session_of(args, is_dry_run)?;
        if session
            .as_ref()
            .is_some_and(|session| session.config.strict_pgm())
        {
            let text =
                format!("files need the receivers' reports, and {STRICT_PGM}: leave that flag out");
            return Err(Failure::usage(text));
        }
        let is_stdin = |path: &&PathBuf| path.as_os_str() == STDIN;
        if args.paths.iter().filter(is_stdin).count() > 1 {
            return Err(Failure::usage(
                "standard input (-) can be sent only once: name it once",
            ));
        }
        let stdin_name = match (
            &args.stdin_name,
            args.paths.iter().any(|path| is_stdin(&path)),
        ) {
            (Some(name), false) => {
                let text = "--stdin-name names standard input, and - is not among the paths: add -";
                return Err(Failure::usage(format!(
                    "{text}, or leave --stdin-name {name} out"
                )));
            }
            (name, _) => name.clone().unwrap_or_else(|| "stdin".to_owned()),
        };
        let mut selection = Selection::default();
        for (is_included, pattern) in &args.rules.rules {
            let added = match is_included {
                true => selection.include(pattern),
                false => selection.exclude(pattern),
            };
            added.map_err(|error| Failure::usage(error.to_string()))?;
        }
        let mut names = args.expect.clone();
        names.sort_unstable();
        names.dedup();
        Ok(Self {
            paths: args.paths.clone(),
            stdin_name,
            spool: args.spool.clone(),
            rules: args.rules.rules.clone(),
            selection,
            is_skipping: args.skip_changed,
            has_hard_links: args.hard_links,
            is_sparse: args.sparse,
            has_owners: args.owner,
            has_xattrs: args.xattrs,
            is_hashing: args.hash,
            receivers: match (args.join_for, names.len()) {
                _ if !args.to.is_empty() => u32::try_from(args.to.len()).unwrap_or(u32::MAX),
                (Some(_), _) => 0,
                (None, 0) => args.receivers.unwrap_or(0),
                (None, named) => u32::try_from(named).unwrap_or(u32::MAX),
            },
            settle: (args.receivers, args.join_for, names.len(), args.to.len())
                .eq(&(None, None, 0, 0))
                .then_some(SETTLE_TIME),
            names,
            join_timeout: args.join_for.unwrap_or(args.join_timeout),
            line_timeout: args.line_timeout,
            timeout: args.timeout,
            slow: args.slow,
            session,
        })
    }

    /// Returns where to send: to hosts or a group; `None` for a dry run that names neither.
    fn session_of(args: &SendArgs, is_dry_run: bool) -> Result<Option<SessionPlan>, Failure> {
        let given = args.session.given();
        if !args.to.is_empty() {
            let place = Place::Hosts(args.to.clone());
            return SessionPlan::over_tcp(place, "--to", given).map(Some);
        }
        let needs_none = is_dry_run && !given.values.contains_key("group");
        (!needs_none).then(|| SessionPlan::new(given)).transpose()
    }

    /// Returns the session to send in.
    ///
    /// **Panics** (bug): for a dry run that names neither a group nor hosts. A dry run sends
    /// nothing, so it does not call this.
    pub(crate) fn session(&self) -> &SessionPlan {
        let session = self.session.as_ref();
        session.expect("only a dry run goes without a group")
    }

    /// Returns true when one of the paths is standard input.
    pub(crate) fn has_stdin(&self) -> bool {
        self.paths.iter().any(|path| path.as_os_str() == STDIN)
    }

    /// Returns the paths that are not standard input.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.paths.iter().filter(|path| path.as_os_str() != STDIN)
    }
}

/// The name of standard input among the paths.
const STDIN: &str = "-";

/// `recv --dry-run`: files and trees from a group, or over TCP, into a directory; or one file to
/// standard output.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct RecvPlan {
    /// The directory to receive into; `None` for standard output.
    pub(crate) directory: Option<PathBuf>,
    pub(crate) existing: ExistingArg,
    /// What happens to files that are not in the transfer; `None`: they stay.
    pub(crate) delete: Option<DeleteArg>,
    /// Runs of zeros become holes, even when the sender does not ask for it.
    pub(crate) is_sparse: bool,
    /// Who will own the received files; `None` for the user who receives them.
    pub(crate) owner: Option<OwnerArg>,
    /// Files and directories get the extended attributes that the sender sends.
    pub(crate) sets_xattrs: bool,
    /// The directory that keeps a file for standard output until it is whole; `None` for the
    /// system's temporary directory.
    pub(crate) spool: Option<PathBuf>,
    pub(crate) permissions: ModesArg,
    /// Entries at the top of a transfer may have names that begin with a dot.
    pub(crate) takes_dot_names: bool,
    /// The most bytes that the directory may hold; `None` for no limit.
    pub(crate) quota_bytes: Option<u64>,
    /// How much space must stay free on the filesystem.
    #[serde(serialize_with = "text")]
    #[schemars(with = "String")]
    pub(crate) keep_free: KeepFree,
    /// The most entries of one transfer.
    pub(crate) files_max: u32,
    /// The command goes on after the first transfer.
    pub(crate) is_serving: bool,
    /// The most transfers that a service takes at a time.
    pub(crate) transfers_max: u32,
    #[serde(serialize_with = "texts")]
    #[schemars(with = "Vec<String>")]
    pub(crate) allowed: Vec<Allowed>,
    /// A program and its arguments, run after each complete transfer.
    pub(crate) exec: Vec<String>,
    #[serde(rename = "exec_timeout_s", serialize_with = "seconds")]
    #[schemars(with = "f64")]
    pub(crate) exec_timeout: Duration,
    /// How long a transfer waits for its sender to come back; 0 without `--timeout`.
    #[serde(skip)]
    pub(crate) patience: Duration,
    #[serde(rename = "timeout_s", serialize_with = "optional_seconds")]
    #[schemars(with = "Option<f64>")]
    pub(crate) timeout: Option<Duration>,
    pub(crate) session: SessionPlan,
}

impl Plan for RecvPlan {
    const SCHEMA: &'static str = "towline.plan.recv";
}

impl RecvPlan {
    pub(crate) fn new(args: &RecvArgs) -> Result<Self, Failure> {
        if args.directory.is_none() && !args.to_stdout {
            let text = "name the directory, as in towline recv incoming/, or give --to-stdout";
            return Err(Failure::usage(text));
        }
        let replaces = args.overwrite || args.existing.is_some_and(|it| it != ExistingArg::Refuse);
        if args.delete.is_some() && !replaces {
            let text = "--delete needs permission to replace files that exist already: add \
                        --overwrite or --existing skip-unchanged";
            return Err(Failure::usage(text));
        }
        let exec = args.exec.as_deref().map(words).transpose();
        let exec = exec.map_err(|text| Failure::usage(format!("--exec: {text}")))?;
        Ok(Self {
            directory: args.directory.clone(),
            spool: args.spool.clone(),
            existing: match (args.existing, args.overwrite) {
                (Some(existing), _) => existing,
                (None, true) => ExistingArg::Replace,
                (None, false) => ExistingArg::Refuse,
            },
            delete: args.delete,
            is_sparse: args.sparse,
            owner: args.owner,
            sets_xattrs: args.xattrs,
            permissions: args.permissions,
            takes_dot_names: args.allow_dot_names,
            quota_bytes: args.quota,
            keep_free: args.keep_free.unwrap_or_default(),
            files_max: args.max_files,
            is_serving: args.serve,
            transfers_max: args.max_transfers,
            allowed: args.from.clone(),
            exec: exec.unwrap_or_default(),
            exec_timeout: args.exec_timeout,
            patience: args.timeout.unwrap_or_default(),
            // Without a limit, a sender that sends nothing would take up one of the service's
            // `transfers_max` transfers for ever.
            timeout: args.timeout.or(args.serve.then_some(SERVE_TIMEOUT)),
            session: match args.listen {
                Some(address) => {
                    let place = Place::Listen(address);
                    SessionPlan::over_tcp(place, "--listen", args.session.given())?
                }
                None => SessionPlan::new(args.session.given())?,
            },
        })
    }
}

/// How long a service's transfer may go without progress when `--timeout` is not given.
const SERVE_TIMEOUT: Duration = Duration::from_secs(300);

/// Splits a command into words at blanks, except between quotes. No other character is special,
/// because no shell runs the command.
fn words(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word = None;
    let mut quote = None;
    for c in text.chars() {
        match (quote, c) {
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_with(String::new);
            }
            (Some(open), c) if open == c => quote = None,
            (_, c) => word.get_or_insert_with(String::new).push(c),
        }
    }
    words.extend(word);
    match (quote, words.first()) {
        (Some(open), _) => Err(format!("{text:?} opens {open} and does not close it")),
        (None, None) => Err("it names no program".to_owned()),
        (None, Some(_)) => Ok(words),
    }
}

pub(super) fn texts<T: fmt::Display, S: Serializer>(
    list: &[T],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(list.iter().map(ToString::to_string))
}

/// `demo --dry-run`: a file transfer on this machine, to show how it works.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct DemoPlan {
    pub(crate) path: Option<PathBuf>,
    pub(crate) receivers: u32,
    /// Share of packets that each receiver loses, in per cent.
    pub(crate) loss_percent: f64,
    pub(crate) seed: u64,
    pub(crate) bytes_min: u64,
    pub(crate) files_min: u64,
    /// The sender's rate, as the text of `--rate`; `None` leaves the default.
    pub(crate) rate: Option<String>,
    pub(crate) keep: Option<PathBuf>,
}

impl Plan for DemoPlan {
    const SCHEMA: &'static str = "towline.plan.demo";
}

impl DemoPlan {
    pub(crate) fn new(args: &DemoArgs) -> Result<Self, Failure> {
        if let Some(rate) = &args.rate {
            let checked = towline::Config::builder().set("rate", rate);
            // The error begins with the parameter's name, which is the flag's, too.
            checked.map_err(|error| Failure::usage(format!("--{error}")))?;
        }
        if let Some(path) = &args.path
            && let Err(error) = fs::metadata(path)
        {
            return Err(Failure::usage(unreadable(path, &error)));
        }
        Ok(Self {
            path: args.path.clone(),
            receivers: args.receivers,
            loss_percent: args.loss,
            seed: args.seed,
            bytes_min: args.min_bytes,
            files_min: args.min_files,
            rate: args.rate.clone(),
            keep: args.keep.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_words_and_quotes_hold_them_together() {
        let cases: [(&str, &[&str]); 5] = [
            ("publish", &["publish"]),
            (" a  b\tc ", &["a", "b", "c"]),
            ("sh -c 'mv \"$X\" y'", &["sh", "-c", "mv \"$X\" y"]),
            ("a \"b c\"d ''", &["a", "b cd", ""]),
            ("a\\b $HOME *", &["a\\b", "$HOME", "*"]),
        ];
        for (text, expected) in cases {
            assert_eq!(words(text).unwrap(), expected, "{text}");
        }
        for text in ["", "  ", "a 'b"] {
            assert!(words(text).is_err(), "{text:?}");
        }
    }
}
