//! Parameters, declared once. Each row of the table says what a number is for, its default, its
//! range, how it is set and where the default comes from. Reference pages and command line flags
//! follow from these rows.
//!
//! `pgm` builds its configuration from rows of its own macro; all other crates declare constants
//! with [`parameters!`](crate::parameters!). Both kinds of row are a [`Parameter`].

use std::time::Duration;

use crate::quantity::{self, BYTE_RATE_FORM, DURATION_FORM, SIZE_FORM};

/// One row of the table of parameters.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// The name in `snake_case`; flags and TOML keys may use `-` for `_`. For a constant, the name
    /// of the constant.
    pub name: &'static str,
    /// What a text of the value looks like, in words.
    pub form: &'static str,
    /// What the value counts.
    pub unit: &'static str,
    /// Which end of a session uses the parameter.
    pub role: Role,
    /// Who can set the parameter.
    pub setting: Setting,
    /// Where the default comes from.
    pub source: &'static str,
    /// One line for the person who sets the parameter.
    pub help: &'static str,
    /// The default as text.
    pub default: fn() -> String,
    /// The range as text, both ends included, as in `1ms..1s`; or a word, such as `fixed`.
    pub range: fn() -> String,
}

/// The end of a session that uses a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The sender.
    Source,
    /// The receivers.
    Receiver,
    /// Both ends; they should agree.
    Both,
}

/// The person who can set a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// The owner of a session, by the parameter's name.
    ByName,
    /// The user of a command, by this flag, as in `send --timeout`.
    ByFlag(&'static str),
    /// Nobody.
    Fixed,
}

impl Setting {
    /// Makes the setting for the flag in `flags`; [`Setting::Fixed`] when `flags` is empty.
    #[must_use]
    pub const fn by_flag(flags: &[&'static str]) -> Self {
        match flags {
            [flag, ..] => Self::ByFlag(flag),
            [] => Self::Fixed,
        }
    }
}

/// A kind of value that a parameter can have.
pub trait Value: Copy {
    /// The type of a range's two ends.
    type Bound: Copy;
    /// The form of the text, in words that complete "is not ...".
    const FORM: &'static str;

    /// Returns the value that a text stands for.
    fn parse(text: &str) -> Option<Self>;
    /// Returns a text that [`Value::parse`] turns into this value.
    fn print(self) -> String;
    /// Returns true when every part of the value is in `low..=high`.
    fn is_within(self, low: Self::Bound, high: Self::Bound) -> bool;
    /// Returns the range as text.
    fn range(low: Self::Bound, high: Self::Bound) -> String;
}

/// Declares constants that are rows of the table, and `PARAMETERS`, the list of these rows.
///
/// A row is `NAME: type = value, unit, role, source, help;`. `set by` and a flag may follow the
/// role; without them the parameter is fixed.
#[macro_export]
macro_rules! parameters {
    ($(
        $name:ident : $kind:ty = $value:expr, $unit:literal, $role:ident $(set by $flag:literal)?,
        $source:literal, $help:literal;
    )+) => {
        $(
            #[doc = $help]
            #[doc = concat!("\n\n**Units**: ", $unit, ". **Source**: ", $source, ".")]
            pub const $name: $kind = $value;
        )+

        /// Every parameter of this crate, in the order of the reference manual.
        pub const PARAMETERS: &[$crate::parameter::Parameter] = &[
            $($crate::parameter::Parameter {
                name: stringify!($name),
                form: <$kind as $crate::parameter::Value>::FORM,
                unit: $unit,
                role: $crate::parameter::Role::$role,
                setting: $crate::parameter::Setting::by_flag(&[$($flag)?]),
                source: $source,
                help: $help,
                default: || <$kind as $crate::parameter::Value>::print($name),
                range: || match $crate::parameter::Setting::by_flag(&[$($flag)?]) {
                    $crate::parameter::Setting::Fixed => "fixed".to_owned(),
                    _ => "any".to_owned(),
                },
            },)+
        ];
    };
}

/// Implements the range of a kind whose values are in order.
macro_rules! ordered {
    () => {
        fn is_within(self, low: Self, high: Self) -> bool {
            (low..=high).contains(&self)
        }

        fn range(low: Self, high: Self) -> String {
            format!("{}..{}", low.print(), high.print())
        }
    };
}

impl Value for Duration {
    type Bound = Self;
    const FORM: &'static str = DURATION_FORM;

    fn parse(text: &str) -> Option<Self> {
        quantity::duration(text).ok()
    }

    fn print(self) -> String {
        quantity::duration_text(self)
    }

    ordered!();
}

impl Value for usize {
    type Bound = Self;
    const FORM: &'static str = SIZE_FORM;

    fn parse(text: &str) -> Option<Self> {
        Self::try_from(quantity::size(text).ok()?).ok()
    }

    fn print(self) -> String {
        quantity::size_text(self as u64)
    }

    ordered!();
}

impl Value for u64 {
    type Bound = Self;
    const FORM: &'static str = BYTE_RATE_FORM;

    fn parse(text: &str) -> Option<Self> {
        quantity::byte_rate(text).ok()
    }

    fn print(self) -> String {
        quantity::byte_rate_text(self)
    }

    ordered!();
}

impl Value for u32 {
    type Bound = Self;
    const FORM: &'static str = "a whole number such as 50 or 20k";

    fn parse(text: &str) -> Option<Self> {
        let number = text.trim().trim_end_matches('%');
        Self::try_from(quantity::count(number).ok()?).ok()
    }

    fn print(self) -> String {
        self.to_string()
    }

    ordered!();
}

impl Value for bool {
    type Bound = Self;
    const FORM: &'static str = "true or false";

    fn parse(text: &str) -> Option<Self> {
        match text.trim() {
            "true" | "on" | "yes" | "1" => Some(true),
            "false" | "off" | "no" | "0" => Some(false),
            _ => None,
        }
    }

    fn print(self) -> String {
        self.to_string()
    }

    fn is_within(self, _low: Self, _high: Self) -> bool {
        true
    }

    fn range(_low: Self, _high: Self) -> String {
        "true, false".to_owned()
    }
}

/// Short constructors for the table.
pub mod fixed {
    use std::time::Duration;

    /// A duration of zero.
    pub const ZERO: Duration = Duration::ZERO;

    /// Returns a duration of `n` microseconds.
    #[must_use]
    pub const fn us(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    /// Returns a duration of `n` milliseconds.
    #[must_use]
    pub const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// Returns a duration of `n` seconds.
    #[must_use]
    pub const fn s(n: u64) -> Duration {
        Duration::from_secs(n)
    }
}
