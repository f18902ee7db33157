//! What a program takes on with the library: neither captures, nor namespaces, nor plots.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{collections::BTreeSet, fs, path::Path, process::Command};

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

/// The foreign crates that a build with these features needs, in order.
fn foreign(options: &[&str]) -> Vec<String> {
    let text = tree(&[options, &["--prefix", "none"]].concat());
    let lib = |line: &str| line.split_whitespace().next().map(str::to_owned);
    let is_foreign = |name: &String| name != "towline" && !name.starts_with("towline_");
    let all: BTreeSet<String> = text.lines().filter_map(lib).filter(is_foreign).collect();
    all.into_iter().collect()
}

#[test]
fn messages_alone_need_few_crates() {
    // BLAKE3 (keys), system calls, and what derives error types while it is compiled.
    let hashes = ["arrayvec", "blake3", "constant_time_eq", "cpufeatures"];
    let system = ["bitflags", "cfg_if", "libc", "linux_raw_sys", "rustix"];
    let derives = ["proc_macro2", "quote", "syn", "unicode_ident"];
    let errors = ["thiserror", "thiserror_impl"];
    let mut expected = [&hashes[..], &system, &derives, &errors].concat();
    expected.sort_unstable();
    assert_eq!(foreign(&["--no-default-features"]), expected);
}

#[test]
fn the_library_pulls_in_neither_capture_nor_lab_nor_plots() {
    let text = tree(&["--all-features", "--prefix", "none"]);
    let crates: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    for must in ["towline", "towline_net", "towline_pgm", "globset"] {
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
        "io_uring",
        "libloading",
        "nix",
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
    let shown: Vec<&str> = shown.split_whitespace().collect();
    let there = tree(&["--depth", "1", "--prefix", "none"]);
    assert_eq!(shown, there.lines().collect::<Vec<&str>>());
}
