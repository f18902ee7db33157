//! OPT_NAK_LIST: up to 62 sequence numbers besides the one in the body of a NAK, NNAK or NCF.
//!
//! **Spec**: RFC 3208 section 9.3.

use std::fmt;

use super::Contents;
use crate::{
    ParseError, Sqn,
    cursor::{Reader, Writer},
};

/// Further sequence numbers of a NAK, in ascending order.
#[derive(Clone, Copy)]
pub struct NakList<'a>(Entries<'a>);

/// The entries as they came off the wire, or as the sender of a list holds them.
#[derive(Clone, Copy)]
enum Entries<'a> {
    Wire(&'a [[u8; 4]]),
    Held(&'a [Sqn]),
}

impl<'a> NakList<'a> {
    /// Most sequence numbers in one list.
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

    /// Number of sequence numbers.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self.0 {
            Entries::Wire(entries) => entries.len(),
            Entries::Held(sqns) => sqns.len(),
        }
    }

    /// True for a list without entries, which is allowed but pointless.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The sequence numbers in their order in the packet.
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
