//! Every scenario file, with its seeds.
#![expect(
    clippy::disallowed_methods,
    reason = "the scenarios are files; what runs them touches none"
)]

use std::{fs, path::Path};

use towline_sim::{Plan, replay::must_hold, run};

#[test]
fn every_scenario_holds() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut paths: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    assert!(paths.len() > 15, "the scenarios are not there");
    let out = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mut failed = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        let plan = Plan::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let again = format!("--scenario {} --seed", path.display());
        let fails = |seed| must_hold(&plan, seed, &again, out).err();
        failed.extend((0..plan.seeds).filter_map(fails));
    }
    assert!(
        failed.is_empty(),
        "{} runs failed\n{}",
        failed.len(),
        failed.join("\n\n")
    );
}

/// What the scenario of the forger shows is the key's work: without, the same packets spoil
/// messages.
#[test]
fn without_the_key_the_forger_of_messages_is_believed() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/forger-keys.toml");
    let mut plan = Plan::parse(&fs::read_to_string(path).unwrap()).unwrap();
    for end in plan.senders.iter_mut().chain(&mut plan.receivers) {
        end.secret = None;
    }
    for seed in 0..plan.seeds {
        let report = run(&plan, seed).unwrap();
        assert!(!report.is_good(), "seed {seed}: {report}");
    }
}

#[test]
fn a_run_that_fails_says_with_which_command_it_fails_again() {
    let path = "scenarios/forger-keys.toml";
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let mut plan = Plan::parse(&text).unwrap();
    for end in plan.senders.iter_mut().chain(&mut plan.receivers) {
        end.secret = None;
    }
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("again");
    let again = format!("--scenario {path} --seed");
    let said = must_hold(&plan, 0, &again, &out).unwrap_err();
    let command = format!("again: cargo run -p towline-sim -- --scenario {path} --seed 0");
    assert!(said.contains(&command), "{said}");
}
