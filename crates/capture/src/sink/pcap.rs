//! `pcap:FILE`: a classic pcap file with time stamps in nanoseconds.

use wire::pcap::{Header, emit_record};

use super::{Output, Sink};
use crate::{Account, CaptureError, Interface, Packet, Unwritten};

/// A sink that writes a classic pcap file, which holds packets of one link type and no account.
#[derive(Debug)]
pub struct PcapSink {
    output: Output,
    link_type: Option<u16>,
}

impl PcapSink {
    /// Makes a sink that writes into `output`.
    #[must_use]
    pub const fn new(output: Output) -> Self {
        Self {
            output,
            link_type: None,
        }
    }
}

impl Sink for PcapSink {
    fn interface(&mut self, interface: &Interface) -> Result<(), CaptureError> {
        match self.link_type {
            None => {
                self.link_type = Some(interface.link_type);
                let snap_len = match interface.snap_len {
                    0 => SNAP_LEN,
                    len => len,
                };
                let header = Header::new(interface.link_type, snap_len);
                self.output.append(|buffer| header.emit(buffer))
            }
            Some(link_type) if link_type == interface.link_type => Ok(()),
            Some(_) => Err(CaptureError::Address {
                address: "pcap:".to_owned(),
                what: "sink for these interfaces",
                reason: "the format holds one link type only; write pcapng".to_owned(),
            }),
        }
    }

    #[inline]
    fn write(&mut self, packet: &Packet<'_>) -> Result<(), CaptureError> {
        self.output.append_packet(packet, |buffer| {
            emit_record(buffer, packet.stamp_ns, packet.wire_len, packet.data);
        })
    }

    fn note(&mut self, _: &Account, _: u64) -> Result<(), CaptureError> {
        Ok(())
    }

    fn flush(&mut self) -> Result<(), CaptureError> {
        self.output.flush()
    }

    fn bytes(&self) -> u64 {
        self.output.bytes()
    }

    fn take_unwritten(&mut self) -> Vec<Unwritten> {
        self.output.take_unwritten()
    }
}

const SNAP_LEN: u32 = 262_144;
