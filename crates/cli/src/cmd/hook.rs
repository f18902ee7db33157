//! The program that runs after each transfer: `recv --exec`.
//!
//! One at a time, in the order of the transfers, without a shell. It reads nothing, and what it
//! prints goes to standard error: standard output is for this command's own documents.

use std::{
    collections::VecDeque,
    env, fs, io,
    os::{fd::AsFd as _, unix::fs::PermissionsExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
};

use crate::{
    failure::Failure,
    report::{self, Output},
};

/// What a program is told of the transfer that it runs for.
#[derive(Clone, Debug)]
pub(super) struct Completed {
    /// The directory, or the one thing in it that the transfer brought.
    pub(super) path: PathBuf,
    pub(super) plan: String,
    pub(super) sender: String,
    pub(super) bytes: u64,
    pub(super) root: String,
}

/// The programs that run or are to be run.
#[derive(Debug)]
pub(super) struct Hook<'a> {
    words: &'a [String],
    output: &'a Output,
    waiting: VecDeque<Completed>,
    running: Option<Child>,
    pub(super) runs: u64,
    pub(super) failures: u64,
}

impl<'a> Hook<'a> {
    /// Runs the program that `words` name, with arguments; nothing when there are none.
    pub(super) const fn new(words: &'a [String], output: &'a Output) -> Self {
        Self {
            words,
            output,
            waiting: VecDeque::new(),
            running: None,
            runs: 0,
            failures: 0,
        }
    }

    /// Finds out whether the program that `words` name can be run, before anybody is waited for.
    ///
    /// # Errors
    /// When there is no such program, or it is not to be executed.
    pub(super) fn check(words: &[String]) -> Result<(), Failure> {
        let Some(program) = words.first() else {
            return Ok(());
        };
        let candidates = if program.contains('/') {
            vec![PathBuf::from(program)]
        } else {
            let path = env::var_os("PATH").unwrap_or_default();
            env::split_paths(&path)
                .map(|directory| directory.join(program))
                .collect()
        };
        let found: Vec<&PathBuf> = candidates.iter().filter(|path| path.is_file()).collect();
        if found.iter().any(|path| is_executable(path)) {
            return Ok(());
        }
        let cause = match found.first() {
            Some(path) => format!("{} may not be executed; chmod +x it", report::shown(path)),
            None if program.contains('/') => {
                "there is no such file; name a program, with its path from the root".to_owned()
            }
            None => "no directory of PATH has it; name it with its path".to_owned(),
        };
        let operation = format!("--exec: cannot run {}", report::shown(Path::new(program)));
        Err(Failure::environment(&operation, &cause))
    }

    /// Runs it for one more transfer, when those before are through.
    pub(super) fn push(&mut self, completed: Completed) {
        if self.words.is_empty() {
            return;
        }
        if self.waiting.len() >= WAITING_MAX {
            let text = format!("{WAITING_MAX} runs wait already");
            return self.failed(&completed.path, &text);
        }
        self.waiting.push_back(completed);
    }

    /// Looks after the one that runs, and starts the next. True when none is left.
    pub(super) fn look(&mut self) -> bool {
        if let Some(child) = &mut self.running {
            match child.try_wait() {
                Ok(None) => return false,
                outcome => {
                    self.running = None;
                    self.ended(outcome);
                }
            }
        }
        while let Some(completed) = self.waiting.pop_front() {
            match self.start(&completed) {
                Ok(child) => {
                    self.runs += 1;
                    self.running = Some(child);
                    return false;
                }
                Err(error) => self.failed(&completed.path, &error.to_string()),
            }
        }
        true
    }

    fn start(&self, completed: &Completed) -> io::Result<Child> {
        let Some((program, arguments)) = self.words.split_first() else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        Command::new(program)
            .args(arguments)
            .env("TOWLINE_PATH", &completed.path)
            .env("TOWLINE_PLAN", &completed.plan)
            .env("TOWLINE_SENDER", &completed.sender)
            .env("TOWLINE_BYTES", completed.bytes.to_string())
            .env("TOWLINE_ROOT", &completed.root)
            .stdin(Stdio::null())
            .stdout(io::stderr().as_fd().try_clone_to_owned()?)
            .spawn()
    }

    fn ended(&mut self, outcome: io::Result<Option<ExitStatus>>) {
        let text = match outcome {
            Ok(Some(status)) if status.success() => return,
            Ok(Some(status)) => status.to_string(),
            Ok(None) => return,
            Err(error) => error.to_string(),
        };
        self.failures += 1;
        let program = self.words.join(" ");
        self.output
            .note(&format!("--exec {program} failed: {text}"));
    }

    fn failed(&mut self, path: &Path, text: &str) {
        self.failures += 1;
        let program = self.words.join(" ");
        let path = report::shown(path);
        self.output
            .note(&format!("--exec {program} was not run for {path}: {text}"));
    }
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o111 != 0)
}

/// Transfers that wait for those before at most.
const WAITING_MAX: usize = 1024;
