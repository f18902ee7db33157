//! Programs in C on libtowline: what the header says is so, also under the sanitizers.
//!
//! Skipped, with the reason printed, where a C compiler is missing.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]
#![expect(clippy::print_stdout, reason = "a skipped test says why")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
};

use lab::{Host, Lab, LabSpec, isolated};

mod interface;

mod kit;

const HERE: &str = env!("CARGO_MANIFEST_DIR");
const SANITIZERS: [&str; 2] = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

/// A directory with the library under the names that the linker and programs ask for.
fn directory() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    let names = ["libtowline.so", "libtowline.so.0"];
    DIRECTORY.get_or_init(|| kit::library("libtowline_capi.so", &names))
}

/// Compiles a program against the header; `None`, with the reason printed, without a compiler.
fn compiled(source: &str, name: &str, flags: &[&str]) -> Option<PathBuf> {
    if Command::new("cc").arg("--version").output().is_err() {
        println!("skipped: there is no C compiler (Debian: gcc)");
        return None;
    }
    let program = directory().join(name);
    let output = Command::new("cc")
        .args([
            "-std=c11",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-g",
            "-o",
        ])
        .arg(&program)
        .arg(Path::new(HERE).join(source))
        .args(flags)
        .arg(format!("-I{HERE}/include"))
        .arg(format!("-L{}", directory().display()))
        .args(["-ltowline", "-pthread"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{source}: {said}");
    Some(program)
}

fn on(host: &Host, program: &Path, words: &[&str]) -> Command {
    // Whatever goes wrong, no program stays.
    let mut command = host.command("timeout");
    command
        .args(["--signal=KILL", "120"])
        .arg(program)
        .args(words)
        .env("LD_LIBRARY_PATH", directory())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn finish(mut command: Command) -> String {
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    ended(piped.spawn().unwrap())
}

fn ended(program: Child) -> String {
    let output = program.wait_with_output().unwrap();
    let [out, err] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
    let text = format!("{out}{err}");
    assert!(output.status.success(), "{}: {text}", output.status);
    text
}

fn run_all(name: &str, flags: &[&str]) {
    let Some(program) = compiled("tests/c/all.c", name, flags) else {
        return;
    };
    let lab = Lab::new(&LabSpec::new(2)).unwrap();
    let place = directory().join(format!("{name}-files"));
    fs::create_dir(&place).unwrap();
    let address = lab.host(0).ipv4().to_string();
    let words = [&*address, place.to_str().unwrap()];
    let text = finish(on(lab.host(0), &program, &words));
    assert_eq!(text, "all is as the header says\n");
}

#[test]
fn every_function_does_what_the_header_says() {
    isolated(|| run_all("all", &[]));
}

#[test]
fn nothing_is_amiss_under_the_sanitizers() {
    isolated(|| run_all("all-sanitized", &SANITIZERS));
}

#[test]
fn the_examples_do_their_job() {
    isolated(|| run_examples("", &[]));
}

#[test]
fn the_examples_do_their_job_under_the_sanitizers() {
    isolated(|| run_examples("-sanitized", &SANITIZERS));
}

fn run_examples(suffix: &str, flags: &[&str]) {
    let compiled = |name: &str| {
        let source = format!("examples/{name}.c");
        compiled(&source, &format!("{name}{suffix}"), flags)
    };
    let Some(publish) = compiled("publish") else {
        return;
    };
    let subscribe = compiled("subscribe").unwrap();
    let files = compiled("files").unwrap();
    let lab = Lab::new(&LabSpec::new(2)).unwrap();
    let [from, to] = [lab.host(0), lab.host(1)];
    let hearing = on(to, &subscribe, &["239.192.77.1:7501"]).spawn().unwrap();
    let said = finish(on(from, &publish, &["239.192.77.1:7501", "hello", "all"]));
    assert_eq!(said, "1 of 1 receiver confirmed\n");
    assert_eq!(ended(hearing), "hello\nall\n");
    let incoming = directory().join(format!("incoming{suffix}"));
    fs::create_dir(&incoming).unwrap();
    let words = ["receive", "239.192.77.2:7502", incoming.to_str().unwrap()];
    let receiving = on(to, &files, &words).spawn().unwrap();
    let file = format!("{HERE}/examples/files.c");
    let said = finish(on(from, &files, &["send", "239.192.77.2:7502", &file]));
    assert!(said.ends_with("bytes, proven\n"), "{said}");
    assert_eq!(ended(receiving), "delivered\n");
    assert_eq!(
        fs::read(incoming.join("files.c")).unwrap(),
        fs::read(file).unwrap()
    );
}

fn install(words: &[&str]) {
    let script = Path::new(HERE).join("../../contrib/install-libraries.sh");
    let output = Command::new("sh").arg(script).args(words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {said}");
}

/// Every file beneath a directory.
fn files(at: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(at).unwrap().map(|entry| entry.unwrap().path());
    let (directories, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let below = directories.iter().flat_map(|path| self::files(path));
    files.into_iter().chain(below).collect()
}

#[test]
fn what_is_installed_is_found_by_pkg_config_and_goes_away_again() {
    let (built, prefix) = (directory().join("built"), directory().join("prefix"));
    fs::create_dir(&built).unwrap();
    fs::create_dir(&prefix).unwrap();
    // Which libraries they are does not matter to the script.
    for name in ["libtowline_capi.so", "libtowline_libpgm.so"] {
        fs::copy(directory().join("libtowline.so.0"), built.join(name)).unwrap();
    }
    let prefix_text = prefix.to_str().unwrap();
    install(&[built.to_str().unwrap(), prefix_text]);
    assert_eq!(files(&prefix).len(), 6);
    let flags = Command::new("pkg-config")
        .args(["--cflags", "--libs", "towline"])
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
        .output();
    match flags {
        Ok(flags) => {
            let flags = String::from_utf8(flags.stdout).unwrap();
            let expected = format!("-I{prefix_text}/include -L{prefix_text}/lib -ltowline");
            assert_eq!(flags.trim(), expected);
        }
        Err(_) => println!("skipped: there is no pkg-config (Debian: pkg-config)"),
    }
    install(&["--remove", prefix_text]);
    assert_eq!(files(&prefix), Vec::<PathBuf>::new());
}
