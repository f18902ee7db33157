//! The command `towline clock`.

use gauge::clock::{between, clock};

use crate::{
    failure::{Failure, Verdict},
    interrupt::Interrupt,
    plan::ClockPlan,
    report::{ClockDocument, Output},
};

pub(super) fn run(plan: &ClockPlan, output: &Output) -> Result<Verdict, Failure> {
    if output.shows_only(plan)? {
        return Ok(Verdict::Done);
    }
    let interrupt = Interrupt::install()?;
    let mut clock = clock()?;
    let mut is_fine = clock.has_one_way;
    let between = match plan.between()? {
        None => None,
        Some(spec) => match between(&spec, &|| interrupt.is_requested()) {
            // After a signal, the report describes this host's clocks only.
            Err(gauge::Error::Interrupted) => None,
            found => {
                let found = found?;
                is_fine = found.one_way.is_some();
                if found.exchanges > 0 {
                    clock.set_state(found.here);
                }
                Some(found)
            }
        },
    };
    output.finish(&ClockDocument { clock, between })?;
    Ok(Verdict::of_session(interrupt.is_requested(), is_fine))
}
