//! The rules for each crate: `xtask/rules.toml`.

use std::{collections::BTreeMap, fs, path::Path};

/// The rules' parameters.
pub(crate) struct Rules {
    /// The rule of each crate, by the name of its directory under `crates`, such as `base`; `xtask`
    /// is a directory of the root.
    pub(super) crates: BTreeMap<String, CrateRule>,
    /// Crates of this workspace that any crate may use in its tests.
    pub(super) dev_internal: Vec<String>,
    /// Crates from outside that any crate may use in its tests.
    pub(super) dev_external: Vec<String>,
    /// Functions for C that need nothing to stop panics.
    pub(super) cannot_panic: Vec<String>,
}

pub(crate) struct CrateRule {
    pub(super) may_depend_on: Vec<String>,
    pub(super) external: Vec<String>,
    /// The crate uses no clock, thread, randomness or hash order, and imports nothing when it is
    /// linked for wasm32.
    pub(crate) is_pure: bool,
    /// The crate type-checks for Windows and for other processors.
    pub(crate) is_portable: bool,
    pub(super) may_be_unsafe: bool,
}

impl Rules {
    /// Reads `xtask/rules.toml`.
    pub(crate) fn load(root: &Path) -> Result<Self, String> {
        let table = table(&root.join("xtask/rules.toml"))?;
        let crates = table.get("crates").and_then(toml::Value::as_table);
        let crates = crates.ok_or("xtask/rules.toml: no [crates.NAME] tables")?;
        let crates = crates
            .iter()
            .map(|(name, value)| (name.clone(), CrateRule::read(value)));
        Ok(Self {
            crates: crates.collect(),
            dev_internal: strings(table.get("dev_internal")),
            dev_external: strings(table.get("dev_external")),
            cannot_panic: strings(table.get("cannot_panic")),
        })
    }

    /// Returns the package names of the crates for which `is_wanted` holds.
    pub(crate) fn packages(&self, is_wanted: impl Fn(&CrateRule) -> bool) -> Vec<String> {
        let wanted = self.crates.iter().filter(|(_, rule)| is_wanted(rule));
        wanted.map(|(name, _)| package_name(name)).collect()
    }
}

impl CrateRule {
    fn read(value: &toml::Value) -> Self {
        let flag = |key: &str| {
            value
                .get(key)
                .and_then(toml::Value::as_bool)
                .unwrap_or(false)
        };
        Self {
            may_depend_on: strings(value.get("may_depend_on")),
            external: strings(value.get("external")),
            is_pure: flag("pure"),
            is_portable: flag("portable"),
            may_be_unsafe: flag("unsafe"),
        }
    }
}

/// Makes the package name of a crate from its short name.
pub(super) fn package_name(short: &str) -> String {
    match short {
        "towline" | "xtask" => short.to_owned(),
        _ => format!("towline-{short}"),
    }
}

/// Returns the directory of a crate, from the repository's root.
pub(super) fn directory(short: &str) -> String {
    match short {
        "xtask" => short.to_owned(),
        _ => format!("crates/{short}"),
    }
}

/// Reads a TOML file as a table.
pub(super) fn table(path: &Path) -> Result<toml::Table, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    text.parse()
        .map_err(|error| format!("{}: {error}", path.display()))
}

fn strings(value: Option<&toml::Value>) -> Vec<String> {
    let list = value.and_then(toml::Value::as_array);
    let texts = list.into_iter().flatten().filter_map(toml::Value::as_str);
    texts.map(str::to_owned).collect()
}
