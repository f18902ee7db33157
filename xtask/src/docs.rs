//! The generated reference (parameters, counters, exit codes, JSON). The command `towline docs`
//! writes it from the declarations in the code to `docs/src/reference`, and a test compares it with
//! them. Manual pages and completions are made only when Towline is installed.

use crate::command::{StepOutcome, cargo_step};

/// Generates the reference; true when that worked.
pub(crate) fn run() -> bool {
    let run = ["run", "--quiet", "--package", "towline-cli"];
    cargo_step(
        &[&run[..], &["--", "docs", "docs/src/reference"]].concat(),
        &[],
    ) == StepOutcome::Passed
}
