//! Network, name, mount and user namespaces. They make separate hosts on one machine, and give a
//! user who is not root the rights of root over these hosts.
//!
//! A [`Namespace`] (of the network, of the host's name or of mounts) is held by a descriptor alone.
//! It disappears when no process has the descriptor or runs inside any more, even if the last
//! process was killed. A thread that enters a namespace stays there, so [`run_in`] uses a thread of
//! its own. A command can start in a namespace ([`CommandExt::namespace`]).
//!
//! A user namespace makes an ordinary user root over new network namespaces. The kernel lets only a
//! process with a single thread create a user namespace. A process has a single thread at the very
//! start of `main` ([`enter_user_namespace`]), and between fork and exec
//! ([`CommandExt::user_namespace`]).
#![expect(unsafe_code, reason = "namespace, process and descriptor system calls")]

use std::{
    ffi::{CStr, CString},
    fmt, fs, io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{fs::MetadataExt, process::CommandExt as _},
    },
    panic,
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use rustix::{
    event::PollFlags,
    fs::{Mode, OFlags},
    io::Errno,
    mount::{MountFlags, MountPropagationFlags, mount, mount_change},
    process::{
        Pid, PidfdFlags, Signal, getegid, getppid, pidfd_open, pidfd_send_signal,
        set_parent_process_death_signal,
    },
    system::sethostname,
    thread::{UnshareFlags, move_into_link_name_space, unshare_unsafe},
};

use crate::datagram;

/// A namespace, held by a descriptor. Clones share the descriptor.
#[derive(Clone, Debug)]
pub struct Namespace {
    fd: Arc<OwnedFd>,
}

impl Namespace {
    /// Makes an empty network namespace: it has only a loopback interface, which is down. The
    /// calling thread does not enter it.
    ///
    /// # Errors
    /// EPERM without CAP_SYS_ADMIN, ENOSPC beyond `user.max_net_namespaces`.
    pub fn network() -> io::Result<Self> {
        on_own_thread(|| {
            unshare(UnshareFlags::NEWNET)?;
            Self::of_this_thread("/proc/thread-self/ns/net")
        })
    }

    /// Makes a namespace in which this machine has the name `name` (64 bytes at most). The calling
    /// thread does not enter it.
    ///
    /// # Errors
    /// EPERM without CAP_SYS_ADMIN, ENOSPC beyond `user.max_uts_namespaces`.
    pub fn host_name(name: &str) -> io::Result<Self> {
        on_own_thread(|| {
            unshare(UnshareFlags::NEWUTS)?;
            sethostname(name.as_bytes())?;
            Self::of_this_thread("/proc/thread-self/ns/uts")
        })
    }

    /// Makes a namespace of mounts in which an empty filesystem in memory, with room for `bytes`
    /// bytes, covers the directory `at`. Outside the namespace this mount is not visible. The
    /// calling thread does not enter it.
    ///
    /// # Errors
    /// EPERM without CAP_SYS_ADMIN, ENOSPC beyond `user.max_mnt_namespaces`, and the errors of
    /// mount(2) for `at`.
    pub fn filesystem(at: &Path, bytes: u64, access: Access) -> io::Result<Self> {
        let options = CString::new(format!("size={bytes}"))?;
        let flags = match access {
            Access::ReadWrite => MountFlags::empty(),
            Access::ReadOnly => MountFlags::RDONLY,
        };
        on_own_thread(|| {
            unshare(UnshareFlags::NEWNS)?;
            // Mounts made outside still appear here; mounts made here do not appear outside.
            let inwards = MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM;
            mount_change("/", inwards)?;
            mount("tmpfs", at, "tmpfs", flags, options.as_c_str())?;
            Self::of_this_thread("/proc/thread-self/ns/mnt")
        })
    }

    fn of_this_thread(path: &str) -> io::Result<Self> {
        let file = fs::File::open(path)?;
        Ok(Self {
            fd: Arc::new(file.into()),
        })
    }

    /// Returns the identity of this namespace. While this namespace exists, no other namespace on
    /// the machine has the same identity.
    ///
    /// # Errors
    /// When the descriptor cannot be examined; not expected.
    pub fn id(&self) -> io::Result<NamespaceId> {
        let metadata = fs::File::from(self.fd.try_clone()?).metadata()?;
        Ok(NamespaceId {
            device: metadata.dev(),
            inode: metadata.ino(),
        })
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The kind of access to a filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading and writing.
    ReadWrite,
    /// Only reading.
    ReadOnly,
}

/// The identity of a namespace: device and inode of its file under `/proc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamespaceId {
    device: u64,
    inode: u64,
}

/// Runs `body` on a thread of its own inside these namespaces, and returns its result. A panic in
/// `body` continues in the caller.
///
/// # Errors
/// When the process may not enter a namespace.
pub fn run_in<T: Send>(
    namespaces: &[&Namespace],
    body: impl FnOnce() -> T + Send,
) -> io::Result<T> {
    on_own_thread(|| {
        // This thread gets a root and working directory of its own: without these it cannot enter a
        // namespace of mounts.
        unshare(UnshareFlags::FS)?;
        for namespace in namespaces {
            move_into_link_name_space(namespace.as_fd(), None)?;
        }
        Ok(body())
    })
}

/// Settings of a command: the namespaces that it starts in, and when it is killed.
pub trait CommandExt {
    /// Starts the command inside `namespace`. Call it once for each kind of namespace.
    fn namespace(&mut self, namespace: &Namespace) -> &mut Self;

    /// Starts the command as root of a new user namespace, with an empty network namespace of its
    /// own. When the machine forbids that, spawning fails with an error that [`Refusal::from_io`]
    /// reads.
    fn user_namespace(&mut self) -> &mut Self;

    /// Makes the kernel kill the command when the *thread* that starts it ends, for whatever
    /// reason.
    fn dies_with_its_starter(&mut self) -> &mut Self;
}

impl CommandExt for Command {
    fn namespace(&mut self, namespace: &Namespace) -> &mut Self {
        let fd = Arc::clone(&namespace.fd);
        // SAFETY: between fork and exec the closure makes one setns(2) call on a descriptor that
        // the closure itself keeps open; it neither allocates nor locks.
        unsafe { self.pre_exec(move || Ok(move_into_link_name_space(fd.as_fd(), None)?)) }
    }

    fn user_namespace(&mut self) -> &mut Self {
        let maps = IdMaps::of_this_process();
        // SAFETY: between fork and exec the closure makes system calls only (unshare, open, write,
        // close) on memory prepared here; it neither allocates nor locks.
        unsafe { self.pre_exec(move || become_root(&maps).map_err(Refusal::into_io)) }
    }

    fn dies_with_its_starter(&mut self) -> &mut Self {
        let starter = std::process::id();
        let bind = move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            let parent = getppid().map(|parent| parent.as_raw_pid().cast_unsigned());
            if parent == Some(starter) {
                Ok(())
            } else {
                // The starter died before the signal was set.
                Err(Errno::SRCH.into())
            }
        };
        // SAFETY: between fork and exec the closure makes two system calls on integers.
        unsafe { self.pre_exec(bind) }
    }
}

/// Makes the calling process root of a new user namespace, with an empty network namespace of its
/// own. It first tries this on a forked child, so that a refusal there leaves the process as it
/// was.
///
/// # Errors
/// The step that the machine forbids. EINVAL at [`Step::UserNamespace`] when the process already
/// has several threads: then start it again through [`CommandExt::user_namespace`].
pub fn enter_user_namespace() -> Result<(), Refusal> {
    probe_user_namespace()?;
    become_root(&IdMaps::of_this_process())
}

/// Tries [`CommandExt::user_namespace`] on a forked child that does nothing else.
///
/// # Errors
/// The step that the machine forbids.
pub fn probe_user_namespace() -> Result<(), Refusal> {
    let mut command = Command::new("/proc/self/exe");
    command.stdin(Stdio::null()).user_namespace();
    // SAFETY: the closure builds an error from an integer; it neither allocates nor locks.
    unsafe { command.pre_exec(|| Err(io::Error::from_raw_os_error(PROBE_PASSED))) };
    // This closure runs last before exec and always fails, so no program is ever executed.
    match command.spawn() {
        Err(error) if error.raw_os_error() == Some(PROBE_PASSED) => Ok(()),
        Err(error) => Err(Refusal::from_io(&error)),
        Ok(mut child) => {
            let killed = child.kill().and_then(|()| child.wait());
            debug_assert!(killed.is_ok(), "a probe that started could be ended");
            Ok(())
        }
    }
}

/// A step on the way into a user namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Starting a process.
    Start,
    /// Making the user namespace.
    UserNamespace,
    /// Mapping this user to root in the user namespace.
    IdMap,
    /// Making a network namespace in the user namespace.
    NetworkNamespace,
}

/// A refusal of a user namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The step that failed.
    pub step: Step,
    /// The step's error number.
    pub errno: i32,
}

impl Refusal {
    fn at(step: Step, errno: Errno) -> Self {
        Self {
            step,
            errno: errno.raw_os_error(),
        }
    }

    /// Packs step and error number into one number, because a child whose spawn fails can hand its
    /// parent only one number.
    fn into_io(self) -> io::Error {
        let step = match self.step {
            Step::Start => 0,
            Step::UserNamespace => 1,
            Step::IdMap => 2,
            Step::NetworkNamespace => 3,
        };
        io::Error::from_raw_os_error(step * STEP_FACTOR + self.errno)
    }

    /// Reads the error of a spawn that went through [`CommandExt::user_namespace`].
    #[must_use]
    pub fn from_io(error: &io::Error) -> Self {
        let number = error.raw_os_error().unwrap_or(0);
        let step = match number / STEP_FACTOR {
            1 => Step::UserNamespace,
            2 => Step::IdMap,
            3 => Step::NetworkNamespace,
            _ => Step::Start,
        };
        Self {
            step,
            errno: number % STEP_FACTOR,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.step {
            Step::Start => "start a process",
            Step::UserNamespace => "make a user namespace",
            Step::IdMap => "map this user to root in a user namespace",
            Step::NetworkNamespace => "make a network namespace inside a user namespace",
        };
        if self.errno == libc::ENOSPC {
            // The system's own text for this error speaks of a full disk.
            return write!(
                f,
                "cannot {what}: this user has as many namespaces as the kernel allows"
            );
        }
        let error = io::Error::from_raw_os_error(self.errno);
        write!(f, "cannot {what}: {error}")
    }
}

impl std::error::Error for Refusal {}

/// Kills every process in any of these network namespaces, except this process. Waits at most two
/// seconds for each of them to end. Returns the number of processes killed.
///
/// The function finds only processes whose namespace this user may examine. Processes that this
/// process started are normally among them.
#[must_use]
pub fn end_processes_in(namespaces: &[NamespaceId]) -> usize {
    let own = std::process::id();
    let Ok(entries) = fs::read_dir("/proc") else {
        return 0;
    };
    let mut ending = Vec::new();
    for entry in entries.flatten() {
        let pid = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        let Some(pid) = pid.filter(|&pid: &u32| pid != own) else {
            continue;
        };
        if !is_in(pid, namespaces) {
            continue;
        }
        // `pid` may have gone to another process before the descriptor was opened, so the namespace
        // is checked again. From then on, the descriptor leads to the same process.
        if let Some(process) = open_process(pid)
            && is_in(pid, namespaces)
            && pidfd_send_signal(&process, Signal::KILL).is_ok()
        {
            ending.push(process);
        }
    }
    for process in &ending {
        // A failure or a time-out means that the process is still ending; nothing more can be done.
        let _ended = datagram::wait(process.as_fd(), PollFlags::IN, END_LIMIT);
    }
    ending.len()
}

fn is_in(pid: u32, namespaces: &[NamespaceId]) -> bool {
    fs::metadata(format!("/proc/{pid}/ns/net")).is_ok_and(|metadata| {
        namespaces.contains(&NamespaceId {
            device: metadata.dev(),
            inode: metadata.ino(),
        })
    })
}

fn open_process(pid: u32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(pid.try_into().ok()?)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// The texts that map this user and group to root. They are made before the fork, because a forked
/// child must not allocate.
struct IdMaps {
    user: String,
    group: String,
}

impl IdMaps {
    fn of_this_process() -> Self {
        let user = crate::file::effective_user();
        let group = getegid().as_raw();
        Self {
            user: format!("0 {user} 1\n"),
            group: format!("0 {group} 1\n"),
        }
    }
}

/// Makes the calling process root of namespaces of its own. Uses system calls only, because a child
/// calls it between fork and exec.
fn become_root(maps: &IdMaps) -> Result<(), Refusal> {
    let at = |step| move |errno| Refusal::at(step, errno);
    unshare(UnshareFlags::NEWUSER).map_err(at(Step::UserNamespace))?;
    // An ordinary user may map groups only after giving up setgroups(2).
    let files: [(&CStr, &[u8]); 3] = [
        (c"/proc/self/setgroups", b"deny"),
        (c"/proc/self/uid_map", maps.user.as_bytes()),
        (c"/proc/self/gid_map", maps.group.as_bytes()),
    ];
    for (path, text) in files {
        write_file(path, text).map_err(at(Step::IdMap))?;
    }
    unshare(UnshareFlags::NEWNET).map_err(at(Step::NetworkNamespace))
}

fn write_file(path: &CStr, text: &[u8]) -> Result<(), Errno> {
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    // The kernel takes the whole text or nothing for `setgroups`, `uid_map` and `gid_map`.
    rustix::io::write(file, text).map(drop)
}

/// Gives the calling thread new namespaces, or (`FS`) a root and working directory of its own. For
/// a user namespace, the process must have no other thread.
fn unshare(what: UnshareFlags) -> Result<(), Errno> {
    // SAFETY: a thread would see other descriptors behind the same numbers only with a table of its
    // own (`FILES`), and no caller asks for that.
    unsafe { unshare_unsafe(what) }
}

fn on_own_thread<T: Send>(body: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let handle = thread::Builder::new().spawn_scoped(scope, body)?;
        handle
            .join()
            .unwrap_or_else(|cause| panic::resume_unwind(cause))
    })
}

/// The longest wait for one killed process to end.
const END_LIMIT: Duration = Duration::from_secs(2);
/// The factor of the step in a number that combines a step and an error number: it is larger than
/// any error number of Linux.
const STEP_FACTOR: i32 = 100_000;
const PROBE_PASSED: i32 = 9 * STEP_FACTOR;

/// Runs `body` in an empty network whose loopback interface is up; says why when it cannot.
#[cfg(test)]
pub(crate) fn on_loopback(body: impl FnOnce(u32) + Send) {
    let Ok(network) = Namespace::network() else {
        println!("skipped: network namespaces are not permitted here");
        return;
    };
    let entered = run_in(&[&network], || {
        let mut netlink = crate::netlink::Rtnetlink::open().unwrap();
        let index = netlink.link_index("lo").unwrap();
        netlink.set_up(index, true).unwrap();
        body(index);
    });
    entered.unwrap();
}
