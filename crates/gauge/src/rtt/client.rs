//! The end that asks: one thread sends on a schedule and receives between the slots.

use std::{io, net::SocketAddr, os::fd::AsFd as _, sync::Arc, time::Duration};

use base::Instant;
use measure::{
    PROBE_BYTES_MIN, Probe, ProbeKind, Repairs, Schedule,
    raw::{End, Setup},
};
use net::{SystemError, interface::Selector};
use sys::{Family, UdpSocket, datagram};
use towline::UsageMeter;

use super::{
    Engine, MESSAGE_BYTES_MAX, Recorder, Transport, Wait,
    carrier::{BATCH, Carrier, Rooms},
    datagrams::{Side, Sockets},
    pgm::Pgm,
    stamping::Stamping,
    tcp::Tcp,
};
use crate::Error;

mod measurement;
use measurement::Measurement;

/// The asking end of a measurement, connected to a reflector that has answered.
#[derive(Debug)]
pub struct Client {
    carrier: Box<dyn Carrier>,
    /// The sockets from which each measurement makes its carrier; `None` over TCP and PGM, which
    /// have one carrier.
    sockets: Option<Arc<Sockets>>,
    rooms: Rooms,
    peer: SocketAddr,
    local: Option<SocketAddr>,
    /// The number of the present measurement. An echo with another token belongs to another
    /// measurement.
    token: u64,
    /// How long an answer may take.
    timeout: Duration,
    /// The kernel stamps one message in this many; 0 for none.
    stamp_every: u64,
    stamping: Stamping,
    message: Vec<u8>,
}

/// Why a measurement ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Messages were sent, and no answer came for twice the time-out.
    Silent,
    /// The far end's kernel says that nobody listens there any more.
    Refused,
    /// The caller stopped the measurement. No more messages were sent, and those under way had the
    /// time-out to be answered.
    Stopped,
    /// The result cannot be written any more; [`Recorder::finish`] says why.
    Unrecorded,
}

/// The results of one measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunOutcome {
    /// The accounts of the measurement.
    pub end: End,
    /// Why the measurement ended early.
    pub cut: Option<Cut>,
}

impl Client {
    /// Opens a socket to a reflector and checks that the reflector answers.
    ///
    /// # Errors
    /// When nobody answers within `timeout` (the text says what this may mean), or when the system
    /// refuses.
    pub fn connect(peer: SocketAddr, seed: u64, timeout: Duration) -> Result<Self, Error> {
        Self::connect_by(None, peer, seed, timeout)
    }

    fn connect_by(
        wanted: Option<&Selector>,
        peer: SocketAddr,
        seed: u64,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let refused =
            |error: io::Error| SystemError::system("prepare the measurement with", peer, &error);
        let sockets = Arc::new(Sockets::towards(peer, wanted)?);
        let carrier = sockets.carrier(Engine::default(), Side::Asks);
        let mut client = Self::new(carrier.map_err(refused)?, peer, seed, timeout);
        client.rooms = Rooms::new(BATCH);
        client.local = sockets.local().ok();
        client.sockets = Some(sockets);
        client.greet()?;
        Ok(client)
    }

    /// Opens a connection, or the sessions of a group, to a reflector over `transport`, and checks
    /// that the reflector answers. A group is reached by the `wanted` interface; with `None`, by
    /// that of the kernel's route. With [`Transport::Udp`] this does what [`Client::connect`] does.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect_over(
        transport: Transport,
        peer: SocketAddr,
        wanted: Option<&Selector>,
        seed: u64,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let carrier: Box<dyn Carrier> = match transport {
            Transport::Udp => return Self::connect_by(wanted, peer, seed, timeout),
            Transport::Tcp => Box::new(Tcp::connect(peer, timeout)?),
            Transport::Pgm => Box::new(Pgm::towards(peer, wanted)?),
        };
        let refused = |error: io::Error| SystemError::system("find a way to", peer, &error);
        let mut client = Self::new(carrier, peer, seed, timeout);
        client.local = Some(local_towards(peer).map_err(refused)?);
        client.greet()?;
        Ok(client)
    }

    /// Makes a client with room for one message.
    fn new(carrier: Box<dyn Carrier>, peer: SocketAddr, token: u64, timeout: Duration) -> Self {
        Self {
            carrier,
            sockets: None,
            rooms: Rooms::new(1),
            peer,
            local: None,
            token,
            timeout,
            stamp_every: 0,
            stamping: Stamping::default(),
            message: Vec::new(),
        }
    }

    /// Returns what PGM has repaired at this end since the sessions were opened; `None` over
    /// another transport.
    #[must_use]
    pub fn repairs(&self) -> Option<Repairs> {
        self.carrier.repairs()
    }

    /// Makes the kernel stamp every `every`-th message; 0 for none. The receive path then asks for
    /// the stamps of the echoes, too.
    ///
    /// # Errors
    /// When the kernel cannot do this, or when the transport does not send each message as a
    /// datagram.
    pub fn set_stamping(&mut self, every: u64) -> Result<(), Error> {
        let result = match &self.sockets {
            Some(sockets) => sockets.set_stamping(every > 0),
            None if every > 0 => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "only datagrams are stamped; measure over UDP, or without stamps",
            )),
            None => Ok(()),
        };
        result.map_err(|error| SystemError::system("stamp messages to", self.peer, &error))?;
        self.stamp_every = every;
        Ok(())
    }

    /// Returns the address of this end.
    #[must_use]
    pub const fn local(&self) -> Option<SocketAddr> {
        self.local
    }

    /// Measures for `duration`, and passes the fate of every message to `recorder`. With `None`, it
    /// only warms up.
    ///
    /// # Errors
    /// [`Error::Measurement`] for a size outside `PROBE_BYTES_MIN..=MESSAGE_BYTES_MAX`, or for a
    /// rate that [`Schedule::new`] refuses. When the system refuses to send or receive; what came
    /// before is recorded.
    pub fn run(
        &mut self,
        setup: &Setup,
        engine: (Engine, Wait),
        duration: Duration,
        mut recorder: Option<&mut Recorder>,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<RunOutcome, Error> {
        check(setup)?;
        self.token = self.token.wrapping_add(1);
        self.message.resize(setup.size_bytes, 0);
        Probe {
            kind: ProbeKind::Probe,
            token: self.token,
            sequence: 0,
        }
        .emit(&mut self.message);
        let meter = UsageMeter::start();
        let (before, drops_before) = (self.repairs(), self.carrier.socket_drops());
        let result = self.use_engine(engine.0);
        let mut measurement =
            Measurement::new(self, setup, engine, duration, recorder.as_deref_mut());
        let result = result.and_then(|()| measurement.go(is_stopped));
        let (counts, lasted_ns, stamps) = measurement.close();
        // A receive request that still waited in the ring would take a datagram of the next
        // measurement. So the ring is dropped.
        let result = self.use_engine(Engine::default()).and(result);
        let usage = meter.read();
        let (after, drops_after) = (self.repairs(), self.carrier.socket_drops());
        let repairs = after
            .zip(before)
            .map(|(after, before)| after.since(&before));
        let socket_drops = drops_after
            .zip(drops_before)
            .map(|(after, before)| after.wrapping_sub(before));
        let cut = result.as_ref().copied().unwrap_or(Some(Cut::Stopped));
        let end = End {
            lasted_ns,
            counts,
            steal_s: usage.machine_steal_s,
            process_cpu_s: usage.process_cpu_s,
            is_cut: cut.is_some(),
            repairs,
            stamps,
            socket_drops,
        };
        if let Some(recorder) = recorder {
            recorder.end(end);
        }
        result.map_err(|error| SystemError::system("exchange messages with", self.peer, &error))?;
        Ok(RunOutcome { end, cut })
    }

    /// Makes `engine` move the datagrams; over TCP and PGM this changes nothing.
    fn use_engine(&mut self, engine: Engine) -> io::Result<()> {
        if let Some(sockets) = &self.sockets {
            self.carrier = sockets.carrier(engine, Side::Asks)?;
        }
        Ok(())
    }

    /// Says why an engine does not work here, and what to use instead; `None` when it works.
    pub(super) fn refusal(&self, engine: Engine) -> Option<String> {
        let sockets = self
            .sockets
            .as_ref()
            .filter(|_| engine == Engine::IoUring)?;
        let error = sockets.carrier(engine, Side::Asks).err()?;
        Some(Engine::refusal(&error))
    }

    /// Sends greetings, at most [`HELLOS`], until the welcome comes.
    fn greet(&mut self) -> Result<(), Error> {
        let mut hello = [0; PROBE_BYTES_MIN];
        let mut refusal = None;
        let token = self.token;
        let kind = ProbeKind::Hello;
        for sequence in 0..HELLOS {
            Probe {
                kind,
                token,
                sequence,
            }
            .emit(&mut hello);
            let sent = self.send(&hello);
            refusal = sent.err().or(refusal);
            let end = sys::clock::monotonic() + self.timeout / HELLOS as u32;
            match self.welcome_until(end) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                // The reflector may be starting: it may listen a moment later.
                Err(error) => refusal = Some(error),
            }
        }
        Err(Error::Measurement(self.silence(refusal.as_ref())))
    }

    /// Waits until `end` for the answer to a greeting. Returns true when it came, and false when
    /// nothing came. When there was a refusal and no answer, returns the last refusal as an error.
    fn welcome_until(&mut self, end: Instant) -> io::Result<bool> {
        let mut refusal = None;
        loop {
            let left = end.since(sys::clock::monotonic());
            if left.is_zero() || self.wait(left).is_err() {
                return refusal.map_or(Ok(false), Err);
            }
            let token = self.token;
            match self.receive() {
                Ok(answer) => {
                    let is_ours = |it: &Probe| it.kind == ProbeKind::Welcome && it.token == token;
                    if Probe::parse(answer).as_ref().is_ok_and(is_ours) {
                        return Ok(true);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => refusal = Some(error),
            }
        }
    }

    /// Says what it may mean that nobody answered.
    fn silence(&self, refusal: Option<&io::Error>) -> String {
        let (peer, port) = (self.peer, self.peer.port());
        match refusal.map(|error| (error, error.kind())) {
            Some((_, io::ErrorKind::ConnectionRefused)) => format!(
                "no reflector at {peer}: the host answers, but no program listens on port {port}; \
                 start `towline rtt reflect` there, or name its port as HOST:PORT"
            ),
            Some((_, io::ErrorKind::InvalidData)) => format!(
                "the program at {peer} is no reflector over TCP: start `towline rtt reflect --over \
                 tcp` there, or name its port as HOST:PORT"
            ),
            Some((_, io::ErrorKind::ConnectionAborted)) => format!(
                "the program at {peer} has closed the connection: it is no reflector over TCP, or \
                 has no room for another client; start `towline rtt reflect --over tcp` there, or \
                 try later"
            ),
            Some((error, _)) => format!(
                "cannot reach the reflector at {peer}: {}",
                sys::with_usual_remedy(error)
            ),
            None => format!(
                "no reflector answered at {peer} within {:?}: {}",
                self.timeout,
                self.start()
            ),
        }
    }

    /// Says how to start the reflector that does not answer.
    fn start(&self) -> String {
        let (peer, port) = (self.peer, self.peer.port());
        match (self.sockets.is_some(), peer.ip().is_multicast()) {
            (true, false) => format!(
                "start `towline rtt reflect` there, and let UDP port {port} through firewalls in \
                 both directions"
            ),
            (true, true) => format!(
                "start `towline rtt reflect --listen {peer}` on another host; `towline reach` says \
                 why a group does not arrive"
            ),
            (false, true) => format!(
                "start `towline rtt reflect --over pgm --listen {peer}` on another host; `towline \
                 reach` says why a group does not arrive"
            ),
            (false, false) => "start `towline rtt reflect --over tcp` there".to_owned(),
        }
    }

    pub(super) fn send(&mut self, message: &[u8]) -> io::Result<()> {
        self.carrier.send(message)
    }

    /// Receives a message without waiting.
    pub(super) fn receive(&mut self) -> io::Result<&[u8]> {
        self.carrier.receive(&mut self.rooms)?;
        Ok(self.rooms.message(0))
    }

    pub(super) fn wait(&mut self, limit: Duration) -> io::Result<()> {
        self.carrier.wait(limit)
    }

    /// Returns the number that tells this measurement's messages from others'.
    pub(super) const fn token(&self) -> u64 {
        self.token
    }
}

/// Refuses a setup that cannot be measured as it says.
fn check(setup: &Setup) -> Result<(), Error> {
    let size = setup.size_bytes;
    if !(PROBE_BYTES_MIN..=MESSAGE_BYTES_MAX).contains(&size) {
        return Err(Error::Measurement(format!(
            "{size} bytes: a message has {PROBE_BYTES_MIN} to {MESSAGE_BYTES_MAX} bytes"
        )));
    }
    let rate = setup.per_second.map(Schedule::new).transpose();
    rate.map_err(|error| Error::Measurement(error.to_string()))?;
    Ok(())
}

/// Returns this host's address on the way to `peer`, by the kernel's routes; no packet is sent.
fn local_towards(peer: SocketAddr) -> io::Result<SocketAddr> {
    let socket = UdpSocket::new(Family::of(&peer))?;
    datagram::connect(socket.as_fd(), peer)?;
    socket.local_addr()
}

const HELLOS: u64 = 5;
