//! Where packets come from: one trait, one file a kind.

use std::{fmt, ops::ControlFlow, os::fd::BorrowedFd};

use base::Instant;

use crate::{CaptureError, Interface, Losses, Packet, SourceAddress};

mod file;
pub use file::FileSource;

mod generator;
pub use generator::GeneratorSource;

mod int;
pub use int::SocketSource;

mod live;
pub use live::{LiveOptions, RETIRE_MAX};

mod memory;
pub use memory::RING_BYTES_MAX;

mod merged;
pub use merged::MergedSource;

mod read_buffer;

mod repeated;
pub use repeated::{Reopen, RepeatedSource};

mod ring;
pub use ring::RingSource;

mod ring2;
pub use ring2::SlotSource;

mod xdp;
pub use xdp::XdpSource;

/// Gives packets, borrowed from its own memory, without waiting.
pub trait Source: fmt::Debug + Send {
    /// The interfaces that packets name by their position here. May grow as a file is read.
    fn interfaces(&self) -> &[Interface];

    /// Gives the waiting packets to `visit`, in order, until there are none or it has given a fair
    /// share. When `visit` breaks off, it gives only those that it cannot keep for the next call.
    ///
    /// # Errors
    /// When the source is beyond use.
    fn read(&mut self, visit: &mut Visit<'_>) -> Result<Progress, CaptureError>;

    /// The losses so far. Ask a live source at least once a second.
    ///
    /// # Errors
    /// When the kernel does not answer.
    fn losses(&mut self) -> Result<Losses, CaptureError>;

    /// The interfaces' and drivers' counters of lost packets, by name, without those that are zero.
    fn named_losses(&mut self) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// Takes no new packet from here on; those taken already can still be read. True when there may
    /// be such.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn stop(&mut self) -> Result<bool, CaptureError> {
        Ok(false)
    }

    /// A descriptor that is readable when there may be packets; `None` for a source that has
    /// packets at any time until it ends.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// When the next packet is due, for a source that keeps a pace.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// Something that its user should know: a smaller ring than asked for, an interface that went
    /// down. Each is given once.
    fn take_remarks(&mut self) -> Vec<String> {
        Vec::new()
    }
}

/// Takes one packet and says whether to go on.
pub type Visit<'v> = dyn FnMut(&Packet<'_>) -> ControlFlow<()> + 'v;

/// What a reading gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Packets; there may be more.
    Some,
    /// Nothing at the moment.
    Idle,
    /// Nothing any more.
    End,
}

/// Opens a source.
///
/// # Errors
/// What is wrong with the address or refused by the system.
pub fn open(
    address: &SourceAddress,
    options: &LiveOptions,
) -> Result<Box<dyn Source>, CaptureError> {
    Ok(match address {
        SourceAddress::Ring(name) => Box::new(RingSource::open(name, options)?),
        SourceAddress::Ring2(name) => Box::new(SlotSource::open(name, options)?),
        SourceAddress::Int(name) => Box::new(SocketSource::open(name, options)?),
        SourceAddress::Xdp(name) => Box::new(XdpSource::open(name, options)?),
        SourceAddress::Generated(spec) => Box::new(GeneratorSource::new(spec.clone())),
        SourceAddress::File(path) => Box::new(FileSource::open(path)?),
    })
}
