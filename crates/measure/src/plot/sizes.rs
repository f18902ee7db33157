//! Draws what a path carries by size of datagram: rates, payload, losses and processor time.

use super::{
    Axis, Item, Scale, Scene,
    page::{Chart, HALF_WIDTH, LEFT, Page, RIGHT_HALF, colours, names_height},
    rates::number,
};

/// One way of sending, at several sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct SizeCurve {
    /// The name of the curve.
    pub name: String,
    /// The points, by rising size.
    pub points: Vec<SizePoint>,
}

/// One size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizePoint {
    /// Payload bytes of a datagram.
    pub size_bytes: usize,
    /// Datagrams each second that the receiver counted.
    pub received_per_s: f64,
    /// Share that did not arrive, 0 to 1; `None` when it was not measured.
    pub loss: Option<f64>,
    /// Processor time of both ends for each datagram, in nanoseconds; `None` when it was not
    /// measured.
    pub cpu_ns: Option<f64>,
}

/// Draws curves by size. Neighbouring sizes have equal distances, so that a step between close
/// sizes, such as 1472 and 1473 bytes, is as visible as the others. `lines` are printed below the
/// title.
#[must_use]
pub fn sizes(title: &str, lines: &[String], curves: &[SizeCurve]) -> Scene {
    let charts: [Measured; 4] = [
        ("datagrams/s received", |it| Some(it.received_per_s), 1.0),
        (
            "payload received, bit/s",
            |it| Some(it.received_per_s * it.size_bytes as f64 * 8.0),
            1.0,
        ),
        (
            "lost, % (nothing: at the bottom)",
            |it| it.loss.map(|loss| loss * 100.0),
            0.001,
        ),
        (
            "processor time of both ends, us per datagram",
            |it| it.cpu_ns.map(|ns| ns / 1e3),
            0.01,
        ),
    ];
    draw(title, lines, curves, &charts)
}

/// Draws what captures lose and cost, by the size of their memory or of the packets.
#[must_use]
pub fn captures(title: &str, lines: &[String], curves: &[SizeCurve]) -> Scene {
    let charts: [Measured; 2] = [
        (
            "lost, % (nothing: at the bottom)",
            |it| it.loss.map(|loss| loss * 100.0),
            0.001,
        ),
        (
            "processor time of the machine, us per packet",
            |it| it.cpu_ns.map(|ns| ns / 1e3),
            0.01,
        ),
    ];
    draw(title, lines, curves, &charts)
}

/// A chart's title, the value that it shows, and the least value that it has room for.
type Measured = (&'static str, Value, f64);

/// Draws the charts, two in each row.
fn draw(title: &str, lines: &[String], curves: &[SizeCurve], charts: &[Measured]) -> Scene {
    let rows = charts.len().div_ceil(2) as f64;
    let body = rows * (HEIGHT + GAP) + names_height(curves.len()) + GAP;
    let mut page = Page::new(title, lines, body);
    page.top += GAP / 4.0;
    page.names(curves.iter().map(|curve| curve.name.as_str()));
    let first = page.top;
    for (number, (title, value, least)) in charts.iter().enumerate() {
        let left = [LEFT, RIGHT_HALF][number % 2];
        let top = first + (number / 2) as f64 * (HEIGHT + GAP);
        let area = [left, top, HALF_WIDTH, HEIGHT];
        page.by_size(area, title, curves, *value, *least);
    }
    page.scene
}

impl SizePoint {
    /// The text of a read-out for this point.
    fn told(&self, curve: &str) -> String {
        let mut text = format!(
            "{curve}, {} B: {}/s received",
            self.size_bytes,
            number(self.received_per_s)
        );
        if let Some(loss) = self.loss {
            text += &format!(", {:.3} % lost", loss * 100.0);
        }
        if let Some(ns) = self.cpu_ns {
            text += &format!(", {:.2} us per datagram", ns / 1e3);
        }
        text
    }
}

/// The value of a point that a chart shows.
type Value = fn(&SizePoint) -> Option<f64>;

impl Page {
    fn by_size(
        &mut self,
        area: [f64; 4],
        title: &str,
        curves: &[SizeCurve],
        value: Value,
        least: f64,
    ) {
        let all = || curves.iter().flat_map(|curve| &curve.points);
        let mut known: Vec<usize> = all().map(|point| point.size_bytes).collect();
        known.sort_unstable();
        known.dedup();
        let values = || all().filter_map(value).filter(|&value| value >= least);
        let min = values().fold(f64::INFINITY, f64::min);
        let max = values().fold(least, f64::max);
        let min = if min.is_finite() { min } else { least };
        let up = decades(min, max);
        let place = |size: usize| {
            let nth = known.iter().position(|it| *it == size).unwrap_or(0);
            (nth as f64 + 0.5) / known.len().max(1) as f64
        };
        let ticks = up.ticks(8).into_iter();
        let chart = Chart {
            area,
            title: title.to_owned(),
            across: known
                .iter()
                .map(|&size| (place(size), size.to_string()))
                .collect(),
            up: ticks.map(|it| (up.place(it), number(it))).collect(),
        };
        self.chart(&chart);
        for (curve, colour) in curves.iter().zip(colours()) {
            let at = |point: &SizePoint| {
                value(point).map(|value| chart.at(place(point.size_bytes), up.place(value)))
            };
            let points = curve.points.iter().filter_map(at).collect();
            self.scene.line(points, colour, 2.0);
            for point in &curve.points {
                let Some((x, y)) = at(point) else { continue };
                self.scene.items.push(Item::Dot {
                    area: [x - 4.0, y - 4.0, 8.0, 8.0],
                    fill: colour,
                    told: point.told(&curve.name),
                });
            }
        }
    }
}

/// A logarithmic axis between powers of ten, also below 1.
fn decades(min: f64, max: f64) -> Axis {
    let floor = 10_f64.powf(min.log10().floor());
    let ceiling = 10_f64.powf(max.log10().ceil());
    Axis {
        scale: Scale::Log,
        min: floor,
        max: ceiling.max(floor * 10.0),
    }
}

const HEIGHT: f64 = 330.0;
const GAP: f64 = 70.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_is_drawn_once_in_each_chart_and_tells_itself() {
        let point = |size_bytes, loss| SizePoint {
            size_bytes,
            received_per_s: 250_000.0,
            loss: Some(loss),
            cpu_ns: Some(1_500.0),
        };
        let curve = |name: &str, loss| SizeCurve {
            name: name.to_owned(),
            points: vec![point(1_472, 0.0), point(1_473, loss)],
        };
        let curves = [curve("there", 0.02), curve("back", 0.0)];
        let scene = sizes("a title", &["a line".to_owned()], &curves);
        let told = scene.items.iter().filter_map(|item| match item {
            Item::Dot { told, .. } => Some(told.as_str()),
            _ => None,
        });
        let told: Vec<&str> = told.collect();
        assert_eq!(told.len(), 4 * 4);
        let text = "there, 1473 B: 250k/s received, 2.000 % lost, 1.50 us per datagram";
        assert_eq!(told.iter().filter(|it| **it == text).count(), 4);
        // Every dot lies on the page, even a value for which a logarithmic axis has no place.
        for item in &scene.items {
            if let Item::Dot {
                area: [x, y, width, height],
                ..
            } = item
            {
                assert!(*x >= 0.0 && x + width <= f64::from(scene.width), "{item:?}");
                assert!(
                    *y >= 0.0 && y + height <= f64::from(scene.height),
                    "{item:?}"
                );
            }
        }
        let told = |scene: &Scene| {
            let is_dot = |item: &&Item| matches!(item, Item::Dot { .. });
            scene.items.iter().filter(is_dot).count()
        };
        assert_eq!(told(&captures("captures", &[], &curves)), 2 * 4);
        insta::assert_snapshot!(crate::plot::svg(&captures("captures", &[], &curves)));
        let nothing = sizes("nothing", &[], &[]);
        assert!(nothing.height > 0);
    }
}
