//! One self-contained page: the picture, and a read-out of the cell under the pointer.

use serde::Serialize;

use super::{
    Item, Map, Scale, Scene,
    svg::{escape, svg},
};

/// Draws a scene as a web page. `about`, usually a manifest, is shown below the picture, line by
/// line.
#[must_use]
pub fn html(scene: &Scene, title: &str, about: &str) -> String {
    let maps: Vec<Cells<'_>> = scene
        .items
        .iter()
        .filter_map(|item| match item {
            Item::Map(map) => Some(Cells::of(map)),
            _ => None,
        })
        .collect();
    let maps = serde_json::to_string(&maps).expect("plain numbers and text");
    PAGE.replace("{title}", &escape(title))
        .replace("{svg}", &svg(scene))
        .replace("{about}", &escape_lines(about))
        // Only `</` could end the script element early.
        .replace("{maps}", &maps.replace("</", "<\\/"))
}

/// A map's counts, as the script of the page reads them.
#[derive(Serialize)]
struct Cells<'a> {
    title: &'a str,
    area: [f64; 4],
    columns: usize,
    rows: usize,
    lasted_ns: u64,
    is_log: bool,
    min: f64,
    max: f64,
    /// Two numbers for each cell that is not empty: its distance from the cell before it in the
    /// list, and its count. Cells are numbered column by column, from the lowest row.
    counts: Vec<u32>,
}

impl<'a> Cells<'a> {
    fn of(map: &'a Map) -> Self {
        let (columns, rows) = map.grid.shape();
        let cells = (0..columns).flat_map(|column| (0..rows).map(move |row| (column, row)));
        let (mut counts, mut gap) = (Vec::new(), 0);
        for (column, row) in cells {
            gap += 1;
            let count = map.grid.count(column, row);
            if count > 0 {
                counts.extend([gap, count]);
                gap = 0;
            }
        }
        let axis = map.grid.axis();
        Self {
            title: &map.title,
            area: map.area,
            columns,
            rows,
            lasted_ns: map.grid.lasted_ns(),
            is_log: axis.scale == Scale::Log,
            min: axis.min,
            max: axis.max,
            counts,
        }
    }
}

fn escape_lines(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(escape).collect();
    lines.join("\n")
}

const PAGE: &str = r#"<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<style>
body { margin: 0; background: #fff; color: #202024; font-family: monospace; }
#picture { position: relative; display: inline-block; }
#readout { position: absolute; display: none; pointer-events: none; padding: 4px 8px;
  background: #202024; color: #fff; font-size: 14px; white-space: pre; z-index: 1; }
pre { margin: 1em; }
#picture svg { max-width: 100%; height: auto; }
</style>
</head>
<body>
<div id="picture">
{svg}<div id="readout" role="status"></div>
</div>
<pre>{about}</pre>
<script>
"use strict";
const maps = {maps};
for (const map of maps) {
  map.cells = new Uint32Array(map.columns * map.rows);
  let at = -1;
  for (let n = 0; n < map.counts.length; n += 2) {
    at += map.counts[n];
    map.cells[at] = map.counts[n + 1];
  }
}
function time(ns) {
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["us", 1e3]])
    if (ns >= size) return (ns / size).toPrecision(4) + " " + unit;
  return ns.toPrecision(3) + " ns";
}
function value(map, place) {
  return map.is_log ? map.min * Math.pow(map.max / map.min, place)
    : map.min + (map.max - map.min) * place;
}
function read(x, y) {
  for (const map of maps) {
    const [left, top, width, height] = map.area;
    const across = (x - left) / width, up = 1 - (y - top) / height;
    if (across < 0 || across >= 1 || up < 0 || up >= 1) continue;
    const column = Math.floor(across * map.columns), row = Math.floor(up * map.rows);
    let all = 0;
    for (let r = 0; r < map.rows; r++) all += map.cells[column * map.rows + r];
    const count = map.cells[column * map.rows + row];
    const each = map.lasted_ns / map.columns;
    return map.title + "\nat " + time(column * each) + " for " + time(each)
      + "\n" + time(value(map, row / map.rows)) + " to " + time(value(map, (row + 1) / map.rows))
      + "\n" + count + " of " + all + " messages";
  }
  return null;
}
const picture = document.getElementById("picture"), readout = document.getElementById("readout");
picture.addEventListener("mousemove", event => {
  const box = picture.getBoundingClientRect();
  const x = event.clientX - box.left, y = event.clientY - box.top;
  const drawn = picture.querySelector("svg");
  const scale = drawn.viewBox.baseVal.width / drawn.getBoundingClientRect().width;
  const told = event.target.querySelector("title");
  const told_here = read(x * scale, y * scale);
  const text = told_here ?? (event.target.tagName === "rect" && told ? told.textContent : null);
  readout.style.display = text === null ? "none" : "block";
  if (text === null) return;
  readout.textContent = text;
  readout.style.left = Math.min(x + 16, box.width - 340) + "px";
  readout.style.top = (y + 16) + "px";
});
picture.addEventListener("mouseleave", () => { readout.style.display = "none"; });
</script>
</body>
</html>
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_fits_its_window_and_reads_at_the_size_that_is_shown() {
        let page = html(&Scene::new(1600, 100), "a <title>", "one\n<two>");
        for wanted in [
            "#picture svg { max-width: 100%; height: auto; }",
            "read(x * scale, y * scale)",
            "<title>a &lt;title&gt;</title>",
            "viewBox=\"0 0 1600 100\"",
            "&lt;two&gt;",
        ] {
            assert!(page.contains(wanted), "{wanted} is not in {page}");
        }
    }
}
