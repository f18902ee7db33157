//! The code of one group size: points, weights and the coefficients that follow from them.

use super::{
    ROWS_MAX,
    field::{ORDER, exp, log},
};

/// The Reed-Solomon code over groups of k members.
///
/// Row r stands for point `p(r)`: 0 for row 0, a^(r-1) for the others. Rows below k are members,
/// row k + j is parity j. With the polynomial of degree below k through any k points z, its value
/// at another point t is
///
/// ```text
/// sum over z of   value(z) * product over q != z of (t - q) / (z - q)      (q: the points there)
/// ```
///
/// The products over all k members are computed once; what a loss changes in them is one factor per
/// lost member and per parity packet used, so that e losses cost about 2 * e * k look-ups.
///
/// **Cost**: (255 - k) * k bytes and as many look-ups, once.
#[derive(Clone, Debug)]
pub struct Code {
    group_size: usize,
    /// For each row, the logarithm of the product of its point's distances to all members' points
    /// (but to itself).
    weights: Vec<u32>,
    /// The coefficient of each member in each parity packet, a parity packet after the other.
    parities: Vec<u8>,
}

impl Code {
    /// The code for groups of `group_size` members; `None` unless that is a power of two from 2 to
    /// 128, as RFC 3208 section 11.2 has it.
    #[must_use]
    pub fn new(group_size: usize) -> Option<Self> {
        if !group_size.is_power_of_two() || !(2..=128).contains(&group_size) {
            return None;
        }
        let weight = |row| {
            let others = (0..group_size).filter(|&member| member != row);
            others.map(|member| distance(row, member)).sum::<u32>() % ORDER
        };
        let weights: Vec<u32> = (0..ROWS_MAX).map(weight).collect();
        let mut parities = Vec::with_capacity((ROWS_MAX - group_size) * group_size);
        for row in group_size..ROWS_MAX {
            for member in 0..group_size {
                let below = distance(row, member) + weights[member];
                parities.push(quotient(weights[row], below));
            }
        }
        Some(Self {
            group_size,
            weights,
            parities,
        })
    }

    /// Members of a full group.
    #[must_use]
    pub const fn group_size(&self) -> usize {
        self.group_size
    }

    /// How many different parity packets a group can have.
    #[must_use]
    pub const fn parities_max(&self) -> usize {
        ROWS_MAX - self.group_size
    }

    /// The coefficients of parity packet `index`, one for each member.
    ///
    /// **Panics** (bug): when there is no such parity packet.
    #[must_use]
    pub fn parity(&self, index: usize) -> &[u8] {
        &self.parities[index * self.group_size..][..self.group_size]
    }

    /// Appends what gives member `target` from the rows `there`: a coefficient for each, in order.
    ///
    /// `there` is every member but those in `lost`, then as many parity packets as are lost: rows
    /// `used`. `scales` is as [`Self::scale`] gives them.
    pub(super) fn interpolate(
        &self,
        target: usize,
        lost: &[usize],
        used: &[usize],
        scales: &[u32],
        coefficients: &mut Vec<u8>,
    ) {
        let others = lost.iter().filter(|&&member| member != target);
        let nearer: u32 = others.map(|&member| distance(target, member)).sum();
        let farther: u32 = used.iter().map(|&row| distance(target, row)).sum();
        let whole = self.weights[target] + farther + inverse(nearer);
        let there = there(self.group_size, lost, used);
        coefficients.extend(
            there
                .zip(scales)
                .map(|(row, &scale)| quotient(whole, distance(target, row) + scale)),
        );
    }

    /// The logarithm of the product of each row's distances to all others that are there.
    pub(super) fn scale(&self, lost: &[usize], used: &[usize], scales: &mut Vec<u32>) {
        scales.clear();
        scales.extend(there(self.group_size, lost, used).map(|row| {
            let nearer: u32 = lost.iter().map(|&member| distance(row, member)).sum();
            let others = used.iter().filter(|&&other| other != row);
            let farther: u32 = others.map(|&other| distance(row, other)).sum();
            (self.weights[row] + farther + inverse(nearer)) % ORDER
        }));
    }
}

/// The rows that a decoder has: members that are not lost, then parity packets.
fn there(group_size: usize, lost: &[usize], used: &[usize]) -> impl Iterator<Item = usize> {
    let members = (0..group_size).filter(move |member| !lost.contains(member));
    members.chain(used.iter().copied())
}

/// The point of a row.
fn point(row: usize) -> u8 {
    match row.checked_sub(1) {
        None => 0,
        Some(exponent) => exp(exponent as u32),
    }
}

/// The logarithm of the difference of two rows' points.
fn distance(row: usize, other: usize) -> u32 {
    log(point(row) ^ point(other))
}

/// The logarithm of one over what `exponent` is the logarithm of.
const fn inverse(exponent: u32) -> u32 {
    ORDER - exponent % ORDER
}

fn quotient(above: u32, below: u32) -> u8 {
    exp(above + inverse(below))
}
