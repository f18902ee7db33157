//! `towline mtu`.

use gauge::mtu::{MtuVerdict, group_mtu, path_mtu};

use crate::{
    failure::{Failure, Verdict},
    interrupt::Interrupt,
    plan::MtuPlan,
    report::{GroupMtuDocument, MtuReport, Output},
};

pub(super) fn run(plan: &MtuPlan, output: &Output) -> Result<Verdict, Failure> {
    if output.shows_only(plan)? {
        return Ok(Verdict::Done);
    }
    let interrupt = Interrupt::install()?;
    let peer = plan.peer()?;
    // Each size is sent up to three times, each time with a wait of at most the timeout.
    output.note(&format!(
        "searching for the largest packet to {}; each size that gets no answer takes up to {:?}",
        plan.target,
        plan.timeout.saturating_mul(3)
    ));
    if peer.ip().is_multicast() {
        let is_stopped = || interrupt.is_requested();
        let wanted = plan.iface.as_ref();
        let found = group_mtu(peer, wanted, plan.hops, plan.timeout, &is_stopped)?;
        output.finish(&GroupMtuDocument::new(&plan.target.to_string(), &found))?;
        return Ok(Verdict::of_session(interrupt.is_requested(), true));
    }
    let found = match path_mtu(peer, plan.timeout, &|| interrupt.is_requested()) {
        Ok(found) => found,
        Err(error) if interrupt.is_requested() => {
            output.warn(&format!(
                "interrupted before anything was found; so far {error}"
            ));
            return Ok(Verdict::Interrupted);
        }
        Err(error) => return Err(error.into()),
    };
    output.finish(&MtuReport::new(&plan.target.to_string(), &found))?;
    let is_fine = matches!(found.verdict, MtuVerdict::Clear | MtuVerdict::Told);
    Ok(Verdict::of_session(
        found.verdict == MtuVerdict::Unfinished,
        is_fine,
    ))
}
