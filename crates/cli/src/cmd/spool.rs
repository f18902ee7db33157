//! Standard input as a file of known length.

use std::{
    io,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
};

use towline::Spool;

use super::TICK;
use crate::{
    failure::Failure,
    interrupt::Interrupt,
    report::{self, Output},
};

/// Reads standard input to its end into a file without a name. `None` when a signal came first.
pub(super) fn standard_input(
    interrupt: &Interrupt,
    output: &Output,
) -> Result<Option<Spool>, Failure> {
    let mut spool = Spool::new()?;
    let (sender, receiver) = mpsc::channel();
    // A read of standard input cannot be cut short: the process ends without waiting for it.
    let read = move || {
        let filled = spool.fill(&mut io::stdin().lock());
        // Nobody listens when a signal came meanwhile.
        drop(sender.send(filled.map(|bytes| (bytes, spool))));
    };
    let started = thread::Builder::new().name("spool".into()).spawn(read);
    started.map_err(|error| Failure::environment("starting a thread", &error))?;
    loop {
        match receiver.recv_timeout(TICK) {
            Ok(Ok((bytes, spool))) => {
                let bytes = report::bytes(bytes);
                output.detail(&format!("standard input has {bytes}"));
                return Ok(Some(spool));
            }
            Ok(Err(error)) => {
                let doing = "spooling standard input (TMPDIR names the directory)";
                return Err(Failure::environment(doing, &error));
            }
            Err(RecvTimeoutError::Timeout) if interrupt.is_requested() => return Ok(None),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                let cause = "the thread that reads it has died";
                return Err(Failure::environment("spooling standard input", &cause));
            }
        }
    }
}
