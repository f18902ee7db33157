//! Plans of `rtt reflect`, `rtt run` and `rtt plot`.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use gauge::rtt::{
    Campaign, Engine, MESSAGE_BYTES_MAX, PORT, PROBE_BYTES_MIN, ReflectSpec, Schedule, Scheduling,
    Variant, Wait,
    plot::{Options, Scale, View},
};
use measure::Format;
use schemars::JsonSchema;
use serde::Serialize;
use towline::Selector;

use super::{
    Plan,
    place::{address, interface_of},
    session::{optional_seconds, optional_text, seconds},
};
use crate::{
    args::{
        EngineArg, FIFO_PRIORITY, OverArg, PictureArgs, Place, RttPlotArgs, RttReflectArgs,
        RttRunArgs, STAMP_EVERY, ThreadArgs, ViewArg, WaitArg,
    },
    failure::Failure,
};

/// The settings of the thread that moves packets.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct ThreadPlan {
    pub(crate) wait: WaitArg,
    pub(crate) engine: EngineArg,
    pub(crate) sched: String,
    pub(crate) cpu: Option<u32>,
    pub(crate) locks_memory: bool,
    #[serde(skip)]
    pub(crate) scheduling: Scheduling,
}

impl ThreadPlan {
    fn new(args: &ThreadArgs, wait: WaitArg) -> Self {
        Self {
            wait: args.wait.unwrap_or(wait),
            engine: args.engine,
            sched: args.sched.to_string(),
            cpu: args.cpu,
            locks_memory: !args.no_mlock,
            scheduling: args.sched,
        }
    }
}

/// `rtt reflect --dry-run`: a reflector, which answers any client.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct RttReflectPlan {
    pub(crate) listen: SocketAddr,
    #[serde(serialize_with = "optional_text")]
    #[schemars(with = "Option<String>")]
    pub(crate) iface: Option<Selector>,
    pub(crate) over: OverArg,
    pub(crate) thread: ThreadPlan,
}

impl Plan for RttReflectPlan {
    const SCHEMA: &'static str = "towline.plan.rtt-reflect";
}

impl RttReflectPlan {
    pub(crate) fn new(args: &RttReflectArgs) -> Result<Self, Failure> {
        if args.over != OverArg::Udp && args.thread.engine != EngineArg::Recv {
            return Err(Failure::usage(ONE_BY_ONE));
        }
        let named = args.interface.iface.as_ref();
        let iface = match (&args.listen.group, named) {
            (Some(group), named) => interface_of(group, named)?,
            (None, None) => None,
            (None, Some(_)) => {
                let text = "--iface is for groups: add --listen GROUP, or leave --iface out";
                return Err(Failure::usage(text));
            }
        };
        Ok(Self {
            listen: args.listen.address,
            iface,
            over: args.over,
            // A reflector may run for days, so it occupies a processor only on request.
            thread: ThreadPlan::new(&args.thread, WaitArg::Block),
        })
    }

    pub(crate) fn spec(&self) -> ReflectSpec {
        ReflectSpec {
            listen: self.listen,
            engine: self.thread.engine.into(),
            wait: self.thread.wait.into(),
        }
    }
}

/// `rtt run --dry-run`: a measurement of round trips.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct RttRunPlan {
    pub(crate) target: Place,
    #[serde(serialize_with = "optional_text")]
    #[schemars(with = "Option<String>")]
    pub(crate) iface: Option<Selector>,
    pub(crate) over: OverArg,
    pub(crate) variants: Vec<String>,
    pub(crate) size_bytes: usize,
    #[serde(rename = "time_s", serialize_with = "seconds")]
    #[schemars(with = "f64")]
    pub(crate) time: Duration,
    #[serde(rename = "slice_s", serialize_with = "optional_seconds")]
    #[schemars(with = "Option<f64>")]
    pub(crate) slice: Option<Duration>,
    #[serde(rename = "warm_up_s", serialize_with = "seconds")]
    #[schemars(with = "f64")]
    pub(crate) warm_up: Duration,
    #[serde(rename = "timeout_s", serialize_with = "seconds")]
    #[schemars(with = "f64")]
    pub(crate) timeout: Duration,
    pub(crate) window_messages: Option<u32>,
    #[serde(rename = "every_s", serialize_with = "optional_seconds")]
    #[schemars(with = "Option<f64>")]
    pub(crate) every: Option<Duration>,
    pub(crate) stamp_every_messages: u64,
    pub(crate) out: Option<PathBuf>,
    pub(crate) seed: u64,
    pub(crate) link: Option<u64>,
    pub(crate) thread: ThreadPlan,
    pub(crate) picture: PicturePlan,
    #[serde(skip)]
    pub(crate) runs: Vec<Variant>,
}

impl Plan for RttRunPlan {
    const SCHEMA: &'static str = "towline.plan.rtt-run";
}

impl RttRunPlan {
    pub(crate) fn new(args: &RttRunArgs) -> Result<Self, Failure> {
        let thread = ThreadPlan::new(&args.thread, WaitArg::Spin);
        let size = usize::try_from(args.size).unwrap_or(usize::MAX);
        if !(PROBE_BYTES_MIN..=MESSAGE_BYTES_MAX).contains(&size) {
            let text =
                format!("--size: a message has {PROBE_BYTES_MIN} to {MESSAGE_BYTES_MAX} bytes");
            return Err(Failure::usage(text));
        }
        for (time, name) in [
            (args.time, "--time"),
            (args.timeout, "--timeout"),
            (args.slice, "--slice"),
        ] {
            if time < TIME_MIN {
                return Err(Failure::usage(format!(
                    "{name}: give at least {TIME_MIN:?}"
                )));
            }
        }
        let runs = variants(args, &thread)?;
        let is_other = args.over != OverArg::Udp;
        if is_other && runs.iter().any(|run| run.engine != Engine::Recv) {
            return Err(Failure::usage(ONE_BY_ONE));
        }
        let stamp_every = stamp_every(args, &runs)?;
        let is_comparing = args.compare_sched || !args.compare_engine.is_empty();
        Ok(Self {
            iface: interface_of(&args.target, args.interface.iface.as_ref())?,
            target: args.target.clone(),
            over: args.over,
            variants: runs.iter().map(|run| run.label.clone()).collect(),
            size_bytes: size,
            time: args.time,
            slice: is_comparing.then_some(args.slice),
            warm_up: args.warm_up,
            timeout: args.timeout,
            window_messages: args.window.map(Into::into),
            every: args.intervals.every,
            stamp_every_messages: stamp_every,
            out: args.out.clone(),
            seed: args.seed,
            link: args.link,
            thread,
            picture: PicturePlan::new(&args.picture)?,
            runs,
        })
    }

    /// Resolves the target; checks that PGM goes to a group, and TCP to a host.
    fn peer(&self) -> Result<SocketAddr, Failure> {
        let peer = address(&self.target, PORT)?;
        match (self.over, peer.ip().is_multicast()) {
            (OverArg::Tcp, true) => {
                let text = format!("--over tcp: {peer} is a group; name a host");
                Err(Failure::usage(text))
            }
            (OverArg::Pgm, false) => {
                let text = format!(
                    "--over pgm: {peer} is not a multicast group; give both ends the same group"
                );
                Err(Failure::usage(text))
            }
            _ => Ok(peer),
        }
    }

    /// Makes the task for the library; resolves the target.
    pub(crate) fn campaign(&self) -> Result<Campaign, Failure> {
        Ok(Campaign {
            peer: self.peer()?,
            interface: self.iface.clone(),
            transport: self.over.into(),
            target: self.target.to_string(),
            variants: self.runs.clone(),
            size_bytes: self.size_bytes,
            duration: self.time,
            slice: self.slice,
            warm_up: self.warm_up,
            window_messages: self.window_messages,
            timeout: self.timeout,
            seed: self.seed,
            stamp_every_messages: self.stamp_every_messages,
            cpu: self.thread.cpu,
            lock_memory: self.thread.locks_memory,
            link_bits_per_s: self.link,
            command: std::env::args().collect(),
        })
    }
}

/// Returns N when one message in N gets time stamps from the kernel, and 0 when none does. An error
/// when the user asked for stamps that the kernel cannot make, or for `--hops` without stamps.
fn stamp_every(args: &RttRunArgs, runs: &[Variant]) -> Result<u64, Failure> {
    // Stamps cost time. By default, when one of the compared engines cannot stamp, no engine
    // stamps, so that the comparison is fair.
    let can_stamp = args.over == OverArg::Udp && runs.iter().all(|run| run.engine.takes_stamps());
    let wanted = match args.stamp_every {
        Some(every) => every,
        None if can_stamp => STAMP_EVERY,
        None => 0,
    };
    let has_asked = if args.picture.hops {
        Some("--hops")
    } else {
        args.stamp_every
            .filter(|&it| it > 0)
            .map(|_| "--stamp-every")
    };
    match has_asked {
        Some(name) if args.over != OverArg::Udp => Err(Failure::usage(format!(
            "{name}: the kernel stamps only messages over UDP; leave out {name}, or leave out \
             --over"
        ))),
        Some(name) if !can_stamp => Err(Failure::usage(format!(
            "{name}: with the engines mmsg and io_uring the kernel stamps nothing; leave {name} \
             or these engines out"
        ))),
        Some(name) if wanted == 0 => Err(Failure::usage(format!(
            "{name}: needs --stamp-every of 1 or more"
        ))),
        _ => Ok(wanted),
    }
}

/// Makes a variant for each combination of rate, scheduling class and engine.
fn variants(args: &RttRunArgs, thread: &ThreadPlan) -> Result<Vec<Variant>, Failure> {
    let rates: Vec<Option<u64>> = if args.ping_pong {
        vec![None]
    } else {
        args.rate.iter().copied().map(Some).collect()
    };
    let classes = match (args.compare_sched, thread.scheduling) {
        (false, class) => vec![class],
        (true, Scheduling::Fifo(priority)) => vec![Scheduling::Other, Scheduling::Fifo(priority)],
        (true, Scheduling::Other) => vec![Scheduling::Other, Scheduling::Fifo(FIFO_PRIORITY)],
    };
    let engines: Vec<Engine> = if args.compare_engine.is_empty() {
        vec![thread.engine.into()]
    } else {
        args.compare_engine
            .iter()
            .map(|&engine| engine.into())
            .collect()
    };
    let wait = Wait::from(thread.wait);
    let mut all: Vec<Variant> = Vec::new();
    for per_second in rates {
        if let Some(rate) = per_second {
            Schedule::new(rate).map_err(|error| Failure::usage(format!("--rate: {error}")))?;
        }
        for &scheduling in &classes {
            for &engine in &engines {
                let mut label =
                    per_second.map_or_else(|| "ping-pong".to_owned(), |rate| format!("{rate}/s"));
                if classes.len() > 1 {
                    label += &format!(" {scheduling}");
                }
                if engines.len() > 1 {
                    label += &format!(" {engine}");
                }
                let is_known = all.iter().any(|known| known.label == label);
                if !is_known {
                    all.push(Variant {
                        label,
                        per_second,
                        scheduling,
                        engine,
                        wait,
                    });
                }
            }
        }
    }
    Ok(all)
}

/// `rtt plot --dry-run`: results to be drawn.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct RttPlotPlan {
    pub(crate) files: Vec<PathBuf>,
    pub(crate) is_diff: bool,
    pub(crate) picture: PicturePlan,
}

impl Plan for RttPlotPlan {
    const SCHEMA: &'static str = "towline.plan.rtt-plot";
}

impl RttPlotPlan {
    pub(crate) fn new(args: &RttPlotArgs) -> Result<Self, Failure> {
        if args.diff && args.files.len() < 2 {
            let text = "--diff: name two or more files; the first is the one to compare with";
            return Err(Failure::usage(text));
        }
        Ok(Self {
            files: args.files.clone(),
            is_diff: args.diff,
            picture: PicturePlan::new(&args.picture)?,
        })
    }
}

/// What is drawn, and how.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct PicturePlan {
    pub(crate) to: Vec<PathBuf>,
    pub(crate) view: ViewArg,
    pub(crate) is_linear: bool,
    pub(crate) has_linear_colours: bool,
    pub(crate) with_hops: bool,
    pub(crate) with_map: bool,
}

impl PicturePlan {
    fn new(args: &PictureArgs) -> Result<Self, Failure> {
        if let Some(unknown) = args.to.iter().find(|path| Format::of(path).is_none()) {
            let text = format!(
                "--to {}: its name must end in {}",
                unknown.display(),
                Format::NAMES
            );
            return Err(Failure::usage(text));
        }
        Ok(Self {
            to: args.to.clone(),
            view: args.view,
            is_linear: args.linear,
            has_linear_colours: args.linear_colours,
            with_hops: args.hops,
            with_map: args.map,
        })
    }

    pub(crate) const fn options(&self) -> Options {
        Options {
            view: match self.view {
                ViewArg::Intended => View::Intended,
                ViewArg::Actual => View::Actual,
            },
            scale: if self.is_linear {
                Scale::Linear
            } else {
                Scale::Log
            },
            colours: if self.has_linear_colours {
                Scale::Linear
            } else {
                Scale::Log
            },
        }
    }
}

const ONE_BY_ONE: &str =
    "--over tcp and --over pgm work only with the default engine, recv: name no other";
/// The shortest time that is accepted for `--time`, `--timeout` and `--slice`.
const TIME_MIN: Duration = Duration::from_millis(10);
