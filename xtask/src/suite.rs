//! The test suite with a summary. It runs the checks, then `cargo test` for the whole workspace,
//! shortens the output, and ends with a line `N passed, N failed, N skipped` for both.
//!
//! A test that cannot run here prints `skipped: why` and returns; it counts as skipped, and the
//! reasons are listed. Tests marked `#[ignore]` count as skipped too. The whole output is kept in
//! `target/test.log`. A build that fails, or a test program that dies, counts as one failure.
//!
//! Many tests need real time, and share this machine's processors with others. So when at most five
//! tests fail, they run once more, alone. Lines before the summary name the tests that pass then.
//! Such a test has a defect, or shows a defect of the program: somebody has to look into it.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead as _, BufReader, Write},
    process::Stdio,
    time::Instant,
};

use crate::{
    ci::{self, Step},
    command::{StepOutcome, cargo, root},
};

/// Runs `checks`, each of which counts as one test, then `cargo test --workspace`, or what `args`
/// say. Returns true when nothing failed.
pub(crate) fn run(args: &[String], checks: &[Step]) -> bool {
    let started = Instant::now();
    let mut tally = Tally::default();
    for check in checks {
        let (outcome, _) = ci::perform(check);
        tally.check(check.0, outcome);
    }
    let failed_checks = tally.failed;
    let is_success = match run_all(args, &mut tally) {
        Ok(is_success) => is_success,
        Err(error) => {
            println!("cannot run cargo test: {error}");
            false
        }
    };
    if !is_success && tally.failed == failed_checks {
        // The compiler failed, or a test program was killed before it could report.
        tally.failed += 1;
    }
    for (reason, count) in &tally.reasons {
        println!("skipped: {reason} ({count} tests)");
    }
    for name in &tally.unsteady {
        println!("failed at first, passed when run once more: {name}");
    }
    for name in &tally.failures {
        println!("failed: {name}");
    }
    println!(
        "took {:.0} s; whole output in target/test.log",
        started.elapsed().as_secs_f64()
    );
    println!(
        "{} passed, {} failed, {} skipped",
        tally.passed, tally.failed, tally.skipped
    );
    is_success && tally.failed == 0
}

/// Tests the workspace, then the separate build with planted bugs; with `args`, runs only what they
/// say.
fn run_all(args: &[String], tally: &mut Tally) -> std::io::Result<bool> {
    std::fs::create_dir_all(root().join("target"))?;
    let mut log = File::create(root().join("target/test.log"))?;
    if !args.is_empty() {
        return stream(args, tally, &mut log);
    }
    let checks_failed = std::mem::take(&mut tally.failures);
    let mut is_success = stream(&words(&["--workspace"]), tally, &mut log)?;
    if !is_success && tally.is_worth_another_run(checks_failed.len()) {
        is_success = run_once_more(tally, &mut log)?;
    }
    tally.failures.splice(..0, checks_failed);
    is_success &= stream(&words(PLANTED), tally, &mut log)?;
    Ok(is_success)
}

/// Runs the failed tests once more, one at a time; true when all pass now.
fn run_once_more(tally: &mut Tally, log: &mut File) -> std::io::Result<bool> {
    println!("==> {} tests that failed, once more", tally.failures.len());
    let mut args = words(&["--workspace", "--lib", "--bins", "--tests", "--"]);
    args.extend(words(&["--test-threads=1", "--exact"]));
    args.extend(tally.failures.iter().cloned());
    let mut again = Tally::default();
    let is_success = stream(&args, &mut again, log)?;
    if is_success {
        tally.passes_after_all(&again);
    }
    Ok(is_success)
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// Runs cargo, passes each line of its output to `tally`, and prints the lines that a reader wants.
fn stream(args: &[String], tally: &mut Tally, log: &mut File) -> std::io::Result<bool> {
    let (reader, writer) = std::io::pipe()?;
    let mut command = cargo();
    command.args(["test", "--no-fail-fast", "--locked"]);
    let split = args
        .iter()
        .position(|arg| arg == "--")
        .unwrap_or(args.len());
    command.args(&args[..split]).args(["--", "--show-output"]);
    command.args(args.get(split + 1..).unwrap_or_default());
    if std::env::var_os(CASES_SEED).is_none() {
        command.env(CASES_SEED, "1");
    }
    command
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer);
    let mut child = command.spawn()?;
    // The command holds a writing end of the pipe; while it lives, the loop below cannot end.
    drop(command);
    for line in BufReader::new(reader).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        writeln!(log, "{line}")?;
        if tally.line(&line) {
            println!("{line}");
        }
    }
    Ok(child.wait()?.success())
}

/// The variable that seeds the property tests. The suite draws the same cases in every run, so that
/// only a change can make them fail; plain `cargo test` draws new ones.
const CASES_SEED: &str = "PROPTEST_RNG_SEED";

/// The proof that the simulation finds bugs: a separate build with planted bugs.
const PLANTED: &[&str] = &[
    "--package=towline-sim",
    "--features=planted-bugs",
    "--test=planted",
    "--test=fair_repair",
];

/// The most failed tests that chance may explain.
const UNSTEADY_MAX: usize = 5;

/// The counts of checks and tests, and the state of reading what `cargo test` prints.
#[derive(Debug, Default)]
struct Tally {
    passed: u64,
    failed: u64,
    skipped: u64,
    reasons: BTreeMap<String, u64>,
    failures: Vec<String>,
    /// Tests that failed at first, and passed when they ran once more.
    unsteady: Vec<String>,
    section: Section,
    /// The test whose output is being read is already counted as skipped.
    has_skipped: bool,
    /// Skipped tests of the present test program; its count of passed tests includes them.
    skips: u64,
}

impl Tally {
    /// Returns true when chance may explain so few failed tests, and the name of each is known.
    fn is_worth_another_run(&self, checks_failed: usize) -> bool {
        let tests_failed = self.failed - checks_failed as u64;
        self.failures.len() <= UNSTEADY_MAX && tests_failed == self.failures.len() as u64
    }

    /// Counts the failed tests as passed when all of them passed in the run `again`.
    fn passes_after_all(&mut self, again: &Self) {
        let count = self.failures.len() as u64;
        if again.passed >= count && again.failed == 0 {
            self.failed -= count;
            self.passed += count;
            self.unsteady.append(&mut self.failures);
        }
    }

    /// Counts a check, which cargo does not run as a test.
    fn check(&mut self, name: &str, outcome: StepOutcome) {
        match outcome {
            StepOutcome::Passed => self.passed += 1,
            StepOutcome::Failed(_) => {
                self.failed += 1;
                self.failures.push(name.to_owned());
            }
            StepOutcome::Skipped(reason) => {
                self.skipped += 1;
                *self.reasons.entry(format!("{name}: {reason}")).or_default() += 1;
            }
        }
    }

    /// Takes one line of output; true when the line is worth showing.
    fn line(&mut self, line: &str) -> bool {
        match line {
            "successes:" => self.section = Section::Successes,
            "failures:" => self.section = Section::Failures,
            _ => {}
        }
        if let Some(result) = line.strip_prefix("test result: ") {
            self.result(result);
            return false;
        }
        if line.starts_with("---- ") {
            self.has_skipped = false;
        }
        if self.section == Section::Successes {
            self.success_line(line);
            return false;
        }
        if let Some(name) = line
            .strip_prefix("test ")
            .and_then(|rest| rest.strip_suffix("... FAILED"))
        {
            self.failures
                .push(name.trim_end_matches([' ', '-']).to_owned());
        }
        let is_routine = line.starts_with("test ") && !line.ends_with("FAILED");
        let is_frame = line.is_empty() || line.starts_with("running ");
        !(is_routine || is_frame)
    }

    fn success_line(&mut self, line: &str) {
        let Some(reason) = line.strip_prefix("skipped: ") else {
            return;
        };
        *self.reasons.entry(reason.to_owned()).or_default() += u64::from(!self.has_skipped);
        self.skips += u64::from(!self.has_skipped);
        self.has_skipped = true;
    }

    /// Reads `ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s`.
    fn result(&mut self, text: &str) {
        let text = text.split_once(". ").map_or(text, |(_, counts)| counts);
        for part in text.split("; ") {
            let Some((count, kind)) = part.split_once(' ') else {
                continue;
            };
            let count: u64 = count.parse().unwrap_or(0);
            match kind {
                "passed" => self.passed += count.saturating_sub(self.skips),
                "failed" => self.failed += count,
                "ignored" => self.skipped += count,
                _ => {}
            }
        }
        self.skipped += self.skips;
        self.skips = 0;
        self.section = Section::Names;
    }
}

/// The part of a test program's output that is being read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Section {
    /// The list of tests; each test adds a line when it ends.
    #[default]
    Names,
    /// What passed tests have printed.
    Successes,
    /// What failed tests have printed.
    Failures,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_check_counts_as_one_test() {
        let mut tally = Tally::default();
        tally.check("fmt", StepOutcome::Passed);
        tally.check("clippy", StepOutcome::Failed("cargo clippy".to_owned()));
        tally.check("target", StepOutcome::Skipped("it is not there".to_owned()));
        assert_eq!((tally.passed, tally.failed, tally.skipped), (1, 1, 1));
        assert_eq!(tally.reasons.get("target: it is not there"), Some(&1));
        assert_eq!(tally.failures, ["clippy"]);
    }

    #[test]
    fn a_test_that_passes_when_run_once_more_is_named_and_counts_as_passed() {
        let first = "\
test a ... ok
test b ... FAILED
test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
";
        let counts = |tally: &Tally| (tally.passed, tally.failed, tally.unsteady.clone());
        for (second, after) in [
            ("ok. 1 passed; 0 failed", (2, 0, vec!["b".to_owned()])),
            ("FAILED. 0 passed; 1 failed", (1, 1, vec![])),
            ("ok. 0 passed; 0 failed", (1, 1, vec![])),
        ] {
            let (mut tally, mut again) = (Tally::default(), Tally::default());
            first.lines().for_each(|line| _ = tally.line(line));
            assert!(tally.is_worth_another_run(0));
            again.result(second);
            tally.passes_after_all(&again);
            assert_eq!(counts(&tally), after);
        }
        // One failure more than names, because a test program died.
        let mut tally = Tally {
            failed: 1,
            ..Tally::default()
        };
        assert!(!tally.is_worth_another_run(0));
        tally.failures = vec![String::new(); UNSTEADY_MAX + 1];
        tally.failed = tally.failures.len() as u64;
        assert!(!tally.is_worth_another_run(0));
    }

    #[test]
    fn passes_failures_and_skips_are_told_apart() {
        let text = "\
running 4 tests
test a ... ok
test b ... ok
test c ... FAILED
test d ... ignored

successes:

---- a stdout ----
skipped: no namespaces here
skipped: no namespaces here

---- b stdout ----
all good

successes:
    a
    b

failures:

---- c stdout ----
skipped: this line is of a test that failed
panicked

failures:
    c

test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
";
        let mut tally = Tally::default();
        let shown: Vec<&str> = text.lines().filter(|line| tally.line(line)).collect();
        assert_eq!((tally.passed, tally.failed, tally.skipped), (1, 1, 2));
        assert_eq!(tally.reasons.get("no namespaces here"), Some(&1));
        assert_eq!(tally.failures, ["c"]);
        assert!(shown.contains(&"panicked"), "{shown:?}");
        assert!(!shown.contains(&"all good"), "{shown:?}");
    }
}
