//! Received messages in the buffers that `<pgm/skbuff.h>` describes.
//!
//! ```text
//!   one allocation:  Skb | PGM header 16 | data header 8 | message
//!                          ^ head                         ^ data    ^ tail  ... end
//! ```
//!
//! A program may keep a buffer beyond the next receive call. It then raises `users`, and frees the
//! buffer by `pgm_free_skb`, which is compiled into the program. So each buffer is an allocation of
//! its own, and whoever lets go last frees it.

use std::{
    ffi::c_void,
    ptr::{NonNull, null_mut},
    sync::atomic::{AtomicU32, Ordering},
};

use cabi::guard;

use crate::{
    abi::{Skb, Tsi},
    memory::{pgm_free, pgm_malloc},
};

/// A buffer that this library holds.
#[derive(Debug)]
pub(crate) struct Packet(NonNull<Skb>);

// SAFETY: the buffer belongs to whoever has this; the count of users is atomic.
unsafe impl Send for Packet {}

/// What a buffer says of its message besides its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About {
    pub(crate) tsi: Tsi,
    /// The data-destination port.
    pub(crate) port: u16,
    pub(crate) sequence: u32,
    pub(crate) micros: u64,
}

impl Packet {
    /// Makes an empty buffer with room for a message of `bytes` bytes.
    pub(crate) fn new(bytes: usize) -> Self {
        let capacity = HEAD_BYTES + bytes;
        let memory = pgm_malloc(size_of::<Skb>() + capacity);
        let place = NonNull::new(memory.cast::<Skb>()).expect("running out of memory ends");
        let start = memory.wrapping_byte_add(size_of::<Skb>()).cast::<u8>();
        let data = start.wrapping_add(HEAD_BYTES);
        let skb = Skb {
            link: [null_mut(); 3],
            sock: null_mut::<c_void>(),
            tstamp: 0,
            tsi: Tsi::default(),
            sequence: 0,
            padding: 0,
            control: [0; 48],
            len: 0,
            flags: [0; 3],
            header: start,
            fragment: null_mut(),
            pgmcc: null_mut(),
            data_header: start.wrapping_add(PGM_HEADER_BYTES),
            head: start,
            data,
            tail: data,
            end: start.wrapping_add(capacity),
            true_size: (size_of::<Skb>() + capacity) as u32,
            users: AtomicU32::new(1),
        };
        // SAFETY: the allocation is large enough, and aligned as malloc aligns.
        unsafe { place.write(skb) };
        Self(place)
    }

    /// Puts a message into a buffer that has room for it, in place of an earlier message.
    pub(crate) fn fill(&mut self, about: &About, message: &[u8]) {
        let skb = self.skb_mut();
        let capacity = skb.end.addr() - skb.head.addr();
        assert!(
            HEAD_BYTES + message.len() <= capacity,
            "the caller chose it by its room"
        );
        let head = headers(about, message.len() as u16);
        // The buffer's bytes may never have been written, so there can be no slice of them yet.
        // SAFETY: the buffer holds headers and message, is this library's while nobody else uses
        // it, and overlaps neither source.
        unsafe { skb.head.copy_from_nonoverlapping(head.as_ptr(), HEAD_BYTES) };
        let body = skb.head.wrapping_add(HEAD_BYTES);
        // SAFETY: as above.
        unsafe { body.copy_from_nonoverlapping(message.as_ptr(), message.len()) };
        skb.tstamp = about.micros;
        skb.tsi = about.tsi;
        skb.sequence = about.sequence;
        skb.len = message.len() as u16;
        skb.flags = [0; 3];
        skb.data = skb.head.wrapping_add(HEAD_BYTES);
        skb.tail = skb.data.wrapping_add(message.len());
    }

    /// Makes the buffer that tells of a loss: how many packets of which session are missing.
    pub(crate) fn of_loss(tsi: Tsi, count: u64, micros: u64) -> Self {
        let mut packet = Self::new(0);
        let skb = packet.skb_mut();
        skb.tsi = tsi;
        skb.sequence = u32::try_from(count).unwrap_or(u32::MAX);
        skb.tstamp = micros;
        packet
    }

    /// Names the socket that received the message.
    pub(crate) fn set_sock(&mut self, sock: *const c_void) {
        self.skb_mut().sock = sock;
    }

    pub(crate) fn message(&self) -> &[u8] {
        let skb = self.skb();
        // SAFETY: `fill` has written `skb.len` bytes there, and the program may only read them.
        unsafe { std::slice::from_raw_parts(skb.data, skb.len.into()) }
    }

    pub(crate) fn tsi(&self) -> Tsi {
        self.skb().tsi
    }

    /// Returns true when there is room for a message of `bytes` bytes.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        let skb = self.skb();
        HEAD_BYTES + bytes <= skb.end.addr() - skb.head.addr()
    }

    /// Returns true when the program has not kept the buffer, so that it may be filled again.
    pub(crate) fn is_ours(&self) -> bool {
        self.skb().users.load(Ordering::Acquire) == 1
    }

    /// Returns the pointer that the program gets. This library still holds the buffer.
    pub(crate) const fn pointer(&self) -> *mut Skb {
        self.0.as_ptr()
    }

    /// Gives the program a share in the buffer, which the program then frees. The memory stays
    /// while this library holds the buffer, too.
    pub(crate) fn share(&self) -> *mut Skb {
        self.skb().users.fetch_add(1, Ordering::AcqRel);
        self.0.as_ptr()
    }

    /// Returns how much memory the buffer takes, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.skb().true_size as usize
    }

    fn skb(&self) -> &Skb {
        // SAFETY: it was initialised, and lives while this does.
        unsafe { self.0.as_ref() }
    }

    fn skb_mut(&mut self) -> &mut Skb {
        // SAFETY: it was initialised, and the caller is the only one who has it.
        unsafe { self.0.as_mut() }
    }
}

impl Drop for Packet {
    fn drop(&mut self) {
        if self.skb().users.fetch_sub(1, Ordering::AcqRel) == 1 {
            pgm_free(self.0.as_ptr().cast());
        }
    }
}

/// Returns the headers that a packet with this message has, because programs look at them.
fn headers(about: &About, len: u16) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..2].copy_from_slice(&about.tsi.sport.to_ne_bytes());
    head[2..4].copy_from_slice(&about.port.to_be_bytes());
    head[4] = TYPE_ODATA;
    head[8..14].copy_from_slice(&about.tsi.gsi.0);
    head[14..16].copy_from_slice(&len.to_be_bytes());
    head[16..20].copy_from_slice(&about.sequence.to_be_bytes());
    head
}

#[unsafe(no_mangle)]
extern "C" fn pgm_skb_over_panic(_skb: *const Skb, _len: u16) -> ! {
    std::process::abort()
}

#[unsafe(no_mangle)]
extern "C" fn pgm_skb_under_panic(_skb: *const Skb, _len: u16) -> ! {
    std::process::abort()
}

/// Returns true when the buffer's pointers are in order.
#[unsafe(no_mangle)]
extern "C" fn pgm_skb_is_valid(skb: Option<&Skb>) -> bool {
    guard(false, || {
        skb.is_some_and(|skb| {
            let (head, data) = (skb.head.addr(), skb.data.addr());
            let (tail, end) = (skb.tail.addr(), skb.end.addr());
            head != 0
                && head <= data
                && data <= tail
                && tail <= end
                && usize::from(skb.len) == tail - data
                && skb.true_size as usize >= size_of::<Skb>() + skb.len as usize
                && skb.users.load(Ordering::Relaxed) > 0
        })
    })
}

/// Returns the number of bytes in front of a message in its packet: the headers, and the options of
/// a fragment and of PGMCC. Programs that fill buffers for `pgm_send_skbv` leave this room.
#[unsafe(no_mangle)]
extern "C" fn pgm_pkt_offset(can_fragment: bool, pgmcc_family: u16) -> usize {
    let fragment = if can_fragment { FRAGMENT_BYTES } else { 0 };
    let pgmcc = match pgmcc_family.into() {
        libc::AF_INET => 13,
        libc::AF_INET6 => 25,
        _ => 0,
    };
    let heads = if can_fragment || pgmcc_family != 0 {
        OPTION_HEADS_BYTES
    } else {
        0
    };
    HEAD_BYTES + heads + fragment + pgmcc
}

const TYPE_ODATA: u8 = 0x04;
pub(crate) const PGM_HEADER_BYTES: usize = 16;
pub(crate) const DATA_HEADER_BYTES: usize = 8;
/// The bytes of both headers of a data packet.
const HEAD_BYTES: usize = PGM_HEADER_BYTES + DATA_HEADER_BYTES;
/// The bytes of a fragment's option without its head, and of the option that has the length of all
/// with the head of the next one. OpenPGM counts one head, also before two options.
const FRAGMENT_BYTES: usize = 13;
const OPTION_HEADS_BYTES: usize = 4 + 3;

#[cfg(test)]
mod tests {
    use super::*;

    const ABOUT: About = About {
        tsi: Tsi {
            gsi: crate::abi::Gsi([1, 2, 3, 4, 5, 6]),
            sport: 4711_u16.to_be(),
        },
        port: 7500,
        sequence: 0x0102_0304,
        micros: 9,
    };

    #[test]
    fn a_buffer_holds_a_message_and_its_headers() {
        let mut packet = Packet::new(10);
        packet.fill(&ABOUT, b"a longer m");
        packet.fill(&ABOUT, b"message");
        assert_eq!(packet.message(), b"message");
        assert!(packet.has_room(10) && !packet.has_room(11));
        // SAFETY: the packet lives.
        assert!(pgm_skb_is_valid(Some(unsafe { &*packet.pointer() })));
        let head = headers(&ABOUT, 7);
        // SAFETY: `fill` has written them.
        let written = unsafe { std::slice::from_raw_parts(packet.skb().head, HEAD_BYTES) };
        assert_eq!(written, head);
        let sent = [
            0x12, 0x67, 0x1d, 0x4c, 4, 0, 0, 0, 1, 2, 3, 4, 5, 6, 0, 7, 1, 2, 3, 4,
        ];
        assert_eq!(head[..20], sent);
    }

    #[test]
    fn what_a_program_was_given_a_share_of_stays_after_it_has_freed_it() {
        let packet = Packet::of_loss(ABOUT.tsi, 7, 9);
        let given = packet.share();
        assert!(!packet.is_ours());
        // As `pgm_free_skb` does, which is compiled into programs. ZeroMQ reads on after that.
        // SAFETY: the packet lives.
        let users = unsafe { &(*given).users };
        assert_eq!(users.fetch_sub(1, Ordering::AcqRel), 2);
        // SAFETY: this library has it still.
        assert_eq!(unsafe { (*given).tsi }.sport, ABOUT.tsi.sport);
        assert!(packet.is_ours());
    }

    #[test]
    fn a_program_may_keep_it() {
        let packet = Packet::new(1);
        let pointer = packet.pointer();
        // SAFETY: the packet lives.
        unsafe { &*pointer }.users.fetch_add(1, Ordering::Relaxed);
        assert!(!packet.is_ours());
        drop(packet);
        let kept = Packet(NonNull::new(pointer).unwrap());
        assert!(kept.is_ours());
    }
}
