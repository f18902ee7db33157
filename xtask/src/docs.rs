//! The reference (parameters, counters, exit codes), generated from the declarations in the code
//! into `docs/src/reference`, where a test compares it. Manual pages and
//! completions are made by the program itself when it is installed.

use crate::command::{StepOutcome, cargo_step};

/// Generates it; true when that worked.
pub(crate) fn run() -> bool {
    let run = ["run", "--quiet", "--package", "towline-cli"];
    cargo_step(
        &[&run[..], &["--", "docs", "docs/src/reference"]].concat(),
        &[],
    ) == StepOutcome::Passed
}
