//! The ledger's entries: `specs/rfc3208/NN.toml`, one file for each top-level section.

use std::{fs, path::Path};

use toml::{Table, Value};

/// What the ledger says about one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The file's name.
    pub(super) file: String,
    pub(super) id: String,
    pub(super) quote: String,
    pub(super) level: String,
    pub(super) role: String,
    pub(super) state: State,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The code does what the sentence says, and these tests show it: `path/of/file.rs: name`.
    Done(Vec<String>),
    /// Towline does otherwise, or the sentence asks for nothing, for this reason.
    Exception(String),
    Todo,
}

/// A role that Towline does not play, or not in full, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UnplayedRole {
    pub(super) name: String,
    pub(super) reason: String,
}

/// The whole ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ledger {
    pub(super) entries: Vec<Entry>,
    pub(super) unplayed: Vec<UnplayedRole>,
}

impl Ledger {
    /// Reads every TOML file of `directory`.
    pub(super) fn load(directory: &Path) -> Result<Self, String> {
        let list = fs::read_dir(directory).map_err(|error| format!("{directory:?}: {error}"))?;
        let mut paths: Vec<_> = list.filter_map(Result::ok).map(|it| it.path()).collect();
        paths.retain(|path| path.extension().is_some_and(|end| end == "toml"));
        paths.sort();
        let mut ledger = Self::default();
        for path in paths {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let text = fs::read_to_string(&path).map_err(|error| format!("{name}: {error}"))?;
            ledger.add(&name, &text)?;
        }
        Ok(ledger)
    }

    /// Adds the entries of one file.
    pub(super) fn add(&mut self, file: &str, text: &str) -> Result<(), String> {
        let table: Table = text.parse().map_err(|error| format!("{file}: {error}"))?;
        for (key, value) in &table {
            for item in value.as_array().into_iter().flatten() {
                let Some(item) = item.as_table() else {
                    return Err(format!("{file}: {key} is no list of tables"));
                };
                match &**key {
                    "sentence" => self.entries.push(Entry::read(file, item)?),
                    "unplayed" => self.unplayed.push(UnplayedRole {
                        name: text_of(file, item, "role")?,
                        reason: text_of(file, item, "reason")?,
                    }),
                    _ => return Err(format!("{file}: unknown key {key}")),
                }
            }
        }
        Ok(())
    }

    pub(super) fn unplayed(&self, role: &str) -> Option<&UnplayedRole> {
        self.unplayed.iter().find(|unplayed| unplayed.name == role)
    }
}

impl Entry {
    fn read(file: &str, item: &Table) -> Result<Self, String> {
        let id = text_of(file, item, "id")?;
        let at = format!("{file}: {id}");
        if let Some(key) = item.keys().find(|key| !KEYS.contains(&key.as_str())) {
            return Err(format!("{at}: unknown key {key}"));
        }
        let state = match &*text_of(&at, item, "state")? {
            "done" => {
                let list = item.get("tests").and_then(Value::as_array);
                let names = list.into_iter().flatten().filter_map(Value::as_str);
                State::Done(names.map(str::to_owned).collect())
            }
            "exception" => State::Exception(text_of(&at, item, "reason")?),
            "todo" => State::Todo,
            other => return Err(format!("{at}: state {other:?} is none of {STATES}")),
        };
        Ok(Self {
            file: file.to_owned(),
            quote: text_of(&at, item, "quote")?,
            level: text_of(&at, item, "level")?,
            role: text_of(&at, item, "role")?,
            id,
            state,
        })
    }
}

/// Returns the text under `key`, its lines joined.
fn text_of(at: &str, item: &Table, key: &str) -> Result<String, String> {
    let text = item.get(key).and_then(Value::as_str);
    let text = text.ok_or_else(|| format!("{at}: no {key}"))?;
    Ok(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

const KEYS: [&str; 7] = ["id", "quote", "level", "role", "state", "tests", "reason"];
const STATES: &str = "done, exception, todo";
