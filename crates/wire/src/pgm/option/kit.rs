//! Functions that the tests of single options share.

use std::fmt::Debug;

use super::{Contents, RawOption};
use crate::{ParseError, cursor::Writer};

/// Reads what follows an option's first four bytes; `specific` is the fourth of them.
pub(super) fn read<'a, T: Contents<'a>>(value: &'a [u8], specific: u8) -> Result<T, ParseError> {
    let raw = RawOption {
        kind: T::KIND,
        bits: 0,
        specific,
        value,
    };
    raw.contents(RawOption::HEADER_LEN)
}

/// Asserts that `value` is read as `contents`, that `contents` is written as `value` and
/// `specific`, and that a `value` of another length is refused.
pub(super) fn assert_bytes<'a, T: Contents<'a> + Debug + PartialEq>(
    value: &'a [u8],
    specific: u8,
    contents: &T,
) {
    assert_eq!(read::<T>(value, specific).as_ref(), Ok(contents));
    let mut written = vec![0xEE; contents.value_len()];
    contents.emit(&mut Writer::new(&mut written));
    assert_eq!((&written[..], contents.specific()), (value, specific));
    for len in 0..value.len() {
        let error = read::<T>(&value[..len], specific).unwrap_err();
        assert_eq!(error.layer, T::NAME, "cut to {len}");
    }
    let longer: &'static [u8] = [value, &[0]].concat().leak();
    assert!(read::<T>(longer, specific).is_err(), "a byte too many");
}
