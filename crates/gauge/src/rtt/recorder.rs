//! The thread that writes the result, so that the measuring thread never waits for a disk.

use std::{
    cell::Cell,
    io::Write,
    sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    thread::JoinHandle,
};

use measure::{
    Disturbance, Sample, Split,
    raw::{End, Manifest, Setup, Writer},
};

use net::SystemError;

use super::Watch;
use crate::{Error, error::no_thread};

/// A recorder that passes the samples of a measurement to a thread, which writes them.
///
/// Samples are passed in blocks whose memory is reused, so the measuring thread allocates nothing
/// during a run. At most `QUEUE_BLOCKS` blocks wait. When the disk is slower, the measurement has
/// to wait, and the result shows this as a pause.
///
/// A block is passed on when it is full or holds the samples of 0.25 s, and is written at once. So
/// a killed process loses at most 0.25 s.
#[derive(Debug)]
pub struct Recorder {
    blocks: SyncSender<Block>,
    empty: Receiver<Vec<Sample>>,
    samples: Vec<Sample>,
    /// The writing thread has ended early; nothing more is written.
    has_failed: Cell<bool>,
    thread: JoinHandle<std::io::Result<()>>,
}

#[derive(Debug)]
enum Block {
    Begin(Setup),
    Samples(Vec<Sample>),
    Split(Split),
    Disturbance(Disturbance),
    End(End),
}

impl Recorder {
    /// Begins the result, and starts the thread that writes it and makes the figures for `watch`.
    ///
    /// # Errors
    /// When `output` or the system refuses.
    pub fn start(
        output: impl Write + Send + 'static,
        manifest: &Manifest,
        watch: Option<Watch>,
    ) -> Result<Self, Error> {
        let writer = Writer::new(output, manifest).map_err(unwritten)?;
        let (blocks, incoming) = sync_channel(QUEUE_BLOCKS);
        let (outgoing, empty) = channel();
        for _ in 0..4 {
            // The receiving end still exists, so this cannot fail.
            let _sent = outgoing.send(Vec::with_capacity(BLOCK_SAMPLES));
        }
        let thread = std::thread::Builder::new()
            .name("rtt-recorder".to_owned())
            .spawn(move || write(writer, &incoming, &outgoing, watch))
            .map_err(|error| no_thread("that writes the result", &error))?;
        Ok(Self {
            blocks,
            empty,
            samples: Vec::with_capacity(BLOCK_SAMPLES),
            has_failed: Cell::new(false),
            thread,
        })
    }

    pub(super) fn begin(&mut self, setup: &Setup) {
        self.hand_over(Block::Begin(setup.clone()));
    }

    /// Takes the fate of one message.
    pub(super) fn sample(&mut self, sample: Sample) {
        self.samples.push(sample);
        let since_ns = sample.sent_ns.saturating_sub(self.samples[0].sent_ns);
        if self.samples.len() == BLOCK_SAMPLES || since_ns >= BLOCK_TIME_NS {
            self.flush();
        }
    }

    pub(super) fn split(&mut self, split: Split) {
        self.hand_over(Block::Split(split));
    }

    pub(super) fn disturbance(&mut self, what: Disturbance) {
        self.hand_over(Block::Disturbance(what));
    }

    /// Returns true when the result cannot be written any more, for example on a full disk. What
    /// was written before that is whole.
    pub(super) const fn has_failed(&self) -> bool {
        self.has_failed.get()
    }

    pub(super) fn end(&mut self, end: End) {
        self.flush();
        self.hand_over(Block::End(end));
    }

    /// Waits until everything is written.
    ///
    /// # Errors
    /// When a write failed; everything before the first such write is whole.
    pub fn finish(mut self) -> Result<(), Error> {
        self.flush();
        drop(self.blocks);
        match self.thread.join() {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(unwritten(error).into()),
            Err(_) => Err(unwritten(sys::panicked("that writes it")).into()),
        }
    }

    fn flush(&mut self) {
        if self.samples.is_empty() {
            return;
        }
        let empty = self.empty.try_recv();
        let empty = empty.unwrap_or_else(|_| Vec::with_capacity(BLOCK_SAMPLES));
        let full = std::mem::replace(&mut self.samples, empty);
        self.hand_over(Block::Samples(full));
    }

    fn hand_over(&self, block: Block) {
        // The send fails when the thread has ended because it could not write; `finish` says so.
        if self.blocks.send(block).is_err() {
            self.has_failed.set(true);
        }
    }
}

/// Makes the error of an output that takes no more.
fn unwritten(error: std::io::Error) -> SystemError {
    SystemError::system("write", "the result", &error)
}

fn write(
    mut writer: Writer<impl Write>,
    blocks: &Receiver<Block>,
    empty: &Sender<Vec<Sample>>,
    mut watch: Option<Watch>,
) -> std::io::Result<()> {
    for block in blocks {
        match block {
            Block::Begin(setup) => {
                writer.begin(&setup)?;
                if let Some(watch) = &mut watch {
                    watch.begin(&setup.label);
                }
            }
            Block::Samples(mut samples) => {
                for sample in &samples {
                    writer.sample(sample)?;
                }
                writer.flush()?;
                if let Some(watch) = &mut watch {
                    watch.take(&samples);
                }
                samples.clear();
                // The measuring thread may have ended already.
                let _gone = empty.send(samples);
            }
            Block::Split(split) => writer.split(&split)?,
            Block::Disturbance(what) => writer.disturbance(&what)?,
            Block::End(end) => {
                writer.end(&end)?;
                if let Some(watch) = &mut watch {
                    watch.end(end.lasted_ns);
                }
            }
        }
    }
    writer.flush()
}

const QUEUE_BLOCKS: usize = 256;
const BLOCK_SAMPLES: usize = 4_096;
/// The time in nanoseconds after which a block is passed on: a killed run loses no more.
const BLOCK_TIME_NS: u64 = 250_000_000;
