//! Move data over IP networks completely, one-to-one and one-to-many.
#![forbid(unsafe_code)]

pub mod registry;

mod usage;
pub use usage::{Usage, UsageMeter};

pub use pgm::{
    Config, ConfigBuilder, ConfigError, Intervals, LateJoin, PARAMETERS, Parameter, Role,
};
