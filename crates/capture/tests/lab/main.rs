//! Two hosts on one cable: what one sends, the other accounts for, to the packet.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod account;
mod files;
mod replay;
mod segmentation;
mod taking;

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use lab::{Host, Lab, LabSpec, isolated};
use towline_capture::{
    Account, Edits, Limits, LiveOptions, ReplayTiming, SendOptions, Session, Sink,
    generated::SequenceCheck, sink, source,
};

/// What a capture came to.
#[derive(Debug)]
struct Captured {
    account: Account,
    sequence: SequenceCheck,
}

/// Two hosts; IPv6 is not asked anything, so that the cable carries what the test sends, and the
/// kernel's own announcements.
fn pair() -> Lab {
    Lab::new(&LabSpec::new(2).direct()).unwrap()
}

/// Captures on `host` while `meanwhile` runs, then stops and closes the account.
fn capture(
    host: &Host,
    kind: &str,
    options: &LiveOptions,
    sink: Box<dyn Sink>,
    meanwhile: impl FnOnce(),
) -> Captured {
    capture_with(host, kind, options, sink, false, meanwhile)
}

/// As [`capture`], cutting super-packets up where that is asked for.
fn capture_with(
    host: &Host,
    kind: &str,
    options: &LiveOptions,
    sink: Box<dyn Sink>,
    segments: bool,
    meanwhile: impl FnOnce(),
) -> Captured {
    let source = format!("{kind}:{}", host.interface()).parse().unwrap();
    let limits = Limits {
        checks_sequence: true,
        segments,
        ..Limits::default()
    };
    let (is_over, is_ready) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let capture = scope.spawn(|| {
            let captured = host.enter(|| {
                let source = source::open(&source, options).unwrap();
                let mut session = Session::new(vec![source], sink, limits).unwrap();
                is_ready.store(true, Ordering::Release);
                session
                    .run(&|| is_over.load(Ordering::Acquire), &mut |_| {})
                    .unwrap();
                Captured {
                    account: session.account().clone(),
                    sequence: session.sequence().unwrap().clone(),
                }
            });
            captured.unwrap()
        });
        while !is_ready.load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(1));
        }
        meanwhile();
        is_over.store(true, Ordering::Release);
        capture.join().unwrap()
    })
}

/// Sends generated frames from `host`; gives how many the kernel took.
fn send(host: &Host, kind: &str, spec: &str, pace: ReplayTiming) -> u64 {
    send_by(host, kind, spec, pace, Edits::default())
}

/// Sends changed frames.
fn send_edited(host: &Host, spec: &str, edits: Edits) -> u64 {
    send_by(host, "ring", spec, ReplayTiming::Packets(10_000), edits)
}

fn send_by(host: &Host, kind: &str, spec: &str, pace: ReplayTiming, edits: Edits) -> u64 {
    let source = format!("gen:{spec}").parse().unwrap();
    let address = format!("{kind}:{}", host.interface()).parse().unwrap();
    let sent = host.enter(|| {
        let source = source::open(&source, &LiveOptions::default()).unwrap();
        let sink = sink::open(&address, &SendOptions::default()).unwrap();
        let limits = Limits {
            pace,
            ..Limits::default()
        };
        let mut session = Session::new(vec![source], sink, limits).unwrap();
        session.set_edits(edits);
        session.run(&|| false, &mut |_| {}).unwrap();
        session.account().delivered
    });
    sent.unwrap()
}

fn small_ring(bytes: usize) -> LiveOptions {
    LiveOptions {
        ring_bytes: bytes,
        retire: Duration::from_millis(2),
        ..incoming()
    }
}

/// What comes in, and nothing else.
fn incoming() -> LiveOptions {
    LiveOptions {
        ignores_outgoing: true,
        ..LiveOptions::default()
    }
}

/// The identity, and that everything sent is accounted for: generated frames are delivered or were
/// dropped by a named cause. Frames of the kernel's own may come beside them.
fn assert_closed(captured: &Captured, sent: u64) {
    let Captured { account, sequence } = captured;
    assert_eq!(account.residual(), Some(0), "{account:?}");
    assert_eq!(account.received, account.passed + account.filtered);
    let dropped = account.losses.ring + account.losses.interface;
    let missing = sent - sequence.frames;
    assert!(
        missing <= dropped,
        "{missing} missing, {dropped} counted: {account:?}"
    );
    let others = account.received - sequence.frames;
    assert!(
        dropped - missing <= OTHERS_MAX && others <= OTHERS_MAX,
        "{account:?}"
    );
    assert_eq!((sequence.corrupt, sequence.duplicates), (0, 0));
    let by_second: u64 = account.seconds.iter().map(|second| second.delivered).sum();
    assert_eq!(by_second, account.delivered);
}

/// Neighbour discovery and group reports of the kernels.
const OTHERS_MAX: u64 = 60;

#[test]
fn the_lab_is_there() {
    isolated(|| assert_eq!(pair().hosts().len(), 2));
}
