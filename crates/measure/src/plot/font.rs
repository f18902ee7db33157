//! The letters of a PNG: `DejaVu Sans Mono`, whose letters all have the same width.

use ab_glyph::{Font as _, FontRef, Glyph, PxScale, point};

/// The font at one size.
#[derive(Debug)]
pub(super) struct Face {
    font: FontRef<'static>,
    scale: PxScale,
    /// Distance between the starts of two letters, in pixels.
    pub(super) advance: f32,
    /// Height of a capital, in pixels.
    pub(super) capital: f32,
}

impl Face {
    /// Makes the face whose letters are [`ADVANCE`] times `scale` pixels wide. **Cost**: reads the
    /// font's tables, no letters.
    pub(super) fn new(scale: u32) -> Self {
        let font = FontRef::try_from_slice(dejavu::sans_mono::regular());
        let font = font.expect("the program carries this font");
        let advance = (ADVANCE * scale) as f32;
        let units_per_letter = font.h_advance_unscaled(font.glyph_id('0'));
        let pixels_per_unit = advance / units_per_letter;
        let scale = PxScale::from(font.height_unscaled() * pixels_per_unit);
        let capital = font.outline(font.glyph_id('H')).expect("it has capitals");
        Self {
            advance,
            capital: capital.bounds.height().abs() * pixels_per_unit,
            font,
            scale,
        }
    }

    /// Draws a letter whose left end stands at `left` on the line `baseline`. Calls `dot` with the
    /// place of each pixel that the letter touches, and how much of that pixel it covers, 0 to 1. A
    /// letter that the font lacks is a box.
    pub(super) fn draw(
        &self,
        letter: char,
        (left, baseline): (f32, f32),
        mut dot: impl FnMut(i64, i64, f32),
    ) {
        let glyph: Glyph = self
            .font
            .glyph_id(letter)
            .with_scale_and_position(self.scale, point(left, baseline));
        let Some(outline) = self.font.outline_glyph(glyph) else {
            return;
        };
        let corner = outline.px_bounds().min;
        let (x0, y0) = (corner.x as i64, corner.y as i64);
        outline.draw(|x, y, covered| dot(x0 + i64::from(x), y0 + i64::from(y), covered));
    }
}

/// Distance between the starts of two letters at scale 1, in pixels.
pub(super) const ADVANCE: u32 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    fn dots(letter: char) -> Vec<(i64, i64, u8)> {
        let mut dots = Vec::new();
        let take = |x, y, covered: f32| dots.push((x, y, (covered.clamp(0.0, 1.0) * 255.0) as u8));
        Face::new(2).draw(letter, (0.0, 20.0), take);
        dots
    }

    #[test]
    fn every_letter_has_its_own_glyph_and_units_have_theirs() {
        let mut letters: Vec<_> = ('!'..='~').chain("µ±×–…°".chars()).map(dots).collect();
        let count = letters.len();
        assert!(letters.iter().all(|dots| !dots.is_empty()));
        letters.sort_unstable();
        letters.dedup();
        assert_eq!(letters.len(), count);
        assert!(dots(' ').is_empty());
    }

    #[test]
    fn letters_stand_on_their_line_and_keep_to_their_width() {
        let face = Face::new(2);
        assert!((face.advance - 12.0).abs() < 1e-6);
        let ink = dots('H').into_iter().filter(|&(.., covered)| covered > 0);
        for (x, y, _) in ink {
            assert!((0..12).contains(&x) && (4..20).contains(&y), "{x} {y}");
        }
        assert!((13.0..16.0).contains(&face.capital), "{}", face.capital);
    }
}
