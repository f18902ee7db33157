//! Fuzz bodies: what the fuzz targets run on arbitrary bytes, and what property tests run on lists
//! of operations. They panic when an invariant breaks, and are no part of the API.

mod parity;
pub use parity::parity_ops;

mod receiver;
pub use receiver::receiver_ops;

mod source;
pub use source::{SourceOp, SourcePlan, source_ops};
