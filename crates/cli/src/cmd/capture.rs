//! `towline capture`.

use std::{fs, io, os::unix::fs::MetadataExt as _, path::Path};

use capture::{
    Account, CaptureError, Ended, Filter, LiveOptions, SendOptions, Session, Sink, SinkAddress,
    Source, SourceAddress, Workers, become_user, drop_capabilities, keep_file_capabilities, sink,
    sink::RotatingSink, source, source::RingSource,
};

use super::intervals::Intervals;
use crate::{
    args::FailOn,
    failure::{Failure, Verdict},
    interrupt::Interrupt,
    plan::CapturePlan,
    report::{CaptureReport, Counted, Done, Output, count, last_second, ring_remedy},
};

pub(super) fn run(plan: &CapturePlan, output: &Output) -> Result<Verdict, Failure> {
    if output.shows_only(plan)? {
        return Ok(Verdict::Done);
    }
    refuse_to_overwrite_a_source(plan)?;
    let interrupt = Interrupt::install()?;
    let filter = plan.filter.as_deref().map(Filter::compile).transpose()?;
    let live = LiveOptions {
        filter: filter.clone(),
        ..plan.live.clone()
    };
    // The warning comes before the interface is taken: a user who is logged in through this
    // interface sees nothing afterwards.
    warn_of_taking(&plan.sources, output);
    let mut sessions = Vec::new();
    for (sources, sink) in open(plan, &live)? {
        let mut session = Session::new(sources, sink, plan.limits)?;
        if let Some(filter) = &filter {
            session.set_filter(filter.clone())?;
        }
        sessions.push(session);
    }
    let mut workers = Workers::new(sessions);
    if !plan.keeps_privileges {
        // The capture goes on even when the capabilities cannot be dropped.
        let _kept = match plan.rotation {
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
    let of: Vec<String> = plan.sources.iter().map(ToString::to_string).collect();
    let of = of.join(", ");
    let mut intervals = Intervals::new(output, plan.every, of, Counted::PacketsCaptured);
    if plan.sink.is_standard_output() {
        intervals.give_way();
    }
    intervals.look(Done::default)?;
    let ended = workers.run(&is_stopped, &mut |account| {
        status.set_message(last_second(account));
        // The capture goes on even when the line of an interval cannot be printed.
        intervals.look(|| done(account)).unwrap_or_default();
    });
    status.finish_and_clear();
    intervals.finish(done(&workers.account()))?;
    workers
        .take_remarks()
        .iter()
        .for_each(|remark| output.note(remark));
    let report = CaptureReport::new(plan, &workers, ended.as_ref().ok());
    // When packets go to standard output, the report goes to standard error.
    if output.is_json() && plan.sink.is_standard_output() {
        output.note(&report.one_line());
    } else {
        output.finish_after(plan.every, &report)?;
    }
    let too_short = too_short(&workers.account(), plan.live.snap_len);
    let advice = ring_remedy(report.lost.ring).into_iter().chain(too_short);
    advice.for_each(|remark| output.note(&remark));
    match (ended?, workers.take_failure()) {
        (Ended::Sink, Some(failure)) => Err(failure.into()),
        _ => Ok(Verdict::of(match plan.fail_on {
            FailOn::None => true,
            FailOn::Loss => !workers.account().is_lossy(),
            FailOn::Any => !workers.account().is_lossy() && !report.has_gaps(),
        })),
    }
}

/// Says that super-packets (several packets in one frame) stayed in one piece because `-s` keeps
/// too little of them. `None` when `-s` is not below its default, or when no super-packet stayed in
/// one piece. `stats` uses this too.
pub(super) fn too_short(account: &Account, snap_len: u32) -> Option<String> {
    let is_cut = snap_len < LiveOptions::default().snap_len;
    (account.uncut_super_frames > 0 && is_cut).then(|| {
        format!(
            "{} stayed in one piece: with -s {snap_len} too little of a packet is kept to cut it \
             up as --segment asks; leave -s or --segment out",
            count(account.uncut_super_frames, "super-packet")
        )
    })
}

fn done(account: &Account) -> Done {
    Done {
        count: account.delivered,
        bytes: account.delivered_bytes,
        lost: Some(account.lost()),
    }
}

/// Refuses to read and write one file at once: it would be emptied before it was read.
fn refuse_to_overwrite_a_source(plan: &CapturePlan) -> Result<(), Failure> {
    let (SinkAddress::Pcap(target) | SinkAddress::Pcapng(target)) = &plan.sink else {
        return Ok(());
    };
    // An output file that does not exist yet cannot be a source.
    let identity = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    let target = identity(target).filter(|_| !plan.sink.is_standard_output());
    let is_target = |source: &&SourceAddress| match source {
        SourceAddress::File(path) => target.is_some() && identity(path) == target,
        _ => false,
    };
    match plan.sources.iter().find(is_target) {
        Some(source) => Err(Failure::usage(format!(
            "{source} and {} are the same file, which would be emptied before it is read; write \
             to another file",
            plan.sink
        ))),
        None => Ok(()),
    }
}

/// Warns of each interface from which other programs will receive nothing, because the capture
/// takes all its packets.
pub(super) fn warn_of_taking(sources: &[SourceAddress], output: &Output) {
    for (source, name) in sources.iter().filter_map(|one| Some((one, one.taken()?))) {
        output.warn(&format!(
            "{source} takes all packets that arrive on {name}: until this capture ends, other \
             programs receive nothing from {name}; ring:{name} takes copies instead"
        ));
    }
}

/// The sources that a session reads from, and the sink that it writes to.
type Ends = (Vec<Box<dyn Source>>, Box<dyn Sink>);

/// Opens the sources and the sink of each worker's session.
fn open(plan: &CapturePlan, live: &LiveOptions) -> Result<Vec<Ends>, Failure> {
    if plan.workers > 1 {
        return open_shared(plan, live);
    }
    let sources = plan.sources.iter();
    let sources = sources.map(|address| source::open(address, live));
    let sources = sources.collect::<Result<Vec<_>, _>>()?;
    change_user(plan)?;
    Ok(vec![(sources, open_sink(plan, &plan.sink)?)])
}

fn open_shared(plan: &CapturePlan, live: &LiveOptions) -> Result<Vec<Ends>, Failure> {
    let [SourceAddress::Ring(name)] = plan.sources.as_slice() else {
        unreachable!("the plan shares nothing but one ring");
    };
    let sources = RingSource::open_shared(name, live, plan.workers.into())?;
    change_user(plan)?;
    let ends = sources.into_iter().enumerate().map(|(number, source)| {
        let source: Box<dyn Source> = Box::new(source);
        let sink = open_sink(plan, &plan.sink.numbered(number))?;
        Ok((vec![source], sink))
    });
    ends.collect()
}

/// Changes to the user that `--user` names, if it was given.
fn change_user(plan: &CapturePlan) -> Result<(), Failure> {
    let Some(name) = &plan.user else {
        return Ok(());
    };
    become_user(name).map_err(|cause| match cause.kind() {
        io::ErrorKind::NotFound => Failure::usage(format!(
            "--user {name}: this host has no such user; `getent passwd` lists those it has"
        )),
        _ => Failure::system(&format!("becoming user {name}, which needs root"), &cause),
    })
}

fn open_sink(plan: &CapturePlan, address: &SinkAddress) -> Result<Box<dyn Sink>, CaptureError> {
    let mut sink = match plan.rotation {
        Some(rotation) => Box::new(RotatingSink::open(address, rotation)?),
        None => sink::open(address, &SendOptions::default())?,
    };
    if let Some(comment) = &plan.comment {
        sink.describe(comment)?;
    }
    Ok(sink)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snap_length_explains_why_packets_stayed_in_one_piece() {
        let whole = LiveOptions::default().snap_len;
        let account = Account {
            uncut_super_frames: 7,
            ..Account::default()
        };
        let said = too_short(&account, 128).expect("seven were not cut up");
        assert!(
            said.starts_with("7 super-packets") && said.contains("-s 128"),
            "{said}"
        );
        assert_eq!(too_short(&account, whole), None, "-s was not given");
        assert_eq!(too_short(&Account::default(), 128), None, "all were cut up");
    }
}
