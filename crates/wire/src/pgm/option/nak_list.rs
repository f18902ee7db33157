//! OPT_NAK_LIST: up to 62 sequence numbers besides the number in the body of a NAK, NNAK or NCF.
//!
//! ```text
//!  0      1     2     3   4     8            4 + 4n, n <= 62
//!  +------+-----+-----+---+-----+-----+ ... +
//!  | 0x02 | len | OPX | 0 | sqn | sqn |     |
//!  +------+-----+-----+---+-----+-----+ ... +
//! ```
//!
//! **Spec**: RFC 3208 section 9.3.

use std::fmt;

use super::Contents;
use crate::{
    ParseError, Sqn,
    cursor::{Reader, Writer},
};

/// Further sequence numbers of a NAK. Senders list them in ascending order; `parse` does not check
/// the order.
#[derive(Clone, Copy)]
pub struct NakList<'a>(Entries<'a>);

/// The entries as they came from the wire, or as the sender of a list holds them.
#[derive(Clone, Copy)]
enum Entries<'a> {
    Wire(&'a [[u8; 4]]),
    Held(&'a [Sqn]),
}

impl<'a> NakList<'a> {
    /// The most sequence numbers in one list.
    pub const SQNS_MAX: usize = 62;

    /// Makes a list to send from ascending numbers, without the one in the packet's body.
    ///
    /// **Panics** (bug): with more than [`NakList::SQNS_MAX`] entries.
    #[must_use]
    pub const fn new(sqns: &'a [Sqn]) -> Self {
        assert!(
            sqns.len() <= Self::SQNS_MAX,
            "a NAK list holds at most 62 sequence numbers"
        );
        Self(Entries::Held(sqns))
    }

    /// Returns the number of sequence numbers.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self.0 {
            Entries::Wire(entries) => entries.len(),
            Entries::Held(sqns) => sqns.len(),
        }
    }

    /// Returns true for a list without entries, which is allowed but pointless.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the sequence numbers in their order in the packet.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Sqn> + use<'a> {
        let entries = self.0;
        (0..self.len()).map(move |index| match entries {
            Entries::Wire(entries) => Sqn(u32::from_be_bytes(entries[index])),
            Entries::Held(sqns) => sqns[index],
        })
    }
}

impl<'a> Contents<'a> for NakList<'a> {
    const NAME: &'static str = "OPT_NAK_LIST";
    const KIND: u8 = 0x02;

    fn parse(reader: &mut Reader<'a>, _specific: u8) -> Result<Self, ParseError> {
        let (entries, rest) = reader.rest().as_chunks();
        if !rest.is_empty() {
            let whole = reader.rest().len().next_multiple_of(4);
            return Err(reader.too_short(whole));
        }
        reader.skip_all();
        Ok(Self(Entries::Wire(entries)))
    }

    fn value_len(&self) -> usize {
        4 * self.len()
    }

    fn emit(&self, writer: &mut Writer<'_>) {
        for sqn in self.iter() {
            writer.sqn(sqn);
        }
    }
}

impl PartialEq for NakList<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for NakList<'_> {}

impl fmt::Debug for NakList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl fmt::Display for NakList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nak-list")?;
        for sqn in self.iter() {
            write!(f, " {sqn}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::kit::read, *};
    use crate::cursor::Writer;

    #[test]
    fn s9_3_a_list_is_one_number_after_the_other() {
        let value = [0, 0, 0, 5, 0, 0, 0, 9, 0xFF, 0xFF, 0xFF, 0xFF];
        let sqns = [Sqn(5), Sqn(9), Sqn(u32::MAX)];
        let list = NakList::new(&sqns);
        assert_eq!(read(&value, 0), Ok(list));
        let mut written = vec![0; list.value_len()];
        list.emit(&mut Writer::new(&mut written));
        assert_eq!(written, value);
        assert_eq!(read(&[], 0), Ok(NakList::new(&[])));
    }

    #[test]
    fn s9_3_a_part_of_a_number_is_an_error() {
        for len in [1, 2, 3, 5] {
            let error = read::<NakList<'_>>(&[0; 8][..len], 0).unwrap_err();
            let needed = len.next_multiple_of(4);
            assert_eq!((error.needed, error.available), (needed, len), "{error}");
        }
    }

    #[test]
    #[should_panic = "at most 62"]
    fn s9_3_a_list_of_more_than_62_is_a_bug() {
        assert_eq!(NakList::new(&[Sqn(0); 63]).len(), 63);
    }
}
