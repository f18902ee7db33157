//! The end that carries out requests: it receives, sends, and counts.

use std::{
    io,
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd as _,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, ScopedJoinHandle},
    time::Duration,
};

use base::Instant;
use measure::sweep::Load;
use net::SystemError;
use sys::datagram;

use super::{
    counters::{CounterReader, Port},
    limits::ServeSpec,
    path::DataPath,
    place::{Answer, Place, Turn},
    protocol::{Outcome, Request, Response, TrialSpec, VERSION},
    receiver::{Expectation, receive},
    sender::{SendPlan, send},
};
use crate::{
    Error,
    control_link::{ControlLink, foreign},
};

/// A server that serves the sweeps of clients, one after the other.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    listen: SocketAddr,
    spec: ServeSpec,
}

impl Server {
    /// Opens the listening socket.
    ///
    /// # Errors
    /// When the address or port cannot be had, or a group of `spec` cannot be allowed.
    pub fn open(spec: ServeSpec) -> Result<Self, Error> {
        spec.check()?;
        let refused = |error: io::Error| crate::error::cannot_listen(spec.listen, &error);
        let listener = sys::tcp::listen(spec.listen, BACKLOG).map_err(refused)?;
        let listen = listener.local_addr().map_err(refused)?;
        Ok(Self {
            listener,
            listen,
            spec,
        })
    }

    /// Returns the address on which the server listens.
    #[must_use]
    pub const fn local(&self) -> SocketAddr {
        self.listen
    }

    /// Serves until the caller stops it, and calls `tell` with a line for each client. Returns the
    /// number of trials that it carried out.
    ///
    /// # Errors
    /// When the listening socket cannot be used any more.
    pub fn run(
        &self,
        is_stopped: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(&str),
    ) -> Result<u64, Error> {
        let refused = |error: io::Error| SystemError::system("listen at", self.listen, &error);
        let (place, trials) = (Mutex::new(Place::default()), AtomicU64::new(0));
        let mut waiting: Vec<Waiting> = Vec::new();
        thread::scope(|scope| {
            let mut serve = |waiting: &mut Vec<Waiting>| {
                let (place, trials) = (&place, &trials);
                while let Some((client, turn)) = next_served(waiting, place) {
                    tell(&format!("measuring with {}", client.peer));
                    scope.spawn(move || {
                        self.serve(client.stream, &turn, trials);
                        lock(place).leave(now());
                    });
                }
            };
            let result = loop {
                if is_stopped() {
                    break Ok(());
                }
                match datagram::wait_readable(self.listener.as_fd(), LOOK) {
                    Err(error) => break Err(refused(error).into()),
                    Ok(false) => {}
                    Ok(true) => {
                        if let Ok((stream, peer)) = self.listener.accept() {
                            queue(&mut waiting, Waiting::new(stream, peer));
                        }
                    }
                }
                serve(&mut waiting);
            };
            // The scope waits for the client that is served.
            lock(&place).close();
            result
        })
        .map(|()| trials.into_inner())
    }

    /// Serves one client until it leaves or its turn is over, and counts its trials.
    fn serve(&self, stream: TcpStream, turn: &Turn, trials: &AtomicU64) {
        let Ok(mut session) = Session::open(stream, self, turn) else {
            // The client has left, or this host does not know the connection's interface.
            return;
        };
        while let Ok(Some(request)) = session.hear(Duration::MAX) {
            match session.obey(request) {
                Ok(did_trial) => {
                    trials.fetch_add(u64::from(did_trial), Ordering::Relaxed);
                }
                Err(_) => break,
            }
        }
    }
}

/// A client that is connected and has not been served.
#[derive(Debug)]
struct Waiting {
    stream: TcpStream,
    peer: SocketAddr,
    /// When the client is refused if it still waits.
    until: Instant,
}

impl Waiting {
    fn new(stream: TcpStream, peer: SocketAddr) -> Self {
        Self {
            stream,
            peer,
            until: now() + WAIT_MAX,
        }
    }

    fn refuse(self, reason: &str) {
        if let Ok(mut link) = ControlLink::new(self.stream) {
            let reason = reason.to_owned();
            // When the client is gone, it needs no answer.
            drop(link.say(&Response::Refused { reason }));
        }
    }
}

/// Lets a client wait, or refuses it. One client of each host may wait, and a few in all.
fn queue(waiting: &mut Vec<Waiting>, client: Waiting) {
    let host = client.peer.ip();
    if waiting.len() < WAITING_MAX && waiting.iter().all(|it| it.peer.ip() != host) {
        waiting.push(client);
    } else {
        client.refuse(BUSY);
    }
}

/// Returns the first client in line whose turn it is; a host that was served less comes first.
/// Refuses clients that have waited too long, and those whose hosts had all their time.
fn next_served(waiting: &mut Vec<Waiting>, place: &Mutex<Place>) -> Option<(Waiting, Arc<Turn>)> {
    if waiting.len() > 1 {
        let place = lock(place);
        waiting.sort_by_key(|it| place.served(it.peer.ip()));
    }
    let mut index = 0;
    while index < waiting.len() {
        let answer = lock(place).ask(waiting[index].peer.ip(), now());
        match answer {
            Answer::Served(turn) => return Some((waiting.remove(index), turn)),
            Answer::Later(pause) => waiting.remove(index).refuse(&format!(
                "it has served this host for long enough; it serves this host again in {} s",
                pause.as_secs() + 1
            )),
            Answer::Wait if now() >= waiting[index].until => waiting.remove(index).refuse(BUSY),
            Answer::Wait => index += 1,
        }
    }
    None
}

/// A connected client.
struct Session<'a> {
    link: ControlLink,
    local: SocketAddr,
    peer: IpAddr,
    port: Port,
    spec: &'a ServeSpec,
    turn: &'a Turn,
}

impl<'a> Session<'a> {
    fn open(stream: TcpStream, server: &'a Server, turn: &'a Turn) -> io::Result<Self> {
        let link = ControlLink::new(stream)?;
        let local = SocketAddr::new(link.local()?.ip(), server.listen.port());
        let port = Port::of(local.ip()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        let peer = link.peer()?.ip();
        Ok(Self {
            link,
            local,
            peer,
            port,
            spec: &server.spec,
            turn,
        })
    }

    /// Waits at most `limit` for a request; `None` when none came or the client's turn is over.
    fn hear(&mut self, limit: Duration) -> io::Result<Option<Request>> {
        let began = now();
        while now().since(began) < limit && !self.turn.is_over(now()) {
            if let Some(request) = self.link.hear(LOOK.min(limit))? {
                return Ok(Some(request));
            }
        }
        Ok(None)
    }

    /// Carries out a request; returns true when this was a whole trial.
    fn obey(&mut self, request: Request) -> io::Result<bool> {
        match request {
            Request::Hello { .. } => {
                let welcome = Response::Welcome {
                    version: VERSION,
                    name: sys::host_name().unwrap_or_default(),
                    interface: self.port.name.clone(),
                    mtu_bytes: self.port.mtu_bytes,
                };
                self.link.say(&welcome)?;
                Ok(false)
            }
            Request::Trial(spec) => match self.trial(&spec) {
                Ok(()) => Ok(true),
                Err(error) => {
                    let reason = sys::with_usual_remedy(&error);
                    self.link.say(&Response::Refused { reason })?;
                    Ok(false)
                }
            },
            // Such a message belongs to a trial that has failed.
            Request::Go | Request::Sent(_) => Ok(false),
        }
    }

    fn trial(&mut self, asked: &TrialSpec) -> io::Result<()> {
        let (spec, rate_per_s_max) = self.spec.allow(asked)?;
        let path = DataPath::server(&spec, self.local, &self.port, self.peer)?;
        self.meet(&path, spec.token)?;
        self.link.say(&Response::Ready)?;
        let Some(Request::Go) = self.hear(GO_TIME_MAX)? else {
            let text = "the client did not say when to begin; use the same release at both ends";
            return Err(io::Error::other(text));
        };
        let idle_since_ns = self.turn.begin_trial();
        let outcome = self.measure(&spec, &path);
        self.turn.end_trial(idle_since_ns, outcome.is_ok(), now());
        let outcome = Outcome {
            rate_per_s_max,
            ..outcome?
        };
        self.link.say(&Response::Outcome(outcome))
    }

    /// Waits for a datagram that proves that the client has the address from which it sends.
    fn meet(&self, path: &DataPath, token: u64) -> io::Result<()> {
        let began = now();
        while now().since(began) < MEET_TIME_MAX && !self.turn.is_over(now()) {
            if path.meet(token, self.peer, LOOK)? {
                return Ok(());
            }
        }
        if self.turn.is_cut() {
            return Err(io::Error::other(CUT));
        }
        let text = format!(
            "no datagram from {} has come to UDP port {}: let this port through the firewalls",
            self.peer,
            self.local.port()
        );
        Err(io::Error::other(text))
    }

    /// Sends and receives as `spec` says, as long as the client is there.
    fn measure(&mut self, spec: &TrialSpec, path: &DataPath) -> io::Result<Outcome> {
        let mut counters = CounterReader::new(self.port.index, self.local.is_ipv6());
        let before = counters.read();
        let (expectation, stop) = (Expectation::new(), AtomicBool::new(false));
        let (receipt, dispatch) = thread::scope(|scope| {
            let receiver = spec.is_there.then(|| {
                let what = (spec.token, spec.size_bytes, spec.mode);
                let (path, expectation) = (&path, &expectation);
                scope.spawn(move || receive(path.inbound(), what, expectation))
            });
            let sender = spec.is_back.then(|| {
                let plan = send_plan(spec, spec.token.wrapping_add(1));
                let (stop, count) = (&stop, AtomicU64::new(0));
                scope.spawn(move || send(path.outbound(), &plan, stop, &count))
            });
            let is_done = || is_finished(sender.as_ref()) && is_finished(receiver.as_ref());
            let limit = Duration::from_millis(spec.duration_ms) + GO_TIME_MAX;
            let followed = self.follow(limit, &expectation, &is_done);
            if followed.is_err() {
                // The client is gone, or said something else: nobody wants the rest.
                stop.store(true, Ordering::Relaxed);
                expectation.stop.store(true, Ordering::Relaxed);
            }
            let joined = (join(receiver), join(sender));
            followed.map(|()| joined)
        })?;
        Ok(Outcome {
            dispatch: dispatch?,
            receipt: receipt?,
            counters: counters.read().since(&before),
            rate_per_s_max: None,
        })
    }

    /// Listens to the client while a trial runs, until it says how much it has sent and the trial
    /// is done.
    fn follow(
        &mut self,
        limit: Duration,
        expectation: &Expectation,
        is_done: &dyn Fn() -> bool,
    ) -> io::Result<()> {
        let (began, mut has_sent) = (now(), false);
        while !(has_sent && is_done()) {
            match self.link.hear(FOLLOW)? {
                None => {}
                Some(Request::Sent(sent)) if !has_sent => {
                    has_sent = true;
                    expectation.set_sent(sent);
                }
                Some(_) => return Err(foreign()),
            }
            if self.turn.is_cut() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, CUT));
            }
            if now().since(began) > limit {
                let text = format!("the trial did not end within {limit:?}; try again");
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
        }
        Ok(())
    }
}

fn is_finished<T>(thread: Option<&ScopedJoinHandle<'_, T>>) -> bool {
    thread.is_none_or(ScopedJoinHandle::is_finished)
}

fn lock(place: &Mutex<Place>) -> MutexGuard<'_, Place> {
    place.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now() -> Instant {
    sys::clock::monotonic()
}

/// Waits for a thread and returns its result; `None` when there is no thread.
pub(super) fn join<T>(
    thread: Option<ScopedJoinHandle<'_, io::Result<T>>>,
) -> io::Result<Option<T>> {
    let Some(thread) = thread else {
        return Ok(None);
    };
    match thread.join() {
        Ok(result) => result.map(Some),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

pub(super) fn send_plan(spec: &TrialSpec, token: u64) -> SendPlan {
    SendPlan {
        token,
        size_bytes: spec.size_bytes,
        mode: spec.mode,
        load: spec.rate_per_s.map_or(Load::Flood, Load::Rate),
        duration: Duration::from_millis(spec.duration_ms),
    }
}

const CUT: &str = "the server is stopping, or serves another host now; try later";
const BUSY: &str = "it serves another client now; try later, as two would disturb each other";
const BACKLOG: u16 = 8;
/// How late a stop may be noticed.
const LOOK: Duration = Duration::from_millis(50);
/// How late the server may notice the end of a trial, or that the trial's client has gone.
const FOLLOW: Duration = Duration::from_millis(10);
/// How long a client waits for the place: longer than it takes an idle client to lose it.
const WAIT_MAX: Duration = Duration::from_secs(3);
const WAITING_MAX: usize = 8;
const MEET_TIME_MAX: Duration = Duration::from_secs(2);
const GO_TIME_MAX: Duration = Duration::from_secs(10);
