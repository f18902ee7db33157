//! Standard output, which a thread of its own writes: a slow reader of the pipe must not delay NAKs
//! and timers. The queue is bounded, and the session's thread sees when it is full.

use std::{
    io::{self, Write as _},
    sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    thread::{self, JoinHandle},
};

use crate::failure::Failure;

/// Buffers on their way to standard output.
#[derive(Debug)]
pub(super) struct Writer {
    queue: SyncSender<Vec<u8>>,
    emptied: Receiver<Vec<u8>>,
    thread: JoinHandle<io::Result<()>>,
}

impl Writer {
    pub(super) fn start() -> Result<Self, Failure> {
        let (queue, filled) = sync_channel(BUFFERS_MAX);
        let (back, emptied) = sync_channel(BUFFERS_MAX);
        let thread = thread::Builder::new()
            .name("output".into())
            .spawn(move || write(&filled, &back))
            .map_err(|error| Failure::thread("for the output", &error))?;
        Ok(Self {
            queue,
            emptied,
            thread,
        })
    }

    /// Hands `buffer` over and leaves an empty one in its place; leaves it as it is while the queue
    /// is full. Returns false when nobody reads the output any more.
    pub(super) fn pass(&self, buffer: &mut Vec<u8>) -> bool {
        if buffer.is_empty() {
            return true;
        }
        match self.queue.try_send(std::mem::take(buffer)) {
            Ok(()) => {
                if let Ok(empty) = self.emptied.try_recv() {
                    *buffer = empty;
                }
                true
            }
            Err(TrySendError::Full(refused)) => {
                *buffer = refused;
                true
            }
            Err(TrySendError::Disconnected(_)) => false,
        }
    }

    /// Writes the last buffer, and waits until everything is written.
    pub(super) fn finish(self, last: Vec<u8>) -> Result<(), Failure> {
        // When the writing thread has ended, joining it below says why.
        drop(self.queue.send(last));
        drop(self.queue);
        match self.thread.join() {
            Ok(result) => result.map_err(Failure::from),
            Err(_) => Err(sys::panicked("that writes it").into()),
        }
    }
}

fn write(filled: &Receiver<Vec<u8>>, back: &SyncSender<Vec<u8>>) -> io::Result<()> {
    let mut output = io::stdout().lock();
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
