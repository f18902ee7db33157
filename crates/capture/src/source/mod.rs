//! Where packets come from: one trait, and a file for each kind of source.

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

/// A source of packets, which gives them without waiting. The packets borrow the source's own
/// memory.
pub trait Source: fmt::Debug + Send {
    /// The source's interfaces; a packet names its interface by the position in this list. The list
    /// may grow while a file is read.
    fn interfaces(&self) -> &[Interface];

    /// Gives the waiting packets to `visit`, in order, until there are none or a fair share was
    /// given. When `visit` breaks off, only packets that cannot wait for the next call are still
    /// given.
    ///
    /// # Errors
    /// When the source cannot be used any more.
    fn read(&mut self, visit: &mut Visit<'_>) -> Result<Progress, CaptureError>;

    /// Returns the losses so far. Ask a live source at least once a second.
    ///
    /// # Errors
    /// When the kernel does not answer.
    fn losses(&mut self) -> Result<Losses, CaptureError>;

    /// Returns the counters of lost packets of interfaces and drivers, by name, without those that
    /// are zero.
    fn named_losses(&mut self) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// Takes no new packets from now on. Packets taken before can still be read. Returns true when
    /// there may be some.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn stop(&mut self) -> Result<bool, CaptureError> {
        Ok(false)
    }

    /// Returns a descriptor that becomes readable when there may be packets. `None` for a source
    /// that needs no such wait: it always has packets until it ends, or says by [`Source::due`]
    /// when the next ones come.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Returns when the next packets are to be read, for a source that keeps a pace or lets packets
    /// gather; otherwise `None`.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// Takes the remarks for the user, such as a smaller ring than asked for, or an interface that
    /// went down. Each remark comes once.
    fn take_remarks(&mut self) -> Vec<String> {
        Vec::new()
    }
}

/// A function that takes one packet, and decides whether to go on.
pub type Visit<'v> = dyn FnMut(&Packet<'_>) -> ControlFlow<()> + 'v;

/// The result of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// There were packets, and there may be more.
    Some,
    /// There is no packet at the moment.
    Idle,
    /// There will be no more packets.
    End,
}

/// Opens a source.
///
/// # Errors
/// When the address is wrong, or when the system refuses.
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
