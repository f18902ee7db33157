//! What stays of a comparison: its table, every run as JSON, and a picture.

use std::fs;

use measure::plot::{self, Bar};
use serde_json::{Value, json};

use crate::{
    machine, program,
    sample::{Sample, Series},
    table::{self, memory},
};

/// Prints the table of a comparison, and keeps its runs as [`write()`] does.
pub(crate) fn keep(name: &str, title: &str, unit: &str, series: &[Series]) -> Result<(), String> {
    println!("{title}\n{}", table::render(series, unit));
    write(name, title, unit, series, series.len())
}

/// Leaves every run in `NAME.json` and bars in `NAME.svg`, both in `target/bench`. Of each `group`
/// rows, which may not be 0, the first is ours, with which the others are compared.
pub(crate) fn write(
    name: &str,
    title: &str,
    unit: &str,
    series: &[Series],
    group: usize,
) -> Result<(), String> {
    let directory = program::root().join("target/bench");
    let failed = |error| format!("{}: {error}", directory.display());
    fs::create_dir_all(&directory).map_err(failed)?;
    let rows: Vec<_> = series
        .iter()
        .map(|row| {
            let runs: Vec<_> = row.samples().iter().map(document).collect();
            json!({"peer": row.name, "runs": runs})
        })
        .collect();
    let machine = machine::describe();
    let raw = json!({
        "title": title,
        "unit": unit,
        "machine": machine,
        "commit": program::commit(),
        "arguments": std::env::args().skip(1).collect::<Vec<_>>(),
        "rows": rows,
    });
    let picture = plot::svg(&plot::bars(title, &[machine], unit, &bars(series, group)));
    for (ending, content) in [("json", format!("{raw:#}\n")), ("svg", picture)] {
        let path = directory.join(name).with_extension(ending);
        fs::write(&path, content).map_err(|error| format!("{}: {error}", path.display()))?;
        eprintln!("kept: {}", path.display());
    }
    Ok(())
}

fn document(run: &Sample) -> Value {
    json!({
        "rate": run.rate,
        "missing": run.missing,
        "cpu_seconds": run.cpu_seconds,
        "bytes": run.bytes,
        "peak_kib": run.peak_kib,
        "steal_permille": run.steal_permille,
    })
}

fn bars(series: &[Series], group: usize) -> Vec<Bar> {
    let bar = |(nth, row): (usize, &Series)| {
        let [_, ratio, _] = series[nth / group * group].ratio_to(row);
        let cost = row.cpu_seconds_per_gb();
        Bar {
            name: row.name.clone(),
            spread: row.rate(),
            told: format!("(ours {ratio:.2} x, {cost:.2} CPU s/GB {})", memory(row)),
        }
    };
    series.iter().enumerate().map(bar).collect()
}
