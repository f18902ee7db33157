//! What the libraries offer, function by function.

use std::process::Command;

use super::{OpenPgm, Ours, alone, compiled, directory, finish, kit, lab, on, text};

#[test]
fn every_function_answers_as_libpgms_does() {
    alone(|| {
        let Some(program) = compiled("api") else {
            return;
        };
        let lab = lab(0);
        let address = lab.host(0).ipv4().to_string();
        let [theirs, ours] = [OpenPgm, Ours].map(|library| {
            let child = on(lab.host(0), library, &program, &address)
                .spawn()
                .unwrap();
            finish(child)
        });
        for (theirs, ours) in theirs.lines().zip(ours.lines()) {
            assert_eq!(theirs, ours);
        }
        assert!(theirs.lines().count() > 1200, "{theirs}");
        assert_eq!(theirs.lines().count(), ours.lines().count());
    });
}

#[test]
fn it_exports_what_the_list_says() {
    let library = directory().join("libpgm-5.3.so.0");
    let Some(names) = kit::exported(&library) else {
        return;
    };
    let expected: Vec<&str> = include_str!("../symbols.txt").lines().collect();
    assert_eq!(
        names, expected,
        "add a function to tests/symbols.txt; never take one away"
    );
}

#[test]
fn every_exported_name_is_used_by_the_programs() {
    let programs = [include_str!("../c/api.c"), include_str!("../c/talk.c")].concat();
    let words: Vec<&str> = programs
        .split(|letter: char| !letter.is_alphanumeric() && letter != '_')
        .collect();
    let names = include_str!("../symbols.txt").lines();
    let unused: Vec<&str> = names.filter(|name| !words.contains(name)).collect();
    assert_eq!(unused, [""; 0], "call them in tests/c/api.c");
}

#[test]
fn structures_are_laid_out_as_in_libpgms_header() {
    let Some(program) = compiled("layout") else {
        return;
    };
    let output = Command::new(program).output().unwrap();
    assert_eq!(text(&output), include_str!("../layouts.txt"));
}
