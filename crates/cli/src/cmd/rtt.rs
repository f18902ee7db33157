//! `towline rtt`: the reflector, the measurement, and pictures of results.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufReader, BufWriter, IsTerminal as _, Write},
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use gauge::rtt::{
    Reflector, Series, Watch,
    plot::{self, Options},
    prepare,
    raw::{self, FileCut, Host},
    reflect_over,
};
use measure::{Format, export};

use crate::{
    args::OverArg,
    failure::{Failure, Verdict, unreadable},
    interrupt::Interrupt,
    plan::{PicturePlan, RttPlotPlan, RttReflectPlan, RttRunPlan},
    report::{self, Interval, Output, RttReflectReport, RttReport, RttRow},
};

pub(super) fn reflect(plan: &RttReflectPlan, output: &Output) -> Result<Verdict, Failure> {
    if output.shows_only(plan)? {
        return Ok(Verdict::Done);
    }
    let interrupt = Interrupt::install()?;
    let thread = &plan.thread;
    if plan.over != OverArg::Udp {
        output.note(&format!("reflecting at {}; Ctrl-C ends it", plan.listen));
        for remark in prepare(thread.scheduling, thread.cpu, thread.locks_memory).remarks {
            output.note(&remark);
        }
        let (over, wait) = (plan.over.into(), plan.spec().wait);
        let counts = reflect_over(over, plan.listen, plan.iface.as_ref(), wait, &|| {
            interrupt.is_requested()
        })?;
        output.finish(&RttReflectReport::from(counts))?;
        return Ok(Verdict::Done);
    }
    let mut reflector = Reflector::open_on(plan.spec(), plan.iface.as_ref())?;
    if let Some(remark) = reflector.remark() {
        output.note(remark);
    }
    for remark in prepare(thread.scheduling, thread.cpu, thread.locks_memory).remarks {
        output.note(&remark);
    }
    output.note(&format!(
        "reflecting at {}; Ctrl-C ends it",
        reflector.local()?
    ));
    let counts = reflector.run(&|| interrupt.is_requested())?;
    output.finish(&RttReflectReport::from(counts))?;
    // Only a signal ends the reflector, so this is no failure.
    Ok(Verdict::Done)
}

pub(super) fn run(plan: &RttRunPlan, output: &Output) -> Result<Verdict, Failure> {
    if output.shows_only(plan)? {
        return Ok(Verdict::Done);
    }
    check_drawable(&plan.picture.to)?;
    let interrupt = Interrupt::install()?;
    let campaign = plan.campaign()?;
    let path = plan.out.clone().unwrap_or_else(new_name);
    let file = create(&path)?;
    let result = campaign.run(
        BufWriter::new(file),
        &|| interrupt.is_requested(),
        &mut |text| output.note(text),
        watch(plan, output),
    );
    let outcomes = match result {
        Ok(outcomes) => outcomes,
        Err(error) => {
            keep_partial(&path, plan, output)?;
            return Err(error.into());
        }
    };
    output.note(&format!("the result is in {}", path.display()));
    let result = read(&path)?;
    let series = Series::of(&result);
    let remarks = &result.manifest.remarks;
    tell(&path, &series, remarks, plan, output)?;
    // The figures were printed before, so a picture that cannot be drawn does not lose them.
    draw(&series, &plan.picture, output)?;
    let is_whole = outcomes.iter().all(|outcome| outcome.cut.is_none())
        && series.iter().all(|one| one.silence().is_none());
    Ok(Verdict::of_session(interrupt.is_requested(), is_whole))
}

/// Makes the watch that prints the figures of each interval; `None` without `--every`.
fn watch(plan: &RttRunPlan, output: &Output) -> Option<Watch> {
    let (every, size, output) = (plan.every?, plan.size_bytes, output.clone());
    Some(Watch::new(every, move |passage| {
        let told = output.one_of_many(&Interval::of_round_trips(passage, size));
        // The measurement goes on even when nobody reads the intervals: its result is a file.
        told.unwrap_or_default();
    }))
}

/// Handles the file of a failed measurement: reports what the file holds, or removes the file when
/// it is empty.
fn keep_partial(path: &Path, plan: &RttRunPlan, output: &Output) -> Result<(), Failure> {
    remove_if_empty(path);
    let Ok(mut result) = read(path) else {
        return Ok(());
    };
    let shown = path.display();
    let remark = if result.runs.is_empty() {
        format!("{shown} holds no measurement, only the settings of the run")
    } else {
        format!("{shown} holds what was measured so far; `towline rtt plot {shown}` reads it")
    };
    output.warn(&remark);
    result.manifest.remarks.push(remark);
    let series = Series::of(&result);
    let remarks = &result.manifest.remarks;
    tell(path, &series, remarks, plan, output)
}

/// Prints the figures of one result.
fn tell(
    path: &Path,
    series: &[Series<'_>],
    remarks: &[String],
    plan: &RttRunPlan,
    output: &Output,
) -> Result<(), Failure> {
    let rows = RttRow::all(series);
    let maps = maps(series, &plan.picture, output);
    let mut report = RttReport::new(vec![path.display().to_string()], rows, maps);
    report.remarks = remarks.to_vec();
    output.finish_after(plan.every, &report)
}

pub(super) fn plot(plan: &RttPlotPlan, output: &Output) -> Result<Verdict, Failure> {
    if output.shows_only(plan)? {
        return Ok(Verdict::Done);
    }
    let results = plan.files.iter().map(|path| read(path));
    let results = results.collect::<Result<Vec<_>, _>>()?;
    for (path, result) in plan.files.iter().zip(&results) {
        if let Some(cut) = &result.cut {
            output.warn(&described_cut(path, result, cut));
        }
    }
    let mut series: Vec<Series<'_>> = Vec::new();
    for (path, result) in plan.files.iter().zip(&results) {
        for mut one in Series::of(result) {
            if plan.is_diff {
                one.name = format!("{} {}", described(&result.manifest.host), one.name);
            } else if results.len() > 1 {
                one.name = format!("{} {}", path.display(), one.name);
            }
            series.push(one);
        }
    }
    let mut rows = RttRow::all(&series);
    if plan.is_diff {
        RttRow::compare(&mut rows, &series);
    }
    let maps = maps(&series, &plan.picture, output);
    let files = plan.files.iter().map(|path| path.display().to_string());
    output.finish(&RttReport::new(files.collect(), rows, maps))?;
    draw(&series, &plan.picture, output)?;
    Ok(Verdict::Done)
}

/// Describes a result file that was cut short: what is left out, and where its last run ends.
fn described_cut(path: &Path, result: &raw::File, cut: &FileCut) -> String {
    let shown = path.display();
    let mut text = format!("{shown} was cut short");
    match (cut.left_out, cut.missing) {
        (0, _) => {}
        (bytes, None) => text += &format!(": its last {bytes} B are left out"),
        (bytes, Some(missing)) => {
            text +=
                &format!(": its last block has {bytes} B and lacks {missing} B, and is left out");
        }
    }
    match result.runs.last() {
        None => text += "; it holds no measurement",
        Some(run) if run.end.is_none() => {
            let last_ns = run.samples.last().map_or(0, |sample| sample.sent_ns);
            let lasted = Duration::from_millis(last_ns / 1_000_000);
            let label = &run.setup.label;
            text +=
                &format!("; of {label} it holds only the first {lasted:?}; the rest is missing");
        }
        Some(_) => {}
    }
    text
}

fn described(host: &Host) -> String {
    format!("{} {} ({})", host.name, host.kernel, host.preemption)
}

fn draw(series: &[Series<'_>], picture: &PicturePlan, output: &Output) -> Result<(), Failure> {
    let (options, with_hops) = (picture.options(), picture.with_hops);
    draw_each(&picture.to, output, |file, format| {
        export(file, format, series, &options, with_hops)
    })
}

/// Calls `draw` for each file, with the format that the file's name asks for. The plan has checked
/// the names.
pub(super) fn draw_each(
    paths: &[PathBuf],
    output: &Output,
    draw: impl Fn(&mut Drawing<'_>, Format) -> io::Result<()>,
) -> Result<(), Failure> {
    paths.iter().try_for_each(|path| {
        let format = Format::of(path).expect("the plan has checked the names");
        write_drawing(path, output, |file| draw(file, format))
    })
}

/// Checks that the pictures can be written, before a measurement that may take long. An existing
/// file stays as it is; a missing one is made and removed again.
pub(super) fn check_drawable<'a>(
    paths: impl IntoIterator<Item = &'a PathBuf>,
) -> Result<(), Failure> {
    for path in paths {
        let mut options = OpenOptions::new();
        options.write(true);
        let opened = match path.symlink_metadata() {
            // Opening a FIFO could wait for a reader, so only files and directories are opened; a
            // directory fails.
            Ok(found) if !found.is_file() && !found.is_dir() => continue,
            Ok(_) => options.open(path).map(drop),
            Err(_) => options
                .create_new(true)
                .open(path)
                .and_then(|_file| fs::remove_file(path)),
        };
        opened.map_err(|error| Failure::system(&format!("drawing {}", path.display()), &error))?;
    }
    Ok(())
}

/// Writes a picture into a file, and prints its path.
pub(super) fn write_drawing(
    path: &Path,
    output: &Output,
    draw: impl FnOnce(&mut Drawing) -> io::Result<()>,
) -> Result<(), Failure> {
    let mut drawing = Drawing { path, file: None };
    let written = draw(&mut drawing).and_then(|()| drawing.flush());
    written.map_err(|error| Failure::system(&format!("drawing {}", path.display()), &error))?;
    output.note(&format!("drew {}", path.display()));
    Ok(())
}

/// A file that is made only when its first byte is written. If drawing fails before that, no empty
/// file is left, and an older file of that name stays.
pub(super) struct Drawing<'a> {
    path: &'a Path,
    file: Option<BufWriter<File>>,
}

impl Write for Drawing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(BufWriter::new(File::create(self.path)?)),
        };
        file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), Write::flush)
    }
}

/// Draws the heat maps as text, if standard output is a terminal or the plan asks for maps.
fn maps(series: &[Series<'_>], picture: &PicturePlan, output: &Output) -> Vec<String> {
    let is_terminal = io::stdout().is_terminal();
    if output.is_json() || !(picture.with_map || is_terminal) {
        return Vec::new();
    }
    let has_colour = is_terminal && std::env::var_os("NO_COLOR").is_none();
    let options: Options = picture.options();
    let columns = usize::from(report::columns()).clamp(MAP_COLUMNS_MIN, MAP_COLUMNS_MAX);
    let columns = columns - plot::TERMINAL_AXIS;
    series
        .iter()
        .map(|one| {
            let grid = plot::sketch(one, &options, columns, MAP_LINES);
            plot::terminal(&grid, &one.name, has_colour)
        })
        .collect()
}

fn read(path: &Path) -> Result<raw::File, Failure> {
    let file = File::open(path).map_err(|error| Failure::Environment(unreadable(path, &error)))?;
    raw::read(BufReader::new(file)).map_err(|error| match error {
        raw::RawError::Io(error) => Failure::Environment(unreadable(path, &error)),
        other => Failure::environment(&format!("reading {}", path.display()), &other),
    })
}

/// Makes a new file, because a result never overwrites another.
fn create(path: &Path) -> Result<File, Failure> {
    let new = OpenOptions::new().write(true).create_new(true).open(path);
    new.map_err(|error| {
        let what = format!("creating the result {}", path.display());
        if error.kind() == io::ErrorKind::AlreadyExists {
            let remedy = "it is there already: remove it, or name another with --out";
            return Failure::environment(&what, &remedy);
        }
        Failure::environment(&what, &format!("{error}; name another place with --out"))
    })
}

/// Removes the file of a measurement that never began.
fn remove_if_empty(path: &Path) {
    if path.metadata().is_ok_and(|it| it.len() == 0) {
        // A file that stays is harmless; the error that follows matters more.
        drop(fs::remove_file(path));
    }
}

fn new_name() -> PathBuf {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let seconds = now.map_or(0, |since| since.as_secs());
    PathBuf::from(format!("rtt-{seconds}.rtt"))
}

/// The fewest columns of a heat map, with its axis, even on a narrower terminal.
const MAP_COLUMNS_MIN: usize = 40;
const MAP_COLUMNS_MAX: usize = 160;
const MAP_LINES: usize = 12;
