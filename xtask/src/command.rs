//! Runs other programs and reports how they ended.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The outcome of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StepOutcome {
    /// The step ran and found nothing wrong.
    Passed,
    /// The step could not run here, for this reason.
    Skipped(String),
    /// The step ran and failed, or should have run and could not.
    Failed(String),
}

impl StepOutcome {
    /// Makes `Passed` when `is_fine`, else `Failed` with `text`.
    pub(crate) fn of(is_fine: bool, text: impl Into<String>) -> Self {
        if is_fine {
            Self::Passed
        } else {
            Self::Failed(text.into())
        }
    }
}

/// Returns the repository's root: the parent of xtask's directory.
pub(crate) fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest
        .parent()
        .map_or_else(|| manifest.to_path_buf(), Path::to_path_buf)
}

/// Makes a command for the cargo that runs this program, so that all steps use one toolchain.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).env("PATH", path());
    command
}

/// Returns the search path: the tools that `scripts/setup.sh checks` installed, then the caller's
/// path.
fn path() -> OsString {
    let ours = root().join("target/checks/bin");
    let theirs = std::env::var_os("PATH").unwrap_or_default();
    let all = std::iter::once(ours).chain(std::env::split_paths(&theirs));
    std::env::join_paths(all).unwrap_or(theirs)
}

/// Runs `cargo ARGS`; its output goes to the terminal.
pub(crate) fn cargo_step(args: &[&str], env: &[(&str, &str)]) -> StepOutcome {
    step(
        cargo().args(args).envs(env.iter().copied()),
        &format!("cargo {}", args.join(" ")),
    )
}

/// Runs `program ARGS`; its output goes to the terminal.
pub(crate) fn program_step(program: &str, args: &[&str]) -> StepOutcome {
    step(
        named(program).args(args),
        &format!("{program} {}", args.join(" ")),
    )
}

fn step(command: &mut Command, what: &str) -> StepOutcome {
    match command.status() {
        Ok(status) => StepOutcome::of(status.success(), what),
        Err(error) => StepOutcome::Failed(format!("{what}: {error}")),
    }
}

/// Returns the standard output of a program; `None` when the program is missing or fails.
pub(crate) fn output(program: &str, args: &[&str]) -> Option<String> {
    printed(named(program).args(args))
}

/// Returns the standard output of cargo, as [`output`] does.
pub(crate) fn cargo_output(args: &[&str]) -> Option<String> {
    printed(cargo().args(args))
}

fn printed(command: &mut Command) -> Option<String> {
    let output = command.stderr(Stdio::null()).output().ok()?;
    let is_success = output.status.success();
    is_success.then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn named(program: &str) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root()).env("PATH", path());
    command
}
