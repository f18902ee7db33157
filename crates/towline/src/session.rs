//! What all sessions have in common: a place, an interface, socket options, protocol parameters.

use std::{
    collections::BTreeSet,
    fmt,
    net::{IpAddr, SocketAddr},
    os::fd::BorrowedFd,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use base::{DropCounters, Instant, Io as _};
use delivery::{AudienceConfig, Key, ReporterConfig};
use driver::{Driver, Endpoint, Handle, Identity, Receiving, Sending, Turn};
use net::{
    Faults, Group, Interfaces, SocketOptions, SystemError, UdpIo, UdpSetup,
    interface::{Choice, Selector},
};
use pgm::{Config, ConfigBuilder};
use protection::PacketProtection;
use wire::pgm::Tsi;

use self::profile::Profile;
use crate::{Allowed, Error, Place, Snapshot, backend::Backend, trace::Open};

mod connections;
use connections::links_max;
pub(crate) use connections::receivers_max;

pub mod options;

pub(crate) mod profile;

/// The settings that all kinds of session have. Build them with chained setters; opening a session
/// checks them together.
#[derive(Clone)]
pub struct SessionBuilder {
    pub(crate) place: Place,
    pub(crate) interface: Option<Selector>,
    pub(crate) sockets: SocketOptions,
    pub(crate) config: ConfigBuilder,
    pub(crate) faults: Faults,
    pub(crate) name: Option<String>,
    pub(crate) key: Option<Key>,
    pub(crate) reports: bool,
    pub(crate) pgm_port: Option<u16>,
    pub(crate) tsi: Option<Tsi>,
    pub(crate) control_port: u16,
    pub(crate) receivers_from: Vec<Allowed>,
    profile: Option<&'static Profile>,
    /// The names of the settings that were set by name. These settings count more than the profile.
    given: BTreeSet<String>,
}

impl fmt::Debug for SessionBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionBuilder")
            .field("place", &self.place)
            .field("interface", &self.interface)
            .field("name", &self.name)
            .field("reports", &self.reports)
            .finish_non_exhaustive()
    }
}

impl SessionBuilder {
    /// Makes a session on `group` with the defaults.
    #[must_use]
    pub fn new(group: Group) -> Self {
        Self::at(group)
    }

    /// Makes a session at `place` with the defaults. Sessions over TCP alone are for files: a
    /// [`crate::FileSender`] dials [`Place::Hosts`], a [`crate::FileReceiver`] listens at
    /// [`Place::Listen`].
    #[must_use]
    pub fn at(place: impl Into<Place>) -> Self {
        Self {
            place: place.into(),
            interface: None,
            sockets: SocketOptions::default(),
            config: Config::builder(),
            faults: Faults::NONE,
            name: None,
            key: None,
            reports: true,
            pgm_port: None,
            tsi: None,
            control_port: 0,
            receivers_from: Vec::new(),
            profile: None,
            given: BTreeSet::new(),
        }
    }

    /// Uses the interface with this name, address or prefix instead of the kernel's route. `None`
    /// changes nothing.
    #[must_use]
    pub fn interface(mut self, selector: impl Into<Option<Selector>>) -> Self {
        self.interface = selector.into().or(self.interface);
        self
    }

    /// Uses these socket options.
    #[must_use]
    pub fn sockets(mut self, options: SocketOptions) -> Self {
        self.sockets = options;
        self
    }

    /// Uses these protocol parameters.
    #[must_use]
    pub const fn config(mut self, config: ConfigBuilder) -> Self {
        self.config = config;
        self
    }

    /// Injects faults between the sockets and the protocol, such as `loss=5%,seed=7`. With them, a
    /// program shows how it works over a bad network.
    #[must_use]
    pub const fn faults(mut self, faults: Faults) -> Self {
        self.faults = faults;
        self
    }

    /// Sets the name by which the other end knows this one. No two receivers of a session may have
    /// the same name. Default: the host's name and the process number; the second and later
    /// receivers of a process also get a number. A receiver of files takes its default from its
    /// directory, so that it keeps its name when it is started there again.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Protects the session with this key: packets and reports are encrypted or tagged. Only
    /// holders of the key can then read, forge or alter packets and reports, count as receivers, or
    /// slow the sender down. All ends need the same key, and the session must have reports. Default
    /// none.
    #[cfg(feature = "keys")]
    #[must_use]
    pub fn key(mut self, key: impl Into<Option<crate::Key>>) -> Self {
        self.key = key.into().map(crate::Key::into_inner);
        self
    }

    /// Sets whether receivers report to the sender. Without reports, receivers cannot hold a sender
    /// back, and cannot prove what they hold. Default true.
    #[must_use]
    pub const fn reports(mut self, reports: bool) -> Self {
        self.reports = reports;
        self
    }

    /// Uses this PGM data-destination port instead of the UDP port.
    #[must_use]
    pub fn pgm_port(mut self, port: impl Into<Option<u16>>) -> Self {
        self.pgm_port = port.into();
        self
    }

    /// Sends under this transport session identifier. Default: a random identifier, which hosts
    /// that do not see the packets cannot guess; set one only where a program must know it
    /// beforehand. No two senders of a group may have the same identifier at the same time. With a
    /// key, a receiver that has heard one session with this identifier drops the packets of the
    /// next session with it, until the receiver is opened anew.
    #[must_use]
    pub fn tsi(mut self, tsi: impl Into<Option<Tsi>>) -> Self {
        self.tsi = tsi.into();
        self
    }

    /// Sets the TCP port on which a sender takes reports. Default 0: the system chooses.
    #[must_use]
    pub const fn control_port(mut self, port: u16) -> Self {
        self.control_port = port;
        self
    }

    /// Makes a sender admit only receivers at these addresses: connections from others are refused.
    /// Packets still reach every member of the group. For a receiver behind a relay, the relay's
    /// address counts. Default: all.
    #[must_use]
    pub fn receivers_from(mut self, hosts: impl IntoIterator<Item = Allowed>) -> Self {
        self.receivers_from = hosts.into_iter().collect();
        self
    }

    /// Opens the sockets for `role`.
    pub(crate) fn open(&self, role: net::Role) -> Result<Opened, Error> {
        let config = self.config.build()?;
        if self.key.is_some() && (!self.reports || config.strict_pgm()) {
            let cause = "its ends check the key on the connection that carries reports";
            let remedy = if self.reports {
                "leave out `strict_pgm`, or leave out the key"
            } else {
                "let receivers report, or leave out the key"
            };
            return Err(
                SystemError::refused("open a session", "without reports", cause)
                    .advise(remedy)
                    .into(),
            );
        }
        let shares_port = !config.strict_pgm();
        let Sockets { io, choice } =
            self.open_sockets(role, |setup| setup.shares_port(shares_port))?;
        let mut warnings = choice.notes;
        if let Some(profile) = self.profile {
            warnings.extend(profile.cautions(role, &config, self.key.is_some()));
        }
        Ok(Opened {
            batch: io.batch(),
            destination: io.setup().destination,
            io: Backend::Packets(Box::new(net::Intercept::new(io, self.faults))),
            config,
            local: choice.local,
            interface: choice.interface.name.clone(),
            #[cfg(feature = "files")]
            adapter: Some(choice.interface),
            warnings,
        })
    }

    /// Looks up the address of the place, and chooses its interface: the one that the user names,
    /// or else the one that the kernel's route takes. Opens nothing.
    pub(crate) fn choose(&self) -> Result<(SocketAddr, Choice), Error> {
        self.sockets.check()?;
        let group = self.group()?;
        let destination = group.resolve()?;
        let written = group.interface().map(str::parse).transpose()?;
        let wanted = self.interface.clone().or(written);
        let choice = Interfaces::read()?.choose(wanted.as_ref(), destination.ip())?;
        Ok((destination, choice))
    }

    fn group(&self) -> Result<&Group, Error> {
        let group = self.place.group();
        Ok(group.ok_or_else(|| self.place.no_packets())?)
    }

    /// Opens the sockets of the place on the interface that [`SessionBuilder::choose`] gives.
    /// `settle` adapts the setup to this session. The returned `choice.notes` also holds the
    /// caution about the group and the warnings of the sockets.
    pub(crate) fn open_sockets(
        &self,
        role: net::Role,
        settle: impl FnOnce(UdpSetup) -> UdpSetup,
    ) -> Result<Sockets, Error> {
        self.open_chosen(self.choose()?, role, settle)
    }

    /// Opens the sockets of the place, as [`SessionBuilder::open_sockets`] does, on an interface
    /// that was chosen before.
    pub(crate) fn open_chosen(
        &self,
        (destination, mut choice): (SocketAddr, Choice),
        role: net::Role,
        settle: impl FnOnce(UdpSetup) -> UdpSetup,
    ) -> Result<Sockets, Error> {
        let group = self.group()?;
        let mut sockets = self.sockets.clone();
        if let Some(bytes) = choice.interface.gso_bytes_max {
            sockets.gso_bytes_max = bytes as usize;
        }
        sockets.faults = self.faults;
        sockets.links_max = sockets.links_max.min(links_max(sys::open_files_max()));
        let setup = UdpSetup::new(role, destination, choice.interface.index, choice.local)
            .source(group.source())
            .options(sockets);
        let mut io = UdpIo::open(settle(setup))?;
        choice.notes.extend(group.caution().map(str::to_owned));
        choice
            .notes
            .extend(std::iter::from_fn(|| io.take_warning()));
        Ok(Sockets { io, choice })
    }

    /// Opens a session over connections alone. At [`Place::Listen`], `address` is where this host
    /// listens; otherwise it is a peer's address.
    #[cfg(feature = "files")]
    pub(crate) fn open_links(&self, address: SocketAddr) -> Result<Opened, Error> {
        self.sockets.check()?;
        let mut io = net::LinkIo::open(&self.sockets)?;
        let (mut destination, mut local) = (address, IpAddr::from(std::net::Ipv4Addr::UNSPECIFIED));
        if let Place::Listen(_) = self.place {
            destination = io.listen(address)?;
            local = destination.ip();
        }
        Ok(Opened {
            batch: io.batch(),
            io: Backend::Links(Box::new(io)),
            config: self.config.build()?,
            destination,
            local,
            interface: String::new(),
            adapter: None,
            warnings: Vec::new(),
        })
    }
}

impl SessionBuilder {
    /// Opens the sockets of a sender.
    pub(crate) fn open_sending(&self) -> Result<(Opened, Sending), Error> {
        let mut opened = self.open(net::Role::Source)?;
        let control_port = if self.reports && !opened.config.strict_pgm() {
            let address = SocketAddr::new(opened.local, self.control_port);
            Some(opened.packets()?.listen(address)?.port())
        } else {
            None
        };
        let destination_port = self.pgm_port.unwrap_or(opened.destination.port());
        let upstream_port = match opened.packets()?.upstream_port() {
            port if port == opened.destination.port() => 0,
            port => port,
        };
        if upstream_port != 0 {
            opened.warnings.push(format!(
                "another socket on this host has {}, port {}: receivers of other PGM \
                 implementations cannot ask for repairs (Towline's ask at port {upstream_port})",
                opened.local,
                opened.destination.port(),
            ));
        }
        let mut identity = Identity::draw(destination_port, random_u64)?;
        identity.tsi = self.tsi.unwrap_or(identity.tsi);
        let sending = Sending {
            config: opened.config,
            group: opened.destination,
            destination_port,
            own: opened.local,
            control_port,
            upstream_port,
            identity,
            partner: None,
            combine: simd::gf256::Level::best().combine(),
        };
        Ok((opened, sending))
    }

    /// Opens the sockets of a receiver.
    pub(crate) fn open_receiving(&self) -> Result<(Opened, Receiving), Error> {
        let opened = self.open(net::Role::Receiver)?;
        let receiving = Receiving {
            config: opened.config,
            group: opened.destination,
            destination_port: self.pgm_port.unwrap_or(opened.destination.port()),
            own: opened.local,
            seed: random_u64()?,
            instance: random_u64()?,
            combine: simd::gf256::Level::best().combine(),
        };
        Ok((opened, receiving))
    }

    /// Makes the settings of the reporter. If this end was given no name, also makes and returns
    /// its name. Both results are `None` in a session without reports.
    pub(crate) fn reporter(&self) -> Result<(Option<ReporterConfig>, Option<OwnName>), Error> {
        if !self.reports {
            return Ok((None, None));
        }
        let own = self.name.is_none().then(OwnName::take);
        let made = || own.as_ref().map(ToString::to_string);
        let name = self.name.clone().or_else(made).unwrap_or_default();
        let mut config = ReporterConfig::new(name, random_u64()?);
        config.key.clone_from(&self.key);
        Ok((Some(config), own))
    }

    /// Makes the settings of the audience (the receivers) of the session `sending`.
    pub(crate) fn audience(&self, sending: &Sending) -> AudienceConfig {
        let mut config = AudienceConfig::new(sending.identity.session_id);
        config.key.clone_from(&self.key);
        config.seed = sending.identity.seed;
        config.admission = Allowed::admission(self.receivers_from.iter().copied());
        config.receivers_max = config
            .receivers_max
            .min(receivers_max(sys::open_files_max()));
        let name = self.name.clone();
        config.name = name.unwrap_or_else(|| default_name(&std::process::id().to_string()));
        config
    }
}

/// The longest time that dropping a publisher takes to tell receivers that the session is broken
/// off.
pub(crate) const FAREWELL_MAX: Duration = Duration::from_millis(100);
/// The interval at which a publisher that closes asks its caller whether to go on waiting.
pub(crate) const CLOSE_POLL: Duration = Duration::from_millis(100);
/// The interval at which a subscriber that leaves checks whether the sockets have taken its last
/// messages.
pub(crate) const LEAVE_POLL: Duration = Duration::from_millis(5);

/// The result of opening the sockets.
pub(crate) struct Opened {
    pub(crate) io: Backend,
    pub(crate) batch: base::RecvBatch,
    pub(crate) config: Config,
    pub(crate) destination: SocketAddr,
    pub(crate) local: IpAddr,
    pub(crate) interface: String,
    #[cfg(feature = "files")]
    pub(crate) adapter: Option<net::Interface>,
    pub(crate) warnings: Vec<String>,
}

impl Opened {
    /// Returns the sockets for packets; an error in a session over connections alone.
    pub(crate) fn packets(&mut self) -> Result<&mut UdpIo, Error> {
        match &mut self.io {
            Backend::Packets(intercept) => Ok(intercept.inner_mut()),
            Backend::Links(_) => Err(Error::Closed),
        }
    }

    /// Makes one end of a session: `endpoint` on these sockets.
    pub(crate) fn end<E: Endpoint>(
        self,
        endpoint: E,
        protection: Option<PacketProtection>,
    ) -> End<E> {
        End {
            open: Open::new(self.destination, &self.interface, self.local),
            driver: Driver::new(self.io, endpoint, self.batch).with_protection(protection),
            warnings: self.warnings,
            interface: self.interface,
            local: self.local,
        }
    }
}

/// The sockets of a place, and the interface that they use.
pub(crate) struct Sockets {
    pub(crate) io: UdpIo,
    pub(crate) choice: Choice,
}

/// One end of an open session: the part that [`crate::Publisher`] and the library's other types for
/// sessions share.
pub(crate) struct End<E> {
    pub(crate) driver: Driver<Backend, E>,
    pub(crate) warnings: Vec<String>,
    interface: String,
    local: IpAddr,
    /// When this is dropped, it emits the event that the session is closed.
    open: Open,
}

/// The counters that only some kinds of endpoint have.
pub(crate) trait Count {
    /// Returns the counts of packets that the endpoint has thrown away; `None` where there are no
    /// packets.
    fn drops(&self) -> Option<&DropCounters>;

    fn count(&self, snapshot: &mut Snapshot);
}

impl<E: Endpoint> End<E> {
    pub(crate) fn turn<S: ?Sized>(&mut self, sink: &mut S) -> Result<Turn, Error>
    where
        E: Handle<S>,
    {
        Ok(self.driver.turn(sink)?)
    }

    pub(crate) fn wait(&mut self, until: Option<Instant>) {
        self.driver.wait(until);
    }

    pub(crate) fn now(&mut self) -> Instant {
        self.driver.io.now()
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.driver.next_timeout()
    }

    /// Accepts no more control connections.
    #[cfg(feature = "files")]
    pub(crate) fn stop_listening(&mut self) {
        self.driver.io.stop_listening();
    }

    /// Returns false while a control connection is being opened, has bytes to send, or waits for
    /// its peer to see the end of the stream.
    pub(crate) fn is_told(&self) -> bool {
        self.driver.io.links_unfinished() == 0
    }

    pub(crate) fn take_warnings(&mut self) -> Vec<String> {
        let late = std::iter::from_fn(|| self.driver.io.take_warning());
        self.warnings.extend(late);
        let protection = self.driver.protection_mut();
        let notices = protection
            .into_iter()
            .flat_map(PacketProtection::take_notices);
        self.warnings
            .extend(notices.map(|notice| notice.to_string()));
        std::mem::take(&mut self.warnings)
    }

    pub(crate) fn send_error(&self) -> Option<SystemError> {
        self.driver.io.send_error()
    }

    /// Writes a session for `Debug`: only its group, interface and local address.
    pub(crate) fn describe(&self, face: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(face)
            .field("group", &self.open.group())
            .field("interface", &self.interface)
            .field("local", &self.local)
            .finish_non_exhaustive()
    }

    pub(crate) fn interface(&self) -> (&str, IpAddr) {
        (&self.interface, self.local)
    }

    pub(crate) fn waker(&self) -> Result<net::Waker, Error> {
        Ok(self.driver.io.waker()?)
    }

    pub(crate) fn arm(&mut self, until: Option<Instant>) {
        let due = base::earliest(self.driver.next_timeout(), until);
        self.driver.io.arm(due);
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.driver.io.descriptor()
    }
}

impl<E: Endpoint + Count> End<E> {
    pub(crate) fn snapshot(&self, snapshot: &mut Snapshot) {
        snapshot.add(self.driver.counters());
        let mut drops = self.driver.endpoint.drops().copied().unwrap_or_default();
        if let Some(protection) = self.driver.protection() {
            snapshot.add(protection.counters());
            drops += protection.drops();
        }
        snapshot.add(&drops);
        self.driver.endpoint.count(snapshot);
        self.driver.io.count(snapshot);
    }
}

/// Gives `$face` the methods that all types for an open session have. The field `end` of `$face` is
/// an [`End`], or has the methods of one.
macro_rules! face {
    ($face:ty) => {
        impl $face {
            /// Reads the session's clock.
            pub fn now(&mut self) -> ::base::Instant {
                self.end.now()
            }

            /// Returns the name of the interface in use, and this end's address on it.
            #[must_use]
            pub fn interface(&self) -> (&str, ::std::net::IpAddr) {
                self.end.interface()
            }

            /// Returns why the kernel has refused every datagram so far. `None` when it has taken
            /// one, or when no datagram was given to it.
            #[must_use]
            pub fn send_error(&self) -> Option<::net::SystemError> {
                self.end.send_error()
            }

            /// Takes warnings about settings that work differently than asked, one sentence each.
            pub fn take_warnings(&mut self) -> Vec<String> {
                self.end.take_warnings()
            }

            /// Makes a handle with which another thread ends a wait.
            ///
            /// # Errors
            /// When the process is out of descriptors.
            pub fn waker(&self) -> Result<::net::Waker, $crate::Error> {
                self.end.waker()
            }

            /// Adds every counter of the session to a snapshot.
            pub fn snapshot(&self, snapshot: &mut $crate::Snapshot) {
                self.end.snapshot(snapshot);
            }
        }

        impl ::std::fmt::Debug for $face {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                self.end.describe(stringify!($face), f)
            }
        }

        impl ::std::os::fd::AsFd for $face {
            /// Returns the one descriptor of the session. When it is readable, a turn is due; call
            /// `arm` after each turn.
            fn as_fd(&self) -> ::std::os::fd::BorrowedFd<'_> {
                self.end.descriptor()
            }
        }

        impl ::std::os::fd::AsRawFd for $face {
            fn as_raw_fd(&self) -> ::std::os::fd::RawFd {
                ::std::os::fd::AsRawFd::as_raw_fd(&self.end.descriptor())
            }
        }
    };
}
pub(crate) use face;

/// Draws 64 bits from the system's generator, because hosts off the packets' path must not be able
/// to guess identifiers.
pub(crate) fn random_u64() -> Result<u64, Error> {
    sys::random_u64()
        .map_err(|error| SystemError::system("read", "the system's random numbers", &error).into())
}

/// Makes the name of an end that was given none: the host's name, then `told_apart_by`, which
/// differs between the ends on a host.
pub(crate) fn default_name(told_apart_by: &str) -> String {
    let host = sys::host_name().unwrap_or_else(|| "host".to_owned());
    format!("{host}:{told_apart_by}")
}

/// A name for an end, made from its process id. No other end of the process takes the name until
/// this is dropped. After that, another end may take the name. Senders then believe that the same
/// receiver has come back.
#[derive(Debug)]
pub(crate) struct OwnName {
    number: u32,
}

impl OwnName {
    pub(crate) fn take() -> Self {
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let number = (1..).find(|number| !taken.contains(number));
        let number = number.expect("fewer ends than numbers");
        taken.insert(number);
        Self { number }
    }
}

impl fmt::Display for OwnName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own = std::process::id();
        let own = match self.number {
            1 => own.to_string(),
            number => format!("{own}.{number}"),
        };
        f.write_str(&default_name(&own))
    }
}

impl Drop for OwnName {
    fn drop(&mut self) {
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        taken.remove(&self.number);
    }
}

/// The numbers that the [`OwnName`]s of this process have at present.
static TAKEN: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());
