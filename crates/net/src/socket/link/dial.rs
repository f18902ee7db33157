//! Dialling: how a control connection begins, and what happens when that takes long.
//!
//! When a SYN or the answer to it is lost, the kernel repeats it only after a whole second. So a
//! connection that is not open after [`SECOND_AFTER`] is dialled a second time in parallel. The
//! attempt that opens first stays. The second attempt is given up before the kernel would repeat
//! its SYN.

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use sys::tcp;

/// Starts to connect a stream, with the options of a control connection.
pub(super) fn start(peer: SocketAddr, silence: Duration) -> io::Result<TcpStream> {
    tcp::connect(peer, |stream| {
        tcp::set_prompt_resend(stream, RESEND_MIN, ACK_MAX);
        prepare(stream, silence)
    })
}

/// Listens on `address`. Accepted connections inherit the options set here, from their first packet
/// on.
pub(super) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = tcp::listen(address, BACKLOG)?;
    tcp::set_prompt_resend(&listener, RESEND_MIN, ACK_MAX);
    Ok(listener)
}

/// Sets the options of every control connection, dialled or accepted.
pub(super) fn prepare(stream: &TcpStream, silence: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    tcp::set_silence_limit(stream, silence)
}

/// The state of an attempt to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// The attempt is under way.
    Waits,
    /// The connection is open.
    Open,
    /// The peer's host answers that nothing listens there; a second attempt would get the same
    /// answer.
    Refused,
    /// The attempt has failed.
    Failed,
}

impl Attempt {
    /// Asks the kernel for the state. The kernel reports a failure only once: the caller has to act
    /// on it.
    fn of(stream: &TcpStream) -> Self {
        match stream.take_error() {
            Ok(None) if stream.peer_addr().is_ok() => Self::Open,
            Ok(None) => Self::Waits,
            Ok(Some(error)) if error.kind() == io::ErrorKind::ConnectionRefused => Self::Refused,
            Ok(Some(_)) | Err(_) => Self::Failed,
        }
    }
}

/// Which of two parallel attempts to connect are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    First,
    Second,
    Both,
}

/// Decides which of two attempts to connect are kept, and what state the connection is in.
const fn judge(first: Attempt, second: Attempt) -> (Kept, Attempt) {
    use Attempt::{Failed, Open, Refused, Waits};
    match (first, second) {
        (Open, _) => (Kept::First, Open),
        (_, Open) => (Kept::Second, Open),
        (Refused, _) | (_, Refused) => (Kept::First, Refused),
        (Waits, Waits) => (Kept::Both, Waits),
        (Waits, Failed) => (Kept::First, Waits),
        (Failed, Waits) => (Kept::Second, Waits),
        (Failed, Failed) => (Kept::First, Failed),
    }
}

/// Looks at both attempts when the kernel reports one of them, and returns the state of the
/// connection. An attempt that is open becomes `first`. An attempt that has failed gives way to the
/// other.
pub(super) fn settle(first: &mut TcpStream, second: &mut Option<TcpStream>) -> Attempt {
    let one = Attempt::of(first);
    let Some(stream) = second.take() else {
        return one;
    };
    let (kept, attempt) = judge(one, Attempt::of(&stream));
    match kept {
        Kept::First => {}
        Kept::Second => *first = stream,
        Kept::Both => *second = Some(stream),
    }
    attempt
}

/// How long an attempt to connect lasts before a second attempt starts in parallel: well below 1 s,
/// after which the kernel repeats a lost SYN. If a round trip takes longer than this, both attempts
/// may succeed, and one is closed again.
pub(super) const SECOND_AFTER: Duration = Duration::from_millis(100);
/// How long the parallel attempt lasts. It ends before the kernel would repeat its SYN, after 1 s.
/// The first attempt's repeats are enough. If the SYNs of both were repeated, a forged announcement
/// would make a receiver send more than three times the announcement's bytes to a host that does
/// not answer.
pub(super) const SECOND_LASTS: Duration = Duration::from_millis(800);
/// How many connections may wait to be accepted: a thousand receivers may dial at once.
const BACKLOG: u16 = 4096;
/// TCP repeats a lost packet after the round trip and at least this time. The time is short
/// because, at the beginning and the end of a session, each end waits for the other's packets.
const RESEND_MIN: Duration = Duration::from_millis(20);
/// The longest delay of an acknowledgement: well below [`RESEND_MIN`], because otherwise TCP would
/// repeat data that has arrived.
const ACK_MAX: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::{Attempt::*, *};

    #[test]
    fn of_two_attempts_the_better_one_is_kept() {
        // The best first. A refusal is the peer's answer to both.
        let order = [Open, Refused, Waits, Failed];
        for first in order {
            for second in order {
                let (kept, attempt) = judge(first, second);
                let best = order.into_iter().find(|it| [first, second].contains(it));
                assert_eq!(Some(attempt), best, "{first:?} {second:?}");
                let is_right = match kept {
                    Kept::Both => [first, second] == [Waits; 2],
                    // The connection ends: what is kept does not matter.
                    _ if matches!(attempt, Refused | Failed) => true,
                    Kept::First => first == attempt && second != Waits || first == Open,
                    Kept::Second => second == attempt && first != attempt,
                };
                assert!(is_right, "{first:?} {second:?}: {kept:?}");
            }
        }
    }

    #[test]
    fn both_ends_send_again_soon_from_the_first_packet_on() {
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = listen(local).unwrap();
        listener.set_nonblocking(false).unwrap();
        let dialled = start(listener.local_addr().unwrap(), Duration::from_secs(30)).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        // Kernels before Linux 6.15 do not know of it.
        if let Ok([resend_min, ack_max]) = tcp::prompt_resend(&dialled) {
            assert!((RESEND_MIN..RESEND_MIN * 2).contains(&resend_min));
            assert!(ack_max <= RESEND_MIN);
            assert_eq!(
                tcp::prompt_resend(&accepted).unwrap(),
                [resend_min, ack_max]
            );
        }
    }
}
