//! Finds the largest packet that passes a path unfragmented: sends packets that must not be
//! fragmented. Also says which ICMP messages were right about the path.
//!
//! ```text
//!   probe(size) --> arrived   the reflector answers at this size, or the host says: nobody listens
//!               --> too big   a router says so (ICMP), and names an MTU: a claim, to be tested
//!               --> silence   tried three times: dropped without a word
//! ```
//! An ICMP message is only a claim: a packet of the size that it names must arrive, and a packet
//! one byte larger must not. When a packet arrives that a router called too big, the router was
//! wrong. No privileges are needed, because Linux hands ICMP errors to the socket that caused them.
//!
//! An answer in fragments proves the path there, but not the path back: the reflector may fragment
//! what that path does not take. The search then also finds the largest answer that comes back
//! whole.

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

use crate::{Error, rtt::no_way};

mod group;
pub use group::{GroupMtuReport, group_mtu};

/// A path's MTU, and how it is known. Sizes are those of whole IP packets, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathMtuReport {
    /// The largest packet that arrived.
    pub path_mtu_bytes: u32,
    /// The MTU of the interface here.
    pub interface_mtu_bytes: u32,
    /// The largest packet whose answer of the same size came back whole. It is less than
    /// `path_mtu_bytes` when larger answers came in fragments. `None` without a reflector.
    pub path_mtu_back_bytes: Option<u32>,
    /// Who confirmed that packets arrived.
    pub confirmation: Confirmation,
    /// What routers claimed, each claim once.
    pub claims: Vec<Claim>,
    /// Number of claims that found no room in the list, which holds 8. One claim may count several
    /// times.
    pub unlisted_claims: u64,
    /// The conclusion from all this.
    pub verdict: MtuVerdict,
    /// Bytes of the largest UDP payload that is not fragmented.
    pub udp_payload_bytes_max: u32,
    /// Bytes of the largest message part in one PGM data packet over UDP, without options.
    pub pgm_payload_bytes_max: u32,
    /// Number of packets sent.
    pub probes: u64,
}

/// How an arrival is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confirmation {
    /// `towline rtt reflect` answered at the same size.
    /// [`PathMtuReport::path_mtu_back_bytes`] is the largest packet that the path back takes whole.
    Reflector,
    /// The host answered that nothing listens on the port, so the packet arrived. Of the path back
    /// this proves only that small packets pass.
    PortUnreachable,
}

/// A router's claim about the next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The router or host that sent the ICMP message.
    pub router: Option<IpAddr>,
    /// The MTU that the message names.
    pub mtu_bytes: u32,
}

/// What the search found out about a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MtuVerdict {
    /// Every packet that leaves here arrives.
    Clear,
    /// A router refuses larger packets and names the right MTU.
    Told,
    /// Larger packets vanish without an ICMP message: a connection that relies on ICMP hangs.
    BlackHole,
    /// A router names an MTU that is not the path's.
    FalseClaim,
    /// The caller stopped the search: packets larger than `path_mtu_bytes` may arrive, too.
    Unfinished,
}

impl Claim {
    /// Returns true when packets larger than the claim have arrived. A router may rightly name more
    /// than `path_mtu_bytes`, when a later part of the path is narrower.
    #[must_use]
    pub const fn is_refuted(&self, path_mtu_bytes: u32) -> bool {
        self.mtu_bytes < path_mtu_bytes
    }
}

/// Finds the MTU of the path to `peer`: a reflector, or a port on which nobody listens.
///
/// # Errors
/// When not even a small packet is answered, or when the system refuses.
///
/// **Cost**: some 15 packets when a reflector answers; `timeout` for each packet that is dropped.
pub fn path_mtu(
    peer: SocketAddr,
    timeout: Duration,
    is_stopped: &dyn Fn() -> bool,
) -> Result<PathMtuReport, Error> {
    let mut search = Search::open(peer, timeout)?;
    search.run(is_stopped)
}

/// The claims of routers, each claim once, as long as there is room.
#[derive(Debug, Default)]
struct Claims {
    listed: Vec<Claim>,
    unlisted: u64,
}

impl Claims {
    fn add(&mut self, claim: Claim) {
        if self.listed.contains(&claim) {
            return;
        }
        if self.listed.len() < CLAIMS_MAX {
            self.listed.push(claim);
        } else {
            self.unlisted += 1;
        }
    }
}

struct Search {
    socket: UdpSocket,
    peer: SocketAddr,
    timeout: Duration,
    /// How long to wait for an answer after a router said that the packet was too big.
    patience: Duration,
    interface_mtu_bytes: u32,
    claims: Claims,
    confirmation: Option<Confirmation>,
    /// The largest packet whose answer came back whole.
    whole_back_bytes: Option<u32>,
    /// The smallest packet whose answer came back in fragments.
    pieces_back_bytes: Option<u32>,
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
        let local = ready().map_err(|error| no_way(peer, &error))?;
        let interfaces = Interfaces::read()?;
        let interface = interfaces.with_address(local.ip()).ok_or_else(|| {
            let cause = "the system does not tell the MTU of the interface that leads there";
            SystemError::refused("probe the path to", peer, cause)
        })?;
        Ok(Self {
            socket,
            peer,
            timeout,
            patience: PATIENCE_MIN.min(timeout),
            // Where the interface (loopback) allows more, the length field of an IP packet is the
            // limit.
            interface_mtu_bytes: interface.mtu_bytes.min(PACKET_BYTES_MAX),
            claims: Claims::default(),
            confirmation: None,
            whole_back_bytes: None,
            pieces_back_bytes: None,
            sequence: 0,
        })
    }

    fn run(&mut self, is_stopped: &dyn Fn() -> bool) -> Result<PathMtuReport, Error> {
        let floor = if self.peer.is_ipv6() { 1_280 } else { 68 };
        let mut good = floor.min(self.interface_mtu_bytes);
        if self.probe(good, is_stopped)? != Fate::Arrived {
            return Err(Error::Measurement(self.silence()));
        }
        // The likely sizes come first: the interface's MTU, then the size that a router names, then
        // halves.
        let mut bad = self.interface_mtu_bytes + 1;
        let mut next = self.interface_mtu_bytes;
        while good + 1 < bad {
            match self.probe(next, is_stopped)? {
                Fate::Arrived => good = next,
                // A search that was stopped does not know: the answer may have come after its wait
                // ended.
                Fate::TooBig | Fate::Silent if is_stopped() => return Ok(self.unfinished(good)),
                Fate::TooBig | Fate::Silent => bad = next,
            }
            let claimed = self.claims.listed.last().map(|claim| claim.mtu_bytes);
            next = match claimed {
                Some(mtu) if mtu > good && mtu < bad => mtu,
                Some(mtu) if mtu == good => good + 1,
                _ => good + (bad - good) / 2,
            };
        }
        if !self.search_back(is_stopped)? {
            return Ok(self.unfinished(good));
        }
        // After the answer to the last packet, a wrong ICMP message about it may still come.
        let end = sys::clock::monotonic() + self.patience;
        while sys::clock::monotonic() < end && !is_stopped() {
            self.drain();
            let left = end.since(sys::clock::monotonic());
            let _ready = datagram::wait_readable(self.socket.as_fd(), left);
            // Waiting messages, such as doubled answers, would end the next wait at once, so they
            // are read.
            while datagram::receive(self.socket.as_fd(), &mut [0; 1], false).is_ok() {}
        }
        Ok(self.report(good))
    }

    /// Searches by halves between the largest answer that came whole and the smallest that came in
    /// fragments. Returns false when the caller stopped it.
    fn search_back(&mut self, is_stopped: &dyn Fn() -> bool) -> Result<bool, Error> {
        let (Some(mut whole), Some(mut pieces)) = (self.whole_back_bytes, self.pieces_back_bytes)
        else {
            return Ok(true);
        };
        while whole + 1 < pieces {
            let middle = whole + (pieces - whole) / 2;
            let fate = self.probe(middle, is_stopped)?;
            if is_stopped() {
                return Ok(false);
            }
            if fate == Fate::Arrived && self.whole_back_bytes == Some(middle) {
                whole = middle;
            } else {
                pieces = middle;
            }
        }
        Ok(true)
    }

    /// Notes whether the answer to a packet of `size` bytes came whole or in pieces.
    fn note_back(&mut self, size: u32, is_in_pieces: bool) {
        if is_in_pieces {
            self.pieces_back_bytes = Some(self.pieces_back_bytes.map_or(size, |it| it.min(size)));
        } else {
            self.whole_back_bytes = self.whole_back_bytes.max(Some(size));
        }
    }

    fn unfinished(&self, path_mtu_bytes: u32) -> PathMtuReport {
        PathMtuReport {
            verdict: MtuVerdict::Unfinished,
            ..self.report(path_mtu_bytes)
        }
    }

    fn report(&self, path_mtu_bytes: u32) -> PathMtuReport {
        let claims = &self.claims.listed;
        let is_true = |claim: &Claim| claim.mtu_bytes == path_mtu_bytes;
        let verdict = if claims.iter().any(|it| it.is_refuted(path_mtu_bytes)) {
            MtuVerdict::FalseClaim
        } else if path_mtu_bytes >= self.interface_mtu_bytes && claims.is_empty() {
            MtuVerdict::Clear
        } else if claims.is_empty() {
            MtuVerdict::BlackHole
        } else if claims.iter().any(is_true) {
            MtuVerdict::Told
        } else {
            MtuVerdict::FalseClaim
        };
        let udp_payload_bytes_max = path_mtu_bytes.saturating_sub(self.headers());
        PathMtuReport {
            path_mtu_bytes,
            interface_mtu_bytes: self.interface_mtu_bytes,
            path_mtu_back_bytes: self.whole_back_bytes,
            confirmation: self.confirmation.unwrap_or(Confirmation::Reflector),
            claims: claims.clone(),
            unlisted_claims: self.claims.unlisted,
            verdict,
            udp_payload_bytes_max,
            pgm_payload_bytes_max: udp_payload_bytes_max.saturating_sub(PGM_HEADERS),
            probes: self.sequence,
        }
    }

    /// Sends a packet of `size` bytes, up to three times, until its fate is known or the caller
    /// stops the search.
    fn probe(&mut self, size: u32, is_stopped: &dyn Fn() -> bool) -> Result<Fate, Error> {
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
                    if size > self.interface_mtu_bytes {
                        return Ok(Fate::TooBig);
                    }
                    // The error is that of an earlier packet; this one was not sent.
                    fate = Fate::TooBig;
                    continue;
                }
                // This host's own interface dropped the packet, as a veth pair does when its far
                // end takes less.
                Err(error) if error.raw_os_error() == Some(errno::ENOBUFS) => continue,
                // The error is that of an earlier packet; this one was not sent.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => {
                    let error = SystemError::system("probe the path to", self.peer, &error);
                    return Err(error.into());
                }
            }
            fate = self.listen(message.len());
            if fate != Fate::Silent || is_stopped() {
                break;
            }
        }
        Ok(fate)
    }

    /// Waits for the fate of the packet that was sent last.
    fn listen(&mut self, len: usize) -> Fate {
        let began = sys::clock::monotonic();
        let (mut end, mut fate) = (began + self.timeout, Fate::Silent);
        let mut room = vec![0; PACKET_BYTES_MAX as usize];
        loop {
            match self.drain() {
                Some(Fate::TooBig) if fate == Fate::Silent => {
                    fate = Fate::TooBig;
                    // A router's message is no proof: an answer may be on its way.
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
                // The report of this error is in the error queue.
                Err(_) => continue,
            }
            let left = end.since(sys::clock::monotonic());
            if left.is_zero() {
                return fate;
            }
            // An error ends the wait, and the next round reads it.
            let _ready = datagram::wait_readable(self.socket.as_fd(), left);
        }
    }

    /// Notes that an answer came. The time that the answer took sets how long to wait for an answer
    /// after a router's message.
    fn arrived(&mut self, sent: Instant) -> Fate {
        let took = sys::clock::monotonic().since(sent);
        self.patience = self.patience.max(took * 3).min(self.timeout);
        Fate::Arrived
    }

    /// Reads the error queue, keeps the claims, and returns the fate that the last message tells.
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
                    mtu_bytes: info,
                };
                self.claims.add(claim);
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
            "{} does not answer even a small packet: run `towline rtt reflect` there, or name a \
             port where no program listens and let ICMP through",
            self.peer
        )
    }
}

const TRIES: u32 = 3;
const PATIENCE_MIN: Duration = Duration::from_millis(50);
const CLAIMS_MAX: usize = 8;
/// The number that tells answers from messages of other programs. It is fixed, because probes carry
/// no secret.
const TOKEN: u64 = 0x6d74_7520_7072_6f62;
const UDP_HEADER: u32 = 8;
/// Bytes of PGM's common header and its data header.
const PGM_HEADERS: u32 = 24;
/// The largest length of an IPv4 packet in bytes.
const PACKET_BYTES_MAX: u32 = 65_535;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_that_finds_no_room_is_counted() {
        let claim = |mtu| Claim {
            router: Some([10, 0, 0, 1].into()),
            mtu_bytes: mtu,
        };
        let mut claims = Claims::default();
        for mtu in [1_400, 1_400].into_iter().chain(1_401..1_410) {
            claims.add(claim(mtu));
        }
        assert_eq!((claims.listed.len(), claims.unlisted), (8, 2));
        assert_eq!(claims.listed.last(), Some(&claim(1_407)));
    }
}
