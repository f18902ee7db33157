//! The table that a bench prints.

use crate::sample::Series;

/// Renders each series as a row, with rates in `unit`. The first row is ours, and every row shows
/// the ratio of our rate to its own.
pub(crate) fn render(series: &[Series], unit: &str) -> String {
    let mut text = format!(
        "{:<34} {:>12} {:>25} {:>9} {:>9} {:>22}\n",
        "peer", unit, "(min .. max)", "CPU s/GB", "memory", "ours / peer (spread)"
    );
    let Some(ours) = series.first() else {
        return text;
    };
    for row in series {
        let [min, median, max] = row.rate();
        let [low, ratio, high] = ours.ratio_to(row);
        text += &format!(
            "{:<34} {median:>12.0} {:>25} {:>9.2} {:>9} {:>22}\n",
            row.name,
            format!("({min:.0} .. {max:.0})"),
            row.cpu_seconds_per_gb(),
            memory(row),
            format!("{ratio:.2} ({low:.2} .. {high:.2})"),
        );
    }
    text
}

/// The most memory that a peer's programs held; empty when it was not measured.
pub(crate) fn memory(row: &Series) -> String {
    match row.peak_mib() {
        0.0 => String::new(),
        mib => format!("{mib:.0} MiB"),
    }
}
