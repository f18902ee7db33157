//! A heat map in a terminal: one letter cell shows two rows of the grid.

use std::fmt::Write as _;

use super::{Grid, Scale, axis, palette, scene::shade};

/// Columns that the value axis takes at the left of the map.
pub const TERMINAL_AXIS: usize = 9;

/// Draws a grid as text lines with its value axis at the left. With `colour`, in 24-bit colours;
/// without, in five shades.
#[must_use]
pub fn terminal(grid: &Grid, title: &str, colour: bool) -> String {
    let (columns, rows) = grid.shape();
    let mut text = format!("{title}\n");
    let lines = rows.div_ceil(2);
    for line in (0..lines).rev() {
        // A name at every fourth line: that of the value in its middle.
        let name = if (lines - 1 - line).is_multiple_of(4) {
            axis::time(grid.axis().value((2 * line + 1) as f64 / rows as f64))
        } else {
            String::new()
        };
        // Writing to a String cannot fail.
        let _infallible = write!(text, "{name:>7} |");
        for column in 0..columns {
            let cell = |row: usize| {
                if row < rows {
                    grid.count(column, row)
                } else {
                    0
                }
            };
            put(&mut text, grid, cell(2 * line + 1), cell(2 * line), colour);
        }
        if colour {
            text.push_str(RESET);
        }
        text.truncate(text.trim_end_matches(' ').len());
        text.push('\n');
    }
    let end = axis::time(grid.lasted_ns() as f64);
    let _infallible = writeln!(text, "{:>7} +{}", "", "-".repeat(columns));
    let _infallible = writeln!(
        text,
        "{:>7}  0{end:>width$}",
        "",
        width = columns.saturating_sub(1)
    );
    text
}

fn put(text: &mut String, grid: &Grid, upper: u32, lower: u32, colour: bool) {
    let level = |count| shade(count, grid.count_max(), Scale::Log);
    if !colour {
        let most = upper.max(lower);
        let steps = u32::from(level(most)) * SHADES.len() as u32 / u32::from(palette::LEVELS);
        text.push(if most == 0 {
            ' '
        } else {
            SHADES[steps as usize]
        });
        return;
    }
    // The upper half of the cell is drawn in the foreground colour, the lower is the background.
    let mut paint = |ground: u8, count: u32| {
        let [red, green, blue] = palette::level(level(count));
        let _infallible = write!(text, "\x1b[{ground};2;{red};{green};{blue}m");
    };
    match (upper, lower) {
        (0, 0) => text.push_str("\x1b[0m "),
        (upper, 0) => {
            paint(38, upper);
            text.push_str("\x1b[49m\u{2580}");
        }
        (0, lower) => {
            paint(38, lower);
            text.push_str("\x1b[49m\u{2584}");
        }
        (upper, lower) => {
            paint(38, upper);
            paint(48, lower);
            text.push('\u{2580}');
        }
    }
}

const SHADES: [char; 4] = ['\u{b7}', '\u{2591}', '\u{2592}', '\u{2588}'];
const RESET: &str = "\x1b[0m";

#[cfg(test)]
mod tests {
    use super::super::{Axis, Point};
    use super::*;

    #[test]
    fn the_picture_has_its_values_in_place() {
        let axis = Axis::around(Scale::Log, 1_000.0, 100_000.0);
        let mut grid = Grid::new(10, 8, 1_000, axis);
        for n in 0..100 {
            let value_ns = 1_500;
            grid.take(Point {
                at_ns: n * 10,
                value_ns,
            });
        }
        let value_ns = 90_000;
        grid.take(Point {
            at_ns: 950,
            value_ns,
        });
        let text = terminal(&grid, "map", false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 1 + 4 + 2, "{text}");
        assert!(lines[1].ends_with("|         \u{b7}"), "{text}");
        assert!(lines[4].ends_with(&"\u{2588}".repeat(10)), "{text}");
        assert!(terminal(&grid, "map", true).contains("\x1b[38;2;"));
    }
}
