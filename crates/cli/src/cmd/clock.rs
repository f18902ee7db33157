//! `towline clock`.

use towline::clock::clock;

use crate::{
    args::ClockArgs,
    failure::{Failure, Verdict},
    report::{ClockDocument, Output},
};

pub(super) fn run(_args: &ClockArgs, output: &Output) -> Result<Verdict, Failure> {
    if output.shows_only("clock", &())? {
        return Ok(Verdict::Done);
    }
    let report = clock()?;
    let is_fine = report.has_one_way;
    output.finish(&ClockDocument(report))?;
    Ok(Verdict::of(is_fine))
}
