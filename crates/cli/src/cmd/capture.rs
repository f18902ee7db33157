//! `towline capture`.

use std::{fs, io, os::unix::fs::MetadataExt as _, path::Path};

use capture::{
    CaptureError, Ended, Filter, Limits, LiveOptions, SendOptions, Session, Sink, SinkAddress,
    Source, SourceAddress, Workers, become_user, drop_capabilities, keep_file_capabilities, sink,
    sink::RotatingSink, source, source::RingSource,
};
use serde_json::json;

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
        "workers": args.workers,
    });
    if output.shows_only("capture", &plan)? {
        return Ok(Verdict::Done);
    }
    refuse_to_overwrite_a_source(args)?;
    let interrupt = Interrupt::install()?;
    let filter = args.filter.as_deref().map(Filter::compile).transpose()?;
    let live = LiveOptions {
        filter: filter.clone(),
        has_room_for_super_packets: args.segment,
        ..args.live.options()
    };
    // Before it happens: who is logged in through the interface sees nothing any more.
    warn_of_taking(&args.sources, output);
    let mut sessions = Vec::new();
    for (sources, sink) in open(args, &live)? {
        let mut session = Session::new(sources, sink, limits(args, &live))?;
        if let Some(filter) = &filter {
            session.set_filter(filter.clone())?;
        }
        sessions.push(session);
    }
    let mut workers = Workers::new(sessions);
    if !args.keep_privileges {
        // A kernel that does not let go of them is no reason to capture nothing.
        let _kept = match args.rotation() {
            None => drop_capabilities(),
            Some(_) => keep_file_capabilities(),
        };
    }
    workers
        .take_remarks()
        .iter()
        .for_each(|remark| output.note(remark));
    let status = output.progress().lines();
    let is_stopped = || interrupt.is_requested();
    let ended = workers.run(&is_stopped, &mut |account| {
        status.set_message(last_second(account));
    });
    status.finish_and_clear();
    workers
        .take_remarks()
        .iter()
        .for_each(|remark| output.note(remark));
    let report = CaptureReport::new(args, &workers, ended.as_ref().ok());
    // With the packets on standard output, the account belongs beside them.
    if output.is_json() && args.output.is_standard_output() {
        output.note(&report.one_line());
    } else {
        output.finish(&report)?;
    }
    match (ended?, workers.take_failure()) {
        (Ended::Sink, Some(failure)) => Err(failure.into()),
        _ => Ok(Verdict::of(match args.fail_on {
            FailOn::None => true,
            FailOn::Loss => !workers.account().is_lossy(),
            FailOn::Any => !workers.account().is_lossy() && !report.has_gaps(),
        })),
    }
}

/// A file that is read and written at once would be emptied before it was read.
fn refuse_to_overwrite_a_source(args: &CaptureArgs) -> Result<(), Failure> {
    let (SinkAddress::Pcap(target) | SinkAddress::Pcapng(target)) = &args.output else {
        return Ok(());
    };
    // What is not there yet, as most that is written, is no other file either.
    let identity = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    let target = identity(target).filter(|_| !args.output.is_standard_output());
    let is_target = |source: &&SourceAddress| match source {
        SourceAddress::File(path) => target.is_some() && identity(path) == target,
        _ => false,
    };
    match args.sources.iter().find(is_target) {
        Some(source) => Err(Failure::usage(format!(
            "{source} and {} are one file, which would be emptied before it is read: write another",
            args.output
        ))),
        None => Ok(()),
    }
}

/// Says which interfaces the host will receive nothing by.
pub(super) fn warn_of_taking(sources: &[SourceAddress], output: &Output) {
    for (source, name) in sources.iter().filter_map(|one| Some((one, one.taken()?))) {
        output.warn(&format!(
            "{source} takes all that arrives at {name} away from this host, which receives nothing \
             by it until this ends; ring:{name} takes copies"
        ));
    }
}

/// What a session moves packets between.
type Ends = (Vec<Box<dyn Source>>, Box<dyn Sink>);

/// The ends of each worker's session.
fn open(args: &CaptureArgs, live: &LiveOptions) -> Result<Vec<Ends>, Failure> {
    if args.workers > 1 {
        return open_shared(args, live);
    }
    let sources = args.sources.iter();
    let sources = sources.map(|address| source::open(address, live));
    let sources = sources.collect::<Result<Vec<_>, _>>()?;
    change_user(args)?;
    Ok(vec![(sources, open_sink(args, &args.output)?)])
}

fn open_shared(args: &CaptureArgs, live: &LiveOptions) -> Result<Vec<Ends>, Failure> {
    let [SourceAddress::Ring(name)] = args.sources.as_slice() else {
        let text = "--workers share the packets of one ring:IF, and of nothing else";
        return Err(Failure::usage(text.to_owned()));
    };
    if args.output.is_standard_output() {
        let text = "each of several workers writes a file of its own: name one instead of '-'";
        return Err(Failure::usage(text.to_owned()));
    }
    let sources = RingSource::open_shared(name, live, args.workers.into())?;
    change_user(args)?;
    let ends = sources.into_iter().enumerate().map(|(number, source)| {
        let source: Box<dyn Source> = Box::new(source);
        let sink = open_sink(args, &args.output.numbered(number))?;
        Ok((vec![source], sink))
    });
    ends.collect()
}

/// Goes on as the user that was asked for, if one was.
fn change_user(args: &CaptureArgs) -> Result<(), Failure> {
    let Some(name) = &args.user else {
        return Ok(());
    };
    become_user(name).map_err(|cause| match cause.kind() {
        io::ErrorKind::NotFound => Failure::usage(format!("there is no user {name}")),
        _ => Failure::environment(&format!("go on as user {name}, which takes root"), &cause),
    })
}

fn open_sink(args: &CaptureArgs, address: &SinkAddress) -> Result<Box<dyn Sink>, CaptureError> {
    let mut sink = match args.rotation() {
        Some(rotation) => Box::new(RotatingSink::open(address, rotation)?),
        None => sink::open(address, &SendOptions::default())?,
    };
    if let Some(comment) = &args.comment {
        sink.describe(comment)?;
    }
    Ok(sink)
}

fn limits(args: &CaptureArgs, live: &LiveOptions) -> Limits {
    Limits {
        packets: args.count,
        duration: args.time,
        snap_len: Some(live.snap_len),
        segments: args.segment,
        checks_sequence: args.check_gen,
        ..Limits::default()
    }
}

impl From<CaptureError> for Failure {
    fn from(error: CaptureError) -> Self {
        match error {
            CaptureError::Address { .. } => Self::Usage(error.to_string()),
            CaptureError::File { cause, .. } if cause.kind() == io::ErrorKind::BrokenPipe => {
                Self::PipeClosed
            }
            error => Self::Environment(error.to_string()),
        }
    }
}
