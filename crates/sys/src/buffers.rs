//! The kernel memory that one socket uses, and its limits.

use std::{io, os::fd::AsFd};

use crate::call::int_options;

/// The buffers of one socket, in bytes of kernel memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketBuffers {
    /// Bytes that received data takes at this moment.
    pub receive_used_bytes: u32,
    /// The most bytes that received data may take.
    pub receive_bytes: u32,
    /// The most bytes that outgoing data may take.
    pub send_bytes: u32,
    /// Bytes that outgoing data takes at this moment.
    pub send_used_bytes: u32,
    /// Packets that were dropped at the socket.
    pub drops: u32,
}

impl SocketBuffers {
    /// Asks the kernel about a socket.
    ///
    /// # Errors
    /// On kernels before 4.12.
    ///
    /// **Spec**: [`SO_MEMINFO`](https://man7.org/linux/man-pages/man7/socket.7.html).
    ///
    /// **Cost**: one system call.
    pub fn of(socket: &impl AsFd) -> io::Result<Self> {
        let words = int_options::<WORDS>(socket.as_fd(), libc::SOL_SOCKET, libc::SO_MEMINFO)?;
        Ok(Self::from_words(words.map(i32::cast_unsigned)))
    }

    /// Reads the payload in which sock_diag describes a socket's memory. Fields that an older
    /// kernel leaves out are 0.
    pub(crate) fn parse(payload: &[u8]) -> Self {
        let mut words = payload.as_chunks::<4>().0.iter().copied();
        let next = |_| words.next().map_or(0, u32::from_ne_bytes);
        Self::from_words(std::array::from_fn(next))
    }

    const fn from_words(words: [u32; WORDS]) -> Self {
        Self {
            receive_used_bytes: words[libc::SK_MEMINFO_RMEM_ALLOC as usize],
            receive_bytes: words[libc::SK_MEMINFO_RCVBUF as usize],
            send_bytes: words[libc::SK_MEMINFO_SNDBUF as usize],
            send_used_bytes: words[libc::SK_MEMINFO_WMEM_QUEUED as usize],
            drops: words[libc::SK_MEMINFO_DROPS as usize],
        }
    }
}

/// Number of integers that the kernel reports: `SK_MEMINFO_VARS`.
const WORDS: usize = libc::SK_MEMINFO_DROPS as usize + 1;
