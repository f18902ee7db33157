//! `towline reach`: finds out why a multicast group does not arrive.

use gauge::reach::reach;

use crate::{
    failure::{Failure, Verdict},
    interrupt::Interrupt,
    plan::ReachPlan,
    report::{Output, ReachDocument},
};

pub(super) fn run(plan: &ReachPlan, output: &Output) -> Result<Verdict, Failure> {
    if output.shows_only(plan)? {
        return Ok(Verdict::Done);
    }
    let interrupt = Interrupt::install()?;
    let spec = plan.spec()?;
    output.note(&format!(
        "listening for {:?}; run `towline reach` on the other host at the same time",
        plan.time
    ));
    let report = reach(&spec, &|| interrupt.is_requested())?;
    let is_fine = report.findings.is_empty();
    output.finish(&ReachDocument(report))?;
    Ok(Verdict::of_session(interrupt.is_requested(), is_fine))
}
