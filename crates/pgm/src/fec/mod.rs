//! The erasure code of RFC 3208: it computes a group's parity packets, and recovers lost members
//! with them.
//!
//! The module sees only payloads, their numbers, and OPT_FRAGMENT. The receiver decides when to ask
//! for parity, the source when to send it. A group has k members (k a power of two up to 128).
//! Parity packet j is row k + j of the code, which has up to 255 rows in all. Any k packets of a
//! group, members or parity, give all k members back.
//!
//! ```text
//! members 0 .. k-1 --Encoder--> parity j (any j below 255 - k), of the longest member's length
//! members, less e  --Decoder--> the e lost members        (+ 2 bytes when lengths differ)
//! parities, any e    --^
//! ```
//!
//! The code is Rizzo's, which the RFC refers to. Member i is the value of a polynomial at point i
//! of the points 0, 1, a, a^2 and so on; parity j is its value at point k + j. The field is GF(256)
//! modulo 0x11D, and a is 2. (A Vandermonde matrix multiplied by the inverse of its top k rows
//! gives the same code.) So encoding and decoding are one operation: Lagrange interpolation from
//! the k known points to the wanted ones. No matrix is ever inverted: see [`Code`].
//!
//! A group that the source cut short (OPT_CURR_TGSIZE) is encoded as if empty members followed. So
//! a source and a receiver need only one code for each session.
//!
//! A [`Combine`] function does the arithmetic on payloads. [`combine`] here is portable; the `simd`
//! crate has faster functions of the same type, which the session's owner passes in.
//!
//! Invariants: encoders and decoders stop allocating once they have seen the largest group; every
//! [`Combine`] function gives the same bytes.
//!
//! **Spec**: RFC 3208 section 11 (Appendix A) and its reference 12.

mod code;
pub use code::Code;

mod decode;
pub use decode::{Decoder, Irreparable, Recovered};

mod encode;
pub use encode::{Encoder, Parities};

mod field;
pub use field::{Combine, combine};

mod fragment;
pub use fragment::{
    FRAGMENT_BYTES, encoded_contents, encoded_fragment, fragment_contents, fragment_of,
};

mod group;
pub use group::{Group, Parity, Workspace};

mod numbering;
pub use numbering::Numbering;

/// Size in bytes of the encoded length that ends a parity packet with OPT_VAR_PKTLEN.
pub const LENGTH_BYTES: usize = 2;

/// The most rows of a code: members and parity packets.
pub const ROWS_MAX: usize = 255;

/// Returns the distance in bytes from one row of a workspace to the next, for payloads of at most
/// this length. Rows are whole cache lines, with room for a SIMD vector that begins right after the
/// payload.
const fn stride(payload_bytes_max: usize) -> usize {
    (payload_bytes_max + LINE_BYTES).next_multiple_of(LINE_BYTES)
}

/// The payload rows of a workspace, each on cache lines of its own.
///
/// A SIMD vector that lies across two cache lines costs two accesses, and each row is read and
/// written once for every packet of the group.
#[derive(Clone, Debug)]
struct Rows {
    bytes: Vec<u8>,
    start: usize,
    stride: usize,
}

impl Rows {
    fn new(count: usize, stride: usize) -> Self {
        let bytes = vec![0; count * stride + LINE_BYTES];
        let start = bytes.as_ptr().align_offset(LINE_BYTES).min(LINE_BYTES);
        Self {
            bytes,
            start,
            stride,
        }
    }

    fn first(&mut self, count: usize) -> &mut [u8] {
        &mut self.bytes[self.start..][..count * self.stride]
    }
}

const LINE_BYTES: usize = 64;

#[cfg(test)]
mod tests;
