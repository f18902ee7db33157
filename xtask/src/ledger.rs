//! The ledger of RFC 3208: what the code does about each sentence with MUST, SHOULD or MAY, and
//! which test shows that. `cargo xtask ledger` checks the ledger, and so does `cargo test`, by the
//! test at the end of this file.
//!
//! In: the RFC's text and the entries in `specs/rfc3208`, and the tests that the entries name. Out:
//! findings, and the page `docs/src/reference/rfc3208.md`. It does not judge whether a test shows
//! what its entry says: that is a reviewer's work.
//!
//! ```text
//!   rfc3208.txt --> sentences --.
//!                               |--> each once? quoted rightly? --> findings
//!   NN.toml -----> entries -----'--> report --> the book
//!   tests named by entries ------> do they exist?
//! ```

use std::{collections::BTreeMap, fs, path::Path};

mod entry;
use entry::{Entry, Ledger, State};

mod report;

mod rfc;
use rfc::{Level, Section, Sentence};

/// Checks the ledger and writes its page; true when nothing was found.
pub(crate) fn run() -> bool {
    let root = crate::command::root();
    match (findings(&root), page(&root)) {
        (found, Ok(text)) if found.is_empty() => match fs::write(root.join(PAGE), text) {
            Ok(()) => {
                println!("{PAGE} written");
                true
            }
            Err(error) => {
                eprintln!("{PAGE}: {error}");
                false
            }
        },
        (found, page) => {
            for finding in found.into_iter().chain(page.err()) {
                println!("{finding}");
            }
            false
        }
    }
}

/// Returns what is wrong with the ledger, one line each.
pub(crate) fn findings(root: &Path) -> Vec<String> {
    match load(root) {
        Ok((sections, ledger)) => {
            let mut found = compare(&sections, &ledger);
            found.extend(
                ledger
                    .entries
                    .iter()
                    .filter_map(|entry| judge(entry, &ledger)),
            );
            found.extend(missing_tests(root, &ledger));
            found
        }
        Err(error) => vec![error],
    }
}

/// Returns the page for the book.
fn page(root: &Path) -> Result<String, String> {
    let (sections, ledger) = load(root)?;
    Ok(report::page(&sections, &ledger))
}

fn load(root: &Path) -> Result<(Vec<Section>, Ledger), String> {
    let directory = root.join(DIRECTORY);
    let path = directory.join("rfc3208.txt");
    let text = fs::read_to_string(&path).map_err(|error| format!("rfc3208.txt: {error}"))?;
    Ok((rfc::sections(&text), Ledger::load(&directory)?))
}

/// Compares the entries with the sentences: each sentence has one entry, which quotes it.
fn compare(sections: &[Section], ledger: &Ledger) -> Vec<String> {
    let mut found = Vec::new();
    let mut entries: BTreeMap<&str, &Entry> = BTreeMap::new();
    for entry in &ledger.entries {
        if entries.insert(&entry.id, entry).is_some() {
            found.push(format!("{}: {} stands twice", entry.file, entry.id));
        }
    }
    for sentence in sections.iter().flat_map(|section| &section.sentences) {
        match entries.remove(&*sentence.id) {
            Some(entry) => found.extend(differences(entry, sentence)),
            None => found.push(format!("{} has no entry: {}", sentence.id, sentence.text)),
        }
    }
    found.extend(entries.into_values().map(|entry| {
        format!(
            "{}: the RFC has no sentence {} with a key word",
            entry.file, entry.id
        )
    }));
    found
}

fn differences(entry: &Entry, sentence: &Sentence) -> Vec<String> {
    let Entry { file, id, .. } = entry;
    let mut found = Vec::new();
    if entry.quote != sentence.text {
        found.push(format!("{file}: {id} reads: {}", sentence.text));
    }
    if entry.level != sentence.level.to_string() {
        found.push(format!("{file}: the level of {id} is {}", sentence.level));
    }
    let home = format!("{:0>2}.toml", top_of(id));
    if *file != home {
        found.push(format!("{file}: {id} belongs into {home}"));
    }
    found
}

/// Says what is wrong with an entry's role and state.
fn judge(entry: &Entry, ledger: &Ledger) -> Option<String> {
    let Entry { file, id, role, .. } = entry;
    if !ROLES.contains(&&**role) {
        return Some(format!("{file}: {id}: {role:?} is none of {ROLES:?}"));
    }
    match &entry.state {
        State::Done(tests) if tests.is_empty() => {
            Some(format!("{file}: {id} is done and names no test"))
        }
        State::Exception(reason) if reason.len() < REASON_BYTES_MIN => {
            Some(format!("{file}: {id}: a reason is a sentence"))
        }
        State::Todo if entry.level == "MUST" && ledger.unplayed(role).is_none() => Some(format!(
            "{file}: {id} is a MUST and still to do: {}",
            entry.quote
        )),
        State::Done(_) | State::Exception(_) | State::Todo => None,
    }
}

/// Returns the tests that entries name and that do not exist, and the roles that are played in full
/// after all.
fn missing_tests(root: &Path, ledger: &Ledger) -> Vec<String> {
    let mut texts: BTreeMap<String, String> = BTreeMap::new();
    let mut found = Vec::new();
    for entry in &ledger.entries {
        let State::Done(tests) = &entry.state else {
            continue;
        };
        for test in tests {
            let (path, name) = test.split_once(": ").unwrap_or((test, ""));
            let read = || fs::read_to_string(root.join(path)).unwrap_or_default();
            let text = texts.entry(path.to_owned()).or_insert_with(read);
            if !has_test(text, name) {
                found.push(format!("{}: {}: no test {test}", entry.file, entry.id));
            }
        }
    }
    let is_stale = |name: &str| {
        let todo = |entry: &&Entry| entry.role == name && entry.state == State::Todo;
        !ledger.entries.iter().any(|entry| todo(&entry))
    };
    let stale = ledger.unplayed.iter().filter(|role| is_stale(&role.name));
    found.extend(stale.map(|role| format!("nothing is to do for the role {:?}", role.name)));
    found
}

/// Returns true when `text` defines the test function `name`: `#[test]` is among the attributes and
/// comments above a line `fn name`.
fn has_test(text: &str, name: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let is_named = |line: &str| {
        let rest = line
            .strip_prefix("fn ")
            .and_then(|it| it.strip_prefix(name));
        rest.is_some_and(|rest| rest.starts_with('('))
    };
    let found = lines.iter().position(|line| is_named(line));
    found.is_some_and(|at| {
        let above = lines[..at].iter().rev();
        let mut above = above.take_while(|line| line.starts_with("#[") || line.starts_with("//"));
        above.any(|line| *line == "#[test]")
    })
}

/// Returns the number of the top-level section that a sentence belongs to.
fn top_of(id: &str) -> &str {
    id.split(['.', '-']).next().unwrap_or_default()
}

const DIRECTORY: &str = "specs/rfc3208";
const PAGE: &str = "docs/src/reference/rfc3208.md";
const ROLES: [&str; 5] = ["source", "receiver", "network element", "repairer", "all"];
const REASON_BYTES_MIN: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ledger_holds() {
        let found = findings(&crate::command::root());
        assert!(
            found.is_empty(),
            "{} findings:\n{}",
            found.len(),
            found.join("\n")
        );
    }

    #[test]
    fn the_committed_page_is_what_the_ledger_says() {
        let root = crate::command::root();
        let committed = fs::read_to_string(root.join(PAGE)).unwrap();
        assert!(
            committed == page(&root).unwrap(),
            "{PAGE} is stale: run `cargo xtask ledger`"
        );
    }

    const TEXT: &str = "\
1.  Sending

   A source MUST send.  It MAY rest.

2.  Passing on

   A network element MUST listen.
";

    fn found(entries: &str) -> Vec<String> {
        let mut ledger = Ledger::default();
        ledger.add("01.toml", entries).unwrap();
        let mut found = compare(&rfc::sections(TEXT), &ledger);
        found.extend(
            ledger
                .entries
                .iter()
                .filter_map(|entry| judge(entry, &ledger)),
        );
        found.extend(missing_tests(&crate::command::root(), &ledger));
        found
    }

    fn sentence(id: &str, quote: &str, level: &str, role: &str, state: &str) -> String {
        format!(
            "[[sentence]]\nid = {id:?}\nquote = {quote:?}\nlevel = {level:?}\nrole = {role:?}\n\
             state = {state}\n"
        )
    }

    #[test]
    fn every_sentence_has_one_entry_that_quotes_it() {
        let tested = "\"done\"\ntests = [\"xtask/src/ledger.rs: the_ledger_holds\"]";
        let must = sentence("1-1", "A source MUST send.", "MUST", "source", tested);
        let may = sentence("1-2", "It MAY\\n rest.", "MAY", "source", "\"todo\"");
        let may = may.replace("\\\\n", "\\n");
        let passed_on = found(&(must.clone() + &may));
        assert_eq!(
            passed_on,
            ["2-1 has no entry: A network element MUST listen."]
        );
        let wrong = sentence(
            "1-2",
            "It MAY go.",
            "MUST",
            "source",
            "\"exception\"\nreason = \"no\"",
        );
        let found = found(&(must.clone() + &must + &wrong + &may.replace("1-2", "7-1")));
        assert_eq!(
            found,
            [
                "01.toml: 1-1 stands twice",
                "01.toml: 1-2 reads: It MAY rest.",
                "01.toml: the level of 1-2 is MAY",
                "2-1 has no entry: A network element MUST listen.",
                "01.toml: the RFC has no sentence 7-1 with a key word",
                "01.toml: 1-2: a reason is a sentence",
            ]
        );
    }

    #[test]
    fn a_must_is_done_excepted_or_of_a_role_that_is_not_played() {
        let rest = sentence("1-2", "It MAY rest.", "MAY", "source", "\"todo\"");
        let of = |state: &str, role: &str| {
            sentence("1-1", "A source MUST send.", "MUST", role, state) + &rest
        };
        let named = "\"done\"\ntests = [\"xtask/src/ledger.rs: sentence\"]";
        let cases = [
            (
                of("\"todo\"", "source"),
                "01.toml: 1-1 is a MUST and still to do",
            ),
            (
                of("\"done\"", "source"),
                "01.toml: 1-1 is done and names no test",
            ),
            (
                of(named, "source"),
                "01.toml: 1-1: no test xtask/src/ledger.rs: sentence",
            ),
            (
                of("\"todo\"", "sender"),
                "01.toml: 1-1: \"sender\" is none of",
            ),
        ];
        for (entries, expected) in cases {
            let found = found(&entries);
            let is_said = found.iter().any(|finding| finding.starts_with(expected));
            assert!(is_said, "{expected}: {found:?}");
        }
        let unplayed = "[[unplayed]]\nrole = \"network element\"\nreason = \"there is none yet\"\n";
        let element = of("\"todo\"", "network element") + unplayed;
        assert_eq!(found(&element).len(), 1, "the sentence 2-1 alone");
        let stale = found(
            &(of(
                "\"exception\"\nreason = \"it sends nothing at all\"",
                "source",
            ) + unplayed),
        );
        assert_eq!(
            stale[1],
            "nothing is to do for the role \"network element\""
        );
    }
}
