//! `int:IF`: packets are sent with one system call each, for comparison with the ring.

use std::{io, time::Duration};

use sys::{
    errno::EMSGSIZE,
    packet::{PacketSocket, Packets},
};

use super::{SendOptions, Sink, ring::Outlet};
use crate::{Account, CaptureError, Interface, Packet};

/// Sends one packet a call.
#[derive(Debug)]
pub struct SocketSink {
    outlet: Outlet,
    socket: PacketSocket,
    refused: u64,
}

impl SocketSink {
    /// Opens the socket.
    ///
    /// # Errors
    /// No such interface, no permission, or a refusal.
    pub fn open(name: &str, options: &SendOptions) -> Result<Self, CaptureError> {
        let outlet = Outlet::find(name)?;
        let open = || -> io::Result<_> {
            let socket = PacketSocket::open()?;
            socket.set_queue_bypass(options.bypasses_queue)?;
            socket.bind(outlet.index, Packets::None)?;
            Ok(socket)
        };
        let socket =
            open().map_err(|cause| CaptureError::os(format!("open {name} to send"), cause))?;
        Ok(Self {
            outlet,
            socket,
            refused: 0,
        })
    }
}

impl Sink for SocketSink {
    fn interface(&mut self, _: &Interface) -> Result<(), CaptureError> {
        Ok(())
    }

    fn write(&mut self, packet: &Packet<'_>) -> Result<(), CaptureError> {
        loop {
            match self.socket.send(packet.data) {
                Ok(true) => return Ok(()),
                Ok(false) => {
                    let waited = self.socket.wait_writable(ROOM_WAIT).map(drop);
                    waited.map_err(|cause| self.outlet.failure(cause))?;
                }
                Err(cause) if cause.raw_os_error() == Some(EMSGSIZE) => {
                    self.refused += 1;
                    return Ok(());
                }
                Err(cause) => return Err(self.outlet.failure(cause)),
            }
        }
    }

    fn note(&mut self, _: &Account, _: u64) -> Result<(), CaptureError> {
        Ok(())
    }

    fn flush(&mut self) -> Result<(), CaptureError> {
        Ok(())
    }

    fn unwritten(&self) -> u64 {
        self.refused
    }

    fn dropped_later(&mut self) -> u64 {
        self.outlet.dropped()
    }
}

const ROOM_WAIT: Duration = Duration::from_millis(10);
