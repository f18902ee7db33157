//! The two feeds of the same frames.

/// One of the two feeds of the same frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feed {
    /// The feed that was named first.
    First,
    /// The other feed.
    Second,
}

impl Feed {
    /// Both feeds.
    pub const ALL: [Self; 2] = [Self::First, Self::Second];

    /// Returns the other feed.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }

    /// Returns the feed's index in an array with one element for each feed.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}
