//! A filter in tcpdump's language decides which packets are kept. It sees each packet with its VLAN
//! tags. Rejected packets are counted.

use sys::{
    FilterProgram,
    packet::{FilterOp, STUB_LEN},
};
use wire::trace_file::ETHERNET;

use crate::{CaptureError, Packet};

/// A filter, compiled for one or more link types ([`Filter::add_link_type`]).
#[derive(Clone, Debug)]
pub struct Filter {
    text: String,
    programs: Vec<Compiled>,
}

/// A filter for one link type.
#[derive(Clone, Debug)]
struct Compiled {
    link_type: u16,
    program: FilterProgram,
}

impl Filter {
    /// Compiles a filter for Ethernet frames, with libpcap. An expression that makes sense only for
    /// IEEE 802.11, raw IP or Linux's cooked capture (SLL) is accepted too.
    ///
    /// # Errors
    /// When the machine has no libpcap, or when libpcap does not understand the text.
    pub fn compile(text: &str) -> Result<Self, CaptureError> {
        let mut compiled = Compiled::new(text, ETHERNET);
        for other in OTHER_LINK_TYPES {
            compiled = compiled.or_else(|error| {
                let other = Compiled::new(text, other);
                other.map_err(|_| error)
            });
        }
        let compiled = compiled.map_err(|reason| CaptureError::Address {
            address: text.to_owned(),
            what: "filter",
            reason,
        })?;
        Ok(Self {
            text: text.to_owned(),
            programs: vec![compiled],
        })
    }

    /// Also compiles the filter for packets of `link_type` (`LINKTYPE_*`).
    ///
    /// # Errors
    /// When the filter makes no sense for these packets, or when libpcap does not know them.
    pub fn add_link_type(&mut self, link_type: u16) -> Result<(), CaptureError> {
        if self.compiled(link_type).is_none() {
            let compiled = Compiled::new(&self.text, link_type);
            let compiled = compiled.map_err(|reason| CaptureError::Address {
                address: self.text.clone(),
                what: "filter",
                reason: format!("for packets of link type {link_type}: {reason}"),
            })?;
            self.programs.push(compiled);
        }
        Ok(())
    }

    /// Returns true for a packet of `link_type` that the filter keeps.
    ///
    /// **Panics** (bug): when the link type was not added.
    #[inline]
    #[must_use]
    pub fn accepts(&self, packet: &Packet<'_>, link_type: u16) -> bool {
        let compiled = self.compiled(link_type);
        let compiled = compiled.expect("a filter is compiled for every interface");
        compiled.program.run(packet.data, packet.wire_len) != 0
    }

    #[inline]
    fn compiled(&self, link_type: u16) -> Option<&Compiled> {
        let mut programs = self.programs.iter();
        programs.find(|compiled| compiled.link_type == link_type)
    }

    /// Returns the program for the kernel to run. It keeps `snap_len` bytes of an accepted packet,
    /// and [`STUB_LEN`] bytes of a rejected one: this length marks the rejection. It keeps every
    /// packet whose VLAN tag the kernel has taken out, because the filter was made for packets with
    /// their tags. `None` when the program cannot be changed like this, or was not compiled for
    /// `link_type`.
    pub(crate) fn for_kernel(&self, link_type: u16, snap_len: u32) -> Option<Vec<FilterOp>> {
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
        // The program first tests for a tag. Jumps are relative, so the rest stays as it is.
        let head = [
            op(LOAD_WORD, 0, 0, TAG_PRESENT),
            op(JUMP_EQUAL, 1, 0, 0),
            op(RETURN, 0, 0, snap_len.max(STUB_LEN + 1)),
        ];
        let compiled = self.compiled(link_type)?;
        let body = compiled
            .program
            .ops()
            .iter()
            .map(keep)
            .collect::<Option<Vec<_>>>()?;
        Some([head.to_vec(), body].concat())
    }

    /// Returns the text that the filter was compiled from.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl Compiled {
    fn new(text: &str, link_type: u16) -> Result<Self, String> {
        let program = FilterProgram::compile(text, library_number(link_type));
        let program = program.map_err(|cause| cause.to_string())?;
        Ok(Self { link_type, program })
    }
}

/// Returns libpcap's number for a link type (`DLT_*`), which differs from that in files
/// (`LINKTYPE_*`) for some types.
const fn library_number(link_type: u16) -> u16 {
    match link_type {
        // ATM, and IP without a link-layer header.
        100 => 11,
        101 => 12,
        other => other,
    }
}

/// Link types to try for filters that make no sense for Ethernet: IEEE 802.11 alone, IEEE 802.11
/// after a radiotap header, RAW, SLL.
const OTHER_LINK_TYPES: [u16; 4] = [105, 127, 101, 113];

/// `BPF_RET | BPF_K`. `RETURN_CLASS` is the class of all returns.
const RETURN: u16 = 0x06;
const RETURN_CLASS: u16 = 0x06;
const CLASS: u16 = 0x07;
/// `BPF_LD | BPF_W | BPF_ABS`, from an address that stands for `SKF_AD_VLAN_TAG_PRESENT`.
const LOAD_WORD: u16 = 0x20;
const TAG_PRESENT: u32 = (-0x1000_i32 + 48).cast_unsigned();
/// `BPF_JMP | BPF_JEQ | BPF_K`.
const JUMP_EQUAL: u16 = 0x15;
