//! The program on the interface: a stamp, a count, and a redirection to the socket of the queue.
//!
//! ```text
//! queue >= queues?  --------------------------------> count as passed, to the host
//! write the clock in front of the frame (where the driver leaves room)
//! redirect to sockets[queue], or to the host ---none-> take the stamp off, count as passed
//! count as redirected, for the queue
//! ```
//! The program itself counts every frame, because the sockets count only frames that they drop, and
//! nothing else counts the frames that they receive.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    sync::atomic::Ordering,
};

use super::XdpSocket;
use crate::{
    bpf::{self, Instruction, Map},
    mapping::Mapping,
};

/// The place in the kernel where the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver, before the kernel makes a packet of its own from the frame.
    Native,
    /// Behind the driver, on each packet that the kernel has made; this works with every driver.
    Generic,
}

/// The program with its tables, and its attachment to an interface.
#[derive(Debug)]
pub struct XdpRedirect {
    // Dropped first, so that no frame is redirected while the other fields are dropped.
    link: Option<OwnedFd>,
    program: OwnedFd,
    sockets: Map,
    counters: Mapping,
    queues: u32,
}

impl XdpRedirect {
    /// Makes the kernel check and accept the program, for an interface of `queues` receive queues.
    ///
    /// # Errors
    /// EPERM without CAP_BPF and CAP_NET_ADMIN (CAP_SYS_ADMIN before Linux 5.8) in the machine's
    /// initial user namespace; EINVAL for a kernel that is too old (before 5.9) or has no XDP
    /// sockets.
    pub fn load(queues: u32) -> io::Result<Self> {
        let too_many = || io::Error::from(io::ErrorKind::InvalidInput);
        let queues = queues.clamp(1, QUEUES_MAX);
        let bytes = (queues + 1).checked_mul(LINE_BYTES).ok_or_else(too_many)?;
        let (sockets, counters) = (Map::sockets(queues)?, Map::shared(bytes)?);
        let instructions = program(&sockets, &counters, queues);
        // Linux before 5.18 refuses the flag for frames in several pieces. The program is then
        // loaded without the flag, and a driver whose MTU is large refuses to attach it.
        let program =
            bpf::load(&instructions, HAS_PIECES).or_else(|_too_old| bpf::load(&instructions, 0))?;
        Ok(Self {
            link: None,
            program,
            sockets,
            counters: counters.mapping(bytes as usize)?,
            queues,
        })
    }

    /// Attaches the program to an interface, until it is detached or dropped, or the process ends.
    /// Until sockets are added, frames go on to the host.
    ///
    /// # Errors
    /// EBUSY or EEXIST when another program is there; for [`XdpMode::Native`] also EOPNOTSUPP,
    /// ERANGE and others from the driver.
    pub fn attach(&mut self, interface: u32, mode: XdpMode) -> io::Result<()> {
        let flags = match mode {
            XdpMode::Native => IN_DRIVER,
            XdpMode::Generic => BEHIND_DRIVER,
        };
        self.link = Some(bpf::link(self.program.as_fd(), interface, flags)?);
        Ok(())
    }

    /// Sends frames of `queue` to `socket` from now on; the socket must be bound to that queue.
    ///
    /// # Errors
    /// E2BIG for a queue that the program was not made for.
    pub fn add(&self, queue: u32, socket: &XdpSocket) -> io::Result<()> {
        self.sockets.put(queue, socket.as_fd())
    }

    /// Detaches the program from its interface: frames go to the host again.
    pub fn detach(&mut self) {
        self.link = None;
    }

    /// Returns the number of frames that the program redirected to sockets; those that the sockets
    /// dropped are among them.
    #[must_use]
    pub fn redirected(&self) -> u64 {
        (0..self.queues).map(|queue| self.counter(queue)).sum()
    }

    /// Returns the number of frames that went to the host, because their queue had no socket.
    #[must_use]
    pub fn passed(&self) -> u64 {
        self.counter(self.queues)
    }

    fn counter(&self, line: u32) -> u64 {
        let word = self.counters.long_word((line * LINE_BYTES) as usize);
        word.load(Ordering::Relaxed)
    }
}

/// Returns the program that the module's drawing shows. r6 has the address of the frame's
/// `struct xdp_md`, r7 the number of its queue.
fn program(sockets: &Map, counters: &Map, queues: u32) -> Vec<Instruction> {
    let [take_sockets, rest_of_sockets] = load_map(1, sockets, OF_MAP, 0);
    let [take_counts, rest_of_counts] = load_map(1, counters, OF_VALUE, 0);
    let passed_at = (queues * LINE_BYTES).cast_signed();
    let [take_passed, rest_of_passed] = load_map(1, counters, OF_VALUE, passed_at);
    let queues = queues.cast_signed();
    vec![
        copy(6, 1),
        load(7, 6, QUEUE_AT),
        jump(GREATER_OR_EQUAL, 7, queues, 27),
        // Makes room for the stamp: eight bytes in front of the frame.
        copy(1, 6),
        set(2, -STAMP_LEN),
        call(ADJUST_META),
        jump(NOT_EQUAL, 0, 0, 7),
        call(KTIME_GET_NS),
        load(2, 6, DATA_AT),
        load(1, 6, META_AT),
        copy(3, 1),
        add(3, STAMP_LEN),
        jump_greater(3, 2, 1),
        store(1, 0),
        // Redirects to the socket of the queue, or to the host when there is none.
        take_sockets,
        rest_of_sockets,
        copy(2, 7),
        set(3, PASS),
        call(REDIRECT_MAP),
        jump(NOT_EQUAL, 0, REDIRECT, 7),
        take_counts,
        rest_of_counts,
        shift_left(7, LINE_BITS),
        add_register(1, 7),
        set(2, 1),
        count(1, 2),
        exit(),
        // Passes the frame to the host, as it came.
        copy(1, 6),
        set(2, STAMP_LEN),
        call(ADJUST_META),
        take_passed,
        rest_of_passed,
        set(2, 1),
        count(1, 2),
        set(0, PASS),
        exit(),
    ]
}

/// Makes the instruction `r_to = r_from`.
const fn copy(to: u8, from: u8) -> Instruction {
    Instruction::new(0xbf, to, from, 0, 0)
}

/// Makes the instruction `r_to = value`.
const fn set(to: u8, value: i32) -> Instruction {
    Instruction::new(0xb7, to, 0, 0, value)
}

/// Makes the instruction `r_to = *(u32 *)(r_from + offset)`.
const fn load(to: u8, from: u8, offset: i16) -> Instruction {
    Instruction::new(0x61, to, from, offset, 0)
}

/// Makes the instruction `*(u64 *)r_to = r_from`.
const fn store(to: u8, from: u8) -> Instruction {
    Instruction::new(0x7b, to, from, 0, 0)
}

/// Makes the instruction `r_to += value`.
const fn add(to: u8, value: i32) -> Instruction {
    Instruction::new(0x07, to, 0, 0, value)
}

/// Makes the instruction `r_to += r_from`.
const fn add_register(to: u8, from: u8) -> Instruction {
    Instruction::new(0x0f, to, from, 0, 0)
}

/// Makes the instruction `r_to <<= bits`.
const fn shift_left(to: u8, bits: i32) -> Instruction {
    Instruction::new(0x67, to, 0, 0, bits)
}

/// Makes the instruction `*(u64 *)r_to += r_from`, atomic among all processors.
const fn count(to: u8, from: u8) -> Instruction {
    Instruction::new(0xdb, to, from, 0, 0)
}

/// Makes the instruction that skips `over` instructions when the comparison `compared` holds for
/// `register` and `value`.
const fn jump(compared: u8, register: u8, value: i32, over: i16) -> Instruction {
    Instruction::new(compared, register, 0, over, value)
}

/// Makes the instruction that skips `over` instructions when `r_left > r_right`.
const fn jump_greater(left: u8, right: u8, over: i16) -> Instruction {
    Instruction::new(0x2d, left, right, over, 0)
}

/// Makes the instruction that calls a function of the kernel with r1 to r5. The function's result
/// is in r0; r6 to r9 keep their values.
const fn call(function: i32) -> Instruction {
    Instruction::new(0x85, 0, 0, 0, function)
}

/// Makes the instruction that ends the program; the value of r0 decides what becomes of the frame.
const fn exit() -> Instruction {
    Instruction::new(0x95, 0, 0, 0, 0)
}

/// Loads into register `to` the table `map` ([`OF_MAP`]), or the address of its value plus `offset`
/// ([`OF_VALUE`]): one instruction of 16 bytes.
fn load_map(to: u8, map: &Map, what: u8, offset: i32) -> [Instruction; 2] {
    use std::os::fd::AsRawFd as _;
    [
        Instruction::new(0x18, to, what, 0, map.as_fd().as_raw_fd()),
        Instruction::new(0, 0, 0, 0, offset),
    ]
}

const GREATER_OR_EQUAL: u8 = 0x35;
const NOT_EQUAL: u8 = 0x55;
/// `BPF_PSEUDO_MAP_FD`, `BPF_PSEUDO_MAP_VALUE`.
const OF_MAP: u8 = 1;
const OF_VALUE: u8 = 2;
/// `BPF_FUNC_*`.
const KTIME_GET_NS: i32 = 5;
const REDIRECT_MAP: i32 = 51;
const ADJUST_META: i32 = 54;
/// Offsets in `struct xdp_md`: `data`, `data_meta`, `rx_queue_index`.
const DATA_AT: i16 = 0;
const META_AT: i16 = 8;
const QUEUE_AT: i16 = 16;
/// `XDP_PASS`, `XDP_REDIRECT`.
const PASS: i32 = 2;
const REDIRECT: i32 = 4;
/// `XDP_FLAGS_SKB_MODE`, `XDP_FLAGS_DRV_MODE`.
const BEHIND_DRIVER: u32 = 1 << 1;
const IN_DRIVER: u32 = 1 << 2;
/// `BPF_F_XDP_HAS_FRAGS`.
const HAS_PIECES: u32 = 1 << 5;
/// Length of the stamp in front of a frame, in bytes: CLOCK_MONOTONIC in nanoseconds, in the
/// machine's byte order.
pub(super) const STAMP_LEN: i32 = 8;
/// Length of a cache line in bytes. Each queue counts in a line of its own, because queues are on
/// different processors.
const LINE_BYTES: u32 = 1 << LINE_BITS;
const LINE_BITS: i32 = 6;
/// The most receive queues; no adapter has as many.
const QUEUES_MAX: u32 = 4096;
