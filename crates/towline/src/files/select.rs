//! Ordered rules, like those of rsync, which decide what in a tree is sent. A path that the user
//! named is always sent; the rules apply to what lies below it.
//!
//! The rules do not look at the disk. The first rule that matches a path decides, and a path
//! without a matching rule is sent. The walk does not enter an excluded directory. So when `*` is
//! excluded after an include, the directories that lead to the included paths must be included,
//! too.
//!
//! | pattern | matches |
//! |---|---|
//! | `*.o` | the last component, anywhere |
//! | `build/` | the last component of a directory's path, anywhere |
//! | `doc/*.txt` | the end of a path; `*`, `?` and `[...]` do not match a `/` |
//! | `/tree/*.c` | the whole path as it is delivered |
//! | `**` | any number of components |

use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};

use crate::Error;

/// Ordered rules that say which paths of a tree are sent. The first rule whose pattern matches a
/// path decides. A path that no rule matches is sent. Everything below an excluded directory is
/// left out.
///
/// | pattern | matches |
/// |---|---|
/// | `*.o` | a file name anywhere: the last component of a path |
/// | `build/` | the name of a directory anywhere |
/// | `doc/*.txt` | the end of a path; `*`, `?`, `[abc]` and `[!abc]` do not match a `/` |
/// | `/tree/*.c` | a whole path, as it is delivered |
/// | `**` | any number of components, as in `/tree/**/*.c` |
///
/// `\` before a character takes its meaning away: `\*` matches a star.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug)]
struct Rule {
    is_included: bool,
    is_for_directories: bool,
    glob: GlobMatcher,
}

impl Selection {
    /// Adds a rule that includes the paths that match `pattern`.
    ///
    /// # Errors
    /// When `pattern` cannot be read.
    pub fn include(&mut self, pattern: &str) -> Result<(), Error> {
        self.add(true, pattern)
    }

    /// Adds a rule that leaves out the paths that match `pattern`.
    ///
    /// # Errors
    /// When `pattern` cannot be read.
    pub fn exclude(&mut self, pattern: &str) -> Result<(), Error> {
        self.add(false, pattern)
    }

    /// Returns true when the first matching rule includes `path`, or when no rule matches.
    #[must_use]
    pub fn takes(&self, path: &Path, is_directory: bool) -> bool {
        let decisive = self
            .rules
            .iter()
            .find(|rule| (is_directory || !rule.is_for_directories) && rule.glob.is_match(path));
        decisive.is_none_or(|rule| rule.is_included)
    }

    /// Returns true when there are rules, and none of them leaves anything out.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        !self.rules.is_empty() && self.rules.iter().all(|rule| rule.is_included)
    }

    fn add(&mut self, is_included: bool, pattern: &str) -> Result<(), Error> {
        let (rest, is_for_directories) = match pattern.strip_suffix('/') {
            Some(rest) => (rest, true),
            None => (pattern, false),
        };
        let whole = match rest.strip_prefix('/') {
            Some(anchored) => anchored.to_owned(),
            None => format!("**/{rest}"),
        };
        if rest.trim_start_matches('/').is_empty() {
            let target = format!("pattern {pattern:?}");
            let error = net::SystemError::refused("use", target, "it names nothing");
            return Err(error.advise(FORMS).into());
        }
        let glob = GlobBuilder::new(&whole)
            .literal_separator(true)
            .backslash_escape(true)
            .build()
            .map_err(|error| {
                let target = format!("pattern {pattern:?}");
                net::SystemError::refused("use", target, error.kind()).advise(FORMS)
            })?;
        self.rules.push(Rule {
            is_included,
            is_for_directories,
            glob: glob.compile_matcher(),
        });
        Ok(())
    }
}

/// Examples of patterns, for the text of an error.
const FORMS: &str = "write a pattern such as *.tmp, cache/, /build or docs/**/*.pdf";

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules as on a command line: `+` includes, `-` excludes.
    fn selection(rules: &[&str]) -> Selection {
        let mut selection = Selection::default();
        for rule in rules {
            let (sign, pattern) = rule.split_at(1);
            let added = match sign {
                "+" => selection.include(pattern),
                _ => selection.exclude(pattern),
            };
            added.expect("a good pattern");
        }
        selection
    }

    fn takes(rules: &[&str], path: &str) -> bool {
        let is_directory = path.ends_with('/');
        selection(rules).takes(Path::new(path.trim_end_matches('/')), is_directory)
    }

    #[test]
    fn patterns_match_what_rsync_s_would() {
        let cases: [(&str, &str, bool); 13] = [
            ("*.o", "tree/deep/a.o", true),
            ("*.o", "tree/a.o/b", false),
            ("a", "tree/a", true),
            ("a", "tree/ba", false),
            ("build/", "tree/build/", true),
            ("build/", "tree/build", false),
            ("doc/*.txt", "tree/doc/a.txt", true),
            ("doc/*.txt", "tree/doc/deep/a.txt", false),
            ("/srv/a", "srv/a", true),
            ("/srv/a", "srv/srv/a", false),
            ("/tree/**/c", "tree/a/b/c", true),
            ("file[0-9]", "tree/file7", true),
            ("*.{o,a}", "tree/x.a", true),
        ];
        for (pattern, path, is_match) in cases {
            let rule = format!("-{pattern}");
            assert_eq!(!takes(&[&rule], path), is_match, "{pattern} and {path}");
        }
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let rules = ["+keep.o", "-*.o"];
        assert!(takes(&rules, "tree/keep.o") && !takes(&rules, "tree/other.o"));
        let rules = ["-*.o", "+keep.o"];
        assert!(!takes(&rules, "tree/keep.o"));
        assert!(takes(&rules, "tree/other.c"));
    }

    #[test]
    fn a_pattern_that_says_nothing_is_refused() {
        for pattern in ["", "/", "[", "a{b"] {
            let error = Selection::default().exclude(pattern).unwrap_err();
            assert!(error.to_string().contains(pattern), "{error}");
        }
    }
}
