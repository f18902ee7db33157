//! A page while it is drawn: its head, the frames of its charts, and the names of their curves.

use super::{
    Anchor, Scene,
    palette::{self, Colour, FAINT, GREY, INK},
};

/// A page while it is drawn.
pub(super) struct Page {
    pub(super) scene: Scene,
    /// The pixel row at which the next part begins.
    pub(super) top: f64,
}

/// A chart's frame, with the names along its two sides.
pub(super) struct Chart {
    /// Left, top, width, height.
    pub(super) area: [f64; 4],
    pub(super) title: String,
    /// Names along the bottom, each with its place from 0 to 1.
    pub(super) across: Vec<(f64, String)>,
    /// Names along the side, each with its place from 0 to 1.
    pub(super) up: Vec<(f64, String)>,
}

impl Chart {
    /// Returns the pixel at a place across and a place up.
    pub(super) fn at(&self, across: f64, up: f64) -> (f64, f64) {
        let [left, top, width, height] = self.area;
        let up = up.clamp(0.0, 1.0);
        (left + width * across.max(0.0), top + height * (1.0 - up))
    }
}

impl Page {
    /// Makes a page with a head (a title, and grey lines below it) and room for `body` pixels.
    pub(super) fn new(title: &str, lines: &[String], body: f64) -> Self {
        let head = 52.0 + LINE * lines.len() as f64;
        let mut scene = Scene::new(WIDTH as u32, (head + body) as u32);
        scene.text((20.0, 24.0), title, 3, Anchor::Start);
        for (nth, text) in (0..).zip(lines) {
            let at = (20.0, 54.0 + LINE * f64::from(nth));
            scene.coloured_text(at, &fitted(text), 2, Anchor::Start, GREY);
        }
        Self { scene, top: head }
    }

    /// Draws a chart's frame.
    pub(super) fn chart(&mut self, chart: &Chart) {
        let [left, top, width, height] = chart.area;
        let at = (left, top - 14.0);
        self.scene.text(at, &chart.title, 2, Anchor::Start);
        for (place, name) in &chart.up {
            let y = top + height * (1.0 - place);
            let points = vec![(left, y), (left + width, y)];
            self.scene.line(points, FAINT, 1.0);
            self.scene.text((left - 8.0, y), name, 2, Anchor::End);
        }
        for (place, name) in &chart.across {
            let x = left + width * place;
            let points = vec![(x, top), (x, top + height)];
            self.scene.line(points, FAINT, 1.0);
            let at = (x, top + height + 13.0);
            self.scene.text(at, name, 2, Anchor::Middle);
        }
        self.outline(chart.area);
    }

    pub(super) fn outline(&mut self, [left, top, width, height]: [f64; 4]) {
        let (right, bottom) = (left + width, top + height);
        let points = vec![(left, top), (left, bottom), (right, bottom)];
        self.scene.line(points, INK, 1.0);
    }

    /// Draws a curve as dots that are a few pixels apart.
    pub(super) fn dots(&mut self, points: &[(f64, f64)], colour: Colour) {
        let mut last = (f64::NEG_INFINITY, 0.0);
        for &(x, y) in points {
            if (x - last.0).abs() + (y - last.1).abs() >= 7.0 {
                self.scene.rect([x - 2.0, y - 2.0, 4.0, 4.0], colour);
                last = (x, y);
            }
        }
    }

    /// Prints the names of curves, each on a line in the colour of its curve. Charts begin
    /// [`names_height`] pixels lower, so that no name lies over a curve.
    pub(super) fn names<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) {
        let mut lines = 0;
        for (name, colour) in names.into_iter().zip(colours()) {
            let at = (LEFT, self.top + LINE * f64::from(lines));
            self.scene
                .coloured_text(at, &fitted(name), 2, Anchor::Start, colour);
            lines += 1;
        }
        self.top += names_height(lines as usize);
    }
}

/// Returns the height that the names of this many curves take, with the title of the chart below
/// them.
pub(super) fn names_height(curves: usize) -> f64 {
    LINE * curves as f64 + 26.0
}

/// Returns a colour for each curve; after twelve curves the colours repeat.
pub(super) fn colours() -> impl Iterator<Item = Colour> {
    palette::LINES.into_iter().cycle()
}

/// Returns the beginning of a line, as much as the page has room for.
pub(super) fn fitted(text: &str) -> String {
    text.chars().take(LETTERS_MAX).collect()
}

pub(super) const WIDTH: f64 = 1600.0;
pub(super) const LEFT: f64 = 100.0;
pub(super) const HALF_WIDTH: f64 = 600.0;
/// Left edge of a chart in the right half.
pub(super) const RIGHT_HALF: f64 = LEFT + HALF_WIDTH + 150.0;
pub(super) const LINE: f64 = 20.0;
/// How many letters of 12 pixels fit a line of the page.
const LETTERS_MAX: usize = 124;
