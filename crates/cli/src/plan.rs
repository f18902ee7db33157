//! What a command will do. A plan brings flags and configuration file together, fills in defaults,
//! and checks everything that concerns more than one flag. It opens nothing, except the file of
//! `--key-file`.

use schemars::JsonSchema;
use serde::Serialize;

mod capture;
pub(crate) use capture::{CapturePlan, ReplayPlan, StatsPlan, StatsSweepPlan};

mod frames;
pub(crate) use frames::{FramesRecvPlan, FramesSendPlan, check_groups};

mod frames_media;
pub(crate) use frames_media::{FilmPlan, FrameSinkPlan, FrameSourcePlan};

mod load;
pub(crate) use load::{LoadRecvPlan, LoadSendPlan};

mod message;
pub(crate) use message::{PublishPlan, SubscribePlan};

mod path;
pub(crate) use path::{ClockPlan, MtuPlan, ReachPlan};

mod place;

mod plain;
pub(crate) use plain::PlainPlan;

mod relay;
pub(crate) use relay::RelayPlan;

mod rtt;
pub(crate) use rtt::{PicturePlan, RttPlotPlan, RttReflectPlan, RttRunPlan};

mod session;
pub(crate) use session::SessionPlan;

mod settings;
use settings::Settings;

mod tcp;
pub(crate) use tcp::{TcpServePlan, TcpWatchPlan, TcpWritesPlan};

mod transfer;
pub(crate) use transfer::{DemoPlan, RecvPlan, SendPlan};

mod udp;
pub(crate) use udp::{UdpPlotPlan, UdpRunPlan, UdpServePlan};

#[cfg(test)]
mod tests;

/// A plan of a command, which `--dry-run` shows as a JSON document instead of doing the work.
pub(crate) trait Plan: Serialize + JsonSchema {
    /// Name of the document's schema.
    const SCHEMA: &'static str;
    /// The schema's version, raised with every change that an old reader would misread.
    const VERSION: u32 = 1;
}
