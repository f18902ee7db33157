//! Makes a ring of packet slots that a socket shares with the kernel, to receive or to send.

use std::{io, os::fd::BorrowedFd};

use crate::{call::set_option, mapping::Mapping};

/// Gives the socket a ring of at least `bytes` bytes and `slots_least` slots. A slot has
/// `slot_bytes` bytes, a power of two; `direction` is `PACKET_RX_RING` or `PACKET_TX_RING`. Returns
/// the ring's memory and the number of slots.
///
/// # Errors
/// ENOMEM when the kernel has no room for the ring; EINVAL beyond 4 GiB.
pub(super) fn make_slots(
    fd: BorrowedFd<'_>,
    direction: libc::c_int,
    bytes: usize,
    slot_bytes: usize,
    slots_least: usize,
) -> io::Result<(Mapping, usize)> {
    let block_bytes = slot_bytes.max(BLOCK_BYTES_LEAST);
    let bytes = bytes.max(slots_least * slot_bytes);
    let blocks = bytes.div_ceil(block_bytes).max(1);
    let slots = blocks * (block_bytes / slot_bytes);
    let too_large = |_| io::Error::from_raw_os_error(libc::EINVAL);
    let request = libc::tpacket_req {
        tp_block_size: u32::try_from(block_bytes).map_err(too_large)?,
        tp_block_nr: u32::try_from(blocks).map_err(too_large)?,
        tp_frame_size: u32::try_from(slot_bytes).map_err(too_large)?,
        tp_frame_nr: u32::try_from(slots).map_err(too_large)?,
    };
    set_option(fd, libc::SOL_PACKET, direction, &request)?;
    Ok((Mapping::new(fd, block_bytes * blocks)?, slots))
}

/// The least length of a block in bytes: a page.
const BLOCK_BYTES_LEAST: usize = 4096;
