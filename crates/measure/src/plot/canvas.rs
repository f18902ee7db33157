//! Draws a scene as dots.

use super::{
    Anchor, Item, Map, Scene,
    font::Face,
    palette::{Colour, WHITE},
};

/// The dots of a picture.
#[derive(Debug)]
pub(super) struct Canvas {
    pub(super) width: usize,
    pub(super) height: usize,
    /// The dots row by row, from the top.
    pub(super) dots: Vec<Colour>,
}

impl Canvas {
    /// Draws a scene.
    pub(super) fn draw(scene: &Scene) -> Self {
        let (width, height) = (scene.width as usize, scene.height as usize);
        let mut canvas = Self {
            width,
            height,
            dots: vec![WHITE; width * height],
        };
        for item in &scene.items {
            match item {
                Item::Rect { area, fill } | Item::Dot { area, fill, .. } => {
                    canvas.rect(*area, *fill);
                }
                Item::Line {
                    points,
                    colour,
                    width,
                } => canvas.line(points, *colour, *width),
                Item::Text {
                    at,
                    text,
                    scale,
                    anchor,
                    colour,
                } => canvas.text(*at, text, *scale, *anchor, *colour),
                Item::Map(map) => canvas.map(map),
            }
        }
        canvas
    }

    /// Draws a map alone, one dot for each cell; empty cells are white.
    pub(super) fn cells(map: &Map) -> Self {
        let (columns, rows) = map.grid.shape();
        let dots = (0..rows)
            .rev()
            .flat_map(|row| (0..columns).map(move |column| (column, row)))
            .map(|(column, row)| map.colour(column, row).unwrap_or(WHITE))
            .collect();
        Self {
            width: columns,
            height: rows,
            dots,
        }
    }

    fn rect(&mut self, [left, top, width, height]: [f64; 4], fill: Colour) {
        let clip = |at: f64, size: usize| at.round().clamp(0.0, size as f64) as usize;
        let (from, to) = (clip(left, self.width), clip(left + width, self.width));
        for y in clip(top, self.height)..clip(top + height, self.height) {
            self.dots[y * self.width..][from..to].fill(fill);
        }
    }

    fn line(&mut self, points: &[(f64, f64)], colour: Colour, width: f64) {
        let thick = width.round().max(1.0) as i64;
        for pair in points.windows(2) {
            let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
            let steps = (x1 - x0).abs().max((y1 - y0).abs()).ceil().clamp(1.0, 1e5);
            for step in 0..=steps as u32 {
                let part = f64::from(step) / steps;
                let x = (x0 + (x1 - x0) * part).round() as i64;
                let y = (y0 + (y1 - y0) * part).round() as i64;
                for (dx, dy) in (0..thick).flat_map(|dx| (0..thick).map(move |dy| (dx, dy))) {
                    self.mix(x + dx - thick / 2, y + dy - thick / 2, colour, 1.0);
                }
            }
        }
    }

    fn text(&mut self, at: (f64, f64), text: &str, scale: u32, anchor: Anchor, colour: Colour) {
        let face = Face::new(scale);
        let width = text.chars().count() as f32 * face.advance;
        let shift = match anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => width / 2.0,
            Anchor::End => width,
        };
        // Letters that begin and stand on whole pixels are sharper.
        let mut left = (at.0 as f32 - shift).round();
        let baseline = (at.1 as f32 + face.capital / 2.0).round();
        for letter in text.chars() {
            face.draw(letter, (left, baseline), |x, y, covered| {
                self.mix(x, y, colour, covered);
            });
            left += face.advance;
        }
    }

    /// Covers a part of a dot, 0 to 1, with a colour.
    fn mix(&mut self, x: i64, y: i64, colour: Colour, part: f32) {
        let inside = |at: i64, size: usize| usize::try_from(at).ok().filter(|&at| at < size);
        if let (Some(x), Some(y)) = (inside(x, self.width), inside(y, self.height)) {
            let dot = &mut self.dots[y * self.width + x];
            for (below, above) in dot.iter_mut().zip(colour) {
                let (from, to) = (f32::from(*below), f32::from(above));
                *below = (from + (to - from) * part.clamp(0.0, 1.0)).round() as u8;
            }
        }
    }

    fn map(&mut self, map: &Map) {
        let [left, top, width, height] = map.area;
        let (columns, rows) = map.grid.shape();
        let (across, down) = (width / columns as f64, height / rows as f64);
        for (column, row) in (0..columns).flat_map(|column| (0..rows).map(move |row| (column, row)))
        {
            if let Some(colour) = map.colour(column, row) {
                let x = (left + column as f64 * across).round();
                let y = (top + (rows - 1 - row) as f64 * down).round();
                let right = (left + (column + 1) as f64 * across).round();
                let bottom = (top + (rows - row) as f64 * down).round();
                self.rect([x, y, right - x, bottom - y], colour);
            }
        }
    }
}
