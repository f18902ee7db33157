//! The type by which an application runs a relay. A relay brings the sessions of one network to
//! other networks that have no route to it.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
};

use base::{Instant, Io as _, PathId};
use driver::{Driver, Turn};
use net::{Encapsulation, Group, Intercept, Remedy, SystemError, WaysIo, interface::Choice};
use pgm::{ElementSetup, ElementTimers, Way};

use crate::{
    Error, SessionBuilder, Snapshot,
    session::{Sockets, random_u64},
};

/// The settings of a [`Relay`].
#[derive(Clone, Debug)]
pub struct RelayBuilder {
    ways: Vec<SessionBuilder>,
    kept_bytes_max: usize,
}

impl RelayBuilder {
    /// Sets how many bytes of the newest packets the relay keeps for repairs. The relay asks the
    /// sender for older packets. Default 64 MiB, which is half a second at 1 Gbit/s.
    #[must_use]
    pub const fn keep(mut self, bytes: usize) -> Self {
        self.kept_bytes_max = bytes;
        self
    }

    /// Opens the sockets of all ways (the networks that the relay joins).
    ///
    /// # Errors
    /// When there are fewer than 2 or more than 64 ways, their PGM ports differ, two ways need the
    /// same port of the same address, or a way leads to this host itself; when an interface cannot
    /// be used, or the system refuses.
    pub fn open(self) -> Result<Relay, Error> {
        let first = self.ways.first();
        let (Some(first), 2..=WAYS_MAX) = (first, self.ways.len()) else {
            return Err(wrong_count(self.ways.len()).into());
        };
        let destination_port = port_of(first);
        let chosen = self.choose(first)?;
        let (mut ways, mut ios, mut joined, mut warnings) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for ((path, session), chosen) in (0_u8..).map(PathId).zip(&self.ways).zip(chosen) {
            let opened = session.open_chosen(chosen, net::Role::Source, |mut it| {
                it.path = path;
                // The relay queues nothing: bytes that one end of a connection does not take stay
                // unread at the other end.
                it.options.link_queue_bytes = 0;
                it
            });
            let Sockets { mut io, choice } = opened.map_err(of_a_relay)?;
            let group = io.setup().destination;
            let control = io.listen((choice.local, session.control_port).into())?;
            ways.push(Way {
                path,
                nla: choice.local,
                group,
                control_port: control.port(),
            });
            joined.push(RelayWay {
                place: session.place.to_string(),
                interface: choice.interface.name,
                local: choice.local,
                control_port: control.port(),
            });
            warnings.extend(choice.notes);
            ios.push(io);
        }
        let setup = ElementSetup {
            destination_port,
            ways,
            timers: ElementTimers::default(),
            sessions_max: SESSIONS_MAX,
            repairs_max: REPAIRS_MAX,
            queue_bytes_max: QUEUE_BYTES_MAX,
            kept_bytes_max: self.kept_bytes_max,
            seed: random_u64()?,
        };
        let io = WaysIo::new(ios, first.sockets.wait)?;
        let batch = io.batch();
        let io = Intercept::for_paths(io, self.ways.iter().map(|way| way.faults));
        Ok(Relay {
            driver: Driver::new(io, driver::Relay::open(setup), batch),
            ways: joined,
            warnings,
        })
    }

    /// Chooses the interface of each way, and checks that the ways fit together. Opens nothing.
    fn choose(&self, first: &SessionBuilder) -> Result<Vec<(SocketAddr, Choice)>, Error> {
        let mut chosen: Vec<(SocketAddr, Choice)> = Vec::new();
        for session in &self.ways {
            let refused = |cause: String, advice: &str| {
                let error = SystemError::refused("relay to", &session.place, cause);
                Err(error.advise(advice).into())
            };
            let (port, first_port) = (port_of(session), port_of(first));
            if port != first_port {
                let first = &first.place;
                return refused(
                    format!("its PGM port is {port}, and that of {first} is {first_port}"),
                    "give all groups the same port, or all sessions the same `pgm_port`",
                );
            }
            let (to, by) = session.choose()?;
            if to.ip() == by.local {
                return refused(
                    "this is the relay's own address".to_owned(),
                    "name the host at the other end of the tunnel",
                );
            }
            // Each way has a socket of its own at its local address and its UDP port.
            let is_udp = session.sockets.encapsulation == Encapsulation::Udp;
            let clash = chosen.iter().position(|(other, at)| {
                let is_same_port = *other == to || (is_udp && other.port() == to.port());
                is_same_port && at.local == by.local && at.interface.index == by.interface.index
            });
            if let Some(earlier) = clash {
                let (place, interface) = (&self.ways[earlier].place, &by.interface.name);
                if chosen[earlier].0 == to {
                    let cause = format!("it is the same network as {place}");
                    return refused(cause, "name each network once");
                }
                return refused(
                    format!("on {interface} it has the same UDP port as {place}"),
                    "write different ports, and give `pgm_port`, the senders' PGM port",
                );
            }
            chosen.push((to, by));
        }
        Ok(chosen)
    }
}

/// A relay: it sends the packets of each group that it has joined to its other groups, repairs
/// losses there, and passes reports on to the sender.
///
/// Receivers take the relay for the sender: they send their requests for repairs to it, and open
/// their connections for reports to it. The relay joins each such connection to one that it opens
/// to the sender. For the sender, one receiver at the relay's address asks for all repairs, and the
/// reports of all receivers behind the relay come from that address. So neither network needs a
/// route to the other. Sessions go in any direction, each away from the network where the relay
/// first heard it.
///
/// Sessions with a key are not carried, because the relay would have to change their packets, which
/// the key protects.
///
/// A relay works only in calls of [`Relay::turn`]: its owner calls it again whenever
/// [`Relay::wait`] returns.
pub struct Relay {
    driver: Driver<Intercept<WaysIo>, driver::Relay>,
    ways: Vec<RelayWay>,
    warnings: Vec<String>,
}

/// A network that a relay has joined.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RelayWay {
    /// The group or host, as it was written.
    pub place: String,
    /// The name of the interface.
    pub interface: String,
    /// The relay's address in this network.
    pub local: IpAddr,
    /// The TCP port at which the relay takes connections from receivers in this network.
    pub control_port: u16,
}

impl Relay {
    /// Starts to describe a relay between places. Each session gives its place, interface, socket
    /// options, faults, PGM port and control port; the first also gives the way to wait.
    #[must_use]
    pub fn builder(ways: impl IntoIterator<Item = SessionBuilder>) -> RelayBuilder {
        RelayBuilder {
            ways: ways.into_iter().collect(),
            kept_bytes_max: KEPT_BYTES_MAX,
        }
    }

    /// Does what is due, without waiting.
    ///
    /// # Errors
    /// When the sockets cannot be used any more.
    pub fn turn(&mut self) -> Result<Turn, Error> {
        Ok(self.driver.turn(&mut ())?)
    }

    /// Waits until something is due, at most until `until`.
    pub fn wait(&mut self, until: Option<Instant>) {
        self.driver.wait(until);
    }

    /// Returns the present time, by the clock that [`Relay::wait`] uses.
    pub fn now(&mut self) -> Instant {
        self.driver.io.now()
    }

    /// Makes a handle with which another thread ends a wait.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn waker(&self) -> Result<net::Waker, Error> {
        Ok(self.driver.io.inner().waker()?)
    }

    /// Returns the networks that the relay has joined.
    #[must_use]
    pub fn ways(&self) -> &[RelayWay] {
        &self.ways
    }

    /// Returns the number of sessions that the relay carries.
    #[must_use]
    pub fn session_count(&self) -> usize {
        self.driver.endpoint.element().session_count()
    }

    /// Returns the number of receivers that report through the relay.
    #[must_use]
    pub fn receiver_count(&self) -> usize {
        self.driver.endpoint.forwarder().joined_count()
    }

    /// Takes warnings about settings that work differently than asked, one sentence each.
    pub fn take_warnings(&mut self) -> Vec<String> {
        let io = self.driver.io.inner_mut();
        self.warnings
            .extend(std::iter::from_fn(|| io.take_warning()));
        std::mem::take(&mut self.warnings)
    }

    /// Adds every counter of the relay to a snapshot.
    pub fn snapshot(&self, snapshot: &mut Snapshot) {
        let relay = &self.driver.endpoint;
        snapshot.add(self.driver.counters());
        snapshot.add(relay.drops());
        snapshot.add(relay.element().counters());
        snapshot.add(relay.forwarder().counters());
        snapshot.add(&self.driver.io.inner().counters());
        snapshot.add(self.driver.io.counters());
        snapshot.set_receivers(u32::try_from(self.receiver_count()).unwrap_or(u32::MAX));
    }
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay")
            .field("ways", &self.ways)
            .finish_non_exhaustive()
    }
}

/// Makes the error of a relay between too few or too many networks.
fn wrong_count(named: usize) -> SystemError {
    let (cause, remedy) = if named < 2 {
        let cause = format!("a relay joins at least 2 networks (named: {named})");
        (cause, "name 2 or more")
    } else {
        let cause = format!("a relay joins at most {WAYS_MAX} networks (named: {named})");
        (cause, "name fewer")
    };
    SystemError::refused("open", "a relay", cause).advise(remedy)
}

/// Replaces the remedy for a port in use, which is for one sender and its receivers: a relay and
/// the ends of its sessions change their port together.
fn of_a_relay(error: Error) -> Error {
    match error {
        Error::System(fault) if fault.remedy() == Some(&Remedy::StopOtherSender) => {
            let advice = "another relay or sender, or a receiver of a unicast session, uses this \
                          address and port on this host: stop it, or give this relay and all ends \
                          of its sessions another port";
            fault.advise(advice).into()
        }
        error => error,
    }
}

/// Returns the PGM data-destination port of a session.
fn port_of(session: &SessionBuilder) -> u16 {
    let port = session.place.group().map_or(0, Group::port);
    session.pgm_port.unwrap_or(port)
}

/// The most networks that a relay joins.
const WAYS_MAX: usize = 64;
/// The most sessions that a relay carries at a time. Judgement: few groups have more in a whole
/// day.
const SESSIONS_MAX: usize = 256;
/// The most missing packets that a relay waits for at a time: about as many as arrive in 0.2 s at 1
/// Gbit/s.
const REPAIRS_MAX: usize = 16_384;
/// The most bytes that wait to be sent to one network: eight reads, each of four 64-KiB buffers.
const QUEUE_BYTES_MAX: usize = 2 << 20;
/// The default of [`RelayBuilder::keep`]: half a second at 1 Gbit/s.
const KEPT_BYTES_MAX: usize = 64 << 20;
