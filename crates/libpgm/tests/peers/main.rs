//! The stand-in beside OpenPGM's own library: programs that were compiled against its headers, and
//! Debian's ZeroMQ, run on either and must not see a difference, except where the other one fails.
//!
//! Skipped, with the reason printed, where Debian's libpgm-dev, a C compiler or python3-zmq is
//! missing.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]
#![expect(clippy::print_stdout, reason = "a skipped test says why")]

use std::{
    fmt::Display,
    io::Read as _,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{Mutex, OnceLock, PoisonError},
};

use lab::{Host, Lab, LabSpec, compile, isolated, pkg_config};

#[path = "../../../capi/tests/kit/mod.rs"]
mod kit;

mod api;
mod examples;
mod hostile;
mod rates;
mod sanitized;
mod talk;
mod zmq;

/// Runs a test that keeps a processor busy: one at a time, or libpgm's timers come too late.
fn alone<F: FnOnce() + Send>(body: F) {
    static MACHINE: Mutex<()> = Mutex::new(());
    let _turn = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    isolated(body);
}

/// Which library a program runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Library {
    OpenPgm,
    Ours,
}
use Library::{OpenPgm, Ours};

/// Every pair of a sender's and a receiver's library.
const PAIRS: [(Library, Library); 4] = [
    (OpenPgm, OpenPgm),
    (Ours, OpenPgm),
    (OpenPgm, Ours),
    (Ours, Ours),
];

/// A directory in which our library has the name that programs ask for.
fn directory() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| kit::library("libtowline_libpgm.so", &["libpgm-5.3.so.0"]))
}

/// What is there; `None`, with the reason printed, where it is not.
fn there<T>(result: Result<T, impl Display>) -> Option<T> {
    result
        .inspect_err(|missing| println!("skipped: {missing}"))
        .ok()
}

/// A program of `tests/c`, compiled against libpgm's headers; `None`, with the reason printed,
/// where it cannot be.
fn compiled(name: &str) -> Option<PathBuf> {
    compiled_as(name, name, &[])
}

/// The same, compiled with more flags into a file of another name.
fn compiled_as(program: &str, name: &str, more: &[&str]) -> Option<PathBuf> {
    let flags = there(pkg_config("openpgm-5.3", "libpgm-dev"))?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/c/{name}.c"));
    let program = directory().join(program);
    // Tests run side by side in one process.
    static COMPILER: Mutex<()> = Mutex::new(());
    let _turn = COMPILER.lock().unwrap_or_else(PoisonError::into_inner);
    if !program.exists() {
        let quiet = ["-O1", "-g", "-w"];
        let flags = flags.iter().map(String::as_str);
        let flags = quiet.into_iter().chain(more.iter().copied()).chain(flags);
        there(compile(&source, &program, flags))?;
    }
    Some(program)
}

fn on(host: &Host, library: Library, program: impl AsRef<Path>, words: &str) -> Command {
    // Whatever goes wrong, no program stays.
    let mut command = host.command("timeout");
    command
        .args(["--signal=KILL", "90"])
        .arg(program.as_ref())
        .args(words.split_whitespace())
        // A sender stays until this ends: `finish` ends it.
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if library == Ours {
        command.env("LD_LIBRARY_PATH", directory());
    }
    command
}

fn text(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
    format!("{out}{err}")
}

/// Waits for a program's end, and returns what it has printed since it was started.
fn finish(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    let text = text(&output);
    assert!(output.status.success(), "{}: {text}", output.status);
    text
}

/// Starts a receiver, and waits until it says that it has joined the group: how long that takes
/// depends on what else the machine does.
fn ready(command: Command) -> Child {
    said(command, "ready")
}

/// Starts a program, and waits until it says `word`.
fn said(mut command: Command, word: &str) -> Child {
    let mut program = command.spawn().unwrap();
    assert_eq!(next_line(&mut program), word, "{command:?}");
    program
}

/// Waits for the next line that a program prints; empty when it has ended.
fn next_line(program: &mut Child) -> String {
    let said = program.stdout.as_mut().unwrap();
    let (mut line, mut byte) = (Vec::new(), [0]);
    // Byte by byte, so that what follows is left to whoever reads the rest.
    while said.read(&mut byte).unwrap() == 1 && byte != *b"\n" {
        line.extend(byte);
    }
    String::from_utf8_lossy(&line).into_owned()
}

/// Waits for a receiver, and lets its sender end only then: however late the receiver asks for
/// what it misses, somebody answers. Returns what both print.
fn finish_both(sender: Child, receiver: Child) -> String {
    let received = finish(receiver);
    finish(sender) + &received
}

/// Runs a sender on host 0 and a receiver on host 1, and returns what both print.
fn session(lab: &Lab, pair: (Library, Library), [send, recv]: [(&Path, String); 2]) -> String {
    let receiver = ready(on(lab.host(1), pair.1, recv.0, &recv.1));
    let sender = on(lab.host(0), pair.0, send.0, &send.1).spawn().unwrap();
    finish_both(sender, receiver)
}

fn lab(loss_percent: u32) -> Lab {
    let lab = Lab::new(&LabSpec::new(2).segments_at_switch()).unwrap();
    if loss_percent > 0 {
        lab.host(1).set_loss(loss_percent, 100).unwrap();
    }
    lab
}

const ENV: &str = "/usr/bin/env";
const GROUP: &str = "239.192.7.1";
const PORT: u16 = 3056;
const MESSAGES: u32 = 2_000;
