//! Standard input as a file of known length.

use std::{
    env,
    io::{self, Read},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
};

use towline::Spool;

use super::TICK;
use crate::{
    failure::Failure,
    interrupt::Interrupt,
    report::{self, Output},
};

/// Reads standard input to its end into a file without a name, in `place` or the system's directory
/// for temporary files, and shows how much came. `None` when a signal comes before the end.
pub(super) fn standard_input(
    place: Option<&Path>,
    interrupt: &Interrupt,
    output: &Output,
) -> Result<Option<Spool>, Failure> {
    let place = place.map_or_else(env::temp_dir, Path::to_path_buf);
    let mut spool = Spool::below(&place)?;
    let came = Arc::new(AtomicU64::new(0));
    let mut input = Counted(io::stdin(), Arc::clone(&came));
    let (sender, receiver) = mpsc::channel();
    // A read of standard input cannot be interrupted, so the process ends without waiting for it.
    let read = move || {
        let filled = spool.fill(&mut input);
        // When a signal has come meanwhile, nobody reads the channel, and the result is dropped.
        drop(sender.send(filled.map(|bytes| (bytes, spool))));
    };
    let started = thread::Builder::new().name("spool".into()).spawn(read);
    started.map_err(|error| Failure::thread("that reads standard input", &error))?;
    let progress = output.progress();
    let line = progress.lines();
    let came = || report::bytes(came.load(Ordering::Relaxed));
    let shown = report::shown(&place);
    loop {
        line.set_message(format!("standard input: {} kept in {shown}", came()));
        match receiver.recv_timeout(TICK) {
            Ok(Ok((bytes, spool))) => {
                line.finish_and_clear();
                let bytes = report::bytes(bytes);
                output.detail(&format!("standard input has {bytes}"));
                return Ok(Some(spool));
            }
            Ok(Err(error)) => {
                let doing = format!("keeping standard input in {shown} (--spool)");
                return Err(Failure::system(&doing, &error));
            }
            Err(RecvTimeoutError::Timeout) if interrupt.is_requested() => return Ok(None),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                let cause = sys::panicked("that reads it");
                return Err(Failure::system("spooling standard input", &cause));
            }
        }
    }
}

/// Standard input with a count of the bytes read.
struct Counted(io::Stdin, Arc<AtomicU64>);

impl Read for Counted {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.0.read(bytes)?;
        self.1.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}
