//! `towline stats`.

use std::{fs, path::Path};

use serde_json::json;
use towline::capture::{
    Ended, Filter, Limits, Session, drop_capabilities, source,
    stats::{StatsSink, Summary},
};

use crate::{
    args::StatsArgs,
    failure::{Failure, Verdict},
    interrupt::Interrupt,
    report::{Output, StatsReport, last_second, most_of, rate_svg},
};

pub(super) fn run(args: &StatsArgs, output: &Output) -> Result<Verdict, Failure> {
    let plan = json!({
        "sources": args.sources.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "filters": args.filter,
        "packets": args.count,
        "segments": args.segment,
    });
    if output.shows_only("stats", &plan)? {
        return Ok(Verdict::Done);
    }
    let interrupt = Interrupt::install()?;
    let filters = args.filter.iter().map(|text| Filter::compile(text));
    let filters = filters.collect::<Result<Vec<_>, _>>()?;
    let mut sink = StatsSink::new(filters, args.talkers);
    if args.summary {
        sink = sink.without_headers();
    }
    let summary = sink.summary();
    let live = args.live.options();
    let sources = args.sources.iter();
    let sources = sources.map(|address| source::open(address, &live));
    let limits = Limits {
        packets: args.count,
        duration: args.time,
        segments: args.segment,
        ..Limits::default()
    };
    let sources = sources.collect::<Result<Vec<_>, _>>()?;
    let mut session = Session::new(sources, Box::new(sink), limits)?;
    if args.plot.is_none() {
        // Nothing is opened from here on; a kernel that does not let go of them is no reason to
        // count nothing.
        let _kept = drop_capabilities();
    }
    let lines = output.progress().lines();
    let ended: Result<Ended, _> = session.run(&|| interrupt.is_requested(), &mut |account| {
        output.detail(&last_second(account));
        if !lines.is_hidden() {
            lines.set_message(last_second(account) + &most_of(&summary.read()));
        }
    });
    lines.finish_and_clear();
    session
        .take_remarks()
        .iter()
        .for_each(|remark| output.note(remark));
    let summary = summary.read();
    if let Some(path) = &args.plot {
        draw(path, &summary)?;
    }
    output.finish(&StatsReport::new(args, &session, &summary))?;
    ended?;
    Ok(Verdict::Done)
}

fn draw(path: &Path, summary: &Summary) -> Result<(), Failure> {
    let operation = format!("write {}", path.display());
    fs::write(path, rate_svg(summary)).map_err(|cause| Failure::environment(&operation, &cause))
}
