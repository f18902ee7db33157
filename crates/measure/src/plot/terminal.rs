//! A heat map in a terminal: each character cell shows two rows of the grid.

use std::fmt::Write as _;

use super::{Grid, Scale, axis, palette, scene::shade};

/// Columns that the value axis takes at the left of the map.
pub const TERMINAL_AXIS: usize = 9;

/// Draws a grid as lines of text with its value axis at the left: in 24-bit colours with `colour`,
/// otherwise in five shades.
#[must_use]
pub fn terminal(grid: &Grid, title: &str, colour: bool) -> String {
    let (columns, rows) = grid.shape();
    let mut text = format!("{title}\n");
    let lines = rows.div_ceil(2);
    let mut names = names(grid, lines);
    for line in (0..lines).rev() {
        let name = std::mem::take(&mut names[line]);
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

/// Returns the names on the value axis, from the bottom up: round values, with at least one line
/// between two names.
fn names(grid: &Grid, lines: usize) -> Vec<String> {
    let mut names = vec![String::new(); lines];
    let mut last = None;
    for value in grid.axis().ticks(lines) {
        let at = (grid.axis().place(value) * lines as f64) as usize;
        if at < lines && last.is_none_or(|last| at > last + 1) {
            names[at] = axis::time(value);
            last = Some(at);
        }
    }
    names
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
    // The foreground colour draws the upper half of the cell, the background the lower half.
    let mut paint = |ground: u8, count: u32| {
        let [red, green, blue] = palette::terminal_level(level(count));
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
        assert_eq!(
            lines[4].trim_start().split(' ').next(),
            Some("1us"),
            "{text}"
        );
        assert_eq!(
            lines[2].trim_start().split(' ').next(),
            Some("10us"),
            "{text}"
        );
        assert!(lines[1].ends_with("|         \u{b7}"), "{text}");
        assert!(lines[4].ends_with(&"\u{2588}".repeat(10)), "{text}");
        assert!(terminal(&grid, "map", true).contains("\x1b[38;2;"));
    }
}
