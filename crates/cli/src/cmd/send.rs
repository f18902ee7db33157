//! `towline send`.

use crate::{
    failure::{Failure, Verdict},
    plan::SendPlan,
    report::Output,
};

pub(super) fn run(plan: &SendPlan, output: &Output) -> Result<Verdict, Failure> {
    if output.shows_only("send", plan)? {
        return Ok(Verdict::Done);
    }
    Err(Failure::Environment(
        "this build cannot transfer files".into(),
    ))
}
