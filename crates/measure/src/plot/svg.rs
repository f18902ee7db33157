//! Scalable Vector Graphics: lines and letters stay lines and letters, and each map is one embedded
//! picture.

use std::fmt::Write as _;

use base::text::is_plain;
use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{Anchor, Item, Map, Scene, canvas::Canvas, font, palette::Colour, png};

/// Draws a scene as an SVG document.
#[must_use]
pub fn svg(scene: &Scene) -> String {
    let Scene { width, height, .. } = scene;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"monospace\">\n"
    );
    for item in &scene.items {
        // Writing to a String cannot fail.
        let _infallible = draw(&mut text, item);
    }
    text.push_str("</svg>\n");
    text
}

fn draw(output: &mut String, item: &Item) -> std::fmt::Result {
    match item {
        Item::Rect {
            area: [x, y, width, height],
            fill,
        } => writeln!(
            output,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
             fill=\"{}\"/>",
            hex(*fill)
        ),
        Item::Dot {
            area: [x, y, width, height],
            fill,
            told,
        } => writeln!(
            output,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
             fill=\"{}\"><title>{}</title></rect>",
            hex(*fill),
            escape(told)
        ),
        Item::Line {
            points,
            colour,
            width,
        } => {
            let places: Vec<String> = points
                .iter()
                .map(|(x, y)| format!("{x:.1},{y:.1}"))
                .collect();
            writeln!(
                output,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{width}\"/>",
                places.join(" "),
                hex(*colour)
            )
        }
        Item::Text {
            at: (x, y),
            text,
            scale,
            anchor,
            colour,
        } => {
            let anchor = match anchor {
                Anchor::Start => "start",
                Anchor::Middle => "middle",
                Anchor::End => "end",
            };
            writeln!(
                output,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{}\" text-anchor=\"{anchor}\" \
                 dominant-baseline=\"central\" fill=\"{}\" xml:space=\"preserve\">{}</text>",
                // The width of a monospaced letter is 0.6 of its size.
                f64::from(scale * font::ADVANCE) / 0.6,
                hex(*colour),
                escape(text)
            )
        }
        Item::Map(map) => embed(output, map),
    }
}

fn embed(output: &mut String, map: &Map) -> std::fmt::Result {
    let [x, y, width, height] = map.area;
    writeln!(
        output,
        "<image x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
         preserveAspectRatio=\"none\" style=\"image-rendering:pixelated\" \
         href=\"data:image/png;base64,{}\"><title>{}</title></image>",
        STANDARD.encode(png::encode(&Canvas::cells(map))),
        escape(&map.title)
    )
}

fn hex([red, green, blue]: Colour) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// Escapes text for use between tags and in attributes.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            letter if is_plain(letter) => escaped.push(letter),
            // XML has no way to write control characters.
            _ => escaped.push('?'),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_stays_text() {
        let mut scene = Scene::new(10, 10);
        scene.text((0.0, 0.0), "</text><script>\"&\u{7}", 1, Anchor::Start);
        let text = svg(&scene);
        assert!(
            text.contains("&lt;/text&gt;&lt;script&gt;&quot;&amp;?"),
            "{text}"
        );
    }
}
