//! Unsigned numbers in as many bytes as they need: seven bits in each, the lowest first.

/// Appends a number.
pub(super) fn put(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Takes a number off the front; `None` when it is incomplete, or longer than 64 bits.
pub(super) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let part = u64::from(byte & 0x7f);
        if shift == 63 && part > 1 {
            return None;
        }
        value |= part << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_number_comes_back(value: u64) {
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            let mut rest = &bytes[..];
            prop_assert_eq!(take(&mut rest), Some(value));
            prop_assert!(rest.is_empty());
            prop_assert_eq!(take(&mut &bytes[..bytes.len() - 1]), None);
        }
    }

    #[test]
    fn a_number_without_end_is_refused() {
        assert_eq!(take(&mut &[0xff_u8; 20][..]), None);
    }
}
