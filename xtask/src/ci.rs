//! The steps of continuous integration, in the order in which they are cheapest to fail.

use std::time::Instant;

use crate::{
    command::{self, StepOutcome, cargo_step, output},
    fuzz, suite, tidy,
};

/// One named step.
pub(crate) type Step = (&'static str, fn() -> StepOutcome);

/// Runs the steps, all of them even after a failure; true when none failed.
pub(crate) fn run(steps: &[Step]) -> bool {
    let mut closing = Vec::new();
    let mut passed = true;
    for (name, step) in steps {
        println!("==> {name}");
        let started = Instant::now();
        let outcome = step();
        let seconds = started.elapsed().as_secs_f64();
        let line = match outcome {
            StepOutcome::Passed => format!("ok       {name} ({seconds:.1} s)"),
            StepOutcome::Skipped(reason) => format!("skipped: {name}: {reason}"),
            StepOutcome::Failed(reason) => {
                passed = false;
                format!("FAILED   {name}: {reason}")
            }
        };
        println!("{line}");
        closing.push(line);
    }
    if closing.len() > 1 {
        println!("\n{}", closing.join("\n"));
    }
    passed
}

/// The comparisons of `crates/bench` with the caller's arguments, on optimised programs.
pub(crate) fn bench(args: &[String]) -> bool {
    let build = ["build", "--release", "--locked", "--package", "towline-cli"];
    let mut run = vec![
        "run",
        "--quiet",
        "--release",
        "--locked",
        "--package",
        "towline-bench",
        "--",
    ];
    run.extend(args.iter().map(String::as_str));
    cargo_step(&build, &[]) == StepOutcome::Passed && cargo_step(&run, &[]) == StepOutcome::Passed
}

/// Runs one transfer at full rate for long (`args`: seconds, 60 unless given); watches its memory.
pub(crate) fn soak(args: &[String]) -> bool {
    let seconds = args.first().map_or("60", String::as_str);
    bench(&["--soak".to_owned(), seconds.to_owned()])
}

fn fmt() -> StepOutcome {
    cargo_step(&["fmt", "--all", "--check"], &[])
}

fn clippy() -> StepOutcome {
    cargo_step(
        &[
            "clippy",
            "--workspace",
            "--all-targets",
            "--locked",
            "--",
            "-D",
            "warnings",
        ],
        &[],
    )
}

fn doc() -> StepOutcome {
    cargo_step(
        &[
            "doc",
            "--workspace",
            "--no-deps",
            "--document-private-items",
            "--locked",
        ],
        &[("RUSTDOCFLAGS", "-D warnings")],
    )
}

fn tidy_step() -> StepOutcome {
    let findings = tidy::check(&command::root());
    for finding in &findings {
        println!("{finding}");
    }
    StepOutcome::of(findings.is_empty(), format!("{} findings", findings.len()))
}

fn test_step() -> StepOutcome {
    StepOutcome::of(suite::run(&[]), "see the list above")
}

fn fuzz_step() -> StepOutcome {
    fuzz::explore(fuzz::SMOKE_SECONDS)
}

/// Type-checks the pure crates for wasm32 (the cheapest proof that they make no system call) and
/// the portable ones for Windows and 64-bit Arm.
fn targets() -> StepOutcome {
    let rules = match tidy::Rules::load(&command::root()) {
        Ok(rules) => rules,
        Err(text) => return StepOutcome::Failed(text),
    };
    let plan: [(&str, Vec<String>); 3] = [
        (
            "wasm32-unknown-unknown",
            rules.packages(|krate| krate.is_pure),
        ),
        (
            "x86_64-pc-windows-gnu",
            rules.packages(|krate| krate.is_portable),
        ),
        (
            "aarch64-unknown-linux-gnu",
            rules.packages(|krate| krate.is_portable),
        ),
    ];
    let mut skipped = Vec::new();
    for (target, packages) in plan {
        if !is_target_installed(target) {
            println!("skipped: target {target} is not installed and cannot be added here");
            skipped.push(target);
            continue;
        }
        // A type-check needs no C cross compiler, which BLAKE3's build script would look for.
        let env = [("CARGO_FEATURE_PURE", "1")];
        let mut args = vec!["check", "--locked", "--lib", "--target", target];
        args.extend(packages.iter().flat_map(|package| ["-p", package.as_str()]));
        if let StepOutcome::Failed(text) = cargo_step(&args, &env) {
            return StepOutcome::Failed(text);
        }
    }
    if skipped.is_empty() {
        StepOutcome::Passed
    } else {
        StepOutcome::Skipped(format!("no {}", skipped.join(", ")))
    }
}

fn is_target_installed(target: &str) -> bool {
    let is_listed = || {
        output("rustup", &["target", "list", "--installed"])
            .is_some_and(|list| list.lines().any(|line| line.trim() == target))
    };
    is_listed() || (output("rustup", &["target", "add", target]).is_some() && is_listed())
}

/// The house rules alone.
pub(crate) const TIDY: Step = ("tidy", tidy_step);
/// The other platforms alone.
pub(crate) const TARGETS: Step = ("targets", targets);
/// What can be said without running the product.
pub(crate) const LINT: &[Step] = &[
    ("fmt", fmt),
    TIDY,
    ("clippy", clippy),
    ("doc", doc),
    TARGETS,
];
/// Everything that continuous integration asks for.
pub(crate) const EVERYTHING: &[Step] = &[
    ("fmt", fmt),
    TIDY,
    ("clippy", clippy),
    ("doc", doc),
    TARGETS,
    ("test", test_step),
    ("fuzz", fuzz_step),
];
