//! A first real peer: the C library of OpenPGM, in a process of its own.
//!
//! Skipped, with the reason printed, where Debian's libpgm-dev or a C compiler is missing.

use std::{path::PathBuf, process::Command, thread, time::Duration};

use lab::{Host, Lab, LabSpec, isolated};

use crate::ends::{End, towline};

/// The bench program of `bench/pgmbench.c`, which uses port 3056 and data-destination port 7500.
const GROUP: &str = "239.192.0.1";
const SESSION: &str = "-g 239.192.0.1:3056 --pgm-port 7500";
const LIMIT: Duration = Duration::from_secs(120);

fn pgmbench() -> Option<PathBuf> {
    let flags = Command::new("pkg-config")
        .args(["--cflags", "--libs", "openpgm-5.3"])
        .output();
    let Some(flags) = flags.ok().filter(|output| output.status.success()) else {
        println!("skipped: libpgm is not installed (Debian: libpgm-dev, pkg-config)");
        return None;
    };
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/pgmbench.c");
    let program = std::env::temp_dir().join(format!("pgmbench-{}", std::process::id()));
    let flags = String::from_utf8(flags.stdout).unwrap();
    let status = Command::new("cc")
        .args(["-O2", "-o"])
        .arg(&program)
        .arg(source)
        .args(flags.split_whitespace())
        .status();
    if !status.is_ok_and(|status| status.success()) {
        println!("skipped: the peer cannot be compiled (Debian: gcc)");
        return None;
    }
    Some(program)
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

#[test]
fn openpgm_receives_everything_that_is_sent() {
    isolated(|| {
        let Some(program) = pgmbench() else { return };
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        let receiver = End::start(peer(lab.host(1), &program, &["recv", "12"]));
        thread::sleep(Duration::from_millis(500));
        let words = format!("load send {SESSION} --json --count 100000 --size 1400 --rate 20MB/s");
        let sent = End::start(towline(lab.host(0), &words)).report(LIMIT);
        let (_, text) = receiver.finish(LIMIT);
        println!("{text}");
        assert_eq!(sent["messages"], 100_000);
        assert_eq!(figure(&text, "received"), 100_000, "{text}");
        assert_eq!(figure(&text, "missing"), 0, "{text}");
    });
}

#[test]
fn everything_that_openpgm_sends_is_received() {
    isolated(|| {
        let Some(program) = pgmbench() else { return };
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        let words = format!("sub {SESSION} --framing length --count 100000 --timeout 30s");
        let receiver = End::start(towline(lab.host(1), &words));
        thread::sleep(Duration::from_millis(500));
        let words = ["send", "1400", "100000", "20000000"];
        let (_, text) = End::start(peer(lab.host(0), &program, &words)).finish(LIMIT);
        println!("{text}");
        let (status, messages) = receiver.finish_raw(LIMIT);
        assert!(status.success(), "{status}");
        assert_eq!(
            messages.len(),
            100_000 * (4 + 1400),
            "bytes with their length prefixes"
        );
    });
}
