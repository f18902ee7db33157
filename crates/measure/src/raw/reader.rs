//! Reads a result file: complete or cut, ours or hostile.

use std::io::{self, Read};

use serde::de::DeserializeOwned;

use super::{
    BLOCK_BYTES_MAX, Base, DISTURBANCE, File, FileCut, MAGIC, MANIFEST, Manifest, RUN, RUN_END,
    Run, SAMPLES, SPLITS, leb128,
};
use crate::Split;

/// Why a file cannot be read as a result.
#[derive(Debug, thiserror::Error)]
pub enum RawError {
    /// The system cannot read the file.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The file is not a result.
    #[error("this is not a result file of `towline rtt run`; name a file that its --out wrote")]
    Foreign,
    /// The content of the file contradicts itself.
    #[error("damaged at byte {at}: {what}; measure again, or copy the file anew")]
    Damaged {
        /// The byte at which the block begins.
        at: u64,
        /// What is wrong with the block.
        what: &'static str,
    },
}

/// Reads a whole result.
///
/// # Errors
/// [`RawError`]. A file that ends too early is no error: see [`File::cut`].
///
/// **Cost**: about 40 bytes of memory for each message in the file.
pub fn read(mut input: impl Read) -> Result<File, RawError> {
    let mut magic = [0; MAGIC.len()];
    let got = fill_some(&mut input, &mut magic)?;
    if magic[..got] != MAGIC[..got] {
        return Err(RawError::Foreign);
    }
    let mut reader = Reader {
        file: File {
            manifest: Manifest::default(),
            runs: Vec::new(),
            cut: (got < MAGIC.len()).then_some(FileCut {
                left_out: got as u64,
                missing: None,
            }),
        },
        base: Base::new(None),
        at: MAGIC.len() as u64,
    };
    let mut payload = Vec::new();
    loop {
        let mut head = [0; 5];
        let got = fill_some(&mut input, &mut head)?;
        if got < head.len() {
            if got > 0 {
                reader.file.cut = Some(FileCut {
                    left_out: got as u64,
                    missing: None,
                });
            }
            break;
        }
        let len = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if len > BLOCK_BYTES_MAX {
            return Err(reader.damaged("a block is longer than a block may be"));
        }
        payload.resize(len, 0);
        let got = fill_some(&mut input, &mut payload)?;
        if got < len {
            reader.file.cut = Some(FileCut {
                left_out: (head.len() + got) as u64,
                missing: Some((len - got) as u64),
            });
            break;
        }
        reader.block(head[0], &payload)?;
        reader.at += (head.len() + len) as u64;
    }
    // A complete result has at least one run, and each run has an end.
    let runs = &reader.file.runs;
    if runs.is_empty() || runs.iter().any(|run| run.end.is_none()) {
        reader.file.cut.get_or_insert_default();
    }
    Ok(reader.file)
}

struct Reader {
    file: File,
    base: Base,
    /// The byte at which the current block begins.
    at: u64,
}

impl Reader {
    fn block(&mut self, kind: u8, payload: &[u8]) -> Result<(), RawError> {
        match kind {
            MANIFEST => self.file.manifest = self.json(payload)?,
            RUN => {
                let setup: super::Setup = self.json(payload)?;
                if setup.per_second.is_some() && setup.schedule().is_none() {
                    return Err(
                        self.damaged("the rate of a run is outside 1 to 10,000,000 messages/s")
                    );
                }
                self.base = Base::new(setup.schedule());
                self.file.runs.push(Run {
                    setup,
                    samples: Vec::new(),
                    splits: Vec::new(),
                    disturbances: Vec::new(),
                    end: None,
                });
            }
            SAMPLES => self.samples(payload)?,
            SPLITS => self.splits(payload)?,
            DISTURBANCE => {
                let what = self.json(payload)?;
                self.run()?.disturbances.push(what);
            }
            RUN_END => {
                let end = self.json(payload)?;
                self.run()?.end = Some(end);
            }
            _ => {}
        }
        Ok(())
    }

    fn samples(&mut self, mut payload: &[u8]) -> Result<(), RawError> {
        let mut base = self.base;
        while !payload.is_empty() {
            let numbers = self.numbers(&mut payload)?;
            let sample = base.decode(numbers);
            self.run()?.samples.push(sample);
        }
        self.base = base;
        Ok(())
    }

    fn splits(&mut self, mut payload: &[u8]) -> Result<(), RawError> {
        while !payload.is_empty() {
            let [gap, queue_ns, device_ns, link_ns, wake_ns] = self.numbers(&mut payload)?;
            self.base.split_sequence = self.base.split_sequence.saturating_add(gap);
            let sequence = self.base.split_sequence;
            self.run()?.splits.push(Split {
                sequence,
                queue_ns,
                device_ns,
                link_ns,
                wake_ns,
            });
        }
        Ok(())
    }

    fn numbers<const N: usize>(&self, payload: &mut &[u8]) -> Result<[u64; N], RawError> {
        let mut numbers = [0; N];
        for number in &mut numbers {
            let taken =
                leb128::take(payload).ok_or_else(|| self.damaged("a number is cut short"))?;
            // No time of a run reaches 146 years; below that, sums of two times cannot overflow.
            if taken > u64::MAX >> 2 {
                return Err(self.damaged("a number is too large for a time"));
            }
            *number = taken;
        }
        Ok(numbers)
    }

    fn run(&mut self) -> Result<&mut Run, RawError> {
        let at = self.at;
        let what = "results stand before the run that they belong to";
        let last = self.file.runs.last_mut();
        last.ok_or(RawError::Damaged { at, what })
    }

    fn json<T: DeserializeOwned>(&self, payload: &[u8]) -> Result<T, RawError> {
        serde_json::from_slice(payload).map_err(|_| {
            self.damaged("a description is not JSON with the fields that it must have")
        })
    }

    const fn damaged(&self, what: &'static str) -> RawError {
        RawError::Damaged { at: self.at, what }
    }
}

/// Fills as much of `bytes` as there is input, and returns how much.
fn fill_some(input: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < bytes.len() {
        match input.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
