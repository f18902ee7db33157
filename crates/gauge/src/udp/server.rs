//! The end that follows commands: it receives, sends, and counts.

use std::{
    io,
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd as _,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use measure::sweep::Load;
use net::SystemError;
use sys::datagram;

use super::{
    SIZES,
    counters::{CounterReader, Port},
    link::ControlLink,
    path::DataPath,
    protocol::{Outcome, Request, Response, TrialSpec, VERSION},
    receiver::{Expectation, receive},
    sender::{SendPlan, send},
};
use crate::Error;

/// How a server works.
#[derive(Clone, Copy, Debug)]
pub struct ServeSpec {
    /// Where it listens, for its control connections (TCP) and for datagrams (UDP).
    pub listen: SocketAddr,
}

/// Serves one sweep after the other.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    listen: SocketAddr,
}

impl Server {
    /// Opens the listening socket.
    ///
    /// # Errors
    /// When the address or port cannot be had.
    pub fn open(spec: ServeSpec) -> Result<Self, Error> {
        let refused = |error: io::Error| crate::error::cannot_listen(spec.listen, &error);
        let listener = sys::tcp::listen(spec.listen, BACKLOG).map_err(refused)?;
        let listen = listener.local_addr().map_err(refused)?;
        Ok(Self { listener, listen })
    }

    /// Where it listens.
    #[must_use]
    pub const fn local(&self) -> SocketAddr {
        self.listen
    }

    /// Serves until the caller says stop. `tell` gets a line for each client. Gives how many trials
    /// were made.
    ///
    /// # Errors
    /// When the listening socket is beyond use.
    pub fn run(
        &self,
        is_stopped: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(&str),
    ) -> Result<u64, Error> {
        let refused = |error: io::Error| SystemError::system("listen at", self.listen, &error);
        let (is_busy, stop) = (AtomicBool::new(false), AtomicBool::new(false));
        let mut trials = 0;
        thread::scope(|scope| {
            let mut session: Option<thread::ScopedJoinHandle<'_, u64>> = None;
            while !is_stopped() {
                if session
                    .as_ref()
                    .is_some_and(thread::ScopedJoinHandle::is_finished)
                {
                    trials += session.take().map_or(0, |it| it.join().unwrap_or(0));
                }
                if !datagram::wait_readable(self.listener.as_fd(), LOOK).map_err(refused)? {
                    continue;
                }
                let Ok((stream, peer)) = self.listener.accept() else {
                    continue;
                };
                if is_busy.swap(true, Ordering::AcqRel) {
                    refuse(stream);
                    continue;
                }
                let (is_busy, stop) = (&is_busy, &stop);
                tell(&format!("measuring with {peer}"));
                session = Some(scope.spawn(move || {
                    let trials = self.serve(stream, stop);
                    is_busy.store(false, Ordering::Release);
                    trials
                }));
            }
            stop.store(true, Ordering::Relaxed);
            trials += session.map_or(0, |it| it.join().unwrap_or(0));
            Ok(trials)
        })
    }

    /// One client, until it leaves.
    fn serve(&self, stream: TcpStream, stop: &AtomicBool) -> u64 {
        let Ok(mut session) = Session::open(stream, self.listen.port()) else {
            // It has gone before it said anything.
            return 0;
        };
        let mut trials = 0;
        let mut idle = Duration::ZERO;
        while !stop.load(Ordering::Relaxed) && idle < IDLE_MAX {
            match session.link.hear(LOOK) {
                Ok(None) => idle += LOOK,
                Ok(Some(request)) => {
                    idle = Duration::ZERO;
                    match session.obey(request, stop) {
                        Ok(did_trial) => trials += u64::from(did_trial),
                        Err(_) => break,
                    }
                }
                Err(_) => break,
            }
        }
        trials
    }
}

/// A client that was let in.
struct Session {
    link: ControlLink,
    local: SocketAddr,
    peer: IpAddr,
    port: Port,
}

impl Session {
    fn open(stream: TcpStream, listen_port: u16) -> io::Result<Self> {
        let link = ControlLink::new(stream)?;
        let local = SocketAddr::new(link.local()?.ip(), listen_port);
        let port = Port::of(local.ip()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        let peer = link.peer()?.ip();
        Ok(Self {
            link,
            local,
            peer,
            port,
        })
    }

    /// Does as asked; true when that was a whole trial.
    fn obey(&mut self, request: Request, stop: &AtomicBool) -> io::Result<bool> {
        match request {
            Request::Hello { .. } => {
                let welcome = Response::Welcome {
                    version: VERSION,
                    name: sys::host_name().unwrap_or_default(),
                    interface: self.port.name.clone(),
                    mtu: self.port.mtu,
                };
                self.link.say(&welcome)?;
                Ok(false)
            }
            Request::Trial(spec) => match self.trial(&spec, stop) {
                Ok(done) => Ok(done),
                Err(error) => {
                    let reason = error.to_string();
                    self.link.say(&Response::Refused { reason })?;
                    Ok(false)
                }
            },
            // What belongs to a trial that has failed.
            Request::Go | Request::Sent(_) => Ok(false),
        }
    }

    fn trial(&mut self, spec: &TrialSpec, stop: &AtomicBool) -> io::Result<bool> {
        check(spec)?;
        let path = DataPath::server(spec, self.local, &self.port, self.peer)?;
        if !path.meet(spec.token, self.peer, MEET_TIME_MAX)? {
            let text = format!(
                "no datagram from {} has come to UDP port {}: let this port through the firewalls",
                self.peer,
                self.local.port()
            );
            return Err(io::Error::other(text));
        }
        self.link.say(&Response::Ready)?;
        let Some(Request::Go) = self.link.hear(GO_TIME_MAX)? else {
            return Err(io::Error::other("the client did not say when to begin"));
        };
        let mut counters = CounterReader::new(self.port.index, self.local.is_ipv6());
        let before = counters.read();
        let expectation = Expectation::new();
        let (receipt, dispatch) = thread::scope(|scope| {
            let receiver = spec.is_there.then(|| {
                scope.spawn(|| {
                    receive(
                        path.inbound(),
                        (spec.token, spec.size, spec.mode),
                        &expectation,
                    )
                })
            });
            let sender = spec.is_back.then(|| {
                scope.spawn(|| {
                    send(
                        path.outbound(),
                        &send_plan(spec, spec.token.wrapping_add(1)),
                        stop,
                        &AtomicU64::new(0),
                    )
                })
            });
            let limit = Duration::from_millis(spec.duration_ms) + GO_TIME_MAX;
            let heard = self.link.hear(limit);
            match heard {
                Ok(Some(Request::Sent(sent))) => expectation.set_sent(sent),
                // The client is gone, or talks nonsense.
                _ => expectation.stop.store(true, Ordering::Relaxed),
            }
            let joined = (join(sender), join(receiver));
            heard.map(|_request| joined)
        })
        .map(|(sender, receiver)| (receiver, sender))?;
        let outcome = Outcome {
            dispatch: dispatch?,
            receipt: receipt?,
            counters: counters.read().since(&before),
        };
        self.link.say(&Response::Outcome(outcome))?;
        Ok(true)
    }
}

/// What a thread gave; nothing when there was none.
pub(super) fn join<T>(
    thread: Option<thread::ScopedJoinHandle<'_, io::Result<T>>>,
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
        size: spec.size,
        mode: spec.mode,
        load: spec.rate_per_s.map_or(Load::Flood, Load::Rate),
        duration: Duration::from_millis(spec.duration_ms),
    }
}

fn check(spec: &TrialSpec) -> io::Result<()> {
    let is_group = spec.group.is_none_or(|group| group.ip().is_multicast());
    if !SIZES.contains(&spec.size) || spec.duration_ms > DURATION_MS_MAX || !is_group {
        let text = "a trial has datagrams of 20 to 65507 bytes, lasts at most 60 s, and goes to \
                    one host or to a multicast group";
        return Err(io::Error::other(text));
    }
    Ok(())
}

fn refuse(stream: TcpStream) {
    let reason = "it serves another client now; two at a time would disturb each other".to_owned();
    if let Ok(mut link) = ControlLink::new(stream) {
        // A client that is gone needs no answer.
        drop(link.say(&Response::Refused { reason }));
    }
}

const BACKLOG: u16 = 8;
/// How late a stop is seen.
const LOOK: Duration = Duration::from_millis(50);
const IDLE_MAX: Duration = Duration::from_secs(60);
const MEET_TIME_MAX: Duration = Duration::from_secs(2);
const GO_TIME_MAX: Duration = Duration::from_secs(10);
pub(super) const DURATION_MS_MAX: u64 = 60_000;
