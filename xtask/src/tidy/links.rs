//! Rules about Markdown: every relative link leads to a file, every anchor to a heading, every page
//! of the book stands in its table of contents, and the paths that ARCHITECTURE.md names are there.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Component, Path, PathBuf},
};

use super::{Finding, Source, source::has_extension};

/// Checks all Markdown files together.
pub(super) fn check(root: &Path, sources: &[Source], findings: &mut Vec<Finding>) {
    let pages: BTreeMap<&str, &Source> = sources
        .iter()
        .filter(|source| has_extension(&source.path, "md"))
        .map(|source| (source.path.as_str(), source))
        .collect();
    let mut linked_by_contents = BTreeSet::new();
    for (path, source) in &pages {
        for (line, target) in links(&source.text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let there = if file.is_empty() {
                (*path).to_owned()
            } else {
                resolve(path, file)
            };
            if *path == CONTENTS {
                linked_by_contents.insert(there.clone());
            }
            let mut find = |text: &str| {
                findings.push(Finding::new("link", path, text).at(line));
            };
            if !root.join(&there).exists() {
                find(&format!("{target} leads to no file"));
            } else if !anchor.is_empty() {
                let page = pages.get(there.as_str());
                if page.is_none_or(|page| !anchors(&page.text).contains(anchor)) {
                    find(&format!("{there} has no heading for #{anchor}"));
                }
            }
        }
    }
    if let Some(map) = pages.get(MAP) {
        check_map(map, sources, findings);
    }
    for path in pages.keys().filter(|path| path.starts_with(BOOK)) {
        if *path != CONTENTS && !linked_by_contents.contains(*path) {
            let text = format!("{CONTENTS} lacks this page");
            findings.push(Finding::new("book", path, &text));
        }
    }
}

/// Checks the paths that the map of the code names between backquotes. A path may begin below the
/// root, as `pgm/src/source` does.
fn check_map(map: &Source, sources: &[Source], findings: &mut Vec<Finding>) {
    for (line, number) in prose(&map.text) {
        let names = line.split('`').skip(1).step_by(2);
        for name in names.filter(|name| is_path(name)) {
            let within = format!("/{}/", name.trim_end_matches('/'));
            let is_there = |source: &Source| format!("/{}/", source.path).contains(&within);
            if !sources.iter().any(is_there) {
                let text = format!("there is no {name}");
                findings.push(Finding::new("path", MAP, &text).at(number));
            }
        }
    }
}

/// Returns true for a text that can only be the path of a file or directory.
fn is_path(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    text.chars().all(is_plain) && (text.contains('/') || has_extension(text, "rs"))
}

/// Returns the targets of `](target)` outside code, with their lines from 1.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (line, number) in prose(text) {
        let mut is_code = false;
        let mut rest = line;
        while let Some(at) = rest.find(['`', ']']) {
            let (_, tail) = rest.split_at(at);
            if let Some(tail) = tail.strip_prefix('`') {
                is_code = !is_code;
                rest = tail;
                continue;
            }
            rest = &tail[1..];
            if let (false, Some(link)) = (is_code, rest.strip_prefix('(')) {
                let target = link.split([')', ' ']).next().unwrap_or_default();
                found.push((number, target.to_owned()));
            }
        }
    }
    found
}

/// Returns the anchors that forges and mdBook give to the headings of a page.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (line, _) in prose(text) {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let slug = slug(title.trim());
        let numbered = (1..).map(|nth| format!("{slug}-{nth}"));
        let free = std::iter::once(slug.clone()).chain(numbered);
        found.extend({ free }.find(|name| !found.contains(name)));
    }
    found
}

/// Makes the anchor of a heading: lower case, no punctuation, `-` for each space.
fn slug(title: &str) -> String {
    let kept = title.chars().filter_map(|c| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        c => c.is_alphanumeric().then_some(c),
    });
    kept.flat_map(char::to_lowercase).collect()
}

/// Returns the lines outside code blocks, with their numbers from 1.
fn prose(text: &str) -> impl Iterator<Item = (&str, usize)> {
    let mut is_fenced = false;
    text.lines().zip(1..).filter(move |(line, _)| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        !is_fence && !is_fenced
    })
}

/// Returns the target of `link` in `page`, as a path from the root.
fn resolve(page: &str, link: &str) -> String {
    let mut path = PathBuf::from(page);
    path.pop();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    path.to_string_lossy().into_owned()
}

/// The map of the code.
const MAP: &str = "ARCHITECTURE.md";
const BOOK: &str = "docs/src/";
const CONTENTS: &str = "docs/src/SUMMARY.md";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_outside_code() {
        let text = "[a](b.md) and `[c](d.md)`\n```\n[e](f.md)\n```\n[![g](h.png)](i.md \"j\")\n";
        let expected = [(1, "b.md"), (5, "h.png"), (5, "i.md")];
        assert_eq!(
            links(text),
            expected.map(|(line, target)| (line, target.to_owned()))
        );
    }

    #[test]
    fn headings_give_the_anchors_of_a_forge() {
        let text = "# Exit codes: `0`, 1\n## Twice\n## Twice\n```\n# not one\n```\n#nor this\n";
        let expected = ["exit-codes-0-1", "twice", "twice-1"];
        assert_eq!(anchors(text), expected.map(str::to_owned).into());
    }

    #[test]
    fn a_broken_link_a_lost_anchor_and_a_lost_page_are_findings() {
        let root = crate::command::root();
        let source = |path: &str, text: &str| Source {
            path: path.to_owned(),
            byte_count: text.len(),
            text: text.to_owned(),
        };
        let readme =
            "# Here\n[ok](#here) [gone](#there) [lost](no/such.md) [up](docs/../Cargo.toml)";
        let sources = [
            source("README.md", readme),
            source(CONTENTS, "# Contents"),
            source("docs/src/orphan.md", "# Alone"),
        ];
        let mut findings = Vec::new();
        check(&root, &sources, &mut findings);
        let texts: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "README.md:2: README.md has no heading for #there [link]",
                "README.md:2: no/such.md leads to no file [link]",
                "docs/src/orphan.md: docs/src/SUMMARY.md lacks this page [book]",
            ]
        );
    }
    #[test]
    fn a_path_in_the_map_that_is_not_there_is_a_finding() {
        let source = |path: &str, text: &str| Source {
            path: path.to_owned(),
            byte_count: text.len(),
            text: text.to_owned(),
        };
        let map = "`pgm/src/log.rs`, `log.rs` and `pgm/src/` are there, `a::b` is no path\n\
                   `pgm/log.rs` and `og.rs` are not\n";
        let sources = [source(MAP, map), source("crates/pgm/src/log.rs", "")];
        let mut findings = Vec::new();
        check_map(&sources[0], &sources, &mut findings);
        let texts: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "ARCHITECTURE.md:2: there is no pgm/log.rs [path]",
                "ARCHITECTURE.md:2: there is no og.rs [path]",
            ]
        );
    }
}
