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

impl FilterOp {
    /// Loads the byte at `offset` of the packet.
    #[must_use]
    pub const fn load_byte(offset: u32) -> Self {
        Self::new(LOAD_BYTE, offset)
    }

    /// Loads the two bytes at `offset` of the packet, in network order.
    #[must_use]
    pub const fn load_half(offset: u32) -> Self {
        Self::new(LOAD_HALF, offset)
    }

    /// Skips `if_true` instructions when the loaded value equals `operand`, else `if_false`.
    #[must_use]
    pub const fn jump_if_equal(operand: u32, if_true: u8, if_false: u8) -> Self {
        Self {
            if_true,
            if_false,
            ..Self::new(JUMP_IF_EQUAL, operand)
        }
    }

    /// Skips `if_true` instructions when the loaded value has at least one bit of `mask` set, else
    /// `if_false`.
    #[must_use]
    pub const fn jump_if_any_bit(mask: u32, if_true: u8, if_false: u8) -> Self {
        Self {
            if_true,
            if_false,
            ..Self::new(JUMP_IF_ANY_BIT, mask)
        }
    }

    /// Ends the filter: keeps the packet, cut to `bytes` bytes; with 0 it rejects the packet.
    #[must_use]
    pub const fn keep(bytes: u32) -> Self {
        Self::new(RETURN_CONSTANT, bytes)
    }

    const fn new(code: u16, operand: u32) -> Self {
        Self {
            code,
            if_true: 0,
            if_false: 0,
            operand,
        }
    }
}

/// Returns a filter that keeps every packet, cut to `bytes` bytes; with 0 it rejects every packet.
#[must_use]
pub const fn keep_all(bytes: u32) -> [FilterOp; 1] {
    [FilterOp::keep(bytes)]
}

/// Number of bytes kept of a packet that is rejected but must be counted: fewer than any frame has.
pub const STUB_LEN: u32 = 2;

/// `BPF_LD | BPF_B | BPF_ABS`.
const LOAD_BYTE: u16 = 0x30;
/// `BPF_LD | BPF_H | BPF_ABS`.
const LOAD_HALF: u16 = 0x28;
/// `BPF_JMP | BPF_JEQ | BPF_K`.
const JUMP_IF_EQUAL: u16 = 0x15;
/// `BPF_JMP | BPF_JSET | BPF_K`.
const JUMP_IF_ANY_BIT: u16 = 0x45;
/// `BPF_RET | BPF_K`.
const RETURN_CONSTANT: u16 = 0x06;
const _: () = assert!(size_of::<FilterOp>() == size_of::<libc::sock_filter>());
const _: () = assert!(align_of::<FilterOp>() == align_of::<libc::sock_filter>());
