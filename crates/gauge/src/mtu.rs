//! The largest packet that passes a path unfragmented, found by sending packets that must not be
//! fragmented, and who told the truth about it.
//!
//! ```text
//!   probe(size) --> arrived   the reflector answers at this size, or the host that nobody listens
//!               --> too big   a router says so (ICMP), and names an MTU: a claim, to be tested
//!               --> silence   tried three times: dropped without a word
//! ```
//! What ICMP claims is never taken as the answer: the size it names must arrive, and one byte more
//! must not. A packet that was said to be too big, and arrives for all that, has arrived: whoever
//! said so lied. It needs no privileges: Linux hands ICMP errors to the socket that caused them.
//!
//! An answer that comes back in fragments proves the way there, not the way back: whoever answers
//! may fragment what its own way does not take. The largest answer that came whole is looked for
//! then, too.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::AsFd as _,
    time::Duration,
};

use base::Instant;
use measure::{PROBE_BYTES_MIN, Probe, ProbeKind};
use net::{Interfaces, SystemError};
use sys::{
    Family, PathMtu, UdpSocket, datagram, errno,
    stamp::{Origin, Report, receive_report},
};

use crate::Error;

mod group;
pub use group::{GroupMtuReport, group_mtu};

/// What a path's MTU is, and how it is known. Sizes are those of whole IP packets, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathMtuReport {
    /// The largest packet that arrived.
    pub path_mtu: u32,
    /// The MTU of the interface here.
    pub interface_mtu: u32,
    /// The largest packet whose answer of the same size came back whole; less than `path_mtu` when
    /// larger answers came in fragments. None without a reflector.
    pub path_mtu_back: Option<u32>,
    /// Who confirmed arrivals.
    pub confirmation: Confirmation,
    /// What routers claimed, without repetitions.
    pub claims: Vec<Claim>,
    /// What follows from all that.
    pub verdict: MtuVerdict,
    /// Largest UDP payload that is not fragmented.
    pub udp_payload_max: u32,
    /// Largest message part in one PGM data packet over UDP, without options.
    pub pgm_payload_max: u32,
    /// Packets sent.
    pub probes: u64,
}

/// How an arrival is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confirmation {
    /// `towline rtt reflect` answered at the same size. What the way back takes without fragments
    /// is told by [`PathMtuReport::path_mtu_back`].
    Reflector,
    /// The host said that nobody listens on the port: it was there, but of the way back only the
    /// way of a small packet is known.
    PortUnreachable,
}

/// A router's word about the next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Who said it.
    pub router: Option<IpAddr>,
    /// The MTU it named.
    pub mtu: u32,
}

/// What is known of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MtuVerdict {
    /// Everything that leaves here arrives.
    Clear,
    /// Larger packets are refused by a router that names the right MTU.
    Told,
    /// Larger packets vanish without a word: whoever relies on ICMP hangs.
    BlackHole,
    /// A router names an MTU that is not the path's.
    FalseClaim,
}

impl Claim {
    /// Whether larger packets than it names have arrived. A router behind which the path is
    /// narrower still may name more than `path_mtu`, and be right.
    #[must_use]
    pub const fn is_refuted(&self, path_mtu: u32) -> bool {
        self.mtu < path_mtu
    }
}

/// Finds the MTU of the path to `peer`: the port of a reflector, or one where nobody listens.
///
/// # Errors
/// When not even a small packet is answered, or the system refuses.
///
/// **Cost**: some 15 packets when a reflector answers; a second for each that is dropped.
pub fn path_mtu(
    peer: SocketAddr,
    timeout: Duration,
    is_stopped: &dyn Fn() -> bool,
) -> Result<PathMtuReport, Error> {
    let mut search = Search::open(peer, timeout)?;
    search.run(is_stopped)
}

/// A search under way.
struct Search {
    socket: UdpSocket,
    peer: SocketAddr,
    timeout: Duration,
    /// How long an answer is waited for after a router has said that the packet was too big.
    patience: Duration,
    interface_mtu: u32,
    claims: Vec<Claim>,
    confirmation: Option<Confirmation>,
    /// The largest packet whose answer came back whole.
    whole_back: Option<u32>,
    /// The smallest packet whose answer came back in fragments.
    pieces_back: Option<u32>,
    sequence: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Arrived,
    TooBig,
    Silent,
}

impl Search {
    fn open(peer: SocketAddr, timeout: Duration) -> Result<Self, Error> {
        let refused = |operation: &'static str| {
            move |error: io::Error| Error::from(SystemError::system(operation, peer, &error))
        };
        let socket = UdpSocket::new(Family::of(&peer)).map_err(refused("open a socket to"))?;
        let ready = || {
            datagram::connect(socket.as_fd(), peer)?;
            socket.set_error_report(true)?;
            socket.set_fragment_report(true)?;
            socket.set_path_mtu(PathMtu::Probe)?;
            socket.local_addr()
        };
        let local = ready().map_err(refused("find a way to"))?;
        let interfaces = Interfaces::read()?;
        let interface = interfaces.with_address(local.ip()).ok_or_else(|| {
            let cause = "the interface that leads there has no MTU to read";
            SystemError::refused("probe the path to", peer, cause)
        })?;
        Ok(Self {
            socket,
            peer,
            timeout,
            patience: PATIENCE_MIN.min(timeout),
            // A packet's own length field bounds it where the interface (loopback) does not.
            interface_mtu: interface.mtu.min(PACKET_BYTES_MAX),
            claims: Vec::new(),
            confirmation: None,
            whole_back: None,
            pieces_back: None,
            sequence: 0,
        })
    }

    fn run(&mut self, is_stopped: &dyn Fn() -> bool) -> Result<PathMtuReport, Error> {
        let floor = if self.peer.is_ipv6() { 1_280 } else { 68 };
        let mut good = floor.min(self.interface_mtu);
        if self.probe(good)? != Fate::Arrived {
            return Err(Error::Measurement(self.silence()));
        }
        // The usual answers first: all of it, then what a router names, then halves.
        let mut bad = self.interface_mtu + 1;
        let mut next = self.interface_mtu;
        while good + 1 < bad {
            if is_stopped() {
                return Err(Error::Measurement("stopped".to_owned()));
            }
            match self.probe(next)? {
                Fate::Arrived => good = next,
                Fate::TooBig | Fate::Silent => bad = next,
            }
            let claimed = self.claims.last().map(|claim| claim.mtu);
            next = match claimed {
                Some(mtu) if mtu > good && mtu < bad => mtu,
                Some(mtu) if mtu == good => good + 1,
                _ => good + (bad - good) / 2,
            };
        }
        self.search_back(is_stopped)?;
        // A lie about the last packet may come after its answer.
        let end = sys::clock::monotonic() + self.patience;
        while sys::clock::monotonic() < end && !is_stopped() {
            self.drain();
            let left = end.since(sys::clock::monotonic());
            let _ready = datagram::wait_readable(self.socket.as_fd(), left);
            // What waits there ends the next wait at once: answers that came twice, and errors.
            while datagram::receive(self.socket.as_fd(), &mut [0; 1], false).is_ok() {}
        }
        Ok(self.report(good))
    }

    /// Halves what lies between the largest answer that came whole and the smallest in fragments.
    fn search_back(&mut self, is_stopped: &dyn Fn() -> bool) -> Result<(), Error> {
        let (Some(mut whole), Some(mut pieces)) = (self.whole_back, self.pieces_back) else {
            return Ok(());
        };
        while whole + 1 < pieces {
            if is_stopped() {
                return Err(Error::Measurement("stopped".to_owned()));
            }
            let middle = whole + (pieces - whole) / 2;
            let fate = self.probe(middle)?;
            if fate == Fate::Arrived && self.whole_back == Some(middle) {
                whole = middle;
            } else {
                pieces = middle;
            }
        }
        Ok(())
    }

    /// Notes how an answer came back to a packet of `size` bytes.
    fn note_back(&mut self, size: u32, is_in_pieces: bool) {
        if is_in_pieces {
            self.pieces_back = Some(self.pieces_back.map_or(size, |it| it.min(size)));
        } else {
            self.whole_back = self.whole_back.max(Some(size));
        }
    }

    fn report(&self, path_mtu: u32) -> PathMtuReport {
        let is_true = |claim: &Claim| claim.mtu == path_mtu;
        let verdict = if self.claims.iter().any(|it| it.is_refuted(path_mtu)) {
            MtuVerdict::FalseClaim
        } else if path_mtu >= self.interface_mtu && self.claims.is_empty() {
            MtuVerdict::Clear
        } else if self.claims.is_empty() {
            MtuVerdict::BlackHole
        } else if self.claims.iter().any(is_true) {
            MtuVerdict::Told
        } else {
            MtuVerdict::FalseClaim
        };
        let udp_payload_max = path_mtu.saturating_sub(self.headers());
        PathMtuReport {
            path_mtu,
            interface_mtu: self.interface_mtu,
            path_mtu_back: self.whole_back,
            confirmation: self.confirmation.unwrap_or(Confirmation::Reflector),
            claims: self.claims.clone(),
            verdict,
            udp_payload_max,
            pgm_payload_max: udp_payload_max.saturating_sub(PGM_HEADERS),
            probes: self.sequence,
        }
    }

    /// Sends a packet of `size` bytes until its fate is known.
    fn probe(&mut self, size: u32) -> Result<Fate, Error> {
        let len = size.saturating_sub(self.headers()) as usize;
        let mut message = vec![0; len.max(PROBE_BYTES_MIN)];
        let mut fate = Fate::Silent;
        for _ in 0..TRIES {
            self.sequence += 1;
            let (kind, token, sequence) = (ProbeKind::Hello, TOKEN, self.sequence);
            Probe {
                kind,
                token,
                sequence,
            }
            .emit(&mut message);
            match datagram::send(self.socket.as_fd(), &message) {
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(errno::EMSGSIZE) => {
                    self.drain();
                    if size > self.interface_mtu {
                        return Ok(Fate::TooBig);
                    }
                    // What was said of an earlier packet; this one has not been sent.
                    fate = Fate::TooBig;
                    continue;
                }
                // Our own link dropped it, as a veth pair does whose far end takes less.
                Err(error) if error.raw_os_error() == Some(errno::ENOBUFS) => continue,
                // What an earlier packet met; this one has not been sent.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => {
                    let error = SystemError::system("probe the path to", self.peer, &error);
                    return Err(error.into());
                }
            }
            fate = self.listen(message.len());
            if fate != Fate::Silent {
                break;
            }
        }
        Ok(fate)
    }

    /// Waits for what becomes of the packet that was sent last.
    fn listen(&mut self, len: usize) -> Fate {
        let began = sys::clock::monotonic();
        let (mut end, mut fate) = (began + self.timeout, Fate::Silent);
        let mut room = vec![0; PACKET_BYTES_MAX as usize];
        loop {
            match self.drain() {
                Some(Fate::TooBig) if fate == Fate::Silent => {
                    fate = Fate::TooBig;
                    // No proof yet: an answer may be on its way.
                    end = end.min(sys::clock::monotonic() + self.patience);
                }
                Some(Fate::Arrived) => return self.arrived(began),
                _ => {}
            }
            match datagram::receive_pieces(self.socket.as_fd(), &mut room) {
                Ok((got, is_in_pieces)) => {
                    let answer = Probe::parse(&room[..got]);
                    let is_ours = |it: &Probe| {
                        it.kind == ProbeKind::Welcome && it.token == TOKEN && got == len
                    };
                    if answer.as_ref().is_ok_and(is_ours) {
                        self.confirmation = Some(Confirmation::Reflector);
                        let size = self
                            .headers()
                            .saturating_add(u32::try_from(len).unwrap_or(0));
                        self.note_back(size, is_in_pieces);
                        return self.arrived(began);
                    }
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The report that goes with it is in the error queue.
                Err(_) => continue,
            }
            let left = end.since(sys::clock::monotonic());
            if left.is_zero() {
                return fate;
            }
            // A fault ends the wait; what it is, the next round reads.
            let _ready = datagram::wait_readable(self.socket.as_fd(), left);
        }
    }

    /// Learns how long an answer may take after a router's word.
    fn arrived(&mut self, sent: Instant) -> Fate {
        let took = sys::clock::monotonic().since(sent);
        self.patience = self.patience.max(took * 3).min(self.timeout);
        Fate::Arrived
    }

    /// Reads the error queue: claims are kept, the last word on a packet is given.
    fn drain(&mut self) -> Option<Fate> {
        let mut fate = None;
        while let Ok(Some(report)) = receive_report(self.socket.as_fd()) {
            let Report::Failure {
                errno: code,
                origin: Origin::Icmp,
                info,
                offender,
                ..
            } = report
            else {
                continue;
            };
            if code == errno::EMSGSIZE {
                let claim = Claim {
                    router: offender,
                    mtu: info,
                };
                if !self.claims.contains(&claim) && self.claims.len() < CLAIMS_MAX {
                    self.claims.push(claim);
                }
                fate = Some(Fate::TooBig);
            } else if code == errno::ECONNREFUSED {
                self.confirmation = Some(Confirmation::PortUnreachable);
                fate = Some(Fate::Arrived);
            }
        }
        fate
    }

    const fn headers(&self) -> u32 {
        UDP_HEADER + if self.peer.is_ipv6() { 40 } else { 20 }
    }

    fn silence(&self) -> String {
        format!(
            "{} answers nothing, not even a small packet: run `towline rtt reflect` there, or name \
             a port where nobody listens and let ICMP through",
            self.peer
        )
    }
}

const TRIES: u32 = 3;
const PATIENCE_MIN: Duration = Duration::from_millis(50);
const CLAIMS_MAX: usize = 8;
/// Probes carry no secret; only their answers must be told from strangers.
const TOKEN: u64 = 0x6d74_7520_7072_6f62;
const UDP_HEADER: u32 = 8;
/// PGM's common header and that of its data packets.
const PGM_HEADERS: u32 = 24;
/// What the length field of an IPv4 packet can say.
const PACKET_BYTES_MAX: u32 = 65_535;
