//! The repository's text files, and Rust code with comments and literals blanked out.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::command::output;

/// One file of the repository.
pub(super) struct Source {
    /// Path from the root, with `/`.
    pub(super) path: String,
    /// Its size on disk.
    pub(super) byte_count: usize,
    /// Its text; empty for a file that is not UTF-8.
    pub(super) text: String,
    /// Rust only: the text with the contents of comments, strings and characters blanked, line by
    /// line as long as the text.
    pub(super) code: String,
}

impl Source {
    /// A source as if it were read from `path`.
    pub(super) fn new(path: &str, text: String) -> Self {
        let is_rust = has_extension(path, "rs");
        let code = if is_rust { mask(&text) } else { String::new() };
        Self {
            path: path.to_owned(),
            byte_count: text.len(),
            text,
            code,
        }
    }

    pub(super) fn is_rust(&self) -> bool {
        has_extension(&self.path, "rs")
    }

    /// The short name of the crate it belongs to.
    pub(super) fn crate_name(&self) -> Option<&str> {
        let mut parts = self.path.split('/');
        match parts.next()? {
            "crates" => parts.next(),
            "xtask" => Some("xtask"),
            _ => None,
        }
    }

    /// Identifiers of the code with their lines.
    pub(super) fn identifiers(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.code.lines().zip(1..);
        lines.flat_map(|(line, number)| {
            let words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            words
                .filter(|word| !word.is_empty())
                .map(move |word| (number, word))
        })
    }
}

/// True when `path` ends in `.extension`.
pub(super) fn has_extension(path: &str, extension: &str) -> bool {
    Path::new(path)
        .extension()
        .is_some_and(|found| found == extension)
}

/// Every file that git knows or would know; without git, every file outside build directories.
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
    let mut source = Source::new(path, String::from_utf8(bytes).unwrap_or_default());
    source.byte_count = byte_count;
    Some(source)
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

/// Blanks comments and the insides of literals, keeping every line break in its place.
pub(super) fn mask(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut i = 0;
    while i < chars.len() {
        let rest = &chars[i..];
        let end = i + literal_len(rest, i.checked_sub(1).map(|before| chars[before])).max(1);
        if end == i + 1 {
            out.push(chars[i]);
        } else {
            out.extend(
                chars[i..end]
                    .iter()
                    .map(|&c| if c == '\n' { '\n' } else { ' ' }),
            );
        }
        i = end;
    }
    out
}

/// Length of the comment or literal that starts here; 0 when none does.
fn literal_len(rest: &[char], before: Option<char>) -> usize {
    let is_inside_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    match rest {
        ['/', '/', ..] => rest.iter().position(|&c| c == '\n').unwrap_or(rest.len()),
        ['/', '*', ..] => block_comment_len(rest),
        ['"', ..] => string_len(rest, 0),
        ['r' | 'b' | 'c', ..] if !is_inside_word => prefixed_len(rest),
        ['\'', ..] => char_len(rest),
        _ => 0,
    }
}

fn block_comment_len(rest: &[char]) -> usize {
    let mut depth = 0_usize;
    let mut i = 0;
    while i < rest.len() {
        match rest[i..] {
            ['/', '*', ..] => {
                depth += 1;
                i += 2;
            }
            ['*', '/', ..] => {
                depth -= 1;
                i += 2;
                if depth == 0 {
                    return i;
                }
            }
            _ => i += 1,
        }
    }
    rest.len()
}

/// `"..."` that starts at `from`, escapes included; counted from the start of `rest`.
fn string_len(rest: &[char], from: usize) -> usize {
    let mut i = from + 1;
    while i < rest.len() {
        match rest[i] {
            '\\' => i += 2,
            '"' => return i + 1,
            _ => i += 1,
        }
    }
    rest.len()
}

/// `r"..."`, `r#"..."#`, `b"..."`, `br#"..."#`, `b'x'`, `c"..."`; 0 for a plain word.
fn prefixed_len(rest: &[char]) -> usize {
    let letters = rest
        .iter()
        .take_while(|c| matches!(c, 'r' | 'b' | 'c'))
        .count();
    let is_raw = rest[..letters].contains(&'r');
    let hashes = rest[letters..].iter().take_while(|&&c| c == '#').count();
    let quote = letters + hashes;
    match rest.get(quote) {
        Some('"') if letters <= 2 && is_raw => {
            let mut i = quote + 1;
            while i < rest.len() {
                let tail = &rest[i + 1..];
                if rest[i] == '"' && tail.iter().take_while(|&&c| c == '#').count() >= hashes {
                    return i + 1 + hashes;
                }
                i += 1;
            }
            rest.len()
        }
        Some('"') if letters == 1 && hashes == 0 => string_len(rest, quote),
        Some('\'') if rest[0] == 'b' && quote == 1 => 1 + char_len(&rest[1..]),
        _ => 0,
    }
}

/// `'x'` or `'\n'`; 0 for a lifetime.
fn char_len(rest: &[char]) -> usize {
    match rest {
        ['\'', '\\', ..] => {
            let close = rest.iter().skip(3).position(|&c| c == '\'');
            close.map_or(rest.len(), |at| at + 4)
        }
        ['\'', _, '\'', ..] => 3,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_is_left_and_lines_stay_in_place() {
        let text = "let a = \"fn x() {\"; // unsafe\nlet b = r#\"}\"\n{\"#; /* { /* } */ */ \
            'a: {\n'{' b'\\'' fn";
        let code = mask(text);
        assert_eq!(code.lines().count(), text.lines().count());
        assert_eq!(code.chars().filter(|&c| c == '{').count(), 1, "{code}");
        assert!(!code.contains("unsafe") && code.ends_with("fn") && code.contains("'a: {"));
    }

    #[test]
    fn names_that_end_in_a_prefix_letter_are_not_literals() {
        assert_eq!(mask("for_r\"x\" number"), "for_r    number");
        assert_eq!(mask("brand r#type"), "brand r#type");
    }
}
