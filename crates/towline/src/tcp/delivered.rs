//! A TCP connection whose bytes are proven: either the application at the other end has taken all
//! of them, or the caller learns how far they got.
//!
//! ```text
//!   written -----> sent -----> acknowledged -----> confirmed -----> proven
//!   `write`        by this     by the peer's       taken by its     all of it, with the
//!   took it        kernel      kernel              application      same hash, after `finish`
//! ```
//!
//! Both ends are of this type, and each may write and read. The bytes that `read` has given count
//! as taken when the application calls `read` again or ends its own stream; after
//! [`DeliveredStream::confirm_by_hand`], when it calls [`DeliveredStream::confirm`]. An end
//! confirms along with data that it writes, when its `read` would wait, or after 256 KiB.
//!
//! Nothing is encrypted. The hash finds faults of the network, but does not stop an attacker.

use std::{
    collections::VecDeque,
    fmt,
    io::{self, IoSlice, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    time::Duration,
};

use base::Instant;
use sys::{
    clock,
    transmit::{unacknowledged_bytes, unsent_bytes, wait, write_pieces},
};
use wire::delivered::{DATA_BYTES_MAX, Digest, Frame, MAGIC};

mod awaited;
pub use awaited::AsyncDeliveredStream;

mod outcome;
pub use outcome::{DeliveredProgress, DeliveredProof, Undelivered};

mod reactor;

/// A connection whose bytes are proven.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::{io::Write as _, time::Duration};
/// let patience = Duration::from_secs(30);
/// let mut stream = towline::DeliveredStream::connect("10.0.0.7:9000".parse()?, patience)?;
/// stream.write_all(b"the order of the day")?;
/// let proof = stream.finish(patience)?;
/// println!("the other application has taken {} bytes", proof.bytes);
/// # Ok(())
/// # }
/// ```
///
/// When the stream is dropped before [`DeliveredStream::finish`], the other end learns that it
/// broke off.
pub struct DeliveredStream {
    stream: TcpStream,
    blocks: bool,
    out: Outgoing,
    inn: Incoming,
    /// The error that ended the connection; later calls that need the connection return it.
    fault: Option<(io::ErrorKind, String)>,
}

/// What this end sends to the peer.
#[derive(Debug, Default)]
struct Outgoing {
    written: u64,
    hasher: blake3::Hasher,
    /// Number of bytes of frames that the socket has taken.
    wire: u64,
    /// Bytes of frames that the socket has not taken yet.
    rest: Vec<u8>,
    /// Pieces of written data that are not known to be acknowledged, the oldest first.
    pieces: VecDeque<Piece>,
    /// Number of the application's bytes that are known to be acknowledged.
    acknowledged: u64,
    confirmed: u64,
    /// The hash of the stream, once the application has ended it.
    end: Option<Digest>,
    is_done: bool,
    /// Number of bytes written since this end last read what the peer says.
    unheard: usize,
}

/// One piece of written data. Its end is counted from the start of the stream: in bytes of frames
/// (`wire_end`), and in bytes of the application (`end`).
#[derive(Clone, Copy, Debug)]
struct Piece {
    wire_end: u64,
    end: u64,
    bytes: u32,
}

/// What this end receives from the peer.
#[derive(Debug, Default)]
struct Incoming {
    has_greeted: bool,
    inbox: Vec<u8>,
    at: usize,
    /// Number of bytes of the present piece of data that are still to be read.
    left: usize,
    /// Data that arrived while the application was not reading.
    stash: VecDeque<u8>,
    hasher: blake3::Hasher,
    /// Number of bytes that `read` has given to the application.
    given: u64,
    /// Number of bytes that count as taken; `told` is its last value that was sent to the peer.
    taken: u64,
    told: u64,
    by_hand: bool,
    end: Option<(u64, Digest)>,
    /// True when the end of the peer's stream was verified and the answer to it is queued.
    is_done: bool,
}

impl DeliveredStream {
    /// Connects; gives up after `patience`. Later, the connection ends when the peer's host is
    /// silent for that long (at least 3 s), or its application reads nothing for that long.
    ///
    /// # Errors
    /// When nobody listens there or answers in time, or the socket refuses an option.
    pub fn connect(to: SocketAddr, patience: Duration) -> io::Result<Self> {
        Self::new(TcpStream::connect_timeout(&to, patience)?, patience)
    }

    /// Takes over a connection that a listener has accepted, before this application has read or
    /// written anything on it. The other end must be of this type, too. After `patience`, the
    /// connection ends as [`DeliveredStream::connect`] describes.
    ///
    /// # Errors
    /// When the socket refuses an option.
    pub fn new(stream: TcpStream, patience: Duration) -> io::Result<Self> {
        // Each write is a whole frame and leaves at once, because a later write may never come.
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        sys::tcp::set_silence_limit(&stream, patience)?;
        let mut out = Outgoing::default();
        out.rest.extend_from_slice(MAGIC);
        Ok(Self {
            stream,
            blocks: true,
            out,
            inn: Incoming::default(),
            fault: None,
        })
    }

    /// Sets whether calls return `WouldBlock` instead of waiting. A caller that polls the
    /// descriptor asks [`DeliveredStream::wants_room`] whether to poll for writing.
    pub const fn set_nonblocking(&mut self, is_nonblocking: bool) {
        self.blocks = !is_nonblocking;
    }

    /// Returns true when the descriptor should be polled for writing, too, because the socket had
    /// no room for some bytes.
    #[must_use]
    pub const fn wants_room(&self) -> bool {
        !self.out.rest.is_empty()
    }

    /// Makes bytes count as taken only when this application calls [`DeliveredStream::confirm`].
    pub const fn confirm_by_hand(&mut self) {
        self.inn.by_hand = true;
    }

    /// Tells the peer that this application has taken everything that `read` has given so far. This
    /// is for applications in which bytes count only after more work, such as a sync to a disk.
    /// After `read` has returned 0, this call sends the peer its proof.
    ///
    /// # Errors
    /// The error that ended the connection; `WouldBlock` when a later call must send the rest.
    pub fn confirm(&mut self) -> io::Result<()> {
        self.inn.taken = self.inn.given;
        let told = self.tell();
        let is_full = matches!(&told, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        // A peer that also waits to write makes room only once this end reads.
        if is_full && self.hears_in_push() {
            later(self.hear())?;
        }
        told
    }

    /// Returns how far the written bytes are known to have got. This works after the connection has
    /// broken, too.
    ///
    /// **Cost**: two system calls.
    pub fn progress(&mut self) -> DeliveredProgress {
        let wire = self.out.wire;
        let left = |bytes: io::Result<u64>| wire.saturating_sub(bytes.unwrap_or(wire));
        let acknowledged = self.out.place_of(left(unacknowledged_bytes(&self.stream)));
        let sent = self.out.place_of(left(unsent_bytes(&self.stream)));
        // Confirmed bytes did arrive, even if this kernel has not seen their acknowledgement.
        let confirmed_bytes = self.out.confirmed;
        self.out.acknowledged = self.out.acknowledged.max(acknowledged).max(confirmed_bytes);
        while self
            .out
            .pieces
            .front()
            .is_some_and(|it| it.end <= self.out.acknowledged)
        {
            self.out.pieces.pop_front();
        }
        DeliveredProgress {
            written_bytes: self.out.written,
            sent_bytes: sent.max(self.out.acknowledged),
            acknowledged_bytes: self.out.acknowledged,
            confirmed_bytes,
        }
    }

    /// Ends the stream, and waits up to `patience` for the proof that the peer's application has
    /// taken all of it. Data that comes meanwhile is kept, up to 1 MiB, but does not count as
    /// taken. If both ends wait here with data unread, neither gets its proof: one must first read
    /// all. This end can still read afterwards.
    ///
    /// # Errors
    /// [`Undelivered`] says how far the bytes got, and why there is no proof.
    pub fn finish(&mut self, patience: Duration) -> Result<DeliveredProof, Undelivered> {
        let until = clock::monotonic() + patience;
        loop {
            if let Some(end) = self.finish_by(until) {
                return end;
            }
            let limit = until.since(clock::monotonic());
            if let Err(error) = wait(&self.stream, true, self.wants_room(), limit) {
                return Err(self.unproven(sys::with_usual_remedy(&error)));
            }
        }
    }

    /// Ends the stream. Returns the result once it is known or `until` has passed; `None` before
    /// that.
    fn finish_by(&mut self, until: Instant) -> Option<Result<DeliveredProof, Undelivered>> {
        let cause = match self.try_finish() {
            Ok(Some(proof)) => return Some(Ok(proof)),
            Ok(None) if self.is_full() => "the peer's data must be read first".to_owned(),
            Ok(None) if clock::monotonic() < until => return None,
            Ok(None) => "the other application has not confirmed everything in time; look whether \
                         it still reads"
                .to_owned(),
            Err(error) => sys::with_usual_remedy(&error),
        };
        Some(Err(self.unproven(cause)))
    }

    fn unproven(&mut self, cause: String) -> Undelivered {
        Undelivered {
            progress: self.progress(),
            cause,
        }
    }

    /// Ends the stream without waiting. Returns the proof, or `None` while it has not come.
    ///
    /// # Errors
    /// The error that ended the connection; [`DeliveredStream::progress`] says how far the bytes
    /// got.
    pub fn try_finish(&mut self) -> io::Result<Option<DeliveredProof>> {
        let digest = match self.out.end {
            Some(digest) => digest,
            None => {
                self.check()?;
                let digest = *self.out.hasher.finalize().as_bytes();
                let total = self.out.written;
                Frame::End { total, digest }.emit(&mut self.out.rest);
                *self.out.end.insert(digest)
            }
        };
        if !self.inn.by_hand {
            self.inn.taken = self.inn.given;
        }
        // If the peer's answer is already here, errors of these calls do not matter.
        let heard = self.hear();
        let answered = self.answer();
        let drained = self.drain();
        if !self.out.is_done {
            self.check()?;
            answered?;
            later(drained)?;
            later(heard)?;
            return Ok(None);
        }
        Ok(Some(DeliveredProof {
            bytes: self.out.written,
            hash: digest,
        }))
    }

    /// Returns true when the stash is full: no more data is kept for an application that does not
    /// read.
    fn is_full(&self) -> bool {
        self.inn.stash.len() >= STASH_BYTES_MAX
    }

    /// Returns true when [`DeliveredStream::push`] also reads, because the peer may itself be
    /// waiting to send. After the end of the peer's stream, `push` does not read: no more data
    /// comes, and a read that meets the peer's close would break off a write here.
    fn hears_in_push(&self) -> bool {
        self.inn.end.is_none() && !self.is_full()
    }

    fn check(&self) -> io::Result<()> {
        match &self.fault {
            Some((kind, text)) => Err(io::Error::new(*kind, text.clone())),
            None => Ok(()),
        }
    }

    /// Keeps the error if it ends the connection.
    fn ended<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result
            && error.kind() != io::ErrorKind::WouldBlock
        {
            self.fault = Some((error.kind(), error.to_string()));
        }
        result
    }

    /// Sends the bytes that the socket had no room for. Reads meanwhile, so that two ends that both
    /// write do not wait for each other.
    fn push(&mut self) -> io::Result<()> {
        loop {
            match self.drain() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.hears_in_push() {
                        later(self.hear())?;
                    }
                    if !self.blocks {
                        return Err(error);
                    }
                    wait(&self.stream, self.hears_in_push(), true, LOOK)?;
                }
                drained => return drained,
            }
        }
    }

    fn drain(&mut self) -> io::Result<()> {
        while !self.out.rest.is_empty() {
            let sent = write_pieces(&self.stream, &[IoSlice::new(&self.out.rest)]);
            let sent = self.ended(sent)?;
            self.out.wire += sent as u64;
            self.out.rest.drain(..sent);
        }
        Ok(())
    }

    /// Tells the peer, without waiting, what this application has taken.
    fn tell(&mut self) -> io::Result<()> {
        if self.out.rest.len() > REST_BYTES_MAX {
            self.drain()?;
        }
        self.answer()?;
        self.drain()
    }

    /// Queues two things behind the bytes that wait: a confirmation of what this application has
    /// taken, and the answer to the end of the peer's stream.
    fn answer(&mut self) -> io::Result<()> {
        let inn = &mut self.inn;
        // While many bytes wait, no confirmation is queued: a later one covers the same bytes.
        let has_room = self.out.rest.len() <= REST_BYTES_MAX;
        if inn.taken > inn.told && inn.end.is_none() && has_room {
            Frame::Confirm { total: inn.taken }.emit(&mut self.out.rest);
            inn.told = inn.taken;
        }
        let Some((total, digest)) = inn.end.filter(|_| !inn.is_done && inn.stash.is_empty()) else {
            return Ok(());
        };
        if (total, digest) != (inn.given, *inn.hasher.finalize().as_bytes()) {
            let text = "the bytes that arrived are not those that were sent; send them again";
            return self.ended(Err(io::Error::new(io::ErrorKind::InvalidData, text)));
        }
        if inn.taken == inn.given {
            Frame::Done { total, digest }.emit(&mut self.out.rest);
            inn.is_done = true;
        }
        Ok(())
    }

    /// Reads the peer's frames without waiting, and keeps their data for later.
    fn hear(&mut self) -> io::Result<()> {
        self.out.unheard = 0;
        loop {
            if self.is_full() {
                return Ok(());
            }
            let inn = &mut self.inn;
            let count = inn.left.min(inn.inbox.len() - inn.at);
            if count > 0 {
                inn.stash.extend(&inn.inbox[inn.at..inn.at + count]);
                (inn.at, inn.left) = (inn.at + count, inn.left - count);
            } else if inn.left > 0 || !self.step()? {
                if self.inn.end.is_some() && self.out.is_done {
                    return Ok(());
                }
                self.fill()?;
            }
        }
    }

    /// Takes the next frame, or a data frame's header; returns false while it has not come whole.
    fn step(&mut self) -> io::Result<bool> {
        let inn = &mut self.inn;
        let arrived = &inn.inbox[inn.at..];
        if !inn.has_greeted {
            let known = arrived.len().min(MAGIC.len());
            if arrived[..known] != MAGIC[..known] {
                return self.ended(Err(foreign("the peer speaks another protocol")));
            }
            inn.has_greeted = known == MAGIC.len();
            inn.at += if inn.has_greeted { known } else { 0 };
            return Ok(inn.has_greeted);
        }
        let read = Frame::parse(arrived)
            .map_err(|error| foreign(&format!("the peer speaks another protocol: {error}")));
        let Some((frame, len)) = self.ended(read)? else {
            return Ok(false);
        };
        let taken = self.take(frame);
        self.ended(taken)?;
        self.inn.at += len;
        Ok(true)
    }

    fn take(&mut self, frame: Frame) -> io::Result<()> {
        let (out, inn) = (&mut self.out, &mut self.inn);
        match frame {
            Frame::Data { .. } | Frame::End { .. } if inn.end.is_some() => {
                return Err(foreign("the peer sent more after the end of its stream"));
            }
            Frame::Data { bytes } => inn.left = bytes as usize,
            Frame::End { total, digest } => inn.end = Some((total, digest)),
            Frame::Confirm { total } if total > out.confirmed && total <= out.written => {
                out.confirmed = total;
            }
            Frame::Done { total, digest }
                if !out.is_done && Some(digest) == out.end && total == out.written =>
            {
                (out.confirmed, out.is_done) = (total, true);
            }
            Frame::Confirm { .. } | Frame::Done { .. } => {
                return Err(foreign("the peer's confirmation does not fit the stream"));
            }
        }
        Ok(())
    }

    /// Fills the inbox with what has arrived.
    fn fill(&mut self) -> io::Result<()> {
        let inn = &mut self.inn;
        if inn.at > 0 {
            inn.inbox.drain(..inn.at);
            inn.at = 0;
        }
        let room = INBOX_BYTES - inn.inbox.len();
        let count = sys::tcp::read_into(&self.stream, &mut inn.inbox, room);
        let count = self.ended(count)?;
        self.arrived(count).map(drop)
    }

    /// Turns a read that returned 0 into an error: the connection has ended.
    fn arrived(&mut self, count: usize) -> io::Result<usize> {
        if count > 0 {
            return Ok(count);
        }
        let text = match self.inn.end {
            Some(_) => "the peer has closed the connection; its own error says why".to_owned(),
            None => {
                let came = self.inn.given + self.inn.stash.len() as u64;
                format!("the stream broke off after {came} bytes; the peer's own error says why")
            }
        };
        self.ended(Err(io::Error::new(io::ErrorKind::UnexpectedEof, text)))
    }

    /// Gives data to the application; 0 at the verified end, `WouldBlock` when no data is there.
    fn give(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let inn = &mut self.inn;
            let here = inn.inbox.len() - inn.at;
            let count = if !inn.stash.is_empty() {
                inn.stash.read(into)?
            } else if inn.left > 0 && here > 0 {
                let count = inn.left.min(here).min(into.len());
                into[..count].copy_from_slice(&inn.inbox[inn.at..inn.at + count]);
                (inn.at, inn.left) = (inn.at + count, inn.left - count);
                count
            } else if inn.left > 0 {
                let most = inn.left.min(into.len());
                let count = (&self.stream).read(&mut into[..most]);
                let count = self.ended(count)?;
                let count = self.arrived(count)?;
                self.inn.left -= count;
                count
            } else if inn.end.is_some() {
                self.answer()?;
                return Ok(0);
            } else if self.step()? {
                continue;
            } else {
                self.fill()?;
                continue;
            };
            self.inn.given += count as u64;
            self.inn.hasher.update(&into[..count]);
            return Ok(count);
        }
    }
}

impl Outgoing {
    /// Returns how many of the application's bytes are certainly among the first `wire` bytes of
    /// frames.
    fn place_of(&self, wire: u64) -> u64 {
        let after = self.pieces.partition_point(|piece| piece.wire_end <= wire);
        let whole = after
            .checked_sub(1)
            .map_or(self.acknowledged, |last| self.pieces[last].end);
        let part = self.pieces.get(after).map_or(0, |piece| {
            let begin = piece.wire_end - u64::from(piece.bytes);
            let before = piece.end - u64::from(piece.bytes);
            if wire > begin {
                before + (wire - begin)
            } else {
                0
            }
        });
        whole.max(part)
    }
}

impl Write for DeliveredStream {
    /// Takes up to 256 KiB as one piece, and sends at once as much of it as the socket takes.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.check()?;
        if self.out.end.is_some() {
            let text = "this end has ended its stream, so it cannot write; open a new connection";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        if bytes.is_empty() {
            return Ok(0);
        }
        if self.out.unheard >= HEAR_BYTES {
            later(self.hear())?;
        }
        self.answer()?;
        if self.out.rest.len() > REST_BYTES_MAX {
            self.push()?;
        }
        let piece = &bytes[..bytes.len().min(DATA_BYTES_MAX as usize)];
        let length = u32::try_from(piece.len()).expect("it is no longer than DATA_BYTES_MAX");
        Frame::Data { bytes: length }.emit(&mut self.out.rest);
        let pieces = [IoSlice::new(&self.out.rest), IoSlice::new(piece)];
        let sent = match write_pieces(&self.stream, &pieces) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            sent => sent,
        };
        let sent = self.ended(sent)?;
        let out = &mut self.out;
        let all = out.rest.len() + piece.len();
        let of_rest = sent.min(out.rest.len());
        out.rest.drain(..of_rest);
        out.rest.extend_from_slice(&piece[sent - of_rest..]);
        out.wire += sent as u64;
        out.written += u64::from(length);
        out.hasher.update(piece);
        out.unheard += piece.len();
        if out.pieces.len() == PIECES_MAX {
            out.pieces.pop_front();
        }
        out.pieces.push_back(Piece {
            wire_end: out.wire + (all - sent) as u64,
            end: out.written,
            bytes: length,
        });
        Ok(piece.len())
    }

    /// Waits until the socket has taken all bytes. That proves nothing: see
    /// [`DeliveredStream::finish`].
    fn flush(&mut self) -> io::Result<()> {
        self.check()?;
        self.push()
    }
}

impl Read for DeliveredStream {
    /// Returns bytes as they come. Returns 0 only when `into` is empty, or when the other
    /// application has ended its stream and the hash of all bytes was found equal.
    ///
    /// # Errors
    /// `UnexpectedEof` when the stream broke off. `InvalidData` when bytes changed on the way, or
    /// the peer speaks another protocol. `WouldBlock` when no bytes are there and calls do not
    /// wait. Otherwise the error that ended the connection.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        if !self.inn.by_hand {
            self.inn.taken = self.inn.given;
        }
        if self.inn.taken - self.inn.told >= CONFIRM_BYTES {
            later(self.tell())?;
        }
        loop {
            // Bytes that have arrived can be read even when the connection has ended since.
            match self.give(into) {
                Ok(0) => {
                    // All bytes are here, even if this flush fails and the peer never learns that.
                    drop(self.flush());
                    return Ok(0);
                }
                Ok(count) => return Ok(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    later(self.tell())?;
                    if !self.blocks {
                        return Err(error);
                    }
                    wait(&self.stream, true, self.wants_room(), LOOK)?;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for DeliveredStream {
    fn drop(&mut self) {
        if self.inn.is_done {
            // A close with bytes unread would reset the connection, and the last answer could be
            // lost.
            drop(self.stream.shutdown(Shutdown::Write));
            let mut room = [0; 4_096];
            for _ in 0..READS_AT_END {
                if !matches!(self.stream.read(&mut room), Ok(1..)) {
                    break;
                }
            }
        }
    }
}

impl AsFd for DeliveredStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl AsRawFd for DeliveredStream {
    fn as_raw_fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }
}

impl fmt::Debug for DeliveredStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeliveredStream")
            .field("written", &self.out.written)
            .field("confirmed", &self.out.confirmed)
            .field("given", &self.inn.given)
            .finish_non_exhaustive()
    }
}

/// Makes the error for a peer that has broken the rules of this protocol.
fn foreign(what: &str) -> io::Error {
    let text = format!("{what}; use the same release at both ends, or check the address");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// Turns `WouldBlock` into success, because a later call does the rest.
fn later(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        result => result,
    }
}

/// Bytes that one read may take from the socket before the frames in them are parsed.
const INBOX_BYTES: usize = 64 << 10;
/// The most bytes kept while the application does not read; further data stays in the kernel.
const STASH_BYTES_MAX: usize = 1 << 20;
/// `write` waits while more than this many bytes wait for room in the socket.
const REST_BYTES_MAX: usize = 64;
/// Once this many taken bytes are unconfirmed, `read` confirms them, even if it never waits.
const CONFIRM_BYTES: u64 = 256 << 10;
/// Once this many bytes were written without a look at the socket, `write` reads what has arrived.
const HEAR_BYTES: usize = 256 << 10;
/// The most entries of `pieces`. One more drops the oldest, whose exact progress is then unknown.
const PIECES_MAX: usize = 4_096;
/// The most reads in a stream's drop, so that a peer that goes on sending cannot hold the drop up.
const READS_AT_END: u32 = 256;
/// The longest time for which one system call of `read` or `write` waits.
const LOOK: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
