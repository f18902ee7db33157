//! `towline man`: manual pages, made from the same declarations as `--help`.
//!
//! Each command has a page, such as `towline-load-send(1)` for `towline load send`. The help text
//! after the options is split up, as manuals do: notes go into the description, examples and exit
//! codes into sections of their own.

use std::{
    fs,
    io::{self, Write as _},
    path::Path,
};

use clap::{Command, CommandFactory as _, builder::Resettable};
use clap_mangen::{
    Man,
    roff::{Roff, bold, roman},
};

use crate::{
    args::{Args, EXAMPLES, EXIT_CODES, EXIT_HEADING, ManArgs},
    failure::{Failure, Verdict},
    report::Output,
};

pub(super) fn run(args: &ManArgs, output: &Output) -> Result<Verdict, Failure> {
    let pages = pages()?;
    let Some(directory) = &args.to else {
        let text = page_of(&pages, &args.command)?;
        io::stdout().write_all(text.as_bytes())?;
        return Ok(Verdict::Done);
    };
    write(directory, &pages).map_err(|error| {
        Failure::system(&format!("writing into {}", directory.display()), &error)
    })?;
    let count = pages.len();
    output.note(&format!(
        "wrote {count} manual pages into {}",
        directory.display()
    ));
    Ok(Verdict::Done)
}

/// Finds the page of the command with the name `words`, such as `load` and `send`.
fn page_of<'a>(pages: &'a [Page], words: &[String]) -> Result<&'a str, Failure> {
    let mut name = vec!["towline"];
    name.extend(words.iter().map(String::as_str));
    let name = name.join("-");
    let found = pages.iter().find(|page| page.name == name);
    let page = found.ok_or_else(|| {
        let words = words.join(" ");
        Failure::usage(format!(
            "there is no command {words}; `towline -h` lists the commands, `towline man --to DIR` \
             writes the pages of all"
        ))
    })?;
    Ok(&page.text)
}

fn write(directory: &Path, pages: &[Page]) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    for page in pages {
        let file = format!("{}.{SECTION}", page.name);
        fs::write(directory.join(file), &page.text)?;
    }
    Ok(())
}

struct Page {
    /// The page's name, such as `towline-load-send`.
    name: String,
    /// The page in the language of troff's man macros.
    text: String,
}

/// Makes the pages of all commands that `--help` shows; the page of `towline` itself is the last.
fn pages() -> io::Result<Vec<Page>> {
    let mut root = Args::command().disable_help_subcommand(true);
    root.build();
    let version = root.get_version().unwrap_or_default().to_owned();
    let mut found = Vec::new();
    gather(&root, &mut found);
    let names: Vec<String> = found.iter().map(|command| name(command)).collect();
    let pages = found.into_iter().map(|command| {
        let name = name(command);
        let related = names.iter().filter(|other| is_related(&name, other));
        Ok(Page {
            text: page(command, &version, &related.collect::<Vec<_>>())?,
            name,
        })
    });
    pages.collect()
}

/// Gathers every command that `--help` shows, each after its subcommands.
fn gather<'a>(command: &'a Command, found: &mut Vec<&'a Command>) {
    for below in command.get_subcommands().filter(|it| !it.is_hide_set()) {
        gather(below, found);
    }
    found.push(command);
}

fn name(command: &Command) -> String {
    let name = command.get_display_name();
    name.unwrap_or_else(|| command.get_name()).to_owned()
}

/// Returns true when the page `name` refers to the page `other`: a page refers to the one above it,
/// those below it, and those beside it.
fn is_related(name: &str, other: &str) -> bool {
    let above = |name: &str| name.rsplit_once('-').map(|(above, _)| above.to_owned());
    let parent = above(name);
    name != other
        && (parent.as_deref() == Some(other)
            || above(other).as_deref() == Some(name)
            || (parent.is_some() && above(other) == parent))
}

fn page(command: &Command, version: &str, related: &[&String]) -> io::Result<String> {
    let after = command
        .get_after_long_help()
        .or_else(|| command.get_after_help())
        .map(ToString::to_string)
        .unwrap_or_default();
    let (notes, examples) = parts(&after);
    let about = command.get_about().map(ToString::to_string);
    let mut description = format!("{}.", about.unwrap_or_default());
    for note in notes {
        description += &format!("\n\n{note}");
    }
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim().to_owned();
    let shown = command
        .clone()
        .override_usage(usage)
        .long_about(description)
        .after_help(Resettable::Reset)
        .after_long_help(Resettable::Reset)
        .version(Resettable::Reset)
        // The generator would leave out the help of flags that the short help hides.
        .mut_args(|arg| arg.hide_short_help(false));
    let mut text = Vec::new();
    Man::new(shown)
        // The date is blank, so that two builds of one source make the same page. The generator
        // would leave out an empty date.
        .date(" ")
        .source(format!("towline {version}"))
        .manual("Towline Manual")
        .render(&mut text)?;
    let mut text = spaced(&String::from_utf8_lossy(&text));
    let mut end = Roff::default();
    exit_status(&mut end);
    example_lines(&mut end, &examples);
    see_also(&mut end, related);
    text += &end.to_roff();
    Ok(text)
}

/// Returns the notes and the example lines in `after`, the help text behind the options.
fn parts(after: &str) -> (Vec<&str>, Vec<&str>) {
    let mut notes = Vec::new();
    let mut examples = Vec::new();
    for paragraph in after.split("\n\n").filter(|it| !it.trim().is_empty()) {
        if let Some(lines) = paragraph.strip_prefix(EXAMPLES) {
            examples.extend(lines.lines().map(str::trim).filter(|it| !it.is_empty()));
        } else if !paragraph.starts_with(EXIT_HEADING) {
            notes.push(paragraph);
        }
    }
    (notes, examples)
}

/// Adds formatter requests to a page. [`SPACE`] replaces each empty line, because empty lines are
/// bad style in a manual's source. [`BREAK`] goes before each item of a list, because the formatter
/// would otherwise join the item to the line before. [`SPACE`] breaks the line, too, so it needs no
/// [`BREAK`] beside it.
fn spaced(page: &str) -> String {
    let mut lines: Vec<&str> = Vec::new();
    for line in page.lines() {
        if line.starts_with("\\- ") && lines.last() != Some(&SPACE) {
            lines.push(BREAK);
        }
        match (line, lines.last().copied()) {
            ("", Some(BREAK)) => {
                lines.pop();
                lines.push(SPACE);
            }
            ("" | BREAK, Some(SPACE)) => {}
            ("", _) => lines.push(SPACE),
            _ => lines.push(line),
        }
        // Turn off hyphenation and justified lines: with them, names of commands and flags are hard
        // to find.
        if line.starts_with(".TH ") {
            lines.extend([".nh", ".ad l"]);
        }
    }
    lines.join("\n") + "\n"
}

fn exit_status(roff: &mut Roff) {
    roff.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in EXIT_CODES {
        roff.control("TP", []);
        roff.text([bold(*code)]);
        roff.text([roman(*meaning)]);
    }
}

fn example_lines(roff: &mut Roff, examples: &[&str]) {
    if examples.is_empty() {
        return;
    }
    roff.control("SH", ["EXAMPLES"]);
    roff.control("nf", []);
    for line in examples {
        roff.text([roman(*line)]);
    }
    roff.control("fi", []);
}

fn see_also(roff: &mut Roff, related: &[&String]) {
    if related.is_empty() {
        return;
    }
    roff.control("SH", ["SEE ALSO"]);
    for (at, name) in related.iter().enumerate() {
        let comma = if at + 1 < related.len() { "," } else { "" };
        roff.text([bold(name.as_str()), roman(format!("({SECTION}){comma}"))]);
    }
}

const BREAK: &str = ".br";
const SPACE: &str = ".sp";
/// The manual's section for commands of users.
const SECTION: &str = "1";
