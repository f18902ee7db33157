//! The content of a picture, the same for every format.

use super::palette::Colour;

/// A picture, in pixels from the upper left corner.
#[derive(Clone, Debug, Default)]
pub struct Scene {
    /// Width.
    pub width: u32,
    /// Height.
    pub height: u32,
    /// The items in the order of drawing: later ones lie over earlier ones.
    pub items: Vec<Item>,
}

/// Something to draw.
#[derive(Clone, Debug)]
pub enum Item {
    /// A filled rectangle.
    Rect {
        /// Left, top, width, height.
        area: [f64; 4],
        /// Its colour.
        fill: Colour,
    },
    /// A small rectangle. In formats with a pointer, a text appears when the pointer is over it.
    Dot {
        /// Left, top, width, height.
        area: [f64; 4],
        /// Its colour.
        fill: Colour,
        /// The text that appears.
        told: String,
    },
    /// A line through points, one pixel wide or more.
    Line {
        /// Places as x and y.
        points: Vec<(f64, f64)>,
        /// Its colour.
        colour: Colour,
        /// Its width.
        width: f64,
    },
    /// A line of text.
    Text {
        /// The anchor's place from the left, and the middle of the line's height.
        at: (f64, f64),
        /// The text itself.
        text: String,
        /// A letter with its gap is 6 pixels wide, times this.
        scale: u32,
        /// Which part of the text is at the anchor.
        anchor: Anchor,
        /// Its colour.
        colour: Colour,
    },
    /// A heat map.
    Map(Map),
}

/// The part of a text that is at its anchor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// Its beginning.
    Start,
    /// Its middle.
    Middle,
    /// Its end.
    End,
}

/// A heat map in a scene, with its counts for a read-out.
#[derive(Clone, Debug)]
pub struct Map {
    /// Left, top, width, height.
    pub area: [f64; 4],
    /// What the map shows.
    pub title: String,
    /// The counts.
    pub grid: super::Grid,
    /// The greatest count of all maps that share this scale of colours.
    pub count_max: u32,
    /// How counts become colours.
    pub colours: super::Scale,
}

impl Scene {
    /// Makes an empty white picture.
    #[must_use]
    pub fn new(width: u32, height: u32) -> Self {
        let mut scene = Self {
            width,
            height,
            items: Vec::new(),
        };
        let area = [0.0, 0.0, f64::from(width), f64::from(height)];
        scene.rect(area, super::palette::WHITE);
        scene
    }

    pub(super) fn rect(&mut self, area: [f64; 4], fill: Colour) {
        self.items.push(Item::Rect { area, fill });
    }

    pub(super) fn line(&mut self, points: Vec<(f64, f64)>, colour: Colour, width: f64) {
        self.items.push(Item::Line {
            points,
            colour,
            width,
        });
    }

    pub(super) fn text(&mut self, at: (f64, f64), text: &str, scale: u32, anchor: Anchor) {
        self.coloured_text(at, text, scale, anchor, super::palette::INK);
    }

    pub(super) fn coloured_text(
        &mut self,
        at: (f64, f64),
        text: &str,
        scale: u32,
        anchor: Anchor,
        colour: Colour,
    ) {
        self.items.push(Item::Text {
            at,
            text: text.to_owned(),
            scale,
            anchor,
            colour,
        });
    }
}

impl Map {
    /// Returns the colour of a cell; `None` for an empty cell.
    pub(super) fn colour(&self, column: usize, row: usize) -> Option<Colour> {
        let count = self.grid.count(column, row);
        (count > 0).then(|| super::palette::level(shade(count, self.count_max, self.colours)))
    }
}

/// Returns the colour level of a count: 0 for a count of one, the last level for the greatest
/// count.
pub(super) fn shade(count: u32, count_max: u32, colours: super::Scale) -> u8 {
    let (count, count_max) = (f64::from(count), f64::from(count_max.max(2)));
    let place = match colours {
        super::Scale::Linear => (count - 1.0) / (count_max - 1.0),
        super::Scale::Log => count.ln() / count_max.ln(),
    };
    (place.clamp(0.0, 1.0) * f64::from(super::palette::LEVELS - 1)).round() as u8
}
