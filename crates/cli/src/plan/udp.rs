//! Plans of `udp serve`, `udp run` and `udp plot`.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use gauge::udp::{Load, PORT, RATES, SIZES, ServeSpec, Sweep};
use measure::Format;
use schemars::JsonSchema;
use serde::Serialize;
use towline::{Group, Selector};

use super::{
    Plan,
    place::{address, interface},
    session::{optional_seconds, optional_text, seconds},
};
use crate::{
    args::{DirectionArg, ModeArg, Place, ProfileArg, UdpPlotArgs, UdpRunArgs, UdpServeArgs},
    failure::Failure,
};

/// `udp serve --dry-run`: a server of sweeps.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct UdpServePlan {
    listen: SocketAddr,
    /// Groups that a host may name when it asks for a sweep.
    allow_groups: Vec<SocketAddr>,
    /// The highest sending rate. Null: at most 100 Mbit/s to a group; no limit to the host that
    /// asks for the sweep.
    bits_per_s_max: Option<u64>,
    hops_max: u8,
}

impl Plan for UdpServePlan {
    const SCHEMA: &'static str = "towline.plan.udp-serve";
}

impl UdpServePlan {
    pub(crate) fn new(args: &UdpServeArgs) -> Result<Self, Failure> {
        let groups = args.allow_group.iter().map(Group::resolve);
        let plan = Self {
            listen: args.listen,
            allow_groups: groups
                .collect::<Result<_, _>>()
                .map_err(|error| Failure::usage(error.to_string()))?,
            bits_per_s_max: args.rate_max,
            hops_max: args.hops_max,
        };
        let checked = plan.spec().check();
        checked.map_err(|error| Failure::usage(format!("--allow-group: {error}")))?;
        Ok(plan)
    }

    /// Makes the settings with which the crate `gauge` runs the server.
    pub(crate) fn spec(&self) -> ServeSpec {
        ServeSpec {
            listen: self.listen,
            groups: self.allow_groups.clone(),
            bits_per_s_max: self.bits_per_s_max,
            hops_max: self.hops_max,
        }
    }
}

/// `udp run --dry-run`: a sweep.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct UdpRunPlan {
    targets: Vec<Place>,
    group: Option<String>,
    #[serde(serialize_with = "optional_text")]
    #[schemars(with = "Option<String>")]
    iface: Option<Selector>,
    hops: u8,
    sizes: Vec<usize>,
    modes: Vec<ModeArg>,
    directions: Vec<DirectionArg>,
    profiles: Vec<ProfileArg>,
    rate_per_s: Option<u64>,
    is_flood: bool,
    #[serde(rename = "time_s", serialize_with = "seconds")]
    #[schemars(with = "f64")]
    time: Duration,
    loss_max_percent: f64,
    seed: u64,
    #[serde(rename = "every_s", serialize_with = "optional_seconds")]
    #[schemars(with = "Option<f64>")]
    pub(crate) every: Option<Duration>,
    pub(crate) to: Vec<PathBuf>,
    #[serde(skip)]
    address: Option<SocketAddr>,
}

impl Plan for UdpRunPlan {
    const SCHEMA: &'static str = "towline.plan.udp-run";
}

impl UdpRunPlan {
    pub(crate) fn new(args: &UdpRunArgs) -> Result<Self, Failure> {
        let wrong = |text: String| Err(Failure::usage(text));
        if args.targets.len() > 1 && args.group.is_none() {
            let text = "several servers are measured through a group: add `--group GROUP`";
            return wrong(text.to_owned());
        }
        let only_there = args.direction.iter().all(|it| *it == DirectionArg::There);
        if args.targets.len() > 1 && !only_there {
            let text = "several servers can only receive: add `--direction there`";
            return wrong(text.to_owned());
        }
        if !(TIME_MIN..=TIME_MAX).contains(&args.time) {
            return wrong(format!("--time: give {TIME_MIN:?} to {TIME_MAX:?}"));
        }
        let sizes = args
            .size
            .iter()
            .map(|&size| usize::try_from(size).unwrap_or(usize::MAX));
        let sizes: Vec<usize> = sizes.collect();
        if let Some(size) = sizes.iter().find(|size| !SIZES.contains(size)) {
            let (least, most) = (SIZES.start(), SIZES.end());
            return wrong(format!(
                "--size {size}: a datagram has {least} to {most} bytes of payload"
            ));
        }
        if let Some(rate) = args.rate.filter(|rate| !RATES.contains(rate)) {
            let (least, most) = (RATES.start(), RATES.end());
            return wrong(format!(
                "--rate {rate}: a rate is {least} to {most} datagrams/s; --flood sends as fast as \
                 possible"
            ));
        }
        check_pictures(&args.to)?;
        let address = match &args.group {
            Some(group) if !group.is_multicast() => {
                return wrong(format!(
                    "--group {group}: it is not a multicast group; name one, such as 239.192.0.1"
                ));
            }
            Some(group) => Some(
                group
                    .resolve()
                    .map_err(|it| Failure::usage(it.to_string()))?,
            ),
            None => None,
        };
        let iface = match &args.group {
            Some(group) => interface(group, args.iface.as_ref())?,
            None => None,
        };
        Ok(Self {
            targets: args.targets.clone(),
            group: args.group.as_ref().map(ToString::to_string),
            iface,
            hops: args.hops,
            sizes,
            modes: args.mode.clone(),
            directions: args.direction.clone(),
            profiles: args.profile.clone(),
            rate_per_s: args.rate,
            is_flood: args.flood,
            time: args.time,
            loss_max_percent: args.loss_max,
            seed: args.seed,
            every: args.intervals.every,
            to: args.to.clone(),
            address,
        })
    }

    /// Resolves the servers, and makes the sweep that the crate `gauge` runs.
    pub(crate) fn sweep(&self) -> Result<Sweep, Failure> {
        let servers = self.targets.iter().map(|target| address(target, PORT));
        Ok(Sweep {
            servers: servers.collect::<Result<_, _>>()?,
            group: self.address,
            interface: self.iface.clone(),
            hops: self.hops,
            sizes: self.sizes.clone(),
            modes: self.modes.iter().map(|&mode| mode.into()).collect(),
            profiles: self
                .profiles
                .iter()
                .map(|&profile| profile.into())
                .collect(),
            directions: self.directions.iter().map(|&one| one.into()).collect(),
            load: match self.rate_per_s {
                Some(rate) => Some(Load::Rate(rate)),
                None => self.is_flood.then_some(Load::Flood),
            },
            duration: self.time,
            loss_max_share: self.loss_max_percent / 100.0,
            seed: self.seed,
        })
    }
}

/// `udp plot --dry-run`: a sweep that is drawn again.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct UdpPlotPlan {
    pub(crate) file: PathBuf,
    pub(crate) to: Vec<PathBuf>,
}

impl Plan for UdpPlotPlan {
    const SCHEMA: &'static str = "towline.plan.udp-plot";
}

impl UdpPlotPlan {
    pub(crate) fn new(args: &UdpPlotArgs) -> Result<Self, Failure> {
        check_pictures(&args.to)?;
        Ok(Self {
            file: args.file.clone(),
            to: args.to.clone(),
        })
    }
}

/// Checks that each file's name ends in the extension of a picture format.
pub(super) fn check_pictures(paths: &[PathBuf]) -> Result<(), Failure> {
    let is_other = |path: &&PathBuf| !Format::of(path).is_some_and(Format::is_picture);
    match paths.iter().find(is_other) {
        None => Ok(()),
        Some(path) => Err(Failure::usage(format!(
            "--to {}: its name must end in {}",
            path.display(),
            Format::PICTURE_NAMES
        ))),
    }
}

const TIME_MIN: Duration = Duration::from_millis(50);
const TIME_MAX: Duration = Duration::from_secs(60);
