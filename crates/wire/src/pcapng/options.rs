//! Options at the end of a block's body.

/// The options of one block, in the file's byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options<'a> {
    bytes: &'a [u8],
    is_big_endian: bool,
}

impl<'a> Options<'a> {
    /// Makes an empty list of options.
    #[must_use]
    pub const fn empty() -> Self {
        Self {
            bytes: &[],
            is_big_endian: false,
        }
    }

    /// Makes the list of the options in `bytes`.
    #[inline]
    #[must_use]
    pub const fn new(bytes: &'a [u8], is_big_endian: bool) -> Self {
        Self {
            bytes,
            is_big_endian,
        }
    }

    /// Returns the first option with this code.
    #[must_use]
    pub fn find(&self, code: u16) -> Option<OptionField<'a>> {
        self.iter().find(|option| option.code == code)
    }

    /// Returns the options in order, up to the first that does not fit into the bytes.
    pub fn iter(&self) -> impl Iterator<Item = OptionField<'a>> + use<'a> {
        let is_big_endian = self.is_big_endian;
        let mut rest = self.bytes;
        std::iter::from_fn(move || {
            let (&[a, b, c, d], tail) = rest.split_first_chunk::<4>()?;
            let half = |bytes: [u8; 2]| {
                if is_big_endian {
                    u16::from_be_bytes(bytes)
                } else {
                    u16::from_le_bytes(bytes)
                }
            };
            let (code, len) = (half([a, b]), usize::from(half([c, d])));
            if code == super::OPTION_END {
                return None;
            }
            let value = tail.get(..len)?;
            rest = tail.get(len.next_multiple_of(4)..).unwrap_or_default();
            Some(OptionField {
                code,
                value,
                is_big_endian,
            })
        })
    }

    /// Returns the options' bytes, and whether they are big-endian: the arguments of
    /// [`Options::new`].
    #[must_use]
    pub const fn as_bytes(&self) -> (&'a [u8], bool) {
        (self.bytes, self.is_big_endian)
    }

    /// Returns true when there are no bytes at all, not even the end mark.
    #[inline]
    #[must_use]
    pub const fn has_no_bytes(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns true when there is no option.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self::empty()
    }
}

/// One option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionField<'a> {
    /// The option's code.
    pub code: u16,
    /// The option's bytes, without padding.
    pub value: &'a [u8],
    is_big_endian: bool,
}

impl OptionField<'_> {
    /// Returns the value as text; bytes that are not UTF-8 are replaced.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.value).into_owned()
    }

    /// Returns the value as a number of 32 bits; `None` when it is too short.
    #[must_use]
    pub fn u32(&self) -> Option<u32> {
        let bytes = *self.value.first_chunk()?;
        Some(if self.is_big_endian {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        })
    }

    /// Returns the value as a number of 64 bits; `None` when it is too short.
    #[must_use]
    pub fn u64(&self) -> Option<u64> {
        let bytes = *self.value.first_chunk()?;
        Some(if self.is_big_endian {
            u64::from_be_bytes(bytes)
        } else {
            u64::from_le_bytes(bytes)
        })
    }
}
