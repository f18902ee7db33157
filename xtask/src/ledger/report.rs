//! The ledger as a page of the book.

use std::fmt::{self, Write as _};

use super::{Entry, Ledger, Level, ROLES, Section, State, top_of};

/// Returns the page.
pub(super) fn page(sections: &[Section], ledger: &Ledger) -> String {
    let mut page = String::from(HEAD);
    write(&mut page, sections, ledger).expect("a string takes any text");
    page
}

fn write(out: &mut String, sections: &[Section], ledger: &Ledger) -> fmt::Result {
    out.push_str("| role | level | done | exception | open | role not played in full |\n");
    out.push_str("|---|---|---|---|---|---|\n");
    for role in ROLES {
        for level in Level::ALL {
            let is_of = |entry: &&Entry| entry.role == role && entry.level == level.to_string();
            count_row(out, role, &level.to_string(), ledger, is_of)?;
        }
    }
    count_row(out, "each", "each", ledger, |_| true)?;
    for unplayed in &ledger.unplayed {
        let (name, reason) = (&unplayed.name, &unplayed.reason);
        writeln!(out, "\n**Role not played in full: {name}.** {reason}")?;
    }
    for top in sections.iter().filter(|it| !it.number.contains('.')) {
        let is_here = |entry: &&Entry| top_of(&entry.id) == top.number;
        let here: Vec<&Entry> = ledger.entries.iter().filter(is_here).collect();
        if !here.is_empty() {
            writeln!(out, "\n## {}. {}", top.number, top.title)?;
            section(out, &here, ledger)?;
        }
    }
    Ok(())
}

fn count_row(
    out: &mut String,
    role: &str,
    level: &str,
    ledger: &Ledger,
    is_of: impl Fn(&&Entry) -> bool,
) -> fmt::Result {
    let mut counts = [0; 4];
    for entry in ledger.entries.iter().filter(is_of) {
        counts[column(entry, ledger)] += 1;
    }
    let [done, exception, open, unplayed] = counts;
    if counts != [0; 4] {
        writeln!(
            out,
            "| {role} | {level} | {done} | {exception} | {open} | {unplayed} |"
        )?;
    }
    Ok(())
}

fn column(entry: &Entry, ledger: &Ledger) -> usize {
    match entry.state {
        State::Done(_) => 0,
        State::Exception(_) => 1,
        State::Todo if ledger.unplayed(&entry.role).is_none() => 2,
        State::Todo => 3,
    }
}

/// Writes the sentences of one section: the tested ones as a table, the others in full.
fn section(out: &mut String, entries: &[&Entry], ledger: &Ledger) -> fmt::Result {
    let of = |wanted: usize| {
        let entries = entries.iter().copied();
        entries.filter(move |entry| column(entry, ledger) == wanted)
    };
    if of(0).next().is_some() {
        out.push_str("\n| done | level | role | tests |\n|---|---|---|---|\n");
        for entry in of(0) {
            let State::Done(tests) = &entry.state else {
                continue;
            };
            let names = tests.iter().map(|test| {
                let (_, name) = test.split_once(": ").unwrap_or_default();
                format!("`{name}`")
            });
            let names = names.collect::<Vec<_>>().join(", ");
            let Entry {
                id, level, role, ..
            } = entry;
            writeln!(out, "| {id} | {level} | {role} | {names} |")?;
        }
    }
    for entry in of(1) {
        if let State::Exception(reason) = &entry.state {
            writeln!(out, "\n{}: exception. {reason}", quoted(entry))?;
        }
    }
    for entry in of(2) {
        writeln!(out, "\n{}: open.", quoted(entry))?;
    }
    let unplayed: Vec<&str> = of(3).map(|entry| &*entry.id).collect();
    if !unplayed.is_empty() {
        writeln!(
            out,
            "\nOf roles not played in full: {}.",
            unplayed.join(", ")
        )?;
    }
    Ok(())
}

fn quoted(entry: &Entry) -> String {
    let Entry {
        id,
        level,
        role,
        quote,
        ..
    } = entry;
    // A bracket would begin a link, and a star would begin italics.
    let quote = quote.replace('[', "\\[").replace('*', "\\*");
    format!("**{id}** ({level}, {role}) \"{quote}\"")
}

const HEAD: &str = "\
# RFC 3208, sentence by sentence

Generated from `specs/rfc3208` by `cargo xtask ledger`. Do not edit.

Each sentence of RFC 3208 with a key word in capitals (MUST, SHOULD, MAY and their kin) has a
number here: its section, and its place among such sentences of the section. `done` means that the
named test holds Towline to it. `exception` means that Towline does otherwise, or that the sentence
asks for nothing, with the reason. `open` means neither. The RFC's own text and the entries in full
are in `specs/rfc3208`.

";
