//! OPT_FRAGMENT in parity packets: the option's contents, encoded like the payloads they describe.
//!
//! The module does not compute parity. A member's contents are a payload of [`FRAGMENT_BYTES`]
//! bytes, for an [`Encoder`](super::Encoder) or [`Decoder`](super::Decoder) that handles nothing
//! else. In a parity packet the encoded contents travel as an option of the same type with the F
//! bit.
//!
//! ```text
//!   option of a member    | E 01 | 16 | 00 | U .. | first sqn | offset | APDU length |
//!   in a parity packet    | E 01 | 16 | F  | <------------ encoded ----------------> |
//! ```
//!
//! **Spec**: RFC 3208 section 11.2, "Payload-specific options".

use wire::{
    Sqn,
    pgm::{Fragment, RawOption},
};

/// Number of bytes of the option that are encoded: all except the first three.
pub const FRAGMENT_BYTES: usize = 13;

/// Returns the bytes of a parity group's member that are encoded: those of its fragment option, or
/// OP_ENCODED_NULL when it has no such option.
#[must_use]
pub fn fragment_contents(fragment: Option<&Fragment>) -> [u8; FRAGMENT_BYTES] {
    let mut bytes = [0; FRAGMENT_BYTES];
    match fragment {
        None => bytes[0] = RawOption::ENCODED_NULL,
        Some(fragment) => {
            let words = [fragment.first.0, fragment.offset, fragment.apdu_len];
            for (room, word) in bytes[1..].chunks_exact_mut(4).zip(words) {
                room.copy_from_slice(&word.to_be_bytes());
            }
        }
    }
    bytes
}

/// Reads the fragment option of a recovered packet; `None` when the packet had no such option. The
/// caller must check that the fragment agrees with its packet.
#[must_use]
pub fn fragment_of(contents: &[u8; FRAGMENT_BYTES]) -> Option<Fragment> {
    let [specific, rest @ ..] = contents;
    if specific & RawOption::ENCODED_NULL != 0 {
        return None;
    }
    let [a, b, c, d, e, f, g, h, i, j, k, l] = *rest;
    Some(Fragment {
        first: Sqn(u32::from_be_bytes([a, b, c, d])),
        offset: u32::from_be_bytes([e, f, g, h]),
        apdu_len: u32::from_be_bytes([i, j, k, l]),
    })
}

/// Makes the option of a parity packet with these encoded contents.
#[must_use]
pub fn encoded_fragment(contents: &[u8; FRAGMENT_BYTES]) -> RawOption<'_> {
    let [specific, value @ ..] = contents;
    RawOption {
        kind: KIND,
        bits: OP_ENCODED,
        specific: *specific,
        value,
    }
}

/// Returns the encoded contents when this option of a parity packet is an encoded OPT_FRAGMENT.
#[must_use]
pub fn encoded_contents(option: &RawOption<'_>) -> Option<[u8; FRAGMENT_BYTES]> {
    if option.kind != KIND || !option.is_encoded() {
        return None;
    }
    let mut bytes = [option.specific; FRAGMENT_BYTES];
    let value: &[u8; FRAGMENT_BYTES - 1] = option.value.try_into().ok()?;
    bytes[1..].copy_from_slice(value);
    Some(bytes)
}

const KIND: u8 = 0x01;
/// The F bit in the third byte of an option: it says that the option's value is encoded.
const OP_ENCODED: u8 = 0x04;

#[cfg(test)]
mod tests {
    use wire::pgm::{Addressing, Body, Data, Flags, Packet, PgmOption, emit_flagged};

    use super::{
        super::{Code, Decoder, Encoder, combine},
        *,
    };

    fn members() -> [Option<Fragment>; 4] {
        let piece = |offset| {
            Some(Fragment {
                first: Sqn(u32::MAX),
                offset,
                apdu_len: 2500,
            })
        };
        [None, piece(0), piece(1428), None]
    }

    /// Writes `contents` into a parity packet, and returns what is read from that packet.
    fn over_the_wire(contents: &[u8; FRAGMENT_BYTES]) -> [u8; FRAGMENT_BYTES] {
        let body = Body::Rdata(Data {
            sqn: Sqn(4),
            trail: Sqn(0),
        });
        let mut tpdu = Vec::new();
        let options = [PgmOption::Encoded(encoded_fragment(contents))];
        let addressing = Addressing::default();
        emit_flagged(&mut tpdu, &addressing, Flags::PARITY, &body, &options, b"x");
        let packet = Packet::parse(&tpdu).unwrap();
        let option = packet.options().next().unwrap();
        let PgmOption::Encoded(raw) = option else {
            panic!("{option} is not encoded");
        };
        encoded_contents(&raw).unwrap()
    }

    #[test]
    fn options_of_lost_members_come_back_with_any_two_lost() {
        let code = Code::new(4).unwrap();
        let fragments = members();
        let contents = fragments
            .each_ref()
            .map(|at| fragment_contents(at.as_ref()));
        let slices = contents.each_ref().map(|bytes| &bytes[..]);
        let mut encoder = Encoder::new(combine, 2, FRAGMENT_BYTES);
        let parities = encoder.encode(&code, &slices, &[0, 5]);
        assert!(!parities.is_variable());
        let parities: Vec<[u8; FRAGMENT_BYTES]> = parities
            .payloads()
            .map(|payload| over_the_wire(payload.try_into().unwrap()))
            .collect();
        let parities = [(0, &parities[0][..]), (5, &parities[1][..])];
        let mut decoder = Decoder::new(combine, 2, FRAGMENT_BYTES);
        for (one, two) in [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)] {
            let mut there = slices.map(Some);
            (there[one], there[two]) = (None, None);
            let recovered = decoder.decode(&code, &there, &parities, false).unwrap();
            let found: Vec<_> = recovered
                .members()
                .map(|(at, bytes)| (at, fragment_of(bytes.try_into().unwrap())))
                .collect();
            assert_eq!(found, [(one, fragments[one]), (two, fragments[two])]);
        }
    }

    #[test]
    fn an_option_of_another_length_or_type_or_not_encoded_is_none() {
        let contents = fragment_contents(None);
        let good = encoded_fragment(&contents);
        assert_eq!(encoded_contents(&good), Some(contents));
        for bad in [
            RawOption { kind: 0x03, ..good },
            RawOption { bits: 0, ..good },
            RawOption {
                value: &contents[2..],
                ..good
            },
        ] {
            assert_eq!(encoded_contents(&bad), None, "{bad}");
        }
    }
}
