//! `towline stat`.

use towline::registry;

use crate::{
    args::StatArgs,
    failure::{Failure, Verdict},
    report::{Output, StatReport},
};

pub(super) fn run(args: &StatArgs, output: &Output) -> Result<Verdict, Failure> {
    let mut process =
        registry::read(args.pid).map_err(|error| Failure::Environment(error.to_string()))?;
    if let Some(name) = &args.name {
        for session in &mut process.sessions {
            session.counters.retain(|counter| counter.is_called(name));
        }
        process
            .sessions
            .retain(|session| !session.counters.is_empty());
        if process.sessions.is_empty() {
            let text = format!("process {} has no counter called {name}", args.pid);
            return Err(Failure::Usage(text));
        }
    }
    output.finish(&StatReport {
        process: process.into(),
        is_one_counter: args.name.is_some(),
    })?;
    Ok(Verdict::Done)
}
