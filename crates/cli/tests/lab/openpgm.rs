//! A first real peer: the C library of OpenPGM, in a process of its own.
//!
//! Skipped, with the reason printed, where Debian's libpgm-dev or a C compiler is missing.

use std::{path::PathBuf, process::Command, sync::OnceLock, thread, time::Duration};

use lab::{Host, Lab, LabSpec, isolated};
use serde_json::Value;

use crate::ends::{End, alone, towline};

/// The bench program of `bench/pgmbench.c`, which uses port 3056 and data-destination port 7500.
const GROUP: &str = "239.192.0.1";
const SESSION: &str = "-g 239.192.0.1:3056 --pgm-port 7500";
const LIMIT: Duration = Duration::from_secs(120);

/// The peer, compiled once; `None`, with the reason printed by each test, when it cannot be.
fn pgmbench() -> Option<PathBuf> {
    static PROGRAM: OnceLock<Result<PathBuf, &str>> = OnceLock::new();
    let program = PROGRAM.get_or_init(compile);
    if let Err(reason) = program {
        println!("skipped: {reason}");
    }
    program.clone().ok()
}

fn compile() -> Result<PathBuf, &'static str> {
    let flags = Command::new("pkg-config")
        .args(["--cflags", "--libs", "openpgm-5.3"])
        .output();
    let Some(flags) = flags.ok().filter(|output| output.status.success()) else {
        return Err("libpgm is not installed (Debian: libpgm-dev, pkg-config)");
    };
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/pgmbench.c");
    let program = std::env::temp_dir().join(format!("pgmbench-{}", std::process::id()));
    let flags = String::from_utf8(flags.stdout).unwrap();
    if Command::new("cc").arg("--version").output().is_err() {
        return Err("there is no C compiler (Debian: gcc)");
    }
    let output = Command::new("cc")
        .args(["-O2", "-w", "-o"])
        .arg(&program)
        .arg(source)
        .args(flags.split_whitespace())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{source}: {said}");
    Ok(program)
}

fn peer(host: &Host, program: &PathBuf, words: &[&str]) -> Command {
    let mut command = host.command(program);
    // By address: libpgm looks a name up in the DNS first, and fails where there is none.
    command
        .arg(words[0])
        .arg(host.ipv4().to_string())
        .arg(GROUP)
        .args(&words[1..]);
    command
}

/// The figure that stands before or after a word of the peer's closing line.
fn figure(text: &str, word: &str) -> u64 {
    let mut words = text.split_whitespace().skip_while(|&w| w != word).skip(1);
    words
        .next()
        .and_then(|number| number.parse().ok())
        .unwrap_or_else(|| panic!("{text}"))
}

/// Checks what `sub --framing length` printed: `count` messages of the peer, by their numbers.
fn assert_numbered(messages: &[u8], count: u64) {
    let records = messages.chunks_exact(4 + MESSAGE_BYTES);
    assert!(records.remainder().is_empty(), "whole messages");
    let numbers = records.map(|record| u64::from_le_bytes(record[4..12].try_into().unwrap()));
    assert!(numbers.eq(0..count), "each message once and in order");
}

/// What the peer sends to us, with `loss_percent` at our host.
fn from_the_peer(loss_percent: u32, count: u64, rate: u64) {
    let Some(program) = pgmbench() else { return };
    let lab = Lab::new(&LabSpec::new(2)).unwrap();
    if loss_percent > 0 {
        lab.host(1).set_loss(loss_percent, 100).unwrap();
    }
    let words = format!("sub {SESSION} --framing length --count {count} --timeout 30s");
    let receiver = End::start(towline(lab.host(1), &words));
    thread::sleep(START_TIME);
    let (size, count_text, rate) = (
        MESSAGE_BYTES.to_string(),
        count.to_string(),
        rate.to_string(),
    );
    let words = ["send", &size, &count_text, &rate];
    let (_, text) = End::start(peer(lab.host(0), &program, &words)).finish(LIMIT);
    println!("{text}");
    let (status, messages) = receiver.finish_raw(LIMIT);
    assert!(status.success(), "{status}");
    assert_numbered(&messages, count);
    assert_eq!(lab.host(1).lost_packets().unwrap() > 0, loss_percent > 0);
}

/// What we send to the peer, with `loss_percent` at its host. Gives our report.
fn to_the_peer(loss_percent: u32, count: u64, rate: &str, seconds: &str) -> Option<Value> {
    let program = pgmbench()?;
    // Each packet alone on its way, so that loss hits packets and not runs.
    let lab = Lab::new(&LabSpec::new(2).segments_at_switch()).unwrap();
    if loss_percent > 0 {
        lab.host(1).set_loss(loss_percent, 100).unwrap();
    }
    let receiver = End::start(peer(lab.host(1), &program, &["recv", seconds]));
    thread::sleep(START_TIME);
    // It asks again after two seconds, and again: the source stays for some of that.
    let words = format!(
        "load send {SESSION} --json --count {count} --size {MESSAGE_BYTES} --rate {rate} \
         --linger 16s"
    );
    let sent = End::start(towline(lab.host(0), &words)).report(LIMIT);
    let (_, text) = receiver.finish(LIMIT);
    println!("{text}");
    assert_eq!(sent["messages"], count);
    assert_eq!(figure(&text, "received"), count, "{text}");
    assert_eq!(figure(&text, "missing"), 0, "{text}");
    assert_eq!(figure(&text, "resets"), 0, "{text}");
    Some(sent)
}

#[test]
fn it_receives_everything_that_we_send() {
    alone(|| drop(to_the_peer(0, 100_000, "20MB/s", "12")));
}

#[test]
fn we_receive_everything_that_it_sends() {
    alone(|| from_the_peer(0, 100_000, 20_000_000));
}

#[test]
fn it_gets_every_repair_that_it_asks_for() {
    isolated(|| {
        let Some(sent) = to_the_peer(2, 8_000, "2MB/s", "24") else {
            return;
        };
        let count = |name: &str| sent["counters"][name].as_u64().unwrap();
        assert!(count("source.rdata_packets") >= 100, "{sent:#}");
        let refused = count("source.nak_behind") + count("source.nak_beyond");
        assert_eq!(refused + count("source.ncf_suppressed"), 0, "{sent:#}");
        // It sends the first of a list once more by itself; those are the only ones not repaired.
        let asked = count("source.nak_sqns");
        let merged = count("source.nak_merged") + count("source.nak_eliminated");
        assert_eq!(count("source.nak_queued") + merged, asked, "{sent:#}");
        assert_eq!(count("source.rdata_packets"), count("source.nak_queued"));
    });
}

#[test]
fn it_repairs_what_we_ask_for() {
    isolated(|| from_the_peer(2, 8_000, 2_000_000));
}

const MESSAGE_BYTES: usize = 1400;
/// Time for a receiver to join.
const START_TIME: Duration = Duration::from_millis(500);
