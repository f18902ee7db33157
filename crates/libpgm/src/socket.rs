//! The life of a socket: made, set up, bound, connected, closed.

use std::{
    ffi::c_int,
    io,
    mem::MaybeUninit,
    net::SocketAddr,
    ops::Deref,
    os::fd::RawFd,
    ptr::NonNull,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use cabi::{Out, give, guard};
use rustix::{
    io::Errno,
    net::{AddressFamily, Protocol, RawProtocol, SocketFlags, SocketType, socket_with},
};
use towline::{Group, Interfaces, Publisher, Selector, SessionBuilder, Subscriber};

use crate::{
    abi::{IPPROTO_PGM, InterfaceReq, SockAddr, Tsi},
    counters::Board,
    error::{self, Code, Domain, Fault, Slot},
    identity::random_bytes,
    incoming::{Inbox, Incoming},
    log,
    option::Number,
    outgoing::{Events, Outgoing},
    settings::{GroupSetting, Settings},
};

/// A `pgm_sock_t`.
#[derive(Debug)]
pub(crate) struct Sock {
    life: Mutex<Life>,
    /// Set when connected, so that sending and receiving take no lock of the socket.
    pub(crate) open: OnceLock<Open>,
    /// How many threads are sending or receiving.
    calls: AtomicU32,
}

/// A call that sends or receives. The socket stays while the call lasts.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    sock: &'a Sock,
    open: &'a Open,
}

impl Deref for Call<'_> {
    type Target = Open;

    fn deref(&self) -> &Open {
        self.open
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.sock.calls.fetch_sub(1, Ordering::AcqRel);
    }
}

/// How far a socket has come.
#[derive(Debug, Default)]
pub(crate) struct Life {
    pub(crate) settings: Settings,
    bound: Option<Bound>,
    is_connected: bool,
    rate: Option<Arc<Outgoing>>,
}

/// What a bind decides.
#[derive(Debug)]
struct Bound {
    port: u16,
    tsi: towline::Tsi,
    recv_interface: Option<Selector>,
    send_interface: Option<Selector>,
    incoming: Arc<Incoming>,
    events: Arc<Events>,
}

/// A connected socket.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) incoming: Arc<Incoming>,
    pub(crate) inbox: Mutex<Inbox>,
    pub(crate) outgoing: Option<Arc<Outgoing>>,
    pub(crate) port: u16,
    pub(crate) may_wait: bool,
    pub(crate) aborts_on_reset: bool,
    pub(crate) apdu_limit: usize,
    /// How many messages of a row were taken, when the last call did not take all of them.
    pub(crate) parts_sent: AtomicUsize,
    /// Calls that wait are to end.
    pub(crate) is_closing: AtomicBool,
}

impl Life {
    pub(crate) const fn is_bound(&self) -> bool {
        self.bound.is_some()
    }

    pub(crate) const fn is_connected(&self) -> bool {
        self.is_connected
    }

    pub(crate) fn rate_remains(&self) -> Duration {
        let outgoing = self.rate.as_ref();
        outgoing.map_or(Duration::ZERO, |outgoing| outgoing.rate_remains())
    }

    /// Returns the number of a descriptor of a bound socket.
    pub(crate) fn descriptor(&self, which: Number) -> Option<RawFd> {
        let bound = self.bound.as_ref()?;
        let event = match which {
            Number::RecvSock => bound.incoming.recv(),
            Number::PendingSock => bound.incoming.pending(),
            Number::RepairSock => &bound.events.repair,
            _ => &bound.events.room,
        };
        Some(event.number())
    }
}

impl Sock {
    pub(crate) fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a call that sends or receives; `None` when the socket is not connected, or is being
    /// closed.
    pub(crate) fn call(&self) -> Option<Call<'_>> {
        let open = self.open.get()?;
        // A call that begins writes `calls` and then reads `is_closing`. A close writes
        // `is_closing` and then reads `calls`. At least one of them must see what the other has
        // written, or the close frees the socket beneath the call. Only one order of all four
        // grants that.
        self.calls.fetch_add(1, Ordering::SeqCst);
        let call = Call { sock: self, open };
        (!open.is_closing.load(Ordering::SeqCst)).then_some(call)
    }

    /// Ends the calls that other threads have under way. Returns false when one does not end in
    /// time.
    fn end_calls(&self) -> bool {
        if let Some(open) = self.open.get() {
            // The other side of this order is in `call`.
            open.is_closing.store(true, Ordering::SeqCst);
            open.incoming.end_waits();
        }
        let until = Instant::now() + CALLS_END_MAX;
        while self.calls.load(Ordering::SeqCst) > 0 {
            if Instant::now() > until {
                return false;
            }
            thread::sleep(Duration::from_millis(1));
        }
        true
    }
}

#[unsafe(no_mangle)]
extern "C" fn pgm_socket(
    place: Out<'_, *mut Sock>,
    family: u16,
    kind: c_int,
    protocol: c_int,
    slot: Slot<'_>,
) -> bool {
    guard(false, || {
        let is_known = matches!(family.into(), libc::AF_INET | libc::AF_INET6)
            && kind == libc::SOCK_SEQPACKET
            && matches!(protocol, libc::IPPROTO_UDP | IPPROTO_PGM);
        let Some(place) = place.filter(|_| is_known) else {
            return false;
        };
        let mut life = Life::default();
        life.settings.is_v6 = c_int::from(family) == libc::AF_INET6;
        life.settings.is_raw = protocol == IPPROTO_PGM;
        if let (true, Err(fault)) = (life.settings.is_raw, may_be_raw(life.settings.is_v6)) {
            error::put(slot, &fault);
            return false;
        }
        let sock = Sock {
            life: Mutex::new(life),
            open: OnceLock::new(),
            calls: AtomicU32::new(0),
        };
        place.write(Box::into_raw(Box::new(sock)));
        true
    })
}

/// Finds out whether this process may speak PGM in IP directly. The program is to learn it when it
/// makes the socket, and the session's sockets are opened only later.
fn may_be_raw(is_v6: bool) -> Result<(), Fault> {
    let family = if is_v6 {
        AddressFamily::INET6
    } else {
        AddressFamily::INET
    };
    let protocol = u32::try_from(IPPROTO_PGM).ok().and_then(RawProtocol::new);
    let flags = SocketFlags::CLOEXEC;
    let tried = socket_with(
        family,
        SocketType::RAW,
        flags,
        protocol.map(Protocol::from_raw),
    );
    match tried {
        Ok(_closed) => Ok(()),
        Err(Errno::PERM | Errno::ACCESS) => {
            let text = "PGM in IP needs CAP_NET_RAW: give the program the right to it (setcap \
                        cap_net_raw+ep PROGRAM), or use IPPROTO_UDP (ZeroMQ: epgm://)";
            Err(Fault::new(Domain::Socket, Code::Perm, text))
        }
        Err(error) => Err(error::system(
            Domain::Socket,
            "open a raw IP socket",
            &error.into(),
        )),
    }
}

#[unsafe(no_mangle)]
extern "C" fn pgm_bind(
    sock: Option<&Sock>,
    at: Option<&SockAddr>,
    len: u32,
    slot: Slot<'_>,
) -> bool {
    bind(sock, at, len, [None; 2], slot)
}

#[unsafe(no_mangle)]
extern "C" fn pgm_bind3(
    sock: Option<&Sock>,
    at: Option<&SockAddr>,
    len: u32,
    send: Option<&InterfaceReq>,
    send_len: u32,
    recv: Option<&InterfaceReq>,
    recv_len: u32,
    slot: Slot<'_>,
) -> bool {
    guard(false, || {
        let is_whole = |len: u32| len as usize == size_of::<InterfaceReq>();
        is_whole(send_len) && is_whole(recv_len) && bind(sock, at, len, [send, recv], slot)
    })
}

fn bind(
    sock: Option<&Sock>,
    at: Option<&SockAddr>,
    len: u32,
    [send, recv]: [Option<&InterfaceReq>; 2],
    slot: Slot<'_>,
) -> bool {
    guard(false, || {
        // Programs in C++ give the size of a pointer: OpenPGM's classes for them do.
        let (Some(sock), Some(at), true) = (sock, at, len > 0) else {
            return false;
        };
        // Packets to a sender have its ports in turned order. With equal ports, nobody could tell
        // them from its own packets.
        if at.tsi.sport != 0 && at.tsi.sport == at.port {
            return false;
        }
        let mut life = sock.life();
        if life.bound.is_some() {
            return false;
        }
        match Bound::new(&life.settings, at, send, recv) {
            Ok(bound) => life.bound = Some(bound),
            Err(fault) => error::put(slot, &fault),
        }
        life.bound.is_some()
    })
}

impl Bound {
    fn new(
        settings: &Settings,
        at: &SockAddr,
        send: Option<&InterfaceReq>,
        recv: Option<&InterfaceReq>,
    ) -> Result<Self, Fault> {
        if let Some(option) = settings.missing() {
            let text = format!("the socket option {option} is not set; set it before pgm_bind");
            return Err(Fault::new(Domain::Socket, Code::Failed, text));
        }
        let descriptors = |error: io::Error| {
            error::system(Domain::Socket, "make the socket's descriptors", &error)
        };
        let sport = match at.tsi.sport {
            0 => random_port(at.port),
            port => port,
        };
        Ok(Self {
            port: at.port,
            tsi: towline::Tsi {
                gsi: towline::Gsi(at.tsi.gsi.0),
                port: sport,
            },
            send_interface: interface(send)?,
            recv_interface: interface(recv)?,
            incoming: Arc::new(
                Incoming::new(settings.receive_window_bytes()).map_err(descriptors)?,
            ),
            events: Arc::new(Events::new().map_err(descriptors)?),
        })
    }
}

/// Returns the interface that a program names by its address or its index.
fn interface(request: Option<&InterfaceReq>) -> Result<Option<Selector>, Fault> {
    let Some(request) = request else {
        return Ok(None);
    };
    let address = request.address.get().map(|address| address.ip());
    match address.filter(|ip| !ip.is_unspecified()) {
        Some(ip) => Ok(Some(Selector::Address(ip))),
        None => by_index(request.index),
    }
}

fn by_index(index: u32) -> Result<Option<Selector>, Fault> {
    if index == 0 {
        return Ok(None);
    }
    let fault = |text: String| Fault::new(Domain::Socket, Code::NoDev, text);
    let all = Interfaces::read().map_err(|error| fault(error.to_string()))?;
    let found = all.with_index(index);
    let found = found.ok_or_else(|| {
        fault(format!(
            "there is no interface number {index}; name one of this host (`ip link`)"
        ))
    })?;
    Ok(Some(Selector::Name(found.name.clone())))
}

/// Draws a data-source port other than the destination's.
fn random_port(other: u16) -> u16 {
    match u16::from_ne_bytes(random_bytes()) {
        port if port == other || port == 0 => other ^ 1,
        port => port,
    }
}

#[unsafe(no_mangle)]
extern "C" fn pgm_connect(sock: Option<&Sock>, slot: Slot<'_>) -> bool {
    guard(false, || {
        let Some(sock) = sock else {
            return false;
        };
        let mut life = sock.life();
        let Some(bound) = life.bound.as_ref().filter(|_| !life.is_connected) else {
            return false;
        };
        let mut warnings = Vec::new();
        match open(&life.settings, bound, &mut warnings) {
            Ok(open) => {
                life.rate.clone_from(&open.outgoing);
                life.is_connected = sock.open.set(open).is_ok();
            }
            Err(fault) => {
                // Groups that were joined are left, and the program may try again.
                bound.incoming.halt();
                error::put(slot, &fault);
            }
        }
        let is_connected = life.is_connected;
        // The program's handler may ask the socket something, so the lock is released first.
        drop(life);
        warnings.iter().for_each(|warning| log::warn(warning));
        is_connected
    })
}

/// Opens the sessions of a socket that is bound.
fn open(settings: &Settings, bound: &Bound, warnings: &mut Vec<String>) -> Result<Open, Fault> {
    let fault =
        |error: towline::Error| Fault::new(Domain::Socket, Code::of(&error), error.to_string());
    let outgoing = match settings.send_group.filter(|_| settings.can_send()) {
        Some(group) => {
            let session = session(settings, bound, &group, bound.send_interface.as_ref())?
                .config(settings.sender())
                .tsi(bound.tsi);
            let mut publisher = Publisher::builder(session).open().map_err(fault)?;
            warnings.extend(publisher.take_warnings());
            let name = format!("{} of {}", address(settings, bound, &group), bound.tsi);
            let board = Board::open("publisher", &name, warnings);
            let events = Arc::clone(&bound.events);
            let outgoing = Outgoing::start(publisher, events, board, settings.rate_wait());
            Some(Arc::new(outgoing.map_err(fault)?))
        }
        None => None,
    };
    for group in settings.groups.iter().filter(|_| settings.can_receive()) {
        let session = session(settings, bound, group, bound.recv_interface.as_ref())?
            .config(settings.receiver());
        let mut subscriber = Subscriber::open(&session).map_err(fault)?;
        warnings.extend(subscriber.take_warnings());
        let name = address(settings, bound, group).to_string();
        let board = Board::open("subscriber", &name, warnings);
        let incoming = &bound.incoming;
        incoming
            .add(subscriber, bound.port, settings.mtu(), board)
            .map_err(fault)?;
    }
    Ok(Open {
        incoming: Arc::clone(&bound.incoming),
        inbox: Mutex::default(),
        outgoing,
        port: bound.port,
        may_wait: !settings.is_set(Number::Noblock),
        aborts_on_reset: settings.is_set(Number::AbortOnReset),
        apdu_limit: settings.apdu_limit(),
        parts_sent: AtomicUsize::new(0),
        is_closing: AtomicBool::new(false),
    })
}

/// Describes the session of a group. Receivers of other PGM libraries do not report, so here no
/// receiver does.
fn session(
    settings: &Settings,
    bound: &Bound,
    group: &GroupSetting,
    interface: Option<&Selector>,
) -> Result<SessionBuilder, Fault> {
    let fault =
        |error: net::SystemError| Fault::new(Domain::Socket, Code::Inval, error.to_string());
    let address = address(settings, bound, group);
    let named = match group.source {
        Some(source) => format!("{source}@{address}").parse::<Group>(),
        None => Group::new(address),
    };
    let own = by_index(group.interface)?;
    Ok(SessionBuilder::new(named.map_err(fault)?)
        .interface(interface.cloned().or(own))
        .pgm_port(bound.port)
        .reports(false)
        .sockets(settings.sockets()))
}

/// Returns the address and port of a group's packets.
fn address(settings: &Settings, bound: &Bound, group: &GroupSetting) -> SocketAddr {
    // OpenPGM receives NAKs only if both ports of the encapsulation are one, so they are one here.
    // Without UDP, there is only PGM's own port.
    let port = if settings.is_raw {
        bound.port
    } else {
        settings.get(Number::UdpEncapMcastPort) as u16
    };
    SocketAddr::new(group.group, port)
}

/// Closes a socket, and frees it. With or without `flush`, what was sent before leaves, and NAKs
/// are answered for a moment more. First, calls of other threads that send or receive end with an
/// error.
#[unsafe(no_mangle)]
extern "C" fn pgm_close(sock: Option<NonNull<Sock>>, _flush: bool) -> bool {
    guard(false, || {
        let Some(sock) = sock else {
            return false;
        };
        // SAFETY: the program closes a socket once.
        if unsafe { sock.as_ref() }.end_calls() {
            // SAFETY: `pgm_socket` has made it so, and no thread has it any more.
            drop(unsafe { Box::from_raw(sock.as_ptr()) });
        }
        // Otherwise a call still has it, and its memory stays.
        true
    })
}

#[unsafe(no_mangle)]
extern "C" fn pgm_getsockname(
    sock: Option<&Sock>,
    place: Out<'_, SockAddr>,
    len: Option<&mut u32>,
) -> bool {
    guard(false, || {
        let (Some(sock), Some(len)) = (sock, len) else {
            return false;
        };
        let life = sock.life();
        let (Some(bound), true) = (&life.bound, *len as usize >= size_of::<SockAddr>()) else {
            return false;
        };
        *len = size_of::<SockAddr>() as u32;
        let is_there = place.is_some();
        give(
            place,
            SockAddr {
                port: bound.port.to_be(),
                tsi: Tsi::of(bound.tsi),
            },
        );
        is_there
    })
}

/// Starts a thread that gets none of the process's signals: those are the program's.
pub(crate) fn spawn(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, towline::Error> {
    let named = thread::Builder::new().name(name.to_owned());
    let thread = without_signals(|| named.spawn(body));
    thread.map_err(|error| {
        net::SystemError::system("start", format!("the thread `{name}`"), &error)
            .advise(net::THREAD_REMEDY)
            .into()
    })
}

/// Runs `body`, whose new threads then get none of the process's signals.
pub(crate) fn without_signals<T>(body: impl FnOnce() -> T) -> T {
    let before = block_signals();
    let result = body();
    if let Some(before) = before {
        // SAFETY: the mask is one that the system gave.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut())
        };
    }
    result
}

/// Blocks all signals of this thread, and returns which were blocked before.
fn block_signals() -> Option<libc::sigset_t> {
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: the place is large enough for a mask.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: the first mask was filled, and the other's place is large enough.
    let result =
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
    // SAFETY: the call has written it.
    (result == 0).then(|| unsafe { before.assume_init() })
}

/// How long a close waits for calls of other threads. Without this limit, a handler of messages
/// that closes the socket of its own call would wait for ever.
const CALLS_END_MAX: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::Status;

    /// A connected socket without groups, on which receive calls wait.
    fn waiting() -> *mut Sock {
        let open = Open {
            incoming: Arc::new(Incoming::new(1000).unwrap()),
            inbox: Mutex::default(),
            outgoing: None,
            port: 7500,
            may_wait: true,
            aborts_on_reset: false,
            apdu_limit: 1000,
            parts_sent: AtomicUsize::new(0),
            is_closing: AtomicBool::new(false),
        };
        let sock = Sock {
            life: Mutex::default(),
            open: OnceLock::from(open),
            calls: AtomicU32::new(0),
        };
        Box::into_raw(Box::new(sock))
    }

    #[test]
    fn a_close_ends_the_calls_of_other_threads_before_it_frees() {
        let sock = NonNull::new(waiting()).unwrap();
        let address = sock.as_ptr().expose_provenance();
        let receiver = thread::spawn(move || {
            let mut room = [0_u8; 10];
            // SAFETY: the socket stays while the call lasts: that is what is tested.
            let sock = unsafe { &*std::ptr::with_exposed_provenance::<Sock>(address) };
            crate::receive::pgm_recv(
                Some(sock),
                room.as_mut_ptr().cast(),
                room.len(),
                0,
                None,
                None,
            )
        });
        // SAFETY: it is closed below.
        while unsafe { sock.as_ref() }.calls.load(Ordering::Acquire) == 0 {
            thread::yield_now();
        }
        assert!(pgm_close(Some(sock), true));
        assert_eq!(receiver.join().unwrap(), c_int::from(Status::Eof));
        assert!(!pgm_close(None, true));
    }
}
