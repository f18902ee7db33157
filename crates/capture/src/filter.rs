//! Which packets are kept: a filter in tcpdump's language, run on each packet as it is captured,
//! its VLAN tags in place; what it rejects is counted.

use sys::compile_filter;
use wire::bpf::{Op, Program};

use crate::{CaptureError, Packet};

/// A filter for Ethernet frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    text: String,
    program: Program,
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
        })
    }

    /// True for a packet that is to be kept.
    #[inline]
    #[must_use]
    pub fn accepts(&self, packet: &Packet<'_>) -> bool {
        self.program.run(packet.data, packet.wire_len) != 0
    }

    /// What it was compiled from.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}
