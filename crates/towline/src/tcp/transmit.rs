//! Sends a file, with bytes before and behind it, into a TCP connection in full segments.
//!
//! ```text
//!   cork in | head | file: sendfile, or read ahead and written | tail | cork out, no delay
//!   ========================== full segments ==========================|== the last ==
//! ```
//!
//! All segments before the last one are full, so none of them waits for an acknowledgement that the
//! peer delays. Bytes that the socket has taken are not yet delivered. Only the peer's application
//! can confirm their delivery, if its protocol has a way.

use std::{
    fmt,
    fs::File,
    io::{self, IoSlice},
    ops::Range,
    os::{fd::AsFd, unix::fs::FileExt as _},
    sync::mpsc,
    thread,
    time::Duration,
};

use sys::transmit::{FullSegments, send_file, wait, write_pieces};

/// The error of a transmission that ended early, with the number of bytes that the socket had
/// taken.
#[derive(Debug)]
pub struct TransmitError {
    /// Number of bytes that the socket took before the error, counted from the start of `head`.
    pub written_bytes: u64,
    /// The error. `UnexpectedEof` says that the file ended before the range did.
    pub cause: io::Error,
}

impl fmt::Display for TransmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            written_bytes,
            cause,
        } = self;
        let cause = sys::with_usual_remedy(cause);
        write!(f, "the socket took {written_bytes} bytes, then: {cause}")
    }
}

impl std::error::Error for TransmitError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

/// Writes `head`, the bytes `range` of `file`, and `tail` into a TCP connection, in full segments.
/// Returns the number of bytes written. Waits for room even when the socket is non-blocking.
///
/// Only the range is sent, even if the file grows meanwhile; if the file shrinks below the range,
/// the call fails and sends no tail. Bytes that another program changes meanwhile may be sent old
/// or new. Afterwards the options of the socket (`TCP_CORK`, `TCP_NODELAY`) are what they were. A
/// socket that was corked before stays corked, and holds back a last segment that is not full.
///
/// ```no_run
/// # fn main() -> std::io::Result<()> {
/// let stream = std::net::TcpStream::connect("10.0.0.7:80")?;
/// let file = std::fs::File::open("image.iso")?;
/// let bytes = file.metadata()?.len();
/// let head = format!("PUT /image.iso HTTP/1.1\r\nContent-Length: {bytes}\r\n\r\n");
/// let sent = towline::transmit_file(&stream, head.as_bytes(), &file, 0..bytes, &[]);
/// println!("{} bytes are in the send buffer or beyond it", sent.map_err(|it| it.cause)?);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// The error that ended the connection, or the error of reading the file; `UnexpectedEof` when the
/// file is shorter than the range; the system's error when the socket is not a TCP socket. After an
/// error, close the connection if `head` has announced the length: the peer waits for the rest.
///
/// **Cost**: with `sendfile`, the file's bytes are not copied through this process. Where the
/// file's filesystem does not offer that, a second thread reads 256 KiB ahead. The options of the
/// socket take six more system calls.
pub fn transmit_file(
    socket: &impl AsFd,
    head: &[u8],
    file: &File,
    range: Range<u64>,
    tail: &[u8],
) -> Result<u64, TransmitError> {
    transmit(socket, head, (file, range), tail, Way::Kernel)
}

/// The way by which the file's bytes get into the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// By the kernel alone, where the filesystem can do that.
    Kernel,
    /// Through buffers of this process.
    Buffers,
}

fn transmit(
    socket: &impl AsFd,
    head: &[u8],
    (file, range): (&File, Range<u64>),
    tail: &[u8],
    way: Way,
) -> Result<u64, TransmitError> {
    let mut written_bytes = 0;
    let mut all = || -> io::Result<()> {
        let _full = FullSegments::begin(socket)?;
        write(socket, head, &mut written_bytes)?;
        let before = written_bytes;
        let way = match way {
            Way::Kernel => by_kernel(socket, file, &range, &mut written_bytes)?,
            Way::Buffers => Way::Buffers,
        };
        if way == Way::Buffers {
            let rest = range.start + (written_bytes - before)..range.end;
            by_buffers(socket, file, rest, &mut written_bytes)?;
        }
        write(socket, tail, &mut written_bytes)
    };
    let ended = all();
    ended.map_err(|cause| TransmitError {
        written_bytes,
        cause,
    })?;
    Ok(written_bytes)
}

const fn length(range: &Range<u64>) -> u64 {
    range.end.saturating_sub(range.start)
}

/// Writes all of `bytes`, and adds to `written_bytes` what the socket takes.
fn write(socket: &impl AsFd, mut bytes: &[u8], written_bytes: &mut u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let taken = in_time(socket, || write_pieces(socket, &[IoSlice::new(bytes)]))?;
        *written_bytes += taken as u64;
        bytes = &bytes[taken..];
    }
    Ok(())
}

/// Sends the range with `sendfile`. Returns [`Way::Buffers`] when the filesystem cannot do that:
/// the caller then sends the rest of the range through buffers.
fn by_kernel(
    socket: &impl AsFd,
    file: &File,
    range: &Range<u64>,
    written_bytes: &mut u64,
) -> io::Result<Way> {
    let mut at = range.start;
    while at < range.end {
        let most = usize::try_from(range.end - at).unwrap_or(usize::MAX);
        match in_time(socket, || send_file(socket, file, at, most)) {
            Ok(0) => return Err(ended_at(at)),
            Ok(sent) => {
                at += sent as u64;
                *written_bytes += sent as u64;
            }
            Err(error) if is_impossible(&error) => return Ok(Way::Buffers),
            Err(error) => return Err(error),
        }
    }
    Ok(Way::Kernel)
}

fn is_impossible(error: &io::Error) -> bool {
    let kinds = [io::ErrorKind::InvalidInput, io::ErrorKind::Unsupported];
    kinds.contains(&error.kind())
}

/// Sends the range through two buffers: one is filled from the file while the other is sent.
fn by_buffers(
    socket: &impl AsFd,
    file: &File,
    range: Range<u64>,
    written_bytes: &mut u64,
) -> io::Result<()> {
    let sizes = (length(&range).div_ceil(BUFFER_BYTES as u64)).min(2);
    let room = usize::try_from(length(&range)).map_or(BUFFER_BYTES, |all| all.min(BUFFER_BYTES));
    let (full, filled) = mpsc::sync_channel(1);
    let (empty, emptied) = mpsc::channel();
    for _ in 0..sizes {
        // This cannot fail: the receiving end still exists.
        drop(empty.send(vec![0; room]));
    }
    thread::scope(move |scope| {
        scope.spawn(move || {
            let mut at = range.start;
            while at < range.end {
                let Ok(mut buffer) = emptied.recv() else {
                    return;
                };
                let most = usize::try_from(range.end - at).map_or(room, |left| left.min(room));
                buffer.truncate(most);
                let got = read_at(file, &mut buffer, at);
                at += most as u64;
                if full.send((got, buffer, at)).is_err() {
                    return;
                }
            }
        });
        // When this function returns early, both channels close, and the reading thread ends.
        let empty = empty;
        for (got, buffer, until) in filled {
            let got = got?;
            write(socket, &buffer[..got], written_bytes)?;
            if got < buffer.len() {
                return Err(ended_at(until - (buffer.len() - got) as u64));
            }
            // This fails when the reader needs no more buffers and has ended.
            drop(empty.send(buffer));
        }
        Ok(())
    })
}

/// Reads until the buffer is full or the file ends; returns how many bytes came.
fn read_at(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match file.read_at(&mut buffer[got..], at + got as u64) {
            Ok(0) => break,
            Ok(count) => got += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

/// Makes the error of a file that is shorter than its range.
pub(super) fn ended_at(at: u64) -> io::Error {
    let text = format!(
        "the file ends at byte {at}, before the end of the range to send; choose a range within \
         the file, and let no program shorten the file meanwhile"
    );
    io::Error::new(io::ErrorKind::UnexpectedEof, text)
}

/// Repeats `call` while the socket has no room, and waits for room in between. Returns the first
/// result that is not `WouldBlock`.
fn in_time<S: AsFd>(socket: &S, mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait(socket, false, true, LOOK)?;
            }
            result => return result,
        }
    }
}

/// Bytes of each of the two buffers.
const BUFFER_BYTES: usize = 256 << 10;
/// The longest time that one system call waits for room in the socket.
const LOOK: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::{TcpListener, TcpStream},
        sync::atomic::{AtomicU32, Ordering},
        time::Instant,
    };

    use sys::TcpInfo;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (stream, listener.accept().unwrap().0)
    }

    /// Makes a file without a name, with this many bytes; returns it and its content.
    fn file_of(bytes: usize) -> (File, Vec<u8>) {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("towline-transmit-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let content: Vec<u8> = (0..bytes).map(|n| (n * 7 + n / 251) as u8).collect();
        std::fs::write(&path, &content).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        (file, content)
    }

    const WAYS: [Way; 2] = [Way::Kernel, Way::Buffers];

    #[test]
    fn head_file_and_tail_arrive_in_order_by_either_way_whatever_their_sizes() {
        let buffer = BUFFER_BYTES as u64;
        for way in WAYS {
            for (head, bytes, range, tail) in [
                (0, 0, 0..0, 0),
                (10, 0, 0..0, 0),
                (0, 0, 0..0, 5),
                (10, 100, 0..100, 5),
                (0, 100, 20..70, 0),
                (0, BUFFER_BYTES, 0..buffer, 3),
                (3, 2 * BUFFER_BYTES, 0..2 * buffer, 0),
                (3, 4 * BUFFER_BYTES, 1..4 * buffer - 1, 3),
                (70_000, 3 * BUFFER_BYTES + 1, 0..3 * buffer + 1, 70_000),
            ] {
                let (file, content) = file_of(bytes);
                let (stream, mut peer) = pair();
                // The cases with a head of 3 bytes use a non-blocking socket.
                stream.set_nonblocking(head == 3).unwrap();
                let (head, tail) = (vec![1; head], vec![2; tail]);
                let reader = thread::spawn(move || {
                    let mut got = Vec::new();
                    peer.read_to_end(&mut got).unwrap();
                    got
                });
                let part = (&file, range.clone());
                let sent = transmit(&stream, &head, part, &tail, way).unwrap();
                drop(stream);
                let got = reader.join().unwrap();
                let middle = &content[range.start as usize..range.end as usize];
                assert!(
                    got == [&head, middle, &tail[..]].concat(),
                    "{way:?} {range:?}"
                );
                assert_eq!(sent, got.len() as u64);
            }
        }
    }

    #[test]
    fn a_file_that_is_shorter_than_the_range_is_an_error_that_says_what_was_written() {
        for way in WAYS {
            for (bytes, end) in [(0, 1), (100, 101), (BUFFER_BYTES, 3 * BUFFER_BYTES)] {
                let (file, _) = file_of(bytes);
                let (stream, mut peer) = pair();
                let reader = thread::spawn(move || {
                    let mut got = Vec::new();
                    peer.read_to_end(&mut got).unwrap();
                    got.len() as u64
                });
                let error = transmit(&stream, b"head", (&file, 0..end as u64), b"tail", way);
                let error = error.unwrap_err();
                drop(stream);
                assert_eq!(error.cause.kind(), io::ErrorKind::UnexpectedEof, "{error}");
                assert_eq!(error.written_bytes, 4 + bytes as u64, "{way:?} {error}");
                assert_eq!(reader.join().unwrap(), error.written_bytes);
            }
        }
    }

    /// Another program makes the file longer and shorter while it is sent: either exactly the range
    /// arrives, or the call says that it did not.
    #[test]
    fn a_concurrent_writer_never_makes_it_send_more_or_claim_what_it_did_not_send() {
        for way in WAYS {
            for (bytes, then) in [(8 << 20, 9 << 20), (8 << 20, 1 << 20), (8 << 20, 0)] {
                let (file, _) = file_of(bytes);
                let (stream, mut peer) = pair();
                let changed = file.try_clone().unwrap();
                let reader = thread::spawn(move || {
                    let (mut got, mut piece, mut is_changed) = (0, vec![0; 65_536], false);
                    while let count @ 1.. = peer.read(&mut piece).unwrap() {
                        got += count as u64;
                        if !std::mem::replace(&mut is_changed, true) {
                            changed.set_len(then as u64).unwrap();
                        }
                    }
                    got
                });
                let range = 0..bytes as u64;
                let sent = transmit(&stream, b"", (&file, range), b"tail", way);
                drop(stream);
                let got = reader.join().unwrap();
                match sent {
                    Ok(sent) => assert_eq!((sent, got), (bytes as u64 + 4, sent)),
                    Err(error) => {
                        assert_eq!(error.cause.kind(), io::ErrorKind::UnexpectedEof);
                        assert!(then < bytes && error.written_bytes == got, "{error} {got}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_small_file_with_head_and_tail_is_one_segment_and_no_call_waits_for_an_acknowledgement() {
        for way in WAYS {
            let (file, _) = file_of(1_000);
            let (stream, mut peer) = pair();
            let segments = || TcpInfo::of(&stream).unwrap().data_segs_out().unwrap();
            let mut slowest = Duration::ZERO;
            for n in 0..20 {
                let (before, began) = (segments(), Instant::now());
                transmit(&stream, b"head", (&file, 0..1_000), b"tail", way).unwrap();
                let mut request = [0; 1_008];
                peer.read_exact(&mut request).unwrap();
                assert_eq!(segments() - before, 1, "{way:?}");
                peer.write_all(b"!").unwrap();
                (&stream).read_exact(&mut [0]).unwrap();
                // The kernel acknowledges the first segments of a connection at once in any case,
                // so the first calls are not timed.
                slowest = if n < 5 {
                    slowest
                } else {
                    slowest.max(began.elapsed())
                };
            }
            println!("{way:?}: slowest call {slowest:?}");
        }
    }

    #[test]
    fn a_peer_that_resets_is_told_with_what_the_socket_took() {
        for way in WAYS {
            let (file, _) = file_of(64 << 20);
            let (stream, peer) = pair();
            let resets = thread::spawn(move || drop(peer));
            let error = transmit(&stream, b"head", (&file, 0..64 << 20), b"", way).unwrap_err();
            resets.join().unwrap();
            assert!(error.written_bytes < 64 << 20, "{error}");
            let text = error.to_string();
            assert!(text.contains(&error.written_bytes.to_string()), "{text}");
        }
    }
}
