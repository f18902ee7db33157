//! Messages and events on their way from the run loop to the application, in order.

use std::{fmt, ops::Range};

use driver::{MessageSink, SessionEvent};

/// A batch that the run loop fills and the application empties.
///
/// **Cost**: copies each message once; allocates only until it has grown to the largest batch.
#[derive(Default)]
pub struct Batch {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    next: usize,
}

/// A message or an event for a receiver's application.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Received<'a> {
    /// A whole message.
    Message {
        /// The session that the message belongs to.
        session: u32,
        /// Position, in the session, of the message's last packet.
        position: u64,
        /// The application's bytes.
        data: &'a [u8],
    },
    /// An event, such as a loss, in its place between the messages.
    Event(SessionEvent),
}

impl fmt::Debug for Received<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message {
                session,
                position,
                data,
            } => f
                .debug_struct("Message")
                .field("session", session)
                .field("position", position)
                .field("bytes", &data.len())
                .field("data", &Beginning(data))
                .finish(),
            Self::Event(event) => f.debug_tuple("Event").field(event).finish(),
        }
    }
}

/// A message of which `Debug` shows only the first bytes, as ASCII text with escapes.
struct Beginning<'a>(&'a [u8]);

impl fmt::Debug for Beginning<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.0[..self.0.len().min(SHOWN_BYTES)];
        let dots = if shown.len() < self.0.len() {
            "..."
        } else {
            ""
        };
        write!(f, "\"{}{dots}\"", shown.escape_ascii())
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("waiting", &self.len())
            .finish_non_exhaustive()
    }
}

#[derive(Clone)]
enum Entry {
    Message {
        session: u32,
        position: u64,
        range: Range<usize>,
    },
    Event(SessionEvent),
}

impl Batch {
    /// Returns the next message or event.
    pub fn pop(&mut self) -> Option<Received<'_>> {
        let entry = self.entries.get(self.next)?;
        self.next += 1;
        Some(match entry {
            Entry::Message {
                session,
                position,
                range,
            } => Received::Message {
                session: *session,
                position: *position,
                data: &self.bytes[range.clone()],
            },
            Entry::Event(event) => Received::Event(*event),
        })
    }

    /// Returns true when everything was popped.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.next == self.entries.len()
    }

    /// Returns the number of messages and events not yet popped.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.entries.len() - self.next
    }

    /// Forgets everything and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
        self.next = 0;
    }
}

impl MessageSink for Batch {
    fn message(&mut self, session: u32, position: u64, data: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(data);
        self.entries.push(Entry::Message {
            session,
            position,
            range: start..self.bytes.len(),
        });
    }

    fn event(&mut self, event: SessionEvent) {
        self.entries.push(Entry::Event(event));
    }

    fn is_full(&self) -> bool {
        self.bytes.len() >= FULL_BYTES || self.entries.len() >= FULL_ENTRIES
    }
}

/// How many bytes of a message `Debug` shows.
const SHOWN_BYTES: usize = 64;
/// A batch with this many bytes, or with `FULL_ENTRIES` messages and events, is full: the run loop
/// receives nothing more until the application has emptied the batch.
const FULL_BYTES: usize = 1 << 20;
const FULL_ENTRIES: usize = 1 << 15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_and_events_keep_their_order() {
        let mut batch = Batch::default();
        batch.message(1, 10, b"one");
        batch.event(SessionEvent::Lost {
            session: 1,
            first: 11,
            count: 2,
        });
        batch.message(1, 13, b"");
        assert_eq!(
            batch.pop(),
            Some(Received::Message {
                session: 1,
                position: 10,
                data: b"one"
            })
        );
        assert!(matches!(
            batch.pop(),
            Some(Received::Event(SessionEvent::Lost { count: 2, .. }))
        ));
        assert_eq!(
            batch.pop(),
            Some(Received::Message {
                session: 1,
                position: 13,
                data: b""
            })
        );
        assert!(batch.is_empty() && batch.pop().is_none());
    }
}
