//! PGM (RFC 3208) as pure state machines: source, receiver, windows, NAK state.
#![forbid(unsafe_code)]

mod config;
pub use config::{
    Config, ConfigBuilder, ConfigError, Intervals, LateJoin, PARAMETERS, Parameter, Role,
};

mod receiver;
pub use receiver::{Mode, Position, Ready, Receiver, ReceiverCounters, ReceiverSetup, Status};

mod source;
pub use source::{Burst, Full, Slot, Source, SourceCounters, SourceSetup};

#[doc(hidden)]
pub mod fuzzing;
