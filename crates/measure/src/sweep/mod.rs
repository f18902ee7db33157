//! The parts of a sweep: the header of its datagrams, the count of those that came, and the search
//! for the highest rate without loss.
//!
//! ```text
//!   RateSearch -- Load --> (engine sends headers with numbers) --> Tally --> loss --> RateSearch
//! ```

mod header;
pub use header::{HEADER_BYTES, Header};

mod search;
pub use search::{Load, RateSearch, Trial};

mod tally;
pub use tally::Tally;
