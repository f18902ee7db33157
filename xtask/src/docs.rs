//! What is generated from declarations: shell completions and manual pages into `target/docs`, for
//! packages; the reference of parameters into `docs`, where a test compares it.

use std::fs;

use crate::command::{StepOutcome, cargo_step, root};

/// Generates everything; true when that worked.
pub(crate) fn run() -> bool {
    let made = cargo_step(
        &[
            "run",
            "--quiet",
            "--package",
            "towline-cli",
            "--",
            "docs",
            "target/docs",
            "--quiet",
        ],
        &[],
    );
    if made != StepOutcome::Passed {
        return false;
    }
    let copied = fs::create_dir_all(root().join("docs")).and_then(|()| {
        fs::copy(
            root().join("target/docs/parameters.md"),
            root().join("docs/parameters.md"),
        )
    });
    match copied {
        Ok(_) => {
            println!("wrote target/docs/completions, target/docs/man and docs/parameters.md");
            true
        }
        Err(error) => {
            println!("cannot write docs/parameters.md: {error}");
            false
        }
    }
}
