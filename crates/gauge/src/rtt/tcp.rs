//! Messages back to back in one TCP connection; each message says its length.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    os::fd::AsFd as _,
    sync::Arc,
    time::Duration,
};

use measure::PROBE_BYTES_MIN;
use net::{Remedy, SystemError};
use sys::datagram;

use super::{
    MESSAGE_BYTES_MAX,
    carrier::{Carrier, Rooms},
};
use crate::{
    Error,
    control_link::{foreign, is_timeout, of_other_end},
    places::Place,
};

#[derive(Debug)]
pub(super) struct Tcp {
    stream: TcpStream,
    /// Bytes of a message that has not arrived completely, and bytes that have not left.
    inbound: Vec<u8>,
    outbound: Vec<u8>,
    /// At a reflector: the client's place, which the client keeps as long as it sends messages.
    place: Option<Arc<Place>>,
}

impl Tcp {
    /// Connects to a reflector.
    ///
    /// # Errors
    /// When nobody listens there or answers within `limit`, or when the system refuses.
    pub(super) fn connect(peer: SocketAddr, limit: Duration) -> Result<Self, Error> {
        let stream = TcpStream::connect_timeout(&peer, limit).map_err(|error| {
            SystemError::system("connect to the reflector at", peer, &error)
                .advise(Remedy::StartReflector)
        })?;
        let refused = |error: io::Error| SystemError::system("measure over TCP with", peer, &error);
        Ok(Self::new(stream).map_err(refused)?)
    }

    /// Makes one end of an open connection.
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            inbound: Vec::new(),
            outbound: Vec::new(),
            place: None,
        })
    }

    /// Makes this end note in `place` each message that comes.
    pub(super) fn counting(mut self, place: Arc<Place>) -> Self {
        self.place = Some(place);
        self
    }

    fn note(&self) {
        if let Some(place) = &self.place {
            place.note();
        }
    }

    /// Sends the bytes that have not left; returns true when none remain.
    fn flush(&mut self) -> io::Result<bool> {
        while !self.outbound.is_empty() {
            match self.stream.write(&self.outbound) {
                Ok(0) => return Err(gone()),
                Ok(len) => drop(self.outbound.drain(..len)),
                Err(error) if is_timeout(&error) => return Ok(false),
                Err(error) => return Err(ended(error)),
            }
        }
        Ok(true)
    }
}

impl Carrier for Tcp {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        if !self.flush()? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        match self.stream.write(message) {
            Ok(len) => self.outbound.extend_from_slice(&message[len..]),
            Err(error) if is_timeout(&error) => return Err(io::ErrorKind::WouldBlock.into()),
            Err(error) => return Err(ended(error)),
        }
        Ok(())
    }

    fn receive(&mut self, rooms: &mut Rooms) -> io::Result<usize> {
        self.flush()?;
        let room = rooms.first();
        loop {
            if let Some(len) = first_message(&self.inbound)? {
                room[..len].copy_from_slice(&self.inbound[..len]);
                self.inbound.drain(..len);
                rooms.set_len(0, len);
                self.note();
                return Ok(1);
            }
            // A message usually arrives whole and alone, so this reads straight into the caller's
            // room.
            if self.inbound.is_empty() {
                let len = read(&mut self.stream, room)?;
                if first_message(&room[..len])? == Some(len) {
                    rooms.set_len(0, len);
                    self.note();
                    return Ok(1);
                }
                self.inbound.extend_from_slice(&room[..len]);
            } else {
                let mut more = [0; 4_096];
                let len = read(&mut self.stream, &mut more)?;
                self.inbound.extend_from_slice(&more[..len]);
            }
        }
    }

    fn wait(&mut self, limit: Duration) -> io::Result<()> {
        datagram::wait_readable(self.stream.as_fd(), limit).map(|_ready| ())
    }
}

fn read(stream: &mut TcpStream, room: &mut [u8]) -> io::Result<usize> {
    match stream.read(room) {
        Ok(0) => Err(gone()),
        Ok(len) => Ok(len),
        Err(error) if is_timeout(&error) => Err(io::ErrorKind::WouldBlock.into()),
        Err(error) => Err(ended(error)),
    }
}

/// Returns the length of the first message of a stream; `None` until it is complete.
fn first_message(bytes: &[u8]) -> io::Result<Option<usize>> {
    let Some(header) = bytes.get(..PROBE_BYTES_MIN) else {
        return Ok(None);
    };
    let len = usize::from(u16::from_le_bytes([header[6], header[7]]));
    if !(PROBE_BYTES_MIN..=MESSAGE_BYTES_MAX).contains(&len) {
        return Err(foreign());
    }
    Ok((bytes.len() >= len).then_some(len))
}

/// Makes one error of all the ways in which the far end can end a connection.
fn ended(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => gone(),
        _ => error,
    }
}

fn gone() -> io::Error {
    of_other_end(io::ErrorKind::ConnectionAborted.into())
}

#[cfg(test)]
mod tests {
    use measure::{Probe, ProbeKind};

    use super::*;

    #[test]
    fn messages_of_a_stream_are_told_apart() {
        let mut message = [0; 40];
        let kind = ProbeKind::Probe;
        let (token, sequence) = (1, 2);
        Probe {
            kind,
            token,
            sequence,
        }
        .emit(&mut message);
        for cut in 0..40 {
            assert_eq!(first_message(&message[..cut]).unwrap(), None);
        }
        let two = [message, message].concat();
        assert_eq!(first_message(&two).unwrap(), Some(40));
        message[6] = 3;
        assert!(first_message(&message).is_err());
    }
}
