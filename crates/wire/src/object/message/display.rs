//! Each message as one line, for logs and for tests that fail. A text of another host is shown
//! without the characters that could command a terminal. Content is shown only as a number of
//! bytes.

use std::fmt;

use base::text::printable;

use super::{Hello, Message, RangeList, TEXT_LEN_MAX};

impl Message<'_> {
    /// Returns the message's name in logs.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Invite(_) => "INVITE",
            Self::Wait => "WAIT",
            Self::Hello(_) => "HELLO",
            Self::Challenge(_) => "CHALLENGE",
            Self::Welcome(_) => "WELCOME",
            Self::Refused { .. } => "REFUSED",
            Self::Have(_) => "HAVE",
            Self::Need(_) => "NEED",
            Self::PassEnd(_) => "PASS_END",
            Self::Complete { .. } => "COMPLETE",
            Self::Seals(_) => "SEALS",
            Self::Block(_) => "BLOCK",
            Self::Pos(_) => "POS",
            Self::Progress(_) => "PROGRESS",
            Self::Done(_) => "DONE",
            Self::Acknowledged => "ACKNOWLEDGED",
            Self::Ask => "ASK",
            Self::Window(_) => "WINDOW",
            Self::Name { .. } => "NAME",
            Self::Error { .. } => "ERROR",
            Self::Bye => "BYE",
            Self::Unknown { .. } => "UNKNOWN",
        }
    }
}

impl fmt::Display for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::Invite(invite) => write!(
                f,
                " session {} receivers {}",
                invite.session_id, invite.receiver_count
            ),
            Self::Hello(hello) => write!(f, "{hello}"),
            Self::Welcome(welcome) => write!(
                f,
                " version {} session {} slot {} manifest {} bytes",
                welcome.version, welcome.session_id, welcome.slot, welcome.manifest_bytes
            ),
            Self::Refused { reason, text } => write!(f, " {reason}: {}", shown(text)),
            Self::Have(list) | Self::Need(list) => write!(f, "{list}"),
            Self::PassEnd(end) => {
                write!(f, " pass {}", end.pass)?;
                match end.position {
                    Some(position) => write!(f, " at {position}"),
                    None => Ok(()),
                }
            }
            Self::Complete { pass } => write!(f, " pass {pass}"),
            Self::Seals(seals) => write!(f, " {} bytes", seals.bytes),
            Self::Block(block) => write!(
                f,
                " object {} at {}, {} bytes",
                block.object.0,
                block.offset,
                block.data.len()
            ),
            Self::Pos(pos) => write!(
                f,
                " at {} of {}, {} held, {} lost, {} bytes/s",
                pos.contiguous, pos.lead, pos.held, pos.lost, pos.bytes_per_s
            ),
            Self::Progress(progress) => write!(
                f,
                " {}, {} bytes held, {} verified",
                progress.phase, progress.numbers.held, progress.numbers.verified
            ),
            Self::Done(done) => write!(f, " {} bytes", done.numbers.bytes),
            Self::Window(window) => {
                write!(f, " {}..{}, {}", window.trail, window.end, window.phase)
            }
            Self::Name { name } => write!(f, " {}", shown(name)),
            Self::Error { code, text } => write!(f, " {code}: {}", shown(text)),
            Self::Unknown { kind, .. } => write!(f, " kind {kind}"),
            Self::Challenge(_) | Self::Wait | Self::Acknowledged | Self::Ask | Self::Bye => Ok(()),
        }
    }
}

impl fmt::Display for Hello<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (min, max) = (self.version_min, self.version_max);
        let (session, name) = (self.session_id, shown(self.name));
        let key = if self.nonce.is_some() {
            " with a key"
        } else {
            ""
        };
        write!(f, " versions {min} to {max} session {session} {name}{key}")
    }
}

impl fmt::Display for RangeList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (object, pass) = (self.object.0, self.pass);
        write!(f, " object {object} pass {pass}")?;
        let mut ranges = self.ranges.iter();
        for range in ranges.by_ref().take(RANGES_SHOWN_MAX) {
            write!(f, " {}..{}", range.start, range.end)?;
        }
        match ranges.count() {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

fn shown(text: &str) -> std::borrow::Cow<'_, str> {
    printable(text, TEXT_LEN_MAX)
}

/// The most ranges of a list that are shown; a list may have thousands.
const RANGES_SHOWN_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::super::{Block, ErrorCode, ObjectId, PassEnd};
    use super::*;

    #[test]
    fn a_message_is_a_line_that_commands_no_terminal() {
        let block = Message::Block(Block {
            object: ObjectId(1),
            offset: 7,
            data: b"abc",
        });
        assert_eq!(block.to_string(), "BLOCK object 1 at 7, 3 bytes");
        let end = Message::PassEnd(PassEnd {
            pass: 2,
            position: Some(9),
        });
        assert_eq!(end.to_string(), "PASS_END pass 2 at 9");
        assert_eq!(Message::Bye.to_string(), "BYE");
        let error = Message::Error {
            code: ErrorCode::Cancelled,
            text: "a\u{1b}[1m\nb",
        };
        assert_eq!(error.to_string(), r"ERROR cancelled: a\u{1b}[1m\nb");
    }
}
