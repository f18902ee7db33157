//! The house rules that a tool can check: `cargo xtask tidy`. The test at the end of this file
//! makes `cargo test` fail on a breach, too.
//!
//! In: the repository's files. Out: findings, one line each. The rules' parameters are in
//! `xtask/rules.toml`, exceptions in `xtask/allow.toml`; an exception that nothing needs is a
//! finding, too. Other tools (clippy, cargo-deny, cargo-shear, typos) check the rest.

use std::{fmt, path::Path};

mod allow;

mod boundary;

mod crates;

mod layout;

mod length;

mod links;

mod promises;

mod rules;
pub(crate) use rules::{CrateRule, Rules};

mod source;
use source::Source;

mod text;

/// Checks every rule; returns the findings without those that an exception covers, in the order of
/// their files.
pub(crate) fn check(root: &Path) -> Vec<Finding> {
    let (rules, allowed) = match (Rules::load(root), allow::Exceptions::load(root)) {
        (Ok(rules), Ok(allowed)) => (rules, allowed),
        (rules, allowed) => {
            let texts = [rules.err(), allowed.err()];
            let texts = texts.into_iter().flatten();
            return texts
                .map(|text| Finding::new("rules", "xtask", &text))
                .collect();
        }
    };
    let sources = source::load_all(root);
    let mut findings = Vec::new();
    boundary::check(&rules, &sources, &mut findings);
    crates::check(root, &rules, &mut findings);
    layout::check(root, &rules, &mut findings);
    length::check(&sources, &mut findings);
    links::check(root, &sources, &mut findings);
    promises::check(&sources, &mut findings);
    let banned = text::banned_words(root);
    for source in &sources {
        text::check(source, &banned, &mut findings);
    }
    let mut findings = allowed.filter(findings);
    findings.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    findings
}

/// One breach of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The rule's name, which exceptions use.
    rule: &'static str,
    /// Path from the repository's root.
    path: String,
    /// Line from 1; 0 when the finding is about the whole file.
    line: usize,
    /// What an exception must name in addition to rule and path; may be empty.
    what: String,
    /// For rules about sizes, the size that was measured.
    size: Option<u64>,
    /// What is wrong and what to do, for a person.
    text: String,
}

impl Finding {
    fn new(rule: &'static str, path: &str, text: &str) -> Self {
        let (path, text) = (path.to_owned(), text.to_owned());
        Self {
            rule,
            path,
            line: 0,
            what: String::new(),
            size: None,
            text,
        }
    }

    fn at(mut self, line: usize) -> Self {
        self.line = line;
        self
    }

    fn about(mut self, what: &str) -> Self {
        what.clone_into(&mut self.what);
        self
    }

    fn sized(mut self, size: usize) -> Self {
        self.size = u64::try_from(size).ok();
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {} [{}", self.text, self.rule)?;
        if !self.what.is_empty() {
            write!(f, ": {}", self.what)?;
        }
        f.write_str("]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command;

    #[test]
    fn the_repository_keeps_the_house_rules() {
        let findings = check(&command::root());
        let list: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert!(
            list.is_empty(),
            "{} findings:\n{}",
            list.len(),
            list.join("\n")
        );
    }
}
