//! Packets one by one, for programs that ask for the next instead of being called with each.
//!
//! This module does not count losses by second or write files: a [`Session`](crate::Session) does.
//! In: a [`Source`]. Out: its packets in order, each a copy.

use std::{collections::VecDeque, ops::ControlFlow, time::Duration};

use sys::{Epoll, Interest, clock};

use crate::{CaptureError, Packet, Source, source::Progress};

/// A packet that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedPacket {
    /// The packet's bytes from the first of the link layer on, as many as were kept.
    pub data: Vec<u8>,
    /// Bytes of the whole frame; more than in `data` when the packet was cut.
    pub wire_len: u32,
    /// The time of capture, in nanoseconds since 1970; 0 when the packet's file does not say.
    pub stamp_ns: u64,
    /// The number, among the source's interfaces, of the interface that captured the packet.
    pub interface: u32,
}

impl From<&Packet<'_>> for OwnedPacket {
    fn from(packet: &Packet<'_>) -> Self {
        Self {
            data: packet.data.to_vec(),
            wire_len: packet.wire_len,
            stamp_ns: packet.stamp_ns,
            interface: packet.interface,
        }
    }
}

/// A reader that gives the packets of a source one by one.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use towline_capture::{LiveOptions, Packets, source};
///
/// let source = source::open(&"eth0".parse()?, &LiveOptions::default())?;
/// let mut packets = Packets::new(source)?;
/// while let Some(packet) = packets.next(None)? {
///     println!("{} bytes", packet.data.len());
/// }
/// # Ok(())
/// # }
/// ```
///
/// **Cost**: a copy and an allocation for each packet. At most the packets of one [`Source::read`]
/// wait here. So a program that does not ask leaves packets in the ring, and the kernel counts
/// those that find no room there ([`Source::losses`]).
#[derive(Debug)]
pub struct Packets {
    source: Box<dyn Source>,
    epoll: Epoll,
    waiting: VecDeque<OwnedPacket>,
    is_ended: bool,
}

impl Packets {
    /// Makes a reader of a source.
    ///
    /// # Errors
    /// When the system gives no descriptor to wait with.
    pub fn new(source: Box<dyn Source>) -> Result<Self, CaptureError> {
        let made = Epoll::new(1).and_then(|epoll| {
            if let Some(fd) = source.descriptor() {
                epoll.add(fd, 0, Interest::READ)?;
            }
            Ok(epoll)
        });
        let epoll = made.map_err(|cause| CaptureError::wait(source.interfaces(), cause))?;
        Ok(Self {
            source,
            epoll,
            waiting: VecDeque::new(),
            is_ended: false,
        })
    }

    /// Returns the next packet that the source's filter let through. It waits at most `timeout`, or
    /// without end for `None`. Returns `None` when no packet came in that time, or when there will
    /// be no more packets ([`Packets::is_ended`] tells which).
    ///
    /// # Errors
    /// When the source cannot be used any more.
    pub fn next(&mut self, timeout: Option<Duration>) -> Result<Option<OwnedPacket>, CaptureError> {
        let until = timeout.map(|timeout| clock::monotonic() + timeout);
        loop {
            if let Some(packet) = self.waiting.pop_front() {
                return Ok(Some(packet));
            }
            if self.is_ended {
                return Ok(None);
            }
            let progress = self.read()?;
            self.is_ended = progress == Progress::End;
            if !self.waiting.is_empty() {
                continue;
            }
            let now = clock::monotonic();
            match progress {
                Progress::End => {}
                _ if until.is_some_and(|until| until <= now) => return Ok(None),
                Progress::Some => {}
                Progress::Idle => {
                    let due = base::earliest(self.source.due(), until);
                    let wait = due.map_or(WAIT_MAX, |due| due.since(now).min(WAIT_MAX));
                    let waited = self.epoll.wait(Some(wait)).map(drop);
                    waited.map_err(|cause| CaptureError::wait(self.source.interfaces(), cause))?;
                }
            }
        }
    }

    /// Returns true when the source has no more packets and all were given.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.is_ended && self.waiting.is_empty()
    }

    /// Returns the source, for its interfaces, losses and remarks.
    pub fn source(&mut self) -> &mut dyn Source {
        &mut *self.source
    }

    fn read(&mut self) -> Result<Progress, CaptureError> {
        let waiting = &mut self.waiting;
        self.source.read(&mut |packet| {
            if !packet.is_rejected {
                waiting.push_back(packet.into());
            }
            ControlFlow::Continue(())
        })
    }
}

/// The longest wait before a source is asked again: some sources hold packets back until a block is
/// full.
const WAIT_MAX: Duration = Duration::from_millis(100);
