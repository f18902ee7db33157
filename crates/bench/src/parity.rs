//! Messages to receivers that lose different packets, with parity and without: the packets sent
//! besides the data, and the effect on the rate.

use lab::{Lab, LabSpec};

use crate::{
    matrix::Case,
    measure_valid,
    peer::{Peer as _, Towline},
    sample::Series,
};

/// Runs every case in all ways by turns, and returns the table.
pub(crate) fn run(pairs: usize) -> Result<String, String> {
    let spec = LabSpec::new(1 + RECEIVERS_MAX).segments_at_switch();
    let lab = Lab::new(&spec).map_err(|e| e.to_string())?;
    let mut text = format!(
        "messages with and without parity, {pairs} pairs\n\
         {:<40} {:<34} {:>10} {:>10} {:>9} {:>20}\n",
        "case", "sender", "msg/s", "repairs", "CPU s/GB", "ratio (spread)"
    );
    for receivers in [1, 3, usize::from(RECEIVERS_MAX)] {
        for lost in [0, 10, 50] {
            let case = Case {
                size: 1400,
                receivers,
                lost_permille: Some(lost),
            };
            text += &rows(&lab, case, pairs)?;
        }
    }
    text += "repairs: packets beside those with new data, for a thousand of these\n";
    Ok(text)
}

/// Runs all ways of one case in turn, and returns a line for each.
fn rows(lab: &Lab, case: Case, pairs: usize) -> Result<String, String> {
    case.set_loss(lab)?;
    let mut ways = Vec::new();
    for (name, words) in WAYS {
        ways.push((case.towline(name, words)?, Series::new(name)));
    }
    for pair in 1..=pairs {
        for (way, series) in &mut ways {
            let sample = measure_valid(way, lab)?;
            eprintln!(
                "{} pair {pair} {}: {sample} msg/s",
                case.title(),
                way.name()
            );
            series.push(sample);
        }
    }
    let plain = ways[0].1.clone();
    let line = |(way, series): &(Towline, Series)| {
        let [low, ratio, high] = series.ratio_to(&plain);
        format!(
            "{:<40} {:<34} {:>10.0} {:>10.1} {:>9.2} {:>20}\n",
            case.title(),
            way.name(),
            series.rate()[1],
            series.repairs_permille(),
            series.cpu_seconds_per_gb(),
            format!("{ratio:.2} ({low:.2} .. {high:.2})"),
        )
    };
    Ok(ways.iter().map(line).collect())
}

/// The ways: a name, and the sender's options.
const WAYS: [(&str, &[&str]); 4] = [
    ("without parity", &[]),
    ("--fec-group 64", &["--fec-group", "64"]),
    (
        "--fec-group 64, unasked 0 to 8",
        &["--fec-group", "64", "--fec-proactive-max", "8"],
    ),
    ("without parity (again)", &[]),
];
const RECEIVERS_MAX: u8 = 8;
