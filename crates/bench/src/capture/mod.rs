//! Compares capturing, sending and reading of packets with rivals, between two hosts on one virtual
//! cable.
//!
//! Every capture program gets the same frames from the same source, and a ring of the same size.
//! Rates are the highest without loss. Costs are the processor time of the whole machine in the
//! steady middle of a run, minus that of a run in which nobody captures.

use std::{fs, path::PathBuf};

use lab::{Lab, LabSpec};

use crate::{program, record, sample::spread};

mod listener;

mod load;

mod read;

mod receive;

mod tool;

mod transmit;

/// Prints the tables, each over `pairs` rounds; in a round all programs take turns.
pub(crate) fn run(pairs: usize, parts: &[String]) -> Result<(), String> {
    let lab = Lab::new(&LabSpec::new(2).direct()).map_err(|error| error.to_string())?;
    let scratch = Scratch::new()?;
    println!("rivals: {}\n", tool::versions());
    let wants = |part: &str| parts.is_empty() || parts.iter().any(|wanted| wanted == part);
    if wants("capture-rate") {
        println!("{}", receive::no_loss(&lab, &scratch, pairs)?);
    }
    if wants("capture-cost") {
        println!("{}", receive::costs(&lab, &scratch, pairs)?);
    }
    if wants("capture-small") {
        println!("{}", receive::small_ring(&lab, &scratch, pairs)?);
    }
    if wants("capture-send") {
        println!("{}", transmit::top_speed(&lab, &scratch, pairs)?);
    }
    if wants("capture-gaps") {
        println!("{}", transmit::gaps(&lab, &scratch, pairs)?);
    }
    if wants("capture-read") {
        println!("{}", read::run(&scratch, pairs)?);
    }
    Ok(())
}

/// Returns what a capture that counts costs the machine for each packet, in nanoseconds. The cost
/// of sending the packet is included.
pub(crate) fn counting_cost(lab: &Lab) -> Result<f64, String> {
    receive::counting_cost(lab, &Scratch::new()?)
}

/// The parts that can be asked for by name.
pub(crate) const PARTS: [&str; 6] = [
    "capture-rate",
    "capture-cost",
    "capture-small",
    "capture-send",
    "capture-gaps",
    "capture-read",
];

/// A directory for files, removed when dropped.
#[derive(Debug)]
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self, String> {
        let name = format!("bench-capture-{}", std::process::id());
        let path = program::root().join("target").join(name);
        fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self(path))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A file that is left over lies in the build's own directory.
        drop(fs::remove_dir_all(&self.0));
    }
}

/// Writes the runs of a comparison to the results, and returns its table.
fn keep(
    title: &str,
    unit: &str,
    decimals: usize,
    rows: &[(String, Vec<f64>)],
) -> Result<String, String> {
    let about = title
        .rsplit_once(", ")
        .map_or(title, |(about, _pairs)| about);
    let kept: Vec<record::Row> = rows
        .iter()
        .map(|(name, values)| (name.clone(), values.iter().map(|&one| vec![one]).collect()))
        .collect();
    let name = format!("capture-{}", record::slug(about));
    record::raw(&name, about, &[unit], &kept, kept.len())?;
    Ok(table(title, unit, decimals, rows))
}

/// Renders the rows of a table: the first is ours, and each shows its ratio to ours, pair by pair.
fn table(title: &str, unit: &str, decimals: usize, rows: &[(String, Vec<f64>)]) -> String {
    let mut text = format!(
        "{title}\n{:<34} {unit:>14} {:>25} {:>24}\n",
        "", "(min .. max)", "peer / ours (spread)"
    );
    let Some((_, ours)) = rows.first() else {
        return text;
    };
    for (name, values) in rows {
        let [low, median, high] = spread(values.iter().copied());
        let ratios = values.iter().zip(ours).map(|(one, our)| one / our);
        let [least, ratio, most] = spread(ratios);
        text += &format!(
            "{name:<34} {median:>14.decimals$} {:>25} {:>24}\n",
            format!("({low:.decimals$} .. {high:.decimals$})"),
            format!("{ratio:.2} ({least:.2} .. {most:.2})"),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_go_pair_by_pair() {
        let rows = [
            ("ours".to_owned(), vec![1.0, 4.0, 2.0]),
            ("peer".to_owned(), vec![2.0, 4.0, 6.0]),
        ];
        let text = table("t", "u", 1, &rows);
        assert!(text.contains("2.00 (1.00 .. 3.00)"), "{text}");
        assert_eq!(spread([3.0, 1.0, 2.0]), [1.0, 2.0, 3.0]);
    }
}
