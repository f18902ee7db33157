//! Options and parameters of a session by name, read from the texts of their flags.

use std::{collections::BTreeMap, fmt};

use towline::{Config, PARAMETERS};

use crate::{
    args::{Given, flag},
    failure::Failure,
};

/// The texts that the user gave, each under the name of its option or parameter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings<'a>(&'a BTreeMap<&'static str, String>);

impl<'a> Settings<'a> {
    pub(crate) const fn new(given: &'a Given) -> Self {
        Self(&given.values)
    }

    /// Reads the value of one option; `None` when it was not given.
    pub(crate) fn parse<T, E: fmt::Display>(
        self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Option<T>, Failure> {
        let parsed = self.0.get(name).map(|text| parse(text)).transpose();
        parsed.map_err(|error| refused(name, &error))
    }

    /// Reads the protocol's parameters.
    pub(crate) fn config(self) -> Result<Config, Failure> {
        let mut builder = Config::builder();
        for parameter in PARAMETERS {
            if let Some(text) = self.0.get(parameter.name) {
                let set = builder.set(parameter.name, text);
                set.map_err(|error| refused(parameter.name, &error))?;
            }
        }
        builder
            .build()
            .map_err(|error| Failure::usage(error.to_string()))
    }
}

fn refused(name: &str, error: &impl fmt::Display) -> Failure {
    Failure::Usage(format!("--{}: {error}", flag(name)))
}
