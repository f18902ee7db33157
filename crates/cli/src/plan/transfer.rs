//! `send`, `recv` and `demo`.

use std::{path::PathBuf, time::Duration};

use serde::Serialize;

use super::SessionPlan;
use crate::{
    args::{DemoArgs, RecvArgs, SendArgs},
    failure::Failure,
};

/// Files and trees to a group.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SendPlan {
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) receivers: u32,
    pub(crate) join_timeout: Duration,
    pub(crate) timeout: Duration,
    pub(crate) session: SessionPlan,
}

impl SendPlan {
    pub(crate) fn new(args: &SendArgs) -> Result<Self, Failure> {
        let session = SessionPlan::new(args.session.given())?;
        if session.config.strict_pgm() {
            let text = "files need the receivers' reports, and --strict-pgm leaves them out";
            return Err(Failure::usage(text));
        }
        if let Some(missing) = args
            .paths
            .iter()
            .find(|path| path.symlink_metadata().is_err())
        {
            return Err(Failure::usage(format!("there is no {}", missing.display())));
        }
        Ok(Self {
            paths: args.paths.clone(),
            receivers: args.receivers,
            join_timeout: args.join_timeout,
            timeout: args.timeout,
            session,
        })
    }
}

/// Files and trees from a group into a directory.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RecvPlan {
    pub(crate) directory: PathBuf,
    pub(crate) is_overwriting: bool,
    /// Goes on after the first transfer.
    pub(crate) is_kept: bool,
    pub(crate) timeout: Option<Duration>,
    pub(crate) session: SessionPlan,
}

impl RecvPlan {
    pub(crate) fn new(args: &RecvArgs) -> Result<Self, Failure> {
        if args.directory.exists() && !args.directory.is_dir() {
            let text = format!("{} is not a directory", args.directory.display());
            return Err(Failure::usage(text));
        }
        Ok(Self {
            directory: args.directory.clone(),
            is_overwriting: args.overwrite,
            is_kept: args.keep,
            timeout: args.timeout,
            session: SessionPlan::new(args.session.given())?,
        })
    }
}

/// The main job on this machine.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DemoPlan {
    pub(crate) path: Option<PathBuf>,
    pub(crate) receivers: u32,
    /// Share of packets that each receiver loses, in per cent.
    pub(crate) loss_percent: f64,
    pub(crate) seed: u64,
    pub(crate) bytes_min: u64,
    pub(crate) files_min: u64,
    /// The sender's rate as its parameter is written; `None` leaves the default.
    pub(crate) rate: Option<String>,
    pub(crate) keep: Option<PathBuf>,
}

impl DemoPlan {
    pub(crate) fn new(args: &DemoArgs) -> Result<Self, Failure> {
        if let Some(rate) = &args.rate {
            let checked = towline::Config::builder().set("rate", rate);
            checked.map_err(|error| Failure::usage(format!("--rate: {error}")))?;
        }
        if let Some(missing) = args.path.as_ref().filter(|path| !path.exists()) {
            return Err(Failure::usage(format!("there is no {}", missing.display())));
        }
        Ok(Self {
            path: args.path.clone(),
            receivers: args.receivers,
            loss_percent: args.loss,
            seed: args.seed,
            bytes_min: args.min_bytes,
            files_min: args.min_files,
            rate: args.rate.clone(),
            keep: args.keep.clone(),
        })
    }
}
