//! Repeats a source.

use std::fmt;

use base::Instant;

use super::{Progress, Source, Visit};
use crate::{CaptureError, Interface, Losses, Packet};

/// A function that opens a source again.
pub type Reopen = Box<dyn FnMut() -> Result<Box<dyn Source>, CaptureError> + Send>;

/// A source that repeats the packets of another one, which can be opened again. Time stamps go on:
/// each round begins one mean gap after the last packet of the round before.
pub struct RepeatedSource {
    reopen: Reopen,
    source: Box<dyn Source>,
    /// How many rounds follow this one; `None` for an endless repetition.
    left: Option<u64>,
    interfaces: Vec<Interface>,
    losses: Losses,
    shift_ns: u64,
    first_ns: Option<u64>,
    last_ns: u64,
    packets: u64,
}

impl RepeatedSource {
    /// Repeats the source that `reopen` opens, `rounds` times; `None` repeats it for ever.
    ///
    /// # Errors
    /// When the source cannot be opened at all.
    pub fn new(mut reopen: Reopen, rounds: Option<u64>) -> Result<Self, CaptureError> {
        Ok(Self {
            source: reopen()?,
            reopen,
            left: rounds.map(|rounds| rounds.saturating_sub(1)),
            interfaces: Vec::new(),
            losses: Losses::default(),
            shift_ns: 0,
            first_ns: None,
            last_ns: 0,
            packets: 0,
        })
    }

    /// Begins the next round. Returns false when there is none.
    fn begin_round(&mut self) -> Result<bool, CaptureError> {
        // A round without packets would be repeated for ever.
        let is_over = self.left == Some(0) || self.packets == 0;
        if is_over {
            return Ok(false);
        }
        self.left = self.left.map(|left| left - 1);
        let lasted_ns = self.last_ns.saturating_sub(self.first_ns.unwrap_or(0));
        let gap_ns = lasted_ns / self.packets.max(2).saturating_sub(1);
        self.shift_ns += lasted_ns + gap_ns;
        self.losses = self.losses.plus(&self.source.losses()?);
        (self.first_ns, self.packets) = (None, 0);
        self.source = (self.reopen)()?;
        Ok(true)
    }
}

impl Source for RepeatedSource {
    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn read(&mut self, visit: &mut Visit<'_>) -> Result<Progress, CaptureError> {
        let shift_ns = self.shift_ns;
        let (first, last, count) = (&mut self.first_ns, &mut self.last_ns, &mut self.packets);
        let progress = self.source.read(&mut |packet| {
            let first_ns = *first.get_or_insert(packet.stamp_ns);
            *last = packet.stamp_ns.max(first_ns);
            *count += 1;
            visit(&Packet {
                stamp_ns: packet.stamp_ns + shift_ns,
                ..*packet
            })
        })?;
        // A file has the same interfaces each time it is read.
        let known = self.interfaces.len();
        let found = self.source.interfaces();
        if found.len() > known {
            self.interfaces.extend_from_slice(&found[known..]);
        }
        if progress == Progress::End && self.begin_round()? {
            return Ok(Progress::Some);
        }
        Ok(progress)
    }

    fn losses(&mut self) -> Result<Losses, CaptureError> {
        let present = self.source.losses()?;
        Ok(self.losses.plus(&present))
    }

    fn due(&self) -> Option<Instant> {
        self.source.due()
    }

    fn take_remarks(&mut self) -> Vec<String> {
        self.source.take_remarks()
    }
}

impl fmt::Debug for RepeatedSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RepeatedSource")
            .field("source", &self.source)
            .field("left", &self.left)
            .finish_non_exhaustive()
    }
}
