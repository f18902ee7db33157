//! `towline replay`.

use capture::{
    CaptureError, Ended, Limits, LiveOptions, SendOptions, Session, SinkAddress, Source,
    SourceAddress, sink,
    source::{self, GeneratorSource, MergedSource, RepeatedSource},
};
use serde_json::json;

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
        "sources": args.sources.iter().map(ToString::to_string).collect::<Vec<_>>(),
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
        burst: args.burst,
        ..Limits::default()
    };
    if let Some(live) = args.sources.iter().find(|source| source.is_live()) {
        return Err(Failure::usage(format!(
            "{live} cannot be replayed: capture it to a file first"
        )));
    }
    let send = SendOptions {
        stop: Some(interrupt.flag()),
        ..args.send_options()
    };
    let sink = sink::open(&args.output, &send)?;
    let mut session = Session::new(vec![open(args)?], sink, limits)?;
    session.set_edits(args.edits.edits());
    let ended = session.run(&|| interrupt.is_requested(), &mut |_| {});
    session
        .take_remarks()
        .iter()
        .for_each(|remark| output.note(remark));
    let report = ReplayReport::new(args, &mut session, ended.as_ref().ok());
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

/// All sources as one, as often as asked for.
fn open(args: &ReplayArgs) -> Result<Box<dyn Source>, CaptureError> {
    if args.rounds == 1 {
        return open_once(&args.sources);
    }
    let sources = args.sources.clone();
    let rounds = (args.rounds > 0).then_some(args.rounds);
    let again = RepeatedSource::new(Box::new(move || open_once(&sources)), rounds)?;
    Ok(Box::new(again))
}

fn open_once(addresses: &[SourceAddress]) -> Result<Box<dyn Source>, CaptureError> {
    let open = |address: &SourceAddress| match address {
        // The session keeps the rate, by the stamps, as it does that of a file.
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
