//! A debug build names what the owner of a source or a receiver does wrong.
#![cfg(debug_assertions)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod receiver_kit;
mod source_kit;

use std::time::Duration;

use base::{Budget, Instant, Outcome};
use towline_pgm::Mode;

const BUDGET: Budget = Budget {
    bytes: 64_000,
    datagrams: 128,
};
const SENT: Outcome = Outcome::Sent { datagrams: 1 };

/// A source whose first SPM is due.
fn source() -> source_kit::Bench {
    source_kit::Bench::new()
}

/// A receiver that wants an SPM of a sender it has heard.
fn receiver() -> receiver_kit::Bench {
    let mut bench = receiver_kit::Bench::new(Mode::Sequence);
    bench.odata(10, b"a");
    while bench.receiver.poll_run(bench.now, BUDGET).is_none() {
        bench.now = bench.receiver.next_timeout().unwrap();
        bench.receiver.handle_timeout(bench.now);
    }
    bench.receiver.run_done(bench.now, Outcome::Blocked);
    bench
}

fn before(now: Instant) -> Instant {
    Instant::from_nanos(now.as_nanos() - Duration::from_micros(1).as_nanos() as u64)
}

#[test]
#[should_panic(expected = "poll_run without run_done")]
fn a_source_is_asked_for_a_run_before_the_last_is_answered_for() {
    let mut bench = source();
    assert!(bench.source.poll_run(bench.now, BUDGET).is_some());
    let _unanswered = bench.source.poll_run(bench.now, BUDGET);
}

#[test]
#[should_panic(expected = "run_done without poll_run")]
fn a_source_is_answered_for_a_run_that_it_did_not_give() {
    let mut bench = source();
    assert!(bench.source.poll_run(bench.now, BUDGET).is_some());
    bench.source.run_done(bench.now, SENT);
    bench.source.run_done(bench.now, SENT);
}

#[test]
#[should_panic(expected = "time goes back")]
fn a_source_is_told_an_earlier_time() {
    let mut bench = source();
    bench.source.handle_timeout(bench.now);
    bench.source.handle_timeout(before(bench.now));
}

#[test]
#[should_panic(expected = "poll_run without run_done")]
fn a_receiver_is_asked_for_a_run_before_the_last_is_answered_for() {
    let mut bench = receiver();
    assert!(bench.receiver.poll_run(bench.now, BUDGET).is_some());
    let _unanswered = bench.receiver.poll_run(bench.now, BUDGET);
}

#[test]
#[should_panic(expected = "run_done without poll_run")]
fn a_receiver_is_answered_for_a_run_that_it_did_not_give() {
    let mut bench = receiver();
    assert!(bench.receiver.poll_run(bench.now, BUDGET).is_some());
    bench.receiver.run_done(bench.now, SENT);
    bench.receiver.run_done(bench.now, SENT);
}

#[test]
#[should_panic(expected = "time goes back")]
fn a_receiver_is_told_an_earlier_time() {
    let mut bench = receiver();
    bench.receiver.handle_timeout(before(bench.now));
}
