//! Messages from standard input. A thread of its own reads them, so that the session's loop goes on
//! while nobody types. When the session does not take more, a bounded queue makes the reading
//! thread wait.

use std::{
    io::{self, BufReader},
    ops::Range,
    sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel},
    thread,
};

use towline::Waker;

use crate::{
    failure::Failure,
    framing::{Found, Framing, Limit},
};

/// Messages on their way from the reader.
#[derive(Debug)]
pub(super) struct Input {
    chunks: Receiver<io::Result<Chunk>>,
}

/// One or more messages, back to back.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    bytes: Vec<u8>,
    ranges: Vec<Range<usize>>,
}

/// What the reading thread has at the moment.
#[derive(Debug)]
pub(super) enum Next {
    /// These messages.
    Chunk(Chunk),
    /// No messages yet; the waker ends the session's wait when there are some.
    Nothing,
    /// The end of the input.
    End,
}

impl Input {
    /// Starts the reading thread, which ends the session's wait by `waker` whenever it has messages
    /// and at the end of the input.
    pub(super) fn start(framing: Framing, limit: Limit, waker: Waker) -> Result<Self, Failure> {
        let (sender, chunks) = sync_channel(CHUNKS_MAX);
        thread::Builder::new()
            .name("input".into())
            .spawn(move || {
                let input = BufReader::with_capacity(BUFFER_BYTES, io::stdin().lock());
                read(input, framing, limit, &sender, &waker);
                // Dropping the sender closes the queue, from which the session learns that the
                // input has ended. The queue must be closed when the session wakes.
                drop(sender);
                waker.wake();
            })
            .map_err(|error| Failure::thread("that reads standard input", &error))?;
        Ok(Self { chunks })
    }

    /// Returns what the reading thread has at the moment, without waiting.
    pub(super) fn next(&self) -> Result<Next, Failure> {
        match self.chunks.try_recv() {
            Ok(Ok(chunk)) => Ok(Next::Chunk(chunk)),
            Ok(Err(error)) => Err(Failure::system("reading standard input", &error)),
            Err(TryRecvError::Empty) => Ok(Next::Nothing),
            Err(TryRecvError::Disconnected) => Ok(Next::End),
        }
    }
}

impl Chunk {
    pub(super) fn messages(&self) -> impl Iterator<Item = &[u8]> {
        self.ranges.iter().map(|range| &self.bytes[range.clone()])
    }

    fn push(&mut self, message: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(message);
        self.ranges.push(start..self.bytes.len());
    }
}

/// Reads until the input ends or fails, or nobody takes chunks any more. Passes a chunk on when it
/// is full, when the next message has not arrived whole, and at the end.
fn read<R: io::Read>(
    mut input: BufReader<R>,
    framing: Framing,
    limit: Limit,
    sender: &SyncSender<io::Result<Chunk>>,
    waker: &Waker,
) {
    let mut message = Vec::new();
    let mut chunk = Chunk::default();
    loop {
        let found = framing.read(&mut input, limit, &mut message);
        let is_more = matches!(found, Ok(Found::Message));
        if is_more || matches!(found, Ok(Found::Last)) {
            chunk.push(&message);
        }
        let is_due =
            !is_more || chunk.bytes.len() >= BUFFER_BYTES || !framing.is_whole_in(input.buffer());
        // When sending fails, nobody reads the queue any more: the command has ended.
        if is_due && !chunk.ranges.is_empty() {
            if sender.send(Ok(std::mem::take(&mut chunk))).is_err() {
                return;
            }
            waker.wake();
        }
        if let Err(error) = found {
            drop(sender.send(Err(error)));
            return;
        }
        if !is_more {
            return;
        }
    }
}

const BUFFER_BYTES: usize = 64 << 10;
const CHUNKS_MAX: usize = 16;
