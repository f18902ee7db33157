//! Compares the public surface of the library `towline` with an agreed list: whoever changes the
//! surface must change the list, too.
//!
//! Nothing is published yet, so there is no release to compare with. The surface is read from
//! rustdoc's JSON, which the pinned toolchain writes when unstable features are allowed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

#[test]
fn the_public_surface_is_as_listed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let json = rustdoc_json(&root);
    let surface = public_api::Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()
        .expect("public-api fits the pinned toolchain: rustdoc-types has its format's number");
    let surface = surface.to_string();
    let path = root.join("crates/towline/api.txt");
    if std::env::var_os("TOWLINE_ACCEPT_API").is_some() {
        fs::write(&path, &surface).unwrap();
    }
    let agreed = fs::read_to_string(&path).unwrap();
    let only_in = |a: &str, b: &str, sign: &str| -> String {
        let lines = a
            .lines()
            .filter(|line| !b.lines().any(|other| other == *line));
        lines.map(|line| format!("{sign} {line}\n")).collect()
    };
    assert!(
        agreed == surface,
        "the public surface is not crates/towline/api.txt:\n{}{}\
         meant so? TOWLINE_ACCEPT_API=1 cargo test -p xtask --test api, and a line in CHANGELOG.md",
        only_in(&agreed, &surface, "-"),
        only_in(&surface, &agreed, "+"),
    );
}

/// When a signature shows a type that `towline` does not name, the type has no page in the
/// documentation, and nobody can write a function that takes it.
#[test]
fn every_type_of_a_signature_has_a_name_in_towline() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let surface = fs::read_to_string(root.join("crates/towline/api.txt")).unwrap();
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let named: Vec<&str> = surface
        .lines()
        .filter_map(|line| line.strip_prefix("pub use towline::"))
        .collect();
    let words = surface.split(|c| !is_path(c));
    let foreign = words.filter(|word| word.starts_with("towline_"));
    let unnamed: Vec<&str> = foreign
        .filter(|path| {
            let name = path
                .rsplit("::")
                .find(|part| part.starts_with(char::is_uppercase));
            name.is_some_and(|name| !named.contains(&name))
        })
        .collect();
    assert!(
        unnamed.is_empty(),
        "crates/towline/src/lib.rs does not export {unnamed:?}"
    );
}

/// Documents `towline` as JSON. Only rustdoc is allowed unstable features: for the compiler the
/// setting would build every dependency again.
fn rustdoc_json(root: &Path) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| root.join("target"));
    let status = Command::new(env!("CARGO"))
        .current_dir(root)
        .env("RUSTDOC", root.join("scripts/rustdoc-unstable.sh"))
        .args([
            "rustdoc",
            "--quiet",
            "--locked",
            "--package",
            "towline",
            "--lib",
            "--",
        ])
        .args([
            "-Z",
            "unstable-options",
            "--output-format",
            "json",
            "--cap-lints",
            "allow",
        ])
        .status();
    assert!(status.expect("cargo runs").success(), "rustdoc failed");
    target.join("doc/towline.json")
}
