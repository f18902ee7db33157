//! The messages that the two ends of a control connection send each other.
//!
//! ```text
//! frame:  body length u32 | kind u16 | flags u16 | body
//!         flags bit 0: an end that does not know the kind must give up, not skip the frame
//!         flags bit 1: the last 16 bytes of the body are a tag under the connection's key
//! ```
//!
//! A body has the fields of its struct in order of declaration. HELLO has four fixed bytes in front
//! of its fields. A byte before each optional field says whether the field counts. A reader skips
//! bytes behind the last field that it knows, because a later minor version may append fields. The
//! greeting states a range of versions. So when the two ends have no version in common, the refusal
//! says so.
//!
//! ```text
//!   receiver                                   sender
//!                       (where the sender dials) INVITE
//!   (WAIT, while others have all places)
//!   HELLO ------------------------------------> (with a key: CHALLENGE, tagged)
//!   (with a key: HELLO again, tagged) --------> WELCOME or REFUSED
//!   (NEED manifest) HAVE ---------------------> BLOCK...  PASS_END
//!   PROGRESS / POS ...                          SEALS, BLOCK..., PASS_END
//!   NEED... or COMPLETE ----------------------> the next pass
//!   DONE -------------------------------------> ACKNOWLEDGED
//!   ERROR, BYE                                  ERROR, BYE
//! ```

use std::ops::Range;

use super::{
    BLOCK_DATA_MAX, BODY_LEN_MAX, FRAME_HEADER_LEN, NAME_LEN_MAX, NONCE_LEN, ObjectId, RANGES_MAX,
    TAG_LEN, TEXT_LEN_MAX,
    reader::{Reader, emit_text, short, too_long},
};
use crate::ParseError;

mod code;
pub use code::{ErrorCode, Phase, Refusal, StreamPhase};

mod display;

mod ranges;
pub use ranges::{RangeList, Ranges};

/// One message, borrowed from the bytes it was read from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Message<'a> {
    /// The sender names its session. This is the first message on a connection that the sender
    /// dialled. The receiver answers with its greeting, [`Message::Wait`] or a refusal.
    Invite(Invite),
    /// The receiver has read the invitation, and greets when it has a place for one more transfer.
    /// Until then, the sender waits on this connection, and gets this message again and again.
    Wait,
    /// A receiver says who it is. This is its first message on a connection, unless
    /// [`Message::Wait`] comes before.
    Hello(Hello<'a>),
    /// The sender shows that it has the key, and asks the receiver to show the key, too, by a
    /// tagged greeting.
    Challenge(Challenge),
    /// The sender admits the receiver.
    Welcome(Welcome),
    /// The sender refuses the receiver, or a receiver refuses an invitation; the connection closes.
    Refused {
        /// The reason for the program.
        reason: Refusal,
        /// The reason for a person.
        text: &'a str,
    },
    /// What the receiver already holds of an object. The message also says that the receiver has
    /// the manifest.
    Have(RangeList<'a>),
    /// What the receiver lacks of an object after a pass.
    Need(RangeList<'a>),
    /// The sender has sent everything that belongs to a pass.
    PassEnd(PassEnd),
    /// The receiver lacks nothing after a pass.
    Complete {
        /// The number of the pass.
        pass: u32,
    },
    /// The sender has made the seals object; the message tells its length and hash.
    Seals(Seals),
    /// A piece of an object for this receiver alone.
    Block(Block<'a>),
    /// How far the receiver is in the packet stream.
    Pos(Pos),
    /// How far the receiver is with the objects.
    Progress(Progress),
    /// All files are in place, synced and verified.
    Done(Done),
    /// The sender has noted the receiver's [`Message::Done`].
    Acknowledged,
    /// The receiver asks how far the sender's packet stream is. It asks when packets claim
    /// something that only the sender may say.
    Ask,
    /// How far the sender's packet stream is.
    Window(Window),
    /// What the sender of messages calls itself, for a person; at most once, after
    /// [`Message::Welcome`].
    Name {
        /// The name, of at most 255 bytes.
        name: &'a str,
    },
    /// This end cannot go on.
    Error {
        /// The reason for the program.
        code: ErrorCode,
        /// The reason for a person.
        text: &'a str,
    },
    /// This end leaves in good order.
    Bye,
    /// A kind that this version does not know.
    Unknown {
        /// The message's kind.
        kind: u16,
        /// True when a reader must not skip the message.
        is_critical: bool,
    },
}

/// What the mark in the sender's SPMs says of a session, told on a connection that the sender
/// dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invite {
    /// The session's number.
    pub session_id: u64,
    /// Features that a receiver must know, as in the mark.
    pub required: u16,
    /// Number of receivers that the sender counts or expects.
    pub receiver_count: u32,
}

/// A receiver's greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// The oldest protocol version that the receiver speaks.
    pub version_min: u8,
    /// The newest protocol version that the receiver speaks.
    pub version_max: u8,
    /// A number that tells two runs of the same receiver apart.
    pub instance: u64,
    /// The session that the receiver heard of, from the mark in the sender's SPMs or from
    /// [`Invite`].
    pub session_id: u64,
    /// The receiver's name in reports; unique among the receivers of a session. With a key it may
    /// be empty: the first greeting does not tell it.
    pub name: &'a str,
    /// With a key: random bytes from which this connection's keys are derived. `None` without a
    /// key.
    pub nonce: Option<[u8; NONCE_LEN]>,
}

/// The sender's half of the random bytes from which a connection's keys are derived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// The sender's random bytes; never the same twice.
    pub nonce: [u8; NONCE_LEN],
}

/// The sender's answer to a greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The protocol version that both ends will speak.
    pub version: u8,
    /// The receiver's number in this session; the mark names the limiting receiver by it.
    pub slot: u32,
    /// The identity of the manifest that is delivered; all zero in a session of messages.
    pub manifest: [u8; 16],
    /// The session's number, as in the greeting.
    pub session_id: u64,
    /// Number of receivers; it scales the jitter of their answers.
    pub receiver_count: u32,
    /// The longest time between two position reports, in microseconds.
    pub report_interval_us: u32,
    /// The most sequence numbers between two position reports; 0 for no such limit.
    pub report_sqns: u32,
    /// Length of the manifest in bytes; 0 in a session of messages.
    pub manifest_bytes: u64,
    /// True when content is on its way already, so the receiver must fetch the manifest over this
    /// connection.
    pub is_late: bool,
    /// Random bytes of this connection, which [`Done::proof`] answers; all zero in a session of
    /// messages.
    pub nonce: [u8; NONCE_LEN],
}

/// How far the sender's packet stream is, as positions; their low 32 bits are sequence numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The position before which the sender can repair nothing any more.
    pub trail: u64,
    /// One past the last packet that has left.
    pub end: u64,
    /// Whether more will follow.
    pub phase: StreamPhase,
}

/// The end of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassEnd {
    /// The number of the pass; the answer names it.
    pub pass: u32,
    /// The last packet position of the pass; `None` when the packet stream carried nothing of it.
    pub position: Option<u64>,
}

/// The seals object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seals {
    /// Length of the object in bytes.
    pub bytes: u64,
    /// BLAKE3 hash of the object's bytes.
    pub hash: [u8; 32],
}

/// Bytes of an object on the control connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block<'a> {
    /// The object that the bytes belong to.
    pub object: ObjectId,
    /// Position of the first byte within the object.
    pub offset: u64,
    /// The bytes; at least one, at most [`BLOCK_DATA_MAX`].
    pub data: &'a [u8],
}

macro_rules! numbers {
    ($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ident,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name { $($(#[$field_meta])* pub $field: $type,)+ }

        impl $name {
            fn read(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
                Ok(Self { $($field: reader.$type(stringify!($field))?,)+ })
            }

            fn emit(&self, out: &mut Vec<u8>) {
                $(out.extend_from_slice(&self.$field.to_be_bytes());)+
            }
        }
    };
}

numbers! {
    /// A receiver's position in the packet stream, its losses and its delays.
    Pos {
        /// The first position that the receiver's application has not been given. The low 32 bits
        /// are the sequence number.
        contiguous: u64,
        /// The highest position that the receiver knows to exist.
        lead: u64,
        /// Positions received beyond the first gap.
        held: u64,
        /// Bytes that arrive per second, headers included.
        bytes_per_s: u64,
        /// Time that packets spend in queues beyond the least time seen, in microseconds.
        queue_delay_us: u32,
        /// Packets that the receiver's kernel dropped because a socket buffer was full.
        host_drops: u64,
        /// Positions lost for good.
        lost: u64,
        /// Positions that were missing at first, each counted once.
        naks: u64,
        /// Transmission time in the last mark received, in microseconds of the sender's clock.
        echo_us: u64,
        /// Time since that mark arrived, in microseconds.
        echo_age_us: u32,
    }
}

numbers! {
    /// The fields of [`Progress`] behind the phase.
    Progressed {
        /// Bytes of content that the receiver holds; while it joins, of the manifest.
        held: u64,
        /// Bytes of content that the receiver has checked against their seals.
        verified: u64,
        /// Packets that had to be repaired, or that are missing.
        lost: u64,
        /// Repairs asked for.
        repairs_asked: u64,
        /// Repairs received.
        repairs_got: u64,
        /// Blocks that the receiver did not take because its disk was behind.
        store_waits: u64,
    }
}

/// The progress of a receiver with a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The phase that the receiver is in.
    pub phase: Phase,
    /// The numbers that measure its progress.
    pub numbers: Progressed,
}

/// A receiver's proof of delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// One hash over the roots and paths of all files.
    pub root: [u8; 32],
    /// Shows that the receiver has computed the hash of every byte: the answer to
    /// [`Welcome::nonce`].
    pub proof: [u8; 32],
    /// The numbers of the finished transfer.
    pub numbers: DoneNumbers,
}

numbers! {
    /// The fields of [`Done`] behind the proof.
    DoneNumbers {
        /// Bytes of content in place.
        bytes: u64,
        /// Packets that were lost on the way, then repaired or fetched later.
        lost: u64,
        /// Repairs asked for.
        repairs_asked: u64,
        /// Repairs received.
        repairs_got: u64,
        /// Time up to the last rename, in nanoseconds. It begins with the first content that
        /// arrived, or with the greeting when no content had to come.
        time_ns: u64,
    }
}

impl<'a> Message<'a> {
    /// Reads the body of a frame.
    ///
    /// # Errors
    /// When a field is cut short or holds a value that the format forbids. Offsets count from the
    /// first byte of the frame's header.
    pub fn parse(kind: u16, flags: u16, body: &'a [u8]) -> Result<Self, ParseError> {
        Self::read(kind, flags, body).map_err(|error| error.within(FRAME_HEADER_LEN))
    }

    fn read(kind: u16, flags: u16, body: &'a [u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(body, LIMIT);
        let r = &mut reader;
        Ok(match kind {
            INVITE => Self::Invite(Invite {
                session_id: r.u64("session")?,
                required: r.u16("required features")?,
                receiver_count: r.u32("receiver count")?,
            }),
            WAIT => Self::Wait,
            HELLO => Self::Hello(Hello::read(r)?),
            WELCOME => Self::Welcome(Welcome::read(r)?),
            REFUSED => Self::Refused {
                reason: Refusal::from_wire(r.u16("reason")?),
                text: r.text("explanation", TEXT_LEN_MAX)?,
            },
            HAVE => Self::Have(RangeList::read(r)?),
            NEED => Self::Need(RangeList::read(r)?),
            PASS_END => Self::PassEnd(PassEnd::read(r)?),
            COMPLETE => Self::Complete {
                pass: r.u32("pass")?,
            },
            SEALS => Self::Seals(Seals {
                bytes: r.u64("seals length")?,
                hash: r.array("seals hash")?,
            }),
            BLOCK => Self::Block(Block::read(r)?),
            POS => Self::Pos(Pos::read(r)?),
            PROGRESS => Self::Progress(Progress {
                phase: Phase::from_wire(r.u8("phase")?),
                numbers: Progressed::read(r)?,
            }),
            DONE => Self::Done(Done {
                root: r.array("tree root")?,
                proof: r.array("proof")?,
                numbers: DoneNumbers::read(r)?,
            }),
            ACKNOWLEDGED => Self::Acknowledged,
            ASK => Self::Ask,
            WINDOW => Self::Window(Window {
                trail: r.u64("trail")?,
                end: r.u64("end")?,
                phase: StreamPhase::from_wire(r.u8("stream phase")?),
            }),
            NAME => Self::Name {
                name: r.text("sender name", NAME_LEN_MAX)?,
            },
            ERROR => Self::Error {
                code: ErrorCode::from_wire(r.u16("error code")?),
                text: r.text("explanation", TEXT_LEN_MAX)?,
            },
            BYE => Self::Bye,
            CHALLENGE => Self::Challenge(Challenge {
                nonce: r.array("nonce")?,
            }),
            _ => Self::Unknown {
                kind,
                is_critical: flags & CRITICAL != 0,
            },
        })
    }

    /// Appends the message as one frame. Texts are cut and cleaned so that `parse` accepts them.
    ///
    /// **Panics** (bug): when a block or list of ranges is longer than one message may be.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let flags = match self {
            Self::Unknown {
                is_critical: true, ..
            } => CRITICAL,
            _ => 0,
        };
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.kind().to_be_bytes());
        out.extend_from_slice(&flags.to_be_bytes());
        self.emit_body(out);
        let len = out.len() - start - FRAME_HEADER_LEN;
        assert!(
            len <= BODY_LEN_MAX - TAG_LEN,
            "a message is longer than any may be"
        );
        let len = u32::try_from(len).expect("checked against the longest body");
        out[start..start + 4].copy_from_slice(&len.to_be_bytes());
    }

    fn emit_body(&self, out: &mut Vec<u8>) {
        match self {
            Self::Invite(invite) => {
                out.extend_from_slice(&invite.session_id.to_be_bytes());
                out.extend_from_slice(&invite.required.to_be_bytes());
                out.extend_from_slice(&invite.receiver_count.to_be_bytes());
            }
            Self::Hello(hello) => hello.emit(out),
            Self::Challenge(challenge) => out.extend_from_slice(&challenge.nonce),
            Self::Welcome(welcome) => welcome.emit(out),
            Self::Refused { reason, text } => {
                out.extend_from_slice(&reason.to_wire().to_be_bytes());
                emit_text(out, text, TEXT_LEN_MAX);
            }
            Self::Have(list) | Self::Need(list) => list.emit(out),
            Self::PassEnd(end) => end.emit(out),
            Self::Complete { pass } => out.extend_from_slice(&pass.to_be_bytes()),
            Self::Seals(seals) => {
                out.extend_from_slice(&seals.bytes.to_be_bytes());
                out.extend_from_slice(&seals.hash);
            }
            Self::Block(block) => block.emit(out),
            Self::Pos(pos) => pos.emit(out),
            Self::Progress(progress) => {
                out.push(progress.phase.to_wire());
                progress.numbers.emit(out);
            }
            Self::Done(done) => {
                out.extend_from_slice(&done.root);
                out.extend_from_slice(&done.proof);
                done.numbers.emit(out);
            }
            Self::Error { code, text } => {
                out.extend_from_slice(&code.to_wire().to_be_bytes());
                emit_text(out, text, TEXT_LEN_MAX);
            }
            Self::Window(window) => {
                out.extend_from_slice(&window.trail.to_be_bytes());
                out.extend_from_slice(&window.end.to_be_bytes());
                out.push(window.phase.to_wire());
            }
            Self::Name { name } => emit_text(out, name, NAME_LEN_MAX),
            Self::Wait | Self::Acknowledged | Self::Ask | Self::Bye | Self::Unknown { .. } => {}
        }
    }

    const fn kind(&self) -> u16 {
        match self {
            Self::Invite(_) => INVITE,
            Self::Wait => WAIT,
            Self::Hello(_) => HELLO,
            Self::Challenge(_) => CHALLENGE,
            Self::Welcome(_) => WELCOME,
            Self::Refused { .. } => REFUSED,
            Self::Have(_) => HAVE,
            Self::Need(_) => NEED,
            Self::PassEnd(_) => PASS_END,
            Self::Complete { .. } => COMPLETE,
            Self::Seals(_) => SEALS,
            Self::Block(_) => BLOCK,
            Self::Pos(_) => POS,
            Self::Progress(_) => PROGRESS,
            Self::Done(_) => DONE,
            Self::Acknowledged => ACKNOWLEDGED,
            Self::Ask => ASK,
            Self::Window(_) => WINDOW,
            Self::Name { .. } => NAME,
            Self::Error { .. } => ERROR,
            Self::Bye => BYE,
            Self::Unknown { kind, .. } => *kind,
        }
    }
}

impl<'a> Hello<'a> {
    fn read(r: &mut Reader<'a>) -> Result<Self, ParseError> {
        let magic = r.u32("greeting magic")?;
        if magic.to_be_bytes() != GREETING {
            return Err(r.forbidden("greeting magic", 0, u64::from(magic)));
        }
        let version_min = r.u8("oldest version")?;
        let version_max = r.u8("newest version")?;
        let instance = r.u64("instance")?;
        let session_id = r.u64("session")?;
        let name_at = r.offset();
        let hello = Self {
            version_min,
            version_max,
            instance,
            session_id,
            name: r.text("receiver name", NAME_LEN_MAX)?,
            nonce: {
                let has_nonce = r.flag("key flag")?;
                let nonce = r.array("nonce")?;
                has_nonce.then_some(nonce)
            },
        };
        if hello.name.is_empty() && hello.nonce.is_none() {
            return Err(r.forbidden("length of the receiver name", name_at, 0));
        }
        Ok(hello)
    }

    fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&GREETING);
        out.extend_from_slice(&[self.version_min, self.version_max]);
        out.extend_from_slice(&self.instance.to_be_bytes());
        out.extend_from_slice(&self.session_id.to_be_bytes());
        emit_text(out, self.name, NAME_LEN_MAX);
        out.push(u8::from(self.nonce.is_some()));
        out.extend_from_slice(&self.nonce.unwrap_or_default());
    }
}

impl Welcome {
    fn read(r: &mut Reader<'_>) -> Result<Self, ParseError> {
        Ok(Self {
            version: r.u8("version")?,
            slot: r.u32("slot")?,
            manifest: r.array("manifest")?,
            session_id: r.u64("session")?,
            receiver_count: r.u32("receiver count")?,
            report_interval_us: r.u32("report interval")?,
            report_sqns: r.u32("report distance")?,
            manifest_bytes: r.u64("manifest bytes")?,
            is_late: r.flag("late flag")?,
            nonce: r.array("nonce")?,
        })
    }

    fn emit(&self, out: &mut Vec<u8>) {
        out.push(self.version);
        out.extend_from_slice(&self.slot.to_be_bytes());
        out.extend_from_slice(&self.manifest);
        out.extend_from_slice(&self.session_id.to_be_bytes());
        out.extend_from_slice(&self.receiver_count.to_be_bytes());
        out.extend_from_slice(&self.report_interval_us.to_be_bytes());
        out.extend_from_slice(&self.report_sqns.to_be_bytes());
        out.extend_from_slice(&self.manifest_bytes.to_be_bytes());
        out.push(u8::from(self.is_late));
        out.extend_from_slice(&self.nonce);
    }
}

impl PassEnd {
    fn read(r: &mut Reader<'_>) -> Result<Self, ParseError> {
        let pass = r.u32("pass")?;
        let has_position = r.flag("position flag")?;
        let position = r.u64("position")?;
        Ok(Self {
            pass,
            position: has_position.then_some(position),
        })
    }

    fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.pass.to_be_bytes());
        out.push(u8::from(self.position.is_some()));
        out.extend_from_slice(&self.position.unwrap_or(0).to_be_bytes());
    }
}

impl<'a> Block<'a> {
    fn read(r: &mut Reader<'a>) -> Result<Self, ParseError> {
        let object = ObjectId(r.u32("object")?);
        let offset = r.u64("offset")?;
        let (at, len) = (r.offset(), r.remaining());
        if len == 0 {
            return Err(short("block data", at, 1, 0, LIMIT));
        }
        if len > BLOCK_DATA_MAX {
            let length = "the length of the data";
            return Err(too_long("block data", at, len, BLOCK_DATA_MAX, length));
        }
        if offset.checked_add(len as u64).is_none() {
            return Err(r.forbidden("block position", at - 8, offset));
        }
        Ok(Self {
            object,
            offset,
            data: r.take("block data", len)?,
        })
    }

    fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.object.0.to_be_bytes());
        out.extend_from_slice(&self.offset.to_be_bytes());
        out.extend_from_slice(self.data);
    }

    /// Appends a BLOCK as one frame. `fill` appends the `len` bytes of data right behind the
    /// frame's other fields, so that they are written once. When `fill` fails, nothing is appended.
    ///
    /// # Errors
    /// Those of `fill`.
    ///
    /// **Panics** (bug): when a message cannot have so many bytes of data, or `fill` appends more
    /// or fewer.
    pub fn emit_filled<E>(
        out: &mut Vec<u8>,
        (object, offset): (ObjectId, u64),
        len: usize,
        fill: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        assert!(
            (1..=BLOCK_DATA_MAX).contains(&len),
            "a block is longer than any may be, or empty"
        );
        let start = out.len();
        let data = &[];
        Message::Block(Block {
            object,
            offset,
            data,
        })
        .emit(out);
        let at = out.len();
        out.reserve(len);
        if let Err(error) = fill(out) {
            out.truncate(start);
            return Err(error);
        }
        assert_eq!(out.len() - at, len, "another length was announced");
        let body = u32::try_from(out.len() - start - FRAME_HEADER_LEN);
        let body = body.expect("checked against the longest data");
        out[start..start + 4].copy_from_slice(&body.to_be_bytes());
        Ok(())
    }
}

/// What limits a message's fields, in the words of an error.
const LIMIT: &str = "the frame's length field";
const GREETING: [u8; 4] = *b"TWLC";
const CRITICAL: u16 = 0x0001;

const HELLO: u16 = 1;
const WELCOME: u16 = 2;
const REFUSED: u16 = 3;
const HAVE: u16 = 4;
const NEED: u16 = 5;
const PASS_END: u16 = 6;
const COMPLETE: u16 = 7;
const SEALS: u16 = 8;
const BLOCK: u16 = 9;
const POS: u16 = 10;
const PROGRESS: u16 = 11;
const DONE: u16 = 12;
const ACKNOWLEDGED: u16 = 13;
const ERROR: u16 = 14;
const BYE: u16 = 15;
const CHALLENGE: u16 = 16;
const ASK: u16 = 17;
const WINDOW: u16 = 18;
const NAME: u16 = 19;
const INVITE: u16 = 20;
const WAIT: u16 = 21;

#[cfg(test)]
mod tests;
