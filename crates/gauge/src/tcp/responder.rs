//! The other end of [`Writes`](super::Writes): it reads requests of one length and answers each.
//!
//! A client says first how long its requests and their answers are, as one line of JSON. From then
//! on the responder reads that many bytes and writes the answer, in one write, until the client
//! ends the connection. It answers with no more bytes than it reads.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd as _,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use net::SystemError;
use serde::{Deserialize, Serialize};
use sys::{clock, datagram};

use crate::{
    Error,
    control_link::{ControlLink, is_timeout},
};

/// A responder to calls over TCP.
#[derive(Debug)]
pub struct Responder {
    listener: TcpListener,
    listen: SocketAddr,
}

/// What a client says first.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct CallSpec {
    pub(super) request_bytes: usize,
    pub(super) reply_bytes: usize,
}

/// What the responder answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum CallAnswer {
    Ready,
    Refused(String),
}

impl Responder {
    /// Listens at an address (port 0: any free one).
    ///
    /// # Errors
    /// When the address or port cannot be had.
    pub fn open(listen: SocketAddr) -> Result<Self, Error> {
        let refused = |error: io::Error| crate::error::cannot_listen(listen, &error);
        let listener = sys::tcp::listen(listen, BACKLOG).map_err(refused)?;
        let listen = listener.local_addr().map_err(refused)?;
        Ok(Self { listener, listen })
    }

    /// Returns the address on which it listens.
    #[must_use]
    pub const fn local(&self) -> SocketAddr {
        self.listen
    }

    /// Answers until the caller stops it. Calls `tell` with a line when a host connects that is not
    /// the one of the last line. Returns the number of calls that it answered.
    ///
    /// # Errors
    /// When the listening socket cannot be used any more.
    pub fn run(
        &self,
        is_stopped: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(&str),
    ) -> Result<u64, Error> {
        let refused = |error: io::Error| SystemError::system("listen at", self.listen, &error);
        let (calls, clients, is_over) =
            (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        let mut last_told = None;
        thread::scope(|scope| {
            let result = loop {
                if is_stopped() {
                    break Ok(());
                }
                match datagram::wait_readable(self.listener.as_fd(), LOOK) {
                    Err(error) => break Err(refused(error).into()),
                    Ok(false) => continue,
                    Ok(true) => {}
                }
                let Ok((stream, peer)) = self.listener.accept() else {
                    continue;
                };
                if clients.fetch_add(1, Ordering::Relaxed) >= CLIENTS_MAX {
                    clients.fetch_sub(1, Ordering::Relaxed);
                    refuse(
                        stream,
                        &format!("it serves {CLIENTS_MAX} clients already; try later"),
                    );
                    continue;
                }
                // A client measures over many connections, one after the other.
                if last_told.replace(peer.ip()) != Some(peer.ip()) {
                    tell(&format!("answering {}", peer.ip()));
                }
                let (calls, clients, is_over) = (&calls, &clients, &is_over);
                scope.spawn(move || {
                    // An error of one client does not concern the others.
                    let _ended = answer(stream, calls, is_over);
                    clients.fetch_sub(1, Ordering::Relaxed);
                });
            };
            // The scope waits for the threads that still answer clients; they look at `is_over`.
            is_over.store(true, Ordering::Relaxed);
            result
        })
        .map(|()| calls.into_inner())
    }
}

fn refuse(stream: TcpStream, reason: &str) {
    if let Ok(mut link) = ControlLink::new(stream) {
        // When the client is gone, it needs no answer.
        drop(link.say(&CallAnswer::Refused(reason.to_owned())));
    }
}

/// Answers one client until it leaves, is silent for too long, or everything is over.
fn answer(stream: TcpStream, calls: &AtomicU64, is_over: &AtomicBool) -> io::Result<()> {
    let mut link = ControlLink::new(stream)?;
    let Some(spec) = link.hear::<CallSpec>(GREETING_MAX)? else {
        return Ok(());
    };
    let is_allowed = (1..=BYTES_MAX).contains(&spec.request_bytes)
        && (1..=spec.request_bytes).contains(&spec.reply_bytes);
    if !is_allowed {
        let text = "a request has 1 to 4194304 bytes, and its answer at least 1 byte and no more \
                    than the request";
        return link.say(&CallAnswer::Refused(text.to_owned()));
    }
    link.say(&CallAnswer::Ready)?;
    let mut stream = link.into_stream();
    stream.set_read_timeout(Some(LOOK))?;
    let mut room = vec![0; spec.request_bytes.min(ROOM_BYTES)];
    let reply = vec![0; spec.reply_bytes];
    let (mut left, mut heard_at) = (spec.request_bytes, clock::monotonic());
    while !is_over.load(Ordering::Relaxed) && clock::monotonic().since(heard_at) < SILENCE_MAX {
        let most = left.min(room.len());
        match stream.read(&mut room[..most]) {
            Ok(0) => break,
            Ok(count) => {
                (left, heard_at) = (left - count, clock::monotonic());
                if left == 0 {
                    stream.write_all(&reply)?;
                    calls.fetch_add(1, Ordering::Relaxed);
                    left = spec.request_bytes;
                }
            }
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Bytes of the longest request. An answer is never longer than its request.
pub(super) const BYTES_MAX: usize = 4 << 20;
const BACKLOG: u16 = 16;
/// How many clients are answered at once.
const CLIENTS_MAX: u64 = 16;
/// How often the responder looks whether it must stop.
const LOOK: Duration = Duration::from_millis(100);
/// How long a client may take to say what it will send.
const GREETING_MAX: Duration = Duration::from_secs(5);
/// How long a client may be silent.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Bytes that are read at once.
const ROOM_BYTES: usize = 64 << 10;
