//! `udp serve`, `udp run` and `udp plot`.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use gauge::udp::{Load, PORT, RATES, SIZES, ServeSpec, Sweep};
use measure::Format;
use serde::Serialize;
use towline::Selector;

use super::{
    place::{address, interface},
    session::optional_text,
};
use crate::{
    args::{DirectionArg, ModeArg, Place, ProfileArg, UdpPlotArgs, UdpRunArgs, UdpServeArgs},
    failure::Failure,
};

/// A server of sweeps.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct UdpServePlan {
    listen: SocketAddr,
}

impl UdpServePlan {
    pub(crate) const fn new(args: &UdpServeArgs) -> Self {
        Self {
            listen: args.listen,
        }
    }

    /// What the library is to do.
    pub(crate) const fn spec(&self) -> ServeSpec {
        ServeSpec {
            listen: self.listen,
        }
    }
}

/// A sweep.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct UdpRunPlan {
    targets: Vec<Place>,
    group: Option<String>,
    #[serde(serialize_with = "optional_text")]
    iface: Option<Selector>,
    hops: u8,
    sizes: Vec<usize>,
    modes: Vec<ModeArg>,
    directions: Vec<DirectionArg>,
    profiles: Vec<ProfileArg>,
    rate_per_s: Option<u64>,
    is_flood: bool,
    time: Duration,
    loss_max_percent: f64,
    seed: u64,
    pub(crate) every: Option<Duration>,
    pub(crate) to: Vec<PathBuf>,
    #[serde(skip)]
    address: Option<SocketAddr>,
}

impl UdpRunPlan {
    pub(crate) fn new(args: &UdpRunArgs) -> Result<Self, Failure> {
        let wrong = |text: String| Err(Failure::usage(text));
        if args.targets.len() > 1 && args.group.is_none() {
            return wrong("several servers need --group: each then receives the same".to_owned());
        }
        let only_there = args.direction.iter().all(|it| *it == DirectionArg::There);
        if args.targets.len() > 1 && !only_there {
            let text = "several servers can only receive: add --direction there";
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
                "--size {size}: a datagram has {least} to {most} bytes"
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
                return wrong(format!("--group {group}: not a multicast group"));
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

    /// What the library is to do; resolves the servers.
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
            loss_max: self.loss_max_percent / 100.0,
            seed: self.seed,
        })
    }
}

/// A sweep that is drawn again.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct UdpPlotPlan {
    pub(crate) file: PathBuf,
    pub(crate) to: Vec<PathBuf>,
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

/// Each name must say what kind of picture it is to be.
fn check_pictures(paths: &[PathBuf]) -> Result<(), Failure> {
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
