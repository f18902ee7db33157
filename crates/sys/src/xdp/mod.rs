//! XDP sockets (AF_XDP): frames taken off an interface before the rest of the kernel sees them.
//!
//! [`XdpRedirect`] is a program on the interface that hands each frame to the socket of the frame's
//! receive queue. [`XdpSocket`] is one such socket with its memory. **A redirected frame is taken
//! away**: the host does not receive it.
//!
//! ```text
//! interface -> program: count, stamp, redirect ---> socket of queue 0 -- RX ring --> visit(frame)
//!                 \-- no socket: to the host    \-> socket of queue 1      chunk back: fill ring
//! ```
//!
//! Invariants: the kernel drops program, tables and sockets when their descriptors are closed, so
//! nothing stays behind, even from a process that is killed. A chunk of the shared memory is either
//! with the kernel (in the fill ring, or being filled) or with this process (in the RX ring), never
//! with both. The offset and length that the kernel gives for a frame are checked against the
//! bounds of the memory before the frame is read.
//!
//! **Spec**: Documentation/networking/af_xdp.rst, include/uapi/linux/if_xdp.h.

mod redirect;
pub use redirect::{XdpMode, XdpRedirect};

mod ring;

mod socket;
pub use socket::{XdpCopy, XdpDrops, XdpFrame, XdpSocket, XdpSpec};

#[cfg(test)]
mod tests;
