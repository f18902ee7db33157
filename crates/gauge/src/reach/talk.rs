//! Lets the participating hosts send to the group and talk to each other, and notes everything.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, SocketAddr},
    os::fd::AsFd as _,
    time::Duration,
};

use measure::Beacon;
use net::{
    Interface, Remedy, SystemError,
    interface::{Choice, Selector},
};
use serde::Serialize;
use sys::{Family, RawAddress, UdpSocket, datagram, netfilter::Way, reception};

use super::{
    Facts, Finding, PeerFacts, Unlisted,
    frames::FrameWatch,
    host::{self, Host},
    judge,
};
use crate::Error;

/// The task of observing a group.
#[derive(Clone, Debug)]
pub struct ReachSpec {
    /// The group and its port.
    pub group: SocketAddr,
    /// The interface to use; with `None` the kernel's route decides.
    pub interface: Option<Selector>,
    /// Time to live of packets to the group.
    pub hops: u8,
    /// Other hosts that observe the group at the same time.
    pub peers: Vec<SocketAddr>,
    /// The port on which other hosts talk to this one, besides the group.
    pub port: u16,
    /// How long to observe.
    pub time: Duration,
    /// This host's name for itself.
    pub name: String,
    /// A random number that tells this run from others.
    pub token: u64,
}

/// What a run observed, and the conclusions.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReachReport {
    /// The observations.
    pub facts: Facts,
    /// What is wrong; empty when all is well.
    pub findings: Vec<Finding>,
}

/// Draws a number that tells a run from others.
///
/// # Errors
/// When the system has no random numbers.
pub fn new_token() -> Result<u64, Error> {
    sys::random_u64()
        .map_err(|error| SystemError::system("read", "the system's random numbers", &error).into())
}

/// Observes for `spec.time`, or until `is_stopped`.
///
/// # Errors
/// When the system refuses sockets or does not tell its interfaces. A group that does not arrive is
/// a finding, not an error.
pub fn reach(spec: &ReachSpec, is_stopped: &dyn Fn() -> bool) -> Result<ReachReport, Error> {
    let host = Host::read()?;
    let choice = host.choose(spec.interface.as_ref(), spec.group.ip());
    let (choice, refusal) = match choice {
        Ok(choice) => (Some(choice), None),
        Err(refusal) => (None, Some(refusal)),
    };
    let facts = Facts {
        name: spec.name.clone(),
        group: spec.group,
        hops: spec.hops,
        lasted: Duration::ZERO,
        interface: choice.as_ref().map(host::interface_facts),
        refusal,
        has_route: false,
        send_error: None,
        heard: Vec::new(),
        frames: Vec::new(),
        sees_wire: false,
        queriers: Vec::new(),
        peers: spec
            .peers
            .iter()
            .map(|&address| PeerFacts {
                address,
                word: None,
            })
            .collect(),
        reverse_paths: Vec::new(),
        reverse_path_drops: host::reverse_path_drops(),
        chains: host::chains(Way::In),
        outgoing_chains: host::chains(Way::Out),
        has_reported: None,
        unlisted: Unlisted::default(),
    };
    let mut talk = Talk::open(spec, host, choice, facts)?;
    talk.run(is_stopped);
    let facts = talk.close();
    let findings = judge(&facts);
    Ok(ReachReport { facts, findings })
}

/// A run under way.
struct Talk<'a> {
    spec: &'a ReachSpec,
    host: Host,
    choice: Option<Choice>,
    /// A socket for each interface, which has joined the group there.
    inbound: Vec<UdpSocket>,
    outbound: Option<UdpSocket>,
    unicast: UdpSocket,
    wire: FrameWatch,
    facts: Facts,
    /// Bytes sent to each host that was heard and that the user did not name.
    answered: BTreeMap<IpAddr, u64>,
    start_ns: u64,
}

impl<'a> Talk<'a> {
    fn open(
        spec: &'a ReachSpec,
        mut host: Host,
        choice: Option<Choice>,
        mut facts: Facts,
    ) -> Result<Self, Error> {
        let refused = |operation: &'static str| {
            let group = spec.group;
            move |error: io::Error| Error::from(SystemError::system(operation, group, &error))
        };
        facts.has_route = host.has_route(spec.group.ip());
        let wire = FrameWatch::open();
        facts.sees_wire = wire.is_open();
        facts.has_reported = choice
            .as_ref()
            .filter(|choice| facts.sees_wire && is_report_due(spec.group.ip(), &choice.interface))
            .map(|_| false);
        let mut inbound = Vec::new();
        for interface in host.interfaces.list() {
            let is_chosen = choice
                .as_ref()
                .is_some_and(|it| it.interface.index == interface.index);
            let is_useful = interface.flags.up && interface.flags.multicast;
            if !is_chosen && !is_useful {
                continue;
            }
            match joined(spec.group, interface.index) {
                Ok(socket) => inbound.push(socket),
                // A failure matters only on the chosen interface; the others are observed only to
                // say more.
                Err(error) if is_chosen => return Err(refused("join")(error)),
                Err(_) => {}
            }
        }
        let outbound = match &choice {
            Some(choice) => match outbound(spec, choice) {
                Ok(socket) => Some(socket),
                Err(error) => {
                    facts.send_error = Some(sys::with_usual_remedy(&error));
                    None
                }
            },
            None => None,
        };
        let unicast = unicast(spec).map_err(|error| {
            let fault = SystemError::system("listen to other hosts at UDP port", spec.port, &error);
            match error.kind() {
                io::ErrorKind::AddrInUse => fault.advise(Remedy::StopOtherSearch),
                _ => fault,
            }
        })?;
        Ok(Self {
            spec,
            host,
            choice,
            inbound,
            outbound,
            unicast,
            wire,
            facts,
            answered: BTreeMap::new(),
            start_ns: now_ns(),
        })
    }

    fn run(&mut self, is_stopped: &dyn Fn() -> bool) {
        let mut next = Duration::ZERO;
        while self.elapsed() < self.spec.time && !is_stopped() {
            if self.elapsed() >= next {
                next = self.elapsed() + GAP;
                self.speak();
            }
            self.listen();
            let names = &self.host;
            self.wire
                .look(self.spec.group.ip(), &|index| names.name(index));
            let wait = datagram::wait_readable(self.unicast.as_fd(), LOOK);
            // The next look at the socket reads the error.
            drop(wait);
        }
        self.facts.lasted = self.elapsed();
    }

    /// Sends a beacon to the group, to each named host, and to each heard host that may get one.
    fn speak(&mut self) {
        let mut beacon = self.beacon();
        beacon.is_group = true;
        if let Some(outbound) = &self.outbound
            && let Err(error) = datagram::send(outbound.as_fd(), &beacon.emit())
        {
            self.facts.send_error = Some(sys::with_usual_remedy(&error));
        }
        beacon.is_group = false;
        let mut to = self.spec.peers.clone();
        for heard in self.facts.heard.iter().filter(|heard| !heard.is_self) {
            let address = host::with_port(heard.source, self.spec.port);
            if !to.iter().any(|known| known.ip() == heard.source) {
                to.push(address);
            }
        }
        for (nth, peer) in to.into_iter().enumerate() {
            (beacon.heard, beacon.is_cut) = self.facts.heard_for(peer.ip());
            let bytes = beacon.emit();
            let is_named = nth < self.spec.peers.len();
            if !is_named && !self.may_answer(peer.ip(), bytes.len() as u64) {
                continue;
            }
            // When a beacon cannot be sent, the other end misses it, and reports that.
            let _sent = datagram::send_to(self.unicast.as_fd(), &RawAddress::from(peer), &bytes);
        }
    }

    /// Returns true when `bytes` more may go to a host that was heard. The host's beacons may be
    /// forged, so it gets at most [`ANSWER_SHARE`] bytes for each byte of them.
    fn may_answer(&mut self, host: IpAddr, bytes: u64) -> bool {
        let heard = self.facts.bytes_of(host);
        let answered = self.answered.entry(host).or_default();
        let is_within = *answered + bytes <= ANSWER_SHARE * heard;
        if is_within {
            *answered += bytes;
        }
        is_within
    }

    fn beacon(&self) -> Beacon {
        let refusal = self.facts.refusal.as_ref();
        let refusal = refusal.map(|it| super::verdict::refused(it).clone().into());
        let chosen = self.choice.as_ref();
        Beacon {
            towline_reach: Beacon::VERSION,
            token: self.spec.token,
            name: self.spec.name.clone(),
            group: self.spec.group,
            hops: self.spec.hops,
            interface: chosen.map_or_else(String::new, |it| it.interface.name.clone()),
            address: chosen.map(|it| it.local),
            refusal: refusal.or_else(|| self.facts.send_error.clone()),
            heard: Vec::new(),
            is_cut: false,
            is_group: false,
        }
    }

    fn listen(&mut self) {
        let mut room = [0; 2_048];
        for index in 0..self.inbound.len() {
            for _ in 0..BATCH {
                let received = reception::receive(self.inbound[index].as_fd(), &mut room);
                let Ok(received) = received else {
                    break;
                };
                if let Some(beacon) = Beacon::parse(&room[..received.len.min(room.len())]) {
                    self.hear(&beacon, &received);
                }
            }
        }
        for _ in 0..BATCH {
            match reception::receive(self.unicast.as_fd(), &mut room) {
                Ok(received) => {
                    if let Some(beacon) = Beacon::parse(&room[..received.len.min(room.len())]) {
                        self.note(&beacon, &received);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // An earlier beacon of this host caused the error.
                Err(_) => {}
            }
        }
    }

    /// Notes a beacon that came through the group.
    fn hear(&mut self, beacon: &Beacon, received: &reception::Reception) {
        let (Some(source), Some(index)) = (received.source, received.interface) else {
            return;
        };
        let (now, interface) = (self.elapsed(), self.host.name(index));
        let arrival = (source.ip(), interface, received.hops);
        let beacon = (beacon, received.len);
        self.facts.hear(beacon, arrival, self.spec.token, now);
    }

    /// Notes a beacon that a host sent to this one.
    fn note(&mut self, beacon: &Beacon, received: &reception::Reception) {
        if let Some(source) = received.source {
            self.facts
                .note(beacon, source, received.hops, self.spec.token);
        }
    }

    /// Adds what the kernel says at the end of the run.
    fn close(mut self) -> Facts {
        let entered = std::mem::take(&mut self.wire.entered);
        self.facts.unlisted.frames = entered.unlisted_frames;
        self.facts.unlisted.queriers = entered.unlisted_queries;
        self.facts.frames = entered.frames;
        self.facts.queriers = entered.queriers;
        let chosen = self.choice.as_ref().map(|it| it.interface.index);
        let has_left = chosen.is_some_and(|index| self.wire.reported.contains(&index));
        // A report may leave up to a second after joining.
        let is_known = has_left || self.facts.lasted >= REPORT_AFTER_MAX;
        let due = self.facts.has_reported.take();
        self.facts.has_reported = due.filter(|_| is_known).map(|_| has_left);
        let drops = host::reverse_path_drops();
        self.facts.reverse_path_drops = drops.saturating_sub(self.facts.reverse_path_drops);
        if let Some(choice) = &self.choice {
            // The group is joined at this moment, so these facts tell more than those from the
            // beginning.
            self.facts.interface = Some(host::interface_facts(choice));
        }
        let chosen = self.choice.as_ref().map(|it| it.interface.name.clone());
        let frames = self.facts.frames.iter();
        let mut ways: Vec<(IpAddr, String)> = frames
            .map(|frames| (frames.source, frames.interface.clone()))
            .collect();
        let words = self
            .facts
            .peers
            .iter()
            .filter_map(|peer| peer.word.as_ref());
        let sources = words.filter_map(|word| word.source);
        ways.extend(sources.zip(std::iter::repeat_with(|| {
            chosen.clone().unwrap_or_default()
        })));
        ways.dedup();
        for (source, interface) in ways.iter().filter(|(source, _)| source.is_ipv4()) {
            let path = self.host.reverse_path(*source, interface);
            if !self.facts.reverse_paths.contains(&path) {
                self.facts.reverse_paths.push(path);
            }
        }
        self.facts
    }

    fn elapsed(&self) -> Duration {
        Duration::from_nanos(now_ns() - self.start_ns)
    }
}

/// Returns true when the kernel must report that this host joins the group. It must, unless a
/// program here has joined before, the interface is loopback, or switches forward the group to
/// everybody anyway.
fn is_report_due(group: IpAddr, interface: &Interface) -> bool {
    let is_local = match group {
        IpAddr::V4(group) => matches!(group.octets(), [224, 0, 0, _]),
        IpAddr::V6(group) => group.segments()[0] & 0xf <= 1,
    };
    !is_local && !interface.flags.loopback && !host::is_member(group, &interface.name)
}

/// Opens a socket that hears the group on one interface only.
fn joined(group: SocketAddr, interface: u32) -> io::Result<UdpSocket> {
    let socket = UdpSocket::new(Family::of(&group))?;
    socket.set_reuse_address(true)?;
    socket.bind(group)?;
    socket.set_multicast_all(false)?;
    socket.join(group.ip(), interface, None)?;
    reception::enable(socket.as_fd(), Family::of(&group))?;
    Ok(socket)
}

fn outbound(spec: &ReachSpec, choice: &Choice) -> io::Result<UdpSocket> {
    let socket = UdpSocket::new(Family::of(&spec.group))?;
    socket.bind(SocketAddr::new(choice.local, 0))?;
    socket.set_multicast_interface(choice.interface.index, choice.local)?;
    socket.set_multicast_hops(spec.hops)?;
    socket.set_error_report(true)?;
    datagram::connect(socket.as_fd(), spec.group)?;
    Ok(socket)
}

fn unicast(spec: &ReachSpec) -> io::Result<UdpSocket> {
    let family = Family::of(&spec.group);
    let any: IpAddr = match family {
        Family::V4 => [0; 4].into(),
        Family::V6 => [0_u16; 8].into(),
    };
    let socket = UdpSocket::new(family)?;
    socket.bind(SocketAddr::new(any, spec.port))?;
    socket.set_unicast_hops(Beacon::UNICAST_HOPS)?;
    reception::enable(socket.as_fd(), family)?;
    Ok(socket)
}

fn now_ns() -> u64 {
    sys::clock::monotonic().as_nanos()
}

/// The most bytes sent to a host for each byte that came from its address.
const ANSWER_SHARE: u64 = 3;
/// How often a host sends its beacons.
const GAP: Duration = Duration::from_millis(200);
const LOOK: Duration = Duration::from_millis(20);
/// The longest time between joining and the first report, with room for a busy host.
const REPORT_AFTER_MAX: Duration = Duration::from_millis(1_200);
const BATCH: usize = 64;
