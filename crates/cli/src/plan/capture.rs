//! Plans of `capture`, `replay` and `stats`.

use std::{
    fmt::Display,
    path::{Path, PathBuf},
    time::Duration,
};

use capture::{
    Edits, Limits, LiveOptions, SendOptions, SinkAddress, SourceAddress, sink::Rotation,
};
use gauge::sweep::{CaptureSweep, SweepBy};
use measure::Format;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use super::{Plan, session::optional_seconds};
use crate::{
    args::{CaptureArgs, FailOn, ReplayArgs, StatsArgs, SweptSize},
    failure::Failure,
};

/// `capture --dry-run`: a capture.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct CapturePlan {
    #[serde(serialize_with = "texts")]
    #[schemars(with = "Vec<String>")]
    pub(crate) sources: Vec<SourceAddress>,
    #[serde(serialize_with = "text")]
    #[schemars(with = "String")]
    pub(crate) sink: SinkAddress,
    ring_bytes: u64,
    packets: Option<u64>,
    segments: bool,
    pub(crate) filter: Option<String>,
    pub(crate) workers: u16,
    #[serde(skip)]
    pub(crate) live: LiveOptions,
    #[serde(skip)]
    pub(crate) limits: Limits,
    /// When a file ends and the next begins; `None` when everything goes into one file.
    #[serde(skip)]
    pub(crate) rotation: Option<Rotation>,
    #[serde(skip)]
    pub(crate) comment: Option<String>,
    #[serde(skip)]
    pub(crate) keeps_privileges: bool,
    #[serde(skip)]
    pub(crate) user: Option<String>,
    #[serde(skip)]
    pub(crate) fail_on: FailOn,
    #[serde(rename = "every_s", serialize_with = "optional_seconds")]
    #[schemars(with = "Option<f64>")]
    pub(crate) every: Option<Duration>,
}

impl Plan for CapturePlan {
    const SCHEMA: &'static str = "towline.plan.capture";
}

impl CapturePlan {
    pub(crate) fn new(args: &CaptureArgs) -> Result<Self, Failure> {
        if args.workers > 1 {
            if !matches!(args.sources.as_slice(), [SourceAddress::Ring(_)]) {
                let text = "--workers needs exactly one source, a ring:IF";
                return Err(Failure::usage(text));
            }
            if args.output.is_standard_output() {
                let text =
                    "--workers: each worker writes a file of its own; name a FILE instead of '-'";
                return Err(Failure::usage(text));
            }
        }
        if args
            .intervals
            .every
            .is_some_and(|every| every.subsec_nanos() > 0)
        {
            let text = "--every: a capture keeps its account by the second: give whole seconds";
            return Err(Failure::usage(text));
        }
        let live = LiveOptions {
            has_room_for_super_packets: args.segment,
            ..args.live.options()
        };
        let limits = Limits {
            packets: args.count,
            duration: args.time,
            snap_len: Some(live.snap_len),
            segments: args.segment,
            checks_sequence: args.check_gen,
            ..Limits::default()
        };
        Ok(Self {
            sources: args.sources.clone(),
            sink: args.output.clone(),
            ring_bytes: args.live.ring,
            packets: args.count,
            segments: args.segment,
            filter: args.filter.clone(),
            workers: args.workers,
            live,
            limits,
            rotation: args.rotation(),
            comment: args.comment.clone(),
            keeps_privileges: args.keep_privileges,
            user: args.user.clone(),
            fail_on: args.fail_on,
            every: args.intervals.every,
        })
    }
}

/// `replay --dry-run`: a replay.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct ReplayPlan {
    #[serde(serialize_with = "texts")]
    #[schemars(with = "Vec<String>")]
    pub(crate) sources: Vec<SourceAddress>,
    #[serde(serialize_with = "text")]
    #[schemars(with = "String")]
    pub(crate) sink: SinkAddress,
    pace: String,
    packets: Option<u64>,
    #[serde(skip)]
    pub(crate) limits: Limits,
    #[serde(skip)]
    pub(crate) send: SendOptions,
    #[serde(skip)]
    pub(crate) edits: Edits,
    /// How many times everything is sent; 0 for endless.
    #[serde(skip)]
    pub(crate) rounds: u64,
}

impl Plan for ReplayPlan {
    const SCHEMA: &'static str = "towline.plan.replay";
}

impl ReplayPlan {
    pub(crate) fn new(args: &ReplayArgs) -> Result<Self, Failure> {
        if !matches!(args.output, SinkAddress::Ring(_) | SinkAddress::Int(_)) {
            return Err(Failure::usage(format!(
                "{} is not an interface to replay on; write ring:IF or int:IF",
                args.output
            )));
        }
        if let Some(live) = args.sources.iter().find(|source| source.is_live()) {
            return Err(Failure::usage(format!(
                "{live} is an interface and cannot be replayed: capture it to a file first; if you \
                 mean a file, write pcapng:FILE"
            )));
        }
        let limits = Limits {
            packets: args.count,
            duration: args.time,
            pace: args.pace(),
            burst_packets: args.burst,
            ..Limits::default()
        };
        Ok(Self {
            sources: args.sources.clone(),
            sink: args.output.clone(),
            pace: format!("{:?}", limits.pace),
            packets: args.count,
            limits,
            send: args.send_options(),
            edits: args.edits.edits(),
            rounds: args.rounds,
        })
    }
}

/// `stats --dry-run`: which packets are counted.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct StatsPlan {
    #[serde(serialize_with = "texts")]
    #[schemars(with = "Vec<String>")]
    pub(crate) sources: Vec<SourceAddress>,
    pub(crate) filters: Vec<String>,
    packets: Option<u64>,
    segments: bool,
    #[serde(skip)]
    pub(crate) live: LiveOptions,
    #[serde(skip)]
    pub(crate) limits: Limits,
    /// With `--summary`: packets are counted without reading their headers.
    #[serde(skip)]
    pub(crate) is_summary: bool,
    #[serde(skip)]
    pub(crate) talkers: usize,
    #[serde(skip)]
    pub(crate) plot: Option<(PathBuf, Format)>,
}

impl Plan for StatsPlan {
    const SCHEMA: &'static str = "towline.plan.stats";
}

impl StatsPlan {
    pub(crate) fn new(args: &StatsArgs) -> Result<Self, Failure> {
        Ok(Self {
            sources: args.sources.clone(),
            filters: args.filter.clone(),
            packets: args.count,
            segments: args.segment,
            live: LiveOptions {
                has_room_for_super_packets: args.segment,
                ..args.live.options()
            },
            limits: Limits {
                packets: args.count,
                duration: args.time,
                segments: args.segment,
                ..Limits::default()
            },
            is_summary: args.summary,
            talkers: args.talkers,
            plot: args.plot.as_deref().map(picture).transpose()?,
        })
    }
}

/// `stats --sweep --dry-run`: a measurement of what captures lose and cost.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct StatsSweepPlan {
    #[serde(flatten)]
    pub(crate) sweep: CaptureSweep,
    #[serde(skip)]
    pub(crate) picture: Option<(PathBuf, Format)>,
}

impl Plan for StatsSweepPlan {
    const SCHEMA: &'static str = "towline.plan.stats-sweep";
}

impl StatsSweepPlan {
    pub(crate) fn new(args: &StatsArgs, by: SweptSize) -> Result<Self, Failure> {
        let picture = args.plot.as_deref().map(picture).transpose()?;
        let sweep = CaptureSweep {
            by: match by {
                SweptSize::RingSize => SweepBy::RingSize,
                SweptSize::PacketSize => SweepBy::PacketSize,
            },
            packets_per_s: args.pps,
            time: args.time.unwrap_or(SWEEP_TIME),
            ring_bytes: args.live.options().ring_bytes,
        };
        Ok(Self { sweep, picture })
    }
}

/// Returns `path` and the picture format that its ending names. Fails when the ending names none.
fn picture(path: &Path) -> Result<(PathBuf, Format), Failure> {
    let format = Format::of(path).filter(|format| format.is_picture());
    format
        .map(|format| (path.to_owned(), format))
        .ok_or_else(|| {
            Failure::usage(format!(
                "--plot {}: its name must end in {}",
                path.display(),
                Format::PICTURE_NAMES
            ))
        })
}

fn text<S: Serializer>(value: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

fn texts<T: Display, S: Serializer>(values: &[T], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(values.iter().map(ToString::to_string))
}

/// The length of each run of a sweep when `--for` is not given.
const SWEEP_TIME: Duration = Duration::from_secs(2);
