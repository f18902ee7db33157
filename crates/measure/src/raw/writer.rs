//! Writes a result while it is measured.

use std::io::Write;

use serde::Serialize;

use super::{
    BLOCK_BYTES, Base, DISTURBANCE, End, MAGIC, MANIFEST, Manifest, RUN, RUN_END, SAMPLES, SPLITS,
    Setup, Written, leb128,
};
use crate::{Disturbance, Sample, Split};

/// A writer of one result. It gathers samples into blocks, and writes the gathered samples before a
/// run begins or ends. So a file that ends early is right as far as it goes.
#[derive(Debug)]
pub struct Writer<W: Write> {
    output: W,
    base: Base,
    samples: Vec<u8>,
    splits: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Begins the file.
    ///
    /// # Errors
    /// When `output` fails, here and in every function.
    pub fn new(mut output: W, manifest: &Manifest) -> std::io::Result<Self> {
        output.write_all(MAGIC)?;
        let mut writer = Self {
            output,
            base: Base::new(None),
            samples: Vec::with_capacity(BLOCK_BYTES + 64),
            splits: Vec::new(),
        };
        writer.json(MANIFEST, manifest)?;
        writer.output.flush()?;
        Ok(writer)
    }

    /// Begins a run.
    ///
    /// # Errors
    /// As [`Writer::new`].
    pub fn begin(&mut self, setup: &Setup) -> Written {
        self.gathered()?;
        self.base = Base::new(setup.schedule());
        self.json(RUN, setup)
    }

    /// Adds a message. Messages must come in the order of their numbers.
    ///
    /// # Errors
    /// As [`Writer::new`].
    pub fn sample(&mut self, sample: &Sample) -> Written {
        for number in self.base.encode(sample) {
            leb128::put(&mut self.samples, number);
        }
        if self.samples.len() >= BLOCK_BYTES {
            self.gathered()?;
        }
        Ok(())
    }

    /// Adds the split of a message's time. Messages must come in the order of their numbers.
    ///
    /// # Errors
    /// As [`Writer::new`].
    pub fn split(&mut self, split: &Split) -> Written {
        let gap = split.sequence.saturating_sub(self.base.split_sequence);
        self.base.split_sequence = split.sequence;
        for number in [
            gap,
            split.queue_ns,
            split.device_ns,
            split.link_ns,
            split.wake_ns,
        ] {
            leb128::put(&mut self.splits, number);
        }
        if self.splits.len() >= BLOCK_BYTES {
            self.gathered()?;
        }
        Ok(())
    }

    /// Adds a disturbance.
    ///
    /// # Errors
    /// As [`Writer::new`].
    pub fn disturbance(&mut self, what: &Disturbance) -> Written {
        self.json(DISTURBANCE, what)
    }

    /// Ends the run, and writes and flushes everything.
    ///
    /// # Errors
    /// As [`Writer::new`].
    pub fn end(&mut self, end: &End) -> Written {
        self.gathered()?;
        self.json(RUN_END, end)?;
        self.output.flush()
    }

    /// Writes the gathered samples, and flushes the output.
    ///
    /// # Errors
    /// As [`Writer::new`].
    pub fn flush(&mut self) -> Written {
        self.gathered()?;
        self.output.flush()
    }

    fn gathered(&mut self) -> Written {
        for (kind, bytes) in [(SAMPLES, &mut self.samples), (SPLITS, &mut self.splits)] {
            if !bytes.is_empty() {
                block(&mut self.output, kind, bytes)?;
                bytes.clear();
            }
        }
        Ok(())
    }

    fn json(&mut self, kind: u8, value: &impl Serialize) -> Written {
        let text = serde_json::to_vec(value)?;
        block(&mut self.output, kind, &text)
    }
}

fn block(output: &mut impl Write, kind: u8, payload: &[u8]) -> Written {
    let len = u32::try_from(payload.len()).expect("blocks are cut at a fixed size");
    output.write_all(&[kind])?;
    output.write_all(&len.to_le_bytes())?;
    output.write_all(payload)
}
