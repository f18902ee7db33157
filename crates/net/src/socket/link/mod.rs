//! Control connections: non-blocking TCP with bounded queues.
//!
//! ```text
//!  open ──> Connecting ──> Open ──close──> Flushing ──all sent──> Lingering ──EOF or time──> gone
//!  accept ───────────────> Open ──EOF, reset──> gone (event `Closed`)
//! ```
//!
//! When we close a connection, we send the queued bytes, then the end of the stream. We keep the
//! connection until the peer closes it too, for at most [`LINGER`], or until a new one needs its
//! place. If we dropped it at once, unread bytes from the peer would cause a reset, and the peer
//! could lose our last bytes. After [`Links::close`] no event of that connection follows.

use std::{
    collections::{BTreeMap, VecDeque},
    io::{self, Write as _},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use base::{Instant, LinkEvent, LinkId, earliest};
use sys::{Interest, Ready, SocketBuffers, TcpInfo, clock, errno, tcp};

use super::{
    options::SocketOptions,
    readiness::{Readiness, Signal},
    tally::Tally,
};
use crate::SystemError;

mod dial;
use dial::{Attempt, SECOND_AFTER, SECOND_LASTS};

mod watch;
pub use watch::HeldBack;
use watch::Watch;

/// Reports an event of a connection, when tracing is compiled in.
#[cfg(feature = "tracing")]
macro_rules! trace {
    ($($words:tt)*) => { tracing::debug!($($words)*) };
}
#[cfg(not(feature = "tracing"))]
macro_rules! trace {
    ($link:ident = $value:expr, $(%$peer:ident,)? $text:literal) => {{
        let _ = ($value, $(&$peer)?);
    }};
}

/// All control connections of a session, dialled and accepted.
#[derive(Debug)]
pub(super) struct Links {
    listener: Option<TcpListener>,
    /// A descriptor kept in reserve. When descriptors run out, it is closed, so that a connection
    /// can be accepted and then refused.
    spare: Option<std::fs::File>,
    links: BTreeMap<u32, Link>,
    next: u32,
    events: VecDeque<(LinkId, LinkEvent)>,
    /// The connections that the last poll found ready.
    ready: VecDeque<(u32, Ready)>,
    /// Connections that we closed, with the time when each is given up, earliest first.
    lingering: VecDeque<(Instant, u32)>,
    /// When each connection is dialled again if it is not open by then, earliest first.
    redials: VecDeque<(Instant, u32, SocketAddr)>,
    /// When each connection's second attempt to connect is given up, earliest first.
    seconds: VecDeque<(Instant, u32)>,
    may_accept: bool,
    /// How many connections may still be accepted before the next poll. `is_accepts_turn` is true
    /// when an accept is next: between two accepts, an open connection gets a turn.
    accepts_left: u32,
    is_accepts_turn: bool,
    /// The time until which the listener is not polled, because no descriptor is left even to
    /// refuse the connection that waits.
    rests_until: Option<Instant>,
    queue_bytes: usize,
    links_max: usize,
    silence: Duration,
    watch: Watch,
}

impl Links {
    pub(super) fn new(options: &SocketOptions) -> Self {
        Self {
            listener: None,
            spare: None,
            links: BTreeMap::new(),
            next: 0,
            events: VecDeque::new(),
            ready: VecDeque::new(),
            lingering: VecDeque::new(),
            redials: VecDeque::new(),
            seconds: VecDeque::new(),
            may_accept: false,
            accepts_left: 0,
            is_accepts_turn: false,
            rests_until: None,
            queue_bytes: options.link_queue_bytes,
            links_max: options.links_max,
            silence: options.link_silence,
            watch: Watch::default(),
        }
    }

    /// Accepts connections on `address`; returns the address bound.
    pub(super) fn listen(
        &mut self,
        address: SocketAddr,
        readiness: &Readiness,
    ) -> Result<SocketAddr, SystemError> {
        let fault = |error: io::Error| {
            let fault = SystemError::system("accept control connections on", address, &error);
            match error.kind() {
                io::ErrorKind::AddrInUse => fault.advise(
                    "another socket listens there: choose another port, or 0 for any that is free",
                ),
                io::ErrorKind::PermissionDenied => {
                    fault.advise("ports below 1024 need CAP_NET_BIND_SERVICE: choose a higher one")
                }
                _ => fault,
            }
        };
        let listener = match dial::listen(address) {
            // Without IPv6, this host listens on all its IPv4 addresses.
            Err(error) if is_all_of_ipv6(address, &error) => {
                let all = SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()));
                dial::listen(all)
            }
            listener => listener,
        };
        let listener = listener.map_err(fault)?;
        let bound = listener.local_addr().map_err(fault)?;
        readiness.add(&listener, Signal::LISTENER, Interest::READ)?;
        self.spare = std::fs::File::open("/dev/null").ok();
        self.listener = Some(listener);
        Ok(bound)
    }

    /// Accepts no more connections; those that are open stay.
    pub(super) fn stop_listening(&mut self) {
        self.listener = None;
        (self.may_accept, self.rests_until) = (false, None);
    }

    /// Dials; an event `Opened` or `Closed` follows.
    pub(super) fn open(
        &mut self,
        peer: SocketAddr,
        readiness: &Readiness,
        tally: &mut Tally,
    ) -> LinkId {
        let id = self.number();
        trace!(link = id.0, %peer, "link dialled");
        let stream = dial::start(peer, self.silence);
        if stream.is_ok_and(|stream| self.adopt(id, stream, State::Connecting, readiness)) {
            let again_at = clock::monotonic() + SECOND_AFTER;
            self.redials.push_back((again_at, id.0, peer));
            return id;
        }
        tally.counters.links_failed += 1;
        trace!(link = id.0, "link lost: it cannot be dialled");
        self.events.push_back((id, LinkEvent::Closed));
        id
    }

    /// Sends what the kernel takes, straight from the caller's memory if nothing is queued before
    /// it. Queues as much of the rest as there is room for. Returns the number of bytes taken.
    pub(super) fn send(
        &mut self,
        id: LinkId,
        bytes: &[u8],
        readiness: &Readiness,
        tally: &mut Tally,
    ) -> usize {
        let Some(link) = self.links.get_mut(&id.0) else {
            return 0;
        };
        if !matches!(link.state, State::Connecting | State::Open) {
            return 0;
        }
        // A failure is ignored here: the kernel then reports the connection as readable, and the
        // read fails.
        let mut taken = match link.state {
            State::Open if link.queue.is_empty() => link.write(bytes, tally).unwrap_or(0),
            _ => 0,
        };
        let room = self.queue_bytes - link.queue.len();
        let next = &bytes[taken..(taken + room).min(bytes.len())];
        link.queue.extend(next);
        taken += next.len();
        if taken < bytes.len() {
            link.owes_writable = true;
            tally.counters.link_queue_full += 1;
        }
        link.follow(id, readiness);
        taken
    }

    /// Stops or resumes reading. While paused, the kernel keeps what arrives, until its full TCP
    /// window stops the peer.
    pub(super) fn pause(&mut self, id: LinkId, is_paused: bool, readiness: &Readiness) {
        if let Some(link) = self.links.get_mut(&id.0) {
            link.is_paused = is_paused;
            link.follow(id, readiness);
        }
    }

    /// Sends what is queued, for [`LINGER`] at most, then closes. The owner hears no more of this
    /// connection.
    pub(super) fn close(&mut self, id: LinkId, readiness: &Readiness, tally: &mut Tally) {
        self.events.retain(|&(other, _)| other != id);
        let Some(link) = self.links.get_mut(&id.0) else {
            return;
        };
        match link.state {
            State::Connecting if link.queue.is_empty() => {
                self.links.remove(&id.0);
            }
            State::Connecting | State::Open => {
                let was_open = link.state == State::Open;
                link.state = if was_open {
                    State::Flushing
                } else {
                    State::ConnectingToFlush
                };
                self.lingering
                    .push_back((clock::monotonic() + LINGER, id.0));
                let is_alive = !was_open || link.flush(tally).is_ok();
                if is_alive {
                    link.follow(id, readiness);
                } else {
                    self.links.remove(&id.0);
                }
            }
            State::ConnectingToFlush | State::Flushing | State::Lingering => {}
        }
    }

    /// Returns the next event; bytes that arrived replace the contents of `data`.
    pub(super) fn event(
        &mut self,
        data: &mut Vec<u8>,
        readiness: &Readiness,
        tally: &mut Tally,
    ) -> Option<(LinkId, LinkEvent)> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            if self.may_accept && (self.is_accepts_turn || self.ready.is_empty()) {
                self.is_accepts_turn = false;
                self.accepts_left = self.accepts_left.saturating_sub(1);
                // If more connections wait, the next poll says so.
                self.may_accept = self.accepts_left > 0;
                self.accept(readiness, tally);
                continue;
            }
            self.is_accepts_turn = true;
            let (id, ready) = self.ready.pop_front()?;
            let event = self.serve(id, ready, data, readiness, tally);
            if let Some(event) = event {
                return Some((LinkId(id), event));
            }
        }
    }

    /// Measures what holds back each open connection, if the next measurement is due.
    pub(super) fn look(&mut self, now: Instant) {
        if !self.watch.is_due(now, self.links.len()) {
            return;
        }
        for (&id, link) in self.links.iter().filter(|(_, it)| it.state == State::Open) {
            let seen = TcpInfo::of(&link.stream)
                .and_then(|info| Ok((info, SocketBuffers::of(&link.stream)?)));
            if let (Ok(peer), Ok(seen)) = (link.stream.peer_addr(), seen) {
                self.watch.look(now, peer, id, seen);
            }
        }
    }

    /// Returns what held back the connections to each peer, as [`Links::look`] has measured it.
    pub(super) fn held_back(&self) -> impl Iterator<Item = (SocketAddr, HeldBack)> + '_ {
        self.watch.iter()
    }

    /// Forgets what the last poll found, and connections that have lingered long enough. Watches
    /// the listener again once `rests_until` is past.
    pub(super) fn begin_poll(&mut self, readiness: &Readiness) {
        self.ready.clear();
        self.may_accept = false;
        if self.lingering.is_empty() && self.rests_until.is_none() {
            return;
        }
        let now = clock::monotonic();
        if let (Some(until), Some(listener)) = (self.rests_until, &self.listener)
            && until <= now
        {
            self.rests_until = None;
            self.spare = std::fs::File::open("/dev/null").ok();
            readiness.modify(listener, Signal::LISTENER, Interest::READ);
        }
        while let Some(&(deadline, id)) = self.lingering.front() {
            if deadline > now {
                break;
            }
            self.lingering.pop_front();
            self.links.remove(&id);
        }
    }

    /// Returns when [`Links::attend_dials`] is due; `None` when no connection needs it.
    pub(super) fn due(&self) -> Option<Instant> {
        let waits = |id| self.links.get(id).is_some_and(Link::is_connecting);
        let redial = self.redials.iter().find(|(_, id, _)| waits(id));
        let second = self.seconds.iter().find(|(_, id)| waits(id));
        earliest(redial.map(|redial| redial.0), second.map(|second| second.0))
    }

    /// Dials a second time for each connection that takes long to open, unless the last poll found
    /// it ready. Gives up second attempts that have lasted [`SECOND_LASTS`].
    pub(super) fn attend_dials(&mut self, readiness: &Readiness, tally: &mut Tally) {
        if self.redials.is_empty() && self.seconds.is_empty() {
            return;
        }
        let now = clock::monotonic();
        while let Some(&(gives_up_at, id)) = self.seconds.front() {
            let is_told = self.ready.iter().any(|&(told, _)| told == id);
            if let Some(link) = self.links.get_mut(&id)
                && link.second.is_some()
            {
                if gives_up_at > now || is_told {
                    break;
                }
                link.second = None;
            }
            self.seconds.pop_front();
        }
        while let Some((_, id, peer)) = self.redials.pop_front_if(|(again_at, ..)| *again_at <= now)
        {
            let is_told = self.ready.iter().any(|&(told, _)| told == id);
            let waits = |link: &&mut Link| link.is_connecting() && !is_told;
            let Some(link) = self.links.get_mut(&id).filter(waits) else {
                continue;
            };
            trace!(link = id, %peer, "link dialled again");
            let second = dial::start(peer, self.silence).ok();
            link.second = second.filter(|second| {
                let added = readiness.add(second, signal(LinkId(id)), Interest::BOTH);
                added.is_ok()
            });
            if link.second.is_some() {
                tally.counters.links_redialled += 1;
                self.seconds.push_back((now + SECOND_LASTS, id));
            }
        }
    }

    /// Notes that a descriptor of a connection or the listener is ready.
    pub(super) fn note_ready(&mut self, token: u64, ready: Ready) {
        if token == Signal::LISTENER.0 {
            (self.may_accept, self.accepts_left) = (true, ACCEPTS_MAX);
            return;
        }
        let id = token.checked_sub(Signal::LINKS).map(u32::try_from);
        if let Some(Ok(id)) = id {
            self.ready.push_back((id, ready));
        }
    }

    /// Returns true when [`Links::event`] may have an event to return.
    pub(super) fn has_work(&self) -> bool {
        self.may_accept || !self.events.is_empty() || !self.ready.is_empty()
    }

    /// Returns true while there are connections, or some may come.
    pub(super) fn is_in_use(&self) -> bool {
        self.listener.is_some() || !self.links.is_empty()
    }

    /// Returns the number of connections that have unsent bytes, are connecting, or are closing.
    pub(super) fn unfinished(&self) -> usize {
        let is_unfinished = |link: &&Link| link.state != State::Open || !link.queue.is_empty();
        self.links.values().filter(is_unfinished).count()
    }

    fn accept(&mut self, readiness: &Readiness, tally: &mut Tally) {
        let Some(listener) = &self.listener else {
            self.may_accept = false;
            return;
        };
        match listener.accept() {
            Ok((stream, peer)) => {
                let id = self.number();
                if self.links.len() >= self.links_max {
                    self.end_oldest_lingering();
                }
                let has_room = self.links.len() < self.links_max;
                if has_room
                    && stream.set_nonblocking(true).is_ok()
                    && dial::prepare(&stream, self.silence).is_ok()
                    && self.adopt(id, stream, State::Open, readiness)
                {
                    tally.counters.links_accepted += 1;
                    trace!(link = id.0, %peer, "link accepted");
                    self.events.push_back((id, LinkEvent::Accepted { peer }));
                } else {
                    tally.counters.links_refused += 1;
                }
            }
            Err(error) if is_out_of_descriptors(&error) => {
                if self.end_oldest_lingering() {
                    // The freed descriptor is for the connection that still waits.
                    return;
                }
                let Some(listener) = &self.listener else {
                    return;
                };
                // To take this connection out of the backlog, where it would keep us awake, the
                // kernel needs a free descriptor: the spare one is freed first.
                self.spare = None;
                let refused = listener.accept();
                self.may_accept &= refused.is_ok();
                tally.counters.links_refused += u64::from(refused.is_ok());
                drop(refused);
                self.spare = std::fs::File::open("/dev/null").ok();
                if self.spare.is_none() {
                    readiness.modify(listener, Signal::LISTENER, Interest::default());
                    self.rests_until = Some(clock::monotonic() + LISTENER_REST);
                }
            }
            Err(_nothing_more) => self.may_accept = false,
        }
    }

    /// Gives up a connection that this end has closed, to make room for a new one. Chooses the
    /// oldest that has sent everything and only waits for its peer to close. If there is none,
    /// chooses the oldest of all closed ones, whose last bytes are then lost. Returns false when
    /// this end has closed none.
    fn end_oldest_lingering(&mut self) -> bool {
        let links = &self.links;
        while let Some((_, id)) = self.lingering.front()
            && !links.contains_key(id)
        {
            self.lingering.pop_front();
        }
        let has_sent_all = |id: &u32| {
            let link = links.get(id);
            link.is_some_and(|link| link.state == State::Lingering)
        };
        let lingering = self.lingering.iter().position(|(_, id)| has_sent_all(id));
        let Some((_, id)) = self.lingering.remove(lingering.unwrap_or(0)) else {
            return false;
        };
        self.links.remove(&id);
        true
    }

    fn serve(
        &mut self,
        id: u32,
        ready: Ready,
        data: &mut Vec<u8>,
        readiness: &Readiness,
        tally: &mut Tally,
    ) -> Option<LinkEvent> {
        let read_bytes = match self.links.len() > MANY_LINKS {
            true => READ_BYTES_MANY,
            false => READ_BYTES,
        };
        let link = self.links.get_mut(&id)?;
        let mut event = None;
        if link.is_connecting() {
            match dial::settle(&mut link.stream, &mut link.second) {
                Attempt::Open => {}
                Attempt::Waits => return None,
                Attempt::Refused | Attempt::Failed => return self.fail(id, tally),
            }
            tally.counters.links_opened += 1;
            trace!(link = id, "link opened");
            if link.state == State::Connecting {
                link.state = State::Open;
                event = Some(LinkEvent::Opened);
            } else {
                link.state = State::Flushing;
            }
        }
        if ready.writable && link.flush(tally).is_err() {
            return self.fail(id, tally);
        }
        let has_room = ready.writable && link.queue.len() <= self.queue_bytes / 2;
        if link.owes_writable && has_room {
            link.owes_writable = false;
            if link.state == State::Open {
                self.events.push_back((LinkId(id), LinkEvent::Writable));
            }
        }
        link.follow(LinkId(id), readiness);
        // The kernel is not asked whether a paused connection is readable. If it says so
        // nevertheless, the connection is broken, or the report is from before the pause. The
        // connection is read in both cases: otherwise the kernel would report a broken one again
        // and again.
        if event.is_some() || !ready.readable {
            return event;
        }
        match link.read(data, read_bytes) {
            Arrived::Bytes => {
                tally.counters.link_received_bytes += data.len() as u64;
                (link.state == State::Open).then_some(LinkEvent::Data)
            }
            Arrived::Nothing => None,
            Arrived::End => {
                let was_open = link.state == State::Open;
                self.links.remove(&id);
                trace!(link = id, "link closed by its peer");
                was_open.then_some(LinkEvent::Closed)
            }
            Arrived::Failure => self.fail(id, tally),
        }
    }

    /// Drops a connection that has failed, and reports that, unless the owner closed it itself.
    fn fail(&mut self, id: u32, tally: &mut Tally) -> Option<LinkEvent> {
        tally.counters.links_failed += 1;
        trace!(link = id, "link lost");
        let link = self.links.remove(&id)?;
        self.events.retain(|&(other, _)| other != LinkId(id));
        matches!(link.state, State::Connecting | State::Open).then_some(LinkEvent::Closed)
    }

    fn adopt(
        &mut self,
        id: LinkId,
        stream: TcpStream,
        state: State,
        readiness: &Readiness,
    ) -> bool {
        let interest = match state {
            State::Connecting => Interest::BOTH,
            _ => Interest::READ,
        };
        if readiness.add(&stream, signal(id), interest).is_err() {
            return false;
        }
        let link = Link {
            stream,
            second: None,
            state,
            queue: VecDeque::new(),
            owes_writable: false,
            is_paused: false,
            interest,
        };
        self.links.insert(id.0, link);
        true
    }

    fn number(&mut self) -> LinkId {
        let id = LinkId(self.next);
        self.next += 1;
        id
    }
}

#[derive(Debug)]
struct Link {
    stream: TcpStream,
    /// The stream of the second attempt to connect, while both attempts are under way. The kernel
    /// reports both streams under this link's number.
    second: Option<TcpStream>,
    state: State,
    queue: VecDeque<u8>,
    /// True when the owner was told that there is no room, and waits for `Writable`.
    owes_writable: bool,
    /// The owner has paused reading.
    is_paused: bool,
    interest: Interest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Connecting,
    /// Closed by us before it was open, with bytes still to send.
    ConnectingToFlush,
    Open,
    /// Closed by us, with bytes still to send.
    Flushing,
    /// Closed by us; the peer has not closed yet.
    Lingering,
}

/// What a read returned.
enum Arrived {
    Bytes,
    Nothing,
    End,
    Failure,
}

impl Link {
    const fn is_connecting(&self) -> bool {
        matches!(self.state, State::Connecting | State::ConnectingToFlush)
    }

    /// Writes what the kernel takes; once a closed connection's queue is empty, announces its end.
    fn flush(&mut self, tally: &mut Tally) -> io::Result<()> {
        while !self.queue.is_empty() {
            let mut queue = std::mem::take(&mut self.queue);
            let (front, _) = queue.as_slices();
            let (len, written) = (front.len(), self.write(front, tally));
            if let Ok(written) = written {
                queue.drain(..written);
            }
            self.queue = queue;
            if written? < len {
                return Ok(());
            }
        }
        if self.state == State::Flushing {
            self.stream.shutdown(Shutdown::Write)?;
            self.state = State::Lingering;
        }
        Ok(())
    }

    /// Writes as much as the kernel takes; returns the number of bytes.
    fn write(&mut self, bytes: &[u8], tally: &mut Tally) -> io::Result<usize> {
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                // The kernel takes fewer bytes when its buffer is full, and says when there is
                // room.
                Ok(count) => {
                    tally.counters.link_sent_bytes += count as u64;
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(0)
    }

    fn read(&self, data: &mut Vec<u8>, bytes_max: usize) -> Arrived {
        data.clear();
        match tcp::read_into(&self.stream, data, bytes_max) {
            Ok(0) => Arrived::End,
            Ok(_some) => Arrived::Bytes,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Arrived::Nothing,
            Err(_reset) => Arrived::Failure,
        }
    }

    /// Asks the kernel for those events that the connection's state needs.
    fn follow(&mut self, id: LinkId, readiness: &Readiness) {
        let interest = Interest {
            readable: !self.is_paused || self.state != State::Open,
            writable: self.is_connecting() || !self.queue.is_empty() || self.owes_writable,
        };
        if interest != self.interest {
            self.interest = interest;
            readiness.modify(&self.stream, signal(id), interest);
        }
    }
}

fn signal(id: LinkId) -> Signal {
    Signal(Signal::LINKS + u64::from(id.0))
}

/// Returns true when listening on all addresses failed because the host has no IPv6.
fn is_all_of_ipv6(address: SocketAddr, error: &io::Error) -> bool {
    let has_none = [errno::EAFNOSUPPORT, errno::EADDRNOTAVAIL];
    let is_all = address.is_ipv6() && address.ip().is_unspecified();
    is_all
        && error
            .raw_os_error()
            .is_some_and(|it| has_none.contains(&it))
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(errno::EMFILE | errno::ENFILE))
}

/// The most bytes that one call reads, and so the most in one `Data` event.
const READ_BYTES: usize = 128 << 10;
/// Replaces [`READ_BYTES`] when there are more than [`MANY_LINKS`] connections, because the owner
/// may keep this many bytes of each connection until a message is whole.
const READ_BYTES_MANY: usize = 32 << 10;
const MANY_LINKS: usize = 64;
/// The most connections that are accepted between two polls, so that open ones are served even when
/// many new ones come.
const ACCEPTS_MAX: u32 = 64;
/// How long the listener is not polled after no descriptor was left even to refuse a connection.
const LISTENER_REST: Duration = Duration::from_millis(100);
/// The longest time that a connection is kept after its close, so that the queued bytes are sent
/// and the peer sees the end.
const LINGER: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
