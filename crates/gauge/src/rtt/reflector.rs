//! The end that answers: an application that sends every message back.

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd as _,
    sync::Arc,
    thread::{self, ScopedJoinHandle},
    time::Duration,
};

use measure::{ClockWord, Probe, ProbeKind};
use net::{SystemError, interface::Selector};
use sys::{datagram, errno};

use super::{
    Engine, Transport, Wait,
    carrier::{BATCH, Carrier, LOOK, Rooms, is_passing, rest},
    datagrams::{Side, Sockets},
    pgm::Pgm,
    tcp::Tcp,
};
use crate::{
    Error,
    places::{PlaceLimits, Places},
};

/// How a reflector works.
#[derive(Clone, Copy, Debug)]
pub struct ReflectSpec {
    /// The address of this host, or the group, at which the reflector listens.
    pub listen: SocketAddr,
    /// Which system calls move the packets.
    pub engine: Engine,
    /// How the reflector waits.
    pub wait: Wait,
}

/// A reflector that answers any number of clients at a time.
#[derive(Debug)]
pub struct Reflector {
    sockets: Arc<Sockets>,
    carrier: Box<dyn Carrier>,
    spec: ReflectSpec,
    counts: ReflectCounts,
    remark: Option<String>,
}

/// What a reflector has done, in messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReflectCounts {
    /// Greetings answered: the first messages of measurements, and probes of a path's MTU.
    pub greeted: u64,
    /// Messages sent back.
    pub answered: u64,
    /// Messages that belong to no measurement, and get no answer.
    pub foreign: u64,
    /// Answers that the kernel refused to send.
    pub refused: u64,
    /// Clients over TCP that found no place, or lost theirs because they said nothing.
    pub turned_away: u64,
    /// Datagrams that the kernel dropped at the reflector's sockets, mostly because a receive
    /// buffer was full.
    pub socket_drops: u64,
}

impl Reflector {
    /// Opens the socket. Joins a group on the interface of the kernel's route.
    ///
    /// # Errors
    /// When the address or port cannot be had, or when the system refuses.
    pub fn open(spec: ReflectSpec) -> Result<Self, Error> {
        Self::open_on(spec, None)
    }

    /// Opens the socket as [`Reflector::open`] does; with `wanted`, joins a group on that
    /// interface.
    ///
    /// # Errors
    /// As for [`Reflector::open`], and when there is no such interface.
    pub fn open_on(spec: ReflectSpec, wanted: Option<&Selector>) -> Result<Self, Error> {
        let sockets = Arc::new(Sockets::at(spec.listen, wanted)?);
        let mut remark = None;
        let carrier = sockets
            .carrier(spec.engine, Side::Answers)
            .or_else(|error| {
                if spec.engine != Engine::IoUring {
                    return Err(error);
                }
                remark = Some(Engine::refusal(&error));
                sockets.carrier(Engine::default(), Side::Answers)
            })
            .map_err(|error| SystemError::system("prepare to receive at", spec.listen, &error))?;
        Ok(Self {
            sockets,
            carrier,
            spec,
            counts: ReflectCounts::default(),
            remark,
        })
    }

    /// Returns the address on which the reflector listens.
    ///
    /// # Errors
    /// Never in practice.
    pub fn local(&self) -> Result<SocketAddr, Error> {
        let refused = |error: io::Error| {
            let operation = "read the address of the socket that was opened for";
            SystemError::system(operation, self.spec.listen, &error)
        };
        Ok(self.sockets.local().map_err(refused)?)
    }

    /// Says what the system refused, and what is used instead.
    #[must_use]
    pub fn remark(&self) -> Option<&str> {
        self.remark.as_deref()
    }

    /// Answers until `is_stopped`, which it asks at least 50 times a second.
    ///
    /// # Errors
    /// When the socket cannot be used any more.
    pub fn run(&mut self, is_stopped: &dyn Fn() -> bool) -> Result<ReflectCounts, Error> {
        let (wait, listen) = (self.spec.wait, self.spec.listen);
        let rooms = Rooms::new(BATCH);
        answer(
            &mut *self.carrier,
            rooms,
            wait,
            &mut self.counts,
            is_stopped,
        )
        .map_err(|error| SystemError::system("reflect at", listen, &error))?;
        Ok(self.counts)
    }

    /// Returns what the reflector has done so far.
    #[must_use]
    pub const fn counts(&self) -> ReflectCounts {
        self.counts
    }
}

/// Answers over TCP or PGM until the caller stops it. Joins a group on the `wanted` interface; with
/// `None`, on that of the kernel's route.
///
/// # Errors
/// When the address or group cannot be had, or when the sessions cannot be used any more.
pub fn reflect_over(
    transport: Transport,
    listen: SocketAddr,
    wanted: Option<&Selector>,
    wait: Wait,
    is_stopped: &dyn Fn() -> bool,
) -> Result<ReflectCounts, Error> {
    if transport == Transport::Pgm {
        let mut carrier = Pgm::at(listen, wanted)?;
        let mut counts = ReflectCounts::default();
        let refused = |error: io::Error| SystemError::system("reflect at", listen, &error);
        let rooms = Rooms::new(1);
        answer(&mut carrier, rooms, wait, &mut counts, is_stopped).map_err(refused)?;
        return Ok(counts);
    }
    let refused = |error: io::Error| crate::error::cannot_listen(listen, &error);
    let listener = sys::tcp::listen(listen, BACKLOG).map_err(refused)?;
    Ok(reflect_tcp(&listener, wait, is_stopped).map_err(refused)?)
}

/// Answers over TCP, with a thread for each client.
fn reflect_tcp(
    listener: &TcpListener,
    wait: Wait,
    is_stopped: &dyn Fn() -> bool,
) -> io::Result<ReflectCounts> {
    let mut total = ReflectCounts::default();
    thread::scope(|scope| {
        let mut clients: Vec<ScopedJoinHandle<'_, ReflectCounts>> = Vec::new();
        let mut places = Places::new(PLACES);
        let result = loop {
            if is_stopped() {
                break Ok(());
            }
            let accepted = match next_client(listener) {
                Ok(accepted) => accepted,
                Err(error) => break Err(error),
            };
            for client in clients.extract_if(.., |it| it.is_finished()) {
                total.add(&client.join().unwrap_or_default());
            }
            let now = sys::clock::monotonic();
            total.turned_away += places.end_idle(now);
            let Some((stream, peer)) = accepted else {
                continue;
            };
            let Some(place) = places.take(peer.ip(), now) else {
                total.turned_away += 1;
                continue;
            };
            clients.push(scope.spawn(move || {
                let mut counts = ReflectCounts::default();
                if let Ok(carrier) = Tcp::new(stream) {
                    let mut carrier = carrier.counting(Arc::clone(&place));
                    // This ends when the client leaves or loses its place.
                    let (rooms, is_over) = (Rooms::new(1), || place.is_ended());
                    drop(answer(&mut carrier, rooms, wait, &mut counts, &is_over));
                }
                counts
            }));
        };
        // The stop is needed even when the listener failed: the scope waits for every client's
        // thread.
        places.end_all();
        for client in clients {
            total.add(&client.join().unwrap_or_default());
        }
        result.map(|()| total)
    })
}

/// Waits at most [`LOOK`] for the next client. `None` when nobody came, or when an error concerns
/// one connection or one moment.
///
/// # Errors
/// When the listener cannot be used any more.
fn next_client(listener: &TcpListener) -> io::Result<Option<(TcpStream, SocketAddr)>> {
    let is_there = datagram::wait_readable(listener.as_fd(), LOOK)?;
    if !is_there {
        return Ok(None);
    }
    match listener.accept() {
        Ok(accepted) => Ok(Some(accepted)),
        Err(error) if is_beyond_use(&error) => Err(error),
        Err(_) => {
            // When descriptors or memory are short, the client keeps waiting and accept fails at
            // once. So this thread sleeps.
            thread::sleep(LOOK);
            Ok(None)
        }
    }
}

/// Returns true when `accept` failed because the descriptor is no listener, or no longer one.
fn is_beyond_use(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(errno::EBADF | errno::EINVAL | errno::ENOTSOCK)
    )
}

/// Answers the messages that `carrier` receives into `rooms`, until the caller stops it or the
/// connection ends. Then, unless there was an error, notes how many datagrams the kernel dropped.
fn answer(
    carrier: &mut dyn Carrier,
    mut rooms: Rooms,
    wait: Wait,
    counts: &mut ReflectCounts,
    is_stopped: &dyn Fn() -> bool,
) -> io::Result<()> {
    let waits_itself = wait == Wait::Block && carrier.waits_itself();
    while !is_stopped() {
        let received = if waits_itself {
            carrier.receive_waiting(&mut rooms)
        } else {
            carrier.receive(&mut rooms)
        };
        let result = match received {
            Ok(count) => {
                for index in 0..count {
                    if !counts.answer(rooms.message_mut(index)) {
                        rooms.discard(index);
                    }
                }
                let refused = carrier.reply(&rooms, count);
                refused.map(|refused| counts.refused += refused)
            }
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            Err(_) if waits_itself => Ok(()),
            Err(_) => rest(carrier, wait),
        };
        match result {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // This client has left; the others go on.
            Err(error) if is_passing(&error) => counts.refused += 1,
            Err(error) => return Err(error),
        }
    }
    counts.socket_drops = carrier.socket_drops().unwrap_or(0);
    Ok(())
}

impl ReflectCounts {
    /// Adds another client's counts.
    const fn add(&mut self, other: &Self) {
        self.greeted += other.greeted;
        self.answered += other.answered;
        self.foreign += other.foreign;
        self.refused += other.refused;
        self.turned_away += other.turned_away;
        self.socket_drops += other.socket_drops;
    }

    /// Turns a message into its answer in place; returns false when it gets none.
    fn answer(&mut self, message: &mut [u8]) -> bool {
        match Probe::answer(message).map(|asked| asked.kind) {
            Some(ProbeKind::Hello) => self.greeted += 1,
            Some(ProbeKind::Clock) => {
                tell_clock(message);
                self.answered += 1;
            }
            Some(_) => self.answered += 1,
            None => {
                self.foreign += 1;
                return false;
            }
        }
        true
    }
}

/// Writes into an answer how accurate this host's wall clock is, and the time of the answer.
fn tell_clock(message: &mut [u8]) {
    let received_ns = sys::clock::wall_nanos();
    // When the kernel does not report its clock's state, the clock counts as unsynchronised.
    let found = sys::discipline::read().ok();
    let mut word = ClockWord {
        is_synchronised: found.is_some_and(|it| it.is_synchronised),
        error_ns_max: found.map_or(u64::MAX, |it| it.error_ns_max),
        error_ns_estimated: found.map_or(u64::MAX, |it| it.error_ns_estimated),
        received_ns,
        sent_ns: received_ns,
    };
    // Between the two readings somebody may set the wall clock back.
    word.sent_ns = sys::clock::wall_nanos().max(received_ns);
    word.put(message);
}

const BACKLOG: u16 = 16;
/// Even the slowest schedule sends a message each second.
const PLACES: PlaceLimits = PlaceLimits {
    places_max: 64,
    own_max: 8,
    idle_max: Duration::from_secs(5),
};

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::{Ipv4Addr, Shutdown},
        os::fd::OwnedFd,
    };

    use super::*;

    #[test]
    fn a_broken_listener_ends_the_reflector_and_its_clients() {
        let listener = sys::tcp::listen((Ipv4Addr::LOCALHOST, 0).into(), BACKLOG).unwrap();
        let address = listener.local_addr().unwrap();
        let twin = TcpStream::from(OwnedFd::from(listener.try_clone().unwrap()));
        thread::scope(|scope| {
            let reflecting = scope.spawn(|| reflect_tcp(&listener, Wait::Block, &|| false));
            let mut client = TcpStream::connect(address).unwrap();
            let mut message = [0; 40];
            let probe = Probe {
                kind: ProbeKind::Hello,
                token: 1,
                sequence: 0,
            };
            probe.emit(&mut message);
            client.write_all(&message).unwrap();
            client.read_exact(&mut message).unwrap();
            // The client stays connected, so without the stop its thread would wait for ever.
            twin.shutdown(Shutdown::Both).unwrap();
            let error = reflecting.join().unwrap().unwrap_err();
            assert!(is_beyond_use(&error), "{error}");
            assert_eq!(client.read(&mut message).unwrap(), 0);
        });
    }

    #[test]
    fn an_error_of_one_connection_or_moment_leaves_the_listener() {
        use io::ErrorKind as Kind;
        for kind in [Kind::ConnectionAborted, Kind::Interrupted, Kind::WouldBlock] {
            assert!(!is_beyond_use(&kind.into()), "{kind}");
        }
        for code in [errno::EMFILE, errno::ENFILE, errno::ENETDOWN, errno::EPROTO] {
            let error = io::Error::from_raw_os_error(code);
            assert!(!is_beyond_use(&error), "{error}");
        }
    }
}
