//! A page of panels from results: heat maps on one scale, cumulative shares, pacing errors, and for
//! a sweep how the times depend on the rate.

use super::{
    Anchor, Axis, Grid, Item, Map, Point, Scale, Scene, axis,
    page::{Chart, HALF_WIDTH, LEFT, LINE, Page, RIGHT_HALF, colours, fitted, names_height},
    palette::{self, ALARM, FAINT, GREY, INK},
    rates,
    scene::shade,
};
use crate::{Latencies, Percentiles, Series, Strain, Which, raw::Manifest, strains};

/// How a page is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Which times the maps show.
    pub view: View,
    /// How times are spread along their axis.
    pub scale: Scale,
    /// How counts become colours.
    pub colours: Scale,
}

/// Which times a map shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// Round trips from the intended time of sending.
    Intended,
    /// Round trips from the actual time of sending.
    Actual,
}

/// Draws the series one below the other, on one scale of times and one scale of colours. Below them
/// come the shares of round trips and of pacing errors, and for a sweep the times by rate.
#[must_use]
pub fn figure(series: &[Series<'_>], options: &Options) -> Scene {
    let strains = strains(series);
    let panels: Vec<Panel> = series
        .iter()
        .zip(&strains)
        .map(|(one, strain)| Panel::of_round_trips(one, options.view, *strain))
        .collect();
    let title = match options.view {
        View::Intended => "Round-trip time from the intended time of sending",
        View::Actual => "Round-trip time from the actual time of sending",
    };
    let has_rates = rates::is_sweep(series);
    let mut body = maps_height(panels.len()) + names_height(series.len()) + CURVE_HEIGHT + 90.0;
    if has_rates {
        body += rates::height(series, CURVE_HEIGHT);
    }
    let mut page = Page::new(title, &provenances(series), body);
    page.maps(&panels, options);
    page.top += GAP / 2.0;
    page.names(series.iter().map(|one| one.name.as_str()));
    let area = |left| [left, page.top, HALF_WIDTH, CURVE_HEIGHT];
    let (left, right) = (area(LEFT), area(RIGHT_HALF));
    page.curves(
        left,
        "share of round trips (line: intended, dots: actual)",
        series,
        &[Which::Intended, Which::Actual],
    );
    let title = "pacing error: how late messages left";
    page.curves(right, title, series, &[Which::Late]);
    page.top += CURVE_HEIGHT + 90.0;
    if has_rates {
        rates::draw(&mut page, series, &strains, CURVE_HEIGHT);
    }
    page.scene
}

/// Counts the points of one series in a grid for a terminal with `columns` and `lines`; each line
/// shows two rows.
#[must_use]
pub fn sketch(series: &Series<'_>, options: &Options, columns: usize, lines: usize) -> Grid {
    let panel = Panel::of_round_trips(series, options.view, None);
    let values = || panel.points.iter().map(|point| point.value_ns);
    let (min, max) = (
        values().min().unwrap_or(1_000),
        values().max().unwrap_or(1_000_000),
    );
    let axis = Axis::around(options.scale, min as f64, max as f64);
    let mut grid = Grid::new(columns, lines * 2, panel.lasted_ns, axis);
    for &point in &panel.points {
        grid.take(point);
    }
    grid
}

/// Draws where the time of the stamped messages' round trips went: send path, link and far end,
/// wake-up. `None` when no message was stamped.
#[must_use]
pub fn hops(series: &[Series<'_>], options: &Options) -> Option<Scene> {
    let panels: Vec<Panel> = series
        .iter()
        .filter(|one| one.splits().next().is_some())
        .flat_map(Panel::of_hops)
        .collect();
    if panels.is_empty() {
        return None;
    }
    let title = "Where the round trips' time went (kernel stamps)";
    let mut lines = provenances(series);
    lines.extend(series.iter().map(headline));
    let mut page = Page::new(title, &lines, maps_height(panels.len()));
    page.maps(&panels, options);
    Some(page.scene)
}

/// One part of a round trip.
type Part = fn(&crate::Split) -> u64;

/// One heat map before it is drawn.
struct Panel {
    /// The panel's name in a read-out.
    name: String,
    title: String,
    /// The second line above the map: figures and counts.
    remark: String,
    /// Why the panel's rate lies beyond the knee of its sweep.
    strain: Option<Strain>,
    points: Vec<Point>,
    lasted_ns: u64,
    disturbances: Vec<(u64, u64)>,
}

impl Panel {
    fn of_round_trips(series: &Series<'_>, view: View, strain: Option<Strain>) -> Self {
        let points = series.samples().filter_map(|(start, sample)| {
            let (at_ns, value_ns) = match view {
                View::Intended => (sample.intended_ns, sample.rtt_intended_ns()?),
                View::Actual => (sample.sent_ns, sample.rtt_ns?),
            };
            let at_ns = start.saturating_add(at_ns);
            Some(Point { at_ns, value_ns })
        });
        let figures = match view {
            View::Intended => series.latencies.intended(),
            View::Actual => series.latencies.actual(),
        };
        Self {
            name: series.name.clone(),
            title: headline(series),
            remark: remark(series, &figures),
            strain,
            points: points.collect(),
            lasted_ns: series.lasted_ns,
            disturbances: disturbances(series),
        }
    }

    fn of_hops(series: &Series<'_>) -> [Self; 3] {
        let label = &series.name;
        let parts: [(&str, Part); 3] = [
            (
                "send path: send() to the device",
                crate::Split::send_path_ns,
            ),
            ("network and far end: device to our kernel", |split| {
                split.link_ns
            }),
            ("wake-up: our kernel to recv()", |split| split.wake_ns),
        ];
        parts.map(|(name, part)| Self {
            name: format!("{label}: {name}"),
            title: format!("{label}: {name}"),
            remark: middles(series, part),
            strain: None,
            points: series
                .splits()
                .map(|(at_ns, split)| Point {
                    at_ns,
                    value_ns: part(split),
                })
                .collect(),
            lasted_ns: series.lasted_ns,
            disturbances: disturbances(series),
        })
    }
}

fn middles(series: &Series<'_>, part: Part) -> String {
    let mut values: Vec<u64> = series.splits().map(|(_, split)| part(split)).collect();
    values.sort_unstable();
    let at = |share: usize| values.get(values.len() * share / 100).copied().unwrap_or(0);
    let (p50, p99) = (axis::time(at(50) as f64), axis::time(at(99) as f64));
    format!("p50 {p50}  p99 {p99}  of {} stamped messages", values.len())
}

fn disturbances(series: &Series<'_>) -> Vec<(u64, u64)> {
    series
        .disturbances()
        .map(|mark| (mark.at_ns, mark.lasted_ns))
        .collect()
}

/// Returns the text above a panel's map: rate, datagrams and the link's ceiling.
fn headline(series: &Series<'_>) -> String {
    let counts = &series.counts;
    format!(
        "{}: {:.0}/s one way, {} datagrams of {} B there and {} back; {}",
        series.name,
        series.sent_per_s(),
        counts.sent,
        series.setup.size_bytes,
        counts.answered,
        ceiling(series),
    )
}

/// Returns the text below a panel's headline: figures and counts.
fn remark(series: &Series<'_>, figures: &Percentiles) -> String {
    let ns = |value: u64| axis::time(value as f64);
    let mut text = format!(
        "p50 {}  p99 {}  p99.9 {}  max {}",
        ns(figures.p50_ns),
        ns(figures.p99_ns),
        ns(figures.p999_ns),
        ns(figures.max_ns),
    );
    let counts = &series.counts;
    for (count, what) in [(counts.lost, "LOST"), (counts.missed, "slots MISSED")] {
        if count > 0 {
            text += &format!("; {count} {what}");
        }
    }
    if let Some(repairs) = &series.repairs {
        let seconds = series.lasted_ns.max(1) as f64 / 1e9;
        text += &format!(
            "; {} NAKs, {} repairs ({:.0} B/s)",
            repairs.naks_received + repairs.naks_sent,
            repairs.repairs(),
            repairs.repair_bytes_sent as f64 / seconds,
        );
    }
    if !series.shortfalls().is_empty() {
        text += "; NOT THE RATE ASKED FOR";
    }
    if let Some((since_ns, _)) = series.silence() {
        text += &format!("; ANSWERS STOPPED AFTER {:.2} s", since_ns as f64 / 1e9);
    }
    if series.is_cut() {
        text += "; CUT SHORT";
    }
    text
}

fn ceiling(series: &Series<'_>) -> String {
    match series.link_max_per_s() {
        Some(most) => format!("the line takes {most}/s"),
        None => "line rate not known".to_owned(),
    }
}

/// Returns the height of this many maps, in pixels.
fn maps_height(panels: usize) -> f64 {
    panels as f64 * (PANEL_HEIGHT + PANEL_GAP) + 40.0
}

/// Returns a line for each result that says where it comes from.
fn provenances(series: &[Series<'_>]) -> Vec<String> {
    let mut manifests: Vec<&Manifest> = Vec::new();
    for one in series {
        let is_known = |known: &&Manifest| std::ptr::eq(*known, one.manifest);
        if !manifests.iter().any(is_known) {
            manifests.push(one.manifest);
        }
    }
    manifests.into_iter().map(provenance).collect()
}

impl Page {
    /// Draws the maps below each other, with one axis of values and one scale of colours.
    fn maps(&mut self, panels: &[Panel], options: &Options) {
        let values = || {
            panels
                .iter()
                .flat_map(|panel| &panel.points)
                .map(|point| point.value_ns)
        };
        let (min, max) = (
            values().min().unwrap_or(1_000),
            values().max().unwrap_or(1_000_000),
        );
        let axis = Axis::around(options.scale, min as f64, max as f64);
        let grids: Vec<Grid> = panels.iter().map(|panel| grid(panel, axis)).collect();
        let count_max = grids.iter().map(Grid::count_max).max().unwrap_or(0);
        let first = self.top + HEAD;
        for (panel, grid) in panels.iter().zip(grids) {
            let area = [LEFT, self.top + HEAD, MAP_WIDTH, PANEL_HEIGHT - HEAD];
            for (line, text) in [(8.0, &panel.title), (8.0 + LINE, &panel.remark)] {
                let at = (LEFT, self.top + line);
                self.scene.text(at, &fitted(text), 2, Anchor::Start);
            }
            self.frame(area, axis, panel.lasted_ns);
            self.disturbances(area, panel);
            self.knee(area, panel.strain);
            self.scene.items.push(Item::Map(Map {
                area,
                title: panel.name.clone(),
                grid,
                count_max,
                colours: options.colours,
            }));
            self.top += PANEL_HEIGHT + PANEL_GAP;
        }
        self.legend(first, count_max, options.colours);
        let at = (LEFT + MAP_WIDTH / 2.0, self.top + 2.0);
        self.scene
            .coloured_text(at, "time", 2, Anchor::Middle, GREY);
        if panels.iter().any(|panel| !panel.disturbances.is_empty()) {
            let y = self.top + 2.0;
            self.scene.rect([LEFT, y - 2.5, 18.0, 5.0], ALARM);
            let at = (LEFT + 26.0, y);
            self.scene.text(at, DISTURBED, 2, Anchor::Start);
        }
        self.top += 24.0;
    }

    /// Draws the lines and names of a map's two axes.
    fn frame(&mut self, [left, top, width, height]: [f64; 4], values: Axis, lasted_ns: u64) {
        for value in values.ticks(5) {
            let y = top + height * (1.0 - values.place(value));
            self.scene
                .line(vec![(left, y), (left + width, y)], FAINT, 1.0);
            let at = (left - 8.0, y);
            self.scene.text(at, &axis::time(value), 2, Anchor::End);
        }
        let time = Axis {
            scale: Scale::Linear,
            min: 0.0,
            max: lasted_ns.max(1) as f64,
        };
        for value in time.ticks(8) {
            let x = left + width * time.place(value);
            let points = vec![(x, top + height), (x, top + height + 4.0)];
            self.scene.line(points, INK, 1.0);
            let at = (x, top + height + 13.0);
            self.scene.text(at, &axis::time(value), 2, Anchor::Middle);
        }
        self.outline([left, top, width, height]);
    }

    /// Marks the disturbances of the measurement above a map.
    fn disturbances(&mut self, [left, top, width, _]: [f64; 4], panel: &Panel) {
        let lasted = panel.lasted_ns.max(1) as f64;
        for &(at, lasts) in &panel.disturbances {
            let x = left + width * (at as f64 / lasted).min(1.0);
            let across = (width * lasts as f64 / lasted).max(2.0);
            self.scene.rect([x, top - 5.0, across, 5.0], ALARM);
        }
    }

    /// Marks a rate beyond the knee of its sweep with a bar along its map, and says why.
    fn knee(&mut self, [left, top, width, height]: [f64; 4], strain: Option<Strain>) {
        let Some(strain) = strain else { return };
        self.scene.rect([left - 4.0, top, 4.0, height], ALARM);
        let text = format!("BEYOND THE KNEE: {}", rates::brief(strain));
        let at = (left + width, top - HEAD + 8.0 + LINE);
        self.scene.coloured_text(at, &text, 2, Anchor::End, ALARM);
    }

    fn legend(&mut self, top: f64, count_max: u32, colours: Scale) {
        let left = LEFT + MAP_WIDTH + 20.0;
        let height = PANEL_HEIGHT - HEAD;
        self.scene
            .text((left, top - 16.0), "messages", 2, Anchor::Start);
        let steps = 100;
        for step in 0..steps {
            let y = top + height * (1.0 - f64::from(step + 1) / f64::from(steps));
            let level = (step * u32::from(palette::LEVELS) / steps) as u8;
            let area = [left, y, 18.0, height / f64::from(steps) + 1.0];
            self.scene.rect(area, palette::level(level));
        }
        let counts = Axis {
            scale: colours,
            min: 1.0,
            max: f64::from(count_max.max(2)),
        };
        let ends = [1.0, counts.max].into_iter();
        for value in counts.ticks(4).into_iter().chain(ends) {
            let place = f64::from(shade(value as u32, count_max, colours));
            let y = top + height * (1.0 - place / f64::from(palette::LEVELS - 1));
            let is_end = value <= 1.0 || value >= counts.max;
            // A name too near an end would overlap the name of the end.
            if is_end || (y - top > 14.0 && top + height - y > 14.0) {
                let text = format!("{value:.0}");
                self.scene.text((left + 24.0, y), &text, 2, Anchor::Start);
            }
        }
    }

    /// Draws shares against times: the times along the bottom, the share in nines upwards.
    fn curves(&mut self, area: [f64; 4], title: &str, series: &[Series<'_>], which: &[Which]) {
        let all = |one: &Series<'_>, kind| curve(&one.latencies, kind);
        let times = || {
            let kinds = which
                .iter()
                .flat_map(|&kind| series.iter().map(move |one| all(one, kind)));
            kinds.flatten().map(|(time, _)| time.max(1.0))
        };
        let min = times().fold(f64::INFINITY, f64::min);
        let max = times().fold(1.0, f64::max);
        let axis = Axis::around(Scale::Log, if min.is_finite() { min } else { 1.0 }, max);
        let ticks = axis.ticks(6).into_iter();
        let chart = Chart {
            area,
            title: title.to_owned(),
            across: ticks.map(|it| (axis.place(it), axis::time(it))).collect(),
            up: NINES
                .map(|(nines, name)| (nines / NINES_MAX, name.to_owned()))
                .to_vec(),
        };
        self.chart(&chart);
        for (one, colour) in series.iter().zip(colours()) {
            for (kind, is_dotted) in which.iter().zip([false, true]) {
                let points: Vec<_> = all(one, *kind)
                    .into_iter()
                    .map(|(time, nines)| chart.at(axis.place(time), nines / NINES_MAX))
                    .collect();
                if is_dotted {
                    self.dots(&points, colour);
                } else {
                    self.scene.line(points, colour, 2.0);
                }
            }
        }
    }
}

/// Returns the points of a curve: times in nanoseconds, each with its share in nines. A share of
/// 0.999 is 3 nines.
fn curve(latencies: &Latencies, which: Which) -> Vec<(f64, f64)> {
    let nines = |share: f64| {
        if share >= 1.0 {
            NINES_MAX
        } else {
            -(1.0 - share).log10()
        }
    };
    latencies
        .curve(which)
        .into_iter()
        .map(|(time, share)| (time as f64, nines(share)))
        .collect()
}

fn grid(panel: &Panel, axis: Axis) -> Grid {
    // With few points, larger cells make them visible.
    let (columns, rows) = if panel.points.len() < FEW_POINTS {
        (MAP_COLUMNS / 3, MAP_ROWS / 3)
    } else {
        (MAP_COLUMNS, MAP_ROWS)
    };
    let mut grid = Grid::new(columns, rows, panel.lasted_ns, axis);
    for &point in &panel.points {
        grid.take(point);
    }
    grid
}

/// Says in a line where a result comes from.
fn provenance(manifest: &Manifest) -> String {
    let host = &manifest.host;
    let interface = match (&manifest.interface, &manifest.driver) {
        (Some(name), Some(driver)) => format!("{name} ({driver})"),
        (Some(name), None) => name.clone(),
        _ => "unknown interface".to_owned(),
    };
    format!(
        "{} to {} by {interface}; Linux {} ({}), {} x {}, clock {}",
        host.name,
        manifest.target,
        host.kernel,
        host.preemption,
        host.cpu_count,
        host.processor,
        host.clock_source
    )
}

/// What the marks above a map mean.
const DISTURBED: &str = "above a map: the measuring thread did not run";
const MAP_WIDTH: f64 = 1360.0;
const MAP_COLUMNS: usize = 680;
const MAP_ROWS: usize = 109;
const FEW_POINTS: usize = 5_000;
const PANEL_HEIGHT: f64 = 262.0;
/// Pixels of the two lines of text above a map.
const HEAD: f64 = 44.0;
const PANEL_GAP: f64 = 36.0;
const CURVE_HEIGHT: f64 = 330.0;
const GAP: f64 = 36.0;
const NINES_MAX: f64 = 6.0;
const NINES: [(f64, &str); 7] = [
    (0.0, "0 %"),
    (1.0, "90 %"),
    (2.0, "99 %"),
    (3.0, "99.9 %"),
    (4.0, "99.99 %"),
    (5.0, "99.999%"),
    (6.0, "all"),
];
