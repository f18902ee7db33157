//! Debian's ZeroMQ, unchanged, on either library.

use std::{
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use ::lab::{PYTHON, zmq_is_missing};

use super::{ENV, MESSAGES, OpenPgm, PAIRS, alone, directory, lab, session, there};

/// Returns true where python3-zmq and libzmq have PGM; otherwise prints the reason.
pub(super) fn has_zmq() -> bool {
    there(zmq_is_missing().map_or(Ok(()), Err)).is_some()
}

/// The ZeroMQ program, under a name that only processes of this run have on their command lines.
pub(super) fn script() -> &'static Path {
    static SCRIPT: OnceLock<PathBuf> = OnceLock::new();
    SCRIPT.get_or_init(|| {
        let script = directory().join("zmq_peer.py");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/zmq_peer.py");
        symlink(source, &script).unwrap();
        script
    })
}

/// What a sentence of the ZeroMQ program says behind `word`.
pub(super) fn figure(text: &str, word: &str) -> f64 {
    let mut words = text.split_whitespace().skip_while(|&it| it != word).skip(1);
    let number = words.next().and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("no {word} in {text}"))
}

/// Unchanged ZeroMQ over `transport`, with our library at one end or both.
fn zmq(transport: &str, loss_percent: u32, rate_kbit: u32) {
    if !has_zmq() {
        return;
    }
    let lab = lab(loss_percent);
    let [from, to] = [0, 1].map(|host| lab.host(host).ipv4());
    let script = format!("ZMQ_TRANSPORT={transport} {PYTHON} {}", script().display());
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
