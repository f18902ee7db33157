//! The generated reference (parameters, counters, exit codes). The command `towline` writes it from
//! the declarations in the code to `docs/src/reference`, and a test compares the two. It makes
//! manual pages and completions when it is installed.

use crate::command::{StepOutcome, cargo_step};

/// Generates the reference; true when that worked.
pub(crate) fn run() -> bool {
    let run = ["run", "--quiet", "--package", "towline-cli"];
    cargo_step(
        &[&run[..], &["--", "docs", "docs/src/reference"]].concat(),
        &[],
    ) == StepOutcome::Passed
}
