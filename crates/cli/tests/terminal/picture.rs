//! A screen as a picture for the book: each cell in its place, on a dark and on a light terminal.
//!
//! With `TOWLINE_SCREENSHOTS=DIRECTORY` (`make screenshots`) the pictures are written there.

use std::{env, fs, path::PathBuf};

use measure::plot::{Anchor, Item, Scene, svg};
use vt100::{Cell, Color};

/// The colours of a terminal.
struct Theme {
    name: &'static str,
    paper: [u8; 3],
    ink: [u8; 3],
    /// The sixteen that have numbers.
    palette: [[u8; 3]; 16],
}

/// Writes the pictures of a screen, if that is asked for; in any case it can be drawn.
pub(crate) fn keep(screen: &vt100::Screen, name: &str) {
    let directory = env::var_os("TOWLINE_SCREENSHOTS").map(PathBuf::from);
    let (_, columns) = screen.size();
    for theme in [&DARK, &LIGHT] {
        let picture = svg(&scene(screen, theme));
        assert!(picture.contains("<text "), "an empty screen");
        if let Some(directory) = &directory {
            fs::create_dir_all(directory).unwrap();
            let file = format!("{name}-{columns}-{}.svg", theme.name);
            fs::write(directory.join(file), picture).unwrap();
        }
    }
}

fn scene(screen: &vt100::Screen, theme: &Theme) -> Scene {
    let (mut rows, columns) = screen.size();
    if !screen.alternate_screen() {
        // Of a screen that grows downwards, what is not reached yet is no part of the picture.
        let is_empty = |row: &String| row.trim().is_empty();
        let empty = screen.rows(0, columns).collect::<Vec<_>>();
        let empty = empty.iter().rev().take_while(|row| is_empty(row)).count();
        rows -= u16::try_from(empty).unwrap();
    }
    let [width, height] = [(columns, WIDTH), (rows, HEIGHT)]
        .map(|(count, size)| (f64::from(count) * size + 2.0 * MARGIN) as u32);
    let mut scene = Scene::new(width, height);
    let area = [0.0, 0.0, f64::from(width), f64::from(height)];
    let fill = theme.paper;
    scene.items.push(Item::Rect { area, fill });
    for row in 0..rows {
        let top = MARGIN + f64::from(row) * HEIGHT;
        let cell = |column: u16| screen.cell(row, column).filter(|_| column < columns);
        let ground = |column| Some(theme.colours(cell(column)?)[1]).filter(|it| *it != theme.paper);
        for (from, to, fill) in runs(columns, ground) {
            scene.items.push(rect(from, to, top, HEIGHT, fill));
        }
        let block = |column| {
            let cell = cell(column)?;
            let part = match cell.contents() {
                "\u{2580}" => Part::Upper,
                "\u{2584}" => Part::Lower,
                "\u{2588}" => Part::Whole,
                _ => return None,
            };
            Some((part, theme.colours(cell)[0]))
        };
        for (from, to, (part, fill)) in runs(columns, block) {
            let (down, high) = match part {
                Part::Upper => (0.0, HEIGHT / 2.0),
                Part::Lower => (HEIGHT / 2.0, HEIGHT / 2.0),
                Part::Whole => (0.0, HEIGHT),
            };
            scene.items.push(rect(from, to, top + down, high, fill));
        }
        // A word has one place: letters that are a little wider add up to less than a cell.
        let word = |column| {
            let cell = cell(column).filter(|_| block(column).is_none())?;
            let is_seen = cell.has_contents() && cell.contents() != " ";
            is_seen.then(|| theme.colours(cell)[0])
        };
        for (from, to, colour) in runs(columns, word) {
            let text = (from..to).filter_map(cell).map(Cell::contents).collect();
            scene.items.push(Item::Text {
                at: (MARGIN + f64::from(from) * WIDTH, top + HEIGHT / 2.0),
                text,
                scale: SCALE,
                anchor: Anchor::Start,
                colour,
            });
        }
    }
    scene
}

/// What part of a cell a letter fills.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Upper,
    Lower,
    Whole,
}

/// Neighbours with the same value.
fn runs<T: PartialEq>(columns: u16, of: impl Fn(u16) -> Option<T>) -> Vec<(u16, u16, T)> {
    let mut runs: Vec<(u16, u16, T)> = Vec::new();
    for column in 0..columns {
        let Some(value) = of(column) else { continue };
        match runs.last_mut() {
            Some((_, to, last)) if *to == column && *last == value => *to += 1,
            _ => runs.push((column, column + 1, value)),
        }
    }
    runs
}

fn rect(from: u16, to: u16, top: f64, height: f64, fill: [u8; 3]) -> Item {
    let left = MARGIN + f64::from(from) * WIDTH;
    let area = [left, top, f64::from(to - from) * WIDTH, height];
    Item::Rect { area, fill }
}

impl Theme {
    /// Of the letter and of its ground.
    fn colours(&self, cell: &Cell) -> [[u8; 3]; 2] {
        let ink = self.colour(cell.fgcolor(), self.ink);
        let ground = self.colour(cell.bgcolor(), self.paper);
        match cell.inverse() {
            true => [ground, ink],
            false => [ink, ground],
        }
    }

    fn colour(&self, colour: Color, default: [u8; 3]) -> [u8; 3] {
        match colour {
            Color::Default => default,
            Color::Rgb(red, green, blue) => [red, green, blue],
            Color::Idx(index) => match self.palette.get(usize::from(index)) {
                Some(colour) => *colour,
                // The cube of six and the greys, as every terminal has them.
                None if index < 232 => [36, 6, 1].map(|step| {
                    let level = (index - 16) / step % 6;
                    if level == 0 { 0 } else { 55 + 40 * level }
                }),
                None => [8 + 10 * (index - 232); 3],
            },
        }
    }
}

const DARK: Theme = Theme {
    name: "dark",
    paper: [30, 30, 34],
    ink: [214, 214, 220],
    palette: [
        [60, 60, 66],
        [224, 108, 117],
        [126, 198, 114],
        [222, 180, 94],
        [97, 160, 240],
        [198, 120, 221],
        [86, 190, 200],
        [214, 214, 220],
        [120, 120, 130],
        [240, 130, 140],
        [150, 220, 140],
        [240, 205, 120],
        [130, 185, 250],
        [215, 150, 235],
        [120, 215, 225],
        [250, 250, 252],
    ],
};

const LIGHT: Theme = Theme {
    name: "light",
    paper: [255, 255, 255],
    ink: [36, 36, 42],
    palette: [
        [36, 36, 42],
        [190, 30, 45],
        [30, 120, 40],
        [140, 95, 0],
        [10, 90, 180],
        [140, 40, 150],
        [0, 110, 125],
        [150, 150, 158],
        [100, 100, 110],
        [210, 50, 60],
        [40, 140, 50],
        [160, 110, 0],
        [30, 110, 210],
        [165, 60, 175],
        [0, 130, 150],
        [225, 225, 230],
    ],
};

/// A cell in pixels: a letter of scale 2 is 12 wide.
const WIDTH: f64 = 12.0;
const HEIGHT: f64 = 24.0;
const SCALE: u32 = 2;
const MARGIN: f64 = 12.0;
