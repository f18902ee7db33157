//! `towline docs`: the reference of parameters, made from their declarations.

use std::{fmt::Write as _, fs};

use towline::{PARAMETERS, Role};

use crate::{
    args::{DocsArgs, SESSION_OPTIONS, flag},
    failure::{Failure, Verdict},
    report::Output,
};

pub(super) fn run(args: &DocsArgs, output: &Output) -> Result<Verdict, Failure> {
    let path = args.directory.join("parameters.md");
    let written = fs::create_dir_all(&args.directory).and_then(|()| fs::write(&path, parameters()));
    written
        .map_err(|error| Failure::environment(&format!("writing {}", path.display()), &error))?;
    output.note(&format!("wrote {}", path.display()));
    Ok(Verdict::Done)
}

/// The reference of options and parameters, as Markdown.
pub(crate) fn parameters() -> String {
    let mut text = String::from(
        "# Options and parameters\n\n\
         Written by `towline docs`; do not edit. Each is a long flag (`--nak-backoff-max 2ms`)\n\
         and a key of the file that `--config` names (`nak_backoff_max = \"2ms\"`).\n\n\
         ## Options of a session\n\n| option | default | end |\n|---|---|---|\n",
    );
    let mut row = |cells: &[&str]| {
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        writeln!(text, "| {} |", cells.join(" | ")).expect("writing to a String cannot fail");
    };
    for option in SESSION_OPTIONS {
        let name = format!("`--{}`", flag(option.name));
        row(&[&name, option.default.unwrap_or("none"), end(option.role)]);
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
        let cells = cells.map(|cell| cell.replace('|', "\\|"));
        writeln!(text, "| {} |", cells.join(" | ")).expect("writing to a String cannot fail");
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
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/parameters.md");
        let committed = fs::read_to_string(path).unwrap_or_default();
        assert!(
            committed == parameters(),
            "docs/parameters.md is stale: run `cargo xtask docs`"
        );
    }
}
