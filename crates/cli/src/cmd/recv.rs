//! `towline recv`.

use crate::{
    failure::{Failure, Verdict},
    plan::RecvPlan,
    report::Output,
};

pub(super) fn run(plan: &RecvPlan, output: &Output) -> Result<Verdict, Failure> {
    if output.shows_only("recv", plan)? {
        return Ok(Verdict::Done);
    }
    Err(Failure::Environment(
        "this build cannot transfer files".into(),
    ))
}
