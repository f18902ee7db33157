//! Socket filters in the classic BPF, which the kernel runs before a packet is copied.

/// One instruction: `struct sock_filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct FilterOp {
    /// The operation.
    pub code: u16,
    /// Number of instructions to skip when the condition holds.
    pub if_true: u8,
    /// Number of instructions to skip when the condition does not hold.
    pub if_false: u8,
    /// The operand.
    pub operand: u32,
}

/// Returns a filter that keeps every packet, cut to `bytes` bytes; with 0 it rejects every packet.
#[must_use]
pub const fn keep_all(bytes: u32) -> [FilterOp; 1] {
    [FilterOp {
        code: RETURN_CONSTANT,
        if_true: 0,
        if_false: 0,
        operand: bytes,
    }]
}

/// Number of bytes kept of a packet that is rejected but must be counted: fewer than any frame has.
pub const STUB_LEN: u32 = 2;

/// `BPF_RET | BPF_K`.
const RETURN_CONSTANT: u16 = 0x06;
const _: () = assert!(size_of::<FilterOp>() == size_of::<libc::sock_filter>());
const _: () = assert!(align_of::<FilterOp>() == align_of::<libc::sock_filter>());
