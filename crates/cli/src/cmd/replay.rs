//! The command `towline replay`.

use capture::{
    CaptureError, Ended, LiveOptions, SendOptions, Session, Source, SourceAddress, sink,
    source::{self, GeneratorSource, MergedSource, RepeatedSource},
};

use crate::{
    failure::{Failure, Verdict},
    interrupt::Interrupt,
    plan::ReplayPlan,
    report::{Output, ReplayReport},
};

pub(super) fn run(plan: &ReplayPlan, output: &Output) -> Result<Verdict, Failure> {
    if output.shows_only(plan)? {
        return Ok(Verdict::Done);
    }
    let interrupt = Interrupt::install()?;
    let send = SendOptions {
        stop: Some(interrupt.flag()),
        ..plan.send.clone()
    };
    let sink = sink::open(&plan.sink, &send)?;
    let mut session = Session::new(vec![open(plan)?], sink, plan.limits)?;
    session.set_edits(plan.edits.clone());
    let ended = session.run(&|| interrupt.is_requested(), &mut |_| {});
    session
        .take_remarks()
        .iter()
        .for_each(|remark| output.note(remark));
    let report = ReplayReport::new(plan, &mut session, ended.as_ref().ok());
    for address in session.addresses_unmet() {
        output.note(&format!(
            "no packet had the address {address}: none was changed"
        ));
    }
    report
        .remarks()
        .iter()
        .for_each(|remark| output.note(remark));
    let is_fine = report.refused + report.dropped_by_interface == 0;
    output.finish(&report)?;
    match (ended?, session.take_failure()) {
        (Ended::Sink, Some(failure)) => Err(failure.into()),
        (Ended::Stopped, _) => Ok(Verdict::Interrupted),
        _ => Ok(Verdict::of(is_fine)),
    }
}

/// Opens all sources as one source, which repeats as often as the plan says.
fn open(plan: &ReplayPlan) -> Result<Box<dyn Source>, CaptureError> {
    if plan.rounds == 1 {
        return open_once(&plan.sources);
    }
    let sources = plan.sources.clone();
    let rounds = (plan.rounds > 0).then_some(plan.rounds);
    let again = RepeatedSource::new(Box::new(move || open_once(&sources)), rounds)?;
    Ok(Box::new(again))
}

fn open_once(addresses: &[SourceAddress]) -> Result<Box<dyn Source>, CaptureError> {
    let open = |address: &SourceAddress| match address {
        // The session paces generated packets by their stamps, as it does those of a file.
        SourceAddress::Generated(spec) => {
            Ok(Box::new(GeneratorSource::stamped(spec.clone())) as Box<dyn Source>)
        }
        address => source::open(address, &LiveOptions::default()),
    };
    if let [address] = addresses {
        return open(address);
    }
    let sources = addresses.iter().map(open).collect::<Result<_, _>>()?;
    Ok(Box::new(MergedSource::new(sources)))
}
