//! Tests of the code: against the matrix construction of Rizzo's paper, against values computed by
//! hand, and with random patterns of losses.

use proptest::prelude::*;

use super::{field::exp, *};

/// Multiplies bit by bit in GF(256), without the tables that the code under test uses.
fn product(a: u8, b: u8) -> u8 {
    let wide = (0..8)
        .filter(|bit| (b >> bit) & 1 == 1)
        .fold(0, |sum, bit| sum ^ u16::from(a) << bit);
    let reduced = (8..15).rev().fold(wide, |rest, bit| {
        if (rest >> bit) & 1 == 1 {
            rest ^ 0x11D << (bit - 8)
        } else {
            rest
        }
    });
    reduced as u8
}

fn power(base: u8, exponent: usize) -> u8 {
    (0..exponent).fold(1, |power, _| product(power, base))
}

/// Makes the Vandermonde matrix of RFC 3208's reference 12. Row 0 is 1, 0, .. 0; in column i, row
/// j + 1 has a^(i * j).
fn vandermonde(rows: usize, columns: usize) -> Vec<Vec<u8>> {
    let entry = |row: usize, column: usize| match row {
        0 => u8::from(column == 0),
        _ => power(2, column * (row - 1) % 255),
    };
    (0..rows)
        .map(|row| (0..columns).map(|column| entry(row, column)).collect())
        .collect()
}

/// Inverts a matrix by Gauss-Jordan elimination.
fn invert(mut matrix: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let size = matrix.len();
    for (at, row) in matrix.iter_mut().enumerate() {
        row.extend((0..size).map(|column| u8::from(column == at)));
    }
    for at in 0..size {
        let pivot = (at..size).find(|&row| matrix[row][at] != 0).unwrap();
        matrix.swap(at, pivot);
        let scale = power(matrix[at][at], 254);
        matrix[at]
            .iter_mut()
            .for_each(|entry| *entry = product(*entry, scale));
        let pivot = matrix[at].clone();
        for (_, row) in matrix.iter_mut().enumerate().filter(|(row, _)| *row != at) {
            let factor = row[at];
            row.iter_mut()
                .zip(&pivot)
                .for_each(|(to, from)| *to ^= product(*from, factor));
        }
    }
    matrix.into_iter().map(|row| row[size..].to_vec()).collect()
}

#[test]
fn the_code_is_the_systematic_vandermonde_matrix() {
    for group_size in [2, 4, 8, 16, 64] {
        let code = Code::new(group_size).unwrap();
        let matrix = vandermonde(ROWS_MAX, group_size);
        let top = invert(matrix[..group_size].to_vec());
        for (index, row) in matrix[group_size..].iter().enumerate() {
            let column = |i: usize| {
                row.iter()
                    .zip(&top)
                    .fold(0, |sum, (entry, top)| sum ^ product(*entry, top[i]))
            };
            let expected: Vec<u8> = (0..group_size).map(column).collect();
            assert_eq!(
                code.parity(index),
                expected,
                "k {group_size}, parity {index}"
            );
        }
    }
}

/// With k = 2, the polynomial is the line through (0, d0) and (1, d1). Its value at t is
/// d0 + (d0 + d1) t = (1 + t) d0 + t d1. So the parity packet at t has the coefficients 1 + t and
/// t. Parity packets 0, 1 and 2 are at t = 2, 4 and 8.
#[test]
fn two_members_by_hand() {
    let code = Code::new(2).unwrap();
    assert_eq!(code.parity(0), [3, 2]);
    assert_eq!(code.parity(1), [5, 4]);
    assert_eq!(code.parity(2), [9, 8]);
    // Parity 7 is at t = a^8 = 0x1D, the first power that is reduced by the polynomial.
    assert_eq!(code.parity(7), [0x1C, 0x1D]);
    let mut encoder = Encoder::new(combine, 2, 4);
    let parities = encoder.encode(&code, &[&[1, 0x80, 0x53], &[0, 1, 0xCA]], &[0, 1]);
    let payloads: Vec<&[u8]> = parities.payloads().collect();
    // 3 * 0x80 = 0x80 + 0x1D; 2 * 0xCA = 0x194 + 0x11D = 0x89; 3 * 0x53 = 0xA6 + 0x53 = 0xF5.
    assert_eq!(payloads[0], [3, 0x80 ^ 0x1D ^ 2, 0xF5 ^ 0x89]);
    // 4 * 0x80 = 0x3A; 4 * 0x53 = 0x14C + 0x11D = 0x51; 4 * 0xCA = 0x112 + 0x11D = 0x0F.
    assert_eq!(payloads[1], [5, 0x80 ^ 0x3A ^ 4, 0x53 ^ 0x51 ^ 0x0F]);
}

/// The members' lengths 3 and 1 differ. So the shorter member is padded with zeros, and the parity
/// payload ends with the encoded length in two bytes.
#[test]
fn section_11_2_variable_tsdu_length_by_hand() {
    let code = Code::new(2).unwrap();
    let mut encoder = Encoder::new(combine, 1, 3);
    let parities = encoder.encode(&code, &[&[1, 2, 4], &[7]], &[0]);
    assert!(parities.is_variable());
    let payloads: Vec<&[u8]> = parities.payloads().collect();
    // The payload is 3 * member 0 + 2 * member 1. The encoded length is 3 * 3 + 2 * 1 = 5 + 2.
    assert_eq!(payloads, [[3 ^ 14, 6, 12, 0, 5 ^ 2]]);
    let mut decoder = Decoder::new(combine, 1, 3);
    let there = [Some(&[1, 2, 4][..]), None];
    let recovered = decoder
        .decode(&code, &there, &[(0, payloads[0])], true)
        .unwrap();
    assert_eq!(recovered.members().collect::<Vec<_>>(), [(1, &[7][..])]);
}

#[test]
fn group_sizes_are_powers_of_two() {
    for size in 0..300 {
        let is_valid = [2, 4, 8, 16, 32, 64, 128].contains(&size);
        assert_eq!(Code::new(size).is_some(), is_valid, "{size}");
    }
    assert_eq!(Code::new(64).unwrap().parities_max(), 191);
}

#[test]
fn powers_of_two_are_those_of_the_field() {
    (0..765).for_each(|at| assert_eq!(exp(at as u32), power(2, at)));
}

#[test]
fn hostile_parity_is_refused() {
    let code = Code::new(4).unwrap();
    let mut decoder = Decoder::new(combine, 2, 8);
    let (a, b) = (&[1, 2, 3][..], &[4, 5, 6][..]);
    let two_lost = [Some(a), None, Some(b), None];
    let mut decode = |parities: &[(usize, &[u8])], is_variable| {
        decoder
            .decode(&code, &two_lost, parities, is_variable)
            .err()
    };
    assert_eq!(decode(&[(0, a)], false), Some(Irreparable::TooFewParities));
    assert_eq!(decode(&[(0, a), (0, b)], false), Some(Irreparable::Index));
    assert_eq!(decode(&[(0, a), (251, b)], false), Some(Irreparable::Index));
    assert_eq!(
        decode(&[(0, a), (1, &b[1..])], false),
        Some(Irreparable::Length)
    );
    assert_eq!(
        decode(&[(0, &a[1..]), (1, &b[1..])], false),
        Some(Irreparable::Length)
    );
    assert_eq!(
        decode(&[(0, &[0; 4]), (1, &[0; 4])], false),
        Some(Irreparable::Length)
    );
    assert_eq!(
        decode(&[(0, &[0; 1]), (1, &[0; 1])], true),
        Some(Irreparable::Length)
    );
    assert_eq!(
        decode(&[(0, &[0; 11]), (1, &[0; 11])], true),
        Some(Irreparable::Length)
    );
    // These payloads are the parity of no group: a length decoded from them exceeds the payload.
    assert_eq!(
        decode(&[(0, &[9; 5]), (1, &[8; 5])], true),
        Some(Irreparable::Length)
    );
    let three_lost = [Some(a), None, None, None];
    let parities = [(0, a), (1, a), (2, a)];
    let refused = decoder.decode(&code, &three_lost, &parities, false).err();
    assert_eq!(refused, Some(Irreparable::TooFewParities), "made for two");
}

#[derive(Clone, Debug)]
struct Loss {
    group_size: usize,
    members: Vec<Vec<u8>>,
    lost: Vec<usize>,
    indexes: Vec<usize>,
}

/// Returns a strategy for groups, full or cut short, with members of equal or different lengths. It
/// also chooses the lost members, and the parity packets that arrive instead, in random order.
fn losses() -> impl Strategy<Value = Loss> {
    let sizes = prop::sample::select(vec![2, 4, 8, 16, 32, 64, 128]);
    let shape =
        sizes.prop_flat_map(|size: usize| (Just(size), 1..=size, any::<bool>(), 0..90_usize));
    let group = shape.prop_flat_map(|(size, count, is_variable, len)| {
        let lengths = if is_variable { 0..=len } else { len..=len };
        let member = prop::collection::vec(any::<u8>(), lengths);
        let members = prop::collection::vec(member, count);
        let parities_max = ROWS_MAX - size;
        (Just(size), members, 0..=count.min(parities_max))
    });
    group.prop_flat_map(|(group_size, members, lost_count)| {
        let all: Vec<usize> = (0..members.len()).collect();
        let lost = prop::sample::subsequence(all, lost_count);
        let every: Vec<usize> = (0..ROWS_MAX - group_size).collect();
        let indexes = prop::sample::subsequence(every, lost_count).prop_shuffle();
        (lost, indexes).prop_map(move |(lost, indexes)| Loss {
            group_size,
            members: members.clone(),
            lost,
            indexes,
        })
    })
}

proptest! {
    #[test]
    fn any_losses_are_recovered(loss in losses()) {
        for kernel in [combine, simd::gf256::Level::best().combine()] {
            let code = Code::new(loss.group_size).unwrap();
            let members: Vec<&[u8]> = loss.members.iter().map(Vec::as_slice).collect();
            let mut encoder = Encoder::new(kernel, 128, 90);
            // Another group first: nothing of it may stay in the workspace.
            encoder.encode(&code, &[&[0xAA; 90], &[0xBB; 7]], &[0, 1]);
            let parities = encoder.encode(&code, &members, &loss.indexes);
            let payloads: Vec<_> = loss.indexes.iter().copied().zip(parities.payloads()).collect();
            let there: Vec<_> = (0..members.len())
                .map(|at| (!loss.lost.contains(&at)).then_some(members[at]))
                .collect();
            let mut decoder = Decoder::new(kernel, 128, 90);
            let recovered =
                decoder.decode(&code, &there, &payloads, parities.is_variable()).unwrap();
            let expected: Vec<_> = loss.lost.iter().map(|&at| (at, members[at])).collect();
            prop_assert_eq!(recovered.members().collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn the_kernels_agree(loss in losses()) {
        let code = Code::new(loss.group_size).unwrap();
        let members: Vec<&[u8]> = loss.members.iter().map(Vec::as_slice).collect();
        let [portable, vector] = [combine, simd::gf256::Level::best().combine()].map(|kernel| {
            let mut encoder = Encoder::new(kernel, 128, 90);
            let parities = encoder.encode(&code, &members, &loss.indexes);
            parities.payloads().map(<[u8]>::to_vec).collect::<Vec<_>>()
        });
        prop_assert_eq!(portable, vector);
    }
}
