//! What a program takes on with the library: neither captures, nor namespaces, nor plots.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{fs, path::Path, process::Command};

/// What `cargo tree` says of the library's normal dependencies.
fn tree(options: &[&str]) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let fixed = "tree --offline --locked --package towline --edges normal --format {lib}";
    let output = Command::new(env!("CARGO"))
        .current_dir(root)
        .args(fixed.split(' '))
        .args(options)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    text
}

#[test]
fn the_library_pulls_in_neither_capture_nor_lab_nor_plots() {
    let text = tree(&["--no-default-features", "--prefix", "none"]);
    let crates: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    for must in ["towline", "towline_net", "towline_pgm"] {
        assert!(crates.contains(&must), "no {must} in {crates:?}");
    }
    let heavy = [
        "towline_capture",
        "towline_gauge",
        "towline_lab",
        "towline_measure",
        "clap",
        "flate2",
        "hdrhistogram",
        "ruzstd",
    ];
    for never in heavy {
        assert!(!crates.contains(&never), "{never} in {crates:?}");
    }
}

#[test]
fn the_architecture_shows_the_tree_as_it_is() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ARCHITECTURE.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, after) = page.split_once("$ cargo tree -p towline").unwrap();
    let (_, shown) = after.split_once('\n').unwrap();
    let (shown, _) = shown.split_once("```").unwrap();
    assert_eq!(shown, tree(&["--depth", "1"]));
}
