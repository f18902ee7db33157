//! `towline recv DIR --leftovers`: lists and removes what unfinished transfers have left.

use std::path::Path;

use towline::{discard_leftover, leftovers};

use crate::{
    failure::{Failure, Verdict},
    report::{LeftoversReport, Output},
};

pub(super) fn run(
    directory: &Path,
    is_cleaning: bool,
    output: &Output,
) -> Result<Verdict, Failure> {
    let is_cleaning = is_cleaning && !output.is_dry_run();
    let mut report = LeftoversReport::new(directory, &leftovers(directory)?);
    if is_cleaning {
        for row in &mut report.leftovers {
            match discard_leftover(directory, row.id) {
                Ok(()) => row.is_removed = true,
                Err(error) => output.warn(&error.to_string()),
            }
        }
    }
    output.finish(&report)?;
    let is_done = !is_cleaning || report.leftovers.iter().all(|row| row.is_removed);
    Ok(Verdict::of(is_done))
}
