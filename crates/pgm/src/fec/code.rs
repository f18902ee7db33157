//! The code for one group size: points, weights and the coefficients that follow from them.

use super::{
    ROWS_MAX,
    field::{ORDER, exp, log},
};

/// The Reed-Solomon code over groups of k members.
///
/// Each packet of a group is a row: rows below k are the members, row k + j is parity packet j. Row
/// 0 has the point 0, any other row r the point 2^(r-1) in GF(256). The values at any k points z
/// determine one polynomial of degree below k. The polynomial's value at another point t is
///
/// ```text
/// sum over z of   value(z) * product over q != z of (t - q) / (z - q)      (z, q: the k points)
/// ```
///
/// The products over all k members are computed once. A lost member takes one factor out of a
/// product, and a parity packet used in its place adds one. So the coefficients for e lost members
/// cost about 3 * e * k table look-ups.
///
/// **Cost**: to make a code takes (255 - k) * k bytes of memory, and about as many look-ups.
#[derive(Clone, Debug)]
pub struct Code {
    group_size: usize,
    /// For each row, the logarithm of the product of the distances from the row's point to every
    /// member's point (except its own).
    weights: Vec<u32>,
    /// The coefficient of each member in each parity packet, one parity packet after the other.
    parities: Vec<u8>,
}

impl Code {
    /// Makes the code for groups of `group_size` members. `None` unless `group_size` is a power of
    /// two from 2 to 128, as RFC 3208 section 11.2 demands.
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
                parities.push(exp(weights[row] + inverse(below)));
            }
        }
        Some(Self {
            group_size,
            weights,
            parities,
        })
    }

    /// Returns the number of members of a full group.
    #[must_use]
    pub const fn group_size(&self) -> usize {
        self.group_size
    }

    /// Returns how many different parity packets a group can have.
    #[must_use]
    pub const fn parities_max(&self) -> usize {
        ROWS_MAX - self.group_size
    }

    /// Returns the coefficients of parity packet `index`, one for each member.
    ///
    /// **Panics** (bug): when the code has no such parity packet.
    #[must_use]
    pub fn parity(&self, index: usize) -> &[u8] {
        &self.parities[index * self.group_size..][..self.group_size]
    }

    /// Collects the rows that a decoder has: every member except those in `lost` (which is sorted),
    /// then the parity rows in `used`, one for each lost member.
    pub(super) fn basis(&self, lost: &[usize], used: &[usize], basis: &mut Vec<Support>) {
        let (mut there, mut absent) = (0..self.group_size, lost.iter().peekable());
        let members = std::iter::from_fn(|| {
            while absent.next_if(|&&member| member == there.start).is_some() {
                there.next();
            }
            there.next()
        });
        basis.clear();
        basis.extend(members.chain(used.iter().copied()).map(|row| {
            let nearer: u32 = lost.iter().map(|&member| distance(row, member)).sum();
            let others = used.iter().filter(|&&other| other != row);
            let farther: u32 = others.map(|&other| distance(row, other)).sum();
            Support {
                point: POINTS[row],
                scale: (self.weights[row] + farther + inverse(nearer)) % ORDER,
            }
        }));
    }

    /// Appends the coefficients that compute member `target`: one for each row of the basis, in
    /// order.
    pub(super) fn interpolate(
        &self,
        target: usize,
        lost: &[usize],
        used: &[usize],
        basis: &[Support],
        coefficients: &mut Vec<u8>,
    ) {
        let others = lost.iter().filter(|&&member| member != target);
        let nearer: u32 = others.map(|&member| distance(target, member)).sum();
        let farther: u32 = used.iter().map(|&row| distance(target, row)).sum();
        let whole = (self.weights[target] + farther + inverse(nearer)) % ORDER;
        let point = POINTS[target];
        coefficients.extend(basis.iter().map(|support| {
            exp(whole + ORDER - log(point ^ support.point) + ORDER - support.scale)
        }));
    }
}

/// A row that a decoder has: its point, and the logarithm of the product of its distances to all
/// other rows of the decoder.
#[derive(Clone, Copy, Debug)]
pub(super) struct Support {
    point: u8,
    scale: u32,
}

/// Returns the logarithm of the difference of two rows' points.
fn distance(row: usize, other: usize) -> u32 {
    log(POINTS[row] ^ POINTS[other])
}

/// Returns the logarithm of the inverse of the element whose logarithm is `exponent`.
const fn inverse(exponent: u32) -> u32 {
    ORDER - exponent % ORDER
}

/// The point of each row: 0, then the powers of 2.
const POINTS: [u8; ROWS_MAX] = {
    let mut points = [0; ROWS_MAX];
    let mut row = 1;
    while row < ROWS_MAX {
        points[row] = exp(row as u32 - 1);
        row += 1;
    }
    points
};
