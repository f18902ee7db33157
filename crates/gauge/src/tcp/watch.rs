//! Looks at the TCP connections of this host, and says what has held each back since the last look.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::SocketAddr,
};

use base::Instant;
use net::{NetworkLimit, NetworkSigns, SystemError, TcpLimit, TcpShares};
use serde::Serialize;
use sys::{TcpInfo, clock, netlink::TcpSocket};

use super::process;
use crate::Error;

/// Which connections are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchOf {
    /// All connections of this network namespace, by IPv4 and IPv6.
    All,
    /// Connections with this port at either end.
    Port(u16),
    /// Connections of this process.
    Process(u32),
}

/// A watch over connections.
#[derive(Debug)]
pub struct Watch {
    of: WatchOf,
    /// The connections that were there at the last look, by their cookies.
    seen: BTreeMap<u64, Seen>,
    /// Connections that have ended while they were watched, with the figures of all the time that
    /// they were seen; when there are too many, the oldest go.
    ended: VecDeque<Connection>,
    /// The process of each socket that was looked up, by the socket's inode.
    names: BTreeMap<u32, Option<Process>>,
    /// True when the watched process was looked at before.
    has_looked: bool,
    /// True when the watched process has ended since.
    has_ended: bool,
}

/// A connection at the first look at it, and at the last.
#[derive(Debug)]
struct Seen {
    first: (Instant, TcpInfo),
    at: Instant,
    socket: TcpSocket,
    /// The shares between the first look and the last, summed over all looks; `None` where the
    /// kernel does not count them.
    shares: Option<TcpShares>,
}

/// A connection, over the time between two looks.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Connection {
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// Tells connections apart, also those that have had the same addresses.
    pub cookie: u64,
    /// The process that has the connection; null when this user may not see it, or when no process
    /// has the connection any more.
    pub process: Option<Process>,
    /// The time between the two looks.
    pub seconds: f64,
    /// What held the sending side back; null where the kernel does not count it (before Linux
    /// 4.10).
    pub shares: Option<Shares>,
    /// The cause with the largest share; null without shares.
    pub limited_by: Option<LimitedBy>,
    /// Bytes that the peer acknowledged, each second.
    pub sent_per_s: f64,
    /// Bytes that arrived in order, each second.
    pub received_per_s: f64,
    /// Bytes that were sent again, in per cent of the bytes sent.
    pub resent_percent: f64,
    /// What waits at the socket, at the later look.
    pub socket: Queues,
    /// The congestion control.
    pub congestion: String,
    /// Every field that the kernel has, at the later look: `struct tcp_info`.
    pub info: BTreeMap<String, u64>,
}

/// The bytes that wait at a socket, and the sizes of its buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Queues {
    /// Bytes that arrived and that the application has not read.
    pub unread_bytes: u32,
    /// Bytes that the application wrote and that the peer has not acknowledged.
    pub unacknowledged_bytes: u32,
    /// The size of the send buffer.
    pub send_buffer_bytes: u32,
    /// The size of the receive buffer.
    pub receive_buffer_bytes: u32,
    /// Packets that were dropped at the socket so far.
    pub drops: u32,
}

/// The process that a connection belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Process {
    /// The process ID.
    pub pid: u32,
    /// Its program's name, up to 15 bytes.
    pub name: String,
}

/// Shares of the time, in per cent; they sum to 100.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Shares {
    /// Nothing was queued: the application gave nothing to send.
    pub application_percent: f64,
    /// The peer's receive window was full.
    pub receiver_percent: f64,
    /// The send buffer was too small for what was under way.
    pub send_buffer_percent: f64,
    /// The rest: loss, queues, pacing, the congestion window.
    pub network_percent: f64,
}

/// What holds a connection back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum LimitedBy {
    /// The application gave nothing to send.
    Application,
    /// The peer's window: its application does not read, or its buffer is small.
    Receiver,
    /// The send buffer.
    SendBuffer,
    /// The network: what was lost and sent again.
    Loss,
    /// The network: packets wait in a queue on the way.
    Queue,
    /// The network: the rate of the path or of the congestion control.
    Path,
}

impl Watch {
    /// Makes a watch that has not looked yet.
    #[must_use]
    pub const fn new(of: WatchOf) -> Self {
        Self {
            of,
            seen: BTreeMap::new(),
            ended: VecDeque::new(),
            names: BTreeMap::new(),
            has_looked: false,
            has_ended: false,
        }
    }

    /// Looks at the connections. Returns those that were also there at the last look, the busiest
    /// first; so the first look returns none.
    ///
    /// # Errors
    /// When the kernel does not list its sockets; or, at the first look, when it does not show
    /// those of the watched process.
    ///
    /// **Cost**: microseconds for each connection of the host; the process of a connection is
    /// looked up once.
    pub fn look(&mut self) -> Result<Vec<Connection>, Error> {
        let sockets = match self.sockets() {
            // While the parent of an ended process has not reaped it, root can still read the list
            // of its sockets, which is empty.
            _ if self.has_process_ended() => {
                self.has_ended = true;
                Vec::new()
            }
            sockets => sockets?,
        };
        self.has_looked = true;
        let now = clock::monotonic();
        self.name(sockets.iter().map(|socket| socket.inode));
        let mut before = std::mem::take(&mut self.seen);
        let mut rows = Vec::new();
        for socket in sockets {
            let (first, shares) = match before.remove(&socket.cookie) {
                Some(seen) => {
                    let since = (seen.at, seen.socket.info);
                    let latest = shares_between(&since, &socket, now);
                    rows.push(self.row(&socket, since, now, latest));
                    let both = seen.shares.zip(latest).map(|(mut sum, latest)| {
                        sum += latest;
                        sum
                    });
                    (seen.first, both)
                }
                None => ((now, socket.info), Some(TcpShares::default())),
            };
            let seen = Seen {
                first,
                at: now,
                socket,
                shares,
            };
            self.seen.insert(seen.socket.cookie, seen);
        }
        for seen in before.values().filter(|seen| seen.at > seen.first.0) {
            let row = self.row(&seen.socket, seen.first, seen.at, seen.shares);
            self.ended.push_back(row);
        }
        while self.ended.len() > ENDED_MAX {
            self.ended.pop_front();
        }
        // Names are dropped last, because the rows of ended connections above still need them.
        let there: BTreeSet<u32> = self.seen.values().map(|seen| seen.socket.inode).collect();
        self.names.retain(|inode, _| there.contains(inode));
        rows.sort_by(busiest_first);
        Ok(rows)
    }

    /// Returns the connections with the figures of all the time that each was seen, the busiest
    /// first. Connections that have ended are included, the last thousand of them.
    #[must_use]
    pub fn whole(&self) -> Vec<Connection> {
        let seen = self.seen.values().filter(|seen| seen.at > seen.first.0);
        let there = seen.map(|seen| self.row(&seen.socket, seen.first, seen.at, seen.shares));
        let mut rows: Vec<_> = self.ended.iter().cloned().chain(there).collect();
        rows.sort_by(busiest_first);
        rows
    }

    /// Returns true when the watched process has ended: further looks show nothing.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        self.has_ended
    }

    fn has_process_ended(&self) -> bool {
        match self.of {
            WatchOf::Process(pid) => self.has_looked && process::has_ended(pid),
            WatchOf::All | WatchOf::Port(_) => false,
        }
    }

    fn row(
        &self,
        socket: &TcpSocket,
        since: (Instant, TcpInfo),
        until: Instant,
        shares: Option<TcpShares>,
    ) -> Connection {
        let process = self.names.get(&socket.inode).cloned().flatten();
        Connection::between(socket, since, until, shares, process)
    }

    fn sockets(&self) -> Result<Vec<TcpSocket>, Error> {
        let all = TcpSocket::all().map_err(|error| {
            let text = format!("cannot list the TCP connections: {error}");
            Error::Measurement(text)
        })?;
        let own: Option<BTreeSet<u32>> = match self.of {
            WatchOf::Process(pid) => {
                let inodes = process::sockets_of(pid);
                let inodes = inodes.map_err(|error| {
                    let target = format!("the sockets of process {pid}");
                    match error.kind() {
                        std::io::ErrorKind::NotFound => {
                            SystemError::refused("list", target, "there is no such process")
                                .advise("name a process that is running (`ps`)")
                        }
                        std::io::ErrorKind::PermissionDenied => {
                            SystemError::system("list", target, &error)
                                .advise("watch a process of your own, or run as root")
                        }
                        _ => SystemError::system("list", target, &error),
                    }
                })?;
                Some(inodes.into_iter().collect())
            }
            WatchOf::All | WatchOf::Port(_) => None,
        };
        let is_meant = |socket: &TcpSocket| match (self.of, &own) {
            (WatchOf::Port(port), _) => [socket.local.port(), socket.remote.port()].contains(&port),
            (_, Some(own)) => own.contains(&socket.inode),
            (_, None) => true,
        };
        Ok(all.into_iter().filter(is_meant).collect())
    }

    /// Looks up the processes of sockets that were not looked up before.
    fn name(&mut self, inodes: impl Iterator<Item = u32>) {
        let inodes: BTreeSet<u32> = inodes.collect();
        if inodes.iter().all(|inode| self.names.contains_key(inode)) {
            return;
        }
        let owners = process::all();
        for inode in inodes {
            let process = owners.get(&inode).map(|&pid| Process {
                pid,
                name: process::name_of(pid),
            });
            self.names.entry(inode).or_insert(process);
        }
    }
}

/// Returns what held a connection back between two looks.
fn shares_between(
    (since, before): &(Instant, TcpInfo),
    socket: &TcpSocket,
    until: Instant,
) -> Option<TcpShares> {
    let shares = TcpShares::between(before, &socket.info, until.since(*since))?;
    Some(shares.with_buffers(&socket.info, &socket.buffers))
}

fn busiest_first(one: &Connection, other: &Connection) -> Ordering {
    let rate = |row: &Connection| row.sent_per_s + row.received_per_s;
    rate(other).total_cmp(&rate(one))
}

impl Connection {
    fn between(
        socket: &TcpSocket,
        (since, before): (Instant, TcpInfo),
        until: Instant,
        shares: Option<TcpShares>,
        process: Option<Process>,
    ) -> Self {
        let (after, elapsed) = (&socket.info, until.since(since));
        let seconds = elapsed.as_secs_f64();
        let rate = |of: fn(&TcpInfo) -> Option<u64>| {
            let (more, less) = (of(after).unwrap_or(0), of(&before).unwrap_or(0));
            more.saturating_sub(less) as f64 / seconds
        };
        let signs = NetworkSigns::between(&before, after);
        let limit = shares.and_then(|shares| shares.limit(&signs));
        Self {
            local: socket.local,
            remote: socket.remote,
            cookie: socket.cookie,
            process,
            seconds,
            shares: shares.map(Shares::from),
            limited_by: limit.map(LimitedBy::from),
            sent_per_s: rate(TcpInfo::bytes_acked),
            received_per_s: rate(TcpInfo::bytes_received),
            resent_percent: signs.resent_bytes as f64 * 100.0 / signs.sent_bytes.max(1) as f64,
            socket: Queues {
                unread_bytes: socket.unread_bytes,
                unacknowledged_bytes: socket.unacknowledged_bytes,
                send_buffer_bytes: socket.buffers.send_bytes,
                receive_buffer_bytes: socket.buffers.receive_bytes,
                drops: socket.buffers.drops,
            },
            congestion: socket.congestion.clone(),
            info: after
                .iter()
                .map(|(field, value)| (field.name.to_owned(), value))
                .collect(),
        }
    }

    /// Returns a field of `struct tcp_info` by its name; 0 when the kernel does not have it.
    #[must_use]
    pub fn field(&self, name: &str) -> u64 {
        self.info.get(name).copied().unwrap_or(0)
    }

    /// Returns true when data has left or arrived.
    #[must_use]
    pub fn has_moved(&self) -> bool {
        self.sent_per_s + self.received_per_s > 0.0
    }
}

impl From<TcpShares> for Shares {
    fn from(shares: TcpShares) -> Self {
        let [application, receiver, send_buffer, network] = shares.percents();
        Self {
            application_percent: application,
            receiver_percent: receiver,
            send_buffer_percent: send_buffer,
            network_percent: network,
        }
    }
}

impl From<TcpLimit> for LimitedBy {
    fn from(limit: TcpLimit) -> Self {
        match limit {
            TcpLimit::Application => Self::Application,
            TcpLimit::Receiver => Self::Receiver,
            TcpLimit::SendBuffer => Self::SendBuffer,
            TcpLimit::Network(NetworkLimit::Loss) => Self::Loss,
            TcpLimit::Network(NetworkLimit::Queue) => Self::Queue,
            TcpLimit::Network(NetworkLimit::Path) => Self::Path,
        }
    }
}

impl LimitedBy {
    /// Returns the cause in words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Application => "application",
            Self::Receiver => "receiver",
            Self::SendBuffer => "send buffer",
            Self::Loss => "network (loss)",
            Self::Queue => "network (queue)",
            Self::Path => "network (path)",
        }
    }
}

/// How many connections that have ended are remembered.
const ENDED_MAX: usize = 1_000;
