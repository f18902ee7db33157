//! Where packets go: one trait, and a file for each kind of sink.

use std::fmt;

use crate::{Account, CaptureError, Interface, Packet, SinkAddress, Unwritten};

mod int;
pub use int::SocketSink;

mod null;
pub use null::NullSink;

mod outlet;

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

/// A target of packets. It keeps them, or says how many it could not keep.
pub trait Sink: fmt::Debug + Send {
    /// Describes the next interface, before its first packet. Interfaces are numbered from 0.
    ///
    /// # Errors
    /// When the format cannot hold it together with the other interfaces.
    fn interface(&mut self, interface: &Interface) -> Result<(), CaptureError>;

    /// Adds a comment on the whole capture, before the first interface is described. A text longer
    /// than 65,535 bytes is cut.
    ///
    /// # Errors
    /// When the format has no place for it.
    fn describe(&mut self, comment: &str) -> Result<(), CaptureError> {
        Err(CaptureError::Address {
            address: comment.to_owned(),
            what: "comment that this sink can hold",
            reason: "only pcapng:FILE has a place for one".to_owned(),
        })
    }

    /// Takes a packet.
    ///
    /// # Errors
    /// When the sink cannot be used any more. [`Sink::take_unwritten`] gives the lost packets,
    /// which may include this one.
    fn write(&mut self, packet: &Packet<'_>) -> Result<(), CaptureError>;

    /// Notes the account as it is at `stamp_ns` of the wall clock. The session calls this every
    /// second and at the end.
    ///
    /// # Errors
    /// When the account cannot be kept.
    fn note(&mut self, account: &Account, stamp_ns: u64) -> Result<(), CaptureError>;

    /// Writes out or sends all packets that it holds back.
    ///
    /// # Errors
    /// When not all of them could be kept.
    fn flush(&mut self) -> Result<(), CaptureError>;

    /// Returns the bytes of the file so far; 0 for a sink that is no file.
    fn bytes(&self) -> u64 {
        0
    }

    /// Takes the counts of packets that the sink took and could not keep, by the interfaces'
    /// numbers. Each packet comes once. Empty when the sink has kept all, or still may.
    fn take_unwritten(&mut self) -> Vec<Unwritten> {
        Vec::new()
    }

    /// Takes the remarks for the user; each remark comes once.
    fn take_remarks(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Returns how many packets the interface dropped on their way out, after the sink had passed
    /// them on.
    fn dropped_later(&mut self) -> u64 {
        0
    }
}

/// Opens a sink; `send` matters only for interfaces.
///
/// # Errors
/// When a file cannot be made, or an interface cannot be opened.
pub fn open(address: &SinkAddress, send: &SendOptions) -> Result<Box<dyn Sink>, CaptureError> {
    Ok(match address {
        SinkAddress::Pcap(path) => Box::new(PcapSink::new(Output::create(path)?)),
        SinkAddress::Pcapng(path) => Box::new(PcapngSink::new(Output::create(path)?)),
        SinkAddress::Ring(name) => Box::new(RingSink::open(name, send)?),
        SinkAddress::Int(name) => Box::new(SocketSink::open(name, send)?),
        SinkAddress::Null => Box::new(NullSink),
    })
}
