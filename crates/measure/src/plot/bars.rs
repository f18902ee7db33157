//! A picture that compares several programs by one figure.

use super::{
    Anchor, Axis, Scale, Scene,
    page::{Chart, LINE, Page, WIDTH, colours},
    palette::INK,
    rates::number,
};

/// One program's figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// The program's name.
    pub name: String,
    /// Minimum, median and maximum of the program's runs.
    pub spread: [f64; 3],
    /// Text to the right of the bar, after the median.
    pub told: String,
}

/// Draws for each program a bar from zero to the median, and over it a line from minimum to
/// maximum. `lines` are printed below the title; the figures are in `unit`.
#[must_use]
pub fn bars(title: &str, lines: &[String], unit: &str, bars: &[Bar]) -> Scene {
    let height = ROW * bars.len() as f64;
    let mut page = Page::new(title, lines, height + 3.0 * LINE + 2.0 * GAP);
    let greatest = bars.iter().map(|bar| bar.spread[2]).fold(0.0, f64::max);
    let axis = Axis::around(Scale::Linear, 0.0, greatest);
    let across = axis.ticks(6).into_iter();
    let letters = bars.iter().map(|bar| bar.name.chars().count()).max();
    let names = 30.0 + LETTER * letters.unwrap_or(0) as f64;
    let width = (WIDTH - names - FIGURES).max(LETTER);
    let chart = Chart {
        area: [names, page.top + LINE + GAP, width, height],
        title: unit.to_owned(),
        across: across
            .map(|value| (axis.place(value), number(value)))
            .collect(),
        up: Vec::new(),
    };
    page.chart(&chart);
    let [left, top, width, _] = chart.area;
    for ((nth, bar), colour) in (0..).zip(bars).zip(colours()) {
        let [least, median, most] = bar.spread.map(|value| left + width * axis.place(value));
        let middle = top + ROW * (f64::from(nth) + 0.5);
        let area = [left, middle - BAR / 2.0, median - left, BAR];
        page.scene.rect(area, colour);
        let points = vec![(least, middle), (most, middle)];
        page.scene.line(points, INK, 2.0);
        let at = (left - 10.0, middle);
        page.scene.text(at, &bar.name, 2, Anchor::End);
        let figure = format!("{} {}", number(bar.spread[1]), bar.told);
        let at = (most.max(median) + 10.0, middle);
        page.scene.text(at, &figure, 2, Anchor::Start);
    }
    page.scene
}

/// The width of a letter, and the room to the right of the longest bar for its text, both in
/// pixels.
const LETTER: f64 = 12.0;
const FIGURES: f64 = 480.0;
const ROW: f64 = 34.0;
const BAR: f64 = 22.0;
const GAP: f64 = 14.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::svg;

    #[test]
    fn bars_end_at_the_medians_and_say_what_they_are() {
        let bar = |name: &str, spread| Bar {
            name: name.to_owned(),
            spread,
            told: "(1.0)".to_owned(),
        };
        let both = [bar("us", [8e3, 10e3, 10e3]), bar("them", [4e3, 5e3, 6e3])];
        let scene = bars("who", &["a line".to_owned()], "msg/s", &both);
        let widths: Vec<f64> = scene
            .items
            .iter()
            .filter_map(|item| match item {
                super::super::Item::Rect { area, .. } if area[3] == BAR => Some(area[2]),
                _ => None,
            })
            .collect();
        let width = WIDTH - FIGURES - 30.0 - 4.0 * LETTER;
        assert_eq!(widths, [width, width / 2.0]);
        let text = svg(&scene);
        for word in ["who", "a line", "msg/s", "us", "10k (1.0)", "5k (1.0)"] {
            assert!(text.contains(word), "{word}");
        }
        assert!(!bars("nobody", &[], "msg/s", &[]).items.is_empty());
    }
}
