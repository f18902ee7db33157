//! `towline docs`: the pages of the reference that follow from declarations in the code.

use std::{fmt::Write as _, fs};

use towline::{PARAMETERS, Role, registry};

use crate::{
    args::{DocsArgs, EXIT_CODES, SESSION_OPTIONS, flag},
    failure::{Failure, Verdict},
    report::Output,
};

pub(super) fn run(args: &DocsArgs, output: &Output) -> Result<Verdict, Failure> {
    fs::create_dir_all(&args.directory).map_err(|error| {
        Failure::environment(&format!("making {}", args.directory.display()), &error)
    })?;
    for (name, page) in PAGES {
        let path = args.directory.join(name);
        fs::write(&path, page()).map_err(|error| {
            Failure::environment(&format!("writing {}", path.display()), &error)
        })?;
        output.note(&format!("wrote {}", path.display()));
    }
    Ok(Verdict::Done)
}

/// A generated page: its file name, and what makes its text.
type Page = (&'static str, fn() -> String);

/// Every generated page.
const PAGES: &[Page] = &[
    ("parameters.md", parameters),
    ("counters.md", counters),
    ("exit-codes.md", exit_codes),
];

/// The counters that `top` and `stat` show, as Markdown.
fn counters() -> String {
    let mut text = String::from(
        "# Counters\n\n\
         Written by `cargo xtask docs` from the declarations in the code; do not edit.\n\
         `towline top` and `towline stat PID` show them by these names (`source.rdata_packets`),\n\
         and so does `--json`. All of them only grow while a session lives.\n",
    );
    for (set, declared) in registry::declared() {
        let head = format!("\n## {set}\n\n| counter | unit | meaning |\n|---|---|---|\n");
        text.push_str(&head);
        for counter in declared {
            let name = format!("`{set}.{}`", counter.name);
            row(&mut text, &[&name, counter.unit.name(), counter.help]);
        }
    }
    text
}

/// The exit codes of every command, as Markdown.
fn exit_codes() -> String {
    let mut text = String::from(
        "# Exit codes\n\n\
         Written by `cargo xtask docs` from the declarations in the code; do not edit.\n\n\
         | exit code | meaning |\n|---|---|\n",
    );
    for (code, meaning) in EXIT_CODES {
        row(&mut text, &[code, &meaning.replace('\n', " ")]);
    }
    text
}

/// Adds one row of a table.
fn row(text: &mut String, cells: &[&str]) {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    writeln!(text, "| {} |", cells.join(" | ")).expect("writing to a String cannot fail");
}

/// The reference of options and parameters, as Markdown.
fn parameters() -> String {
    let mut text = String::from(
        "# Options and parameters\n\n\
         Written by `cargo xtask docs` from the declarations in the code; do not edit.\n\
         Each is a long flag (`--nak-backoff-max 2ms`) and a key of the\n\
         file that `--config` names (`nak_backoff_max = \"2ms\"`).\n\n\
         ## Options of a session\n\n| option | default | end |\n|---|---|---|\n",
    );
    for option in SESSION_OPTIONS {
        let name = format!("`--{}`", flag(option.name));
        let default = option.default.unwrap_or("none");
        row(&mut text, &[&name, default, end(option.role)]);
    }
    let parameters = "\n## Protocol parameters\n\n\
        | parameter | default | range | end | meaning | where the default comes from |\n\
        |---|---|---|---|---|---|\n";
    text.push_str(parameters);
    for parameter in PARAMETERS {
        let name = format!("`--{}`", flag(parameter.name));
        let default = (parameter.default)();
        let default = if default.is_empty() { "none" } else { &default };
        let range = (parameter.range)();
        let cells = [
            &name,
            default,
            &range,
            end(parameter.role),
            parameter.help,
            parameter.source,
        ];
        row(&mut text, &cells);
    }
    text
}

const fn end(role: Role) -> &'static str {
    match role {
        Role::Source => "sender",
        Role::Receiver => "receiver",
        Role::Both => "both",
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_committed_reference_is_what_the_declarations_say() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/reference");
        for (name, page) in PAGES {
            let committed = fs::read_to_string(directory.join(name)).unwrap_or_default();
            assert!(
                committed == page(),
                "docs/src/reference/{name} is stale: run `cargo xtask docs`"
            );
        }
    }
}
