//! The main job, whole: the demo as whoever runs the tests, and as an ordinary user.

use std::{path::Path, process::Command};

use serde_json::Value;

/// What the demo printed; the tree is this crate's own source.
fn demo(mut command: Command) -> Result<Value, String> {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    command
        .arg("demo")
        .arg(tree)
        .args(["--json", "--receivers", "2", "--loss", "5"]);
    let output = command.output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let document: Value =
        serde_json::from_slice(&output.stdout).map_err(|error| format!("{error}: {said}"))?;
    assert!(
        output.status.success(),
        "{}: {said}: {document:#}",
        output.status
    );
    Ok(document)
}

fn assert_proven(document: &Value) {
    assert_eq!(document["schema"], "towline.demo");
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
    assert_proven(&demo(Command::new(env!("CARGO_BIN_EXE_towline"))).unwrap());
}

#[test]
fn the_demo_needs_no_root() {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command
        .arg(env!("CARGO_BIN_EXE_towline"))
        .env("HOME", "/nonexistent");
    command.env_remove("XDG_RUNTIME_DIR");
    match demo(command) {
        Ok(document) => assert_proven(&document),
        Err(text) => println!("skipped: an ordinary user cannot run the program here: {text}"),
    }
}
