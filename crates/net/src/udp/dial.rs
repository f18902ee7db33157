//! Dialling: how a control connection begins, and what is tried when that takes long.
//!
//! The kernel repeats a lost SYN, or the lost answer to one, after a whole second. A connection
//! that is not open well before that is dialled a second time beside the first, and the one that
//! opens first stays.

use std::{
    io,
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use sys::tcp;

/// Starts to connect a stream that is ready to be one of ours.
pub(super) fn dial(peer: SocketAddr, silence: Duration) -> io::Result<TcpStream> {
    tcp::connect(peer, |stream| {
        tcp::set_prompt_resend(stream, RESEND_MIN, ACK_MAX);
        prepare(stream, silence)
    })
}

/// Accepts connections on `address`. What they inherit holds from their first packet on.
pub(super) fn listen(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let listener = tcp::listen(address, BACKLOG)?;
    tcp::set_prompt_resend(&listener, RESEND_MIN, ACK_MAX);
    Ok(listener)
}

/// Sets what every control connection needs, dialled or accepted.
pub(super) fn prepare(stream: &TcpStream, silence: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    tcp::set_silence_limit(stream, silence)
}

/// What became of an attempt to connect so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    Waits,
    Open,
    /// The peer's host answers that nobody listens there: so it would to another attempt.
    Refused,
    Failed,
}

impl Attempt {
    /// Asks the kernel. It tells of a failure once only: whoever asks has to act on it.
    fn of(stream: &TcpStream) -> Self {
        match stream.take_error() {
            Ok(None) if stream.peer_addr().is_ok() => Self::Open,
            Ok(None) => Self::Waits,
            Ok(Some(error)) if error.kind() == io::ErrorKind::ConnectionRefused => Self::Refused,
            Ok(Some(_)) | Err(_) => Self::Failed,
        }
    }
}

/// Looks at both attempts, when the kernel tells of either. The one that is open becomes `first`,
/// and one that has failed gives way to the other.
pub(super) fn settle(first: &mut TcpStream, second: &mut Option<TcpStream>) -> Attempt {
    let one = Attempt::of(first);
    let Some(stream) = second.take() else {
        return one;
    };
    let other = Attempt::of(&stream);
    match (one, other) {
        (Attempt::Open | Attempt::Refused, _) | (Attempt::Waits, Attempt::Failed) => one,
        (_, Attempt::Open) | (Attempt::Failed, Attempt::Waits) => {
            *first = stream;
            other
        }
        (Attempt::Waits, Attempt::Waits) => {
            *second = Some(stream);
            one
        }
        (_, Attempt::Refused) | (Attempt::Failed, Attempt::Failed) => other,
    }
}

/// How long an attempt to connect is given before a second one: well below the second after which
/// the kernel repeats what was lost. Where a round trip takes longer, a connection that nobody
/// needs is closed again.
pub(super) const DIAL_AGAIN: Duration = Duration::from_millis(100);
/// Connections not yet accepted: a thousand receivers may dial at once.
const BACKLOG: u16 = 4096;
/// How long beyond the round-trip time a lost report or answer may go unnoticed. A session begins
/// and ends with exchanges in which every one is waited for.
const RESEND_MIN: Duration = Duration::from_millis(20);
/// Well below that, or what arrived would be sent again.
const ACK_MAX: Duration = Duration::from_millis(5);
