//! Standard output, which a thread of its own writes: a slow reader of the pipe must not delay NAKs
//! and timers. The queue is bounded, and the session's thread can see when the queue is full.

use std::{
    io,
    sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    thread::{self, JoinHandle},
};

use crate::failure::Failure;

/// The queue of buffers to the thread that writes standard output.
#[derive(Debug)]
pub(super) struct Writer {
    queue: SyncSender<Vec<u8>>,
    emptied: Receiver<Vec<u8>>,
    /// The thread that writes; `None` once its end has been reported.
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Writer {
    /// Starts the thread that writes to standard output.
    pub(super) fn start() -> Result<Self, Failure> {
        Self::start_to(io::stdout)
    }

    /// Starts a thread that writes to the output that `open` makes. The thread calls `open`.
    fn start_to<W: io::Write>(open: impl FnOnce() -> W + Send + 'static) -> Result<Self, Failure> {
        let (queue, filled) = sync_channel(BUFFERS_MAX);
        let (back, emptied) = sync_channel(BUFFERS_MAX);
        let thread = thread::Builder::new()
            .name("output".into())
            .spawn(move || write(open(), &filled, &back))
            .map_err(|error| Failure::thread("for the output", &error))?;
        Ok(Self {
            queue,
            emptied,
            thread: Some(thread),
        })
    }

    /// Passes `buffer` to the writing thread and puts an empty one in its place. While the queue is
    /// full, `buffer` stays as it is. Fails when the thread has ended: the reader of the output has
    /// closed the pipe, or the output cannot be written, as on a full disk.
    pub(super) fn pass(&mut self, buffer: &mut Vec<u8>) -> Result<(), Failure> {
        if buffer.is_empty() {
            return Ok(());
        }
        match self.queue.try_send(std::mem::take(buffer)) {
            Ok(()) => {
                if let Ok(empty) = self.emptied.try_recv() {
                    *buffer = empty;
                }
                Ok(())
            }
            Err(TrySendError::Full(refused)) => {
                *buffer = refused;
                Ok(())
            }
            Err(TrySendError::Disconnected(_)) => {
                join(self.thread.take())?;
                Err(Failure::PipeClosed)
            }
        }
    }

    /// Writes the last buffer, and waits until everything is written.
    pub(super) fn finish(self, last: Vec<u8>) -> Result<(), Failure> {
        let Self { queue, thread, .. } = self;
        // When the writing thread has ended, joining it below says why.
        drop(queue.send(last));
        drop(queue);
        join(thread)
    }
}

/// Waits for the end of the writing thread, and returns why it ended.
fn join(thread: Option<JoinHandle<io::Result<()>>>) -> Result<(), Failure> {
    match thread.map(JoinHandle::join) {
        None => Ok(()),
        Some(Ok(result)) => result.map_err(Failure::from),
        Some(Err(_)) => Err(sys::panicked("that writes it").into()),
    }
}

fn write(
    mut output: impl io::Write,
    filled: &Receiver<Vec<u8>>,
    back: &SyncSender<Vec<u8>>,
) -> io::Result<()> {
    for mut buffer in filled {
        output.write_all(&buffer)?;
        output.flush()?;
        buffer.clear();
        // The buffer is freed when enough others wait to be used again.
        drop(back.try_send(buffer));
    }
    Ok(())
}

const BUFFERS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    /// An output on a disk without room.
    struct Full;

    impl io::Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_output_that_cannot_be_written_is_a_failure_and_no_closed_pipe() {
        let mut writer = Writer::start_to(|| Full).unwrap();
        let failure = loop {
            if let Err(failure) = writer.pass(&mut vec![1]) {
                break failure;
            }
        };
        assert!(
            failure.to_string().contains("writing the output"),
            "{failure}"
        );
    }

    #[test]
    fn the_last_buffer_that_cannot_be_written_is_a_failure() {
        let writer = Writer::start_to(|| Full).unwrap();
        assert!(matches!(
            writer.finish(vec![1]),
            Err(Failure::Environment(_))
        ));
    }
}
