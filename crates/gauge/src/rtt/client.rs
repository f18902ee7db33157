//! The end that asks: one thread sends on a schedule and receives in between.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd as _, BorrowedFd},
    time::Duration,
};

use measure::{
    Counts, Mark, MarkKind, PROBE_BYTES_MIN, Probe, ProbeKind, Repairs, Schedule, StampCounts,
    raw::{End, Setup},
};
use net::{Interfaces, SystemError};
use sys::{DatagramRing, Epoll, Family, Inbox, Interest, RawAddress, UdpSocket, datagram, stamp};

use super::{
    Engine, MESSAGE_BYTES_MAX, Recorder, Transport, Wait,
    flight::Flight,
    stamping::{Clocks, Outcome, Stamping},
    stream::Carrier,
};
use towline::UsageMeter;

use crate::Error;

/// A socket that a reflector answers.
#[derive(Debug)]
pub struct Client {
    /// Connected to the reflector, or to a group of them.
    socket: UdpSocket,
    /// Where the answers of a group's reflectors come in.
    inbound: Option<UdpSocket>,
    /// What carries the messages instead of the sockets, when it is no plain datagrams.
    carrier: Option<Box<dyn Carrier>>,
    epoll: Epoll,
    inbox: Inbox,
    /// What moves the datagrams of a run with [`Engine::IoUring`].
    ring: Option<DatagramRing>,
    peer: SocketAddr,
    /// Drawn for each run: echoes of another are strangers.
    token: u64,
    /// How long an answer may take.
    timeout: Duration,
    /// Every how many messages one is stamped by the kernel; 0: none.
    stamp_every: u64,
    stamping: Stamping,
    /// A message, and room to receive some.
    message: Vec<u8>,
    rooms: Vec<u8>,
}

/// Why a run ended before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// No answer came for as long as one may take, though messages were sent.
    Silent,
    /// The far end's kernel says that nobody listens there any more.
    Refused,
    /// The caller said so. Nothing was sent since, and what was under way had as long as an answer
    /// may take.
    Stopped,
    /// What is measured cannot be written any more; [`Recorder::finish`] says why.
    Unrecorded,
}

/// What a run was.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunOutcome {
    /// Its accounts.
    pub end: End,
    /// Why it ended before its time.
    pub cut: Option<Cut>,
}

impl Client {
    /// Opens a socket to a reflector and makes sure that it answers.
    ///
    /// # Errors
    /// When nobody answers within `timeout`, with what that may mean; when the system refuses.
    pub fn connect(peer: SocketAddr, seed: u64, timeout: Duration) -> Result<Self, Error> {
        let refused = |operation: &'static str| {
            move |error: io::Error| Error::from(SystemError::system(operation, peer, &error))
        };
        let socket = UdpSocket::new(Family::of(&peer)).map_err(refused("open a socket to"))?;
        let inbound = if peer.ip().is_multicast() {
            let choice = Interfaces::read()?.choose(None, peer.ip())?;
            let (index, local) = (choice.interface.index, choice.local);
            let answers = towards_group(&socket, peer, index, local);
            Some(answers.map_err(refused("send to the group"))?)
        } else {
            datagram::connect(socket.as_fd(), peer).map_err(refused("find a way to"))?;
            None
        };
        let mut client = Self::new(socket, peer, seed, timeout, BATCH)?;
        client.inbound = inbound;
        let receiving = client.receiving();
        // An echo must never be lost for want of room here.
        let _granted = receiving
            .set_receive_buffer(BUFFER_BYTES)
            .map_err(refused("enlarge the receive buffer for"))?;
        let waits = client.epoll.add(receiving.as_fd(), 0, Interest::READ);
        waits.map_err(refused("wait for"))?;
        client.greet()?;
        Ok(client)
    }

    /// Opens a connection, or the sessions of a group, to a reflector over `transport` and makes
    /// sure that it answers. [`Transport::Udp`] is [`Client::connect`].
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect_over(
        transport: Transport,
        peer: SocketAddr,
        seed: u64,
        timeout: Duration,
    ) -> Result<Self, Error> {
        if transport == Transport::Udp {
            return Self::connect(peer, seed, timeout);
        }
        let refused = |error: io::Error| SystemError::system("prepare for", peer, &error);
        // It carries nothing; what asks for this end's address is answered by its route.
        let socket = UdpSocket::new(Family::of(&peer)).map_err(refused)?;
        let mut client = Self::new(socket, peer, seed, timeout, 1)?;
        client.carrier = Some(super::stream::open(transport, peer, timeout)?);
        datagram::connect(client.fd(), peer).map_err(refused)?;
        client.greet()?;
        Ok(client)
    }

    /// With room for `batch` datagrams, and nobody to talk to yet.
    fn new(
        socket: UdpSocket,
        peer: SocketAddr,
        token: u64,
        timeout: Duration,
        batch: usize,
    ) -> Result<Self, Error> {
        let epoll = Epoll::new(1);
        Ok(Self {
            socket,
            inbound: None,
            carrier: None,
            epoll: epoll.map_err(|it| SystemError::system("make a poll set for", peer, &it))?,
            inbox: Inbox::new(batch),
            ring: None,
            peer,
            token,
            timeout,
            stamp_every: 0,
            stamping: Stamping::default(),
            message: Vec::new(),
            rooms: vec![0; batch * ROOM_BYTES],
        })
    }

    /// What PGM has repaired at this end since the sessions were opened; `None` over another
    /// transport.
    #[must_use]
    pub fn repairs(&self) -> Option<Repairs> {
        self.carrier.as_ref().and_then(|carrier| carrier.repairs())
    }

    /// Has the kernel stamp every `every`-th message; 0 for none. The receive path then asks for
    /// the stamps of the echoes, too.
    ///
    /// # Errors
    /// When the kernel cannot.
    pub fn set_stamping(&mut self, every: u64) -> Result<(), Error> {
        let set = if every > 0 {
            stamp::enable
        } else {
            stamp::disable
        };
        let result = set(self.fd()).and_then(|()| set(self.receiving().as_fd()));
        result.map_err(|error| SystemError::system("stamp messages to", self.peer, &error))?;
        self.stamp_every = every;
        Ok(())
    }

    /// The address of this end.
    #[must_use]
    pub fn local(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()
    }

    /// Asks for as long as `duration` and hands every message's fate to `recorder`; with `None` it
    /// warms up only.
    ///
    /// # Errors
    /// When the system refuses to send or receive at all. What went before is recorded.
    pub fn run(
        &mut self,
        setup: &Setup,
        engine: (Engine, Wait),
        duration: Duration,
        recorder: Option<&mut Recorder>,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<RunOutcome, Error> {
        let size = setup.size.clamp(PROBE_BYTES_MIN, MESSAGE_BYTES_MAX);
        self.token = self.token.wrapping_add(1);
        self.message.resize(size, 0);
        Probe {
            kind: ProbeKind::Probe,
            token: self.token,
            sequence: 0,
        }
        .emit(&mut self.message);
        let meter = UsageMeter::start();
        let before = self.repairs();
        let mut run = Run::new(self, setup, engine, duration, recorder);
        let result = match engine.0 {
            Engine::IoUring => run
                .client
                .open_ring()
                .map(|ring| run.client.ring = Some(ring)),
            _ => Ok(()),
        };
        let result = result.and_then(|()| run.go(is_stopped));
        // What waits in it would take the datagrams of the next run.
        run.client.ring = None;
        let (counts, lasted_ns, stamps) = run.close();
        let usage = meter.read();
        let after = run.client.repairs();
        let repairs = after
            .zip(before)
            .map(|(after, before)| after.since(&before));
        let cut = result.as_ref().copied().unwrap_or(Some(Cut::Stopped));
        let end = End {
            lasted_ns,
            counts,
            steal_s: usage.machine_steal_s,
            process_cpu_s: usage.process_cpu_s,
            is_cut: cut.is_some(),
            repairs,
            stamps,
        };
        if let Some(recorder) = run.recorder.take() {
            recorder.end(end);
        }
        result.map_err(|error| SystemError::system("exchange messages with", self.peer, &error))?;
        Ok(RunOutcome { end, cut })
    }

    /// Why an engine cannot be had here, and what to use instead; `None` when it can.
    pub(super) fn refusal(&self, engine: Engine) -> Option<String> {
        let is_ring = engine == Engine::IoUring;
        let error = is_ring.then(|| self.open_ring().err()).flatten()?;
        Some(Engine::refusal(&error))
    }

    fn open_ring(&self) -> io::Result<DatagramRing> {
        DatagramRing::new(self.receiving().as_fd(), self.fd(), ROOM_BYTES)
    }

    /// Says hello until a welcome comes.
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
            loop {
                let left = end.since(sys::clock::monotonic());
                if left.is_zero() {
                    break;
                }
                if self.wait(left).is_err() {
                    break;
                }
                match self.receive() {
                    Ok(len) => {
                        let welcome = Probe::parse(&self.rooms[..len]);
                        let is_ours =
                            |it: &Probe| it.kind == ProbeKind::Welcome && it.token == self.token;
                        if welcome.as_ref().is_ok_and(is_ours) {
                            return Ok(());
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    // A reflector that is about to start listens a moment later.
                    Err(error) => refusal = Some(error),
                }
            }
        }
        Err(Error::Measurement(self.silence(refusal.as_ref())))
    }

    /// What it means that nobody answered.
    fn silence(&self, refusal: Option<&io::Error>) -> String {
        let peer = self.peer;
        match refusal {
            Some(error) if error.kind() == io::ErrorKind::ConnectionRefused => format!(
                "no reflector at {peer}: the host is there, but nobody listens on port {}; start \
                 `towline rtt reflect` there, or name its port as HOST:PORT",
                peer.port()
            ),
            Some(error) => format!("no way to the reflector at {peer}: {error}"),
            None => format!(
                "no reflector answered at {peer} within {:?}: start `towline rtt reflect` there, \
                 and let UDP port {} through firewalls in both directions",
                self.timeout,
                peer.port()
            ),
        }
    }

    pub(super) fn send(&mut self, message: &[u8]) -> io::Result<()> {
        match &mut self.carrier {
            Some(carrier) => carrier.send(message),
            None => datagram::send(self.fd(), message).map(|_len| ()),
        }
    }

    /// Takes a message into the first room, without waiting.
    pub(super) fn receive(&mut self) -> io::Result<usize> {
        if let Some(carrier) = &mut self.carrier {
            return carrier.receive(&mut self.rooms);
        }
        if let Some(ring) = &mut self.ring {
            return ring.receive(&mut self.rooms, &mut RawAddress::empty());
        }
        let fd = self.inbound.as_ref().unwrap_or(&self.socket).as_fd();
        datagram::receive(fd, &mut self.rooms, false)
    }

    pub(super) fn wait(&mut self, limit: Duration) -> io::Result<()> {
        match (&mut self.carrier, &mut self.ring) {
            (Some(carrier), _) => carrier.wait(limit),
            (None, Some(ring)) => ring.wait(limit),
            (None, None) => {
                datagram::wait_readable(self.receiving().as_fd(), limit).map(|_ready| ())
            }
        }
    }

    /// What [`Client::receive`] has taken.
    pub(super) fn received(&self, len: usize) -> &[u8] {
        &self.rooms[..len]
    }

    /// Tells this run's messages from others'.
    pub(super) const fn token(&self) -> u64 {
        self.token
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn receiving(&self) -> &UdpSocket {
        self.inbound.as_ref().unwrap_or(&self.socket)
    }
}

/// One run under way.
struct Run<'a> {
    client: &'a mut Client,
    recorder: Option<&'a mut Recorder>,
    schedule: Option<Schedule>,
    engine: Engine,
    wait: Wait,
    window: u64,
    /// Slots of the whole run; of ping-pong, no bound.
    slots: u64,
    duration_ns: u64,
    start_ns: u64,
    flight: Flight,
    counts: Counts,
    /// The slot that is next.
    slot: u64,
    last_answer_ns: u64,
    last_seen_ns: u64,
    is_refused: bool,
    /// The wait itself has received: nothing else need be looked for.
    has_received: bool,
    realtime_limit: Option<(u64, u64)>,
}

impl<'a> Run<'a> {
    fn new(
        client: &'a mut Client,
        setup: &Setup,
        (engine, wait): (Engine, Wait),
        duration: Duration,
        mut recorder: Option<&'a mut Recorder>,
    ) -> Self {
        let schedule = setup.schedule();
        let duration_ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let slots = schedule.map_or(u64::MAX, |schedule| schedule.slots_within(duration_ns));
        // All that can be under way: what is sent while one may be waited for, and then some.
        let timeout_ns = u64::try_from(client.timeout.as_nanos()).unwrap_or(u64::MAX);
        let under_way = schedule.map_or(1, |schedule| schedule.slots_due(timeout_ns));
        let room = usize::try_from(under_way.saturating_mul(2)).unwrap_or(FLIGHT_MAX);
        if let Some(recorder) = &mut recorder {
            recorder.begin(setup);
        }
        let is_realtime = setup.sched.starts_with("fifo");
        client.stamping.restart();
        // Of the calls that may wait only: the others say that they may not.
        let _always = datagram::set_blocking(client.receiving().as_fd(), LOOK);
        let flight = Flight::new(room.clamp(1_024, FLIGHT_MAX));
        let start_ns = now_ns() + LEAD_NS;
        Self {
            client,
            recorder,
            schedule,
            engine,
            wait,
            window: match schedule {
                Some(_) => setup.window.map_or(u64::MAX, Into::into),
                None => 1,
            },
            slots,
            duration_ns,
            start_ns,
            flight,
            counts: Counts::default(),
            slot: 0,
            last_answer_ns: 0,
            last_seen_ns: 0,
            is_refused: false,
            has_received: false,
            // Only real-time threads are kept off their processor.
            realtime_limit: is_realtime
                .then(sys::scheduler::realtime_limit_ns)
                .flatten(),
        }
    }

    fn go(&mut self, is_stopped: &dyn Fn() -> bool) -> io::Result<Option<Cut>> {
        let timeout_ns = u64::try_from(self.client.timeout.as_nanos()).unwrap_or(u64::MAX);
        let (mut cut, mut is_ending) = (None, false);
        while cut.is_none() && !self.is_done() {
            let now = self.now();
            self.look_for_pauses(now);
            if !std::mem::take(&mut self.has_received) {
                self.receive()?;
            }
            while self.send_due()? {}
            self.settle(now.saturating_sub(timeout_ns));
            if !is_ending && is_stopped() {
                is_ending = true;
                // No more is sent. What is under way is not lost: its answers are waited for.
                self.slots = self.slot;
                self.duration_ns = self.duration_ns.min(now);
            }
            if self.recorder.as_ref().is_some_and(|it| it.has_failed()) {
                cut = Some(Cut::Unrecorded);
            } else if self.is_silent(now, timeout_ns) {
                cut = Some(if self.is_refused {
                    Cut::Refused
                } else {
                    Cut::Silent
                });
            }
            self.rest()?;
        }
        Ok(cut.or(is_ending.then_some(Cut::Stopped)))
    }

    fn is_done(&self) -> bool {
        let is_sent = match self.schedule {
            Some(_) => self.slot >= self.slots,
            None => self.now() >= self.duration_ns,
        };
        is_sent && self.flight.waiting() == 0
    }

    /// Nothing has been heard for too long, though something should have been.
    fn is_silent(&self, now: u64, timeout_ns: u64) -> bool {
        self.counts.sent > 0
            && self.slot < self.slots
            && now.saturating_sub(self.last_answer_ns) > timeout_ns.saturating_mul(2)
    }

    /// Sends what is due; true when another may be.
    fn send_due(&mut self) -> io::Result<bool> {
        let now = self.now();
        if self.slot >= self.slots || self.flight.waiting() >= self.window {
            return Ok(false);
        }
        let due = match self.schedule {
            Some(schedule) => schedule.due_ns(self.slot),
            None if now >= self.duration_ns => return Ok(false),
            None => now,
        };
        // Before the start the clock of the run stands at zero.
        if now < due || now == 0 {
            return Ok(false);
        }
        if now - due > LATE_NS_MAX {
            self.counts.slots += 1;
            self.counts.missed += 1;
            self.slot += 1;
            return Ok(true);
        }
        while !self.flight.has_room(self.slot) {
            self.settle(u64::MAX);
        }
        let sequence = self.slot;
        Probe::set_sequence(&mut self.client.message, sequence);
        let every = self.client.stamp_every;
        let takes_stamps = every > 0 && self.engine.takes_stamps();
        let is_stamped = takes_stamps && sequence.is_multiple_of(every);
        let clocks = is_stamped.then(Clocks::now);
        // Read at last: all the above is part of being late, none of the round trip.
        let sent_ns = self.now();
        let client = &mut *self.client;
        let result = match (&mut client.carrier, &mut client.ring) {
            (Some(carrier), _) => carrier.send(&client.message),
            (None, Some(ring)) => ring.send(None, &client.message),
            (None, None) if is_stamped => {
                stamp::send_stamped(client.socket.as_fd(), &client.message).map(|_len| ())
            }
            (None, None) => datagram::send(client.socket.as_fd(), &client.message).map(|_len| ()),
        };
        self.slot += 1;
        self.counts.slots += 1;
        match result {
            Ok(()) => {
                self.counts.sent += 1;
                let intended_ns = if self.schedule.is_some() {
                    due
                } else {
                    sent_ns
                };
                self.flight.send(sequence, intended_ns, sent_ns);
                if let Some(clocks) = clocks {
                    self.client.stamping.sent(sequence, clocks);
                }
            }
            Err(error) => self.fault(error)?,
        }
        // Echoes wait meanwhile: look at them after each message.
        Ok(false)
    }

    /// An error of the network is counted; one that can never pass ends the run.
    fn fault(&mut self, error: io::Error) -> io::Result<()> {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => {
                self.is_refused = true;
                self.counts.refused += 1;
                Ok(())
            }
            io::ErrorKind::WouldBlock
            | io::ErrorKind::Interrupted
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable => {
                self.counts.refused += 1;
                Ok(())
            }
            _ if error.raw_os_error() == Some(sys::errno::ENOBUFS) => {
                self.counts.refused += 1;
                Ok(())
            }
            _ => Err(error),
        }
    }

    fn receive(&mut self) -> io::Result<()> {
        for _ in 0..BATCH {
            let result = match self.engine {
                Engine::Mmsg => self.receive_many(),
                Engine::Recv | Engine::Epoll if self.client.stamping.is_waiting() => {
                    self.receive_stamped()
                }
                Engine::Recv | Engine::Epoll | Engine::IoUring => self.receive_one(),
            };
            match result {
                // Nothing more is to come before the next one leaves.
                Ok(()) if self.window == 1 && self.flight.waiting() == 0 => break,
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // What one ICMP message says is told once; look again.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    self.is_refused = true;
                    break;
                }
                Err(error) => return self.fault(error),
            }
        }
        if self.client.stamping.is_waiting() {
            self.collect_stamps();
        }
        Ok(())
    }

    fn receive_one(&mut self) -> io::Result<()> {
        let len = self.client.receive()?;
        let now = self.now();
        self.take(0, len, now);
        Ok(())
    }

    fn receive_stamped(&mut self) -> io::Result<()> {
        let client = &mut *self.client;
        let fd = client.inbound.as_ref().unwrap_or(&client.socket).as_fd();
        let (len, stamps) = stamp::receive_stamped(fd, &mut client.rooms)?;
        let now = self.now();
        let sequence = self.take(0, len, now);
        let is_stamped = |sequence: &u64| sequence.is_multiple_of(self.client.stamp_every);
        if let Some(sequence) = sequence.filter(is_stamped) {
            self.client.stamping.echoed(sequence, stamps, Clocks::now());
        }
        Ok(())
    }

    fn receive_many(&mut self) -> io::Result<()> {
        let client = &mut *self.client;
        let rooms = client.rooms.chunks_mut(ROOM_BYTES);
        let fd = client.inbound.as_ref().unwrap_or(&client.socket).as_fd();
        let count = client.inbox.receive(fd, rooms, false)?;
        let now = self.now();
        for index in 0..count {
            let len = self.client.inbox.message(index).len;
            self.take(index * ROOM_BYTES, len, now);
        }
        Ok(())
    }

    /// Looks at a datagram; gives its number when it answers one of this run's messages.
    fn take(&mut self, at: usize, len: usize, now: u64) -> Option<u64> {
        let datagram = &self.client.rooms[at..at + len];
        match Probe::parse(datagram) {
            Ok(probe) if probe.kind == ProbeKind::Echo && probe.token == self.client.token => {
                self.last_answer_ns = now;
                let is_first = self.flight.answer(probe.sequence, now, &mut self.counts);
                is_first.then_some(probe.sequence)
            }
            // A straggler of the run before, or a welcome that came twice.
            Ok(probe) if self.client.token.wrapping_sub(probe.token) <= 2 => {
                self.counts.late_or_twice += 1;
                None
            }
            _ => {
                self.counts.foreign += 1;
                None
            }
        }
    }

    fn collect_stamps(&mut self) {
        let at_ns = self.now();
        let (client, recorder) = (&mut *self.client, &mut self.recorder);
        client.stamping.collect(client.socket.as_fd(), |outcome| {
            let Some(recorder) = recorder else {
                return;
            };
            match outcome {
                Outcome::Whole(split) => recorder.split(split),
                Outcome::ClockStep(_) => recorder.mark(Mark {
                    kind: MarkKind::ClockStep,
                    at_ns,
                    lasted_ns: 0,
                }),
            }
        });
    }

    fn settle(&mut self, give_up_ns: u64) {
        while let Some(sample) = self.flight.settle(give_up_ns, &mut self.counts) {
            if let Some(recorder) = &mut self.recorder {
                recorder.sample(sample);
            }
        }
    }

    /// Waits as the strategy says, at most until the next slot is due.
    fn rest(&mut self) -> io::Result<()> {
        let limit = match self.schedule {
            Some(schedule) if self.slot < self.slots && self.flight.waiting() < self.window => {
                let due = self.start_ns.saturating_add(schedule.due_ns(self.slot));
                Duration::from_nanos(due.saturating_sub(now_ns())).min(LOOK)
            }
            _ => LOOK,
        };
        let limit = match self.wait {
            Wait::Spin => return Ok(()),
            Wait::Busy => limit.saturating_sub(BUSY_MARGIN),
            Wait::Block => limit,
        };
        if limit.is_zero() {
            return Ok(());
        }
        let is_held = self.flight.waiting() >= self.window && self.flight.waiting() > 0;
        let is_plain = self.engine == Engine::Recv
            && self.wait == Wait::Block
            && self.client.carrier.is_none();
        if is_held && is_plain && !self.client.stamping.is_waiting() {
            return self.await_answer();
        }
        if self.engine == Engine::Epoll {
            let ready = self.client.epoll.wait(Some(limit))?.len();
            debug_assert!(ready <= 1, "one socket is in the set");
        } else {
            self.client.wait(limit)?;
        }
        // A wait is no pause.
        self.last_seen_ns = self.now();
        Ok(())
    }

    /// Nothing can be sent before an answer is there: one call waits for it and takes it, where a
    /// poll before each receive would be seen in every round trip.
    fn await_answer(&mut self) -> io::Result<()> {
        let client = &mut *self.client;
        let fd = client.inbound.as_ref().unwrap_or(&client.socket).as_fd();
        let received = datagram::receive(fd, &mut client.rooms, true);
        let now = self.now();
        self.last_seen_ns = now;
        self.has_received = true;
        match received {
            Ok(len) => {
                self.take(0, len, now);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                self.is_refused = true;
                Ok(())
            }
            Err(error) => self.fault(error),
        }
    }

    /// Somebody else had the processor: between two looks at the clock more time has passed than
    /// the work in between can take.
    fn look_for_pauses(&mut self, now: u64) {
        let lasted_ns = now.saturating_sub(self.last_seen_ns);
        if lasted_ns > PAUSE_NS
            && self.last_seen_ns > 0
            && let Some(recorder) = &mut self.recorder
        {
            recorder.mark(Mark {
                kind: pause_kind(lasted_ns, self.realtime_limit),
                at_ns: self.last_seen_ns,
                lasted_ns,
            });
        }
        self.last_seen_ns = now;
    }

    /// Gives up what is under way; the accounts, and how long it took.
    fn close(&mut self) -> (Counts, u64, StampCounts) {
        self.settle(u64::MAX);
        let lasted_ns = match self.schedule {
            Some(schedule) => schedule.due_ns(self.slot),
            None => self.now(),
        };
        (self.counts, lasted_ns, self.client.stamping.counts)
    }

    /// Nanoseconds since the run's start; zero before.
    fn now(&self) -> u64 {
        now_ns().saturating_sub(self.start_ns)
    }
}

/// Connects a socket to a group; answers come to another one with the same address, which takes
/// them from anybody.
fn towards_group(
    socket: &UdpSocket,
    group: SocketAddr,
    interface: u32,
    local: IpAddr,
) -> io::Result<UdpSocket> {
    socket.set_reuse_address(true)?;
    socket.bind(SocketAddr::new(local, 0))?;
    socket.set_multicast_interface(interface, local)?;
    let inbound = UdpSocket::new(Family::of(&group))?;
    inbound.set_reuse_address(true)?;
    inbound.bind(socket.local_addr()?)?;
    datagram::connect(socket.as_fd(), group)?;
    Ok(inbound)
}

fn now_ns() -> u64 {
    sys::clock::monotonic().as_nanos()
}

/// A pause as long as the kernel keeps real-time threads off their processor is its limit at work.
fn pause_kind(lasted_ns: u64, limit: Option<(u64, u64)>) -> MarkKind {
    match limit {
        Some((runtime, period))
            if lasted_ns.abs_diff(period - runtime) < (period - runtime) / 4 =>
        {
            MarkKind::Throttled
        }
        _ => MarkKind::Pause,
    }
}

/// Between deciding to start and the first slot.
const LEAD_NS: u64 = 1_000_000;
/// A slot that is this late is not used any more but counted as missed.
const LATE_NS_MAX: u64 = 1_000_000_000;
/// The loop takes a few microseconds: more than this was taken from it.
const PAUSE_NS: u64 = 500_000;
/// How long before a slot a busy wait begins to spin: more than a wake-up mostly takes.
const BUSY_MARGIN: Duration = Duration::from_micros(60);
/// Longest wait: how late a stop is seen.
const LOOK: Duration = Duration::from_millis(20);
/// Datagrams looked at before it is time to send again.
const BATCH: usize = 32;
const ROOM_BYTES: usize = 65_536;
const FLIGHT_MAX: usize = 1 << 22;
const BUFFER_BYTES: usize = 4 << 20;
const HELLOS: u64 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_of_the_limits_length_is_throttling() {
        let limit = Some((950_000_000, 1_000_000_000));
        assert_eq!(pause_kind(50_400_000, limit), MarkKind::Throttled);
        assert_eq!(pause_kind(5_000_000, limit), MarkKind::Pause);
        assert_eq!(pause_kind(50_000_000, None), MarkKind::Pause);
    }
}
