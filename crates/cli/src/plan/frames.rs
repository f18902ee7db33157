//! Plans of `frames send` and `frames recv`.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use towline::{
    Allowed, FramePacing, FrameReceiverConfig, FrameSenderConfig, Group, SessionBuilder,
    SocketOptions,
};

use super::{
    FrameSinkPlan, FrameSourcePlan, Plan, SessionPlan,
    message::STRICT_PGM,
    session::{optional_seconds, optional_text, seconds},
    transfer::texts,
};
use crate::{
    args::{FailOn, FramesRecvArgs, FramesSendArgs, PerSecond, Place},
    failure::Failure,
};

/// The plan that `frames send --dry-run` prints: frames to a group.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct FramesSendPlan {
    pub(crate) source: FrameSourcePlan,
    /// Frames a second; null when none is given. The rate is then the one in the Y4M header, or 20
    /// when there is no such rate.
    pub(crate) per_second: Option<PerSecond>,
    pub(crate) count: Option<u64>,
    #[serde(rename = "for_s", serialize_with = "optional_seconds")]
    #[schemars(with = "Option<f64>")]
    pub(crate) seconds: Option<Duration>,
    #[serde(rename = "deadline_s", serialize_with = "optional_seconds")]
    #[schemars(with = "Option<f64>")]
    pub(crate) deadline: Option<Duration>,
    /// The bursts in which frames leave; null when they leave evenly.
    pub(crate) bursts: Option<BurstsPlan>,
    pub(crate) send_buffer_bytes: usize,
    pub(crate) is_always_sent: bool,
    /// The group of the second feed.
    #[serde(serialize_with = "optional_text")]
    #[schemars(with = "Option<String>")]
    pub(crate) also: Option<Group>,
    pub(crate) receivers: u32,
    #[serde(rename = "timeout_s", serialize_with = "optional_seconds")]
    #[schemars(with = "Option<f64>")]
    pub(crate) timeout: Option<Duration>,
    #[serde(rename = "every_s", serialize_with = "optional_seconds")]
    #[schemars(with = "Option<f64>")]
    pub(crate) every: Option<Duration>,
    pub(crate) session: SessionPlan,
}

/// How frames leave in bursts.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct BurstsPlan {
    pub(crate) limit_packets: u32,
    #[serde(rename = "micro_delay_s", serialize_with = "seconds")]
    #[schemars(with = "f64")]
    pub(crate) micro_delay: Duration,
    #[serde(rename = "cycle_delay_s", serialize_with = "seconds")]
    #[schemars(with = "f64")]
    pub(crate) cycle_delay: Duration,
}

impl Plan for FramesSendPlan {
    const SCHEMA: &'static str = "towline.plan.frames-send";
}

impl FramesSendPlan {
    pub(crate) fn new(args: &FramesSendArgs) -> Result<Self, Failure> {
        let session = SessionPlan::new(args.session.given())?;
        let usual = u32::from(!args.always);
        let receivers = args.receivers.unwrap_or(usual);
        if receivers > 0 && session.config.strict_pgm() {
            return Err(Failure::usage(format!(
                "`frames send` waits for receivers that report, and {STRICT_PGM}: give --always \
                 and no --receivers"
            )));
        }
        if args
            .deadline
            .is_some_and(|it| it > FrameSenderConfig::DEADLINE_MAX)
        {
            return Err(Failure::usage(
                "--deadline: at most 10 s; give a shorter time",
            ));
        }
        let default = SocketOptions::default().send_buffer_bytes;
        let send_buffer = args.send_buffer.map(usize::try_from);
        Ok(Self {
            source: FrameSourcePlan::new(&args.source, args.size, args.seed, args.per_second)?,
            per_second: args.per_second,
            count: args.count.map(Into::into),
            seconds: args.seconds,
            deadline: args.deadline,
            bursts: args.burst_limit.map(|limit_packets| BurstsPlan {
                limit_packets,
                micro_delay: args.micro_delay,
                cycle_delay: args.cycle_delay,
            }),
            send_buffer_bytes: send_buffer.map_or(default, |it| it.unwrap_or(usize::MAX)),
            is_always_sent: args.always,
            also: second_feed(args.also.as_ref(), &session)?,
            receivers,
            timeout: args.timeout,
            every: args.intervals.every,
            session,
        })
    }

    /// Makes the settings of the session, and those of the second feed's session.
    pub(crate) fn sessions(&self) -> (SessionBuilder, Option<SessionBuilder>) {
        let sockets = self.session.sockets();
        let sockets = sockets.send_buffer_bytes(self.send_buffer_bytes);
        let also = self.also.clone().map(|also| {
            let session = self.session.session_at(also.into());
            session.sockets(sockets.clone())
        });
        (self.session.session().sockets(sockets), also)
    }

    /// Returns how the packets of a frame leave.
    pub(crate) fn pacing(&self) -> FramePacing {
        self.bursts
            .map_or(FramePacing::Even, |it| FramePacing::Bursts {
                limit: it.limit_packets,
                micro_delay: it.micro_delay,
                cycle_delay: it.cycle_delay,
            })
    }
}

/// The plan that `frames recv --dry-run` prints. The frames come from a group, and frames of a test
/// pattern are checked.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct FramesRecvPlan {
    pub(crate) count: Option<u64>,
    #[serde(rename = "for_s", serialize_with = "optional_seconds")]
    #[schemars(with = "Option<f64>")]
    pub(crate) seconds: Option<Duration>,
    pub(crate) frame_bytes_max: usize,
    pub(crate) seed: u64,
    /// The senders whose frames are taken; all when it is empty.
    #[serde(serialize_with = "texts")]
    #[schemars(with = "Vec<String>")]
    pub(crate) allowed: Vec<Allowed>,
    /// The group of the second feed.
    #[serde(serialize_with = "optional_text")]
    #[schemars(with = "Option<String>")]
    pub(crate) also: Option<Group>,
    #[serde(rename = "timeout_s", serialize_with = "optional_seconds")]
    #[schemars(with = "Option<f64>")]
    pub(crate) timeout: Option<Duration>,
    #[serde(rename = "every_s", serialize_with = "optional_seconds")]
    #[schemars(with = "Option<f64>")]
    pub(crate) every: Option<Duration>,
    pub(crate) fail_on: FailOn,
    pub(crate) sinks: FrameSinkPlan,
    pub(crate) session: SessionPlan,
}

impl Plan for FramesRecvPlan {
    const SCHEMA: &'static str = "towline.plan.frames-recv";
}

impl FramesRecvPlan {
    pub(crate) fn new(args: &FramesRecvArgs) -> Result<Self, Failure> {
        let session = SessionPlan::new(args.session.given())?;
        Ok(Self {
            count: args.count.map(Into::into),
            seconds: args.seconds,
            frame_bytes_max: usize::try_from(args.max_frame).unwrap_or(usize::MAX),
            seed: args.seed,
            allowed: args.from.clone(),
            also: second_feed(args.also.as_ref(), &session)?,
            timeout: args.timeout,
            every: args.intervals.every,
            fail_on: args.fail_on,
            sinks: FrameSinkPlan::new(&args.sinks)?,
            session,
        })
    }

    /// Returns the receiver's limits. Its memory holds at least four frames of the greatest length.
    pub(crate) fn bounds(&self) -> FrameReceiverConfig {
        let default = FrameReceiverConfig::default();
        FrameReceiverConfig {
            frame_bytes_max: self.frame_bytes_max,
            memory_bytes_max: default
                .memory_bytes_max
                .max(self.frame_bytes_max.saturating_mul(4)),
            ..default
        }
    }
}

/// Returns the group of the second feed. If `also` names no port, the group has the port of the
/// first feed.
fn second_feed(also: Option<&Place>, session: &SessionPlan) -> Result<Option<Group>, Failure> {
    let (Some(also), Some(first)) = (also, session.place.group()) else {
        return Ok(None);
    };
    let also = also.at_port(first.port());
    let named = session.interface.as_ref().map(ToString::to_string);
    if also.interface() == named.as_deref().or(first.interface()) {
        check_groups(session, &also)?;
    }
    Ok(Some(also))
}

/// Checks that two feeds have different groups or ports. Callers ask only when both feeds use the
/// same interface.
pub(crate) fn check_groups(session: &SessionPlan, also: &Group) -> Result<(), Failure> {
    let is_same = session.place.group().is_some_and(|first| {
        let is_same_host = match (first.ip(), also.ip()) {
            (None, None) => first.to_string() == also.to_string(),
            (first, also) => first == also,
        };
        is_same_host && first.port() == also.port()
    });
    if is_same {
        return Err(Failure::usage(format!(
            "--also: {also} is the first feed already: name another group, or the same one by \
             another interface"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Given, place};

    #[test]
    fn the_second_feed_is_not_the_first_one_again() {
        let is_taken = |group: &str, iface: Option<&str>, also: &str| {
            let mut values = vec![("group", group.to_owned())];
            values.extend(iface.map(|name| ("iface", name.to_owned())));
            let given = Given {
                values: values.into_iter().collect(),
            };
            let session = SessionPlan::new(&given).unwrap();
            second_feed(Some(&place(also).unwrap()), &session).is_ok()
        };
        for (group, iface, also) in [
            ("239.1.1.1", None, "239.1.1.1"),
            ("239.1.1.1@eth0:7600", None, "239.1.1.1@eth0"),
            ("239.1.1.1", Some("eth0"), "239.1.1.1@eth0"),
            ("239.1.1.1@eth0", Some("eth0"), "239.1.1.1@eth0:7500"),
            ("10.0.0.9@239.1.1.1", Some("eth0"), "239.1.1.1@eth0"),
            ("[ff15::1%eth0]:7500", None, "[ff15::1%eth0]:7500"),
            ("host.example", None, "host.example"),
        ] {
            assert!(!is_taken(group, iface, also), "{group} {iface:?} {also}");
        }
        // The last pair passes here: only opening the second feed shows whether its route goes by
        // eth0.
        for (group, iface, also) in [
            ("239.1.1.1", Some("eth0"), "239.1.1.2@eth0"),
            ("239.1.1.1", Some("eth0"), "239.1.1.1@eth1"),
            ("239.1.1.1@eth0", None, "239.1.1.1@eth0:7600"),
            ("239.1.1.1", Some("eth0"), "239.1.1.1"),
        ] {
            assert!(is_taken(group, iface, also), "{group} {iface:?} {also}");
        }
    }
}
