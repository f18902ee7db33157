//! Plans of `load send` and `load recv`.

use std::time::Duration;

use gauge::load::{MESSAGE_BYTES_MAX, STAMPED_BYTES_MIN, Schedule};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use towline::Allowed;

use super::{
    Plan, SessionPlan,
    message::check_reports,
    session::{optional_seconds, seconds},
    transfer::texts,
};
use crate::{
    args::{FailOn, LoadRecvArgs, LoadSendArgs, PolicyArg, SizeRange},
    failure::Failure,
};

/// `load send --dry-run`: generated messages, whose content receivers can check, to a group.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct LoadSendPlan {
    pub(crate) size_bytes: SizeRange,
    pub(crate) count: Option<u64>,
    #[serde(rename = "for_s", serialize_with = "optional_seconds")]
    #[schemars(with = "Option<f64>")]
    pub(crate) seconds: Option<Duration>,
    #[serde(rename = "per_second", serialize_with = "rate_of")]
    #[schemars(with = "Option<u64>")]
    pub(crate) schedule: Option<Schedule>,
    pub(crate) stamp: bool,
    pub(crate) seed: u64,
    pub(crate) policy: PolicyArg,
    pub(crate) receivers: u32,
    #[serde(rename = "timeout_s", serialize_with = "optional_seconds")]
    #[schemars(with = "Option<f64>")]
    pub(crate) timeout: Option<Duration>,
    #[serde(rename = "every_s", serialize_with = "optional_seconds")]
    #[schemars(with = "Option<f64>")]
    pub(crate) every: Option<Duration>,
    pub(crate) session: SessionPlan,
}

impl Plan for LoadSendPlan {
    const SCHEMA: &'static str = "towline.plan.load-send";
}

impl LoadSendPlan {
    pub(crate) fn new(args: &LoadSendArgs) -> Result<Self, Failure> {
        let session = SessionPlan::new(args.session.given())?;
        check_reports(args.receivers, args.policy, &session)?;
        let bytes_max = session.config.apdu_bytes_max().min(MESSAGE_BYTES_MAX);
        if args.size.max > bytes_max {
            let or_raise = match bytes_max {
                MESSAGE_BYTES_MAX => "",
                _ => ", or raise --apdu-bytes-max",
            };
            return Err(Failure::usage(format!(
                "--size: a load message has at most {bytes_max} bytes; give a smaller \
                 size{or_raise}"
            )));
        }
        if args.stamp && args.size.min < STAMPED_BYTES_MIN {
            let text = format!(
                "--stamp: a message that says when it was sent has at least {STAMPED_BYTES_MIN} \
                 bytes; give a larger --size"
            );
            return Err(Failure::usage(text));
        }
        let schedule = args.per_second.map(|rate| Schedule::new(rate.into()));
        let schedule = schedule
            .transpose()
            .map_err(|error| Failure::usage(format!("--per-second: {error}")))?;
        Ok(Self {
            size_bytes: args.size,
            count: args.count.map(Into::into),
            seconds: args.seconds,
            schedule,
            stamp: args.stamp,
            seed: args.seed,
            policy: args.policy,
            receivers: args.receivers,
            timeout: args.timeout,
            every: args.intervals.every,
            session,
        })
    }
}

fn rate_of<S: Serializer>(schedule: &Option<Schedule>, serializer: S) -> Result<S::Ok, S::Error> {
    schedule.map(|it| it.per_second()).serialize(serializer)
}

/// `load recv --dry-run`: generated messages from a group, each checked.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct LoadRecvPlan {
    pub(crate) count: Option<u64>,
    #[serde(rename = "for_s", serialize_with = "optional_seconds")]
    #[schemars(with = "Option<f64>")]
    pub(crate) seconds: Option<Duration>,
    pub(crate) seed: u64,
    pub(crate) stamp: bool,
    #[serde(rename = "late_s", serialize_with = "seconds")]
    #[schemars(with = "f64")]
    pub(crate) late: Duration,
    /// The senders whose messages are taken. When this is empty, all messages are taken.
    #[serde(serialize_with = "texts")]
    #[schemars(with = "Vec<String>")]
    pub(crate) allowed: Vec<Allowed>,
    #[serde(rename = "timeout_s", serialize_with = "optional_seconds")]
    #[schemars(with = "Option<f64>")]
    pub(crate) timeout: Option<Duration>,
    #[serde(rename = "every_s", serialize_with = "optional_seconds")]
    #[schemars(with = "Option<f64>")]
    pub(crate) every: Option<Duration>,
    pub(crate) fail_on: FailOn,
    pub(crate) session: SessionPlan,
}

impl Plan for LoadRecvPlan {
    const SCHEMA: &'static str = "towline.plan.load-recv";
}

impl LoadRecvPlan {
    pub(crate) fn new(args: &LoadRecvArgs) -> Result<Self, Failure> {
        Ok(Self {
            count: args.count.map(Into::into),
            seconds: args.seconds,
            seed: args.seed,
            stamp: args.stamp,
            late: args.late,
            allowed: args.from.clone(),
            timeout: args.timeout,
            every: args.intervals.every,
            fail_on: args.fail_on,
            session: SessionPlan::new(args.session.given())?,
        })
    }
}
