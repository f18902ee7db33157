//! Reports on the program that runs after each complete transfer: `recv --exec`.

use std::path::Path;

use towline::{Hook, HookError, HookFailure};

use crate::{
    failure::Failure,
    report::{self, Output},
};

/// Checks that the program in `words` can be run, before the command waits for any sender.
///
/// # Errors
/// When there is no such program, or it may not be executed.
pub(super) fn check(words: &[String]) -> Result<(), Failure> {
    let Some(program) = words.first() else {
        return Ok(());
    };
    Hook::check(program).map_err(|error| {
        let operation = format!("--exec: cannot run {}", report::shown(Path::new(program)));
        let cause = match &error {
            HookError::NotExecutable(path) => {
                format!(
                    "{path} may not be executed; run `chmod +x {path}`",
                    path = report::shown(path)
                )
            }
            other => other.to_string(),
        };
        Failure::environment(&operation, &cause)
    })
}

/// Gives the programs a turn, and prints which failed. Returns true when none runs or waits to run.
pub(super) fn look(hook: &mut Hook, output: &Output) -> bool {
    let is_done = hook.turn();
    while let Some(failure) = hook.pop_failure() {
        let program = hook.words().join(" ");
        let text = match &failure {
            HookFailure::NotRun { path, cause } => {
                format!("was not run for {}: {cause}", report::shown(path))
            }
            ended => ended.to_string(),
        };
        output.note(&format!("--exec {program} {text}"));
    }
    is_done
}
