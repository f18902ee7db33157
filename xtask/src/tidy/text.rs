//! Rules about text: width, words, paths, and marks of open work.

use std::{fs, path::Path};

use super::{Finding, Source};

/// Checks one file's text.
pub(super) fn check(source: &Source, banned: &[String], findings: &mut Vec<Finding>) {
    let is_data = source.path.contains("/testdata/") || source.path.contains("/corpus/");
    if source.byte_count > BLOB_BYTES_MAX && !source.path.contains("/testdata/") {
        let text = format!(
            "{} bytes in one file; {BLOB_BYTES_MAX} at most",
            source.byte_count
        );
        findings.push(Finding::new("blob", &source.path, &text).sized(source.byte_count));
    }
    if is_data || source.path.starts_with("LICENSE") || source.path == "Cargo.lock" {
        return;
    }
    width(source, findings);
    names(source, findings);
    for (line, number) in source.text.lines().zip(1..) {
        if let Some(text) = open_work(line) {
            findings.push(Finding::new("open-work", &source.path, &text).at(number));
        }
        for word in banned.iter().filter(|word| line.contains(word.as_str())) {
            let text = "a word that .tidy-words keeps out";
            findings.push(
                Finding::new("word", &source.path, text)
                    .at(number)
                    .about(word),
            );
        }
        let is_ignore_list = source.path.ends_with(".gitignore");
        for path in private_paths(line).into_iter().filter(|_| !is_ignore_list) {
            let text = "an absolute path of one machine";
            findings.push(
                Finding::new("path", &source.path, text)
                    .at(number)
                    .about(path),
            );
        }
    }
}

/// Reads a contributor's own list of words that the project must not contain; the list is not
/// committed.
pub(super) fn banned_words(root: &Path) -> Vec<String> {
    let text = fs::read_to_string(root.join(".tidy-words")).unwrap_or_default();
    text.lines()
        .map(str::trim)
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

fn width(source: &Source, findings: &mut Vec<Finding>) {
    let is_narrow = source.is_code() || source.path == "Makefile";
    for (line, number) in source.text.lines().zip(1..) {
        let width = line.chars().count();
        if is_narrow && width > LINE_WIDTH_MAX && !line.contains("://") {
            let text = format!("{width} characters; {LINE_WIDTH_MAX} at most");
            findings.push(Finding::new("line-width", &source.path, &text).at(number));
        }
    }
}

/// Finds names that say nothing, in definitions and in file names.
fn names(source: &Source, findings: &mut Vec<Finding>) {
    let file = source.path.rsplit('/').next().unwrap_or_default();
    let stem = file.split('.').next().unwrap_or_default();
    let named = source.definitions().chain([(0, stem)]);
    for (number, word) in named.filter(|(_, word)| is_empty_name(word)) {
        let text = "a name that says nothing: name the thing it is";
        findings.push(
            Finding::new("name", &source.path, text)
                .at(number)
                .about(word),
        );
    }
}

fn is_empty_name(word: &str) -> bool {
    let has_part = |part: &str| EMPTY_PARTS.contains(&part);
    CAMEL_PARTS.iter().any(|part| word.contains(part)) || word.split('_').any(has_part)
}

/// Finds a mark of open work without its issue: `(#12)` must follow the mark.
fn open_work(line: &str) -> Option<String> {
    let marks = [concat!("TO", "DO"), concat!("FIX", "ME")];
    for mark in marks {
        for (at, _) in line.match_indices(mark) {
            let before = line[..at].chars().next_back();
            let rest = &line[at + mark.len()..];
            let is_word = before.is_none_or(|c| !c.is_alphanumeric() && c != '_')
                && !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
            let number = rest
                .strip_prefix("(#")
                .and_then(|rest| rest.split_once(')'));
            let is_numbered = number.is_some_and(|(number, _)| number.parse::<u32>().is_ok());
            if is_word && !is_numbered {
                return Some(format!("{mark} without its issue: write {mark}(#12)"));
            }
        }
    }
    None
}

/// Finds absolute paths below a directory that not every Unix machine has.
fn private_paths(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (at, _) in line.match_indices('/') {
        let is_start = line[..at]
            .chars()
            .next_back()
            .is_none_or(|c| " \t\"'`(=<".contains(c));
        let rest = &line[at + 1..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"/._-".contains(c));
        let path = &rest[..end.unwrap_or(rest.len())];
        let Some((first, second)) = path.split_once('/') else {
            continue;
        };
        let is_path = first.starts_with(|c: char| c.is_ascii_alphabetic())
            && second.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '.');
        if is_start && is_path && !STANDARD_DIRECTORIES.contains(&first) {
            found.push(path);
        }
    }
    found
}

const LINE_WIDTH_MAX: usize = 100;
const BLOB_BYTES_MAX: usize = 256 * 1024;
const CAMEL_PARTS: [&str; 4] = ["Manager", "Helper", "Utils", "Util"];
const EMPTY_PARTS: [&str; 6] = ["util", "utils", "helper", "helpers", "manager", "managers"];
const STANDARD_DIRECTORIES: [&str; 15] = [
    "bin", "boot", "dev", "etc", "lib", "lib64", "media", "opt", "proc", "run", "sbin", "srv",
    "sys", "tmp", "usr",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_paths_and_open_work_are_found() {
        assert!(is_empty_name("WindowManager") && is_empty_name("string_util"));
        assert!(
            !is_empty_name("utilisation") && !is_empty_name("Utilization".to_lowercase().as_str())
        );
        let mark = concat!("TO", "DO");
        assert!(open_work(&format!("// {mark}: later")).is_some());
        assert!(open_work(&format!("// {mark}(#12): later")).is_none());
        assert!(open_work(&format!("a {mark}S b")).is_none());
        let home = concat!("see `", "/", "home/someone/notes.txt`");
        assert_eq!(private_paths(home), ["home/someone/notes.txt"]);
        assert!(private_paths("/proc/stat, a/b/c, https://example.org/x/y").is_empty());
    }
}
