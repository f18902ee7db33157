//! For the tests of both libraries for C: where the built library is, and what it exports.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

/// Makes a directory with the library `built` under the `names` that linkers and programs ask for.
pub(crate) fn library(built: &str, names: &[&str]) -> PathBuf {
    let deps = std::env::current_exe().unwrap();
    let deps = deps.parent().unwrap();
    let places = [deps, deps.parent().unwrap()].map(|at| at.join(built));
    let found = places.into_iter().filter(|path| path.exists());
    let newest = found.max_by_key(|path| fs::metadata(path).unwrap().modified().unwrap());
    let library = newest.expect("Cargo builds the shared library for this test");
    let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let directory = place.join(format!("{built}-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    for name in names {
        symlink(&library, directory.join(name)).unwrap();
    }
    directory
}

/// Returns the names that a library exports, sorted; `None`, with the reason printed, without the
/// program that reads them.
pub(crate) fn exported(library: &Path) -> Option<Vec<String>> {
    let mut nm = Command::new("nm");
    let Ok(output) = nm.args(["-D", "--defined-only"]).arg(library).output() else {
        println!("skipped: there is no nm (Debian: binutils)");
        return None;
    };
    let text = String::from_utf8(output.stdout).unwrap();
    let names = text.lines().filter_map(|line| line.split(' ').next_back());
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.sort();
    Some(names)
}
