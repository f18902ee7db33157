//! What `make install-libraries` installs: pkg-config and CMake find the library, and a program
//! that is built as they say runs on it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{HERE, directory, finish, of_the_page};

/// Returns true where all of these programs are; otherwise prints which is not.
fn has(programs: &[&str]) -> bool {
    programs.iter().all(|&program| {
        let is_there = Command::new(program).arg("--version").output().is_ok();
        if !is_there {
            println!("skipped: there is no {program} (Debian: gcc, pkg-config, cmake, make)");
        }
        is_there
    })
}

fn install(words: &[&str]) {
    let script = Path::new(HERE).join("../../contrib/install-libraries.sh");
    let output = Command::new("sh").arg(script).args(words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {said}");
}

/// Installs the library into a new directory `name`.
fn installed(name: &str) -> PathBuf {
    let (built, prefix) = (
        directory().join(format!("{name}-built")),
        directory().join(name),
    );
    fs::create_dir(&built).unwrap();
    fs::create_dir(&prefix).unwrap();
    // Nothing here runs on the stand-in, so any library will do for it.
    for library in ["libtowline_capi.so", "libtowline_libpgm.so"] {
        fs::copy(directory().join("libtowline.so.0"), built.join(library)).unwrap();
    }
    install(&[built.to_str().unwrap(), prefix.to_str().unwrap()]);
    prefix
}

/// Every file beneath a directory.
fn files(at: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(at).unwrap().map(|entry| entry.unwrap().path());
    let (directories, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let below = directories.iter().flat_map(|path| self::files(path));
    files.into_iter().chain(below).collect()
}

/// A program that prints the library's version, in a directory of its own.
fn source(name: &str) -> PathBuf {
    let directory = directory().join(name);
    fs::create_dir(&directory).unwrap();
    let text = "#include <stdio.h>\n#include <towline.h>\n\
                int main(void) { return puts(towline_version()) < 0; }\n";
    fs::write(directory.join("main.c"), text).unwrap();
    directory
}

const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\n");

#[test]
fn pkg_config_finds_what_is_installed_and_it_goes_away_again() {
    let prefix = installed("by-pkg-config");
    assert_eq!(files(&prefix).len(), 7);
    if has(&["pkg-config", "cc"]) {
        let flags = Command::new("pkg-config")
            .args(["--cflags", "--libs", "towline"])
            .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
            .output();
        let flags = String::from_utf8(flags.unwrap().stdout).unwrap();
        let at = prefix.display();
        let expected = format!("-I{at}/include -L{at}/lib -ltowline");
        assert_eq!(flags.trim(), expected);
        let main = source("pkg-config-project").join("main.c");
        let program = main.with_extension("");
        let mut compiler = Command::new("cc");
        let words = compiler.arg(main).args(flags.split_whitespace());
        words.arg("-o").arg(&program);
        finish(compiler);
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", prefix.join("lib"));
        assert_eq!(finish(command), VERSION);
    }
    install(&["--remove", prefix.to_str().unwrap()]);
    assert_eq!(files(&prefix), Vec::<PathBuf>::new());
}

#[test]
fn cmake_finds_what_is_installed_and_refuses_other_versions() {
    if !has(&["cmake", "cc", "make"]) {
        return;
    }
    let (prefix, project) = (installed("by-cmake"), source("cmake-project"));
    let [major, minor] = [
        env!("CARGO_PKG_VERSION_MAJOR"),
        env!("CARGO_PKG_VERSION_MINOR"),
    ]
    .map(|number| number.parse::<u32>().unwrap());
    let others = format!("{major}.{} {}.0", minor + 1, major + 1);
    let refused = "if(towline_FOUND)\nmessage(FATAL_ERROR \"found for ${other}\")\nendif()\n";
    let list = [
        "cmake_minimum_required(VERSION 3.13)\nproject(program C)\n",
        &format!("foreach(other {others})\nfind_package(towline ${{other}} QUIET)\n"),
        &format!("{refused}endforeach()\n"),
        // What the page says stands there as it is.
        &of_the_page("cmake"),
        "message(STATUS \"found ${towline_VERSION}.\")\n",
    ];
    fs::write(project.join("CMakeLists.txt"), list.concat()).unwrap();
    let mut configure = Command::new("cmake");
    configure
        .args(["-S", ".", "-B", "build"])
        .current_dir(&project);
    let output = configure
        .arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display()))
        .output()
        .unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
    assert!(output.status.success(), "{out}{err}");
    assert!(out.contains(&format!("found {}.", VERSION.trim())), "{out}");
    let mut build = Command::new("cmake");
    build.args(["--build", "build"]).current_dir(&project);
    finish(build);
    assert_eq!(finish(Command::new(project.join("build/program"))), VERSION);
}
