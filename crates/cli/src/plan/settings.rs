//! Options and parameters by name, with where each came from: the command line goes before the
//! configuration file.

use std::{collections::BTreeMap, fmt, fs, path::Path};

use towline::{Config, PARAMETERS};

use crate::{
    args::{Given, SESSION_OPTIONS, flag},
    failure::{Failure, unreadable},
};

/// What was set, by the name of the option or parameter.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    values: BTreeMap<&'static str, Setting>,
}

#[derive(Clone, Debug)]
struct Setting {
    text: String,
    origin: Origin,
}

/// Where a text came from, to name it in messages.
#[derive(Clone, Debug)]
enum Origin {
    Flag,
    File(String),
}

impl Settings {
    /// Reads the configuration file when one is named, then puts the flags over it.
    pub(crate) fn resolve(given: &Given) -> Result<Self, Failure> {
        Self::resolve_with(given, &[])
    }

    /// As [`Settings::resolve`]; the file may have these keys too, a command's own.
    pub(crate) fn resolve_with(given: &Given, own: &[&'static str]) -> Result<Self, Failure> {
        let mut settings = Self::default();
        if let Some(path) = &given.config {
            settings.read_file(path, own)?;
        }
        for (&name, text) in &given.values {
            settings.values.insert(
                name,
                Setting {
                    text: text.clone(),
                    origin: Origin::Flag,
                },
            );
        }
        Ok(settings)
    }

    fn read_file(&mut self, path: &Path, own: &[&'static str]) -> Result<(), Failure> {
        let shown = path.display().to_string();
        let text =
            fs::read_to_string(path).map_err(|error| Failure::usage(unreadable(path, &error)))?;
        let table: toml::Table = text
            .parse()
            .map_err(|error| Failure::usage(format!("{shown}: {error}")))?;
        for (key, value) in table {
            let Some(name) = known(&key.replace('-', "_"), own) else {
                let text = format!("{shown}: unknown setting {key:?}");
                return Err(Failure::usage(text));
            };
            let Some(text) = text_of(&value) else {
                let text = format!("{shown}: {key} must be a string, a number or true or false");
                return Err(Failure::usage(text));
            };
            let origin = Origin::File(shown.clone());
            self.values.insert(name, Setting { text, origin });
        }
        Ok(())
    }

    /// The text of one option, when it was given anywhere.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(|setting| setting.text.as_str())
    }

    /// The value of one option, when it was given anywhere.
    pub(crate) fn parse<T, E: fmt::Display>(
        &self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Option<T>, Failure> {
        let parsed = self.text(name).map(parse).transpose();
        parsed.map_err(|error| Failure::usage(format!("{}: {error}", self.place(name))))
    }

    /// The protocol's parameters.
    pub(crate) fn config(&self) -> Result<Config, Failure> {
        let mut builder = Config::builder();
        for parameter in PARAMETERS {
            if let Some(text) = self.text(parameter.name) {
                builder.set(parameter.name, text).map_err(|error| {
                    Failure::usage(format!("{}: {error}", self.place(parameter.name)))
                })?;
            }
        }
        builder
            .build()
            .map_err(|error| Failure::usage(error.to_string()))
    }

    /// `--hops`, or `towline.toml: hops`.
    fn place(&self, name: &str) -> String {
        match self.values.get(name).map(|setting| &setting.origin) {
            Some(Origin::File(path)) => format!("{path}: {name}"),
            _ => format!("--{}", flag(name)),
        }
    }
}

/// The table's own spelling of a name.
fn known(name: &str, own: &[&'static str]) -> Option<&'static str> {
    let options = SESSION_OPTIONS.iter().map(|option| option.name);
    let parameters = PARAMETERS.iter().map(|parameter| parameter.name);
    let mut all = options.chain(parameters).chain(own.iter().copied());
    all.find(|known| *known == name)
}

/// A value as it would be written on the command line.
fn text_of(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Float(number) => Some(number.to_string()),
        toml::Value::Boolean(is_set) => Some(is_set.to_string()),
        toml::Value::Array(list) => {
            let texts: Option<Vec<String>> = list.iter().map(text_of).collect();
            texts.map(|texts| texts.join(","))
        }
        toml::Value::Datetime(_) | toml::Value::Table(_) => None,
    }
}
