//! Sends a file into a TCP connection of the caller's.

use std::{
    ffi::{c_int, c_void},
    fs::File,
    mem::{ManuallyDrop, MaybeUninit},
    os::fd::{BorrowedFd, FromRawFd as _},
};

use cabi::give;
use towline::transmit_file;

use crate::outcome::{Failure, Outcome, attempt};

/// Writes head, then bytes bytes of a file from at on, then tail into a connected TCP socket, in
/// full segments: no small one waits for an acknowledgement that the peer delays. head and tail may
/// be NULL when their lengths are 0. It waits for room, also when the socket does not block, and
/// leaves both descriptors and the options of the socket as they were. written, which may be NULL,
/// gets the number of bytes that the socket has taken, also after TOWLINE_SYSTEM: the connection
/// broke, or the file was shorter. Ignore SIGPIPE.
#[unsafe(no_mangle)]
extern "C" fn towline_transmit_file(
    socket: c_int,
    head: *const c_void,
    head_len: usize,
    file: c_int,
    at: u64,
    bytes: u64,
    tail: *const c_void,
    tail_len: usize,
    written: Option<&mut MaybeUninit<u64>>,
) -> Outcome {
    attempt(|| {
        if let Some((what, fd)) = [("socket", socket), ("file", file)]
            .into_iter()
            .find(|(_, fd)| *fd < 0)
        {
            let text =
                format!("the descriptor of the {what} is negative ({fd}): open the {what} first");
            return Err(Failure::new(Outcome::Invalid, text));
        }
        let end = at.checked_add(bytes).ok_or_else(|| {
            let text = format!(
                "cannot send {bytes} bytes of a file from position {at}: no file reaches that far; \
                 check both numbers"
            );
            Failure::new(Outcome::Invalid, text)
        })?;
        let [head, tail] = [(head, head_len, "the head"), (tail, tail_len, "the tail")].map(
            |(data, len, what)| match len {
                0 => Ok(&[][..]),
                len => {
                    // SAFETY: the header says that `len` bytes are there.
                    let there = unsafe { cabi::bytes(data, len) };
                    there.ok_or_else(|| Failure::no_room(what, data))
                }
            },
        );
        // SAFETY: the header says that the socket is open, and stays open for the call.
        let socket = unsafe { BorrowedFd::borrow_raw(socket) };
        // SAFETY: the header says the same of the file. The file is the caller's, so it is not
        // closed here.
        let file = ManuallyDrop::new(unsafe { File::from_raw_fd(file) });
        match transmit_file(&socket, head?, &file, at..end, tail?) {
            Ok(count) => {
                give(written, count);
                Ok(Outcome::Ok)
            }
            Err(error) => {
                let text = error.to_string();
                give(written, error.written_bytes);
                Err(Failure::new(Outcome::System, text))
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read as _,
        net::{TcpListener, TcpStream},
        os::fd::AsRawFd as _,
        ptr::null,
    };

    use super::*;

    #[test]
    fn head_file_and_tail_go_out_and_the_descriptors_stay_the_callers() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        let path = "Cargo.toml";
        let (file, content) = (File::open(path).unwrap(), std::fs::read(path).unwrap());
        let (socket, from) = (stream.as_raw_fd(), file.as_raw_fd());
        let (head, tail) = (b"head".as_ptr().cast(), b"tail".as_ptr().cast());
        let mut written = MaybeUninit::new(0);
        let at = Some(&mut written);
        let outcome = towline_transmit_file(socket, head, 4, from, 4, 11, tail, 4, at);
        assert_eq!(outcome, Outcome::Ok);
        // SAFETY: it was initialised.
        assert_eq!(unsafe { written.assume_init() }, 19);
        let mut got = [0; 19];
        peer.read_exact(&mut got).unwrap();
        assert_eq!(got[..], [b"head", &content[4..15], b"tail"].concat());
        let mut written = MaybeUninit::new(9);
        let at = Some(&mut written);
        let outcome = towline_transmit_file(socket, null(), 0, from, 1 << 40, 1, null(), 0, at);
        assert_eq!(outcome, Outcome::System);
        // SAFETY: it was initialised.
        assert_eq!(unsafe { written.assume_init() }, 0);
        for (socket, head_len) in [(-1, 0), (socket, 1)] {
            let outcome =
                towline_transmit_file(socket, null(), head_len, from, 0, 1, null(), 0, None);
            assert_eq!(outcome, Outcome::Invalid);
        }
        assert!(file.metadata().is_ok() && stream.nodelay().is_ok());
    }
}
