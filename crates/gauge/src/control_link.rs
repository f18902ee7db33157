//! The control connection of a measurement: JSON documents, one on each line, of bounded length.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use serde::{Serialize, de::DeserializeOwned};

/// One end of the control connection.
#[derive(Debug)]
pub(crate) struct ControlLink {
    stream: TcpStream,
    bytes: Vec<u8>,
}

impl ControlLink {
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(WRITE_TIME_MAX))?;
        Ok(Self {
            stream,
            bytes: Vec::new(),
        })
    }

    pub(crate) fn local(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    pub(crate) fn peer(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }

    pub(crate) fn say(&mut self, message: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.stream.write_all(&line).map_err(of_other_end)
    }

    /// Waits at most `limit` for a message; returns `None` when no message came.
    ///
    /// # Errors
    /// `UnexpectedEof` when the other end has gone, `InvalidData` when it sends something that is
    /// no message. Otherwise the error of the connection.
    pub(crate) fn hear<T: DeserializeOwned>(&mut self, limit: Duration) -> io::Result<Option<T>> {
        let end = sys::clock::monotonic() + limit;
        loop {
            if let Some(at) = self.bytes.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.bytes.drain(..=at).collect();
                let message = serde_json::from_slice(&line);
                return message.map(Some).map_err(|_| foreign());
            }
            if self.bytes.len() > LINE_BYTES_MAX {
                return Err(foreign());
            }
            let left = end.since(sys::clock::monotonic());
            if left.is_zero() {
                return Ok(None);
            }
            self.stream.set_read_timeout(Some(left))?;
            let mut room = [0; 1_024];
            match self.stream.read(&mut room) {
                Ok(0) => return Err(of_other_end(io::ErrorKind::UnexpectedEof.into())),
                Ok(len) => self.bytes.extend_from_slice(&room[..len]),
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(of_other_end(error)),
            }
        }
    }
}

impl ControlLink {
    /// Gives the connection to a caller that goes on without messages. No bytes may have come after
    /// the last message.
    pub(crate) fn into_stream(self) -> TcpStream {
        self.stream
    }
}

/// Changes the text of an error that the other end caused, so that it does not read like an error
/// of this host. Keeps the kind.
pub(crate) fn of_other_end(error: io::Error) -> io::Error {
    use io::ErrorKind as Kind;
    let text = match error.kind() {
        Kind::UnexpectedEof
        | Kind::ConnectionReset
        | Kind::ConnectionAborted
        | Kind::BrokenPipe => {
            "the other end has ended the connection; look at its output for the reason"
        }
        Kind::WouldBlock | Kind::TimedOut => {
            "the other end has stopped answering; look whether it still runs, and at the way to it"
        }
        _ => return error,
    };
    io::Error::new(error.kind(), text)
}

/// Makes the error for a message of the other end that this release does not understand.
pub(crate) fn foreign() -> io::Error {
    let text = "the other end speaks another protocol; use the same release at both ends, or look \
                which program has that address";
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// Returns true when the error only means that nothing has come yet.
pub(crate) fn is_timeout(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::WouldBlock | Kind::TimedOut | Kind::Interrupted
    )
}

const WRITE_TIME_MAX: Duration = Duration::from_secs(5);
/// The most bytes of a message. The longest that occurs has some 700 bytes.
const LINE_BYTES_MAX: usize = 8_192;
