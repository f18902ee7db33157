//! Flags whose values mirror an enum of a library that knows nothing of command lines.

/// Declares `Name of Library { values }`: an enum for clap and for plans, and its conversion to the
/// library's enum, which has values of the same names.
macro_rules! mirror {
    (
        $(#[$about:meta])*
        $name:ident of $library:ty { $($(#[$help:meta])* $value:ident,)+ }
    ) => {
        $(#[$about])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize,
            schemars::JsonSchema,
        )]
        #[serde(rename_all = "kebab-case")]
        pub(crate) enum $name { $($(#[$help])* $value,)+ }

        impl From<$name> for $library {
            fn from(given: $name) -> Self {
                match given { $($name::$value => Self::$value,)+ }
            }
        }
    };
}
pub(super) use mirror;
