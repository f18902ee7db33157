//! `towline stat`: prints the counters of one running process.

use std::{
    io::{self, Write as _},
    path::Path,
};

use towline::counters::{self, ProcessCounters};

use crate::{
    args::{StatArgs, StatFormat},
    failure::{Failure, Verdict},
    report::{Output, StatReport},
};

pub(super) fn run(args: &StatArgs, output: &Output) -> Result<Verdict, Failure> {
    let mut process = read(args.pid)?;
    if args.nonzero {
        for session in &mut process.sessions {
            session.counters.retain(|counter| counter.value != 0);
        }
    }
    if let Some(name) = &args.name {
        for session in &mut process.sessions {
            session.counters.retain(|counter| counter.is_called(name));
        }
        process
            .sessions
            .retain(|session| !session.counters.is_empty());
        if process.sessions.is_empty() {
            let pid = args.pid;
            let text = format!(
                "process {pid} has no counter called {name}; `towline stat {pid}` lists all it has"
            );
            return Err(Failure::Usage(text));
        }
    }
    if args.format == StatFormat::Prometheus {
        if output.is_json() {
            return Err(Failure::usage(
                "--format prometheus and --json: leave one out",
            ));
        }
        io::stdout().write_all(process.prometheus().as_bytes())?;
        return Ok(Verdict::Done);
    }
    output.finish(&StatReport {
        process: process.into(),
        is_one_counter: args.name.is_some(),
    })?;
    Ok(Verdict::Done)
}

/// Reads the counters of one process; `top` uses this too.
pub(super) fn read(pid: u32) -> Result<ProcessCounters, Failure> {
    counters::read(pid).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound if !Path::new(&format!("/proc/{pid}")).exists() => {
            Failure::Environment(format!(
                "there is no process {pid}; `towline top` lists those that have an open session"
            ))
        }
        io::ErrorKind::NotFound => Failure::Environment(format!(
            "process {pid} has no session of Towline that this user can see; `towline top` lists \
             the processes that have one"
        )),
        _ => Failure::system(&format!("reading the counters of process {pid}"), &error),
    })
}
