//! What the run loop drives: one end of a session.

use std::time::Duration;

use base::{Arrival, Budget, Instant, LinkEvent, LinkId, Outcome, Run};
use delivery::{LinkCommand, StreamCounts, StreamState};
use pgm::Position;

/// One end of a session, as a pure state machine. The method names and the drain order are those of
/// every sans-IO type (see `base`); control connections enter and leave the same way as packets.
pub trait Endpoint {
    /// Handles an event of a control connection; `data` holds the bytes of [`LinkEvent::Data`].
    fn handle_link(&mut self, now: Instant, link: LinkId, event: LinkEvent, data: &[u8]);

    /// The next thing to do on a control connection. A `Send` is followed by
    /// [`Endpoint::link_sent`], an `Open` by [`Endpoint::link_opened`].
    fn poll_link(&mut self) -> Option<LinkCommand<'_>>;

    /// The back end took `taken` bytes of the last `Send`; fewer than offered means "wait for
    /// [`LinkEvent::Writable`]", and `poll_link` does not offer that link before.
    fn link_sent(&mut self, link: LinkId, taken: usize);

    /// The back end gave the connection that was asked for with `key` this number.
    fn link_opened(&mut self, key: u32, link: LinkId);

    /// The next run to send, as a peek.
    fn poll_run(&mut self, now: Instant, budget: Budget) -> Option<Run<'_>>;

    /// What became of the run that `poll_run` gave.
    fn run_done(&mut self, now: Instant, outcome: Outcome);

    /// A run took `took` to hand over, for endpoints that send differently where that is dear.
    fn run_took(&mut self, _took: Duration) {}

    /// When `handle_timeout` or `poll_run` next has something to do.
    fn next_timeout(&self) -> Option<Instant>;
}

/// The part of an endpoint that gives something to the application: into a sink of type `S`.
pub trait Handle<S: ?Sized>: Endpoint {
    /// Handles one packet of a receive batch; all packets of a batch have the same `now`.
    fn handle(&mut self, now: Instant, arrival: &Arrival, tpdu: &[u8], sink: &mut S);

    /// Called once a turn, after the batch, the control connections and the timers.
    fn drain(&mut self, now: Instant, sink: &mut S);

    /// Does what is due at `now`.
    fn handle_timeout(&mut self, now: Instant, sink: &mut S);

    /// True while the application takes nothing: the loop then leaves packets in the socket, which
    /// is the back-pressure, and timers, reports and control connections go on.
    fn is_full(&self, _sink: &S) -> bool {
        false
    }
}

/// What the reports tell of a packet stream that has come as far as `at`.
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
        },
        host_drops,
        is_caught_up,
    }
}
