//! Asks a reflector how accurate its clock is, and when each question arrived there.

use std::{io, time::Duration};

use measure::{CLOCK_BYTES, ClockExchange, ClockState, ClockWord, Probe, ProbeKind};

use super::Client;

/// The results of the questions.
#[derive(Clone, Debug, Default)]
pub struct ClockExchanges {
    /// The questions whose answers count.
    pub answered: Vec<ClockExchange>,
    /// Number of questions without an answer in time.
    pub lost: u64,
    /// Number of answers that do not count because this host's wall clock was set during the
    /// exchange.
    pub disturbed: u64,
    /// The round trips of `answered`, in its order, in nanoseconds of the monotonic clock; the
    /// reflector's time is included.
    pub round_trips_ns: Vec<u64>,
}

/// Asks `count` questions, one after the other, `gap` apart. Stops when three questions have no
/// answer and no answer has counted yet, because then the reflector does not know the question.
///
/// # Errors
/// When the system refuses to send or receive, or does not tell the state of its own clock.
pub fn exchange_clocks(
    client: &mut Client,
    count: usize,
    gap: Duration,
    timeout: Duration,
    is_stopped: &dyn Fn() -> bool,
) -> io::Result<ClockExchanges> {
    let mut found = ClockExchanges::default();
    let mut message = [0; CLOCK_BYTES];
    for sequence in 0..count as u64 {
        let is_unknown = found.answered.is_empty() && found.lost >= UNANSWERED_MAX;
        if is_unknown || is_stopped() {
            break;
        }
        let (kind, token) = (ProbeKind::Clock, client.token());
        Probe {
            kind,
            token,
            sequence,
        }
        .emit(&mut message);
        let began = sys::clock::monotonic();
        let sent_ns = sys::clock::wall_nanos();
        if let Err(error) = client.send(&message)
            && error.kind() != io::ErrorKind::ConnectionRefused
        {
            return Err(error);
        }
        match hear(client, sequence, timeout)? {
            None => found.lost += 1,
            Some((word, received_ns)) => {
                let round_trip = sys::clock::monotonic().since(began);
                let round_trip_ns = u64::try_from(round_trip.as_nanos()).unwrap_or(u64::MAX);
                let by_wall = received_ns.wrapping_sub(sent_ns);
                if by_wall.abs_diff(round_trip_ns) > CLOCK_STEP_NS {
                    found.disturbed += 1;
                    continue;
                }
                let here = sys::discipline::read()?;
                found.round_trips_ns.push(round_trip_ns);
                found.answered.push(ClockExchange {
                    sent_ns,
                    received_there_ns: word.received_ns,
                    sent_there_ns: word.sent_ns,
                    received_ns,
                    here: ClockState {
                        is_synchronised: here.is_synchronised,
                        error_ns_max: here.error_ns_max,
                    },
                    there: ClockState {
                        is_synchronised: word.is_synchronised,
                        error_ns_max: word.error_ns_max,
                    },
                });
            }
        }
        std::thread::sleep(gap);
    }
    Ok(found)
}

/// Waits for the answer to one question, and returns it with the wall clock's time of its arrival;
/// `None` when no answer comes.
fn hear(
    client: &mut Client,
    sequence: u64,
    timeout: Duration,
) -> io::Result<Option<(ClockWord, u64)>> {
    let end = sys::clock::monotonic() + timeout;
    loop {
        let left = end.since(sys::clock::monotonic());
        if left.is_zero() {
            return Ok(None);
        }
        let token = client.token();
        match client.receive() {
            Ok(answer) => {
                let received_ns = sys::clock::wall_nanos();
                let told = ClockWord::parse(answer);
                let is_ours = |(probe, _): &(Probe, ClockWord)| {
                    (probe.token, probe.sequence) == (token, sequence)
                };
                if let Some((_, word)) = told.filter(is_ours) {
                    return Ok(Some((word, received_ns)));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                client.wait(left)?;
            }
            // The reflector is gone, so no answer comes.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

/// The number of questions without any answer after which no more are asked.
const UNANSWERED_MAX: u64 = 3;
/// The most nanoseconds by which two clocks move apart during a round trip, unless a clock was set.
const CLOCK_STEP_NS: u64 = 100_000;
