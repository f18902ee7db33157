//! `towline demo`.

use std::io::IsTerminal as _;

use gauge::demo::{Demo, Place, Tree, isolate};

use crate::{
    failure::{Failure, Verdict},
    interrupt::Interrupt,
    plan::DemoPlan,
    report::{DemoDocument, InterruptedDemo, Output, bytes, count},
};

pub(super) fn run(plan: &DemoPlan, output: &Output) -> Result<Verdict, Failure> {
    if output.shows_only(plan)? {
        return Ok(Verdict::Done);
    }
    let interrupt = Interrupt::install()?;
    // `isolate` comes first, because it may start the program again, inside a user namespace.
    let refusal = isolate().err();
    let tree = match &plan.path {
        Some(path) => Tree::of(path)?,
        None => Tree::find(plan.bytes_min, plan.files_min)?,
    };
    let place = Place::new(plan.receivers + 1, refusal);
    output.note(&place.describe());
    output.note(&format!(
        "{}, {} below {}",
        count(tree.files, "file"),
        bytes(tree.bytes),
        count(tree.paths.len() as u64, "path")
    ));
    let program = std::env::current_exe().map_err(|error| {
        Failure::system("finding this program's file by /proc/self/exe", &error)
    })?;
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
    let mut say = |text: &str| output.note(text);
    let report = match demo.run(&place, &mut say, &|| interrupt.is_requested()) {
        Err(gauge::Error::Interrupted) => {
            output.finish(&InterruptedDemo::new(demo.keep.is_some()))?;
            return Ok(Verdict::Interrupted);
        }
        report => report?,
    };
    let document = DemoDocument::new(&demo, report);
    output.finish(&document)?;
    Ok(Verdict::of(document.is_proven))
}
