//! Which packets are kept: a filter in tcpdump's language, run on each packet as it is captured,
//! its VLAN tags in place; what it rejects is counted.

use sys::{
    compile_filter,
    packet::{FilterOp, STUB_LEN},
};
use wire::bpf::{Op, Program};

use crate::{CaptureError, Packet};

/// A filter for Ethernet frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    text: String,
    program: Program,
    ops: Vec<FilterOp>,
}

impl Filter {
    /// Compiles a filter, which takes libpcap.
    ///
    /// # Errors
    /// When the machine has no libpcap, or it does not understand the text.
    pub fn compile(text: &str) -> Result<Self, CaptureError> {
        let error = |reason: String| CaptureError::Address {
            address: text.to_owned(),
            what: "filter",
            reason,
        };
        let ops = compile_filter(text, wire::trace_file::ETHERNET);
        let ops = ops.map_err(|cause| error(cause.to_string()))?;
        let kernel_ops: Vec<FilterOp> = ops
            .iter()
            .map(|op| FilterOp {
                code: op.code,
                if_true: op.if_true,
                if_false: op.if_false,
                operand: op.operand,
            })
            .collect();
        let ops = ops.iter().map(|op| Op {
            code: op.code,
            if_true: op.if_true,
            if_false: op.if_false,
            operand: op.operand,
        });
        let program = Program::new(ops.collect());
        let program = program.ok_or_else(|| error("it was compiled to nonsense".to_owned()))?;
        Ok(Self {
            text: text.to_owned(),
            program,
            ops: kernel_ops,
        })
    }

    /// True for a packet that is to be kept.
    #[inline]
    #[must_use]
    pub fn accepts(&self, packet: &Packet<'_>) -> bool {
        self.program.run(packet.data, packet.wire_len) != 0
    }

    /// The same for the kernel to run: it keeps `snap_len` bytes of what is accepted, and of what
    /// is rejected so little that it is known by it. A packet whose VLAN tag the kernel has taken
    /// out is kept, as the program was made for packets with their tags. `None` when the program
    /// cannot be changed so.
    pub(crate) fn for_kernel(&self, snap_len: u32) -> Option<Vec<FilterOp>> {
        let keep = |op: &FilterOp| match (op.code, op.operand) {
            (RETURN, 0) => Some(FilterOp {
                operand: STUB_LEN,
                ..*op
            }),
            (RETURN, _) => Some(FilterOp {
                operand: snap_len.max(STUB_LEN + 1),
                ..*op
            }),
            (code, _) if code & CLASS == RETURN_CLASS => None,
            _ => Some(*op),
        };
        let op = |code, if_true, if_false, operand| FilterOp {
            code,
            if_true,
            if_false,
            operand,
        };
        // Is there a tag? Jumps are relative: what stands in front changes nothing behind.
        let head = [
            op(LOAD_WORD, 0, 0, TAG_PRESENT),
            op(JUMP_EQUAL, 1, 0, 0),
            op(RETURN, 0, 0, snap_len.max(STUB_LEN + 1)),
        ];
        let body = self.ops.iter().map(keep).collect::<Option<Vec<_>>>()?;
        Some([head.to_vec(), body].concat())
    }

    /// What it was compiled from.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// `BPF_RET | BPF_K`, and the class of all returns.
const RETURN: u16 = 0x06;
const RETURN_CLASS: u16 = 0x06;
const CLASS: u16 = 0x07;
/// `BPF_LD | BPF_W | BPF_ABS`, from an address that stands for `SKF_AD_VLAN_TAG_PRESENT`.
const LOAD_WORD: u16 = 0x20;
const TAG_PRESENT: u32 = (-0x1000_i32 + 48).cast_unsigned();
/// `BPF_JMP | BPF_JEQ | BPF_K`.
const JUMP_EQUAL: u16 = 0x15;
