//! Sends a file or a pipe to a program that knows nothing of Towline's protocols, and says how many
//! bytes are known to have arrived.
//!
//! ```text
//!   Sending ---source ends---> Ending ---all acknowledged, and the peer has ended----> over
//!      |                          |
//!      +------ reset, silence, a file that shrinks, a wish to stop ------------------> over
//! ```
//!
//! The most that can be known here: the peer's kernel has acknowledged every byte, and the peer's
//! side has ended after this side, without a reset. Only the application could say whether it has
//! read and kept the bytes, and it does not.
//!
//! The sender reads the peer's answers and throws them away: if they were left unread, closing
//! would reset the connection and destroy the bytes still on their way.

use std::{
    fs::File,
    io::{self, IoSlice, Read as _, Seek as _},
    net::{Shutdown, SocketAddr, TcpStream},
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};

use base::Instant;
use net::{SystemError, TcpShares};
use sys::{
    TcpInfo, clock,
    transmit::{send_file, splice, unacknowledged_bytes, wait, write_pieces},
};

use super::transmit::ended_at;
use crate::Error;

/// Where the bytes come from.
#[derive(Debug)]
pub enum PlainSource {
    /// A regular file from its present offset to the length that it has when the sender is opened.
    /// A file of length 0 that has content, such as those in `/proc`, is read to its end.
    File(File),
    /// A pipe, until its end.
    Pipe(OwnedFd),
    /// Anything else that can be read, such as a terminal, until its end.
    Stream(File),
}

/// How a transfer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlainEnd {
    /// The peer's kernel has acknowledged every byte, and the peer's side has ended after ours,
    /// without a reset. The application has confirmed nothing.
    Acknowledged,
    /// Perhaps some bytes were not acknowledged, or the connection did not end in good order; the
    /// text says why.
    Failed(String),
}

/// Sends a file or a pipe to any program that reads to the end of its connection.
#[derive(Debug)]
pub struct PlainSender {
    stream: TcpStream,
    source: Source,
    written_bytes: u64,
    answered_bytes: u64,
    /// True when the end of the stream was sent.
    is_ending: bool,
    /// True when the peer has ended its side.
    has_peer_ended: bool,
    /// True when the peer ended its side before the end of the stream was sent.
    ended_first: bool,
    end: Option<PlainEnd>,
    patience: Duration,
    /// The number of bytes acknowledged, and the last time when this number changed or the source
    /// had nothing to give.
    moved: (u64, Instant),
    began: (Instant, Option<TcpInfo>),
}

#[derive(Debug)]
enum Source {
    File {
        file: File,
        begin: u64,
        at: u64,
        end: u64,
    },
    Pipe(OwnedFd),
    Stream {
        from: File,
        buffer: Vec<u8>,
        at: usize,
    },
}

impl Source {
    /// Makes a source of a file of length 0. Such a file is empty, or the kernel makes the content
    /// when a program reads the file.
    fn of_no_length(mut file: File) -> io::Result<Self> {
        let mut buffer = vec![0; STREAM_BYTES];
        let is_ready = wait(&file, true, false, Duration::ZERO)?.0;
        let count = if is_ready { file.read(&mut buffer)? } else { 0 };
        buffer.truncate(count);
        Ok(if is_ready && count == 0 {
            Self::File {
                file,
                begin: 0,
                at: 0,
                end: 0,
            }
        } else {
            Self::Stream {
                from: file,
                buffer,
                at: 0,
            }
        })
    }
}

impl PlainSender {
    /// Connects to `to`; gives up after `patience`. Later the sender gives up when it has waited
    /// `patience` for a new acknowledgement or, after the last one, for the end of the peer's side.
    ///
    /// # Errors
    /// When nobody listens there or answers in time, or when the file's length cannot be read.
    pub fn open(to: SocketAddr, source: PlainSource, patience: Duration) -> Result<Self, Error> {
        let failed = |error: io::Error| unconnected(to, &error);
        let source = match source {
            PlainSource::File(mut file) => {
                let failed = |error: io::Error| {
                    SystemError::system("read the length of", "the file to send", &error)
                };
                // Sending begins at the file's present offset: a shell may have had another program
                // read the first lines.
                let begin = file.stream_position().map_err(failed)?;
                let len = file.metadata().map_err(failed)?.len();
                if len == 0 {
                    Source::of_no_length(file).map_err(failed)?
                } else {
                    Source::File {
                        file,
                        begin,
                        at: begin,
                        end: len.max(begin),
                    }
                }
            }
            PlainSource::Pipe(pipe) => Source::Pipe(pipe),
            PlainSource::Stream(from) => Source::Stream {
                from,
                buffer: Vec::new(),
                at: 0,
            },
        };
        let stream = TcpStream::connect_timeout(&to, patience).map_err(failed)?;
        stream.set_nonblocking(true).map_err(failed)?;
        sys::tcp::set_silence_limit(&stream, patience).map_err(failed)?;
        let now = clock::monotonic();
        Ok(Self {
            began: (now, TcpInfo::of(&stream).ok()),
            stream,
            source,
            written_bytes: 0,
            answered_bytes: 0,
            is_ending: false,
            has_peer_ended: false,
            ended_first: false,
            end: None,
            patience,
            moved: (0, now),
        })
    }

    /// Does what can be done without waiting. Returns false when everything is over.
    pub fn turn(&mut self) -> bool {
        if self.end.is_none()
            && let Err(error) = self.step()
        {
            self.end = Some(PlainEnd::Failed(sys::with_usual_remedy(&error)));
        }
        self.end.is_none()
    }

    /// Waits until something can be done, at most for `limit`.
    pub fn wait(&self, limit: Duration) {
        // No event tells of acknowledgements, so each wait for the last of them is short.
        let limit = if self.is_ending {
            limit.min(ENDING_LOOK)
        } else {
            limit
        };
        let waited = match (&self.source, self.is_ending) {
            (_, true) => self.await_socket(false, limit),
            (Source::File { .. }, false) => self.await_socket(true, limit),
            (Source::Pipe(pipe), false) => self.await_input(pipe, limit),
            (Source::Stream { from, buffer, at }, false) if *at == buffer.len() => {
                self.await_input(from, limit)
            }
            (Source::Stream { .. }, false) => self.await_socket(true, limit),
        };
        // After a wait that fails, the next turn says what is wrong.
        drop(waited);
    }

    /// Gives the transfer up.
    pub fn cancel(&mut self, why: &str) {
        self.end
            .get_or_insert_with(|| PlainEnd::Failed(why.to_owned()));
    }

    /// Returns how the transfer ended; `None` until then.
    #[must_use]
    pub const fn end(&self) -> Option<&PlainEnd> {
        self.end.as_ref()
    }

    /// Returns the number of bytes to send in all, where that is known.
    #[must_use]
    pub const fn total_bytes(&self) -> Option<u64> {
        match &self.source {
            Source::File { begin, end, .. } => Some(*end - *begin),
            Source::Pipe(_) | Source::Stream { .. } => None,
        }
    }

    /// Returns the number of bytes that the socket has taken.
    #[must_use]
    pub const fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Returns the number of bytes that the peer's kernel has acknowledged. The peer's application
    /// may have read fewer.
    #[must_use]
    pub fn acknowledged_bytes(&self) -> u64 {
        unacknowledged_bytes(&self.stream).map_or(0, |queued| self.acknowledged_of(queued))
    }

    /// Returns the number of bytes that the peer has sent. They were read and thrown away.
    #[must_use]
    pub const fn answered_bytes(&self) -> u64 {
        self.answered_bytes
    }

    /// Returns true when the peer's side of the connection has ended without a reset.
    #[must_use]
    pub const fn has_peer_ended(&self) -> bool {
        self.has_peer_ended
    }

    /// Returns the time since the connection was made.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        clock::monotonic().since(self.began.0)
    }

    /// Returns what has held the connection back so far; `None` where the kernel does not count it.
    #[must_use]
    pub fn shares(&self) -> Option<TcpShares> {
        let now = TcpInfo::of(&self.stream).ok()?;
        TcpShares::between(self.began.1.as_ref()?, &now, self.elapsed())
    }

    fn step(&mut self) -> io::Result<()> {
        self.hear()?;
        if !self.is_ending && self.send()? {
            self.stream.shutdown(Shutdown::Write)?;
            self.is_ending = true;
        }
        let queued = unacknowledged_bytes(&self.stream)?;
        let (acknowledged, now) = (self.acknowledged_of(queued), clock::monotonic());
        let is_all = self.is_ending && queued == 0;
        // While the source has nothing to give, the peer has nothing to acknowledge.
        let is_starved = !self.is_ending && queued == 0;
        if is_all && self.has_peer_ended {
            // A reset after the peer's end means that the connection did not end in good order.
            if let Some(error) = self.stream.take_error()? {
                return Err(self.broken(&error));
            }
            if self.ended_first {
                return Err(io::Error::other(ENDED_FIRST));
            }
            self.end = Some(PlainEnd::Acknowledged);
            return Ok(());
        }
        if acknowledged != self.moved.0 || is_starved {
            self.moved = (acknowledged, now);
        }
        if now.since(self.moved.1) < self.patience {
            return Ok(());
        }
        let what = match is_all {
            true => "the peer acknowledged everything and did not close the connection",
            false => "the peer acknowledged nothing more",
        };
        let text = format!(
            "{what} within {} s; look at the program there, or allow more time",
            self.patience.as_secs_f64()
        );
        Err(io::Error::new(io::ErrorKind::TimedOut, text))
    }

    fn acknowledged_of(&self, queued: u64) -> u64 {
        // The kernel counts the end of the stream (FIN) as one queued byte.
        let queued = queued.saturating_sub(self.is_ending.into());
        self.written_bytes.saturating_sub(queued)
    }

    /// Reads and throws away the bytes that the peer sends; notes when the peer ends its side.
    fn hear(&mut self) -> io::Result<()> {
        let mut room = [0; 16_384];
        for _ in 0..READS_A_TURN {
            if self.has_peer_ended {
                break;
            }
            match self.stream.read(&mut room) {
                Ok(0) => {
                    self.has_peer_ended = true;
                    self.ended_first = !self.is_ending;
                }
                Ok(count) => self.answered_bytes += count as u64,
                Err(error) if is_later(&error) => break,
                Err(error) => return Err(self.broken(&error)),
            }
        }
        Ok(())
    }

    /// Sends as much as the source has and the socket takes; returns true when the source is at its
    /// end.
    fn send(&mut self) -> io::Result<bool> {
        for _ in 0..WRITES_A_TURN {
            let moved = match &mut self.source {
                Source::File { at, end, .. } if at == end => return Ok(true),
                Source::File { file, at, end, .. } => {
                    let most = usize::try_from(*end - *at).map_or(PIECE, |left| left.min(PIECE));
                    let sent = send_file(&self.stream, file, *at, most);
                    if matches!(sent, Ok(0)) {
                        return Err(ended_at(*at));
                    }
                    *at += *sent.as_ref().unwrap_or(&0) as u64;
                    sent
                }
                Source::Pipe(pipe) => match splice(pipe, &self.stream, PIECE) {
                    Ok(0) => return Ok(true),
                    moved => moved,
                },
                Source::Stream { from, buffer, at } => {
                    if *at == buffer.len() {
                        if !wait(from, true, false, Duration::ZERO)?.0 {
                            return Ok(false);
                        }
                        buffer.resize(STREAM_BYTES, 0);
                        let count = from.read(buffer)?;
                        buffer.truncate(count);
                        *at = 0;
                        if count == 0 {
                            return Ok(true);
                        }
                    }
                    let taken = write_pieces(&self.stream, &[IoSlice::new(&buffer[*at..])]);
                    *at += *taken.as_ref().unwrap_or(&0);
                    taken
                }
            };
            match moved {
                Ok(count) => self.written_bytes += count as u64,
                Err(error) if is_later(&error) => return Ok(false),
                Err(error) => return Err(self.broken(&error)),
            }
        }
        Ok(false)
    }

    /// Puts the error that ended the connection into words for a person.
    fn broken(&self, error: &io::Error) -> io::Error {
        let is_reset = matches!(
            error.kind(),
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
        );
        let text = if is_reset && self.acknowledged_bytes() == self.written_bytes {
            "the peer reset the connection: its application ended, or closed without reading \
             everything"
                .to_owned()
        } else if is_reset {
            "the peer reset the connection; look at the program there".to_owned()
        } else {
            sys::with_usual_remedy(error)
        };
        io::Error::new(error.kind(), text)
    }

    fn await_socket(&self, for_room: bool, limit: Duration) -> io::Result<()> {
        if self.is_ending && self.has_peer_ended {
            // Both sides are shut: a wait for the socket would return at once, and no event tells
            // of acknowledgements.
            std::thread::sleep(limit);
            return Ok(());
        }
        wait(&self.stream, !self.has_peer_ended, for_room, limit).map(drop)
    }

    /// Waits until the source gives bytes. When the socket has no room, waits for room instead.
    fn await_input(&self, source: &impl AsFd, limit: Duration) -> io::Result<()> {
        let (_, has_room) = wait(&self.stream, false, true, Duration::ZERO)?;
        if !has_room {
            return self.await_socket(true, limit);
        }
        wait(source, true, false, limit.min(SOURCE_LOOK)).map(drop)
    }
}

/// Makes the error of a connection that cannot be opened.
fn unconnected(to: SocketAddr, error: &io::Error) -> SystemError {
    let fault = SystemError::system("connect to", to, error);
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            fault.advise("start the program that should listen there, or check the port")
        }
        io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable => {
            fault.advise("check the address, that the host is up, and the firewalls on the way")
        }
        // This error is about the local address or port, which the system chooses.
        io::ErrorKind::AddrNotAvailable => fault.advise(
            "if this host has no IPv6 address, name an IPv4 address; if all local ports are in \
             use, wait until earlier connections have ended",
        ),
        _ => fault,
    }
}

fn is_later(error: &io::Error) -> bool {
    let kinds = [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted];
    kinds.contains(&error.kind())
}

/// The error when the peer ended its side first: that end does not show whether the peer read the
/// bytes that came later.
const ENDED_FIRST: &str = "the peer's kernel acknowledged everything, but the peer had ended its \
                           side before it had everything: nobody knows whether its application \
                           reads the rest";
/// The most bytes that one system call moves, so that the caller can soon stop the transfer.
const PIECE: usize = 4 << 20;
const STREAM_BYTES: usize = 64 << 10;
const WRITES_A_TURN: u32 = 16;
const READS_A_TURN: u32 = 64;
/// How often the sender looks for acknowledgements while it waits for the last one.
const ENDING_LOOK: Duration = Duration::from_millis(2);
/// How often the sender reads the peer's answers while it waits for the source.
const SOURCE_LOOK: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, thread};

    use super::*;

    /// Sends a file to a program that reads to the end; returns the length that was known before,
    /// and what came.
    fn sent(path: &str) -> (Option<u64>, Vec<u8>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let to = listener.local_addr().unwrap();
        let peer = thread::spawn(move || {
            let mut got = Vec::new();
            listener
                .accept()
                .unwrap()
                .0
                .read_to_end(&mut got)
                .map(|_| got)
        });
        let source = PlainSource::File(File::open(path).unwrap());
        let mut sender = PlainSender::open(to, source, Duration::from_secs(20)).unwrap();
        let known = sender.total_bytes();
        while sender.turn() {
            sender.wait(Duration::from_secs(1));
        }
        assert_eq!(sender.end(), Some(&PlainEnd::Acknowledged));
        let got = peer.join().unwrap().unwrap();
        assert_eq!(sender.acknowledged_bytes(), got.len() as u64);
        (known, got)
    }

    #[test]
    fn a_file_that_says_no_length_is_sent_to_its_end_and_an_empty_one_is_known_as_empty() {
        // The second file is longer than one read, and cannot be read on every host.
        for path in ["/proc/version", "/proc/kallsyms"] {
            let content = std::fs::read(path).unwrap_or_default();
            if content.is_empty() && path != "/proc/version" {
                println!("skipped: {path} cannot be read here");
                continue;
            }
            let (known, got) = sent(path);
            assert_eq!(known, None, "{path}");
            assert!(got == content, "{path}: {} bytes came", got.len());
        }
        let path = std::env::temp_dir().join(format!("towline-empty-{}", std::process::id()));
        std::fs::write(&path, []).unwrap();
        assert_eq!(sent(path.to_str().unwrap()), (Some(0), Vec::new()));
        std::fs::remove_file(path).unwrap();
    }
}
