//! Dependencies between crates: a crate uses exactly the crates and outside libraries that the
//! rules give it. Also checks the lint settings that each crate must have.

use std::{collections::BTreeSet, fs, path::Path};

use super::{
    Finding,
    rules::{CrateRule, Rules, directory, package_name, table},
};

/// Checks every manifest of the workspace against the rules.
pub(super) fn check(root: &Path, rules: &Rules, findings: &mut Vec<Finding>) {
    let pure_lints = fs::read_to_string(root.join(PURE_LINTS)).unwrap_or_default();
    let mut used_in_tests = BTreeSet::new();
    for name in directories(root) {
        let manifest_path = format!("{}/Cargo.toml", directory(&name));
        let Some(rule) = rules.crates.get(&name) else {
            let text = "this crate is not in xtask/rules.toml: say what it may depend on";
            findings.push(Finding::new("arrows", &manifest_path, text));
            continue;
        };
        match table(&root.join(&manifest_path)) {
            Ok(manifest) => {
                check_manifest(&name, rule, rules, &manifest, findings);
                unused(&name, rule, &manifest, findings);
                licences(root, &name, &manifest, findings);
                let tests = dependencies(&manifest).into_iter();
                let tests = tests.filter(|(section, ..)| *section == "dev-dependencies");
                used_in_tests.extend(tests.map(|(_, dependency, _)| dependency));
            }
            Err(text) => findings.push(Finding::new("arrows", &manifest_path, &text)),
        }
        check_lints(root, &name, rule, &pure_lints, findings);
    }
    for given in rules.dev_internal.iter().chain(&rules.dev_external) {
        if !used_in_tests.contains(given) {
            let text = format!("no crate's tests use {given}: take it off the list");
            findings.push(Finding::new("permission", RULES, &text).about(given));
        }
    }
    for name in rules.crates.keys() {
        if !root.join(directory(name)).join("Cargo.toml").exists() {
            let text = format!("crate {name} has rules but does not exist");
            findings.push(Finding::new("arrows", RULES, &text));
        }
    }
}

/// Checks that the crate, if it is published, has the licence files: its package holds no file from
/// outside its directory.
fn licences(root: &Path, name: &str, manifest: &toml::Table, findings: &mut Vec<Finding>) {
    let package = manifest.get("package");
    let publish = package.and_then(|package| package.get("publish"));
    if publish.and_then(toml::Value::as_bool) == Some(false) {
        return;
    }
    for file in LICENCES {
        let path = format!("{}/{file}", directory(name));
        let (own, root_s) = (fs::read(root.join(&path)), fs::read(root.join(file)));
        if own.ok().is_none_or(|own| root_s.ok() != Some(own)) {
            let text = format!("a published crate has the licence: make it a link to ../../{file}");
            findings.push(Finding::new("licence", &path, &text));
        }
    }
}

/// Returns the short names of the crates that exist, sorted.
pub(super) fn directories(root: &Path) -> Vec<String> {
    let entries = fs::read_dir(root.join("crates"))
        .into_iter()
        .flatten()
        .filter_map(Result::ok);
    let with_manifest = entries.filter(|entry| entry.path().join("Cargo.toml").exists());
    let names = with_manifest.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.chain(["xtask".to_owned()]).collect();
    names.sort();
    names
}

fn check_manifest(
    name: &str,
    rule: &CrateRule,
    rules: &Rules,
    manifest: &toml::Table,
    findings: &mut Vec<Finding>,
) {
    let path = format!("{}/Cargo.toml", directory(name));
    let mut find = |what: &str, text: &str| {
        findings.push(Finding::new("arrows", &path, text).about(what));
    };
    let package = manifest
        .get("package")
        .and_then(|package| package.get("name"));
    if package.and_then(toml::Value::as_str) != Some(&package_name(name)) {
        find(
            "name",
            &format!("the package must be called {}", package_name(name)),
        );
    }
    if manifest
        .get("lints")
        .and_then(|lints| lints.get("workspace"))
        .is_none()
    {
        find(
            "lints",
            "the workspace lints must apply: `[lints] workspace = true`",
        );
    }
    for (section, dependency, value) in dependencies(manifest) {
        let is_dev = section == "dev-dependencies";
        let is_internal = rules.crates.contains_key(&dependency);
        let (mine, dev) = if is_internal {
            (&rule.may_depend_on, &rules.dev_internal)
        } else {
            (&rule.external, &rules.dev_external)
        };
        if !(mine.contains(&dependency) || is_dev && dev.contains(&dependency)) {
            let text = format!("{section} may not name {dependency} (xtask/rules.toml)");
            find(&dependency, &text);
        }
        if value.get("workspace").is_none() {
            find(
                &dependency,
                &format!("{dependency}: versions belong into the workspace manifest"),
            );
        }
    }
}

/// Finds dependencies that the rules allow and the crate does not use.
fn unused(name: &str, rule: &CrateRule, manifest: &toml::Table, findings: &mut Vec<Finding>) {
    let used = dependencies(manifest);
    for given in rule.may_depend_on.iter().chain(&rule.external) {
        if !used.iter().any(|(_, dependency, _)| dependency == given) {
            let text = format!("{name} does not use {given}: take the permission away");
            findings.push(Finding::new("permission", RULES, &text).about(given));
        }
    }
}

/// Checks the crate's lint settings: the compiler must refuse unsafe code, and clippy must refuse
/// what a pure crate may not name.
fn check_lints(
    root: &Path,
    name: &str,
    rule: &CrateRule,
    pure_lints: &str,
    findings: &mut Vec<Finding>,
) {
    let home = directory(name);
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    for file in ["lib.rs", "main.rs"] {
        let path = format!("{home}/src/{file}");
        let text = read(&path);
        if !text.is_empty() && !rule.may_be_unsafe && !text.contains("\n#![forbid(unsafe_code)]\n")
        {
            let text = "every crate but the homes of unsafe says #![forbid(unsafe_code)]";
            findings.push(Finding::new("unsafe", &path, text));
        }
    }
    let lints = format!("{home}/clippy.toml");
    if rule.is_pure && read(&lints) != pure_lints {
        let text = format!("a pure crate's lints are a link to {PURE_LINTS}");
        findings.push(Finding::new("purity", &lints, &text));
    }
}

/// Returns every dependency of a manifest, also those of single targets, as section, name, value.
fn dependencies(manifest: &toml::Table) -> Vec<(&'static str, String, &toml::Value)> {
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let targets = targets.into_iter().flat_map(toml::Table::values);
    let tables = targets.filter_map(toml::Value::as_table).chain([manifest]);
    let mut list = Vec::new();
    for table in tables {
        for section in ["dependencies", "build-dependencies", "dev-dependencies"] {
            let named = table.get(section).and_then(toml::Value::as_table);
            let named = named.into_iter().flatten();
            list.extend(named.map(|(name, value)| (section, name.clone(), value)));
        }
    }
    list
}

/// The files that say how a crate is licensed.
const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];
const RULES: &str = "xtask/rules.toml";
const PURE_LINTS: &str = "xtask/clippy-pure.toml";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command;

    fn findings_of(name: &str, manifest: &str) -> Vec<String> {
        let rules = Rules::load(&command::root()).unwrap();
        let mut findings = Vec::new();
        let manifest = manifest.parse().unwrap();
        check_manifest(name, &rules.crates[name], &rules, &manifest, &mut findings);
        findings.into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn an_arrow_against_the_grain_is_found() {
        let head = "[package]\nname = \"towline-wire\"\n[lints]\nworkspace = true\n";
        let fine = format!("{head}[dependencies]\nbase.workspace = true\n");
        assert!(findings_of("wire", &fine).is_empty());
        let wrong = format!("{fine}pgm.workspace = true\nrand.workspace = true\n");
        assert_eq!(findings_of("wire", &wrong), ["pgm", "rand"]);
        let hidden = format!("{fine}[target.'cfg(unix)'.dependencies]\nlibc = \"0.2\"\n");
        assert_eq!(findings_of("wire", &hidden), ["libc", "libc"]);
    }

    #[test]
    fn a_permission_that_is_not_used_is_found() {
        let rules = Rules::load(&command::root()).unwrap();
        let manifest = "[dependencies]\nbase.workspace = true\n".parse().unwrap();
        let mut findings = Vec::new();
        unused("pgm", &rules.crates["pgm"], &manifest, &mut findings);
        let found: Vec<_> = findings.into_iter().map(|finding| finding.what).collect();
        assert_eq!(found, ["wire"]);
    }
}
