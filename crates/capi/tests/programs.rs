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

mod installed;

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
    let program = directory().join(name);
    let include = format!("-I{HERE}/include");
    let libraries = format!("-L{}", directory().display());
    let strict = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"];
    let needed = ["-g", &include, &libraries, "-ltowline", "-pthread"];
    let flags = strict.iter().chain(flags).chain(&needed);
    if let Err(missing) = lab::compile(&Path::new(HERE).join(source), &program, flags) {
        println!("skipped: {missing}");
        return None;
    }
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

/// Returns the block of code in `language` that the book's page for C shows.
fn of_the_page(language: &str) -> String {
    let page = fs::read_to_string(format!("{HERE}/../../docs/src/jobs/c.md")).unwrap();
    let (_, rest) = page.split_once(&format!("```{language}\n")).unwrap();
    rest.split("```").next().unwrap().to_owned()
}

#[test]
fn the_program_of_the_book_sends_its_message() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        let source = directory().join("book.c");
        fs::write(&source, of_the_page("c").replace("eth0", "e0")).unwrap();
        let Some(program) = compiled(source.to_str().unwrap(), "book", &SANITIZERS) else {
            return;
        };
        let subscribe = compiled("examples/subscribe.c", "book-subscribe", &[]).unwrap();
        let group = "239.192.0.1:7500";
        let hearing = on(lab.host(1), &subscribe, &[group]).spawn().unwrap();
        assert_eq!(finish(on(lab.host(0), &program, &[])), "1 confirmed\n");
        assert_eq!(ended(hearing), "hello\n");
    });
}
