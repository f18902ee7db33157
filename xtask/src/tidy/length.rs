//! Rules about the length of files, where production files have a lower limit than files of tests,
//! and about the number of fields of a production struct.
//!
//! A file is a test when it lies in a directory `tests`, is named `tests.rs`, or belongs to a
//! module that its parent declares under `#[cfg(test)]`. Test modules inside a production file do
//! not count towards its length.
//!
//! A struct with many fields often hides states: an enum, or several structs, would show them. The
//! rule is for structs at the top level of a file. Plain records are exempt: counters, what is
//! written as JSON, the arguments of a command, and structs of the kernel.

use super::{Finding, Source, source::has_extension};

pub(super) fn check(sources: &[Source], findings: &mut Vec<Finding>) {
    let test_modules: Vec<String> = sources.iter().flat_map(test_modules).collect();
    for source in sources.iter().filter(|source| source.is_code()) {
        let all = source.text.lines().count();
        let (counted, end, what) = if is_test(&source.path, &test_modules) {
            (all, TEST_LINES_END, "a file of tests")
        } else {
            let counted = production_lines(&source.text);
            (counted, PRODUCTION_LINES_END, "a production file")
        };
        if counted >= end || all >= TEST_LINES_END {
            let text = format!("{counted} lines ({all} with tests); {what} has fewer than {end}");
            findings.push(Finding::new("file-length", &source.path, &text).sized(counted));
        }
        if has_extension(&source.path, "rs") && !is_test(&source.path, &test_modules) {
            check_structs(source, findings);
        }
    }
}

fn check_structs(source: &Source, findings: &mut Vec<Finding>) {
    let lines: Vec<&str> = source.text.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        let Some(name) = struct_name(line) else {
            continue;
        };
        let above = lines[..at].iter().rev();
        let mut above = above.take_while(|line| !line.is_empty() && **line != "}");
        let is_record = above
            .any(|line| !line.starts_with("//") && RECORDS.iter().any(|word| line.contains(word)));
        let body = lines[at + 1..].iter().take_while(|line| **line != "}");
        let count = body.filter(|line| is_field(line)).count();
        if count > FIELDS_MAX && !is_record {
            let text = format!("{count} fields; a struct has at most {FIELDS_MAX}");
            let found = Finding::new("struct-fields", &source.path, &text);
            findings.push(found.at(at + 1).about(name).sized(count));
        }
    }
}

/// Returns the name of the struct with named fields whose definition begins in this line.
fn struct_name(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("struct ")?;
    let is_first = before.is_empty() || before.starts_with("pub");
    let is_named = is_first && !line.ends_with([';', '}']);
    let name = rest
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .next();
    name.filter(|name| is_named && !name.is_empty())
}

/// Returns true for a line that begins a field, as rustfmt writes it.
fn is_field(line: &str) -> bool {
    let Some(field) = line.strip_prefix("    ") else {
        return false;
    };
    let field = match field.strip_prefix("pub(") {
        Some(rest) => rest.split_once(") ").map_or("", |(_, field)| field),
        None => field.strip_prefix("pub ").unwrap_or(field),
    };
    let name = field.split_once(':').map_or("", |(name, _)| name);
    let name = name.strip_prefix("r#").unwrap_or(name);
    let is_letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    !name.is_empty() && name.chars().all(is_letter)
}

fn is_test(path: &str, test_modules: &[String]) -> bool {
    let is_of = |module: &String| {
        let rest = path.strip_prefix(module.as_str());
        rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
    };
    let is_named = path.contains("/tests/") || path.ends_with("/tests.rs");
    is_named || test_modules.iter().any(is_of)
}

/// Returns the paths, without `.rs`, of the modules that a file declares under `#[cfg(test)]`.
fn test_modules(source: &Source) -> Vec<String> {
    let Some(stem) = source.path.strip_suffix(".rs") else {
        return Vec::new();
    };
    let folder = ["/lib", "/main", "/mod"]
        .iter()
        .find_map(|root| stem.strip_suffix(root))
        .unwrap_or(stem);
    let lines = source.text.lines();
    let pairs = lines.clone().zip(lines.skip(1));
    let declared = pairs.filter(|(first, _)| *first == CFG_TEST);
    let names = declared.filter_map(|(_, line)| {
        let (_, name) = line.strip_suffix(';')?.split_once("mod ")?;
        Some(name)
    });
    names.map(|name| format!("{folder}/{name}")).collect()
}

/// Counts the lines outside the bodies of test modules.
fn production_lines(text: &str) -> usize {
    let mut count = 0;
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let begins = |next: &&str| next.contains("mod ") && next.ends_with('{');
        if line == CFG_TEST && lines.peek().is_some_and(begins) {
            lines.by_ref().find(|line| *line == "}");
        } else {
            count += 1;
        }
    }
    count
}

const CFG_TEST: &str = "#[cfg(test)]";
const PRODUCTION_LINES_END: usize = 701;
const TEST_LINES_END: usize = 1_000;
const FIELDS_MAX: usize = 20;
/// What the attributes of a plain record name.
const RECORDS: [&str; 3] = ["Serialize", "Args", "repr(C"];

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source {
            path: path.to_owned(),
            byte_count: text.len(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn production_files_are_shorter_than_tests() {
        let long = |lines: usize| "let x = 1;\n".repeat(lines);
        let tested = format!(
            "{}\n#[cfg(test)]\nmod tests {{\n{}}}\n",
            long(690),
            long(200)
        );
        let sources = [
            source("a/src/lib.rs", "#[cfg(test)]\nmod scenes;\nmod plain;\n"),
            source("a/src/scenes/one.rs", &long(900)),
            source("a/src/scenes.rs", &long(900)),
            source("a/tests/all.rs", &long(900)),
            source("a/src/tested.rs", &tested),
            source("a/src/full.rs", &long(700)),
            source("a/src/plain.rs", &long(701)),
            source("a/src/scenes_kept.rs", &long(900)),
            source("a/tests/longer.rs", &long(1_000)),
        ];
        let mut findings = Vec::new();
        check(&sources, &mut findings);
        let paths: Vec<&str> = findings.iter().map(|found| found.path.as_str()).collect();
        let expected = [
            "a/src/plain.rs",
            "a/src/scenes_kept.rs",
            "a/tests/longer.rs",
        ];
        assert_eq!(paths, expected);
    }

    #[test]
    fn structs_with_many_fields_are_named_except_records() {
        let fields = |count: usize| -> String {
            let forms = ["pub(super) ", "pub(in crate::a) ", "pub ", "pub", ""];
            (0..count)
                .map(|at| format!("    /// One.\n    {}f{at}: u8,\n", forms[at % forms.len()]))
                .collect()
        };
        let text = [
            format!("struct Small {{\n{}}}\n", fields(20)),
            format!(
                "#[derive(Debug)]\npub struct Large<T> {{\n{}}}\n",
                fields(21)
            ),
            format!(
                "/// Args.\nstruct Wide<T>\nwhere\n    T: A,\n{{\n{}}}\n",
                fields(21)
            ),
            format!(
                "#[derive(Args)]\n#[command(\n    a\n)]\nstruct Asked {{\n{}}}\n",
                fields(30)
            ),
            format!(
                "#[derive(Serialize)]\n/// A.\nstruct Report {{\n{}}}\n",
                fields(30)
            ),
            format!("#[repr(C)]\nstruct Given {{\n{}}}\n", fields(30)),
            "struct Pair(u8, u8);\nstruct None {}\n".to_owned(),
        ]
        .concat();
        let mut findings = Vec::new();
        let sources = [
            source("a/src/plain.rs", &text),
            source("a/tests/all.rs", &text),
        ];
        check(&sources, &mut findings);
        let found: Vec<(&str, &str)> = findings
            .iter()
            .map(|found| (found.path.as_str(), found.what.as_str()))
            .collect();
        assert_eq!(
            found,
            [("a/src/plain.rs", "Large"), ("a/src/plain.rs", "Wide")]
        );
    }
}
