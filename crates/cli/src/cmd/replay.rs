//! `towline replay`.

use serde_json::json;
use towline::capture::{Ended, Limits, LiveOptions, Session, SinkAddress, sink, source};

use crate::{
    args::ReplayArgs,
    failure::{Failure, Verdict},
    interrupt::Interrupt,
    report::{Output, ReplayReport},
};

pub(super) fn run(args: &ReplayArgs, output: &Output) -> Result<Verdict, Failure> {
    if !matches!(args.output, SinkAddress::Ring(_) | SinkAddress::Int(_)) {
        return Err(Failure::usage(format!(
            "{} is no interface to replay on: it is ring:IF or int:IF",
            args.output
        )));
    }
    let plan = json!({
        "source": args.source.to_string(),
        "sink": args.output.to_string(),
        "pace": format!("{:?}", args.pace()),
        "packets": args.count,
    });
    if output.shows_only("replay", &plan)? {
        return Ok(Verdict::Done);
    }
    let interrupt = Interrupt::install()?;
    let limits = Limits {
        packets: args.count,
        duration: args.time,
        pace: args.pace(),
        ..Limits::default()
    };
    let source = source::open(&args.source, &LiveOptions::default())?;
    let sink = sink::open(&args.output, &args.send_options())?;
    let mut session = Session::new(vec![source], sink, limits)?;
    let ended = session.run(&|| interrupt.is_requested(), &mut |_| {});
    session
        .take_remarks()
        .iter()
        .for_each(|remark| output.note(remark));
    let report = ReplayReport::new(args, &mut session, ended.as_ref().ok());
    let is_fine = report.refused + report.dropped_by_interface == 0;
    output.finish(&report)?;
    match (ended?, session.take_failure()) {
        (Ended::Sink, Some(failure)) => Err(failure.into()),
        (Ended::Stopped, _) => Ok(Verdict::Interrupted),
        _ => Ok(Verdict::of(is_fine)),
    }
}
