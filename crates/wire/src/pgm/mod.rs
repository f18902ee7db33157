//! PGM on the wire: every packet type and option of RFC 3208, the options of PGMCC, and
//! Towline's own options.
//!
//! The module holds no state and decides nothing: the pgm crate decides what a receiver or source
//! does with a packet. In: one TPDU (UDP payload or IP payload, the same bytes). Out: [`Packet`], a
//! view that was checked as a whole; its getters cannot fail. The other way: [`emit()`].
//!
//! ```text
//! +------------------+-----------------+--------------------------------+--------------+
//! | Header, 16 bytes | Body, by type   | OPT_LENGTH, options, END       | TSDU         |
//! +------------------+-----------------+--------------------------------+--------------+
//!                                      \___ only when PRESENT is set ___/ data types only
//! ```
//!
//! Where implementations differ from the RFC (flag bits, parity flags, option lengths), the file of
//! the header or option says which of them this code follows. Reserved fields are ignored on
//! receipt and sent as zero.
//!
//! **Spec**: RFC 3208 sections 8, 9, 11.8, 12.7, 14.7, 15.4; draft-ietf-rmt-bb-pgmcc.

mod ack;
#[cfg(test)]
mod body_kit;
mod data;
mod emit;
mod header;
mod nak;
mod option;
mod packet;
mod poll;
mod spm;
mod tsi;

pub use ack::Ack;
pub use data::Data;
pub use emit::{Addressing, emit, emit_flagged, emit_head, head_len};
pub use header::{Flags, Header, PacketType};
pub use nak::Nak;
pub use option::{
    Cr, Crqst, CurrTgsize, Feedback, Fragment, Join, Loads, Mark, MarkTag, NakBackOffInterval,
    NakBackOffRange, NakList, OPTIONS_MAX, Options, Packed, ParityGrp, ParityPrm, ParityReading,
    PathNla, PgmOption, PgmccData, Profile, RawOption, Redirect, Refusal, Rst,
};
pub use packet::{Body, ChecksumState, Packet, verify_checksum};
pub use poll::{Poll, Polr};
pub use spm::Spm;
pub use tsi::{Gsi, Tsi};

pub use crate::{ParseError, Sqn};
