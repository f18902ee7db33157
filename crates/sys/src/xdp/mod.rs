//! XDP sockets (AF_XDP): frames taken off an interface before the rest of the kernel sees them.
//!
//! [`XdpRedirect`] is a program on the interface that hands each frame to the socket of the frame's
//! receive queue. [`XdpSocket`] is one such socket with its memory. **What is redirected is taken
//! away**: the host does not receive it.
//!
//! ```text
//! interface -> program: count, stamp, redirect ---> socket of queue 0 -- RX ring --> visit(frame)
//!                 \-- no socket: to the host    \-> socket of queue 1      chunk back: fill ring
//! ```
//!
//! Invariants: program, tables and sockets live by their descriptors alone, so nothing stays
//! behind, not even from a process that is killed. A chunk of the shared memory is either with the
//! kernel (in the fill ring, or being filled) or with this process (in the RX ring), never with
//! both. The kernel's description of a chunk is checked against the memory before it is used.
//!
//! **Spec**: Documentation/networking/af_xdp.rst, include/uapi/linux/if_xdp.h.

mod redirect;
pub use redirect::{XdpMode, XdpRedirect};

mod ring;

mod socket;
pub use socket::{XdpCopy, XdpDrops, XdpFrame, XdpSocket, XdpSpec};

#[cfg(test)]
mod tests;
