//! Fuzzing. The ordinary tests replay the committed corpora. Where cargo-fuzz and a nightly
//! toolchain are installed, each target also looks for new inputs.

use std::{fs, path::Path, process::Command};

use crate::{
    command::{StepOutcome, cargo_step, output, root},
    suite,
};

/// Replays the corpora, then looks for new inputs; `args` may give the seconds for each target.
pub(crate) fn run(args: &[String]) -> bool {
    let seconds = match args.first().map(|text| text.parse::<u32>()) {
        None => 60,
        Some(Ok(seconds)) => seconds,
        Some(Err(_)) => {
            eprintln!("usage: cargo xtask fuzz [SECONDS for each target]");
            return false;
        }
    };
    let replayed = suite::run(&REPLAY.map(str::to_owned), &[]);
    match explore(seconds) {
        StepOutcome::Passed => replayed,
        StepOutcome::Skipped(reason) => {
            println!("skipped: {reason}");
            replayed
        }
        StepOutcome::Failed(reason) => {
            println!("FAILED: {reason}");
            false
        }
    }
}

/// Runs every fuzz target for `seconds`, also when one has found a fault.
pub(crate) fn explore(seconds: u32) -> StepOutcome {
    let targets = targets(&root());
    if targets.is_empty() {
        return StepOutcome::Skipped("there is no fuzz target yet".into());
    }
    if output("cargo", &["+nightly", "fuzz", "--version"]).is_none() {
        return StepOutcome::Skipped(
            "exploring needs cargo-fuzz and a nightly toolchain (cargo install cargo-fuzz; \
             rustup toolchain install nightly); the corpora are replayed by the tests"
                .into(),
        );
    }
    let explored = targets.iter().map(|target| explore_one(target, seconds));
    let faults: Vec<String> = explored.filter_map(Result::err).collect();
    if faults.is_empty() {
        StepOutcome::Passed
    } else {
        StepOutcome::Failed(faults.join("\n"))
    }
}

/// Type-checks the fuzz targets, which are outside the workspace.
pub(crate) fn check() -> StepOutcome {
    let manifest = "fuzz/Cargo.toml";
    let fetch = ["fetch", "--quiet", "--locked", "--manifest-path", manifest];
    if let StepOutcome::Failed(_) = cargo_step(&fetch, &[]) {
        return StepOutcome::Skipped("libfuzzer-sys cannot be fetched here".into());
    }
    let mut check = vec!["check", "--locked", "--bins", "--manifest-path", manifest];
    // Only linking needs libFuzzer, and a C++ compiler for it; a check links nothing.
    check.push("--no-default-features");
    cargo_step(&check, &[])
}

/// Returns the names of the fuzz targets, sorted.
pub(crate) fn targets(root: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(root.join("fuzz/fuzz_targets")) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .filter_map(|path| {
            path.file_stem()
                .map(|stem| stem.to_string_lossy().into_owned())
        })
        .collect();
    names.sort();
    names
}

/// Fuzzes one target. New inputs go to `fuzz/corpus-found`, which is not committed; the committed
/// seeds are only read.
fn explore_one(target: &str, seconds: u32) -> Result<(), String> {
    let found = root().join("fuzz/corpus-found").join(target);
    fs::create_dir_all(&found).map_err(|error| format!("{}: {error}", found.display()))?;
    println!("==> fuzz {target} for {seconds} s");
    let status = Command::new("cargo")
        .current_dir(root())
        .args(["+nightly", "fuzz", "run", target])
        .arg(&found)
        .arg(root().join("fuzz/corpus").join(target))
        .args([
            "--",
            &format!("-max_total_time={seconds}"),
            "-verbosity=0",
            "-timeout=10",
        ])
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(format!(
            "fuzz target {target} found a fault (see fuzz/artifacts/{target})"
        )),
        Err(error) => Err(format!("cargo fuzz run {target}: {error}")),
    }
}

/// The tests that replay the corpora.
const REPLAY: [&str; 2] = ["--package=towline-fuzzing", "--test=corpus"];
