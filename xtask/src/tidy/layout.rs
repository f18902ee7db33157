//! Rules about the repository as a whole: the table of crates, the README's list of crates, fuzz
//! corpora.

use std::{collections::BTreeSet, fs, path::Path};

use super::{
    Finding, Rules, crates,
    rules::{directory, table},
};
use crate::fuzz;

pub(super) fn check(root: &Path, rules: &Rules, findings: &mut Vec<Finding>) {
    crate_table(root, rules, findings);
    readme_names_crates(root, findings);
    for target in fuzz::targets(root) {
        let corpus = format!("fuzz/corpus/{target}");
        let has_seed = fs::read_dir(root.join(&corpus)).is_ok_and(|mut list| list.next().is_some());
        if !has_seed {
            let text = "a fuzz target without a committed seed corpus";
            findings.push(Finding::new("fuzz-corpus", &corpus, text));
        }
    }
}

/// Checks that README has a line about each crate.
fn readme_names_crates(root: &Path, findings: &mut Vec<Finding>) {
    let text = fs::read_to_string(root.join("README.md")).unwrap_or_default();
    let (_, part) = text.split_once("## The crates").unwrap_or_default();
    for name in crates::directories(root) {
        let place = directory(&name);
        if place.starts_with("crates/") && !part.contains(&format!("`{name}`")) {
            let text = format!("`{name}` is not named under \"The crates\"");
            findings.push(Finding::new("crate-table", "README.md", &text));
        }
    }
}

/// Checks that ARCHITECTURE's table of crates, `| crate | may depend on | job |`, agrees with rules
/// and manifests.
fn crate_table(root: &Path, rules: &Rules, findings: &mut Vec<Finding>) {
    let text = fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap_or_default();
    let mut shown = BTreeSet::new();
    let mut find = |text: &str| findings.push(Finding::new("crate-table", "ARCHITECTURE.md", text));
    for line in text.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [place, arrows, job] = cells[..] else {
            continue;
        };
        let place = place.trim_matches('`');
        let name = place.strip_prefix("crates/").unwrap_or(place);
        let Some(rule) = rules.crates.get(name) else {
            continue;
        };
        shown.insert(name);
        let arrows: Vec<&str> = arrows
            .split([',', ' '])
            .filter(|word| !word.is_empty())
            .collect();
        if arrows != rule.may_depend_on {
            find(&format!(
                "{place} may depend on: {}",
                rule.may_depend_on.join(", ")
            ));
        }
        let manifest = table(&root.join(directory(name)).join("Cargo.toml")).unwrap_or_default();
        let about = manifest
            .get("package")
            .and_then(|package| package.get("description"));
        let about = about.and_then(toml::Value::as_str).unwrap_or_default();
        if about != job {
            find(&format!(
                "the job of {place} is told otherwise in its manifest: {about}"
            ));
        }
    }
    for name in crates::directories(root) {
        if !shown.contains(name.as_str()) {
            find(&format!("the crate table lacks {}", directory(&name)));
        }
    }
}
