//! Draws what a path carries by size of datagram: rates, payload, losses and processor time; and
//! what calls cost by size of write.

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

/// The results at one size.
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

/// One way of making calls, at several sizes of write.
#[derive(Clone, Debug, PartialEq)]
pub struct CallCurve {
    /// The name of the curve.
    pub name: String,
    /// The points, by rising size.
    pub points: Vec<CallPoint>,
}

/// Calls with writes of one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CallPoint {
    /// Bytes of a write.
    pub size_bytes: usize,
    /// Half of the calls took at most this, in milliseconds.
    pub p50_ms: f64,
    /// The longest call, in milliseconds.
    pub max_ms: f64,
}

/// Draws what calls cost by size of write. `lines` are printed below the title.
#[must_use]
pub fn calls(title: &str, lines: &[String], curves: &[CallCurve]) -> Scene {
    let charts: [Measured<CallPoint>; 2] = [
        ("median of a call, ms", |it| Some(it.p50_ms), 0.01),
        ("longest call, ms", |it| Some(it.max_ms), 0.01),
    ];
    let curves = curves.iter().map(|curve| (&curve.name, &curve.points));
    draw(title, lines, &curves.collect::<Vec<_>>(), &charts)
}

/// Draws curves by size. Neighbouring sizes have equal distances, so that a step between close
/// sizes, such as 1472 and 1473 bytes, is as visible as the others. `lines` are printed below the
/// title.
#[must_use]
pub fn sizes(title: &str, lines: &[String], curves: &[SizeCurve]) -> Scene {
    let charts: [Measured<SizePoint>; 4] = [
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
    draw(title, lines, &named(curves), &charts)
}

fn named(curves: &[SizeCurve]) -> Vec<Curve<'_, SizePoint>> {
    let curves = curves.iter();
    curves.map(|curve| (&curve.name, &curve.points)).collect()
}

/// Draws what captures lose and cost, by the size of their memory or of the packets.
#[must_use]
pub fn captures(title: &str, lines: &[String], curves: &[SizeCurve]) -> Scene {
    let charts: [Measured<SizePoint>; 2] = [
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
    draw(title, lines, &named(curves), &charts)
}

/// A chart's title, the value that it shows, and the least value that it has room for.
type Measured<P> = (&'static str, Value<P>, f64);

/// A curve's name and its points.
type Curve<'a, P> = (&'a String, &'a Vec<P>);

/// A point of a curve by size.
trait BySize {
    fn size_bytes(&self) -> usize;

    /// Returns the text of a read-out for this point.
    fn told(&self, curve: &str) -> String;
}

/// Draws the charts, two in each row.
fn draw<P: BySize>(
    title: &str,
    lines: &[String],
    curves: &[Curve<'_, P>],
    charts: &[Measured<P>],
) -> Scene {
    let rows = charts.len().div_ceil(2) as f64;
    let body = rows * (HEIGHT + GAP) + names_height(curves.len()) + GAP;
    let mut page = Page::new(title, lines, body);
    page.top += GAP / 4.0;
    page.names(curves.iter().map(|(name, _)| name.as_str()));
    let first = page.top;
    for (number, (title, value, least)) in charts.iter().enumerate() {
        let left = [LEFT, RIGHT_HALF][number % 2];
        let top = first + (number / 2) as f64 * (HEIGHT + GAP);
        let area = [left, top, HALF_WIDTH, HEIGHT];
        page.by_size(area, title, curves, *value, *least);
    }
    page.scene
}

impl BySize for CallPoint {
    fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    fn told(&self, curve: &str) -> String {
        format!(
            "{curve}, {} B: median {:.3} ms, longest {:.3} ms",
            self.size_bytes, self.p50_ms, self.max_ms
        )
    }
}

impl BySize for SizePoint {
    fn size_bytes(&self) -> usize {
        self.size_bytes
    }

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
type Value<P> = fn(&P) -> Option<f64>;

impl Page {
    fn by_size<P: BySize>(
        &mut self,
        area: [f64; 4],
        title: &str,
        curves: &[Curve<'_, P>],
        value: Value<P>,
        least: f64,
    ) {
        let all = || curves.iter().flat_map(|(_, points)| points.iter());
        let mut known: Vec<usize> = all().map(P::size_bytes).collect();
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
        for ((name, points), colour) in curves.iter().zip(colours()) {
            let at = |point: &P| {
                value(point).map(|value| chart.at(place(point.size_bytes()), up.place(value)))
            };
            let line = points.iter().filter_map(at).collect();
            self.scene.line(line, colour, 2.0);
            for point in *points {
                let Some((x, y)) = at(point) else { continue };
                self.scene.items.push(Item::Dot {
                    area: [x - 4.0, y - 4.0, 8.0, 8.0],
                    fill: colour,
                    told: point.told(name),
                });
            }
        }
    }
}

/// Returns a logarithmic axis between powers of ten, also below 1.
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
        let at = |size_bytes, p50_ms| CallPoint {
            size_bytes,
            p50_ms,
            max_ms: p50_ms * 2.0,
        };
        let cliff = CallCurve {
            name: "nagle".to_owned(),
            points: vec![at(64, 44.0), at(65_536, 0.06)],
        };
        let scene = calls("calls", &[], &[cliff]);
        assert_eq!(told(&scene), 2 * 2);
        let heights = scene.items.iter().filter_map(|item| match item {
            Item::Dot { area, told, .. } if told.contains("median") => Some(area[1]),
            _ => None,
        });
        let heights: Vec<f64> = heights.collect();
        assert!(heights[0] < heights[1], "the cliff is seen: {heights:?}");
        let nothing = sizes("nothing", &[], &[]);
        assert!(nothing.height > 0);
    }
}
