//! Packet sockets (packet(7)): whole frames of an interface, through rings shared with the kernel.
//!
//! [`PacketSocket`] is the socket with its options. A ring takes the socket over: [`BlockRing`]
//! (TPACKET_V3, packets packed into blocks: the cheapest), [`SlotRing`] (TPACKET_V2, a slot for
//! each packet: the lowest delay) and [`TransmitRing`]. A ring owns descriptor and mapping
//! together, so neither outlives the other. Receiving rings hand out a [`RawPacket`], which borrows
//! the ring's memory:
//!
//! ```text
//! kernel --copies--> | block 0 | block 1 | ... |   BlockRing::next_block -> Block -> RawPacket<'_>
//!                       ^ returned to the kernel when its Block is dropped
//! ```
//!
//! Invariants: a ring reads a block or slot only after the kernel has handed it over, and before
//! the ring returns it to the kernel. Every offset that the kernel wrote is checked against the
//! block before it is used. At most one block is handed out at a time. A packet cannot outlive its
//! block.
//!
//! **Spec**: Documentation/networking/packet_mmap.rst, include/uapi/linux/if_packet.h.

mod block_ring;
pub use block_ring::{Block, BlockRing, BlockRingSpec};

mod filter;
pub use filter::{FilterOp, STUB_LEN, keep_all};

mod frame;
pub use frame::{Checksum, Direction, GsoKind, Offload, RawPacket, StampSource};

mod slot_ring;
pub use slot_ring::{SlotGuard, SlotRing};

mod slots;

mod socket;
pub use socket::{Fanout, PacketSocket, Packets, SocketDrops, Stamping};

mod transmit_ring;
pub use transmit_ring::{TransmitRing, TransmitSlot};

#[cfg(test)]
mod tests;
