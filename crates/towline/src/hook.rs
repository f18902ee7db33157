//! A program that runs after each delivered transfer.
//!
//! ```text
//!   Delivered --push--> waiting --turn--> the program, one at a time --turn--> pop_failure
//! ```
//! The programs run in the order of the transfers, without a shell, each for a limited time. A
//! program reads the paths that its transfer brought, each with a zero byte behind it. Its output
//! goes to standard error, because standard output is for the caller's own documents.

use std::{
    collections::VecDeque,
    env, fmt, fs,
    io::{self, Seek as _, Write as _},
    os::{
        fd::AsFd as _,
        unix::{ffi::OsStrExt as _, fs::PermissionsExt as _},
    },
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use base::quantity;

use crate::Spool;

/// What a program learns about its transfer: `items` from its standard input, everything else from
/// environment variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completed {
    /// The transfer's directory, or the only entry that the transfer brought there: `TOWLINE_PATH`.
    pub path: PathBuf,
    /// The id of the transfer's manifest: `TOWLINE_MANIFEST`.
    pub manifest: String,
    /// The sender's address: `TOWLINE_SENDER`.
    pub sender: String,
    /// Bytes of content: `TOWLINE_BYTES`.
    pub bytes: u64,
    /// The root hash, in hexadecimal digits: `TOWLINE_ROOT`.
    pub root: String,
    /// The entries that the transfer brought to the top of the directory, without those below them.
    /// The program reads them from its standard input, with a zero byte behind each.
    pub items: Vec<PathBuf>,
}

/// A hook that runs a program after each transfer.
///
/// [`Hook::push`] and [`Hook::turn`] never wait. Dropping the hook asks a running program to end
/// (SIGTERM), waits for that, and kills the program if it still runs after 2 s.
#[derive(Debug)]
pub struct Hook {
    words: Vec<String>,
    limit: Duration,
    waiting: VecDeque<Completed>,
    /// How many bytes the paths of all waiting transfers have.
    waiting_bytes: usize,
    running: Option<Running>,
    started: u64,
    failed: u64,
    untold: VecDeque<HookFailure>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    until: Instant,
    /// When to kill the program; `None` until it is asked to end.
    kill_at: Option<Instant>,
}

/// A program that failed, or was not run.
#[derive(Debug)]
#[non_exhaustive]
pub enum HookFailure {
    /// The program ended with another status than 0, or by a signal.
    Ended(ExitStatus),
    /// The program did not end in the time that it has, and was ended.
    TimedOut(Duration),
    /// The system does not tell how the program ended.
    Lost(io::Error),
    /// The program was not run for the transfer that brought `path`.
    NotRun {
        /// The file or directory that the transfer brought.
        path: PathBuf,
        /// Why the program was not run.
        cause: String,
    },
}

/// Why a program cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HookError {
    /// The file exists, but may not be executed.
    #[error("{path} may not be executed; run `chmod +x {path}`", path = .0.display())]
    NotExecutable(PathBuf),
    /// The path leads to no file.
    #[error("no file is at this path; check it (a relative path starts at the current directory)")]
    NoFile,
    /// No directory of `PATH` has a program of this name.
    #[error("no directory of PATH has this program; name it by its absolute path")]
    NotInPath,
}

impl Hook {
    /// Makes a hook for the program that the first of `words` names, with the other words as its
    /// arguments. Without words it runs nothing.
    #[must_use]
    pub const fn new(words: Vec<String>) -> Self {
        Self {
            words,
            limit: Self::LIMIT,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            running: None,
            started: 0,
            failed: 0,
            untold: VecDeque::new(),
        }
    }

    /// Sets how long a program may run. After that it is asked to end (SIGTERM), and killed if it
    /// still runs 2 s later, because later transfers wait for their turn. Default [`Hook::LIMIT`].
    #[must_use]
    pub const fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Checks that `program` can be run. Call this before the first transfer, so that a mistake
    /// shows early.
    ///
    /// # Errors
    /// When there is no such program, or when it may not be executed.
    pub fn check(program: &str) -> Result<(), HookError> {
        let is_path = program.contains('/');
        let candidates = if is_path {
            vec![PathBuf::from(program)]
        } else {
            let path = env::var_os("PATH").unwrap_or_default();
            let directories = env::split_paths(&path);
            directories.map(|it| it.join(program)).collect()
        };
        let mut found = candidates.into_iter().filter(|path| path.is_file());
        let first = found.next();
        if first
            .iter()
            .cloned()
            .chain(found)
            .any(|path| is_executable(&path))
        {
            return Ok(());
        }
        Err(match first {
            Some(path) => HookError::NotExecutable(path),
            None if is_path => HookError::NoFile,
            None => HookError::NotInPath,
        })
    }

    /// Runs the program for one more transfer, after those that wait. At most [`Hook::WAITING_MAX`]
    /// transfers wait, with at most 64 MiB of paths in all; a single transfer that waits alone may
    /// have more. For a transfer beyond that, the program is not run, which counts as a failure.
    pub fn push(&mut self, completed: Completed) {
        if self.words.is_empty() {
            return;
        }
        let bytes = completed.items_bytes();
        let is_long = self.waiting_bytes.saturating_add(bytes) > Self::WAITING_BYTES_MAX;
        let count = self.waiting.len();
        if count >= Self::WAITING_MAX || (is_long && count > 0) {
            let cause = if count >= Self::WAITING_MAX {
                format!("{count} transfers wait for their run of the program, and no more may wait")
            } else {
                format!(
                    "the paths of the transfers that wait for their run would have more than {} \
                     bytes",
                    Self::WAITING_BYTES_MAX
                )
            };
            let path = completed.path;
            return self.fail(HookFailure::NotRun { path, cause });
        }
        self.waiting_bytes += bytes;
        self.waiting.push_back(completed);
    }

    /// Checks on the running program, and starts the next one. Returns true when no program runs
    /// and none waits.
    pub fn turn(&mut self) -> bool {
        if let Some(running) = &mut self.running {
            let ended = match running.child.try_wait() {
                Ok(None) => {
                    running.check(Instant::now());
                    return false;
                }
                Ok(Some(_)) if running.kill_at.is_some() => Some(HookFailure::TimedOut(self.limit)),
                Ok(Some(status)) if status.success() => None,
                Ok(Some(status)) => Some(HookFailure::Ended(status)),
                Err(error) => Some(HookFailure::Lost(error)),
            };
            self.running = None;
            if let Some(failure) = ended {
                self.fail(failure);
            }
        }
        while let Some(completed) = self.waiting.pop_front() {
            self.waiting_bytes -= completed.items_bytes();
            match self.start(&completed) {
                Ok(child) => {
                    self.started += 1;
                    self.running = Some(Running {
                        child,
                        until: Instant::now() + self.limit,
                        kill_at: None,
                    });
                    return false;
                }
                Err(error) => self.fail(HookFailure::NotRun {
                    path: completed.path,
                    cause: sys::with_usual_remedy(&error),
                }),
            }
        }
        true
    }

    /// Returns the next failure that was not taken yet; the last 1,024 are kept.
    pub fn pop_failure(&mut self) -> Option<HookFailure> {
        self.untold.pop_front()
    }

    /// Returns how often the program was started.
    #[must_use]
    pub const fn started(&self) -> u64 {
        self.started
    }

    /// Returns how often the program failed or was not run.
    #[must_use]
    pub const fn failed(&self) -> u64 {
        self.failed
    }

    /// Returns the program and its arguments.
    #[must_use]
    pub fn words(&self) -> &[String] {
        &self.words
    }

    fn start(&self, completed: &Completed) -> io::Result<Child> {
        let Some((program, arguments)) = self.words.split_first() else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env("TOWLINE_PATH", &completed.path)
            .env("TOWLINE_MANIFEST", &completed.manifest)
            .env("TOWLINE_SENDER", &completed.sender)
            .env("TOWLINE_BYTES", completed.bytes.to_string())
            .env("TOWLINE_ROOT", &completed.root)
            .stdin(completed.input()?)
            .stdout(io::stderr().as_fd().try_clone_to_owned()?);
        // This restores the limit of open descriptors that this process began with. With the higher
        // limit that it set since, a program that uses `select` may fail.
        sys::spawn_as_given(&mut command)
    }

    fn fail(&mut self, failure: HookFailure) {
        self.failed += 1;
        if self.untold.len() >= Self::WAITING_MAX {
            self.untold.pop_front();
        }
        self.untold.push_back(failure);
    }

    /// The most transfers that wait for the program.
    pub const WAITING_MAX: usize = 1_024;
    /// The most bytes that the paths of all waiting transfers have together. A transfer that waits
    /// alone may have more.
    const WAITING_BYTES_MAX: usize = 64 << 20;
    /// How long a program may run unless [`Hook::limit`] says otherwise.
    pub const LIMIT: Duration = Duration::from_secs(3600);
}

impl Completed {
    fn items_bytes(&self) -> usize {
        self.items.iter().map(|it| it.as_os_str().len() + 1).sum()
    }

    /// Makes the program's standard input: an unnamed file that is complete before the program
    /// starts.
    fn input(&self) -> io::Result<Stdio> {
        if self.items.is_empty() {
            return Ok(Stdio::null());
        }
        let spool = Spool::new().map_err(io::Error::other)?;
        let mut file = spool.into_file();
        let mut bytes = Vec::with_capacity(self.items_bytes());
        for item in &self.items {
            bytes.extend_from_slice(item.as_os_str().as_bytes());
            bytes.push(0);
        }
        file.write_all(&bytes)?;
        file.rewind()?;
        Ok(file.into())
    }
}

impl Running {
    /// Ends the program when its time is over.
    fn check(&mut self, now: Instant) {
        match self.kill_at {
            None if now >= self.until => {
                self.kill_at = Some(now + FAREWELL);
                // A program that has ended meanwhile need not be asked.
                drop(sys::request_end(&self.child));
            }
            Some(at) if now >= at => drop(self.child.kill()),
            _ => {}
        }
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        let Some(Running { mut child, .. }) = self.running.take() else {
            return;
        };
        let until = Instant::now() + FAREWELL;
        // A program that has ended meanwhile cannot be asked to end, and need not be.
        drop(sys::request_end(&child));
        while let Ok(None) = child.try_wait() {
            if Instant::now() >= until {
                drop(child.kill());
                drop(child.wait());
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// How long a program may take to end when it is asked to.
const FAREWELL: Duration = Duration::from_secs(2);

impl fmt::Display for HookFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended(status) => write!(f, "failed: {status}"),
            Self::TimedOut(limit) => write!(
                f,
                "did not end within {}, and was ended",
                quantity::duration_text(*limit)
            ),
            Self::Lost(error) => write!(
                f,
                "may have failed: how it ended cannot be read: {}; look at what it has done",
                sys::with_usual_remedy(error)
            ),
            Self::NotRun { path, cause } => {
                write!(f, "was not run for {}: {cause}", path.display())
            }
        }
    }
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(path: &str) -> Completed {
        Completed {
            path: path.into(),
            manifest: "7".to_owned(),
            sender: "10.0.0.1".to_owned(),
            bytes: 12,
            root: "ab".to_owned(),
            items: Vec::new(),
        }
    }

    fn hook(script: &str) -> Hook {
        Hook::new(["sh", "-c", script].map(str::to_owned).into())
    }

    /// Turns the hook until no program is left, and returns the failures.
    fn finish(hook: &mut Hook) -> Vec<String> {
        while !hook.turn() {
            thread::sleep(Duration::from_millis(1));
        }
        let failures = std::iter::from_fn(|| hook.pop_failure());
        failures.map(|failure| failure.to_string()).collect()
    }

    #[test]
    fn the_program_is_told_of_each_transfer_in_turn() {
        let mut hook = hook(
            "test $TOWLINE_PATH/$TOWLINE_MANIFEST/$TOWLINE_SENDER/$TOWLINE_BYTES/$TOWLINE_ROOT = \
             a/7/10.0.0.1/12/ab",
        );
        ["a", "b", "a"]
            .into_iter()
            .for_each(|path| hook.push(completed(path)));
        // The second has another path, and fails.
        assert_eq!(finish(&mut hook), ["failed: exit status: 1"]);
        assert_eq!((hook.started(), hook.failed()), (3, 1));
    }

    #[test]
    fn one_that_cannot_be_started_is_told_and_the_next_is_tried() {
        let mut hook = Hook::new(vec!["no/such/program".to_owned()]);
        ["a", "b"]
            .into_iter()
            .for_each(|path| hook.push(completed(path)));
        let told = finish(&mut hook);
        assert!(told[0].starts_with("was not run for a: "), "{told:?}");
        assert!(told[1].starts_with("was not run for b: "), "{told:?}");
        assert_eq!((hook.started(), hook.failed()), (0, 2));
    }

    #[test]
    fn a_program_does_not_outlive_its_service() {
        for script in [
            "exec sleep 600",
            "trap '' TERM; while :; do sleep 0.1; done",
        ] {
            let mut hook = hook(script);
            hook.push(completed("a"));
            assert!(!hook.turn());
            let id = hook.running.as_ref().map(|it| it.child.id()).unwrap();
            assert!(Path::new(&format!("/proc/{id}")).exists());
            drop(hook);
            assert!(!Path::new(&format!("/proc/{id}")).exists(), "{script}");
        }
    }

    #[test]
    fn a_program_that_does_not_end_is_ended_and_the_next_one_runs() {
        for script in [
            "test $TOWLINE_PATH = good || exec sleep 600",
            "test $TOWLINE_PATH = good || { trap '' TERM; while :; do sleep 0.1; done; }",
        ] {
            let mut hook = hook(script).limit(Duration::from_millis(200));
            ["bad", "good"]
                .into_iter()
                .for_each(|path| hook.push(completed(path)));
            assert_eq!(
                finish(&mut hook),
                ["did not end within 200ms, and was ended"]
            );
            assert_eq!((hook.started(), hook.failed()), (2, 1));
        }
    }

    #[test]
    fn a_program_reads_all_that_its_transfer_brought() {
        let mut hook = hook("test \"$(tr '\\0' '|')\" = 'in/a b|in/$(c)|'");
        let items = ["in/a b", "in/$(c)"].map(PathBuf::from).into();
        hook.push(Completed {
            items,
            ..completed("in")
        });
        assert_eq!(finish(&mut hook), Vec::<String>::new());
        let items = vec![PathBuf::from("x".repeat(Hook::WAITING_BYTES_MAX))];
        for _ in 0..2 {
            let items = items.clone();
            hook.push(Completed {
                items,
                ..completed("in")
            });
        }
        let told = hook.pop_failure().unwrap().to_string();
        assert!(
            told.contains("the paths of the transfers that wait"),
            "{told}"
        );
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut hook = hook("true");
        for _ in 0..=Hook::WAITING_MAX {
            hook.push(completed("a"));
        }
        let told = hook.pop_failure().unwrap().to_string();
        assert!(
            told.contains("for a: 1024 transfers wait for their run"),
            "{told}"
        );
        assert!(hook.pop_failure().is_none());
    }

    #[test]
    fn without_words_nothing_runs() {
        let mut hook = Hook::new(Vec::new());
        hook.push(completed("a"));
        assert!(hook.turn());
        assert_eq!((hook.started(), hook.failed()), (0, 0));
    }

    #[test]
    fn a_program_is_looked_for_as_the_system_will() {
        assert_eq!(Hook::check("sh"), Ok(()));
        assert_eq!(Hook::check("/bin/sh"), Ok(()));
        assert_eq!(
            Hook::check("no-such-program-at-all"),
            Err(HookError::NotInPath)
        );
        assert_eq!(Hook::check("no/such/program"), Err(HookError::NoFile));
        let plain = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        assert_eq!(
            Hook::check(plain),
            Err(HookError::NotExecutable(plain.into()))
        );
    }
}
