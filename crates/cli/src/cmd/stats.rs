//! `towline stats`.

use std::{fs, io::BufWriter, path::Path, time::Duration};

use capture::{
    Ended, Filter, Limits, LiveOptions, Session, drop_capabilities, keep_file_capabilities, source,
    stats::{StatsSink, Summary},
};
use gauge::{
    demo::isolate,
    sweep::{CaptureSweep, SweepBy, draw as draw_sweep},
};
use measure::Format;
use serde_json::json;

use super::{capture::warn_of_taking, rtt::check_drawable};
use crate::{
    args::{StatsArgs, SweptSize},
    failure::{Failure, Verdict},
    interrupt::Interrupt,
    report::{Output, StatsReport, StatsSweepReport, last_second, most_of, rate_svg, sweep_line},
};

pub(super) fn run(args: &StatsArgs, output: &Output) -> Result<Verdict, Failure> {
    if let Some(by) = args.sweep {
        return sweep(args, by, output);
    }
    let plan = json!({
        "sources": args.sources.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "filters": args.filter,
        "packets": args.count,
        "segments": args.segment,
    });
    if output.shows_only("stats", &plan)? {
        return Ok(Verdict::Done);
    }
    if let Some(path) = &args.plot
        && Format::of(path) != Some(Format::Svg)
    {
        let text = "is no FILE.svg: the rate over time is drawn as SVG only";
        return Err(Failure::usage(format!("{} {text}", path.display())));
    }
    check_drawable(&args.plot)?;
    let interrupt = Interrupt::install()?;
    let filters = args.filter.iter().map(|text| Filter::compile(text));
    let filters = filters.collect::<Result<Vec<_>, _>>()?;
    let mut sink = StatsSink::new(filters, args.talkers);
    if args.summary {
        sink = sink.without_headers();
    }
    let summary = sink.summary();
    let live = LiveOptions {
        has_room_for_super_packets: args.segment,
        ..args.live.options()
    };
    warn_of_taking(&args.sources, output);
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
    // A kernel that does not let go of them is no reason to count nothing.
    let _kept = match args.plot {
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
    let summary = summary.read();
    if let Some(path) = &args.plot {
        draw(path, &summary)?;
    }
    output.finish(&StatsReport::new(args, &session, &summary))?;
    ended?;
    Ok(Verdict::Done)
}

/// What captures lose and cost, measured.
fn sweep(args: &StatsArgs, by: SweptSize, output: &Output) -> Result<Verdict, Failure> {
    let sweep = CaptureSweep {
        by: match by {
            SweptSize::RingSize => SweepBy::RingSize,
            SweptSize::PacketSize => SweepBy::PacketSize,
        },
        packets_per_s: args.pps,
        time: args.time.unwrap_or(SWEEP_TIME),
        ring_bytes: args.live.options().ring_bytes,
    };
    let picture = match args.plot.as_deref().map(|path| (path, Format::of(path))) {
        None => None,
        Some((path, Some(format))) if format.is_picture() => Some((path, format)),
        Some((path, _)) => {
            let (path, names) = (path.display(), Format::PICTURE_NAMES);
            return Err(Failure::usage(format!("{path} is no picture: {names}")));
        }
    };
    if output.shows_only("stats-sweep", &sweep)? {
        return Ok(Verdict::Done);
    }
    check_drawable(&args.plot)?;
    let interrupt = Interrupt::install()?;
    // First of all: it may start this program again, inside a user namespace. Where neither is
    // permitted, the lab says why.
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
        let operation = format!("write {}", path.display());
        let written = fs::File::create(path).and_then(|mut file| {
            let mut buffer = BufWriter::new(&mut file);
            draw_sweep(&mut buffer, format, &sweep, &rows)
        });
        written.map_err(|cause| Failure::environment(&operation, &cause))?;
    }
    let is_closed = rows.iter().all(|row| row.residual == Some(0));
    output.finish(&StatsSweepReport { sweep, rows })?;
    Ok(Verdict::of(is_closed))
}

fn draw(path: &Path, summary: &Summary) -> Result<(), Failure> {
    let operation = format!("write {}", path.display());
    fs::write(path, rate_svg(summary)).map_err(|cause| Failure::environment(&operation, &cause))
}

/// At each size.
const SWEEP_TIME: Duration = Duration::from_secs(2);
