//! The main job, whole: the demo as whoever runs the tests, and as an ordinary user.

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::schema_kit::check_schema;

/// What the demo printed; the tree is this crate's own source.
fn demo(mut command: Command) -> Value {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    command
        .arg("demo")
        .arg(tree)
        .args(["--json", "--receivers", "2", "--loss", "5"]);
    let output = command.output().unwrap();
    let (status, said) = (output.status, String::from_utf8_lossy(&output.stderr));
    assert!(status.success(), "{status}: {said}");
    let (name, document) = check_schema(&String::from_utf8_lossy(&output.stdout));
    assert_eq!(name, "demo");
    for report in document["received"]
        .as_array()
        .unwrap()
        .iter()
        .chain([&document["sent"]])
    {
        check_schema(&report.to_string());
    }
    document
}

fn assert_proven(document: &Value) {
    assert_eq!(document["is_proven"], true, "{document:#}");
    assert!(document["files"].as_u64().unwrap() > 10);
    let receivers = document["sent"]["receivers"].as_array().unwrap();
    assert_eq!(receivers.len(), 2);
    for receiver in receivers {
        assert_eq!(receiver["root"], document["root"]);
    }
    for root in document["tool_roots"].as_array().unwrap() {
        assert_eq!(*root, document["tool_root"]);
    }
    if document["tool"] == "b3sum" {
        assert_eq!(document["root"], document["tool_root"]);
    }
}

#[test]
fn the_demo_proves_every_receiver() {
    assert_proven(&demo(Command::new(env!("CARGO_BIN_EXE_towline"))));
}

#[test]
fn the_demo_needs_no_root() {
    let ordinary = || {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command
            .arg(env!("CARGO_BIN_EXE_towline"))
            .env("HOME", "/nonexistent");
        command.env_remove("XDG_RUNTIME_DIR");
        command
    };
    // Only whether such a user can be had, and can reach the program, excuses.
    let refusal = match ordinary().arg("--version").output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(error) => Some(error.to_string()),
    };
    match refusal {
        None => assert_proven(&demo(ordinary())),
        Some(text) => println!("skipped: an ordinary user cannot run the program here: {text}"),
    }
}

/// How many running commands have `path` among their arguments.
fn commands_that_name(path: &Path) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let named = processes.filter(|process| {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(path.to_str().unwrap())
    });
    named.count()
}

#[test]
fn a_demo_that_is_ended_leaves_nothing() {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut child = Command::new(env!("CARGO_BIN_EXE_towline"))
        .arg("demo")
        .arg(tree)
        .args(["--json", "--receivers", "2", "--rate", "10kB/s"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut line = |wanted: &str| {
        let found = said.find(|line| line.as_ref().unwrap().contains(wanted));
        found.expect(wanted).unwrap()
    };
    let root = line("receiving into");
    let root = Path::new(root.strip_prefix("receiving into ").unwrap());
    assert!(root.is_dir());
    line("receivers waiting");
    let pid = child.id().to_string();
    let running = || commands_that_name(root);
    assert_eq!(
        running(),
        2,
        "the receivers' arguments name their directory"
    );
    let status = Command::new("kill").args(["-TERM", &pid]).status().unwrap();
    assert!(status.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let (name, document) = check_schema(&String::from_utf8_lossy(&output.stdout));
    assert_eq!(name, "demo-interrupted");
    assert_eq!(document["is_interrupted"], true, "{document:#}");
    assert!(!root.exists());
    assert_eq!(running(), 0);
}
