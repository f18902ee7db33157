//! The serving side: slots into which sessions publish, and the thread that answers readers.

use std::{
    fs, io,
    net::{Shutdown, SocketAddr},
    os::fd::OwnedFd,
    os::unix::{
        fs::PermissionsExt as _,
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use net::http::write_until;

use super::{CounterReading, MetricsServer, ProcessCounters, SessionCounters, directory};
use crate::Snapshot;

/// A server of this process's counters. It serves until it is dropped.
#[derive(Debug)]
pub struct CounterServer {
    shared: Arc<Shared>,
    path: PathBuf,
    /// The listening socket. Shutting it down ends the wait of `thread`.
    listening: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl CounterServer {
    /// Starts serving. Readers see `command` as the process's name.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] while another server of this process serves. Another error
    /// when the socket or the thread cannot be made. The process can go on without a server.
    pub fn start(command: &str) -> io::Result<Self> {
        Self::start_in(&directory::path()?, command)
    }

    /// Starts serving in a directory of the caller's choice.
    ///
    /// # Errors
    /// As [`CounterServer::start`].
    pub(super) fn start_in(directory: &Path, command: &str) -> io::Result<Self> {
        directory::create(directory)?;
        let path = directory::socket(directory, std::process::id());
        let failed = |error: io::Error| {
            let cause = sys::with_usual_remedy(&error);
            io::Error::new(error.kind(), format!("{}: {cause}", path.display()))
        };
        // Without this lock, two threads that start servers at once could both find that none runs.
        let _starting = lock(&STARTING);
        // Connecting fails if the socket was left by a dead process that had the same process id:
        // nothing accepts there.
        if UnixStream::connect(&path).is_ok() {
            let text = "this process serves its counters already: use that server's slots";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let listener = UnixListener::bind(&path).map_err(failed)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).map_err(failed)?;
        let shared = Arc::new(Shared {
            command: command.to_owned(),
            started: Instant::now(),
            is_over: AtomicBool::new(false),
            slots: Mutex::default(),
        });
        let serving = Arc::clone(&shared);
        let listening = UnixStream::from(OwnedFd::from(listener.try_clone()?));
        let thread = thread::Builder::new()
            .name("counters".into())
            .spawn(move || serving.serve(&listener));
        let thread = thread.map_err(|error| {
            let text = format!(
                "cannot start the thread that serves counters: {error}; {}",
                sys::THREAD_REMEDY
            );
            io::Error::new(error.kind(), text)
        })?;
        Ok(Self {
            shared,
            path,
            listening,
            thread: Some(thread),
        })
    }

    /// Answers `GET /metrics` over HTTP on `address` with these counters in Prometheus's format,
    /// until the returned server is dropped. Everybody who can reach the address can read them.
    ///
    /// # Errors
    /// When the address is in use or not of this machine, or when the system refuses.
    pub fn serve_metrics(&self, address: SocketAddr) -> io::Result<MetricsServer> {
        let shared = Arc::clone(&self.shared);
        MetricsServer::start(address, move || shared.document().prometheus())
    }

    /// Adds a session to the list, and returns its slot. Dropping the slot and all its clones
    /// removes the session.
    #[must_use]
    pub fn slot(&self, role: &str, name: &str) -> CounterSlot {
        let mut slots = lock(&self.shared.slots);
        let session = Arc::new(Session {
            id: slots.next_id,
            role: role.to_owned(),
            name: Mutex::new(name.to_owned()),
            snapshot: Mutex::default(),
        });
        slots.next_id += 1;
        slots.sessions.retain(|weak| weak.strong_count() > 0);
        slots.sessions.push(Arc::downgrade(&session));
        CounterSlot { session }
    }
}

/// The lock that is held while a server starts.
static STARTING: Mutex<()> = Mutex::new(());

impl Drop for CounterServer {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        // The thread sleeps in accept, which returns when the listener is shut down.
        let is_awake = self.listening.shutdown(Shutdown::Both).is_ok();
        if let (true, Some(thread)) = (is_awake, self.thread.take()) {
            // If the serving thread panicked, the panic was printed, and other threads do not
            // depend on it.
            drop(thread.join());
        }
        drop(fs::remove_file(&self.path));
    }
}

/// The place where one session publishes its counters.
#[derive(Clone, Debug)]
pub struct CounterSlot {
    session: Arc<Session>,
}

impl CounterSlot {
    /// Replaces the published counters by those that `fill` adds. While a reader is copying,
    /// returns false without calling `fill`. **Cost**: no allocation after the first time.
    pub fn publish(&self, fill: impl FnOnce(&mut Snapshot)) -> bool {
        let Ok(mut snapshot) = self.session.snapshot.try_lock() else {
            return false;
        };
        snapshot.clear();
        snapshot.taken = Some(Instant::now());
        fill(&mut snapshot);
        true
    }

    /// Changes the session's name for readers, when more is known about the session.
    pub fn rename(&self, name: &str) {
        name.clone_into(&mut lock(&self.session.name));
    }
}

#[derive(Debug)]
struct Shared {
    command: String,
    started: Instant,
    is_over: AtomicBool,
    slots: Mutex<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    next_id: u64,
    sessions: Vec<Weak<Session>>,
}

#[derive(Debug)]
struct Session {
    id: u64,
    role: String,
    name: Mutex<String>,
    snapshot: Mutex<Snapshot>,
}

impl Shared {
    fn serve(&self, listener: &UnixListener) {
        for stream in listener.incoming() {
            if self.is_over.load(Ordering::Acquire) {
                return;
            }
            match stream {
                // If a reader has left or does not read, the next one is answered all the same.
                Ok(stream) => drop(self.answer(stream)),
                // The process probably has no free descriptor. Trying again at once would keep this
                // thread busy, so it waits; a late answer does little harm.
                Err(_) => thread::sleep(ANSWER_TIME_MAX),
            }
        }
    }

    fn answer(&self, mut stream: UnixStream) -> io::Result<()> {
        let mut document = serde_json::to_vec(&self.document())?;
        document.push(b'\n');
        let until = Instant::now() + ANSWER_TIME_MAX;
        write_until(&mut stream, &document, until, |stream, left| {
            stream.set_write_timeout(Some(left))
        })
    }

    fn document(&self) -> ProcessCounters {
        let sessions: Vec<_> = lock(&self.slots)
            .sessions
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        ProcessCounters {
            schema: ProcessCounters::SCHEMA.to_owned(),
            version: ProcessCounters::VERSION,
            pid: std::process::id(),
            command: self.command.clone(),
            uptime_s: self.started.elapsed().as_secs_f64(),
            sessions: sessions.iter().map(|session| session.document()).collect(),
        }
    }
}

impl Session {
    fn document(&self) -> SessionCounters {
        let snapshot = lock(&self.snapshot);
        let readings = snapshot
            .values
            .iter()
            .map(|&(set, info, value)| CounterReading {
                set: set.to_owned(),
                name: info.name.to_owned(),
                unit: info.unit.name().to_owned(),
                help: info.help.to_owned(),
                value,
            });
        SessionCounters {
            id: self.id,
            role: self.role.clone(),
            name: lock(&self.name).clone(),
            age_s: snapshot
                .taken
                .map_or(0.0, |taken| taken.elapsed().as_secs_f64()),
            counters: readings.collect(),
            receivers: snapshot.receivers,
            behind: snapshot.behind,
        }
    }
}

/// Locks `mutex`, even when a thread panicked while holding it: the data behind these locks stays
/// valid.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const ANSWER_TIME_MAX: Duration = Duration::from_secs(1);
