//! `towline completions`: what a shell needs to complete the command line, made from the same
//! declarations as `--help`.

use std::io::{self, Write as _};

use clap::{Command, CommandFactory as _};
use clap_complete::Shell;

use crate::{
    args::{Args, CompletionsArgs},
    failure::{Failure, Verdict},
};

pub(super) fn run(args: &CompletionsArgs) -> Result<Verdict, Failure> {
    // The generator cannot pass on an error of its writer, so it writes into memory.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut offered(), "towline", &mut script);
    let script = String::from_utf8_lossy(&script);
    io::stdout().write_all(with_places(args.shell, &script).as_bytes())?;
    Ok(Verdict::Done)
}

/// Adds interfaces to the script where an interface is wanted: the generator knows files, and no
/// shell's own list of interfaces.
fn with_places(shell: Shell, script: &str) -> String {
    match shell {
        Shell::Bash => format!("{script}{BASH_PLACES}"),
        Shell::Zsh => script.replace(
            ":NAME|ADDRESS|PREFIX:_default",
            ":NAME|ADDRESS|PREFIX:_net_interfaces",
        ),
        Shell::Fish => {
            let lines = script
                .lines()
                .map(|line| match line.contains(" -l iface ") {
                    true => format!("{line} -f -a '(__fish_print_interfaces)'\n"),
                    false => format!("{line}\n"),
                });
            lines.collect()
        }
        _ => script.to_owned(),
    }
}

/// The wrapper around the text that is generated for bash.
const BASH_PLACES: &str = include_str!("completions.bash");

/// Returns the command line as help shows it: the generator would offer hidden commands, too.
fn offered() -> Command {
    let root = Args::command();
    let shown = root.get_subcommands().filter(|below| !below.is_hide_set());
    Command::new("towline")
        .version(root.get_version().unwrap_or_default().to_owned())
        .args(root.get_arguments().cloned())
        .subcommands(shown.cloned())
}
