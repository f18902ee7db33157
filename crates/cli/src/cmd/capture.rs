//! `towline capture`.

use serde_json::json;
use towline::capture::{
    CaptureError, Ended, Filter, Limits, LiveOptions, SendOptions, Session, Sink,
    drop_capabilities, sink, sink::RotatingSink, source,
};

use crate::{
    args::{CaptureArgs, FailOn},
    failure::{Failure, Verdict},
    interrupt::Interrupt,
    report::{CaptureReport, Output, last_second},
};

pub(super) fn run(args: &CaptureArgs, output: &Output) -> Result<Verdict, Failure> {
    let plan = json!({
        "sources": args.sources.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "sink": args.output.to_string(),
        "ring_bytes": args.live.ring,
        "packets": args.count,
        "segments": args.segment,
        "filter": args.filter,
    });
    if output.shows_only("capture", &plan)? {
        return Ok(Verdict::Done);
    }
    let interrupt = Interrupt::install()?;
    let filter = args.filter.as_deref().map(Filter::compile).transpose()?;
    let live = LiveOptions {
        filter: filter.clone(),
        ..args.live.options()
    };
    let sources = args
        .sources
        .iter()
        .map(|address| source::open(address, &live));
    let sources = sources.collect::<Result<Vec<_>, _>>()?;
    let limits = Limits {
        packets: args.count,
        duration: args.time,
        snap_len: Some(live.snap_len),
        segments: args.segment,
        checks_sequence: args.check_gen,
        ..Limits::default()
    };
    let sink: Box<dyn Sink> = match args.rotation() {
        Some(rotation) => Box::new(RotatingSink::open(&args.output, rotation)?),
        None => sink::open(&args.output, &SendOptions::default())?,
    };
    let mut session = Session::new(sources, sink, limits)?;
    if !args.keep_privileges && args.rotation().is_none() {
        // Nothing is opened from here on; a kernel that does not let go of them is no reason to
        // capture nothing.
        let _kept = drop_capabilities();
    }
    session
        .take_remarks()
        .iter()
        .for_each(|remark| output.note(remark));
    if let Some(filter) = filter {
        session.set_filter(filter);
    }
    let status = output.progress().lines();
    let is_stopped = || interrupt.is_requested();
    let ended = session.run(&is_stopped, &mut |account| {
        status.set_message(last_second(account));
    });
    status.finish_and_clear();
    session
        .take_remarks()
        .iter()
        .for_each(|remark| output.note(remark));
    let is_lossy = session.account().lost() > 0;
    let report = CaptureReport::new(args, &session, ended.as_ref().ok());
    // With the packets on standard output, the account belongs beside them.
    if output.is_json() && args.output.is_standard_output() {
        output.note(&report.one_line());
    } else {
        output.finish(&report)?;
    }
    match (ended?, session.take_failure()) {
        (Ended::Sink, Some(failure)) => Err(failure.into()),
        _ => Ok(Verdict::of(!(is_lossy && args.fail_on != FailOn::None))),
    }
}

impl From<CaptureError> for Failure {
    fn from(error: CaptureError) -> Self {
        match error {
            CaptureError::Address { .. } => Self::Usage(error.to_string()),
            CaptureError::File { cause, .. } if cause.kind() == std::io::ErrorKind::BrokenPipe => {
                Self::PipeClosed
            }
            error => Self::Environment(error.to_string()),
        }
    }
}
