//! `null:`: the session counts packets, and the sink forgets them.

use super::Sink;
use crate::{Account, CaptureError, Interface, Packet};

/// A sink that keeps nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullSink;

impl Sink for NullSink {
    fn interface(&mut self, _: &Interface) -> Result<(), CaptureError> {
        Ok(())
    }

    fn write(&mut self, _: &Packet<'_>) -> Result<(), CaptureError> {
        Ok(())
    }

    fn note(&mut self, _: &Account, _: u64) -> Result<(), CaptureError> {
        Ok(())
    }

    fn flush(&mut self) -> Result<(), CaptureError> {
        Ok(())
    }
}
