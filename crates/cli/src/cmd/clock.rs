//! `towline clock`.

use std::time::Duration;

use gauge::{
    clock::{BetweenSpec, between, clock},
    reach::new_token,
    rtt::PORT,
};
use serde::Serialize;
use towline::resolve;

use crate::{
    args::ClockArgs,
    failure::{Failure, Verdict},
    interrupt::Interrupt,
    report::{ClockDocument, Output},
};

#[derive(Serialize)]
struct Plan<'a> {
    target: Option<&'a str>,
    count: u32,
    timeout: Duration,
}

pub(super) fn run(args: &ClockArgs, output: &Output) -> Result<Verdict, Failure> {
    let plan = Plan {
        target: args.target.as_deref(),
        count: args.count,
        timeout: args.timeout,
    };
    if output.shows_only("clock", &plan)? {
        return Ok(Verdict::Done);
    }
    let interrupt = Interrupt::install()?;
    let mut clock = clock()?;
    let mut is_fine = clock.has_one_way;
    let between = match &args.target {
        None => None,
        Some(target) => {
            let spec = BetweenSpec {
                peer: resolve(target, PORT)?,
                count: usize::try_from(args.count).unwrap_or(usize::MAX),
                gap: GAP,
                timeout: args.timeout,
                seed: new_token()?,
            };
            let found = between(&spec, &|| interrupt.is_requested())?;
            is_fine = found.one_way.is_some();
            if found.exchanges > 0 {
                clock.set_state(found.here);
            }
            Some(found)
        }
    };
    output.finish(&ClockDocument { clock, between })?;
    Ok(Verdict::of_session(interrupt.is_requested(), is_fine))
}

/// Time between two exchanges.
const GAP: Duration = Duration::from_millis(10);
