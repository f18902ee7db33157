//! The report of `recv --leftovers`.

use std::{
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use schemars::JsonSchema;
use serde::Serialize;
use towline::{Leftover, ManifestId};

use super::{Document, count, name::shown, quantity};

/// The unfinished transfers in one directory.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct LeftoversReport {
    directory: String,
    bytes: u64,
    /// The transfers in the order of their last changes, the newest last.
    pub(crate) leftovers: Vec<LeftoverRow>,
}

/// One unfinished transfer.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct LeftoverRow {
    #[serde(skip)]
    pub(crate) id: ManifestId,
    manifest: String,
    bytes: u64,
    /// When the transfer changed last, in seconds since 1970.
    changed_unix_s: u64,
    #[serde(skip)]
    age: Duration,
    /// True when `--clean` removed the transfer; transfers that are still under way are kept.
    pub(crate) is_removed: bool,
}

impl LeftoversReport {
    pub(crate) fn new(directory: &Path, found: &[Leftover]) -> Self {
        let now = SystemTime::now();
        let rows = found.iter().map(|one| LeftoverRow {
            id: one.manifest,
            manifest: one.manifest.to_string(),
            bytes: one.bytes,
            changed_unix_s: one
                .changed
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
            age: now.duration_since(one.changed).unwrap_or_default(),
            is_removed: false,
        });
        Self {
            directory: directory.display().to_string(),
            bytes: found.iter().map(|one| one.bytes).sum(),
            leftovers: rows.collect(),
        }
    }
}

impl Document for LeftoversReport {
    const SCHEMA: &'static str = "towline.recv-leftovers";
    const IS_DATA: bool = true;

    fn text(&self) -> String {
        let mut text = String::new();
        for row in &self.leftovers {
            let state = if row.is_removed { "removed" } else { "kept" };
            let (bytes, age) = (quantity::bytes(row.bytes), quantity::time(row.age));
            text += &format!("{} {bytes:>10}  changed {age} ago  {state}\n", row.manifest);
        }
        let directory = shown(Path::new(&self.directory));
        text + &format!(
            "{directory}: {} of unfinished transfers, {}\n",
            count(self.leftovers.len() as u64, "leftover"),
            quantity::bytes(self.bytes),
        )
    }
}
