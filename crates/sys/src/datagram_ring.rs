//! Datagrams through the kernel's rings of requests and completions (`io_uring`).
//!
//! ```text
//!   send()    --> [request] --> kernel --> [completion] --> an error is kept; its slot is free
//!   receive() --> [request] . . waits in the kernel . . --> [completion] --> the caller's room
//! ```
//! One receive is under way at a time, so that datagrams come in their order. Shared memory shows
//! whether the receive is done: a spinning thread makes no system call before a request has
//! completed.
//!
//! Only raw pointers reach memory that the kernel may still write to. Dropping the ring waits for
//! the requests that are under way, for about a second at most. If all have completed by then,
//! their memory is freed; otherwise the memory of all requests is leaked.
//!
//! **Source**: `io_uring(7)`. Waits with a time limit need Linux 5.11.

use std::{
    fmt, io,
    os::fd::{AsRawFd as _, BorrowedFd, OwnedFd},
    ptr::NonNull,
    time::Duration,
};

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use libc::{iovec, msghdr};

use crate::RawAddress;

/// A socket whose datagrams go through rings.
pub struct DatagramRing {
    ring: IoUring,
    from: OwnedFd,
    to: OwnedFd,
    receiving: Request,
    is_receiving: bool,
    /// The result of the last receive, until the caller takes it.
    received: Option<io::Result<usize>>,
    sending: Vec<Request>,
    /// Indexes in `sending` of the requests that are not under way.
    free: Vec<usize>,
    /// The error of a send, until the caller takes it.
    failed: Option<io::Error>,
}

/// The memory of one request; it does not move until the request is done.
struct Request(NonNull<Parts>);

/// The memory that a request's pointers point to.
struct Parts {
    header: msghdr,
    vector: iovec,
    address: RawAddress,
    room: Vec<u8>,
}

// SAFETY: a request alone owns its memory, and nothing in that memory is tied to a thread.
unsafe impl Send for Request {}

impl fmt::Debug for DatagramRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatagramRing")
            .field("from", &self.from)
            .field("to", &self.to)
            .field("is_receiving", &self.is_receiving)
            .finish_non_exhaustive()
    }
}

impl DatagramRing {
    /// Makes rings over two sockets, which may be one and the same: `from` receives and must be
    /// blocking ([`crate::datagram::set_blocking`]), `to` sends. A datagram longer than
    /// `room_bytes` is refused when it is sent, and cut short when it is received.
    ///
    /// # Errors
    /// `ENOSYS` on old kernels, `EPERM` where `kernel.io_uring_disabled` or a filter of system
    /// calls forbids rings.
    pub fn new(from: BorrowedFd<'_>, to: BorrowedFd<'_>, room_bytes: usize) -> io::Result<Self> {
        // From Linux 5.19 on, completions can wait until this thread makes a system call, and a
        // flag shows that some wait. An older kernel interrupts this thread for each completion.
        let ring = IoUring::builder()
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .build(ENTRIES)
            .or_else(|_| IoUring::new(ENTRIES))?;
        if !ring.params().is_feature_ext_arg() {
            return Err(io::Error::from_raw_os_error(libc::ENOSYS));
        }
        Ok(Self {
            ring,
            from: from.try_clone_to_owned()?,
            to: to.try_clone_to_owned()?,
            receiving: Request::new(room_bytes),
            is_receiving: false,
            received: None,
            sending: (0..SENDS_MAX).map(|_| Request::new(room_bytes)).collect(),
            free: (0..SENDS_MAX).collect(),
            failed: None,
        })
    }

    /// Takes a datagram into `room`, without waiting, and writes its sender into `source`.
    ///
    /// # Errors
    /// `WouldBlock` when no datagram is there; errors that the socket reports, such as
    /// `ECONNREFUSED`.
    pub fn receive(&mut self, room: &mut [u8], source: &mut RawAddress) -> io::Result<usize> {
        if !self.is_receiving && self.received.is_none() {
            self.ask()?;
        }
        self.collect();
        let len = self.received.take().ok_or(io::ErrorKind::WouldBlock)??;
        let parts = self.receiving.0.as_ptr();
        // SAFETY: the receive is done (`received` was there), so nobody else reaches the memory;
        // `self` is exclusively borrowed.
        let parts = unsafe { &mut *parts };
        let len = len.min(room.len()).min(parts.room.len());
        room[..len].copy_from_slice(&parts.room[..len]);
        *parts.address.len_mut() = parts.header.msg_namelen;
        *source = parts.address;
        Ok(len)
    }

    /// Sends a datagram to `to` or, when that is `None`, to the peer of a connected socket.
    ///
    /// # Errors
    /// `WouldBlock` when 16 sends are under way; otherwise the error of this send or of an earlier
    /// one.
    pub fn send(&mut self, to: Option<&RawAddress>, bytes: &[u8]) -> io::Result<()> {
        self.collect();
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let Some(&slot) = self.free.last() else {
            return Err(io::ErrorKind::WouldBlock.into());
        };
        let header = self.sending[slot].fill_send(to, bytes)?;
        let entry = opcode::SendMsg::new(types::Fd(self.to.as_raw_fd()), header)
            .flags(libc::MSG_NOSIGNAL as u32)
            .build()
            .user_data(slot as u64);
        self.push(&entry)?;
        self.free.pop();
        self.ring.submit()?;
        // A datagram usually leaves at once. So this call can usually return the datagram's own
        // error.
        self.collect();
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Returns true when a receive has brought a datagram or an error. Reads shared memory, and
    /// makes a system call only when the kernel says there that completions wait for this thread.
    pub fn has_received(&mut self) -> bool {
        self.collect();
        self.received.is_some()
    }

    /// Waits for at most `limit` until a datagram or an error has come. A signal, or a send that
    /// completes, can end the wait sooner.
    ///
    /// # Errors
    /// Never in practice.
    pub fn wait(&mut self, limit: Duration) -> io::Result<()> {
        if !self.is_receiving && self.received.is_none() {
            self.ask()?;
        }
        self.collect();
        if self.received.is_some() || self.failed.is_some() {
            return Ok(());
        }
        let limit = types::Timespec::from(limit);
        let args = types::SubmitArgs::new().timespec(&limit);
        match self.ring.submitter().submit_with_args(1, &args) {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                Some(libc::ETIME | libc::EINTR) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// Makes the kernel receive the next datagram.
    fn ask(&mut self) -> io::Result<()> {
        let header = self.receiving.fill_receive();
        let entry = opcode::RecvMsg::new(types::Fd(self.from.as_raw_fd()), header)
            .build()
            .user_data(RECEIVE);
        self.push(&entry)?;
        self.is_receiving = true;
        self.ring.submit()?;
        Ok(())
    }

    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: the memory that the entry points to, if any, belongs to a request that is not
        // under way. That memory stays where it is. Until the request's completion was seen, this
        // process does not read, write or free it.
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.map_err(|_| io::ErrorKind::WouldBlock.into())
    }

    /// Notes the requests that have completed.
    fn collect(&mut self) {
        while let Some(entry) = self.completion() {
            let result = match entry.result() {
                code @ 0.. => Ok(code.unsigned_abs() as usize),
                code => Err(io::Error::from_raw_os_error(-code)),
            };
            match entry.user_data() {
                RECEIVE => {
                    self.is_receiving = false;
                    self.received = Some(result);
                }
                CANCEL => {}
                slot => {
                    self.free.push(slot as usize);
                    self.failed = result.err().or(self.failed.take());
                }
            }
        }
    }

    fn completion(&mut self) -> Option<cqueue::Entry> {
        let done = self.ring.completion().next();
        if done.is_some() || !self.ring.submission().taskrun() {
            return done;
        }
        // Any system call, even one that fails, makes the kernel finish the completions that wait
        // for this thread. So a failure does not matter.
        let _entered = self.ring.submit();
        self.ring.completion().next()
    }

    /// Returns true when the kernel may still touch a request's memory.
    fn is_under_way(&self) -> bool {
        self.is_receiving || self.free.len() < self.sending.len()
    }
}

impl Drop for DatagramRing {
    fn drop(&mut self) {
        let entry = opcode::AsyncCancel::new(RECEIVE).build().user_data(CANCEL);
        if self.is_receiving && self.push(&entry).is_err() {
            return;
        }
        for _ in 0..ROUNDS_MAX {
            self.collect();
            if !self.is_under_way() {
                break;
            }
            let limit = types::Timespec::from(CANCEL_TIME);
            let args = types::SubmitArgs::new().timespec(&limit);
            // A failure does not matter: each round waits at most CANCEL_TIME, and there are at
            // most ROUNDS_MAX rounds.
            let _waited = self.ring.submitter().submit_with_args(1, &args);
        }
        if self.is_under_way() {
            return;
        }
        for request in self.sending.drain(..) {
            request.free();
        }
        std::mem::replace(&mut self.receiving, Request(NonNull::dangling())).free();
    }
}

impl Request {
    fn new(room_bytes: usize) -> Self {
        // SAFETY: a C structure of integers and raw pointers; all zero is a valid value.
        let header = unsafe { std::mem::zeroed() };
        let parts = Box::new(Parts {
            header,
            vector: iovec {
                iov_base: std::ptr::null_mut(),
                iov_len: 0,
            },
            address: RawAddress::empty(),
            room: vec![0; room_bytes],
        });
        Self(NonNull::from(Box::leak(parts)))
    }

    fn fill_receive(&mut self) -> *mut msghdr {
        let parts = self.parts();
        parts.address = RawAddress::empty();
        let name_len = *parts.address.len_mut();
        let room_len = parts.room.len();
        self.point(name_len, room_len)
    }

    fn fill_send(&mut self, to: Option<&RawAddress>, bytes: &[u8]) -> io::Result<*const msghdr> {
        let parts = self.parts();
        let room = parts.room.get_mut(..bytes.len());
        let room = room.ok_or_else(|| io::Error::from_raw_os_error(libc::EMSGSIZE))?;
        room.copy_from_slice(bytes);
        parts.address = to.copied().unwrap_or_else(RawAddress::empty);
        let name_len = to.map_or(0, RawAddress::len);
        Ok(self.point(name_len, bytes.len()))
    }

    /// Points the message header at this request's memory, and returns a pointer to the header.
    /// With `name_len` 0 the message has no address.
    fn point(&mut self, name_len: libc::socklen_t, room_len: usize) -> *mut msghdr {
        let parts = self.parts();
        parts.vector.iov_base = parts.room.as_mut_ptr().cast();
        parts.vector.iov_len = room_len;
        let vector = &raw mut parts.vector;
        parts.header.msg_name = if name_len == 0 {
            std::ptr::null_mut()
        } else {
            parts.address.as_mut_ptr().cast()
        };
        parts.header.msg_namelen = name_len;
        parts.header.msg_iov = vector;
        parts.header.msg_iovlen = 1;
        &raw mut parts.header
    }

    /// Returns the request's memory. The request must not be under way.
    fn parts(&mut self) -> &mut Parts {
        // SAFETY: `new` allocated the memory, and only `free` frees it, which takes the request by
        // value. The callers fill a request only when the kernel has no pointer to its memory any
        // more.
        unsafe { self.0.as_mut() }
    }

    /// Frees the memory. The request must not be under way.
    fn free(self) {
        // SAFETY: the memory came out of a box in `new`. It is freed once, because `self` is taken
        // by value. The kernel has no pointer to it any more.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// The most requests that may wait to be submitted.
const ENTRIES: u32 = 64;
/// The most sends under way at a time.
const SENDS_MAX: usize = 16;
/// The `user_data` values of requests other than sends. A send has its index in `sending` there.
const RECEIVE: u64 = u64::MAX;
const CANCEL: u64 = u64::MAX - 1;
/// Limits for `drop`, which waits for the requests under way: the longest time of one wait, and the
/// number of waits.
const CANCEL_TIME: Duration = Duration::from_millis(50);
const ROUNDS_MAX: usize = 20;

#[cfg(test)]
mod tests;
