//! The repository's text files.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::command::output;

/// One file of the repository.
pub(super) struct Source {
    /// Path from the root, with `/`.
    pub(super) path: String,
    /// Its bytes on disk.
    pub(super) byte_count: usize,
    /// Its text; empty for a file that is not UTF-8.
    pub(super) text: String,
}

impl Source {
    /// Returns true for a file in Rust, shell or Python.
    pub(super) fn is_code(&self) -> bool {
        let extensions = ["rs", "sh", "py"];
        extensions.iter().any(|end| has_extension(&self.path, end))
    }

    /// Returns the names that its Rust code defines, with their lines. Comments that look like
    /// definitions count, too.
    pub(super) fn definitions(&self) -> impl Iterator<Item = (usize, &str)> {
        let is_rust = has_extension(&self.path, "rs");
        let lines = self.text.lines().zip(1..).filter(move |_| is_rust);
        lines.flat_map(|(line, number)| {
            let words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            let words = words.filter(|word| !word.is_empty());
            let pairs = words.clone().zip(words.skip(1));
            pairs
                .filter(|(keyword, _)| DEFINING.contains(keyword))
                .map(move |(_, name)| (number, name))
        })
    }
}

/// Returns true when `path` ends in `.extension`.
pub(super) fn has_extension(path: &str, extension: &str) -> bool {
    Path::new(path)
        .extension()
        .is_some_and(|found| found == extension)
}

/// Reads every file that git tracks or would add; without git, every file outside build
/// directories.
pub(super) fn load_all(root: &Path) -> Vec<Source> {
    let listed = output(
        "git",
        &["ls-files", "--cached", "--others", "--exclude-standard"],
    );
    let mut paths: Vec<String> = match listed {
        Some(list) => list.lines().map(str::to_owned).collect(),
        None => walk(root),
    };
    paths.sort();
    paths.dedup();
    paths.iter().filter_map(|path| load(root, path)).collect()
}

fn load(root: &Path, path: &str) -> Option<Source> {
    let bytes = fs::read(root.join(path)).ok()?;
    let byte_count = bytes.len();
    Some(Source {
        path: path.to_owned(),
        byte_count,
        text: String::from_utf8(bytes).unwrap_or_default(),
    })
}

fn walk(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open: Vec<PathBuf> = vec![root.to_path_buf()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory)
            .into_iter()
            .flatten()
            .filter_map(Result::ok)
        {
            let path = entry.path();
            let name = entry.file_name();
            if path.is_dir() {
                if name != "target" && name != ".git" && name != "corpus-found" {
                    open.push(path);
                }
            } else if let Ok(relative) = path.strip_prefix(root) {
                found.push(relative.to_string_lossy().replace('\\', "/"));
            }
        }
    }
    found
}

const DEFINING: [&str; 8] = [
    "const", "enum", "fn", "mod", "static", "struct", "trait", "type",
];
