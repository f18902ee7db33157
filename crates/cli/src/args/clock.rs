//! Flags of `clock`.

use std::time::Duration;

use clap::Args;

use super::{Place, duration, place};

/// Show how accurate this host's clocks are, or compare them with another host's.
#[derive(Debug, Args)]
#[command(after_help = "\
It changes nothing and needs no privileges. Without HOST, the report says whether this host's clock
is accurate enough for one-way delays. With HOST, where `towline rtt reflect` must run, both ends
state how accurate their clocks are, and the report gives the delay of each direction with the sum
of both errors. Exit code 1: one-way delays cannot be measured, and the report says why.

Examples:
  towline clock
  towline clock 10.0.0.1
  towline clock 10.0.0.1 --count 1000 --json")]
pub(crate) struct ClockArgs {
    /// Host of a reflector (`towline rtt reflect`) to compare clocks with; port 7700 unless given
    #[arg(value_name = "HOST[:PORT]", value_parser = place)]
    pub(crate) target: Option<Place>,
    /// Number of time exchanges with the other host, 1 to 100000, ten milliseconds apart
    #[arg(long, value_name = "N", default_value_t = 100, requires = "target")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) count: u32,
    /// Longest wait for an answer
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1s")]
    #[arg(requires = "target")]
    pub(crate) timeout: Duration,
}
