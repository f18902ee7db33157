//! Multiply and add in GF(2^8), many inputs into many rows: the whole cost of erasure coding.
//!
//! The field is that of RFC 3208's Reed-Solomon code: polynomials over GF(2) modulo
//! x^8 + x^4 + x^3 + x^2 + 1 (0x11D). Addition is exclusive or. A product by a constant is linear
//! in the other factor's bits. So it is the sum of two products, one of the low and one of the high
//! half of each byte. Each of the two is a look-up in a table of 16, which one vector instruction
//! does for all bytes of a register. GFNI does the whole product by an 8 x 8 bit matrix.
//!
//! ```text
//!            inputs: n packets           coefficients: one row of n for each output
//!   row j ^= c[j][0] * input 0  ^  c[j][1] * input 1  ^ ... ^  c[j][n-1] * input n-1
//! ```
//!
//! Each input is read once for every four rows. With tables, one input after the other is added to
//! these rows, and its tables stay in registers. With matrices, of which many fit into registers,
//! inputs of one length are added column by column, and the sums stay in registers. A short input
//! counts as if zeros followed, and costs only its own length.

use std::fmt;

mod blocks;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
mod table;
#[cfg(target_arch = "x86_64")]
mod x86;

/// Adds products of inputs to rows: `row[j] ^= sum of coefficients[j * n + i] * inputs[i]`, where
/// `n` is the number of inputs.
///
/// **Shape**: row `j` is `rows[j * stride..]`; the number of rows is the number of coefficients
/// divided by the number of inputs. A row's bytes beyond the longest input stay as they are. A
/// stride that is a multiple of 64 is fastest.
///
/// **Panics** (bug): when the coefficients are not a whole number of rows, an input is longer than
/// the stride, or the last row is too short for the longest input.
///
/// **Cost**: no allocation. About 13 cycles for 32 bytes of input and 8 rows with AVX2 (9 would be
/// the processor's limit for this many look-ups); with GFNI and AVX-512 less than half of that.
pub type Combine = fn(rows: &mut [u8], stride: usize, coefficients: &[u8], inputs: &[&[u8]]);

/// A form of the kernel that this processor can run: the plain form, or one for a vector extension.
#[derive(Clone, Copy)]
pub struct Level {
    name: &'static str,
    combine: Combine,
}

impl Level {
    /// Returns the plain form, which runs everywhere.
    #[must_use]
    pub const fn portable() -> Self {
        Self {
            name: "portable",
            combine: portable::combine,
        }
    }

    /// Returns the fastest form that this processor can run.
    #[must_use]
    pub fn best() -> Self {
        Self::available().next_back().unwrap_or(Self::portable())
    }

    /// Returns all forms that this processor can run, slowest first.
    pub fn available() -> impl DoubleEndedIterator<Item = Self> {
        #[cfg(target_arch = "x86_64")]
        let vectors = x86::levels();
        #[cfg(target_arch = "aarch64")]
        let vectors = neon::levels();
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let vectors: [Option<Self>; 0] = [];
        std::iter::once(Self::portable()).chain(vectors.into_iter().flatten())
    }

    /// Returns the form's name in lower case, for reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// Returns this form's function that multiplies and adds.
    #[must_use]
    pub const fn combine(self) -> Combine {
        self.combine
    }
}

impl fmt::Debug for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Returns the product of two field elements. A look-up costs less; this function needs no table.
#[must_use]
pub const fn product(a: u8, b: u8) -> u8 {
    let (mut sum, mut power, mut bit) = (0, a, 0);
    while bit < 8 {
        if (b >> bit) & 1 == 1 {
            sum ^= power;
        }
        power = double(power);
        bit += 1;
    }
    sum
}

/// Returns `a` times x.
const fn double(a: u8) -> u8 {
    let overflow = if a >= 0x80 { POLYNOMIAL as u8 } else { 0 };
    (a << 1) ^ overflow
}

/// The field's polynomial, bit i for x^i.
pub const POLYNOMIAL: u16 = 0x11D;

#[cfg(test)]
mod tests;
