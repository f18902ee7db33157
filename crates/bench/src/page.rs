//! The page of the book that shows the committed results. It reads `docs/bench/*.json` and writes
//! tables into `docs/src/bench.md` and bars into `docs/src/img/bench`. A test checks that the page
//! is up to date.

use std::{fs, path::Path};

use measure::plot::{self, Bar};
use serde_json::Value;

use crate::{program, sample::spread};

/// Draws the page and its pictures anew.
pub(crate) fn draw() -> Result<String, String> {
    let root = program::root();
    let results = load(&root)?;
    let pictures = root.join("docs/src/img/bench");
    fs::create_dir_all(&pictures).map_err(|e| format!("{}: {e}", pictures.display()))?;
    for (name, result) in &results {
        save(&pictures.join(format!("{name}.svg")), &picture(result)?)?;
    }
    save(&root.join(PAGE), &text(&results)?)?;
    Ok(format!("drew {PAGE} from {} results", results.len()))
}

/// Draws the first column of a result as bars.
pub(crate) fn picture(result: &Value) -> Result<String, String> {
    let columns = columns(result)?;
    let rows = rows(result)?;
    let group = group(result, rows.len());
    let bar = |(nth, row): (usize, &Row)| {
        let [_, ratio, _] = row.ratio(&rows[nth / group * group]);
        Bar {
            name: row.peer.clone(),
            spread: row.column(0),
            told: format!("(first row / this: {ratio:.2})"),
        }
    };
    let bars: Vec<Bar> = rows.iter().enumerate().map(bar).collect();
    let about = [string(result, "machine")?.to_owned()];
    let scene = plot::bars(string(result, "title")?, &about, &columns[0], &bars);
    Ok(plot::svg(&scene))
}

/// Returns every committed result with the name of its file, sorted by name.
fn load(root: &Path) -> Result<Vec<(String, Value)>, String> {
    let directory = root.join(RESULTS);
    let failed = |error| format!("{}: {error}", directory.display());
    let mut results = Vec::new();
    for entry in fs::read_dir(&directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_stem().and_then(|name| name.to_str());
        let (Some(name), true) = (name, path.extension().is_some_and(|it| it == "json")) else {
            continue;
        };
        let text = fs::read_to_string(&path).map_err(failed)?;
        let result = serde_json::from_str(&text).map_err(|e| e.to_string());
        let result = result
            .and_then(whole)
            .map_err(|e| format!("{}: {e}", path.display()))?;
        results.push((name.to_owned(), result));
    }
    results.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(results)
}

/// Refuses a result that does not say how it was made. Old results, which have none of the keys of
/// [`ORIGIN`], pass until `make bench-page` replaces them.
fn whole(result: Value) -> Result<Value, String> {
    let lacking: Vec<&str> = ORIGIN
        .into_iter()
        .filter(|key| result.get(key).is_none())
        .collect();
    if lacking.is_empty() || lacking.len() == ORIGIN.len() {
        Ok(result)
    } else {
        Err(format!("a result without {}", lacking.join(", ")))
    }
}

fn text(results: &[(String, Value)]) -> Result<String, String> {
    let mut text = INTRODUCTION.to_owned();
    for (name, result) in results {
        let columns = columns(result)?;
        let rows = rows(result)?;
        let group = group(result, rows.len());
        text += &format!("\n## {}\n\n", string(result, "title")?);
        text += string(result, "machine")?;
        if let Some(commit) = result["commit"].as_str() {
            text += &format!(", commit {commit}");
        }
        text += &format!(". Every run: `{RESULTS}/{name}.json`.\n\n");
        text += &format!("| | {} | first row / this |\n", columns.join(" | "));
        text += &format!("|---|{}---|\n", "---|".repeat(columns.len()));
        for (nth, row) in rows.iter().enumerate() {
            let cells: Vec<String> = (0..columns.len()).map(|at| row.cell(at)).collect();
            let [low, ratio, high] = row.ratio(&rows[nth / group * group]);
            let ratio = match nth % group {
                0 => String::new(),
                _ => format!("{ratio:.2} ({low:.2} .. {high:.2})"),
            };
            text += &format!("| {} | {} | {ratio} |\n", row.peer, cells.join(" | "));
        }
        text += &format!("\n![{}](img/bench/{name}.svg)\n", string(result, "title")?);
    }
    Ok(text)
}

/// One peer's runs.
struct Row {
    peer: String,
    runs: Vec<Vec<f64>>,
}

impl Row {
    /// Returns minimum, median and maximum of a column.
    fn column(&self, at: usize) -> [f64; 3] {
        spread(self.runs.iter().filter_map(|run| run.get(at).copied()))
    }

    fn cell(&self, at: usize) -> String {
        let [low, mid, high] = self.column(at).map(number);
        if mid == "0" && high == "0" {
            String::new()
        } else if low == mid && mid == high {
            mid
        } else {
            format!("{mid} ({low} .. {high})")
        }
    }

    /// Returns minimum, median and maximum of a ratio, pair by pair: the first figure of `first`
    /// divided by the first figure of this row.
    fn ratio(&self, first: &Self) -> [f64; 3] {
        let pairs = first.runs.iter().zip(&self.runs);
        spread(pairs.filter_map(|(one, other)| Some(one.first()? / other.first()?)))
    }
}

/// Formats a number: below 100 with at most two decimals, else as a whole number with a separator
/// between thousands.
fn number(value: f64) -> String {
    if value.abs() < 100.0 {
        let text = format!("{value:.2}");
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    let digits = format!("{:.0}", value.abs());
    let mut text = String::from(if value < 0.0 { "-" } else { "" });
    for (nth, digit) in digits.chars().enumerate() {
        if nth > 0 && (digits.len() - nth) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn rows(result: &Value) -> Result<Vec<Row>, String> {
    let rows = result["rows"].as_array().ok_or("a result without rows")?;
    let row = |row: &Value| {
        let runs = row["runs"].as_array().ok_or("a row without runs")?;
        Ok(Row {
            peer: string(row, "peer")?.to_owned(),
            runs: runs
                .iter()
                .filter_map(Value::as_array)
                .map(|run| figures(run))
                .collect(),
        })
    };
    rows.iter().map(row).collect()
}

/// Returns the numbers of one run.
fn figures(run: &[Value]) -> Vec<f64> {
    run.iter().filter_map(Value::as_f64).collect()
}

fn columns(result: &Value) -> Result<Vec<String>, String> {
    let columns = result["columns"].as_array().into_iter().flatten();
    let columns: Vec<String> = columns
        .filter_map(|it| it.as_str().map(str::to_owned))
        .collect();
    if columns.is_empty() {
        return Err("a result without columns".into());
    }
    Ok(columns)
}

/// Returns how many rows make a group. The first row of a group is compared with each of the
/// others.
fn group(result: &Value, all: usize) -> usize {
    let group = result["group"].as_u64().map_or(all, |rows| rows as usize);
    group.max(1)
}

fn string<'a>(value: &'a Value, key: &str) -> Result<&'a str, String> {
    value[key]
        .as_str()
        .ok_or_else(|| format!("a result without {key}"))
}

fn save(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// The keys under which [`crate::record`] keeps how a result was made, besides machine and commit.
/// A value may be null if the machine does not tell it.
pub(crate) const ORIGIN: [&str; 4] = ["clock_source", "governor", "command", "rivals"];
const RESULTS: &str = "docs/bench";
const PAGE: &str = "docs/src/bench.md";
const INTRODUCTION: &str = "\
# How fast: the benches

Written by `make bench-page` from the results in `docs/bench`; do not edit.

Hosts are network namespaces of one machine, joined by virtual cables. In each pair Towline and the
others run one after the other, so that a slow moment meets all of them. A run counts when its
receiver got everything and the hypervisor took less than 1 % of the time. Figures are medians over
the pairs, with the smallest and the largest value. A row \"again\" is Towline beside itself: the
noise.

`make bench` measures all of it; `make bench ARGS=\"messages --pairs 3\"` a part, into
`target/bench`. `make bench-page` measures everything into `docs/bench` and draws this page;
`make bench-page ARGS=messages` renews one group. Use a machine that does nothing else.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_that_says_a_part_of_how_it_was_made_is_refused() {
        let mut result = serde_json::json!({"title": "Messages"});
        assert!(whole(result.clone()).is_ok(), "a result of the old form");
        for (nth, key) in ORIGIN.into_iter().enumerate() {
            result[key] = Value::Null;
            let is_whole = nth + 1 == ORIGIN.len();
            assert_eq!(whole(result.clone()).is_ok(), is_whole, "{result}");
        }
        result.as_object_mut().unwrap().remove("governor");
        assert_eq!(whole(result).unwrap_err(), "a result without governor");
    }

    #[test]
    fn the_committed_page_is_what_the_results_say() {
        let root = program::root();
        let page = fs::read_to_string(root.join(PAGE)).unwrap();
        let results = load(&root).unwrap();
        assert!(
            page == text(&results).unwrap(),
            "{PAGE} is stale: run `make bench-page`, or draw it with `towline-bench page`"
        );
        for (name, result) in &results {
            let path = root.join(format!("docs/src/img/bench/{name}.svg"));
            let committed = fs::read_to_string(&path).unwrap();
            assert!(committed == picture(result).unwrap(), "{}", path.display());
        }
    }

    #[test]
    fn numbers_are_short_and_readable() {
        let shown = [0.0, 0.264, 12.0, 99.5, 1234.4, 2_024_080.0].map(number);
        assert_eq!(shown, ["0", "0.26", "12", "99.5", "1,234", "2,024,080"]);
    }
}
