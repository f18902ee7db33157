//! `towline demo`.

use crate::{
    failure::{Failure, Verdict},
    plan::DemoPlan,
    report::Output,
};

pub(super) fn run(plan: &DemoPlan, output: &Output) -> Result<Verdict, Failure> {
    if output.shows_only("demo", plan)? {
        return Ok(Verdict::Done);
    }
    Err(Failure::Environment(
        "this build cannot transfer files".into(),
    ))
}
