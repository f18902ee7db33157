//! The encoder, which computes parity packets from the members of a group.

use super::{Code, Combine, LENGTH_BYTES, Rows, stride};

/// An encoder that computes the parity payloads of one group at a time, in a workspace of its own.
///
/// **Cost**: `parities_max` payloads of memory; no allocation once the largest group was encoded.
#[derive(Clone, Debug)]
pub struct Encoder {
    combine: Combine,
    parities_max: usize,
    payload_bytes_max: usize,
    rows: Rows,
    coefficients: Vec<u8>,
    /// The encoded lengths of the members, big-endian.
    lengths: Vec<[u8; LENGTH_BYTES]>,
}

impl Encoder {
    /// Makes an encoder for at most `parities_max` parity packets at a time, over payloads of at
    /// most `payload_bytes_max` bytes. A `payload_bytes_max` above 65,535 counts as 65,535, because
    /// lengths are encoded in two bytes.
    #[must_use]
    pub fn new(combine: Combine, parities_max: usize, payload_bytes_max: usize) -> Self {
        let payload_bytes_max = payload_bytes_max.min(usize::from(u16::MAX));
        Self {
            combine,
            parities_max,
            payload_bytes_max,
            rows: Rows::new(parities_max, stride(payload_bytes_max)),
            coefficients: Vec::new(),
            lengths: Vec::new(),
        }
    }

    /// Computes one parity payload of a group for each of `indexes`, in that order. When the
    /// members' lengths differ, each parity payload ends with an encoded length, and the caller
    /// must put OPT_VAR_PKTLEN into its packet.
    ///
    /// `members` may be fewer than the group size: the missing members count as empty.
    ///
    /// Deviation: the RFC gives the encoded length no byte order. This encoder uses the network's
    /// order; OpenPGM uses its host's.
    ///
    /// **Panics** (bug): with more indexes than `parities_max`, an index that the code does not
    /// have, more members than the group size, or a member longer than `payload_bytes_max`.
    ///
    /// **Spec**: RFC 3208 section 11.2, "Variable TSDU length".
    pub fn encode(&mut self, code: &Code, members: &[&[u8]], indexes: &[usize]) -> Parities<'_> {
        assert!(
            indexes.len() <= self.parities_max,
            "more parity packets than the workspace holds"
        );
        let longest = members.iter().map(|member| member.len()).max().unwrap_or(0);
        assert!(
            longest <= self.payload_bytes_max,
            "a member longer than the workspace"
        );
        let is_variable = members.iter().any(|member| member.len() != longest);
        self.coefficients.clear();
        for &index in indexes {
            self.coefficients
                .extend_from_slice(&code.parity(index)[..members.len()]);
        }
        let stride = stride(self.payload_bytes_max);
        let rows = self.rows.first(indexes.len());
        let payload_bytes = longest + if is_variable { LENGTH_BYTES } else { 0 };
        for row in rows.chunks_mut(stride) {
            row[..payload_bytes].fill(0);
        }
        (self.combine)(rows, stride, &self.coefficients, members);
        if is_variable {
            self.lengths.clear();
            self.lengths.extend(
                members
                    .iter()
                    .map(|member| (member.len() as u16).to_be_bytes()),
            );
            encode_lengths(
                self.combine,
                rows,
                stride,
                longest,
                &self.coefficients,
                &self.lengths,
            );
        }
        Parities {
            rows,
            stride,
            payload_bytes,
            is_variable,
        }
    }
}

/// Combines the encoded `lengths` into the two bytes at `offset` of each row, with the same
/// coefficients as the payloads.
pub(super) fn encode_lengths(
    combine: Combine,
    rows: &mut [u8],
    stride: usize,
    offset: usize,
    coefficients: &[u8],
    lengths: &[[u8; LENGTH_BYTES]],
) {
    let mut inputs: [&[u8]; 128] = [&[]; 128];
    for (input, length) in inputs.iter_mut().zip(lengths) {
        *input = length;
    }
    if let Some(rows) = rows.get_mut(offset..) {
        combine(rows, stride, coefficients, &inputs[..lengths.len()]);
    }
}

/// The parity payloads of one call of [`Encoder::encode`].
#[derive(Clone, Copy, Debug)]
pub struct Parities<'a> {
    rows: &'a [u8],
    stride: usize,
    payload_bytes: usize,
    is_variable: bool,
}

impl<'a> Parities<'a> {
    /// Returns true when an encoded length ends each payload (OPT_VAR_PKTLEN).
    #[must_use]
    pub const fn is_variable(&self) -> bool {
        self.is_variable
    }

    /// Returns the payloads, in the order of the indexes.
    pub fn payloads(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let payload_bytes = self.payload_bytes;
        self.rows
            .chunks(self.stride)
            .map(move |row| &row[..payload_bytes])
    }
}
