//! The other end of [`Writes`](super::Writes): it reads requests of one length and answers each.
//!
//! A client says first how long its requests and their answers are, as one line of JSON. From then
//! on the responder reads that many bytes and writes the answer, in one write, until the client
//! ends the connection. It answers with no more bytes than it reads.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd as _,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use net::SystemError;
use serde::{Deserialize, Serialize};
use sys::{clock, datagram};

use crate::{
    Error,
    control_link::{ControlLink, is_timeout},
    places::{Place, PlaceLimits, Places},
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

    /// Answers until the caller stops it. Calls `tell` with a line about each host that connects,
    /// but not twice in a row about the same host. Returns the number of calls that it answered.
    ///
    /// # Errors
    /// When the listening socket cannot be used any more.
    pub fn run(
        &self,
        is_stopped: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(&str),
    ) -> Result<u64, Error> {
        let refused = |error: io::Error| SystemError::system("listen at", self.listen, &error);
        let calls = AtomicU64::new(0);
        let mut places = Places::new(PLACES);
        let mut last_told = None;
        thread::scope(|scope| {
            let result = loop {
                if is_stopped() {
                    break Ok(());
                }
                let accepted = match datagram::wait_readable(self.listener.as_fd(), LOOK) {
                    Err(error) => break Err(refused(error).into()),
                    Ok(is_there) => is_there.then(|| self.listener.accept()),
                };
                let now = clock::monotonic();
                places.end_idle(now);
                let Some(Ok((stream, peer))) = accepted else {
                    continue;
                };
                let Some(place) = places.take(peer.ip(), now) else {
                    let PlaceLimits {
                        places_max,
                        own_max,
                        ..
                    } = PLACES;
                    let text = format!(
                        "it serves {places_max} clients already, or {own_max} from this client's \
                         host; try later"
                    );
                    refuse(stream, &text);
                    continue;
                };
                // A client measures over many connections, one after the other.
                if last_told.replace(peer.ip()) != Some(peer.ip()) {
                    tell(&format!("answering {}", peer.ip()));
                }
                let calls = &calls;
                scope.spawn(move || {
                    // How a client ends is its own affair.
                    let _ended = answer(stream, calls, &place);
                });
            };
            // The scope waits for the threads that answer clients; each looks at its client's
            // place.
            places.end_all();
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

/// Answers one client until it leaves or loses its place.
fn answer(stream: TcpStream, calls: &AtomicU64, place: &Place) -> io::Result<()> {
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
    stream.set_write_timeout(Some(LOOK))?;
    let mut room = vec![0; spec.request_bytes.min(ROOM_BYTES)];
    let reply = vec![0; spec.reply_bytes];
    let mut left = spec.request_bytes;
    while !place.is_ended() {
        let most = left.min(room.len());
        match stream.read(&mut room[..most]) {
            Ok(0) => break,
            Ok(count) => left -= count,
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error),
        }
        if left == 0 {
            write(&mut stream, &reply, place)?;
            // One call is one message: a client that sends only a part of it, or does not read its
            // answer, loses its place.
            place.note();
            calls.fetch_add(1, Ordering::Relaxed);
            left = spec.request_bytes;
        }
    }
    Ok(())
}

/// Writes a whole answer, unless the client loses its place.
fn write(stream: &mut TcpStream, mut reply: &[u8], place: &Place) -> io::Result<()> {
    while !reply.is_empty() {
        match stream.write(reply) {
            Ok(count) => reply = &reply[count..],
            Err(error) if is_timeout(&error) && !place.is_ended() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Bytes of the longest request. An answer is never longer than its request.
pub(super) const BYTES_MAX: usize = 4 << 20;
const BACKLOG: u16 = 16;
/// A client gives up a call after 10 s, so a client without a call for 30 s is idle.
const PLACES: PlaceLimits = PlaceLimits {
    places_max: 16,
    own_max: 4,
    idle_max: Duration::from_secs(30),
};
/// How often the responder looks whether it must stop.
const LOOK: Duration = Duration::from_millis(100);
/// How long a client may take to say what it will send.
const GREETING_MAX: Duration = Duration::from_secs(5);
/// Bytes that are read at once.
const ROOM_BYTES: usize = 64 << 10;
