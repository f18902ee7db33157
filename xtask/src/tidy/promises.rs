//! The rule about pages of promises. In a table whose last column is for tests, each line names at
//! least one test that backs it, and every named test exists.

use std::collections::BTreeSet;

use super::{Finding, Source, source::has_extension};

/// Checks the pages against the tests of all crates.
pub(super) fn check(sources: &[Source], findings: &mut Vec<Finding>) {
    let rust = sources.iter().filter(|it| has_extension(&it.path, "rs"));
    let tests: BTreeSet<&str> = rust.flat_map(|it| functions(&it.text)).collect();
    for path in PAGES {
        match sources.iter().find(|source| source.path == path) {
            Some(page) => check_page(page, &tests, findings),
            None => findings.push(Finding::new("promise", path, "there is no such page")),
        }
    }
}

fn check_page(page: &Source, tests: &BTreeSet<&str>, findings: &mut Vec<Finding>) {
    let mut heading = None;
    for (number, line) in page.text.lines().enumerate() {
        if !line.starts_with('|') {
            heading = None;
            continue;
        }
        let mut cells = line.trim().trim_matches('|').rsplit('|');
        let last = cells.next().unwrap_or_default().trim();
        let is_heading = heading.is_none();
        let is_promise = *heading.get_or_insert(last) == HEADING;
        if is_heading || !is_promise || last.starts_with("---") {
            continue;
        }
        let mut find = |text: &str| {
            findings.push(Finding::new("promise", &page.path, text).at(number + 1));
        };
        let mut names = last.split('`').skip(1).step_by(2).peekable();
        if names.peek().is_none() {
            find("no test backs this line: name one in its last column, between backquotes");
        }
        for name in names.filter(|name| !tests.contains(name)) {
            find(&format!("there is no test `{name}`"));
        }
    }
}

/// Returns the names of the functions in a source that take nothing, as tests do.
fn functions(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().map(str::trim_start);
    let heads = lines.filter_map(|line| line.strip_prefix("fn "));
    heads.filter_map(|head| head.split_once("()").map(|(name, _)| name))
}

/// The page on security, and the one on what goes wrong with TCP.
const PAGES: [&str; 2] = ["docs/src/security.md", "docs/src/jobs/files.md"];
/// The heading of the column of tests.
const HEADING: &str = "test";

#[cfg(test)]
mod tests {
    use super::*;

    fn told(page: &str) -> Vec<String> {
        let source = |path: &str, text: &str| Source {
            path: path.to_owned(),
            byte_count: text.len(),
            text: text.to_owned(),
        };
        let sources = [
            source(PAGES[0], page),
            source(PAGES[1], ""),
            source("crates/a/src/b.rs", "    fn what_is_so() {\n"),
        ];
        let mut findings = Vec::new();
        check(&sources, &mut findings);
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_promise_names_tests_that_are_there() {
        let table = |cell: &str| format!("| promise | test |\n|---|---|\n| so | {cell} |\n");
        assert_eq!(told(&table("`what_is_so`")), Vec::<String>::new());
        let gone = told(&table("`what_is_so`, `what_is_gone`"));
        assert!(
            gone[0].contains("md:3: there is no test `what_is_gone`"),
            "{gone:?}"
        );
        assert!(told(&table("read"))[0].contains("no test backs this line"));
        let other = table("read").replace("test", "what it is");
        assert_eq!(told(&other), Vec::<String>::new());
    }
}
