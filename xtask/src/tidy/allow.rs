//! Exceptions from the rules: `xtask/allow.toml`.

use std::path::Path;

use super::{Finding, rules::table};

/// The exceptions, and which of them were used.
pub(super) struct Exceptions {
    entries: Vec<Exception>,
}

impl Exceptions {
    /// Reads `xtask/allow.toml`.
    pub(super) fn load(root: &Path) -> Result<Self, String> {
        let table = table(&root.join(PATH))?;
        let list = table.get("exception").and_then(toml::Value::as_array);
        let entries = list
            .into_iter()
            .flatten()
            .map(Exception::read)
            .collect::<Result<_, _>>()?;
        Ok(Self { entries })
    }

    /// Removes the findings that exceptions allow, and adds one for each exception that allowed
    /// nothing.
    pub(super) fn filter(mut self, findings: Vec<Finding>) -> Vec<Finding> {
        let mut left: Vec<Finding> = Vec::new();
        for finding in findings {
            let cover = self.entries.iter_mut().find(|entry| entry.covers(&finding));
            match cover {
                Some(entry) => entry.is_used = true,
                None => left.push(finding),
            }
        }
        for entry in self.entries.iter().filter(|entry| !entry.is_used) {
            let text = format!(
                "nothing needs the exception for {} any more: take it off the list",
                entry.path
            );
            left.push(Finding::new("stale-exception", PATH, &text).about(&entry.rule));
        }
        left
    }
}

struct Exception {
    rule: String,
    path: String,
    what: String,
    max: Option<u64>,
    is_used: bool,
}

impl Exception {
    fn read(value: &toml::Value) -> Result<Self, String> {
        let text = |key: &str| {
            value
                .get(key)
                .and_then(toml::Value::as_str)
                .map(str::to_owned)
        };
        let needed = |key: &str| text(key).ok_or_else(|| format!("{PATH}: entry without {key}"));
        if needed("reason")?.len() < 10 {
            return Err(format!("{PATH}: a reason is a sentence"));
        }
        Ok(Self {
            rule: needed("rule")?,
            path: needed("path")?,
            what: text("what").unwrap_or_default(),
            max: value
                .get("max")
                .and_then(toml::Value::as_integer)
                .map(i64::unsigned_abs),
            is_used: false,
        })
    }

    fn covers(&self, finding: &Finding) -> bool {
        let fits = finding
            .size
            .is_none_or(|size| self.max.is_some_and(|max| size <= max));
        let is_same = self.rule == finding.rule && self.path == finding.path;
        is_same && self.what == finding.what && fits
    }
}

const PATH: &str = "xtask/allow.toml";
