//! The bytes of the object protocol and of the control connection.
//!
//! Four formats, which know nothing of file systems and sockets:
//!
//! * [`BlockHeader`]: 16 bytes in front of each piece of an object, in PGM data packets.
//! * [`FrameHeader`]: 40 bytes in front of each piece of a frame, in PGM data packets.
//! * [`Message`]: what the two ends say on the control connection (TCP), framed by length.
//!   [`Decoder`] finds the frames in a byte stream, with a bounded buffer.
//! * [`ManifestRef`]: the contents of object 0, the sorted list of what a transfer delivers.
//!
//! All numbers are big-endian. Every parser checks bounds and gives a
//! [`ParseError`](crate::ParseError). No parser panics, and none allocates more bytes than it was
//! given.
//!
//! **Spec**: `docs/src/protocol.md`; version [`VERSION`].

mod attributes;
pub use attributes::{
    ATTRIBUTE_VALUE_LEN_MAX, ATTRIBUTES_LEN_MAX, AttributeRef, AttributeSet, AttributeSets,
    AttributesRef, is_attribute_name,
};

mod block;
pub use block::{BlockHeader, BlockKind, ObjectId};

mod decoder;
pub use decoder::{Decoder, StreamError, protect_frame};

mod frame;
pub use frame::{FrameHeader, FrameKind};

mod manifest;
pub use manifest::{
    EntryKind, EntryRef, MANIFEST_HEADER_LEN, MANIFEST_VERSION_MAX, ManifestEntries,
    ManifestHeader, ManifestRef, Mtime, Sections,
};

mod message;
pub use message::{
    Block, Challenge, Done, DoneNumbers, ErrorCode, Hello, Invite, Message, PassEnd, Phase, Pos,
    Progress, Progressed, RangeList, Ranges, Refusal, Seals, StreamPhase, Welcome, Window,
};

mod owners;
pub use owners::{Account, Accounts, OwnersRef, is_account_name};

mod reader;
pub use reader::carried_text;

/// The version of the control protocol and of the block header that this code speaks.
pub const VERSION: u8 = 1;

/// Length of the header in front of every message on a control connection, in bytes.
pub const FRAME_HEADER_LEN: usize = 8;

/// Length of the tag behind the body of a protected frame, in bytes.
pub const TAG_LEN: usize = 16;

/// Length of a nonce in a message, in bytes.
pub const NONCE_LEN: usize = 16;

/// The longest message body that an end ever sends or accepts, in bytes.
pub const BODY_LEN_MAX: usize = 65_536;

/// The longest body that an end accepts before the peer has said who it is, in bytes.
pub const HELLO_LEN_MAX: usize = 512;

/// The longest name of a receiver or sender, in bytes.
pub const NAME_LEN_MAX: usize = 255;

/// The longest explanation in an error or refusal, in bytes.
pub const TEXT_LEN_MAX: usize = 1_000;

/// The most ranges in one HAVE or NEED message; longer lists are split over several.
pub const RANGES_MAX: usize = 2_000;

/// The most object bytes in one BLOCK message.
pub const BLOCK_DATA_MAX: usize = 32_768;
