//! Debian's ZeroMQ, unchanged, on either library.

use std::{path::Path, process::Command};

use super::{ENV, MESSAGES, OpenPgm, Ours, PAIRS, alone, lab, session};

/// Returns true where python3-zmq and libzmq have PGM; otherwise prints the reason.
fn has_zmq() -> bool {
    let check = "import sys, zmq; sys.exit(not zmq.has('pgm'))";
    let output = Command::new(PYTHON).args(["-c", check]).output();
    let has = output.is_ok_and(|output| output.status.success());
    if !has {
        println!("skipped: no ZeroMQ with PGM for Python (Debian: python3-zmq, libzmq5)");
    }
    has
}

/// What a sentence of the ZeroMQ program says behind `word`.
fn figure(text: &str, word: &str) -> f64 {
    let mut words = text.split_whitespace().skip_while(|&it| it != word).skip(1);
    let number = words.next().and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("no {word} in {text}"))
}

/// Unchanged ZeroMQ over `transport`, with our library at one end or both.
fn zmq(transport: &str, loss_percent: u32, rate_kbit: u32) {
    let Some(_) = has_zmq().then_some(()) else {
        return;
    };
    let lab = lab(loss_percent);
    let [from, to] = [0, 1].map(|host| lab.host(host).ipv4());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/zmq_peer.py");
    let script = format!("ZMQ_TRANSPORT={transport} {PYTHON} {}", script.display());
    for pair in PAIRS {
        let send = format!("{script} pub {from} {MESSAGES} 1000 {rate_kbit}");
        let recv = format!("{script} sub {to} {MESSAGES} {rate_kbit}");
        let text = session(&lab, pair, [(Path::new(ENV), send), (Path::new(ENV), recv)]);
        println!("{pair:?} {transport} {loss_percent} % lost: {text}");
        if pair != (OpenPgm, OpenPgm) {
            assert_eq!(
                figure(&text, "received"),
                f64::from(MESSAGES),
                "{pair:?}: {text}"
            );
            assert_eq!(figure(&text, "gaps"), 0.0, "{pair:?}: {text}");
        }
    }
}

#[test]
fn zeromq_runs_on_it_unchanged() {
    alone(|| zmq("epgm", 0, 20_000));
}

#[test]
fn zeromq_misses_nothing_when_packets_are_lost() {
    alone(|| zmq("epgm", 2, 20_000));
}

#[test]
fn zeromq_runs_on_it_in_ip_too() {
    alone(|| zmq("pgm", 2, 20_000));
}

/// Seconds that the processors of this machine were busy since it started.
fn busy_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    let ticks = stat.lines().next().unwrap().split_whitespace().skip(1);
    let ticks: Vec<f64> = ticks.map(|it| it.parse().unwrap()).collect();
    // User, nice and system; the kernel's interrupts.
    let busy: f64 = [0, 1, 2, 5, 6].iter().map(|&at| ticks[at]).sum();
    busy / 100.0
}

/// What unchanged ZeroMQ delivers at rates up to 2 Gbit/s, and what that costs, on libpgm and on
/// our library. `TOWLINE_REPEATS` runs of each, taken in turn; 3 by default.
#[test]
#[ignore = "measures, and needs the machine for itself"]
fn zeromq_by_rates_on_either_library() {
    let repeats = std::env::var("TOWLINE_REPEATS").map_or(3, |it| it.parse().unwrap());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/zmq_peer.py");
    let script = format!("{PYTHON} {}", script.display());
    let (env, size) = (Path::new(ENV), 8_000);
    for (loss_percent, rate_kbit) in [0, 2].into_iter().flat_map(|loss_percent| {
        [100_000, 500_000, 1_000_000, 2_000_000].map(|rate_kbit| (loss_percent, rate_kbit))
    }) {
        // Two seconds of it.
        let count = rate_kbit / 8 * 1_000 * 2 / size;
        for _ in 0..repeats {
            for library in [OpenPgm, Ours] {
                alone(|| {
                    let lab = lab(loss_percent);
                    let [from, to] = [0, 1].map(|host| lab.host(host).ipv4());
                    let send = format!("{script} pub {from} {count} {size} {rate_kbit}");
                    let recv = format!("{script} sub {to} {count} {rate_kbit}");
                    let before = busy_seconds();
                    let text = session(&lab, (library, library), [(env, send), (env, recv)]);
                    let busy = busy_seconds() - before;
                    let received = figure(&text, "received");
                    println!(
                        "{library:?} {} Mbit/s, {loss_percent} % lost: {:.1} % received, {} gaps, \
                         {:.0} Mbit/s, {:.2} s of processor a GB",
                        rate_kbit / 1000,
                        100.0 * received / f64::from(count),
                        figure(&text, "gaps"),
                        figure(&text, "rate"),
                        busy * 1e9 / (received * f64::from(size)),
                    );
                });
            }
        }
    }
}

const PYTHON: &str = "/usr/bin/python3";
