//! `clock`.

use clap::Args;

/// Show what this host's clocks are good for.
#[derive(Debug, Args)]
#[command(after_help = "\
It changes nothing and needs no privileges. Exit code 1: one-way delays cannot be had from this
clock, and the report says why.

Examples:
  towline clock
  towline clock --json")]
pub(crate) struct ClockArgs {}
