//! Compares the present program with an older build, to show what a change costs or gains.
//!
//! More is better in every figure, so a ratio below 1 is always a loss. Each pair runs both
//! programs twice, and counts the means. Beside each median ratio stand the least and the greatest
//! of the pairs, which show the noise.

use std::path::Path;

use lab::{Lab, LabSpec};

use crate::{
    capture, files, lossy_lab,
    peer::{Peer, Towline},
    program, round_trips,
    sample::Sample,
    tcp,
    turns::{Figures, Run, Turns},
};

/// Compares with the program at `before`, in `pairs` pairs of runs. Makes the `wanted` ones of the
/// measurements "messages", "rtt", "capture", "tcp" and "files".
pub(crate) fn run(
    pairs: usize,
    before: &Path,
    wanted: impl Fn(&str) -> bool,
) -> Result<String, String> {
    if !before.is_file() {
        return Err(format!("{} is not a program", before.display()));
    }
    let mut text = HEADINGS.to_owned();
    let lab = Lab::new(&LabSpec::new(2).direct()).map_err(|error| error.to_string())?;
    let sizes = [1400, 64].into_iter().filter(|_| wanted("messages"));
    for size in sizes {
        let what = format!("messages of {size} B");
        text += &rows(&what, pairs, before, &|| {
            rates(&Towline::new(size)?.pinned().run(&lab)?)
        })?;
    }
    let loads = round_trips::over_pgm_alone(&lab);
    for (load, measure) in loads.into_iter().filter(|_| wanted("rtt")) {
        text += &rows(&format!("rtt over PGM, {load}"), pairs, before, &|| {
            Ok(measure()?.map(|us| 1e6 / us))
        })?;
    }
    if wanted("capture") {
        text += &rows("capture, counting", pairs, before, &|| {
            let per_cpu_second = 1e9 / capture::counting_cost(&lab)?;
            Ok([per_cpu_second; 2])
        })?;
    }
    for (what, files, bytes) in tcp::LOADS.into_iter().filter(|_| wanted("tcp")) {
        let load = files::Load::make("tcp", files, bytes)?.for_one_receiver();
        text += &rows(&format!("{what} over TCP"), pairs, before, &|| {
            rates(&tcp::ours(&load).run(&lab)?)
        })?;
    }
    drop(lab);
    if wanted("files") {
        let lab = lossy_lab(3)?;
        let load = files::Load::make("one", 1, 300_000_000)?;
        text += &rows("one file of 300 MB", pairs, before, &|| {
            rates(&files::Ours::files("towline", &load).run(&lab)?)
        })?;
    }
    Ok(text)
}

/// Makes one measurement, and returns its two rows.
fn rows(
    what: &str,
    pairs: usize,
    before: &Path,
    measure: &dyn Fn() -> Result<Figures, String>,
) -> Result<String, String> {
    let older = || program::standing_in(before, measure);
    let peers: [(&str, Run<'_>); 2] = [("now", Box::new(measure)), ("before", Box::new(older))];
    let turns = Turns::mirrored(what, pairs, &peers)?;
    let row = |row: crate::turns::Row<'_>| {
        let [first, second] = row.figures;
        let ratio = |which: usize| {
            let (median, [least, most]) = (row.ratios[which], row.ratio_spans[which]);
            format!("{median:.3} ({least:.3} to {most:.3})")
        };
        let (name, first_ratio, second_ratio) = (row.name, ratio(0), ratio(1));
        format!(
            "{what:<36} {name:<8} {first:>14.1} {second:>14.1} {first_ratio:>24} \
             {second_ratio:>24}\n"
        )
    };
    Ok(turns.rows().map(row).collect())
}

/// Returns the rate, and the payload megabytes for each second of processor time.
fn rates(sample: &Sample) -> Result<Figures, String> {
    if sample.missing > 0 {
        return Err(format!("{} missing", sample.missing));
    }
    Ok([sample.rate_per_s, sample.bytes / 1e6 / sample.cpu_seconds])
}

const HEADINGS: &str = "\
now beside before; more is better: messages/s or MB/s and MB per CPU second; round trips/s at p50 \
and p99.9; packets per CPU second
what                                 peer              first         second  now / peer (extremes)
";
