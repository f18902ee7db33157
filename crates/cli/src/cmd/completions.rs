//! `towline completions`: what a shell needs to complete our command line, made from the
//! declarations that `--help` is made from.

use std::io::{self, Write as _};

use clap::{Command, CommandFactory as _};

use crate::{
    args::{Args, CompletionsArgs},
    failure::{Failure, Verdict},
};

pub(super) fn run(args: &CompletionsArgs) -> Result<Verdict, Failure> {
    // The generator takes no error of its writer.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut offered(), "towline", &mut script);
    io::stdout().write_all(&script)?;
    Ok(Verdict::Done)
}

/// The command line as help shows it: the generator would offer what is hidden, too.
fn offered() -> Command {
    let root = Args::command();
    let shown = root.get_subcommands().filter(|below| !below.is_hide_set());
    Command::new("towline")
        .version(root.get_version().unwrap_or_default().to_owned())
        .args(root.get_arguments().cloned())
        .subcommands(shown.cloned())
}
