//! The end that carries out requests: it receives, sends, and counts.

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
    /// Where the server listens for control connections (TCP) and datagrams (UDP).
    pub listen: SocketAddr,
}

/// A server of one client's sweep after the other.
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

    /// Returns the address on which the server listens.
    #[must_use]
    pub const fn local(&self) -> SocketAddr {
        self.listen
    }

    /// Serves until the caller stops it, and passes a line for each client to `tell`. Returns the
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
        let (is_busy, stop) = (AtomicBool::new(false), AtomicBool::new(false));
        let trials = AtomicU64::new(0);
        thread::scope(|scope| {
            while !is_stopped() {
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
                let (is_busy, stop, trials) = (&is_busy, &stop, &trials);
                tell(&format!("measuring with {peer}"));
                scope.spawn(move || {
                    self.serve(stream, stop, trials);
                    is_busy.store(false, Ordering::Release);
                });
            }
            stop.store(true, Ordering::Relaxed);
            Ok::<(), Error>(())
        })?;
        Ok(trials.into_inner())
    }

    /// Serves one client until it leaves, and counts its trials.
    fn serve(&self, stream: TcpStream, stop: &AtomicBool, trials: &AtomicU64) {
        let Ok(mut session) = Session::open(stream, self.listen.port()) else {
            // The client left before it said anything.
            return;
        };
        let mut idle = Duration::ZERO;
        while !stop.load(Ordering::Relaxed) && idle < IDLE_MAX {
            match session.link.hear(LOOK) {
                Ok(None) => idle += LOOK,
                Ok(Some(request)) => {
                    idle = Duration::ZERO;
                    match session.obey(request, stop) {
                        Ok(did_trial) => {
                            trials.fetch_add(u64::from(did_trial), Ordering::Relaxed);
                        }
                        Err(_) => break,
                    }
                }
                Err(_) => break,
            }
        }
    }
}

/// A connected client.
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

    /// Carries out a request; returns true when this was a whole trial.
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
            // Such a message belongs to a trial that has failed.
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
                // The client is gone, or sent something else.
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

/// Waits for a thread and returns its result; `None` when there is no thread.
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
/// How late a stop may be noticed.
const LOOK: Duration = Duration::from_millis(50);
const IDLE_MAX: Duration = Duration::from_secs(60);
const MEET_TIME_MAX: Duration = Duration::from_secs(2);
const GO_TIME_MAX: Duration = Duration::from_secs(10);
pub(super) const DURATION_MS_MAX: u64 = 60_000;
