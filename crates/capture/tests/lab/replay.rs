//! What is sent over a cable that is pulled: it is sent again, or counted as not sent.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use lab::{Host, isolated};
use towline_capture::{
    Account, CaptureError, Ended, Limits, LiveOptions, ReplayTiming, SendOptions, Session, sink,
    sink::NullSink, source,
};

use crate::{assert_closed, capture, pair, small_ring};

/// What became of a replay.
#[derive(Debug)]
struct Replayed {
    account: Account,
    ended: Ended,
    failure: Option<CaptureError>,
    dropped: u64,
    lasted: Duration,
}

fn replay(
    host: &Host,
    kind: &str,
    spec: &str,
    pace: ReplayTiming,
    options: &SendOptions,
) -> Replayed {
    let source = format!("gen:{spec}").parse().unwrap();
    let address = format!("{kind}:{}", host.interface()).parse().unwrap();
    let stop = options.stop.clone().unwrap_or_default();
    let replayed = host.enter(|| {
        let source = source::open(&source, &LiveOptions::default()).unwrap();
        let sink = sink::open(&address, options).unwrap();
        let limits = Limits {
            pace,
            ..Limits::default()
        };
        let mut session = Session::new(vec![source], sink, limits).unwrap();
        let begun = Instant::now();
        let ended = session.run(&|| stop.load(Ordering::Relaxed), &mut |_| {});
        Replayed {
            account: session.account().clone(),
            ended: ended.unwrap(),
            failure: session.take_failure(),
            dropped: session.dropped_later(),
            lasted: begun.elapsed(),
        }
    });
    let replayed = replayed.unwrap();
    let account = &replayed.account;
    assert_eq!(account.sink_residual(), 0, "{account:?}");
    assert_eq!(account.delivered_bytes, account.delivered * 60);
    assert_eq!(account.unwritten_bytes, account.unwritten * 60);
    replayed
}

/// A cable that stays out ends the sending, and nothing of it counts as sent.
#[test]
fn a_cable_that_stays_out_ends_a_replay() {
    isolated(|| {
        let lab = pair();
        lab.set_interface_up(1, false).unwrap();
        for kind in ["ring", "int"] {
            let options = SendOptions {
                patience: Duration::from_millis(300),
                ..SendOptions::default()
            };
            let replayed = replay(
                lab.host(0),
                kind,
                "count=5000",
                ReplayTiming::TopSpeed,
                &options,
            );
            assert_eq!(replayed.ended, Ended::Sink, "{kind}: {replayed:?}");
            let failure = replayed.failure.as_ref().unwrap().to_string();
            assert!(failure.contains("cannot send on e0: it has accepted no packet for"));
            assert!(failure.contains("no carrier"), "{failure}");
            assert!(replayed.lasted >= options.patience, "{replayed:?}");
            assert_eq!(replayed.account.delivered, 0, "{kind}: {replayed:?}");
            assert!(replayed.account.unwritten > 0, "{kind}: {replayed:?}");
            // Some thirty tries are no losses.
            assert!(replayed.dropped <= ANNOUNCEMENTS, "{replayed:?}");
        }
    });
}

/// Whoever is told to stop does so, though the cable is out; and does not spin until then.
#[test]
fn a_replay_without_a_cable_can_be_stopped() {
    isolated(|| {
        let lab = pair();
        lab.set_interface_up(1, false).unwrap();
        for kind in ["ring", "int"] {
            let stop = Arc::new(AtomicBool::new(false));
            let options = SendOptions {
                patience: Duration::from_secs(60),
                stop: Some(Arc::clone(&stop)),
                ..SendOptions::default()
            };
            let replayed = thread::scope(|scope| {
                scope.spawn(|| {
                    thread::sleep(Duration::from_millis(400));
                    stop.store(true, Ordering::Relaxed);
                });
                replay(lab.host(0), kind, "", ReplayTiming::Packets(1000), &options)
            });
            assert!(replayed.lasted < Duration::from_secs(5), "{replayed:?}");
            assert_eq!(replayed.ended, Ended::Stopped, "{kind}: {replayed:?}");
            assert_eq!(replayed.account.delivered, 0, "{kind}: {replayed:?}");
            assert!(replayed.account.unwritten > 0, "{kind}: {replayed:?}");
        }
    });
}

/// A cable that is out for half a second costs time, and no packet.
#[test]
fn a_cable_that_is_put_back_costs_no_packet() {
    isolated(|| {
        let lab = pair();
        for kind in ["ring", "int"] {
            let replayed = thread::scope(|scope| {
                let sender = scope.spawn(|| {
                    let pace = ReplayTiming::Packets(10_000);
                    let options = SendOptions::default();
                    replay(lab.host(0), kind, "count=15000", pace, &options)
                });
                thread::sleep(Duration::from_millis(300));
                lab.set_interface_up(1, false).unwrap();
                thread::sleep(Duration::from_millis(500));
                lab.set_interface_up(1, true).unwrap();
                sender.join().unwrap()
            });
            let account = &replayed.account;
            assert_eq!(replayed.ended, Ended::Source, "{kind}: {replayed:?}");
            assert_eq!(
                (account.delivered, account.unwritten),
                (15_000, 0),
                "{kind}"
            );
            assert!(replayed.dropped <= ANNOUNCEMENTS, "{kind}: {replayed:?}");
        }
    });
}

/// What the kernel itself sends when an interface changes, and the interface drops.
const ANNOUNCEMENTS: u64 = 10;

/// An interface that is switched off under a replay has sent what its far end has seen.
#[test]
fn a_replay_over_an_interface_that_goes_down_says_how_far_it_came() {
    isolated(|| {
        for kind in ["ring", "int"] {
            let lab = pair();
            let options = small_ring(4 << 20);
            let mut sent = 0;
            let captured = capture(lab.host(1), "ring", &options, Box::new(NullSink), || {
                let replayed = thread::scope(|scope| {
                    let sender = scope.spawn(|| {
                        let pace = ReplayTiming::Packets(10_000);
                        replay(lab.host(0), kind, "", pace, &SendOptions::default())
                    });
                    thread::sleep(Duration::from_millis(300));
                    lab.set_interface_up(0, false).unwrap();
                    sender.join().unwrap()
                });
                let failure = replayed.failure.as_ref().unwrap().to_string();
                assert!(failure.contains("Network is down"), "{failure}");
                assert_eq!(replayed.ended, Ended::Sink);
                assert!(replayed.account.unwritten > 0, "{kind}: {replayed:?}");
                sent = replayed.account.delivered;
            });
            assert_closed(&captured, sent);
            assert_eq!(captured.sequence.frames, sent, "{kind}");
        }
    });
}
