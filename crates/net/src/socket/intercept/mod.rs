//! Faults on purpose, in shipped builds too: users can reproduce losses in the field, and tests
//! reach code that a healthy network never runs.
//!
//! [`Intercept`] wraps any [`Io`] and applies faults to each single datagram, even if the kernel
//! delivered several in one buffer (GRO). The same [`Faults`] make system calls fail inside
//! [`crate::UdpIo`].
//!
//! ```text
//! run loop <── Intercept (loss, duplicate, corrupt) <── UdpIo (errno, short, nogso) <── kernel
//! ```

use std::net::SocketAddr;

use base::{
    Datagram, Instant, Io, IoFault, LinkEvent, LinkId, Outcome, RecvBatch, Rng, Run, RunLimit,
    Segments,
};

mod edge;
pub(crate) use edge::Edge;

mod faults;
pub use faults::Faults;

base::counters! {
    /// What [`Intercept`] did to received datagrams.
    pub struct InterceptCounters: "intercept" {
        passed: Packets, "datagrams passed on unchanged";
        lost: Packets, "datagrams thrown away on purpose";
        duplicated: Packets, "datagrams delivered twice on purpose";
        corrupted: Packets, "datagrams with a bit flipped on purpose";
    }
}

/// An [`Io`] that applies faults to received datagrams. Without faults it costs a branch.
#[derive(Debug)]
pub struct Intercept<I> {
    inner: I,
    /// The faults of each path, with their random numbers. A path beyond the last has those of the
    /// last.
    paths: Vec<(Faults, Rng)>,
    is_idle: bool,
    /// Received buffers. Those from index `next` on still wait to be passed on.
    held: RecvBatch,
    next: usize,
    counters: InterceptCounters,
}

impl<I> Intercept<I> {
    /// Wraps `inner`, to apply `faults` to the datagrams that it receives.
    pub fn new(inner: I, faults: Faults) -> Self {
        Self::for_paths(inner, [faults])
    }

    /// Wraps `inner`, to apply to each datagram the faults that are listed for its path. The index
    /// in `faults` is the number of the path.
    ///
    /// **Panics** (bug): when `faults` is empty.
    pub fn for_paths(inner: I, faults: impl IntoIterator<Item = Faults>) -> Self {
        let paths = faults.into_iter().map(|it| (it, Rng::new(it.seed)));
        let paths: Vec<_> = paths.collect();
        assert!(!paths.is_empty(), "there is no path");
        let has_packet_faults = paths
            .iter()
            .flat_map(|(faults, _)| [faults.loss, faults.duplicate, faults.corrupt])
            .any(|chance| !chance.is_never());
        Self {
            inner,
            paths,
            is_idle: !has_packet_faults,
            held: RecvBatch::new(0, 1),
            next: 0,
            counters: InterceptCounters::default(),
        }
    }

    /// Returns the wrapped back end.
    pub const fn inner(&self) -> &I {
        &self.inner
    }

    /// Returns the wrapped back end for changes.
    pub const fn inner_mut(&mut self) -> &mut I {
        &mut self.inner
    }

    /// Returns the counters of what was done so far.
    pub const fn counters(&self) -> &InterceptCounters {
        &self.counters
    }

    /// Applies faults to held buffers and passes them on while the batch has room. Returns how many
    /// buffers of the batch it filled.
    fn pass_on(&mut self, batch: &mut RecvBatch) -> usize {
        let before = batch.filled();
        for (datagram, bytes) in self.held.datagrams().skip(self.next) {
            let Some(slot) = batch.free_slots().next() else {
                break;
            };
            self.next += 1;
            let last = self.paths.len() - 1;
            let path = usize::from(datagram.arrival.path.0).min(last);
            let (faults, rng) = &mut self.paths[path];
            let mut spoiler = Spoiler {
                faults,
                rng,
                counters: &mut self.counters,
            };
            if let Some(len) = spoiler.copy(bytes, datagram.segment, slot) {
                batch.push(Datagram {
                    len,
                    segment: datagram.segment.min(len),
                    arrival: datagram.arrival,
                });
            }
        }
        batch.filled() - before
    }

    const fn has_held(&self) -> bool {
        self.next < self.held.filled()
    }
}

/// The faults to apply to one buffer, with their random numbers and counters.
struct Spoiler<'a> {
    faults: &'a Faults,
    rng: &'a mut Rng,
    counters: &'a mut InterceptCounters,
}

impl Spoiler<'_> {
    /// Copies the datagrams that are not lost on purpose to `slot`, back to back, with the other
    /// faults applied. Returns the number of bytes written; `None` when all datagrams were lost.
    fn copy(&mut self, bytes: &[u8], segment: usize, slot: &mut [u8]) -> Option<usize> {
        let mut len = 0;
        let mut survivors = 0;
        let mut unread = bytes.len();
        for datagram in Segments::new(bytes, segment) {
            unread -= datagram.len();
            if self.faults.loss.draw(self.rng) {
                self.counters.lost += 1;
                continue;
            }
            let start = len;
            len += datagram.len();
            survivors += 1;
            slot[start..len].copy_from_slice(datagram);
            if self.faults.corrupt.draw(self.rng) && !datagram.is_empty() {
                let at = usize::try_from(self.rng.below(datagram.len() as u64)).unwrap_or(0);
                slot[start + at] ^= 1 << self.rng.below(8);
                self.counters.corrupted += 1;
            } else {
                self.counters.passed += 1;
            }
            // A datagram shorter than a segment must stay the last in the buffer, so it is not
            // doubled. Others are doubled only if there is room for the copy and for the datagrams
            // that follow.
            let may_double = datagram.len() == segment && len + segment + unread <= slot.len();
            if may_double && self.faults.duplicate.draw(self.rng) {
                slot.copy_within(start..len, len);
                len += datagram.len();
                self.counters.duplicated += 1;
            }
        }
        (survivors > 0).then_some(len)
    }
}

impl<I: Io> Io for Intercept<I> {
    fn now(&mut self) -> Instant {
        self.inner.now()
    }

    fn recv(&mut self, batch: &mut RecvBatch) -> Result<usize, IoFault> {
        if self.is_idle {
            return self.inner.recv(batch);
        }
        if self.held.slot_bytes() != batch.slot_bytes() || self.held.slots() != batch.slots() {
            self.held = RecvBatch::new(batch.slots(), batch.slot_bytes());
            self.next = 0;
        }
        // If all received datagrams were lost on purpose, receive again, at most [`RECEIVES_MAX`]
        // times: more may wait in the socket, and a caller that gets an empty batch may go to
        // sleep.
        for _bounded in 0..RECEIVES_MAX {
            if !self.has_held() {
                self.held.clear();
                self.next = 0;
                if self.inner.recv(&mut self.held)? == 0 {
                    return Ok(0);
                }
            }
            let filled = self.pass_on(batch);
            if filled > 0 || batch.filled() == batch.slots() {
                return Ok(filled);
            }
        }
        Ok(0)
    }

    fn send(&mut self, run: &Run<'_>) -> Outcome {
        self.inner.send(run)
    }

    fn run_limit(&self) -> RunLimit {
        self.inner.run_limit()
    }

    fn link_open(&mut self, peer: SocketAddr) -> LinkId {
        self.inner.link_open(peer)
    }

    fn link_event(&mut self, data: &mut Vec<u8>) -> Option<(LinkId, LinkEvent)> {
        self.inner.link_event(data)
    }

    fn link_send(&mut self, link: LinkId, bytes: &[u8]) -> usize {
        self.inner.link_send(link, bytes)
    }

    fn link_pause(&mut self, link: LinkId, is_paused: bool) {
        self.inner.link_pause(link, is_paused);
    }

    fn link_close(&mut self, link: LinkId) {
        self.inner.link_close(link);
    }

    fn wait(&mut self, until: Option<Instant>) {
        if !self.has_held() {
            self.inner.wait(until);
        }
    }
}

/// How many times one `recv` receives, at most, while all datagrams are lost on purpose.
const RECEIVES_MAX: usize = 64;
