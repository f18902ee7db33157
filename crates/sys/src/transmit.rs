//! Moves bytes of files and pipes into a TCP connection without a copy through this process. Tells
//! what the kernel knows of these bytes: queued, sent, acknowledged.
//!
//! ```text
//!   bytes written: | not sent yet   | sent, not acknowledged | acknowledged by the peer's kernel |
//!                  |<-unsent_bytes->|
//!                  |<--------- unacknowledged_bytes -------->|
//! ```
//! Nothing here says what the peer's application has read: the peer's kernel acknowledges bytes
//! before the application reads them.

use std::{
    fs::File,
    io::{self, IoSlice},
    os::fd::{AsFd, AsRawFd as _},
    time::Duration,
};

use libc::c_int;
use rustix::{
    event::PollFlags,
    fs::sendfile,
    io::retry_on_intr,
    net::{SendAncillaryBuffer, SendFlags, sendmsg, sockopt},
    pipe::{self, SpliceFlags},
};

use crate::{call::check, datagram::events};

/// Sends up to `bytes` bytes of a file, from `at` on, without a copy through this process. Returns
/// how many bytes the socket took; 0 when the file has no bytes from `at` on.
///
/// # Errors
/// `WouldBlock` when a socket that does not block has no room; `InvalidInput` if the file's
/// filesystem does not support this; and the error that has ended the connection.
///
/// **Cost**: one system call.
pub fn send_file(socket: &impl AsFd, file: &File, at: u64, bytes: usize) -> io::Result<usize> {
    let mut at = at;
    let most = bytes.min(CALL_BYTES_MAX);
    Ok(retry_on_intr(|| {
        sendfile(socket, file, Some(&mut at), most)
    })?)
}

/// Moves up to `bytes` bytes from a pipe into a socket without a copy through this process. Returns
/// how many; 0 when the pipe is at its end. It does not wait for bytes in the pipe. It waits for
/// room in the socket only if the socket blocks.
///
/// # Errors
/// `WouldBlock` when the pipe is empty, or when a socket that does not block has no room;
/// `InvalidInput` when neither descriptor is a pipe; and the error that has ended the connection.
pub fn splice(from: &impl AsFd, socket: &impl AsFd, bytes: usize) -> io::Result<usize> {
    let (most, flags) = (bytes.min(CALL_BYTES_MAX), SpliceFlags::NONBLOCK);
    Ok(retry_on_intr(|| {
        pipe::splice(from, None, socket, None, most, flags)
    })?)
}

/// Writes several pieces of data in one call. Does not wait for room, and raises no signal when the
/// peer is gone. Returns how many bytes the socket took.
///
/// # Errors
/// `WouldBlock` when there is no room, and the error that has ended the connection.
pub fn write_pieces(socket: &impl AsFd, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let mut none = SendAncillaryBuffer::default();
    Ok(retry_on_intr(|| sendmsg(socket, pieces, &mut none, flags))?)
}

/// Returns the number of written bytes that the peer's kernel has not acknowledged. The end of the
/// stream counts as one byte once it is queued. After the connection has failed, the number no
/// longer changes.
///
/// # Errors
/// When the descriptor is no TCP socket, or it listens.
///
/// **Source**: `SIOCOUTQ` of tcp(7).
pub fn unacknowledged_bytes(socket: &impl AsFd) -> io::Result<u64> {
    queue(socket, libc::TIOCOUTQ)
}

/// Returns the number of written bytes that the kernel has not sent yet.
///
/// # Errors
/// As [`unacknowledged_bytes`].
///
/// **Source**: `SIOCOUTQNSD` of include/uapi/linux/sockios.h.
pub fn unsent_bytes(socket: &impl AsFd) -> io::Result<u64> {
    queue(socket, SIOCOUTQNSD)
}

fn queue(socket: &impl AsFd, request: libc::Ioctl) -> io::Result<u64> {
    let mut bytes: c_int = 0;
    let pointer: *mut c_int = &raw mut bytes;
    // SAFETY: both requests write one integer, for which `pointer` has room; the descriptor is
    // borrowed, hence open.
    check(unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), request, pointer) })?;
    Ok(u64::try_from(bytes).unwrap_or(0))
}

/// Waits for at most `limit` until a descriptor can be read (if `for_input`) or written (if
/// `for_room`), or has ended or failed. Returns whether it can be read, and whether it can be
/// written. Both are true of a descriptor that has ended or failed; the next read or write of it
/// then tells which.
///
/// # Errors
/// Never for a correct call, unless memory is short.
pub fn wait(
    fd: &impl AsFd,
    for_input: bool,
    for_room: bool,
    limit: Duration,
) -> io::Result<(bool, bool)> {
    let mut wish = PollFlags::empty();
    wish.set(PollFlags::IN, for_input);
    wish.set(PollFlags::OUT, for_room);
    let got = events(fd.as_fd(), wish, limit)?;
    let is_over = got.intersects(PollFlags::HUP | PollFlags::ERR);
    let can = |flag| got.contains(flag) || is_over;
    Ok((can(PollFlags::IN), can(PollFlags::OUT)))
}

/// A socket that holds back bytes that do not fill a segment, for 200 ms at most (`TCP_CORK`). When
/// this value is dropped, the socket gets its former options back. If the socket was not corked
/// before, the waiting bytes then leave at once, even where Nagle's rule would hold them back.
#[derive(Debug)]
pub struct FullSegments<'a, S: AsFd> {
    socket: &'a S,
    was_corked: bool,
    had_no_delay: bool,
}

impl<'a, S: AsFd> FullSegments<'a, S> {
    /// Begins to hold back segments that are not full.
    ///
    /// # Errors
    /// When the descriptor is no TCP socket.
    ///
    /// **Cost**: four system calls here, at most two when the value is dropped.
    pub fn begin(socket: &'a S) -> io::Result<Self> {
        let was_corked = sockopt::tcp_cork(socket)?;
        let had_no_delay = sockopt::tcp_nodelay(socket)?;
        sockopt::set_tcp_cork(socket, true)?;
        // Without this option, Nagle's rule would hold back a last small segment after the cork is
        // removed, until the peer acknowledges earlier segments, which the peer does with a delay.
        sockopt::set_tcp_nodelay(socket, true)?;
        Ok(Self {
            socket,
            was_corked,
            had_no_delay,
        })
    }
}

impl<S: AsFd> Drop for FullSegments<'_, S> {
    fn drop(&mut self) {
        if !self.was_corked {
            // This fails only for a descriptor that is no TCP socket, and `begin` has ruled that
            // out.
            let _pushed = sockopt::set_tcp_cork(self.socket, false);
        }
        if !self.had_no_delay {
            let _restored = sockopt::set_tcp_nodelay(self.socket, false);
        }
    }
}

const SIOCOUTQNSD: libc::Ioctl = 0x894B;
/// The most bytes that one call moves: 1 GiB, below the kernel's own limit of 2 GiB less a page.
const CALL_BYTES_MAX: usize = 1 << 30;

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::{Shutdown, TcpListener, TcpStream},
        thread,
        time::Instant,
    };

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (stream, listener.accept().unwrap().0)
    }

    fn settles(stream: &TcpStream, expected: u64) {
        let end = Instant::now() + Duration::from_secs(10);
        while unacknowledged_bytes(stream).unwrap() != expected {
            assert!(Instant::now() < end, "{:?}", unacknowledged_bytes(stream));
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn the_queue_empties_by_the_peers_kernel_alone_and_the_end_counts_as_one_byte() {
        let (mut stream, peer) = pair();
        assert_eq!(unacknowledged_bytes(&stream).unwrap(), 0);
        stream.write_all(&[7; 10_000]).unwrap();
        // The peer's application reads nothing, but its kernel acknowledges.
        settles(&stream, 0);
        assert_eq!(unsent_bytes(&stream).unwrap(), 0);
        stream.shutdown(Shutdown::Write).unwrap();
        settles(&stream, 0);
        drop(peer);
    }

    #[test]
    fn what_no_one_has_acknowledged_is_still_told_after_a_reset() {
        let (stream, peer) = pair();
        stream.set_nonblocking(true).unwrap();
        let (mut written, piece) = (0, vec![7; 65_536]);
        while let Ok(count) = write_pieces(&stream, &[IoSlice::new(&piece)]) {
            written += count as u64;
        }
        let queued = unacknowledged_bytes(&stream).unwrap();
        assert!(queued > 0 && queued < written, "{queued} of {written}");
        drop(peer);
        let (can_read, _) = wait(&stream, true, false, Duration::from_secs(10)).unwrap();
        assert!(can_read);
        assert!(write_pieces(&stream, &[IoSlice::new(b"x")]).is_err());
        let left = unacknowledged_bytes(&stream).unwrap();
        assert!(left > 0 && left <= queued, "{left} of {queued}");
    }

    #[test]
    fn a_pipe_goes_into_a_socket_and_its_end_is_told() {
        let (stream, mut peer) = pair();
        let (from, mut to) = io::pipe().unwrap();
        let empty = splice(&from, &stream, 100).unwrap_err();
        assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
        to.write_all(b"hello").unwrap();
        assert_eq!(splice(&from, &stream, 100).unwrap(), 5);
        drop(to);
        assert_eq!(splice(&from, &stream, 100).unwrap(), 0);
        let mut got = [0; 5];
        peer.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"hello");
        let neither = splice(&stream, &peer, 1).unwrap_err();
        assert_eq!(neither.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn full_segments_leave_the_options_of_the_socket_as_they_were() {
        let (stream, _peer) = pair();
        for (no_delay, cork) in [(false, false), (true, false), (false, true)] {
            stream.set_nodelay(no_delay).unwrap();
            sockopt::set_tcp_cork(&stream, cork).unwrap();
            let full = FullSegments::begin(&stream).unwrap();
            assert!(sockopt::tcp_cork(&stream).unwrap());
            drop(full);
            let after = (
                stream.nodelay().unwrap(),
                sockopt::tcp_cork(&stream).unwrap(),
            );
            assert_eq!(after, (no_delay, cork));
        }
    }
}
