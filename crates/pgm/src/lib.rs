//! PGM (RFC 3208) as pure state machines: source, receiver, windows, NAK state.
#![forbid(unsafe_code)]

mod config;
pub use config::{
    Config, ConfigBuilder, ConfigError, Intervals, LateJoin, PARAMETERS, Parameter, Role,
};

mod source;
pub use source::{Burst, Full, Slot, Source, SourceCounters, SourceSetup};
