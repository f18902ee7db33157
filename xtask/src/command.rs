//! Running other programs, and what came of it.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// What became of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StepOutcome {
    /// It ran and found nothing wrong.
    Passed,
    /// It could not run here, for this reason.
    Skipped(String),
    /// It ran and failed, or should have run and could not.
    Failed(String),
}

impl StepOutcome {
    /// Passed when `is_fine`, else failed with `text`.
    pub(crate) fn of(is_fine: bool, text: impl Into<String>) -> Self {
        if is_fine {
            Self::Passed
        } else {
            Self::Failed(text.into())
        }
    }
}

/// The repository's root: two levels up from nothing that could move, xtask's own manifest.
pub(crate) fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest
        .parent()
        .map_or_else(|| manifest.to_path_buf(), Path::to_path_buf)
}

/// The cargo that runs us, so that one toolchain does everything.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Runs `cargo ARGS` with its output passed through.
pub(crate) fn cargo_step(args: &[&str], env: &[(&str, &str)]) -> StepOutcome {
    let mut command = cargo();
    command.args(args).envs(env.iter().copied());
    match command.status() {
        Ok(status) => StepOutcome::of(status.success(), format!("cargo {}", args.join(" "))),
        Err(error) => StepOutcome::Failed(format!("cargo {}: {error}", args.join(" "))),
    }
}

/// Standard output of a program that succeeded; `None` when it is missing or fails.
pub(crate) fn output(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program)
        .args(args)
        .current_dir(root())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
