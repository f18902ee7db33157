//! `int:IF`: each packet is sent with a system call, for comparison with the ring.

use std::io;

use sys::{
    errno::{EINVAL, EMSGSIZE},
    packet::{PacketSocket, Packets},
};

use super::{
    SendOptions, Sink,
    outlet::{Outlet, Stall, Waited},
};
use crate::{Account, CaptureError, Interface, Packet, Unwritten, account::UnwrittenList};

/// A sink that sends each packet with a system call.
#[derive(Debug)]
pub struct SocketSink {
    outlet: Outlet,
    socket: PacketSocket,
    unwritten: UnwrittenList,
    /// True when the sink has stopped sending.
    is_over: bool,
}

impl SocketSink {
    /// Opens the socket.
    ///
    /// # Errors
    /// When there is no such interface or no permission, or when the kernel refuses.
    pub fn open(name: &str, options: &SendOptions) -> Result<Self, CaptureError> {
        let outlet = Outlet::find(name, options)?;
        let open = || -> io::Result<_> {
            let socket = PacketSocket::open()?;
            socket.set_queue_bypass(options.bypasses_queue)?;
            socket.bind(outlet.index, Packets::None)?;
            Ok(socket)
        };
        let socket = open().map_err(|cause| {
            CaptureError::os(format!("open a packet socket to send on {name}"), cause)
        })?;
        Ok(Self {
            outlet,
            socket,
            unwritten: UnwrittenList::default(),
            is_over: false,
        })
    }

    /// Sends a frame. Returns false when the interface does not take a frame of this length, or
    /// when the sink has stopped sending.
    fn send(&mut self, frame: &[u8]) -> Result<bool, CaptureError> {
        let mut stall = Stall::default();
        loop {
            match self.socket.send(frame) {
                Ok(true) => return Ok(true),
                Ok(false) => {
                    self.outlet.note_retry();
                    if self.outlet.wait(&self.socket, 1, &mut stall)? == Waited::ForNothing {
                        self.is_over = true;
                        return Ok(false);
                    }
                }
                Err(cause) if matches!(cause.raw_os_error(), Some(EMSGSIZE | EINVAL)) => {
                    return Ok(false);
                }
                Err(cause) => return Err(self.outlet.failure(cause)),
            }
        }
    }
}

impl Sink for SocketSink {
    fn interface(&mut self, _: &Interface) -> Result<(), CaptureError> {
        Ok(())
    }

    fn write(&mut self, packet: &Packet<'_>) -> Result<(), CaptureError> {
        let sent = if self.is_over || self.outlet.is_too_long(packet.data) {
            Ok(false)
        } else {
            self.send(packet.data)
        };
        if !matches!(sent, Ok(true)) {
            self.unwritten.add(packet.interface, Unwritten::of(packet));
        }
        sent.map(drop)
    }

    fn note(&mut self, _: &Account, _: u64) -> Result<(), CaptureError> {
        Ok(())
    }

    fn flush(&mut self) -> Result<(), CaptureError> {
        Ok(())
    }

    fn take_unwritten(&mut self) -> Vec<Unwritten> {
        self.unwritten.take()
    }

    fn take_remarks(&mut self) -> Vec<String> {
        self.outlet.take_remarks()
    }

    fn dropped_later(&mut self) -> u64 {
        self.outlet.dropped()
    }
}
