//! The generated reference (parameters, counters, exit codes): it is made from the declarations in
//! the code into `docs/src/reference`, and a test compares it. The program itself makes manual
//! pages and completions when it is installed.

use crate::command::{StepOutcome, cargo_step};

/// Generates the reference; true when that worked.
pub(crate) fn run() -> bool {
    let run = ["run", "--quiet", "--package", "towline-cli"];
    cargo_step(
        &[&run[..], &["--", "docs", "docs/src/reference"]].concat(),
        &[],
    ) == StepOutcome::Passed
}
