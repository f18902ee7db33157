//! Plans of `tcp watch`, `tcp writes` and `tcp serve`.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use gauge::tcp::{PORT, WatchOf, Writes};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    Plan,
    place::address,
    session::{optional_seconds, seconds},
    udp::check_pictures,
};
use crate::{
    args::{CoalescingArg, Place, TcpServeArgs, TcpWatchArgs, TcpWritesArgs},
    failure::Failure,
};

/// `tcp watch --dry-run`: the plan to show what holds this host's TCP connections back.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct TcpWatchPlan {
    port: Option<u16>,
    pid: Option<u32>,
    /// Connections on which nothing has moved are shown, too.
    pub(crate) shows_idle: bool,
    #[serde(rename = "every_s", serialize_with = "seconds")]
    #[schemars(with = "f64")]
    pub(crate) every: Duration,
    #[serde(rename = "for_s", serialize_with = "optional_seconds")]
    #[schemars(with = "Option<f64>")]
    pub(crate) time: Option<Duration>,
}

impl Plan for TcpWatchPlan {
    const SCHEMA: &'static str = "towline.plan.tcp-watch";
}

impl TcpWatchPlan {
    pub(crate) fn new(args: &TcpWatchArgs) -> Result<Self, Failure> {
        if args.every < EVERY_MIN {
            let text = format!(
                "--every: the kernel counts in steps of some ms, so give {EVERY_MIN:?} or more"
            );
            return Err(Failure::usage(text));
        }
        Ok(Self {
            port: args.port,
            pid: args.pid,
            shows_idle: args.all,
            every: args.every,
            time: args.time,
        })
    }

    /// Says which connections are watched.
    pub(crate) fn of(&self) -> WatchOf {
        match (self.port, self.pid) {
            (Some(port), _) => WatchOf::Port(port),
            (None, Some(pid)) => WatchOf::Process(pid),
            (None, None) => WatchOf::All,
        }
    }
}

/// `tcp writes --dry-run`: the plan to measure how long requests with answers take over TCP.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct TcpWritesPlan {
    target: Place,
    sizes: Vec<usize>,
    writes: u16,
    modes: Vec<CoalescingArg>,
    /// Sizes of the send buffer, in bytes; an empty list leaves the size to the kernel.
    send_buffers: Vec<usize>,
    calls: u32,
    pub(crate) to: Vec<PathBuf>,
}

impl Plan for TcpWritesPlan {
    const SCHEMA: &'static str = "towline.plan.tcp-writes";
}

impl TcpWritesPlan {
    pub(crate) fn new(args: &TcpWritesArgs) -> Result<Self, Failure> {
        let whole = |sizes: &[u64]| -> Vec<usize> {
            let sizes = sizes.iter();
            sizes
                .map(|&size| usize::try_from(size).unwrap_or(usize::MAX))
                .collect()
        };
        let plan = Self {
            target: args.target.clone(),
            sizes: whole(&args.size),
            writes: args.writes,
            modes: args.mode.clone(),
            send_buffers: whole(&args.send_buffer),
            calls: args.calls,
            to: args.to.clone(),
        };
        check_pictures(&plan.to)?;
        if args.target.is_group() {
            let text = format!(
                "{} is a group, and TCP goes to a host: name one",
                args.target
            );
            return Err(Failure::usage(text));
        }
        let any = SocketAddr::from(([0, 0, 0, 0], PORT));
        let checked = plan.writes(any).check();
        let flags = if args.calls == 0 {
            "--calls"
        } else {
            "--size, --writes, --send-buffer"
        };
        checked.map_err(|error| Failure::usage(format!("{flags}: {error}")))?;
        Ok(plan)
    }

    /// Makes the task for the library; resolves the target.
    pub(crate) fn task(&self) -> Result<Writes, Failure> {
        Ok(self.writes(address(&self.target, PORT)?))
    }

    fn writes(&self, server: SocketAddr) -> Writes {
        let own = self.send_buffers.iter().map(|&bytes| Some(bytes));
        let mut send_buffers: Vec<Option<usize>> = own.collect();
        if send_buffers.is_empty() {
            send_buffers.push(None);
        }
        Writes {
            server,
            sizes: self.sizes.clone(),
            writes: self.writes.into(),
            send_buffers,
            coalescing: self.modes.iter().map(|&mode| mode.into()).collect(),
            calls: self.calls,
        }
    }
}

/// `tcp serve --dry-run`: the plan to answer the `tcp writes` of other hosts.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct TcpServePlan {
    pub(crate) listen: SocketAddr,
}

impl Plan for TcpServePlan {
    const SCHEMA: &'static str = "towline.plan.tcp-serve";
}

impl TcpServePlan {
    pub(crate) const fn new(args: &TcpServeArgs) -> Self {
        Self {
            listen: args.listen,
        }
    }
}

/// The shortest interval. In a shorter one the kernel's counters, which grow in steps of some ms,
/// would take only a few steps.
const EVERY_MIN: Duration = Duration::from_millis(100);
