//! A terminal of a given size, a command on it, and what a person sees there.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use vt100::Parser;

use crate::picture;

/// A command at work on a terminal.
pub(crate) struct Screen {
    child: Child,
    keys: ChildStdin,
    output: ChildStdout,
    parser: Parser,
}

impl Screen {
    /// Runs `commands` in a shell; none, with a printed skip, where no terminal can be made.
    #[expect(clippy::print_stdout, reason = "a skip is printed")]
    pub(crate) fn run(rows: u16, columns: u16, commands: &str) -> Option<Self> {
        // An interrupt is for the command, not for the shell that says how it ended.
        let commands = format!("trap : INT; stty rows {rows} cols {columns}; {commands}");
        let mut script = Command::new("script");
        script.args(["-qc", &commands, "/dev/null"]);
        script.env("SHELL", "/bin/sh").env("TERM", "xterm-256color");
        let spawned = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = match spawned {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                println!("skipped: script is not installed");
                return None;
            }
            spawned => spawned.unwrap(),
        };
        Some(Self {
            keys: child.stdin.take().unwrap(),
            output: child.stdout.take().unwrap(),
            child,
            parser: Parser::new(rows, columns, SCROLLBACK),
        })
    }

    /// What is on the screen, without blank ends of lines.
    pub(crate) fn text(&self) -> String {
        self.parser.screen().contents()
    }

    /// The rows of the screen, from the top.
    pub(crate) fn rows(&self) -> Vec<String> {
        let screen = self.parser.screen();
        let (_, columns) = screen.size();
        screen.rows(0, columns).collect()
    }

    /// Makes the book's picture of what is on the screen, when they are made.
    pub(crate) fn keep(&self, name: &str) {
        picture::keep(self.parser.screen(), name);
    }

    /// True on the screen that a program takes for itself and gives back.
    pub(crate) fn is_alternate(&self) -> bool {
        self.parser.screen().alternate_screen()
    }

    pub(crate) fn press(&mut self, keys: &[u8]) {
        self.keys.write_all(keys).unwrap();
    }

    /// Follows the screen until it is as wanted, and panics with it when the command ends before.
    pub(crate) fn wait_for(&mut self, wanted: impl Fn(&Self) -> bool) {
        while !wanted(self) {
            assert!(self.follow(), "the command ended with:\n{}", self.text());
        }
    }

    /// Follows the screen until the command ends.
    pub(crate) fn finish(&mut self) {
        while self.follow() {}
        self.child.wait().unwrap();
    }

    /// Takes what was written; false at the end.
    fn follow(&mut self) -> bool {
        let mut piece = [0; 4096];
        let count = self.output.read(&mut piece).unwrap();
        self.parser.process(&piece[..count]);
        count > 0
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.child.kill().unwrap_or_default();
        self.child.wait().map(drop).unwrap_or_default();
    }
}

const SCROLLBACK: usize = 1000;
