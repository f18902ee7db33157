//! `towline demo`.

use std::io::IsTerminal as _;

use towline::demo::{Demo, Place, Tree, isolate};

use crate::{
    failure::{Failure, Verdict},
    plan::DemoPlan,
    report::{DemoDocument, Output},
};

pub(super) fn run(plan: &DemoPlan, output: &Output) -> Result<Verdict, Failure> {
    if output.shows_only("demo", plan)? {
        return Ok(Verdict::Done);
    }
    // First of all: it may start this program again, inside a user namespace.
    let refusal = isolate().err();
    let tree = match &plan.path {
        Some(path) => Tree::of(path)?,
        None => Tree::find(plan.bytes_min, plan.files_min)?,
    };
    let place = Place::new(plan.receivers + 1, refusal);
    output.note(&place.describe());
    output.note(&format!(
        "{} files, {} bytes in {} directories",
        tree.files,
        tree.bytes,
        tree.paths.len()
    ));
    let program = std::env::current_exe()
        .map_err(|error| Failure::environment("finding this program", &error))?;
    let demo = Demo {
        program,
        tree,
        receivers: plan.receivers,
        loss_percent: plan.loss_percent,
        seed: plan.seed,
        rate: plan.rate.clone(),
        keep: plan.keep.clone(),
        shows_progress: std::io::stderr().is_terminal(),
    };
    let report = demo.run(&place, &mut |text| output.note(text))?;
    let document = DemoDocument::new(&demo, report);
    output.finish(&document)?;
    Ok(Verdict::of(document.is_proven))
}
