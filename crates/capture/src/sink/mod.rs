//! Where packets go: one trait, one file a kind.

use std::fmt;

use crate::{Account, CaptureError, Interface, Packet, SinkAddress};

mod int;
pub use int::SocketSink;

mod null;
pub use null::NullSink;

mod output;
pub use output::Output;

mod pcap;
pub use pcap::PcapSink;

mod pcapng;
pub use pcapng::PcapngSink;

mod rotating;
pub use rotating::{RotatingSink, Rotation};

mod ring;
pub use ring::{RingSink, SendOptions};

/// Takes packets; what it has taken it keeps, or says how many it could not.
pub trait Sink: fmt::Debug + Send {
    /// Describes the next interface, before its first packet. They are numbered from 0.
    ///
    /// # Errors
    /// When the format cannot hold it beside the others.
    fn interface(&mut self, interface: &Interface) -> Result<(), CaptureError>;

    /// Takes a packet.
    ///
    /// # Errors
    /// When it cannot be kept; those that were taken and are lost are [`Sink::unwritten`].
    fn write(&mut self, packet: &Packet<'_>) -> Result<(), CaptureError>;

    /// Notes how the account stands, at `stamp_ns` of the wall clock: every second and at the end.
    ///
    /// # Errors
    /// When it cannot be kept.
    fn note(&mut self, account: &Account, stamp_ns: u64) -> Result<(), CaptureError>;

    /// Lets go of all that is kept back.
    ///
    /// # Errors
    /// When not all of it could be kept.
    fn flush(&mut self) -> Result<(), CaptureError>;

    /// Bytes of the file so far, for a sink that is one.
    fn bytes(&self) -> u64 {
        0
    }

    /// Packets that were taken and could not be kept.
    fn unwritten(&self) -> u64 {
        0
    }

    /// Packets that were handed on, and dropped by the interface on their way out.
    fn dropped_later(&mut self) -> u64 {
        0
    }
}

/// Opens a sink; `send` is for those that are interfaces.
///
/// # Errors
/// When a file cannot be made.
pub fn open(address: &SinkAddress, send: &SendOptions) -> Result<Box<dyn Sink>, CaptureError> {
    Ok(match address {
        SinkAddress::Pcap(path) => Box::new(PcapSink::new(Output::create(path)?)),
        SinkAddress::Pcapng(path) => Box::new(PcapngSink::new(Output::create(path)?)),
        SinkAddress::Ring(name) => Box::new(RingSink::open(name, send)?),
        SinkAddress::Int(name) => Box::new(SocketSink::open(name, send)?),
        SinkAddress::Null => Box::new(NullSink),
    })
}
