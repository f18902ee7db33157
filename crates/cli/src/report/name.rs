//! Names of files on a line for people: whatever they hold, they neither break the line nor command
//! the terminal.

use std::path::Path;

/// Returns the path with its control characters escaped. Where it has any, backslashes are escaped,
/// too, so that two names never look the same.
pub(crate) fn shown(path: &Path) -> String {
    let path = path.display().to_string();
    if !path.contains(char::is_control) {
        return path;
    }
    let escaped = path.chars().map(|c| match c {
        '\\' => "\\\\".to_owned(),
        c if c.is_control() => c.escape_default().to_string(),
        c => c.to_string(),
    });
    escaped.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_break_the_line_is_escaped_and_nothing_else() {
        for (path, expected) in [
            ("über/a b", "über/a b"),
            ("a\\b", "a\\b"),
            ("new\nline", "new\\nline"),
            ("a\\b\u{1b}[2J", "a\\\\b\\u{1b}[2J"),
        ] {
            assert_eq!(shown(Path::new(path)), expected);
        }
    }
}
