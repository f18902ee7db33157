//! The form that ZeroMQ gives messages in PGM packets. Nothing here reads or sends packets.
//!
//! ```text
//!   packet   u16 big-endian offset of the first message that begins here, or 0xFFFF | stream
//!   stream   frame frame ...      a frame goes on in the next packet where this one is full
//!   frame    length (u8, or 0xFF and u64 big-endian) of what follows | flags | a message's part
//! ```
//!
//! Bit 0 of the flags says that another part of the same message follows.
//!
//! Invariants, each held by property tests:
//! - without loss, [`Unframer`] gives the messages that [`Framer`] took;
//! - after a loss, it gives each message of which no packet was lost, and no other;
//! - no bytes make it panic, or hold more than the limit.

use std::collections::VecDeque;

/// Makes packets of messages, as many messages in a packet as it holds.
#[derive(Debug)]
pub(crate) struct Framer {
    packet_bytes: usize,
    /// The packet that is not full yet; empty when there is none.
    open: Vec<u8>,
    /// Packets to send, in order.
    pub(crate) packets: VecDeque<Vec<u8>>,
}

impl Framer {
    /// Makes packets of at most this many bytes.
    pub(crate) fn new(packet_bytes: usize) -> Self {
        Self {
            // An offset must be less than `NONE`, and a packet must hold something.
            packet_bytes: packet_bytes.clamp(OFFSET_BYTES + 1, usize::from(NONE)),
            open: Vec::new(),
            packets: VecDeque::new(),
        }
    }

    /// Takes a message. Its end stays in the open packet.
    pub(crate) fn push(&mut self, message: &[u8]) {
        self.open_packet();
        if self.open[..OFFSET_BYTES] == NONE.to_be_bytes() {
            let offset = (self.open.len() - OFFSET_BYTES) as u16;
            self.open[..OFFSET_BYTES].copy_from_slice(&offset.to_be_bytes());
        }
        let len = message.len() + 1;
        match u8::try_from(len).ok().filter(|len| *len < LONG) {
            Some(len) => self.append(&[len]),
            None => {
                self.append(&[LONG]);
                self.append(&(len as u64).to_be_bytes());
            }
        }
        self.append(&[0]);
        self.append(message);
    }

    /// Closes the open packet, because nothing may follow soon.
    pub(crate) fn flush(&mut self) {
        if !self.open.is_empty() {
            self.packets.push_back(std::mem::take(&mut self.open));
        }
    }

    fn open_packet(&mut self) {
        if self.open.is_empty() {
            self.open.reserve_exact(self.packet_bytes);
            self.open.extend_from_slice(&NONE.to_be_bytes());
        }
    }

    fn append(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            self.open_packet();
            let room = self.packet_bytes - self.open.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.open.extend_from_slice(now);
            bytes = later;
            if self.open.len() == self.packet_bytes {
                self.flush();
            }
        }
    }
}

/// Reads the messages out of one sender's packets.
#[derive(Debug)]
pub(crate) struct Unframer {
    message_bytes_max: usize,
    /// What the next byte is; `None` until a message begins.
    next: Option<Next>,
    /// What has come of the message.
    message: Vec<u8>,
}

/// What a byte of the stream is.
#[derive(Clone, Copy, Debug)]
enum Next {
    Length,
    /// A byte of a long length, of which `left` are to come.
    LongLength {
        so_far: u64,
        left: u8,
    },
    /// The flags of a part of so many bytes.
    Flags {
        bytes: usize,
    },
    /// A part, of which `left` bytes are to come.
    Part {
        left: usize,
        is_last: bool,
    },
}

/// A packet that contradicts the form, or a message that is longer than the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Misframed;

impl Unframer {
    /// Refuses messages longer than `message_bytes_max`, with a byte for each part after the first.
    pub(crate) const fn new(message_bytes_max: usize) -> Self {
        Self {
            message_bytes_max,
            next: None,
            message: Vec::new(),
        }
    }

    /// Takes the next packet, and gives each message that it completes. Of a message in parts, each
    /// part after the first follows a tab.
    ///
    /// # Errors
    /// When the packet is not in the form: the rest of it is left out, and reading goes on with the
    /// first message that begins in a later one.
    pub(crate) fn take(
        &mut self,
        packet: &[u8],
        mut give: impl FnMut(&[u8]),
    ) -> Result<(), Misframed> {
        let read = self.read(packet, &mut give);
        if read.is_err() {
            self.lose();
        }
        read
    }

    /// Forgets the message that has not come whole, because the packet that follows is lost.
    pub(crate) fn lose(&mut self) {
        self.next = None;
        self.message.clear();
    }

    fn read(&mut self, packet: &[u8], give: &mut impl FnMut(&[u8])) -> Result<(), Misframed> {
        let (offset, mut stream) = packet.split_first_chunk().ok_or(Misframed)?;
        let beginning = match u16::from_be_bytes(*offset) {
            NONE => None,
            offset => Some(stream.get(usize::from(offset)..).ok_or(Misframed)?),
        };
        if self.next.is_none() {
            let Some(beginning) = beginning else {
                return Ok(());
            };
            stream = beginning;
        }
        let mut next = self.next.unwrap_or(Next::Length);
        while let Some((&byte, rest)) = stream.split_first() {
            next = match next {
                Next::Part { left, is_last } => {
                    let (part, rest) = stream.split_at(left.min(stream.len()));
                    self.message.extend_from_slice(part);
                    stream = rest;
                    self.after(left - part.len(), is_last, give)
                }
                other => {
                    stream = rest;
                    match other {
                        Next::Flags { bytes } => self.after(bytes, byte & MORE == 0, give),
                        Next::LongLength { so_far, left } => {
                            let so_far = so_far << 8 | u64::from(byte);
                            match left - 1 {
                                0 => self.flags(so_far)?,
                                left => Next::LongLength { so_far, left },
                            }
                        }
                        _ if byte == LONG => Next::LongLength { so_far: 0, left: 8 },
                        _ => self.flags(byte.into())?,
                    }
                }
            };
        }
        self.next = Some(next);
        Ok(())
    }

    /// Returns what follows the length of a frame.
    fn flags(&self, len: u64) -> Result<Next, Misframed> {
        let bytes = len.checked_sub(1).ok_or(Misframed)?;
        let room = self.message_bytes_max.checked_sub(self.message.len());
        match usize::try_from(bytes) {
            Ok(bytes) if room.is_some_and(|room| bytes <= room) => Ok(Next::Flags { bytes }),
            _ => Err(Misframed),
        }
    }

    /// Returns what comes next when `left` bytes of a part are to come; gives the message when it
    /// is whole.
    fn after(&mut self, left: usize, is_last: bool, give: &mut impl FnMut(&[u8])) -> Next {
        if left > 0 {
            return Next::Part { left, is_last };
        }
        if is_last {
            give(&self.message);
            self.message.clear();
        } else {
            self.message.push(b'\t');
        }
        Next::Length
    }
}

/// The offset of a packet in which no message begins.
const NONE: u16 = 0xFFFF;
const OFFSET_BYTES: usize = 2;
/// Says that the length follows in 8 bytes.
const LONG: u8 = 0xFF;
/// The flag of a part that is not the last of its message.
const MORE: u8 = 1;

#[cfg(test)]
mod tests;
