//! The steps of continuous integration, ordered so that a failure shows as early as possible.

use std::time::Instant;

use crate::{
    command::{self, StepOutcome, cargo_step, output, program_step},
    fuzz, ledger,
    tidy::{self, CrateRule},
    wasm,
};

/// One named step.
pub(crate) type Step = (&'static str, fn() -> StepOutcome);

/// Runs all steps, even after a failure; true when none failed.
pub(crate) fn run(steps: &[Step]) -> bool {
    let mut closing = Vec::new();
    let mut passed = true;
    for step in steps {
        let (outcome, line) = perform(step);
        passed &= !matches!(outcome, StepOutcome::Failed(_));
        closing.push(line);
    }
    if closing.len() > 1 {
        println!("\n{}", closing.join("\n"));
    }
    passed
}

/// Runs one step and prints its result; returns the outcome and the printed line.
pub(crate) fn perform(&(name, step): &Step) -> (StepOutcome, String) {
    println!("==> {name}");
    let started = Instant::now();
    let outcome = step();
    let seconds = started.elapsed().as_secs_f64();
    let line = match &outcome {
        StepOutcome::Passed => format!("ok       {name} ({seconds:.1} s)"),
        StepOutcome::Skipped(reason) => format!("skipped: {name}: {reason}"),
        StepOutcome::Failed(reason) => format!("FAILED   {name}: {reason}"),
    };
    println!("{line}");
    (outcome, line)
}

/// Runs the comparisons of `crates/bench` with the caller's arguments, on optimised programs.
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

/// Simulates seeds of the swarm; `args` gives their number, which is 10,000 by default.
pub(crate) fn sim(args: &[String]) -> bool {
    let count = match args {
        [] => Some(10_000),
        [text] => text.parse::<u64>().ok().filter(|&count| count > 0),
        _ => None,
    };
    let Some(count) = count else {
        eprintln!("usage: cargo xtask sim [SEEDS]");
        return false;
    };
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let mut run = vec!["run", "--quiet", "--release", "--locked"];
    run.extend(["--package", "towline-sim", "--", "--seeds"]);
    let (seeds, threads) = (format!("0..{count}"), threads.to_string());
    run.extend([&seeds, "--threads", &threads]);
    cargo_step(&run, &[]) == StepOutcome::Passed
}

/// Runs one long transfer at full rate (`args`: seconds, 60 by default), and watches losses, memory
/// and rate.
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

/// Tests the erasure codes that the bench compares, which are outside the workspace: they compile,
/// and each gives the right bytes.
fn rivals() -> StepOutcome {
    let manifest = "bench/rivals/Cargo.toml";
    let fetch = ["fetch", "--quiet", "--locked", "--manifest-path", manifest];
    if let StepOutcome::Failed(_) = cargo_step(&fetch, &[]) {
        return StepOutcome::Skipped("the rivals cannot be fetched here".into());
    }
    let test = ["test", "--quiet", "--locked", "--manifest-path", manifest];
    let place = ["--target-dir", "target/rivals"];
    cargo_step(&[&test[..], &place].concat(), &[])
}

fn ledger_step() -> StepOutcome {
    let findings = ledger::findings(&command::root());
    for finding in &findings {
        println!("{finding}");
    }
    StepOutcome::of(findings.is_empty(), format!("{} findings", findings.len()))
}

fn tidy_step() -> StepOutcome {
    let findings = tidy::check(&command::root());
    for finding in &findings {
        println!("{finding}");
    }
    StepOutcome::of(findings.is_empty(), format!("{} findings", findings.len()))
}

/// Checks the licences, sources and duplicate versions of dependencies; see deny.toml.
fn deny() -> StepOutcome {
    tool("cargo-deny", || {
        // cargo-deny reads every package in the lock file, also packages for other platforms.
        if command::cargo_output(&["fetch", "--locked"]).is_none() {
            return StepOutcome::Skipped("the dependencies cannot be fetched here".to_owned());
        }
        let check = ["deny", "--offline", "check", "bans", "licenses", "sources"];
        cargo_step(&check, &[])
    })
}

/// Looks for dependencies with known faults in the RustSec database, if it can be fetched.
fn advisories() -> StepOutcome {
    tool("cargo-deny", || {
        let is_fetched = command::cargo_output(&["deny", "fetch", "db"]).is_some();
        if is_fetched {
            cargo_step(&["deny", "check", "advisories"], &[])
        } else {
            StepOutcome::Skipped("the advisory database cannot be fetched here".to_owned())
        }
    })
}

/// Type-checks the library with the features that a program needs for messages alone.
fn messages_alone() -> StepOutcome {
    let lib = ["clippy", "-p", "towline", "--no-default-features", "--lib"];
    let strictly = ["--locked", "--", "-D", "warnings"];
    cargo_step(&[&lib[..], &strictly].concat(), &[])
}

/// Checks that all crates could be published as they are, if the registry can be reached. Does not
/// compile each crate from its package alone, as `cargo publish --workspace --dry-run` does: that
/// takes two minutes more.
fn publishable() -> StepOutcome {
    if command::cargo_output(&["info", "--quiet", "libc"]).is_none() {
        return StepOutcome::Skipped("the registry cannot be reached here".to_owned());
    }
    let publish = ["publish", "--workspace", "--dry-run", "--no-verify"];
    cargo_step(
        &[&publish[..], &["--allow-dirty", "--locked"]].concat(),
        &[],
    )
}

/// Looks for dependencies that nothing uses, and for files that no module declares.
fn unused() -> StepOutcome {
    tool("cargo-shear", || {
        cargo_step(&["shear", "--deny-warnings"], &[])
    })
}

fn spelling() -> StepOutcome {
    tool("typos", || program_step("typos", &["--format", "brief"]))
}

/// Runs a step that needs `program`; skips it when that is not installed.
fn tool(program: &str, step: impl FnOnce() -> StepOutcome) -> StepOutcome {
    if output(program, &["--version"]).is_some() {
        step()
    } else {
        let how = "scripts/setup.sh checks";
        StepOutcome::Skipped(format!("{program} is not installed ({how} does that)"))
    }
}

/// Links the pure crates for wasm32 and fails when a module imports anything: the cheapest proof
/// that they make no system call.
fn wasm32() -> StepOutcome {
    let rules = match tidy::Rules::load(&command::root()) {
        Ok(rules) => rules,
        Err(text) => return StepOutcome::Failed(text),
    };
    match install_target(wasm::TARGET) {
        Ok(()) => wasm::link(&rules.packages(|krate| krate.is_pure)),
        Err(reason) => StepOutcome::Skipped(reason),
    }
}

fn windows() -> StepOutcome {
    type_check("x86_64-pc-windows-gnu", |krate| krate.is_portable)
}

fn aarch64() -> StepOutcome {
    type_check("aarch64-unknown-linux-gnu", |krate| krate.is_portable)
}

/// Type-checks the libraries of the crates for which `wanted` holds, for the platform `target`.
fn type_check(target: &str, wanted: fn(&CrateRule) -> bool) -> StepOutcome {
    let rules = match tidy::Rules::load(&command::root()) {
        Ok(rules) => rules,
        Err(text) => return StepOutcome::Failed(text),
    };
    if let Err(reason) = install_target(target) {
        return StepOutcome::Skipped(reason);
    }
    let packages = rules.packages(wanted);
    let mut args = vec!["check", "--locked", "--lib", "--target", target];
    args.extend(packages.iter().flat_map(|package| ["-p", package.as_str()]));
    // A type-check needs no C cross compiler, but BLAKE3's build script would look for one.
    cargo_step(&args, &[("CARGO_FEATURE_PURE", "1")])
}

/// Installs `target` unless it is installed.
fn install_target(target: &str) -> Result<(), String> {
    let is_listed = || {
        output("rustup", &["target", "list", "--installed"])
            .is_some_and(|list| list.lines().any(|line| line.trim() == target))
    };
    if is_listed() {
        return Ok(());
    }
    if std::env::var_os(NO_INSTALL).is_some_and(|value| value == "1") {
        return Err(format!("it is not installed, and {NO_INSTALL} is set"));
    }
    if output("rustup", &["target", "add", target]).is_some() && is_listed() {
        Ok(())
    } else {
        Err("it is not installed, and rustup cannot add it here".to_owned())
    }
}

/// The variable that forbids installing anything when it is 1; scripts/setup.sh obeys it too.
const NO_INSTALL: &str = "TOWLINE_NO_INSTALL";

const FUZZ_CHECK: Step = ("fuzz targets compile", fuzz::check);
const WASM32: Step = ("wasm32 modules import nothing", wasm32);
const WINDOWS: Step = ("target x86_64-pc-windows-gnu", windows);
const AARCH64: Step = ("target aarch64-unknown-linux-gnu", aarch64);
/// The house rules alone.
pub(crate) const TIDY: Step = ("tidy", tidy_step);
/// The ledger of RFC 3208 alone.
pub(crate) const LEDGER: Step = ("ledger", ledger_step);
/// The other platforms alone.
pub(crate) const TARGETS: &[Step] = &[WASM32, WINDOWS, AARCH64];
/// Everything that is checked besides the tests; each check counts as one test. The checks that
/// fail fastest come first. The house rules and the ledger are missing here, because tests check
/// them.
pub(crate) const CHECKS: &[Step] = &[
    ("fmt", fmt),
    ("spelling", spelling),
    ("dependencies are allowed", deny),
    ("dependencies have no known fault", advisories),
    ("dependencies are used", unused),
    ("clippy", clippy),
    ("messages alone compile", messages_alone),
    ("doc", doc),
    ("crates can be published", publishable),
    FUZZ_CHECK,
    ("rivals of the bench give right bytes", rivals),
    WASM32,
    WINDOWS,
    AARCH64,
];
