//! Repairs made from stored packets: the changes to a data packet that is sent again.

use wire::{
    Sqn, checksum,
    pgm::{Data, Header, PacketType},
};

/// Turns a stored packet into a repair: it gets the type RDATA, the present trail and a matching
/// checksum.
///
/// The new checksum follows from the old one and the changed fields, so the payload is not touched.
///
/// **Spec**: RFC 3208 section 8.2 (RD_TRAIL is the present trail); RFC 1624.
pub(crate) fn turn_into_rdata(head: &mut [u8; Data::HEAD_LEN], trail: Sqn) {
    let old_trail = read_u32(head, Data::TRAIL_AT);
    let old_type = read_u16(head, Header::TYPE_AT);
    let new_type = u16::from(PacketType::Rdata.code()) << 8 | old_type & 0xFF;
    if old_trail == trail.0 && old_type == new_type {
        return;
    }
    let check = read_u16(head, Header::CHECKSUM_AT);
    let check = checksum::adjust(check, old_type, new_type);
    let check = checksum::adjust_u32(check, old_trail, trail.0);
    write(head, Header::TYPE_AT, &new_type.to_be_bytes());
    write(head, Header::CHECKSUM_AT, &check.to_be_bytes());
    write(head, Data::TRAIL_AT, &trail.0.to_be_bytes());
}

const fn read_u16(head: &[u8; Data::HEAD_LEN], at: usize) -> u16 {
    u16::from_be_bytes([head[at], head[at + 1]])
}

const fn read_u32(head: &[u8; Data::HEAD_LEN], at: usize) -> u32 {
    u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
}

fn write<const N: usize>(head: &mut [u8; Data::HEAD_LEN], at: usize, bytes: &[u8; N]) {
    head[at..at + N].copy_from_slice(bytes);
}
