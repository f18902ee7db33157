//! Prints the table of a comparison, and keeps every run as JSON. [`crate::page`] draws from the
//! JSON.

use std::{fs, path::PathBuf, sync::OnceLock};

use serde_json::{Value, json};

use crate::{
    machine, page, program,
    sample::{Sample, Series},
    table,
};

/// Prints the table of a comparison, and keeps its runs as [`write()`] does.
pub(crate) fn keep(name: &str, title: &str, unit: &str, series: &[Series]) -> Result<(), String> {
    println!("{title}\n{}", table::render(series, unit));
    write(name, title, unit, series, series.len())
}

/// Keeps every run as [`raw()`] does. The rows form groups of `group` rows, at least 1; the first
/// row of each is ours, and the others are compared with it.
pub(crate) fn write(
    name: &str,
    title: &str,
    unit: &str,
    series: &[Series],
    group: usize,
) -> Result<(), String> {
    let rows: Vec<Row> = series
        .iter()
        .map(|row| {
            let runs = row.samples().iter().map(figures).collect();
            (row.name.clone(), runs)
        })
        .collect();
    raw(name, title, &[unit, "CPU s/GB", "MiB"], &rows, group)
}

/// A peer, and the figures of each of its runs.
pub(crate) type Row = (String, Vec<Vec<f64>>);

/// Writes every run into `NAME.json` and bars of the first column into `NAME.svg`, both in
/// `target/bench`. With `--out DIR` only the JSON is written, into that directory.
pub(crate) fn raw(
    name: &str,
    title: &str,
    columns: &[&str],
    rows: &[Row],
    group: usize,
) -> Result<(), String> {
    let document = document(title, columns, rows, group);
    let directory = OUT.get().cloned();
    let picture = match directory {
        Some(_) => None,
        None => Some(page::picture(&document)?),
    };
    let directory = directory.unwrap_or_else(|| program::root().join("target/bench"));
    let failed = |error| format!("{}: {error}", directory.display());
    fs::create_dir_all(&directory).map_err(failed)?;
    let json = Some(format!("{document:#}\n"));
    for (ending, content) in [("json", json), ("svg", picture)] {
        let Some(content) = content else { continue };
        let path = directory.join(format!("{name}.{ending}"));
        fs::write(&path, content).map_err(|error| format!("{}: {error}", path.display()))?;
        eprintln!("kept: {}", path.display());
    }
    Ok(())
}

/// Makes the document that is kept: the figures, and how they were made.
fn document(title: &str, columns: &[&str], rows: &[Row], group: usize) -> Value {
    let rows: Vec<_> = rows
        .iter()
        .map(|(peer, runs)| json!({"peer": peer, "runs": runs}))
        .collect();
    json!({
        "schema": "towline.bench",
        "version": 1,
        "title": title,
        "machine": machine::describe(),
        "clock_source": machine::clock_source(),
        "governor": machine::governor(),
        "command": std::env::args().skip(1).collect::<Vec<_>>(),
        "commit": program::commit(),
        "rivals": machine::rivals(),
        "columns": columns,
        "group": group,
        "rows": rows,
    })
}

/// Keeps the JSON of this process's comparisons in `directory`.
pub(crate) fn into(directory: PathBuf) {
    // The directory is set once, from the command line.
    let _ok = OUT.set(directory);
}

/// Turns a title into the name of a file: its letters and digits in lower case, with `-` between
/// words.
pub(crate) fn slug(title: &str) -> String {
    let words = title.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words.join("-").to_lowercase()
}

fn figures(run: &Sample) -> Vec<f64> {
    let mib = run.peak_kib as f64 / 1024.0;
    vec![run.rate_per_s, run.cpu_seconds_per_gb(), mib]
}

static OUT: OnceLock<PathBuf> = OnceLock::new();

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn what_is_kept_says_how_it_was_made() {
        let rows = [("towline".to_owned(), vec![vec![1.0]])];
        let kept = document("Messages", &["messages/s"], &rows, 1);
        for key in page::ORIGIN.into_iter().chain(["machine", "commit"]) {
            assert!(kept.get(key).is_some(), "{key}: {kept:#}");
        }
    }

    /// The tests of `towline` hold every committed result against this schema.
    #[test]
    fn what_is_kept_has_the_keys_of_its_schema() {
        let path = program::root().join("docs/bench/schema/towline.bench.json");
        let schema: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        let kept = document("Messages", &["messages/s"], &[], 1);
        let keys = |value: &Value| -> BTreeSet<String> {
            value.as_object().unwrap().keys().cloned().collect()
        };
        assert_eq!(keys(&kept), keys(&schema["properties"]));
        for name in ["schema", "version"] {
            assert_eq!(kept[name], schema["properties"][name]["const"]);
        }
    }
}
