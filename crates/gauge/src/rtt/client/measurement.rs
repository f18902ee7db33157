//! One measurement: when to send, what is under way, what came back, and how to wait.

use std::{io, time::Duration};

use measure::{
    Counts, Disturbance, DisturbanceKind, Probe, ProbeKind, Schedule, StampCounts, raw::Setup,
};

use super::{Client, Cut};
use crate::rtt::{
    Engine, Recorder, Wait,
    carrier::{BATCH, LOOK, is_gone},
    flight::Flight,
    stamping::{Clocks, Outcome},
};

pub(super) struct Measurement<'a> {
    client: &'a mut Client,
    recorder: Option<&'a mut Recorder>,
    schedule: Option<Schedule>,
    wait: Wait,
    /// One message in this many is stamped; 0 for none.
    stamp_every: u64,
    window_messages: u64,
    /// How many slots the measurement has; the greatest possible number for ping-pong, which has no
    /// schedule.
    slots: u64,
    duration_ns: u64,
    start_ns: u64,
    flight: Flight,
    counts: Counts,
    /// The number of the next slot.
    slot: u64,
    last_answer_ns: u64,
    last_seen_ns: u64,
    is_refused: bool,
    /// The wait was itself a receive call, so the next receive call is not needed.
    has_received: bool,
    realtime_limit: Option<(u64, u64)>,
}

impl<'a> Measurement<'a> {
    /// Makes a measurement whose first slot is due in a moment.
    pub(super) fn new(
        client: &'a mut Client,
        setup: &Setup,
        (engine, wait): (Engine, Wait),
        duration: Duration,
        mut recorder: Option<&'a mut Recorder>,
    ) -> Self {
        let schedule = setup.schedule();
        let duration_ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let slots = schedule.map_or(u64::MAX, |schedule| schedule.slots_within(duration_ns));
        // There is room for twice as many messages under way as the schedule sends during the
        // time-out.
        let timeout_ns = u64::try_from(client.timeout.as_nanos()).unwrap_or(u64::MAX);
        let under_way = schedule.map_or(1, |schedule| schedule.slots_due(timeout_ns));
        let room = usize::try_from(under_way.saturating_mul(2)).unwrap_or(FLIGHT_MAX);
        if let Some(recorder) = &mut recorder {
            recorder.begin(setup);
        }
        let is_realtime = setup.sched.starts_with("fifo");
        client.stamping.restart();
        let stamp_every = if engine.takes_stamps() {
            client.stamp_every
        } else {
            0
        };
        let flight = Flight::new(room.clamp(1_024, FLIGHT_MAX));
        let start_ns = now_ns() + LEAD_NS;
        Self {
            client,
            recorder,
            schedule,
            wait,
            stamp_every,
            window_messages: match schedule {
                Some(_) => setup.window_messages.map_or(u64::MAX, Into::into),
                None => 1,
            },
            slots,
            duration_ns,
            start_ns,
            flight,
            counts: Counts::default(),
            slot: 0,
            last_answer_ns: 0,
            last_seen_ns: 0,
            is_refused: false,
            has_received: false,
            // Only real-time threads are kept off their processor by the kernel's limit.
            realtime_limit: is_realtime
                .then(sys::scheduler::realtime_limit_ns)
                .flatten(),
        }
    }

    /// Measures until the time is over, or until something ends the measurement early.
    pub(super) fn go(&mut self, is_stopped: &dyn Fn() -> bool) -> io::Result<Option<Cut>> {
        let timeout_ns = u64::try_from(self.client.timeout.as_nanos()).unwrap_or(u64::MAX);
        let (mut cut, mut is_ending) = (None, false);
        while cut.is_none() && !self.is_done() {
            let now = self.now();
            self.look_for_pauses(now);
            if !std::mem::take(&mut self.has_received) {
                self.receive()?;
            }
            while self.send_due()? {}
            self.settle(now.saturating_sub(timeout_ns));
            if !is_ending && is_stopped() {
                is_ending = true;
                // No more messages leave, but the answers to those under way are still awaited.
                self.slots = self.slot;
                self.duration_ns = self.duration_ns.min(now);
            }
            if self.recorder.as_ref().is_some_and(|it| it.has_failed()) {
                cut = Some(Cut::Unrecorded);
            } else if self.is_silent(now, timeout_ns) {
                cut = Some(if self.is_refused {
                    Cut::Refused
                } else {
                    Cut::Silent
                });
            }
            self.rest()?;
        }
        Ok(cut.or(is_ending.then_some(Cut::Stopped)))
    }

    fn is_done(&self) -> bool {
        let is_sent = match self.schedule {
            Some(_) => self.slot >= self.slots,
            None => self.now() >= self.duration_ns,
        };
        is_sent && self.flight.waiting() == 0
    }

    /// Returns true when messages were sent and more are due, but no answer came for twice the
    /// time-out.
    fn is_silent(&self, now: u64, timeout_ns: u64) -> bool {
        self.counts.sent > 0
            && self.slot < self.slots
            && now.saturating_sub(self.last_answer_ns) > timeout_ns.saturating_mul(2)
    }

    /// Sends a message when one is due. Returns true when it counted a missed slot instead, so that
    /// the next slot may be due already.
    fn send_due(&mut self) -> io::Result<bool> {
        let now = self.now();
        if self.slot >= self.slots || self.flight.waiting() >= self.window_messages {
            return Ok(false);
        }
        let due = match self.schedule {
            Some(schedule) => schedule.due_ns(self.slot),
            None if now >= self.duration_ns => return Ok(false),
            None => now,
        };
        // Until the start, this clock shows zero.
        if now < due || now == 0 {
            return Ok(false);
        }
        if now - due > LATE_NS_MAX {
            self.counts.slots += 1;
            self.counts.missed += 1;
            self.slot += 1;
            return Ok(true);
        }
        while !self.flight.has_room(self.slot) {
            self.settle(u64::MAX);
        }
        let sequence = self.slot;
        Probe::set_sequence(&mut self.client.message, sequence);
        let is_stamped = self.stamp_every > 0 && sequence.is_multiple_of(self.stamp_every);
        let clocks = is_stamped.then(Clocks::now);
        // The clock is read last: so the work above counts as lateness, not as round trip.
        let sent_ns = self.now();
        let client = &mut *self.client;
        let result = if is_stamped {
            client.carrier.send_stamped(&client.message)
        } else {
            client.carrier.send(&client.message)
        };
        self.slot += 1;
        self.counts.slots += 1;
        match result {
            Ok(()) => {
                self.counts.sent += 1;
                let intended_ns = if self.schedule.is_some() {
                    due
                } else {
                    sent_ns
                };
                self.flight.send(sequence, intended_ns, sent_ns);
                if let Some(clocks) = clocks {
                    self.client.stamping.sent(sequence, clocks);
                }
            }
            Err(error) => self.fault(error)?,
        }
        // Echoes may arrive while messages leave, so the caller looks for them after each message.
        Ok(false)
    }

    /// Counts an error that may pass; any other error ends the run.
    fn fault(&mut self, error: io::Error) -> io::Result<()> {
        match error.kind() {
            _ if is_gone(&error) => {
                self.is_refused = true;
                self.counts.refused += 1;
                Ok(())
            }
            io::ErrorKind::WouldBlock
            | io::ErrorKind::Interrupted
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable => {
                self.counts.refused += 1;
                Ok(())
            }
            _ if error.raw_os_error() == Some(sys::errno::ENOBUFS) => {
                self.counts.refused += 1;
                Ok(())
            }
            _ => Err(error),
        }
    }

    fn receive(&mut self) -> io::Result<()> {
        for _ in 0..BATCH {
            let result = if self.client.stamping.is_waiting() {
                self.receive_stamped()
            } else {
                let client = &mut *self.client;
                let received = client.carrier.receive(&mut client.rooms);
                received.map(|count| self.take_all(count))
            };
            match result {
                // No answer can come before the next message leaves.
                Ok(()) if self.window_messages == 1 && self.flight.waiting() == 0 => break,
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // The socket reports an ICMP message once, so the next receive call may succeed.
                Err(error) if is_gone(&error) => {
                    self.is_refused = true;
                    break;
                }
                Err(error) => return self.fault(error),
            }
        }
        if self.client.stamping.is_waiting() {
            self.collect_stamps();
        }
        Ok(())
    }

    fn receive_stamped(&mut self) -> io::Result<()> {
        let client = &mut *self.client;
        let stamps = client.carrier.receive_stamped(&mut client.rooms)?;
        let now = self.now();
        let sequence = self.take(0, now);
        if let Some(sequence) = sequence.filter(|it| it.is_multiple_of(self.stamp_every)) {
            self.client.stamping.echoed(sequence, stamps, Clocks::now());
        }
        Ok(())
    }

    /// Looks at the messages that one call has received.
    fn take_all(&mut self, count: usize) {
        let now = self.now();
        for index in 0..count {
            self.take(index, now);
        }
    }

    /// Looks at a message; returns its number when it answers a message of this measurement.
    fn take(&mut self, index: usize, now: u64) -> Option<u64> {
        match Probe::parse(self.client.rooms.message(index)) {
            Ok(probe) if probe.kind == ProbeKind::Echo && probe.token == self.client.token => {
                self.last_answer_ns = now;
                let is_first = self.flight.answer(probe.sequence, now, &mut self.counts);
                is_first.then_some(probe.sequence)
            }
            // This is a late echo of the previous measurement, or a second welcome.
            Ok(probe) if self.client.token.wrapping_sub(probe.token) <= 2 => {
                self.counts.late_or_twice += 1;
                None
            }
            _ => {
                self.counts.foreign += 1;
                None
            }
        }
    }

    fn collect_stamps(&mut self) {
        let at_ns = self.now();
        let (client, recorder) = (&mut *self.client, &mut self.recorder);
        let Some(sockets) = &client.sockets else {
            return;
        };
        client.stamping.collect(sockets.sending(), |outcome| {
            let Some(recorder) = recorder else {
                return;
            };
            match outcome {
                Outcome::Whole(split) => recorder.split(split),
                Outcome::ClockStep(_) => recorder.disturbance(Disturbance {
                    kind: DisturbanceKind::ClockStep,
                    at_ns,
                    lasted_ns: 0,
                }),
            }
        });
    }

    fn settle(&mut self, give_up_ns: u64) {
        while let Some(sample) = self.flight.settle(give_up_ns, &mut self.counts) {
            if let Some(recorder) = &mut self.recorder {
                recorder.sample(sample);
            }
        }
    }

    /// Waits as the strategy says, at most until the next slot is due.
    fn rest(&mut self) -> io::Result<()> {
        let limit = match self.schedule {
            Some(schedule)
                if self.slot < self.slots && self.flight.waiting() < self.window_messages =>
            {
                let due = self.start_ns.saturating_add(schedule.due_ns(self.slot));
                Duration::from_nanos(due.saturating_sub(now_ns())).min(LOOK)
            }
            _ => LOOK,
        };
        let limit = match self.wait {
            Wait::Spin => return Ok(()),
            Wait::Busy => limit.saturating_sub(BUSY_MARGIN),
            Wait::Block => limit,
        };
        if limit.is_zero() {
            return Ok(());
        }
        let is_held = self.flight.waiting() >= self.window_messages && self.flight.waiting() > 0;
        let waits_itself = self.wait == Wait::Block && self.client.carrier.waits_itself();
        if is_held && waits_itself && !self.client.stamping.is_waiting() {
            return self.await_answer();
        }
        self.client.wait(limit)?;
        // Time spent waiting is no pause.
        self.last_seen_ns = self.now();
        Ok(())
    }

    /// Waits for an answer and receives it in one system call, when nothing can be sent before it.
    /// A poll before each receive would lengthen every round trip.
    fn await_answer(&mut self) -> io::Result<()> {
        let client = &mut *self.client;
        let received = client.carrier.receive_waiting(&mut client.rooms);
        self.last_seen_ns = self.now();
        self.has_received = true;
        match received {
            Ok(count) => {
                self.take_all(count);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) if is_gone(&error) => {
                self.is_refused = true;
                Ok(())
            }
            Err(error) => self.fault(error),
        }
    }

    /// Notes a pause: more time passed between two readings of the clock than the work needs, so
    /// another process had the processor.
    fn look_for_pauses(&mut self, now: u64) {
        let lasted_ns = now.saturating_sub(self.last_seen_ns);
        if lasted_ns > PAUSE_NS
            && self.last_seen_ns > 0
            && let Some(recorder) = &mut self.recorder
        {
            recorder.disturbance(Disturbance {
                kind: pause_kind(lasted_ns, self.realtime_limit),
                at_ns: self.last_seen_ns,
                lasted_ns,
            });
        }
        self.last_seen_ns = now;
    }

    /// Gives up the messages under way; returns the counts, how long the run took in nanoseconds,
    /// and the counts of stamps.
    pub(super) fn close(&mut self) -> (Counts, u64, StampCounts) {
        self.settle(u64::MAX);
        let lasted_ns = match self.schedule {
            Some(schedule) => schedule.due_ns(self.slot),
            None => self.now(),
        };
        (self.counts, lasted_ns, self.client.stamping.counts)
    }

    /// Returns the nanoseconds since the start; zero before the start.
    fn now(&self) -> u64 {
        now_ns().saturating_sub(self.start_ns)
    }
}

fn now_ns() -> u64 {
    sys::clock::monotonic().as_nanos()
}

/// Returns the kind of a pause: [`DisturbanceKind::Throttled`] if it is about as long as the
/// kernel's limit on real-time threads makes it, otherwise [`DisturbanceKind::Pause`].
fn pause_kind(lasted_ns: u64, limit: Option<(u64, u64)>) -> DisturbanceKind {
    match limit {
        Some((runtime, period))
            if lasted_ns.abs_diff(period - runtime) < (period - runtime) / 4 =>
        {
            DisturbanceKind::Throttled
        }
        _ => DisturbanceKind::Pause,
    }
}

/// Nanoseconds between the decision to start and the first slot.
const LEAD_NS: u64 = 1_000_000;
/// The most nanoseconds that a slot may be late; a later one is not used but counted as missed.
const LATE_NS_MAX: u64 = 1_000_000_000;
/// The shortest pause in nanoseconds. The loop takes a few microseconds; when it takes longer than
/// this, the thread did not run.
const PAUSE_NS: u64 = 500_000;
/// How long before a slot a busy wait starts to spin: longer than most wake-ups take.
const BUSY_MARGIN: Duration = Duration::from_micros(60);
const FLIGHT_MAX: usize = 1 << 22;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_of_the_limits_length_is_throttling() {
        let limit = Some((950_000_000, 1_000_000_000));
        assert_eq!(pause_kind(50_400_000, limit), DisturbanceKind::Throttled);
        assert_eq!(pause_kind(5_000_000, limit), DisturbanceKind::Pause);
        assert_eq!(pause_kind(50_000_000, None), DisturbanceKind::Pause);
    }
}
