//! `towline stats`.

use capture::{
    Ended, Filter, Session, SourceAddress, drop_capabilities, keep_file_capabilities, source,
    stats::StatsSink,
};
use gauge::{demo::isolate, sweep::draw as draw_sweep};
use measure::write_picture;

use super::{
    capture::{too_short, warn_of_taking},
    rtt::{check_drawable, write_drawing},
};
use crate::{
    failure::{Failure, Verdict},
    interrupt::Interrupt,
    plan::{StatsPlan, StatsSweepPlan},
    report::{Output, StatsReport, StatsSweepReport, flow_scene, last_second, most_of, sweep_line},
};

pub(super) fn run(plan: &StatsPlan, output: &Output) -> Result<Verdict, Failure> {
    if output.shows_only(plan)? {
        return Ok(Verdict::Done);
    }
    check_drawable(plan.plot.as_ref().map(|(path, _)| path))?;
    let interrupt = Interrupt::install()?;
    let filters = plan.filters.iter().map(|text| Filter::compile(text));
    let filters = filters.collect::<Result<Vec<_>, _>>()?;
    let mut sink = StatsSink::new(filters, plan.talkers);
    if plan.is_summary {
        sink = sink.without_headers();
    }
    let summary = sink.summary();
    warn_of_taking(&plan.sources, output);
    if plan.limits.segments && !plan.sources.iter().any(SourceAddress::is_live) {
        output.note(NOTHING_TO_CUT);
    }
    let sources = plan.sources.iter();
    let sources = sources.map(|address| source::open(address, &plan.live));
    let sources = sources.collect::<Result<Vec<_>, _>>()?;
    let mut session = Session::new(sources, Box::new(sink), plan.limits)?;
    // If the kernel does not let the capabilities be dropped, packets are counted all the same.
    let _kept = match plan.plot {
        None => drop_capabilities(),
        Some(_) => keep_file_capabilities(),
    };
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
    if let Some(remark) = too_short(session.account(), plan.live.snap_len) {
        output.note(&remark);
    }
    let summary = summary.read();
    output.finish(&StatsReport::new(plan, &session, &summary))?;
    if let Some((path, format)) = &plan.plot {
        let sources: Vec<String> = plan.sources.iter().map(ToString::to_string).collect();
        let scene = flow_scene(&summary, &sources);
        let about = sources.join("\n");
        write_drawing(path, output, |file| {
            write_picture(file, *format, &scene, "towline stats", &about)
        })?;
    }
    ended?;
    Ok(Verdict::Done)
}

/// The note when `--segment` is given and all sources are files.
const NOTHING_TO_CUT: &str = "--segment changes nothing here: a file does not say which of its \
                              frames are several packets in one piece; capture with --segment";

/// Measures the losses and the cost of captures.
pub(super) fn sweep(plan: &StatsSweepPlan, output: &Output) -> Result<Verdict, Failure> {
    if output.shows_only(plan)? {
        return Ok(Verdict::Done);
    }
    let (sweep, picture) = (plan.sweep, &plan.picture);
    check_drawable(picture.as_ref().map(|(path, _)| path))?;
    let interrupt = Interrupt::install()?;
    // Isolating comes before all work, because it may start the program again, inside a user
    // namespace. Where that is not permitted, the sweep fails and says why.
    let _refusal = isolate();
    let lines = output.progress().lines();
    let rows = sweep.run(&|| interrupt.is_requested(), &mut |row| {
        lines.set_message(sweep_line(row));
    });
    lines.finish_and_clear();
    let rows = match rows {
        Err(gauge::Error::Interrupted) => return Ok(Verdict::Interrupted),
        rows => rows?,
    };
    if let Some((path, format)) = picture {
        write_drawing(path, output, |file| {
            draw_sweep(file, *format, &sweep, &rows)
        })?;
    }
    let is_closed = rows.iter().all(|row| row.residual == Some(0));
    output.finish(&StatsSweepReport { sweep, rows })?;
    Ok(Verdict::of(is_closed))
}
