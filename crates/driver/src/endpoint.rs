//! What the run loop drives: one end of a session.

use std::time::Duration;

use base::{Arrival, Budget, Instant, LinkEvent, LinkId, Outcome, Run};
use delivery::{LinkCommand, StreamCounts, StreamState};
use pgm::Position;

/// One end of a session, as a pure state machine. The method names and the drain order are those of
/// every sans-IO type (see `base`). As packets do, events of control connections come in through
/// `handle_` methods, and commands for them go out through `poll_` methods.
pub trait Endpoint {
    /// Handles an event of a control connection; `data` holds the bytes of [`LinkEvent::Data`].
    fn handle_link(&mut self, now: Instant, link: LinkId, event: LinkEvent, data: &[u8]);

    /// Returns the next thing to do on a control connection. The loop answers a `Send` with
    /// [`Endpoint::link_sent`] and an `Open` with [`Endpoint::link_opened`].
    fn poll_link(&mut self) -> Option<LinkCommand<'_>>;

    /// Notes that the back end took `taken` bytes of the last `Send`. When it took fewer than
    /// offered, `poll_link` does not offer that link again before [`LinkEvent::Writable`].
    fn link_sent(&mut self, link: LinkId, taken: usize);

    /// Notes the number that the back end gave to the connection that was opened with `key`.
    fn link_opened(&mut self, key: u32, link: LinkId);

    /// Returns the next run to send. The caller must say what became of the run, with
    /// [`Endpoint::run_done`], before it calls this again.
    fn poll_run(&mut self, now: Instant, budget: Budget) -> Option<Run<'_>>;

    /// Notes what became of the run that `poll_run` gave.
    fn run_done(&mut self, now: Instant, outcome: Outcome);

    /// Notes that handing a run to the network ended at `end` and took `took`. When this takes
    /// long, an endpoint may send fewer runs with more data in each.
    fn run_took(&mut self, _end: Instant, _took: Duration) {}

    /// Says when `handle_timeout` or `poll_run` next has something to do.
    fn next_timeout(&self) -> Option<Instant>;
}

/// The part of an endpoint that gives data and events to the application, through a sink of type
/// `S`.
pub trait Handle<S: ?Sized>: Endpoint {
    /// Handles one packet of a receive batch; all packets of a batch have the same `now`.
    fn handle(&mut self, now: Instant, arrival: &Arrival, tpdu: &[u8], sink: &mut S);

    /// Gives the sink what has become ready. The loop calls it once a turn, after the batch, the
    /// control connections and the timers.
    fn drain(&mut self, now: Instant, sink: &mut S);

    /// Does what is due at `now`.
    fn handle_timeout(&mut self, now: Instant, sink: &mut S);

    /// Returns true while the application takes nothing. The loop then leaves packets in the
    /// socket; timers, reports and control connections go on.
    fn is_full(&self, _sink: &S) -> bool {
        false
    }
}

/// Returns what reports say about a packet stream whose receiver has come to `at`.
pub(crate) const fn stream_of(at: &Position, host_drops: u64, is_caught_up: bool) -> StreamState {
    StreamState {
        contiguous: at.contiguous,
        lead: at.lead,
        held: (at.lead + 1).saturating_sub(at.contiguous + at.missing),
        counts: StreamCounts {
            bytes: at.bytes_with_headers(),
            missed: at.arrived.missed,
            repairs_asked: at.arrived.repairs_asked,
            repairs_got: at.arrived.repairs,
            lost: at.arrived.lost,
        },
        host_drops,
        is_caught_up,
    }
}
