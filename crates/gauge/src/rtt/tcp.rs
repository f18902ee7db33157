//! Carriers of messages besides plain datagrams: a TCP connection, and two PGM sessions.
//!
//! ```text
//!   TCP   messages back to back in one connection; each says its length
//!   PGM   client publishes to the group        -->  reflector subscribes
//!         client subscribes to the one after   <--  reflector publishes
//! ```
//! PGM goes through the library's own [`Publisher`] and [`Subscriber`], without reports: nothing
//! holds a message back but its window.

use std::{
    fmt::Debug,
    io::{self, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd as _,
    thread,
    time::Duration,
};

use measure::{PROBE_BYTES_MIN, Repairs};
use net::{Group, SystemError};
use sys::datagram;

use super::{MESSAGE_BYTES_MAX, ReflectCounts, Transport, Wait};
use towline::{Publisher, SendStatus, SessionBuilder, Snapshot, Subscriber};

use crate::Error;

/// One end of a way for whole messages.
pub(super) trait Carrier: Debug {
    /// Hands a message over; `WouldBlock` when there is no room, and then none of it has left.
    fn send(&mut self, message: &[u8]) -> io::Result<()>;

    /// Takes a message into `room`, without waiting; gives its length. `WouldBlock` without one.
    fn receive(&mut self, room: &mut [u8]) -> io::Result<usize>;

    /// Waits until a message may be there, at most `limit`.
    fn wait(&mut self, limit: Duration) -> io::Result<()>;

    /// What the protocol underneath has repaired, when it does.
    fn repairs(&self) -> Option<Repairs> {
        None
    }
}

/// Opens a carrier to a reflector.
pub(super) fn open(
    transport: Transport,
    peer: SocketAddr,
    limit: Duration,
) -> Result<Box<dyn Carrier>, Error> {
    match transport {
        Transport::Pgm => Ok(Box::new(Pgm::open(peer, up(peer)?)?)),
        Transport::Tcp | Transport::Udp => {
            let stream = TcpStream::connect_timeout(&peer, limit).map_err(|error| {
                SystemError::system("connect to the reflector at", peer, &error)
                    .remedy("start `towline rtt reflect --over tcp` there")
            })?;
            let refused =
                |error: io::Error| SystemError::system("measure over TCP with", peer, &error);
            Ok(Box::new(Tcp::new(stream).map_err(refused)?))
        }
    }
}

/// The group that answers come through: the next address. With one group for both ways each end
/// would hear its own messages, and its kernel deliver them to nobody before they leave.
fn up(group: SocketAddr) -> Result<SocketAddr, Error> {
    let next: Option<IpAddr> = match group.ip() {
        IpAddr::V4(ip) => ip
            .to_bits()
            .checked_add(1)
            .map(|it| Ipv4Addr::from_bits(it).into()),
        IpAddr::V6(ip) => ip
            .to_bits()
            .checked_add(1)
            .map(|it| Ipv6Addr::from_bits(it).into()),
    };
    let next = next.filter(IpAddr::is_multicast).ok_or_else(|| {
        let cause = "the next group is needed for answers, and there is none";
        SystemError::refused("measure over PGM with", group, cause)
    })?;
    let mut answers = group;
    answers.set_ip(next);
    Ok(answers)
}

#[derive(Debug)]
struct Tcp {
    stream: TcpStream,
    /// What has come and is not whole, and what has not left.
    inbound: Vec<u8>,
    outbound: Vec<u8>,
}

impl Tcp {
    fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            inbound: Vec::new(),
            outbound: Vec::new(),
        })
    }

    /// Sends what is left; true when nothing is.
    fn flush(&mut self) -> io::Result<bool> {
        while !self.outbound.is_empty() {
            match self.stream.write(&self.outbound) {
                Ok(0) => return Err(io::ErrorKind::ConnectionRefused.into()),
                Ok(len) => drop(self.outbound.drain(..len)),
                Err(error) if is_nothing(&error) => return Ok(false),
                Err(error) => return Err(ended(error)),
            }
        }
        Ok(true)
    }
}

impl Carrier for Tcp {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        if !self.flush()? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        match self.stream.write(message) {
            Ok(len) => self.outbound.extend_from_slice(&message[len..]),
            Err(error) if is_nothing(&error) => return Err(io::ErrorKind::WouldBlock.into()),
            Err(error) => return Err(ended(error)),
        }
        Ok(())
    }

    fn receive(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.flush()?;
        loop {
            if let Some(len) = first_message(&self.inbound)? {
                room[..len].copy_from_slice(&self.inbound[..len]);
                self.inbound.drain(..len);
                return Ok(len);
            }
            // Straight into the caller's room: the usual message comes whole and alone.
            if self.inbound.is_empty() {
                let len = read(&mut self.stream, room)?;
                if first_message(&room[..len])? == Some(len) {
                    return Ok(len);
                }
                self.inbound.extend_from_slice(&room[..len]);
            } else {
                let mut more = [0; 4_096];
                let len = read(&mut self.stream, &mut more)?;
                self.inbound.extend_from_slice(&more[..len]);
            }
        }
    }

    fn wait(&mut self, limit: Duration) -> io::Result<()> {
        datagram::wait_readable(self.stream.as_fd(), limit).map(|_ready| ())
    }
}

fn read(stream: &mut TcpStream, room: &mut [u8]) -> io::Result<usize> {
    match stream.read(room) {
        Ok(0) => Err(io::ErrorKind::ConnectionRefused.into()),
        Ok(len) => Ok(len),
        Err(error) if is_nothing(&error) => Err(io::ErrorKind::WouldBlock.into()),
        Err(error) => Err(ended(error)),
    }
}

/// Length of the first message of a stream; `None` while it is not whole.
fn first_message(bytes: &[u8]) -> io::Result<Option<usize>> {
    let Some(header) = bytes.get(..PROBE_BYTES_MIN) else {
        return Ok(None);
    };
    let len = usize::from(u16::from_le_bytes([header[6], header[7]]));
    if !(PROBE_BYTES_MIN..=MESSAGE_BYTES_MAX).contains(&len) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok((bytes.len() >= len).then_some(len))
}

fn is_nothing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

/// A connection that the far end has ended is one that it refuses from there on.
fn ended(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionAborted => io::ErrorKind::ConnectionRefused.into(),
        _ => error,
    }
}

#[derive(Debug)]
struct Pgm {
    publisher: Publisher,
    subscriber: Subscriber,
    /// When the publisher had a turn last.
    turned_ns: u64,
    /// Receives since then.
    receives: u32,
}

impl Pgm {
    fn open(to: SocketAddr, from: SocketAddr) -> Result<Self, Error> {
        let session =
            |address| Ok::<_, Error>(SessionBuilder::new(Group::new(address)?).reports(false));
        Ok(Self {
            subscriber: Subscriber::open(&session(from)?)?,
            publisher: Publisher::builder(session(to)?).open()?,
            turned_ns: 0,
            receives: 0,
        })
    }

    /// Gives the publisher a turn when it had none for `interval_ns`.
    fn turn_after(&mut self, interval_ns: u64) -> io::Result<()> {
        let now = sys::clock::monotonic().as_nanos();
        if now < self.turned_ns + interval_ns {
            return Ok(());
        }
        self.turned_ns = now;
        self.receives = 0;
        self.publisher.turn().map(drop).map_err(io::Error::other)
    }
}

impl Carrier for Pgm {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let status = self.publisher.try_send(message).map_err(io::Error::other)?;
        // Nothing waits for a fuller run, and this one for nothing; NAKs are looked at while it is
        // on its way.
        self.publisher.send_ready();
        self.turn_after(NAKS_NS)?;
        match status {
            SendStatus::Taken => Ok(()),
            SendStatus::RateLimited { .. } | SendStatus::WouldBlock => {
                Err(io::ErrorKind::WouldBlock.into())
            }
        }
    }

    fn receive(&mut self, room: &mut [u8]) -> io::Result<usize> {
        // The clock is not read each time: who spins would find messages later for it.
        self.receives += 1;
        if self.receives >= RECEIVES_PER_TURN {
            self.turn_after(0)?;
        }
        match self.subscriber.try_recv().map_err(io::Error::other)? {
            Ok(towline::Received::Message { data: bytes, .. }) => {
                let len = bytes.len().min(room.len());
                room[..len].copy_from_slice(&bytes[..len]);
                Ok(len)
            }
            _ => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn wait(&mut self, limit: Duration) -> io::Result<()> {
        let limit = limit.min(Duration::from_nanos(TURN_NS));
        self.turn_after(NAKS_NS)?;
        let until = self.subscriber.now() + limit;
        self.subscriber.wait(Some(until));
        Ok(())
    }

    fn repairs(&self) -> Option<Repairs> {
        let mut snapshot = Snapshot::default();
        self.publisher.snapshot(&mut snapshot);
        self.subscriber.snapshot(&mut snapshot);
        let mut repairs = Repairs::default();
        for (set, info, value) in snapshot.iter() {
            match (set, info.name) {
                ("source", "naks") => repairs.naks_received = value,
                ("source", "rdata_packets") => repairs.repairs_sent = value,
                ("source", "rdata_bytes") => repairs.repair_bytes_sent = value,
                ("receiver", "nak_packets") => repairs.naks_sent = value,
                ("receiver", "rdata_packets") => repairs.repairs_received = value,
                _ => {}
            }
        }
        Some(repairs)
    }
}

/// Answers over TCP or PGM until the caller says stop.
///
/// # Errors
/// When the address or group cannot be had; when the sessions are beyond use.
pub fn reflect_over(
    transport: Transport,
    listen: SocketAddr,
    wait: Wait,
    is_stopped: &dyn Fn() -> bool,
) -> Result<ReflectCounts, Error> {
    if transport == Transport::Pgm {
        let mut carrier = Pgm::open(up(listen)?, listen)?;
        let mut counts = ReflectCounts::default();
        let refused = |error: io::Error| SystemError::system("reflect at", listen, &error);
        answer(&mut carrier, wait, &mut counts, is_stopped).map_err(refused)?;
        return Ok(counts);
    }
    let refused = |error: io::Error| SystemError::system("listen at", listen, &error);
    let listener = sys::tcp::listen(listen, BACKLOG).map_err(refused)?;
    Ok(reflect_tcp(&listener, wait, is_stopped).map_err(refused)?)
}

/// A thread for each client.
fn reflect_tcp(
    listener: &TcpListener,
    wait: Wait,
    is_stopped: &dyn Fn() -> bool,
) -> io::Result<ReflectCounts> {
    let stop = std::sync::atomic::AtomicBool::new(false);
    let is_over = || stop.load(std::sync::atomic::Ordering::Relaxed);
    let mut total = ReflectCounts::default();
    thread::scope(|scope| {
        let mut clients = Vec::new();
        while !is_stopped() {
            if !datagram::wait_readable(listener.as_fd(), LOOK)? || clients.len() >= CLIENTS_MAX {
                let is_over = |it: &mut thread::ScopedJoinHandle<'_, _>| it.is_finished();
                for client in clients.extract_if(.., is_over) {
                    total.add(&client.join().unwrap_or_default());
                }
                continue;
            }
            let Ok((stream, _)) = listener.accept() else {
                continue;
            };
            let is_over = &is_over;
            clients.push(scope.spawn(move || {
                let mut counts = ReflectCounts::default();
                if let Ok(mut carrier) = Tcp::new(stream) {
                    // It ends when the client leaves.
                    drop(answer(&mut carrier, wait, &mut counts, is_over));
                }
                counts
            }));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        for client in clients {
            total.add(&client.join().unwrap_or_default());
        }
        Ok(total)
    })
}

fn answer(
    carrier: &mut dyn Carrier,
    wait: Wait,
    counts: &mut ReflectCounts,
    is_stopped: &dyn Fn() -> bool,
) -> io::Result<()> {
    let mut room = vec![0; MESSAGE_BYTES_MAX + 1];
    while !is_stopped() {
        let len = match carrier.receive(&mut room) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if wait != Wait::Spin {
                    carrier.wait(LOOK)?;
                }
                continue;
            }
            received => received?,
        };
        if !counts.answer(&mut room[..len]) {
            continue;
        }
        match carrier.send(&room[..len]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => counts.refused += 1,
            sent => sent?,
        }
    }
    Ok(())
}

/// How late a stop is seen.
const LOOK: Duration = Duration::from_millis(20);
/// How often a publisher that sends nothing has a turn, by time when asleep between, and by
/// receives when not. Long enough that the subscriber may sleep in its socket.
const TURN_NS: u64 = 10_000_000;
const RECEIVES_PER_TURN: u32 = 256;
/// How often it looks at NAKs while messages come and go.
const NAKS_NS: u64 = 200_000;
const BACKLOG: u16 = 16;
const CLIENTS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use measure::{Probe, ProbeKind};

    use super::*;

    #[test]
    fn answers_come_through_the_group_after() {
        let next = |text: &str| up(text.parse().unwrap()).map(|it| it.to_string());
        assert_eq!(next("239.192.0.255:7720").unwrap(), "239.192.1.0:7720");
        assert_eq!(next("[ff15::1%3]:7720").unwrap(), "[ff15::2%3]:7720");
        let last = next("239.255.255.255:7720").unwrap_err().to_string();
        assert!(last.contains("the next group is needed"), "{last}");
    }

    #[test]
    fn messages_of_a_stream_are_told_apart() {
        let mut message = [0; 40];
        let kind = ProbeKind::Probe;
        let (token, sequence) = (1, 2);
        Probe {
            kind,
            token,
            sequence,
        }
        .emit(&mut message);
        for cut in 0..40 {
            assert_eq!(first_message(&message[..cut]).unwrap(), None);
        }
        let two = [message, message].concat();
        assert_eq!(first_message(&two).unwrap(), Some(40));
        message[6] = 3;
        assert!(first_message(&message).is_err());
    }
}
