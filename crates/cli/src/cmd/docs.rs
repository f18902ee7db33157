//! `towline docs`: writes the reference pages that are generated from declarations in the code.

use std::{fmt::Write as _, fs};

use serde_json::Value;
use towline::{LIMITS, PARAMETERS, Role, Setting, counters};

use crate::{
    args::{DocsArgs, EXIT_CODES, flag, session_options},
    failure::{Failure, Verdict},
    report::{Described, Output, schemas},
};

pub(super) fn run(args: &DocsArgs, output: &Output) -> Result<Verdict, Failure> {
    let schemas = args.directory.join(SCHEMAS);
    fs::create_dir_all(&schemas)
        .map_err(|error| Failure::system(&format!("making {}", schemas.display()), &error))?;
    for (name, text) in files() {
        let path = args.directory.join(name);
        fs::write(&path, text)
            .map_err(|error| Failure::system(&format!("writing {}", path.display()), &error))?;
        output.note(&format!("wrote {}", path.display()));
    }
    Ok(Verdict::Done)
}

/// The directory of the schemas, beside the pages.
const SCHEMAS: &str = "schema";

/// Makes every generated file: its name and its text.
fn files() -> impl Iterator<Item = (String, String)> {
    let pages = PAGES.iter();
    let pages = pages.map(|(name, page)| ((*name).to_owned(), page()));
    pages.chain(schema_files())
}

/// Makes the schemas of JSON documents.
fn schema_files() -> impl Iterator<Item = (String, String)> {
    schemas().into_iter().map(|Described { name, schema }| {
        let text = serde_json::to_string_pretty(&schema).expect("plain data written to memory");
        (format!("{SCHEMAS}/{name}.json"), text + "\n")
    })
}

/// Describes the documents that `--json` prints, as Markdown.
fn json() -> String {
    let mut text = String::from(
        "# JSON output\n\n\
         Written by `cargo xtask docs` from the declarations in the code; do not edit.\n\n\
         `--json` on any command prints one JSON document on standard output instead of text.\n\
         Commands that have several documents print JSON Lines, one document a line:\n\n\
         - `sub`: a `towline.message` for each message and a `towline.sub` at the end;\n\
         - `recv --serve`: a `towline.recv` for each transfer and a `towline.recv-serve` at the\n  \
         end;\n\
         - `tcp watch`: a `towline.tcp-connection` for each connection at each look and a\n  \
         `towline.tcp-watch` at the end;\n\
         - `load send`, `load recv`, `frames send`, `frames recv`, `udp run`, `rtt run` and\n  \
         `capture` with `--every`: a `towline.interval` for each stretch of time, then the\n  \
         report.\n\n\
         With exit code 2 there is no closing document, and the reason is on standard error.\n\n\
         With `--dry-run`, a command that has a plan does nothing and prints it, with the\n\
         defaults filled in. Only `send --dry-run` looks at its files and lists them; for JSON\n\
         it needs `--json`.\n\n\
         Every document says in `schema` what it is and in `version` which; the version changes\n\
         when a key is removed or changes its meaning, and new keys may come at any time. Units\n\
         are in the keys (`_bytes`, `_ns`, `_us`, `_per_s`); `_s` and `seconds` are seconds as a\n\
         number. Counters have the names of [the reference](counters.md). The schemas are JSON\n\
         Schema 2020-12.\n\n\
         ```sh\n\
         towline send site -g 239.192.0.1:7500 --json | jq .is_proven\n\
         towline sub -g 239.192.0.1:7500 --json | jq -r '.text // empty'\n\
         ```\n\n\
         | schema | printed by | required keys |\n|---|---|---|\n",
    );
    for Described { name, schema } in schemas() {
        let link = format!("[`{name}`]({SCHEMAS}/{name}.json)");
        let meaning = schema.get("description").and_then(Value::as_str);
        // A row of a table is one line.
        let meaning = meaning.unwrap_or_default().replace('\n', " ");
        let required = schema.get("required").and_then(Value::as_array);
        let keys = required.into_iter().flatten().filter_map(Value::as_str);
        let keys = keys.filter(|key| !["schema", "version"].contains(key));
        let keys: Vec<String> = keys.map(|key| format!("`{key}`")).collect();
        row(&mut text, &[&link, &meaning, &keys.join(", ")]);
    }
    text
}

/// A generated page: its file name, and the function that makes its text.
type Page = (&'static str, fn() -> String);

/// Every generated page.
const PAGES: &[Page] = &[
    ("parameters.md", parameters),
    ("counters.md", counters),
    ("exit-codes.md", exit_codes),
    ("json.md", json),
];

/// Lists the counters that `top` and `stat` show, as Markdown.
fn counters() -> String {
    let mut text = String::from(
        "# Counters\n\n\
         Written by `cargo xtask docs` from the declarations in the code; do not edit.\n\
         `towline top` and `towline stat PID` show them by these names (`source.rdata_packets`),\n\
         and so does `--json`. All of them only grow while a session lives. Programs on the\n\
         [stand-in for libpgm](../jobs/c.md) have one more, `libpgm.unfit_messages`.\n",
    );
    for (set, declared) in counters::declared() {
        let head = format!("\n## {set}\n\n| counter | unit | meaning |\n|---|---|---|\n");
        text.push_str(&head);
        for counter in declared {
            let name = format!("`{set}.{}`", counter.name);
            row(&mut text, &[&name, counter.unit.name(), counter.help]);
        }
    }
    text
}

/// Lists the exit codes of every command, as Markdown.
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

/// Writes the reference of options and parameters, as Markdown.
fn parameters() -> String {
    let mut text = String::from(
        "# Options and parameters\n\n\
         Written by `cargo xtask docs` from the declarations in the code; do not edit.\n\
         Each is a long flag (`--nak-backoff-max 2ms`), a key of the file that `--config` names\n\
         (`nak_backoff_max = \"2ms\"`), and a name for `SessionBuilder::set` of the library and\n\
         `towline_session_set` of the library for C. `--group` and `--metrics` are flags and keys\n\
         alone: a program names the group when it makes a session, and serves counters itself.\n\n\
         ## Options of a session\n\n| option | default | end |\n|---|---|---|\n",
    );
    for option in session_options() {
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
    let limits = "\n## Timers and limits of control connections, reports and transfers\n\n\
        Those that a flag of one command sets name it; the others are fixed.\n\n\
        | name | default | set by | end | meaning | where the default comes from |\n\
        |---|---|---|---|---|---|\n";
    text.push_str(limits);
    for limit in LIMITS.into_iter().flatten() {
        let (name, default) = (format!("`{}`", limit.name), (limit.default)());
        let set_by = match limit.setting {
            Setting::ByFlag(flag) => format!("`{flag}`"),
            Setting::ByName => format!("`--{}`", flag(limit.name)),
            Setting::Fixed => "fixed".to_owned(),
        };
        let cells = [
            &name,
            &default,
            &set_by,
            end(limit.role),
            limit.help,
            limit.source,
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
        for (name, text) in files() {
            let committed = fs::read_to_string(directory.join(&name)).unwrap_or_default();
            assert!(
                committed == text,
                "docs/src/reference/{name} is stale: run `cargo xtask docs`"
            );
        }
        let files = fs::read_dir(directory.join(SCHEMAS)).unwrap().count();
        assert_eq!(
            files,
            schemas().len(),
            "a schema of a document that is no more"
        );
    }
}
