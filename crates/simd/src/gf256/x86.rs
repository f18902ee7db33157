//! x86-64: SSSE3 and AVX2 make a product by two table look-ups, GFNI by one bit matrix.

use std::arch::is_x86_feature_detected as has;

use super::Level;

/// Returns the forms that this processor can run, slowest first.
pub(super) fn levels() -> [Option<Level>; 4] {
    let level = |is_there: bool, name, combine| is_there.then_some(Level { name, combine });
    let avx512 = has!("avx512f") && has!("avx512bw") && has!("gfni");
    [
        level(has!("ssse3"), "ssse3", ssse3::entry),
        level(has!("avx2"), "avx2", avx2::entry),
        level(has!("avx2") && has!("gfni"), "gfni", gfni::entry),
        level(avx512, "gfni, avx512", gfni512::entry),
    ]
}

mod ssse3 {
    use std::arch::x86_64::{
        __m128i, _mm_and_si128, _mm_loadu_si128, _mm_set1_epi8, _mm_shuffle_epi8, _mm_srli_epi64,
        _mm_storeu_si128, _mm_xor_si128,
    };

    use crate::gf256::{blocks::combine_in_blocks, table::HALVES};

    const WIDTH: usize = 16;
    const ACROSS: usize = 1;
    // A factor takes two registers.
    const HAS_ROOM: bool = false;
    type Vector = __m128i;

    #[derive(Clone, Copy)]
    struct Factor {
        low: __m128i,
        high: __m128i,
    }

    pub(super) fn entry(rows: &mut [u8], stride: usize, coefficients: &[u8], inputs: &[&[u8]]) {
        // SAFETY: `levels` hands this function out only on a processor with SSSE3.
        unsafe { combine(rows, stride, coefficients, inputs) }
    }

    #[target_feature(enable = "ssse3")]
    fn load(bytes: &[u8; WIDTH]) -> __m128i {
        // SAFETY: a reference to 16 bytes is valid for reading 16 bytes; no alignment is needed.
        unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
    }

    #[target_feature(enable = "ssse3")]
    fn store(vector: __m128i) -> [u8; WIDTH] {
        let mut bytes = [0; WIDTH];
        // SAFETY: a local array of 16 bytes is valid for writing 16 bytes; no alignment is needed.
        unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), vector) }
        bytes
    }

    #[target_feature(enable = "ssse3")]
    fn and(a: __m128i, b: __m128i) -> __m128i {
        _mm_and_si128(a, b)
    }

    #[target_feature(enable = "ssse3")]
    fn xor(a: __m128i, b: __m128i) -> __m128i {
        _mm_xor_si128(a, b)
    }

    #[target_feature(enable = "ssse3")]
    fn factor(constant: u8) -> Factor {
        let table = &HALVES[usize::from(constant)];
        Factor {
            low: load(&table.low),
            high: load(&table.high),
        }
    }

    #[target_feature(enable = "ssse3")]
    fn halves(bytes: __m128i) -> [__m128i; 2] {
        let mask = _mm_set1_epi8(0x0F);
        let high = _mm_srli_epi64::<4>(bytes);
        [_mm_and_si128(bytes, mask), _mm_and_si128(high, mask)]
    }

    #[target_feature(enable = "ssse3")]
    fn product(factor: &Factor, halves: &[__m128i; 2]) -> __m128i {
        let low = _mm_shuffle_epi8(factor.low, halves[0]);
        _mm_xor_si128(low, _mm_shuffle_epi8(factor.high, halves[1]))
    }

    combine_in_blocks!("ssse3");
}

mod avx2 {
    use std::arch::x86_64::{
        __m128i, __m256i, _mm_loadu_si128, _mm256_and_si256, _mm256_broadcastsi128_si256,
        _mm256_loadu_si256, _mm256_set1_epi8, _mm256_shuffle_epi8, _mm256_srli_epi64,
        _mm256_storeu_si256, _mm256_xor_si256,
    };

    use crate::gf256::{blocks::combine_in_blocks, table::HALVES};

    const WIDTH: usize = 32;
    const ACROSS: usize = 1;
    // A factor takes two registers.
    const HAS_ROOM: bool = false;
    pub(super) type Vector = __m256i;

    #[derive(Clone, Copy)]
    struct Factor {
        low: __m256i,
        high: __m256i,
    }

    pub(super) fn entry(rows: &mut [u8], stride: usize, coefficients: &[u8], inputs: &[&[u8]]) {
        // SAFETY: `levels` hands this function out only on a processor with AVX2.
        unsafe { combine(rows, stride, coefficients, inputs) }
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn load(bytes: &[u8; WIDTH]) -> __m256i {
        // SAFETY: a reference to 32 bytes is valid for reading 32 bytes; no alignment is needed.
        unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn store(vector: __m256i) -> [u8; WIDTH] {
        let mut bytes = [0; WIDTH];
        // SAFETY: a local array of 32 bytes is valid for writing 32 bytes; no alignment is needed.
        unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), vector) }
        bytes
    }

    #[target_feature(enable = "avx2")]
    fn load_half(bytes: &[u8; 16]) -> __m128i {
        // SAFETY: a reference to 16 bytes is valid for reading 16 bytes; no alignment is needed.
        unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn and(a: __m256i, b: __m256i) -> __m256i {
        _mm256_and_si256(a, b)
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn xor(a: __m256i, b: __m256i) -> __m256i {
        _mm256_xor_si256(a, b)
    }

    #[target_feature(enable = "avx2")]
    fn factor(constant: u8) -> Factor {
        let table = &HALVES[usize::from(constant)];
        Factor {
            low: _mm256_broadcastsi128_si256(load_half(&table.low)),
            high: _mm256_broadcastsi128_si256(load_half(&table.high)),
        }
    }

    #[target_feature(enable = "avx2")]
    fn halves(bytes: __m256i) -> [__m256i; 2] {
        let mask = _mm256_set1_epi8(0x0F);
        let high = _mm256_srli_epi64::<4>(bytes);
        [_mm256_and_si256(bytes, mask), _mm256_and_si256(high, mask)]
    }

    #[target_feature(enable = "avx2")]
    fn product(factor: &Factor, halves: &[__m256i; 2]) -> __m256i {
        let low = _mm256_shuffle_epi8(factor.low, halves[0]);
        _mm256_xor_si256(low, _mm256_shuffle_epi8(factor.high, halves[1]))
    }

    combine_in_blocks!("avx2");
}

mod gfni {
    use std::arch::x86_64::{__m256i, _mm256_gf2p8affine_epi64_epi8, _mm256_set1_epi64x};

    use super::avx2::{Vector, and, load, store, xor};
    use crate::gf256::{blocks::combine_in_blocks, table::MATRICES};

    const WIDTH: usize = 32;
    const ACROSS: usize = 2;
    const HAS_ROOM: bool = true;
    type Factor = __m256i;

    pub(super) fn entry(rows: &mut [u8], stride: usize, coefficients: &[u8], inputs: &[&[u8]]) {
        // SAFETY: `levels` hands this function out only on a processor with AVX2 and GFNI.
        unsafe { combine(rows, stride, coefficients, inputs) }
    }

    #[target_feature(enable = "avx2,gfni")]
    fn factor(constant: u8) -> Factor {
        _mm256_set1_epi64x(MATRICES[usize::from(constant)].cast_signed())
    }

    #[target_feature(enable = "avx2,gfni")]
    fn halves(bytes: __m256i) -> __m256i {
        bytes
    }

    #[target_feature(enable = "avx2,gfni")]
    fn product(factor: &Factor, bytes: &__m256i) -> __m256i {
        _mm256_gf2p8affine_epi64_epi8::<0>(*bytes, *factor)
    }

    combine_in_blocks!("avx2,gfni");
}

mod gfni512 {
    use std::arch::x86_64::{
        __m512i, _mm512_and_si512, _mm512_gf2p8affine_epi64_epi8, _mm512_loadu_si512,
        _mm512_set1_epi64, _mm512_storeu_si512, _mm512_xor_si512,
    };

    use crate::gf256::{blocks::combine_in_blocks, table::MATRICES};

    const WIDTH: usize = 64;
    const ACROSS: usize = 4;
    const HAS_ROOM: bool = true;
    type Vector = __m512i;
    type Factor = __m512i;

    pub(super) fn entry(rows: &mut [u8], stride: usize, coefficients: &[u8], inputs: &[&[u8]]) {
        // SAFETY: `levels` hands this function out only on a processor with AVX-512 F and BW, and
        // GFNI.
        unsafe { combine(rows, stride, coefficients, inputs) }
    }

    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    fn load(bytes: &[u8; WIDTH]) -> __m512i {
        // SAFETY: a reference to 64 bytes is valid for reading 64 bytes; no alignment is needed.
        unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
    }

    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    fn store(vector: __m512i) -> [u8; WIDTH] {
        let mut bytes = [0; WIDTH];
        // SAFETY: a local array of 64 bytes is valid for writing 64 bytes; no alignment is needed.
        unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), vector) }
        bytes
    }

    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    fn and(a: __m512i, b: __m512i) -> __m512i {
        _mm512_and_si512(a, b)
    }

    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    fn xor(a: __m512i, b: __m512i) -> __m512i {
        _mm512_xor_si512(a, b)
    }

    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    fn factor(constant: u8) -> Factor {
        _mm512_set1_epi64(MATRICES[usize::from(constant)].cast_signed())
    }

    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    fn halves(bytes: __m512i) -> __m512i {
        bytes
    }

    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    fn product(factor: &Factor, bytes: &__m512i) -> __m512i {
        _mm512_gf2p8affine_epi64_epi8::<0>(*bytes, *factor)
    }

    combine_in_blocks!("avx512f,avx512bw,gfni");
}
