//! Recovery of a group's lost members from its other members and its parity packets.

use std::fmt;

use super::{Code, Combine, LENGTH_BYTES, Rows, code::Support, encode::encode_lengths, stride};

/// A decoder that recovers the lost members of one group at a time, in a workspace of its own.
///
/// **Cost**: `lost_max` payloads of memory; no allocation once the group with the most losses
/// was decoded.
#[derive(Clone, Debug)]
pub struct Decoder {
    combine: Combine,
    lost_max: usize,
    payload_bytes_max: usize,
    rows: Rows,
    lost: Vec<usize>,
    used: Vec<usize>,
    basis: Vec<Support>,
    coefficients: Vec<u8>,
    lengths: Vec<[u8; LENGTH_BYTES]>,
}

impl Decoder {
    /// Makes a decoder for at most `lost_max` lost members of a group, with payloads of at most
    /// `payload_bytes_max` bytes.
    #[must_use]
    pub fn new(combine: Combine, lost_max: usize, payload_bytes_max: usize) -> Self {
        let payload_bytes_max = payload_bytes_max.min(usize::from(u16::MAX));
        Self {
            combine,
            lost_max,
            payload_bytes_max,
            rows: Rows::new(lost_max, stride(payload_bytes_max)),
            lost: Vec::new(),
            used: Vec::new(),
            basis: Vec::new(),
            coefficients: Vec::new(),
            lengths: Vec::new(),
        }
    }

    /// Recovers the lost members of a group, which are `None` in `members`.
    ///
    /// `members` has one entry for each member of the group: fewer than the code's group size when
    /// OPT_CURR_TGSIZE said so. `parities` are the payloads of parity packets with their indexes,
    /// each index once; the decoder uses one for each lost member and ignores the rest.
    /// `is_variable` is true when the parity packets said OPT_VAR_PKTLEN.
    ///
    /// **Errors**: [`Irreparable`]. For [`Irreparable::TooFewParities`], wait for more packets of
    /// the group; after any other error, trust none of the group's parity packets. The decoder
    /// cannot check whether parity packets are genuine: false ones give false members.
    ///
    /// **Panics** (bug): with more members than the group size.
    ///
    /// **Cost**: one pass over the group, and about 3 * lost * group size look-ups.
    pub fn decode(
        &mut self,
        code: &Code,
        members: &[Option<&[u8]>],
        parities: &[(usize, &[u8])],
        is_variable: bool,
    ) -> Result<Recovered<'_>, Irreparable> {
        let parity_bytes = self.plan(code, members, parities, is_variable)?;
        let payload_bytes = parity_bytes - if is_variable { LENGTH_BYTES } else { 0 };
        let mut inputs: [&[u8]; 128] = [&[]; 128];
        let mut count = 0;
        self.lengths.clear();
        for (slot, member) in members.iter().flatten().enumerate() {
            inputs[slot] = member;
            self.lengths.push((member.len() as u16).to_be_bytes());
            count = slot + 1;
        }
        // A short group is filled up with empty members, which stand before the parity packets.
        let empty = code.group_size() - members.len();
        self.lengths
            .extend(std::iter::repeat_n([0; LENGTH_BYTES], empty));
        count += empty;
        for (slot, (_, parity)) in parities[..self.lost.len()].iter().enumerate() {
            let (payload, length) = parity.split_at(payload_bytes);
            inputs[count + slot] = payload;
            self.lengths.push(length.try_into().unwrap_or_default());
        }
        self.coefficients.clear();
        code.basis(&self.lost, &self.used, &mut self.basis);
        for &target in &self.lost {
            let (lost, used, basis) = (&self.lost, &self.used, &self.basis);
            code.interpolate(target, lost, used, basis, &mut self.coefficients);
        }
        let stride = stride(self.payload_bytes_max);
        let rows = self.rows.first(self.lost.len());
        for row in rows.chunks_mut(stride) {
            row[..parity_bytes].fill(0);
        }
        let inputs = &inputs[..code.group_size()];
        (self.combine)(rows, stride, &self.coefficients, inputs);
        if is_variable {
            let (coefficients, lengths) = (&self.coefficients, &self.lengths);
            encode_lengths(
                self.combine,
                rows,
                stride,
                payload_bytes,
                coefficients,
                lengths,
            );
        }
        let recovered = Recovered {
            lost: &self.lost,
            rows,
            stride,
            payload_bytes,
            is_variable,
        };
        recovered.check()?;
        Ok(recovered)
    }

    /// Finds the lost members and the parity packets that replace them. Returns the length of the
    /// parity payloads in bytes.
    fn plan(
        &mut self,
        code: &Code,
        members: &[Option<&[u8]>],
        parities: &[(usize, &[u8])],
        is_variable: bool,
    ) -> Result<usize, Irreparable> {
        assert!(
            members.len() <= code.group_size(),
            "more members than the group size"
        );
        let lost = members
            .iter()
            .enumerate()
            .filter(|(_, member)| member.is_none());
        self.lost.clear();
        self.lost.extend(lost.map(|(at, _)| at));
        let missing = self.lost.len();
        if missing > self.lost_max || missing > parities.len() {
            return Err(Irreparable::TooFewParities);
        }
        self.used.clear();
        let mut parity_bytes = None;
        for &(index, payload) in &parities[..missing] {
            let row = code.group_size() + index;
            if index >= code.parities_max() || self.used.contains(&row) {
                return Err(Irreparable::Index);
            }
            self.used.push(row);
            if *parity_bytes.get_or_insert(payload.len()) != payload.len() {
                return Err(Irreparable::Length);
            }
        }
        let Some(parity_bytes) = parity_bytes else {
            return Ok(if is_variable { LENGTH_BYTES } else { 0 });
        };
        let added = if is_variable { LENGTH_BYTES } else { 0 };
        let Some(payload_bytes) = parity_bytes.checked_sub(added) else {
            return Err(Irreparable::Length);
        };
        let fits = |member: &&[u8]| {
            member.len() == payload_bytes || (is_variable && member.len() < payload_bytes)
        };
        if payload_bytes > self.payload_bytes_max || !members.iter().flatten().all(fits) {
            return Err(Irreparable::Length);
        }
        Ok(parity_bytes)
    }
}

/// The members that [`Decoder::decode`] recovered.
#[derive(Clone, Copy, Debug)]
pub struct Recovered<'a> {
    lost: &'a [usize],
    rows: &'a [u8],
    stride: usize,
    payload_bytes: usize,
    is_variable: bool,
}

impl<'a> Recovered<'a> {
    /// Returns each lost member's place in the group and its payload, in order.
    pub fn members(&self) -> impl Iterator<Item = (usize, &'a [u8])> + use<'a> {
        let this = *self;
        let rows = this.rows.chunks(this.stride);
        this.lost
            .iter()
            .zip(rows)
            .map(move |(&at, row)| (at, &row[..this.length(row)]))
    }

    fn check(&self) -> Result<(), Irreparable> {
        let lengths = self.rows.chunks(self.stride).map(|row| self.length(row));
        match lengths.max() {
            Some(length) if length > self.payload_bytes => Err(Irreparable::Length),
            _ => Ok(()),
        }
    }

    fn length(&self, row: &[u8]) -> usize {
        if self.is_variable {
            let end = self.payload_bytes;
            usize::from(u16::from_be_bytes([row[end], row[end + 1]]))
        } else {
            self.payload_bytes
        }
    }
}

/// The reason why a group could not be recovered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Irreparable {
    /// More members are lost than there are parity packets, or than the decoder was made for.
    TooFewParities,
    /// Two parity packets have the same index, or an index is beyond the code.
    Index,
    /// Lengths contradict each other: those of the parity packets differ, a member is longer than a
    /// parity packet (or shorter, in a group of fixed size), or a decoded length is too long. Or a
    /// payload is longer than the decoder was made for.
    Length,
}

impl fmt::Display for Irreparable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooFewParities => "fewer parity packets than lost members",
            Self::Index => "two parity packets have the same index, or an index is beyond the code",
            Self::Length => "lengths of members and parity packets contradict each other",
        })
    }
}

impl std::error::Error for Irreparable {}
