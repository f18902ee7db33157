//! Draws bits and packets a second over time.

use std::time::Duration;

use super::{
    Axis, Item, Scale, Scene, axis,
    page::{Chart, LEFT, Page, WIDTH, colours},
    rates::number,
};

/// Counts of one step of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowStep {
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Draws steps of equal length in two charts. When there are more than 240 steps, neighbours are
/// joined into their mean, so that the curves stay readable. `lines` are printed below the title.
#[must_use]
pub fn flow(title: &str, lines: &[String], step: Duration, steps: &[FlowStep]) -> Scene {
    let merged = steps.len().div_ceil(POINTS_MAX).max(1);
    let span_s = step.as_secs_f64() * merged as f64;
    // The last point may join fewer steps than the others; its mean is over those that it has.
    let points = steps.chunks(merged).map(|chunk| {
        let sum = |of: fn(&FlowStep) -> u64| chunk.iter().map(of).sum::<u64>() as f64;
        let seconds = step.as_secs_f64() * chunk.len() as f64;
        Point {
            bits_per_s: sum(|it| it.bytes) * 8.0 / seconds,
            packets_per_s: sum(|it| it.packets) / seconds,
        }
    });
    let points: Vec<Point> = points.collect();
    let mean = axis::time(span_s * 1e9);
    let lasted_s = step.as_secs_f64() * steps.len() as f64;
    let mut page = Page::new(title, lines, 2.0 * (HEIGHT + GAP) + GAP);
    let charts: [(String, Value); 2] = [
        (format!("bit/s, mean of {mean}"), |it| it.bits_per_s),
        (format!("packets/s, mean of {mean}"), |it| it.packets_per_s),
    ];
    for ((nth, (title, value)), colour) in (0..).zip(charts).zip(colours()) {
        let top = page.top + GAP + f64::from(nth) * (HEIGHT + GAP);
        let most = points.iter().map(value).fold(0.0, f64::max);
        let up = Axis::around(Scale::Linear, 0.0, most);
        let across = Axis {
            scale: Scale::Linear,
            min: 0.0,
            max: lasted_s.max(span_s),
        };
        let chart = Chart {
            area: [LEFT, top, WIDTH - LEFT - RIGHT, HEIGHT],
            title,
            across: named(&across, 12, |s| axis::time(s * 1e9)),
            up: named(&up, 5, number),
        };
        page.chart(&chart);
        let at = |nth: usize, point: &Point| {
            let middle = (nth as f64 + 0.5) * span_s;
            chart.at(across.place(middle).min(1.0), up.place(value(point)))
        };
        let line = points.iter().enumerate().map(|(nth, it)| at(nth, it));
        page.scene.line(line.collect(), colour, 2.0);
        for (nth, point) in points.iter().enumerate() {
            let (x, y) = at(nth, point);
            page.scene.items.push(Item::Dot {
                area: [x - 2.0, y - 2.0, 4.0, 4.0],
                fill: colour,
                told: point.told(nth as f64 * span_s),
            });
        }
    }
    page.scene
}

/// The values of a point.
#[derive(Clone, Copy, Debug)]
struct Point {
    bits_per_s: f64,
    packets_per_s: f64,
}

type Value = fn(&Point) -> f64;

impl Point {
    fn told(&self, from_s: f64) -> String {
        let (bits, packets) = (number(self.bits_per_s), number(self.packets_per_s));
        let from = axis::time(from_s * 1e9);
        format!("from {from}: {bits}bit/s, {packets} packets/s")
    }
}

fn named(axis: &Axis, count: usize, name: fn(f64) -> String) -> Vec<(f64, String)> {
    let ticks = axis.ticks(count).into_iter();
    ticks.map(|it| (axis.place(it), name(it))).collect()
}

/// The most points of a curve: with more, a curve is unreadable.
const POINTS_MAX: usize = 240;
const HEIGHT: f64 = 330.0;
const GAP: f64 = 60.0;
/// Room beside a chart, for half of the last name on its axis.
const RIGHT: f64 = 60.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::svg;

    #[test]
    fn axes_have_units_and_many_steps_become_few_points_of_the_same_rate() {
        let steps = vec![
            FlowStep {
                packets: 10,
                bytes: 12_500,
            };
            3_000
        ];
        let scene = flow(
            "a title",
            &["a line".to_owned()],
            Duration::from_millis(1),
            &steps,
        );
        let dots = scene.items.iter().filter_map(|item| match item {
            Item::Dot { told, area, .. } => Some((told.as_str(), *area)),
            _ => None,
        });
        let dots: Vec<(&str, [f64; 4])> = dots.collect();
        assert_eq!(dots.len(), 2 * 3_000_usize.div_ceil(13));
        assert!(
            dots.iter()
                .all(|(told, _)| told.ends_with(": 100Mbit/s, 10k packets/s"))
        );
        for (_, [x, y, width, height]) in &dots {
            assert!(*x >= 0.0 && x + width <= f64::from(scene.width));
            assert!(*y >= 0.0 && y + height <= f64::from(scene.height));
        }
        let text = svg(&scene);
        for word in [
            "bit/s, mean of 13ms",
            "packets/s, mean of 13ms",
            ">100M<",
            ">2.5s<",
            ">3s<",
        ] {
            assert!(text.contains(word), "{word}: {text}");
        }
    }

    #[test]
    fn nothing_is_an_empty_picture() {
        assert!(flow("nothing", &[], Duration::from_millis(1), &[]).height > 0);
    }
}
