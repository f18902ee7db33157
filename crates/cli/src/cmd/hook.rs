//! The program that runs after each transfer: `recv --exec`.
//!
//! One at a time, in the order of the transfers, without a shell. It reads nothing, and what it
//! prints goes to standard error: standard output is for this command's own documents.

use std::{
    collections::VecDeque,
    io,
    os::fd::AsFd as _,
    process::{Child, Command, ExitStatus, Stdio},
};

use crate::report::Output;

/// What a program is told of the transfer that it runs for.
#[derive(Clone, Debug)]
pub(super) struct Completed {
    /// The directory, or the one thing in it that the transfer brought.
    pub(super) path: std::path::PathBuf,
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

    fn failed(&mut self, path: &std::path::Path, text: &str) {
        self.failures += 1;
        let program = self.words.join(" ");
        let path = path.display();
        self.output
            .note(&format!("--exec {program} was not run for {path}: {text}"));
    }
}

/// Transfers that wait for those before at most.
const WAITING_MAX: usize = 1024;
