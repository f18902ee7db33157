//! Colours.

/// Red, green and blue.
pub(super) type Colour = [u8; 3];

pub(super) const WHITE: Colour = [255, 255, 255];
pub(super) const INK: Colour = [32, 32, 36];
pub(super) const FAINT: Colour = [216, 216, 222];
pub(super) const GREY: Colour = [110, 110, 118];
/// The colour of what a reader must not miss: disturbances, and rates beyond the knee.
pub(super) const ALARM: Colour = [200, 30, 90];

/// The colours of curves. Colour-blind readers can tell the first six apart (Okabe and Ito, 2008).
/// The others are distinct only for readers who see all colours.
pub(super) const LINES: [Colour; 12] = [
    [0, 114, 178],
    [213, 94, 0],
    [0, 158, 115],
    [204, 121, 167],
    [86, 180, 233],
    [230, 159, 0],
    [51, 34, 136],
    [120, 60, 20],
    [120, 130, 0],
    [150, 90, 230],
    [0, 70, 70],
    [90, 200, 60],
];

/// Number of colours of the map.
pub(super) const LEVELS: u8 = 200;

/// Returns the map's colour for a level: 0 is for the lowest counts, `LEVELS - 1` for the highest.
/// The colours are those of viridis, whose lightness changes evenly. So grey prints and
/// colour-blind readers show the same differences. High counts are dark, because the ground is
/// white. The lightest quarter, yellow, is left out: outliers are single messages in cells of two
/// pixels, and must be seen on the white ground.
pub(super) fn level(level: u8) -> Colour {
    let place = f64::from(LEVELS - 1 - level.min(LEVELS - 1)) / f64::from(LEVELS - 1);
    between(&VIRIDIS, LIGHTEST * place)
}

/// Returns the colour at a place, from 0 to 1, between the colours of a row.
fn between(row: &[Colour], place: f64) -> Colour {
    let at = place * (row.len() - 1) as f64;
    let index = (at as usize).min(row.len() - 2);
    let part = at - index as f64;
    let (from, to) = (row[index], row[index + 1]);
    std::array::from_fn(|channel| {
        let (from, to) = (f64::from(from[channel]), f64::from(to[channel]));
        (from + (to - from) * part).round() as u8
    })
}

/// Returns the colour of the map on a terminal, from blue for low counts to orange for high ones.
/// The ground of a terminal may be dark or light, so all colours are far from black and from white.
pub(super) fn terminal_level(level: u8) -> Colour {
    let place = f64::from(level.min(LEVELS - 1)) / f64::from(LEVELS - 1);
    between(&GLOW, place)
}

/// From blue through red to orange, each lighter than the one before.
const GLOW: [Colour; 5] = [
    [84, 92, 204],
    [140, 84, 200],
    [200, 80, 160],
    [232, 100, 96],
    [242, 150, 40],
];

/// The part of viridis that is used, from its dark end.
const LIGHTEST: f64 = 0.75;

/// Eleven points of the viridis map, from dark to light (matplotlib, CC0).
const VIRIDIS: [Colour; 11] = [
    [68, 1, 84],
    [72, 36, 117],
    [65, 68, 135],
    [53, 95, 141],
    [42, 120, 142],
    [33, 145, 140],
    [34, 168, 132],
    [68, 191, 112],
    [122, 209, 81],
    [189, 223, 38],
    [253, 231, 37],
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_lines_look_alike_nor_like_a_disturbance() {
        let far = |one: Colour, other: Colour| -> f64 {
            let parts = one.iter().zip(other);
            let parts = parts.map(|(&one, other)| (f64::from(one) - f64::from(other)).powi(2));
            parts.sum::<f64>().sqrt()
        };
        for (nth, one) in LINES.iter().enumerate() {
            assert!(far(*one, ALARM) > 60.0, "{one:?} and the alarm");
            assert!(far(*one, WHITE) > 120.0, "{one:?} on paper");
            for other in &LINES[..nth] {
                assert!(far(*one, *other) > 60.0, "{one:?} and {other:?}");
            }
        }
    }

    #[test]
    fn a_terminals_map_is_seen_on_black_and_on_white() {
        let lights: Vec<f64> = (0..LEVELS).map(|n| light(terminal_level(n))).collect();
        for light in &lights {
            let (on_black, on_white) = ((light + 0.05) / 0.05, 1.05 / (light + 0.05));
            assert!(on_black > 2.0 && on_white > 2.0, "{on_black} {on_white}");
        }
        assert!(lights.last() > lights.first());
    }

    #[test]
    fn a_single_message_is_seen_on_paper() {
        let on_white = |colour| 1.05 / (light(colour) + 0.05);
        assert!(on_white(level(0)) > 2.0, "{}", on_white(level(0)));
    }

    /// Relative luminance as in WCAG 2.1; a contrast of 2 is easily seen in an area.
    fn light(colour: Colour) -> f64 {
        let parts = colour.map(|part| (f64::from(part) / 255.0).powf(2.2));
        parts
            .into_iter()
            .zip([0.2126, 0.7152, 0.0722])
            .map(|(part, weight)| part * weight)
            .sum()
    }

    #[test]
    fn lightness_falls_evenly() {
        // The weights of Rec. 601 give what a grey print shows.
        let grey = |[r, g, b]: Colour| 299 * u32::from(r) + 587 * u32::from(g) + 114 * u32::from(b);
        let greys: Vec<u32> = (0..LEVELS).map(|n| grey(level(n))).collect();
        // In thousandths: each channel is rounded, which is less than one step of grey.
        assert!(greys.windows(2).all(|pair| pair[0] + 1_000 > pair[1]));
        assert!(greys[0] > 5 * greys[usize::from(LEVELS) - 1]);
    }
}
