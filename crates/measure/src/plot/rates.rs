//! Draws how the times of a sweep depend on its rates, and where the knee is.

use super::{
    Anchor, Axis, Scale, axis,
    page::{Chart, HALF_WIDTH, LEFT, Page, RIGHT_HALF, colours, names_height},
    palette::ALARM,
};
use crate::{Series, Strain};

/// Returns true when at least two series differ only in their rates.
pub(super) fn is_sweep(series: &[Series<'_>]) -> bool {
    sweeps(series).iter().any(|sweep| sweep.len() > 1)
}

/// Returns the height of what [`draw`] draws in charts of `height` pixels.
pub(super) fn height(series: &[Series<'_>], height: f64) -> f64 {
    let names = match sweeps(series).len() {
        0 | 1 => 0.0,
        curves => names_height(curves),
    };
    names + height + 90.0
}

/// Draws round trips by rate, and over PGM also the repairs. The charts are `height` pixels high.
pub(super) fn draw(
    page: &mut Page,
    series: &[Series<'_>],
    strains: &[Option<Strain>],
    height: f64,
) {
    let sweeps = sweeps(series);
    if sweeps.len() > 1 {
        let names: Vec<String> = sweeps.iter().map(|sweep| of_sweep(sweep[0])).collect();
        page.names(names.iter().map(String::as_str));
    }
    let left = [LEFT, page.top, HALF_WIDTH, height];
    let right = [RIGHT_HALF, page.top, HALF_WIDTH, height];
    let micro = |ns: u64| ns.max(1) as f64;
    page.by_rate(
        left,
        "round trips by rate (line: p50, dots: p99)",
        (Scale::Log, axis::time),
        &sweeps,
        [&|one| micro(one.latencies.intended().p50_ns), &|one| {
            micro(one.latencies.intended().p99_ns)
        }],
        |one| strain_of(one, series, strains).is_some(),
    );
    if series.iter().any(|one| one.repairs.is_some()) {
        let per_second =
            |one: &Series<'_>, count: u64| count as f64 / (one.lasted_ns.max(1) as f64 / 1e9);
        page.by_rate(
            right,
            "PGM by rate (line: repairs/s, dots: NAKs/s)",
            (Scale::Linear, number),
            &sweeps,
            [
                &|one| per_second(one, one.repairs.unwrap_or_default().repairs()),
                &|one| {
                    let repairs = one.repairs.unwrap_or_default();
                    per_second(one, repairs.naks_received + repairs.naks_sent)
                },
            ],
            |one| strain_of(one, series, strains).is_some(),
        );
    }
    page.top += height;
}

/// Returns why a rate lies beyond the knee, in a word or two.
pub(super) const fn brief(strain: Strain) -> &'static str {
    match strain {
        Strain::Lost => "loss",
        Strain::Repaired => "repairs",
        Strain::Slow => "p50 x 2",
        Strain::Tail => "p99 x 10",
    }
}

fn strain_of(
    one: &Series<'_>,
    series: &[Series<'_>],
    strains: &[Option<Strain>],
) -> Option<Strain> {
    let same = |other: &Series<'_>| std::ptr::eq(other, one);
    series.iter().position(same).and_then(|at| strains[at])
}

/// Returns the series of each sweep, by rising rate.
fn sweeps<'s, 'a>(series: &'s [Series<'a>]) -> Vec<Vec<&'s Series<'a>>> {
    let mut all: Vec<Vec<&Series<'_>>> = Vec::new();
    for one in series.iter().filter(|one| one.setup.per_second.is_some()) {
        match all.iter_mut().find(|sweep| sweep[0].is_swept_with(one)) {
            Some(sweep) => sweep.push(one),
            None => all.push(vec![one]),
        }
    }
    for sweep in &mut all {
        sweep.sort_by_key(|one| one.setup.per_second);
    }
    all
}

/// The value of a series that a curve shows.
type Value<'v> = &'v dyn Fn(&Series<'_>) -> f64;

impl Page {
    /// Draws the first value as a line and the second as dots, by rate. Marks the knee before the
    /// first rate for which `is_beyond` returns true.
    fn by_rate(
        &mut self,
        area: [f64; 4],
        title: &str,
        (scale, name): (Scale, fn(f64) -> String),
        sweeps: &[Vec<&Series<'_>>],
        values: [Value<'_>; 2],
        is_beyond: impl Fn(&Series<'_>) -> bool,
    ) {
        let rate = |one: &Series<'_>| one.setup.per_second.unwrap_or(0) as f64;
        let all = || sweeps.iter().flatten();
        let shown = || all().flat_map(|one| values.map(|value| value(one)));
        let (min, max) = ends(shown());
        let up = Axis::around(scale, min, max);
        let (_, fastest) = ends(all().map(|one| rate(one)));
        let across = Axis {
            scale: Scale::Linear,
            min: 0.0,
            max: fastest * 1.05,
        };
        let places = |axis: &Axis, count, name: fn(f64) -> String| {
            let ticks = axis.ticks(count).into_iter();
            ticks.map(|it| (axis.place(it), name(it))).collect()
        };
        let chart = Chart {
            area,
            title: title.to_owned(),
            across: places(&across, 6, number),
            up: places(&up, 6, name),
        };
        self.chart(&chart);
        for (sweep, colour) in sweeps.iter().zip(colours()) {
            let at = |one: &Series<'_>, value: Value<'_>| {
                chart.at(across.place(rate(one)), up.place(value(one)))
            };
            let [line, dots] = values.map(|value| {
                let points = sweep.iter().map(|one| at(one, value));
                points.collect::<Vec<_>>()
            });
            for (x, y) in dots {
                self.scene.rect([x - 4.0, y - 4.0, 8.0, 8.0], colour);
            }
            self.scene.line(line, colour, 2.0);
            let knee = sweep.iter().position(|one| is_beyond(one));
            if let Some(beyond) = knee {
                let to = rate(sweep[beyond]);
                let from = beyond
                    .checked_sub(1)
                    .map_or(0.0, |below| rate(sweep[below]));
                let x = chart.at(across.place(f64::midpoint(from, to)), 0.0).0;
                let (top, bottom) = (area[1], area[1] + area[3]);
                self.scene.line(vec![(x, top), (x, bottom)], ALARM, 2.0);
                let text = format!("knee: {} to {}", number(from), number(to));
                let at = (x - 6.0, top + 14.0);
                self.scene.coloured_text(at, &text, 2, Anchor::End, ALARM);
            }
        }
    }
}

/// Returns the name that distinguishes a sweep from others.
fn of_sweep(one: &Series<'_>) -> String {
    let setup = one.setup;
    let (host, sched, engine) = (&one.manifest.host.name, &setup.sched, &setup.engine);
    format!("{host} {sched} {engine} {}", setup.transport)
}

/// Returns the minimum and the maximum of the values; the maximum is at least 1e-9.
fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, 1e-9), |(min, max), value| {
        (f64::min(min, value), f64::max(max, value))
    })
}

/// Returns a rate as text: `40k`, `500`, `0.1`, `0.001`.
pub(super) fn number(value: f64) -> String {
    let (value, unit) = match value {
        value if value >= 1e9 => (value / 1e9, "G"),
        value if value >= 1e6 => (value / 1e6, "M"),
        value if value >= 1e3 => (value / 1e3, "k"),
        value => (value, ""),
    };
    let text = if value < 0.1 {
        format!("{value:.4}")
    } else {
        format!("{value:.2}")
    };
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let texts = [0.0, 0.001, 0.25, 999.0, 40_000.0, 1_234_567.0, 1e10].map(number);
        assert_eq!(texts, ["0", "0.001", "0.25", "999", "40k", "1.23M", "10G"]);
    }
}
