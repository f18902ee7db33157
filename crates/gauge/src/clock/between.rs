//! Compares two hosts' clocks, and measures the delay of each direction when both clocks are good
//! enough.

use std::{net::SocketAddr, time::Duration};

use measure::{ClockState, OneWay};
use net::{Interfaces, SystemError};
use serde::Serialize;

use crate::{
    Error,
    rtt::{Client, ClockExchanges, exchange_clocks},
};

/// The task of comparing two clocks.
#[derive(Clone, Copy, Debug)]
pub struct BetweenSpec {
    /// The reflector to ask.
    pub peer: SocketAddr,
    /// How many questions to ask.
    pub count: usize,
    /// Time between two questions.
    pub gap: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
    /// A number that tells the messages of this run from those of others.
    pub seed: u64,
}

/// What a comparison of two hosts' clocks found.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Between {
    /// The reflector.
    pub peer: SocketAddr,
    /// The clock here, as its daemon tells the kernel. The error bounds of both clocks come from
    /// the exchange in which their sum was greatest. This sum is the error of the delays, unless
    /// both ends read the same clock.
    pub here: ClockState,
    /// The clock there.
    pub there: ClockState,
    /// Both ends are on this host and read the same clock.
    pub is_one_clock: bool,
    /// Number of answers, without the `disturbed` ones.
    pub exchanges: usize,
    /// Questions without an answer.
    pub lost: u64,
    /// Answers that do not count because this host's wall clock was set during the exchange.
    pub disturbed: u64,
    /// Median of the round trips, including the far end's time, in nanoseconds. Only this host's
    /// monotonic clock measures them.
    pub round_trip_p50_ns: u64,
    /// Delays of both directions with their error; none when they could not be measured.
    pub one_way: Option<OneWay>,
    /// Why the delays could not be measured.
    pub refusal: Option<String>,
}

/// Compares this host's clock with that of a reflector's host. It changes nothing.
///
/// # Errors
/// When the peer is a group; when no reflector answers, or the reflector does not know the
/// question; when the caller stops it before an answer; or when the system refuses.
///
/// **Cost**: for each of `count` questions, a round trip (or `timeout`) and the gap.
pub fn between(spec: &BetweenSpec, is_stopped: &dyn Fn() -> bool) -> Result<Between, Error> {
    let peer = spec.peer;
    if peer.ip().is_multicast() {
        let text = format!("{peer} is a group; name one host to compare clocks with");
        return Err(Error::Measurement(text));
    }
    let mut client = Client::connect(peer, spec.seed, spec.timeout)?;
    let refused = |error| SystemError::system("exchange clocks with", peer, &error);
    let exchanged = exchange_clocks(&mut client, spec.count, spec.gap, spec.timeout, is_stopped);
    let found = exchanged.map_err(refused)?;
    if found.answered.is_empty() && found.disturbed == 0 {
        if is_stopped() {
            return Err(Error::Interrupted);
        }
        let text = format!(
            "the reflector at {peer} does not report the accuracy of its clock: it is of an older \
             release, or its answers are lost; start `towline rtt reflect` of this release there"
        );
        return Err(Error::Measurement(text));
    }
    Ok(judged(peer, &found, is_own(peer)?))
}

fn judged(peer: SocketAddr, found: &ClockExchanges, is_one_clock: bool) -> Between {
    // Both bounds grow during the measurement. The reported bounds are those of the exchange in
    // which their sum was greatest.
    let widest = found.answered.iter().max_by_key(|it| it.error_ns_max());
    let worst = |of: fn(&measure::ClockExchange) -> ClockState| ClockState {
        is_synchronised: found.answered.iter().all(|it| of(it).is_synchronised),
        error_ns_max: widest.map_or(u64::MAX, |it| of(it).error_ns_max),
    };
    let (one_way, refusal) = match OneWay::of(&found.answered, is_one_clock) {
        Ok(one_way) => (Some(one_way), None),
        Err(_) if found.answered.is_empty() => (
            None,
            Some(
                "the wall clock of this host was set during the exchange; measure again".to_owned(),
            ),
        ),
        Err(reason) => (None, Some(reason)),
    };
    let mut round_trips = found.round_trips_ns.clone();
    round_trips.sort_unstable();
    Between {
        peer,
        here: worst(|one| one.here),
        there: worst(|one| one.there),
        is_one_clock,
        exchanges: found.answered.len(),
        lost: found.lost,
        disturbed: found.disturbed,
        round_trip_p50_ns: round_trips.get(round_trips.len() / 2).copied().unwrap_or(0),
        one_way,
        refusal,
    }
}

/// Returns true for an address of this host: a reflector there reads the same clock.
fn is_own(peer: SocketAddr) -> Result<bool, Error> {
    Ok(peer.ip().is_loopback() || Interfaces::read()?.with_address(peer.ip()).is_some())
}

#[cfg(test)]
mod tests {
    use measure::ClockExchange;

    use super::*;

    #[test]
    fn the_bounds_are_of_one_exchange_and_add_up_to_the_error() {
        let exchange = |here, there| {
            let state = |error_ns_max| ClockState {
                is_synchronised: true,
                error_ns_max,
            };
            ClockExchange {
                sent_ns: 0,
                received_there_ns: 500_000,
                sent_there_ns: 500_000,
                received_ns: 1_000_000,
                here: state(here),
                there: state(there),
            }
        };
        // The far clock is corrected in between: when its bound is greatest, the one here is
        // smaller.
        let found = ClockExchanges {
            answered: vec![exchange(10_000, 40_000), exchange(20_000, 5_000)],
            round_trips_ns: vec![1_000_000; 2],
            ..ClockExchanges::default()
        };
        let judged = judged(([10, 0, 0, 1], 7_700).into(), &found, false);
        let sum = judged.here.error_ns_max + judged.there.error_ns_max;
        assert_eq!((judged.here.error_ns_max, sum), (10_000, 50_000));
        assert_eq!(judged.one_way.unwrap().error_ns_max, sum);
    }
}
