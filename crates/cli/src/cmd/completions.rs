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

/// Lets the script offer interfaces and processes where the command line takes them. The generator
/// itself offers only files there.
fn with_places(shell: Shell, script: &str) -> String {
    match shell {
        Shell::Bash => format!("{script}{BASH_PLACES}"),
        Shell::Zsh => {
            let script = script.replace(
                ":NAME|ADDRESS|PREFIX:_default",
                ":NAME|ADDRESS|PREFIX:_net_interfaces",
            );
            zsh_processes(&script)
        }
        Shell::Fish => {
            let lines = script
                .lines()
                .map(|line| match line.contains(" -l iface ") {
                    true => format!("{line} -f -a '(__fish_print_interfaces)'\n"),
                    false => format!("{line}\n"),
                });
            lines.collect::<String>() + FISH_PROCESSES
        }
        _ => script.to_owned(),
    }
}

/// Makes zsh offer the PIDs of running processes to `top` and `stat`.
fn zsh_processes(script: &str) -> String {
    let lines = script.lines().map(|line| match line {
        // The generated script begins with this line, after the one that names the command.
        "autoload -U is-at-least" => format!("{line}\n{ZSH_PROCESSES}"),
        line if line.contains(":pid") => line.replace(":_default'", ":_towline_processes'"),
        line => line.to_owned(),
    });
    lines.map(|line| line + "\n").collect()
}

/// A function of zsh that offers the running processes.
const ZSH_PROCESSES: &str = "
_towline_processes() {
    compadd -- $(command towline top --once --json 2>/dev/null |
        command grep -o '\"pid\": *[0-9]*' | command grep -o '[0-9]*$')
}";
/// The line that makes fish offer the running processes to `top` and `stat`.
const FISH_PROCESSES: &str = "\
complete -c towline -n '__fish_seen_subcommand_from top stat' -f -a \"(towline top --once --json \
2>/dev/null | string match -r -g '\\\"pid\\\": *([0-9]+)')\"\n";

/// The functions that follow the script generated for bash. They complete interfaces and processes.
const BASH_PLACES: &str = include_str!("completions.bash");

/// Returns the command line without hidden commands, which the generator would offer, too.
fn offered() -> Command {
    let root = Args::command();
    let shown = root.get_subcommands().filter(|below| !below.is_hide_set());
    Command::new("towline")
        .version(root.get_version().unwrap_or_default().to_owned())
        .args(root.get_arguments().cloned())
        .subcommands(shown.cloned())
}
