//! Plans of `pub` and `sub`.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use towline::Allowed;

use super::{Plan, SessionPlan, session::optional_seconds, transfer::texts};
use crate::{
    args::{FailOn, PolicyArg, PublishArgs, SubscribeArgs},
    failure::Failure,
    framing::Framing,
};

/// `pub --dry-run`: messages from standard input, or one message, to a group.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct PublishPlan {
    /// The one message to send; `None` sends those of standard input.
    pub(crate) message: Option<String>,
    pub(crate) framing: Framing,
    /// True when the input waits while the session can take no message. When false, messages are
    /// thrown away and counted instead.
    pub(crate) is_blocking: bool,
    pub(crate) policy: PolicyArg,
    pub(crate) receivers: u32,
    #[serde(rename = "timeout_s", serialize_with = "optional_seconds")]
    #[schemars(with = "Option<f64>")]
    pub(crate) timeout: Option<Duration>,
    pub(crate) session: SessionPlan,
}

impl Plan for PublishPlan {
    const SCHEMA: &'static str = "towline.plan.pub";
}

impl PublishPlan {
    pub(crate) fn new(args: &PublishArgs) -> Result<Self, Failure> {
        let session = SessionPlan::new(args.session.given())?;
        check_reports(args.receivers, args.policy, &session)?;
        let framing = Framing::of(args.framing, args.session.given());
        if framing == Framing::Zmq {
            check_zmq(&session)?;
        }
        Ok(Self {
            message: args.message.clone(),
            framing,
            is_blocking: args.block,
            policy: args.policy,
            receivers: args.receivers,
            timeout: args.timeout,
            session,
        })
    }
}

/// `sub --dry-run`: a group's messages to standard output.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct SubscribePlan {
    pub(crate) framing: Framing,
    /// True when reception waits for a slow reader of the output. When false, messages are thrown
    /// away and counted instead.
    pub(crate) is_blocking: bool,
    pub(crate) is_tagged: bool,
    /// The only senders whose messages are taken; an empty list stands for all senders.
    #[serde(serialize_with = "texts")]
    #[schemars(with = "Vec<String>")]
    pub(crate) allowed: Vec<Allowed>,
    pub(crate) count: Option<u64>,
    pub(crate) is_once: bool,
    #[serde(rename = "timeout_s", serialize_with = "optional_seconds")]
    #[schemars(with = "Option<f64>")]
    pub(crate) timeout: Option<Duration>,
    pub(crate) fail_on: FailOn,
    pub(crate) session: SessionPlan,
}

impl Plan for SubscribePlan {
    const SCHEMA: &'static str = "towline.plan.sub";
}

impl SubscribePlan {
    pub(crate) fn new(args: &SubscribeArgs) -> Result<Self, Failure> {
        let framing = Framing::of(args.framing, args.session.given());
        if args.tag && !framing.is_lines() {
            let text =
                "--tag works with --framing lines and zmq only: leave --tag or --framing out";
            return Err(Failure::usage(text));
        }
        Ok(Self {
            framing,
            is_blocking: args.block,
            is_tagged: args.tag,
            allowed: args.from.clone(),
            count: args.count.map(Into::into),
            is_once: args.once,
            timeout: args.timeout,
            fail_on: args.fail_on,
            session: SessionPlan::new(args.session.given())?,
        })
    }
}

/// Refuses what ZeroMQ cannot read: it aborts when messages share packets or come in fragments.
fn check_zmq(session: &SessionPlan) -> Result<(), Failure> {
    if session.config.pack() {
        return Err(Failure::usage(
            "--pack is for Towline's receivers alone, and --framing zmq, given or the default with \
             --profile zmq, fills packets by itself: leave out --pack",
        ));
    }
    if session.config.fragments_max() != 1 {
        return Err(Failure::usage(
            "--framing zmq needs --fragments-max 1, which --profile zmq sets: ZeroMQ cannot read \
             fragments",
        ));
    }
    Ok(())
}

/// Refuses options that need reports when reports are turned off.
pub(super) fn check_reports(
    receivers: u32,
    policy: PolicyArg,
    session: &SessionPlan,
) -> Result<(), Failure> {
    if !session.config.strict_pgm() {
        return Ok(());
    }
    if receivers > 0 {
        return Err(Failure::usage(format!(
            "--receivers counts reports, and {STRICT_PGM}: leave out --receivers, or the flag that \
             turns reports off"
        )));
    }
    if policy == PolicyArg::Drop {
        return Err(Failure::usage(format!(
            "--policy drop needs reports, and {STRICT_PGM}: leave out --policy drop, or the flag \
             that turns reports off"
        )));
    }
    Ok(())
}

/// Why there are no reports, as a part of errors. It also names `--profile`, because the user may
/// have given only that flag.
pub(super) const STRICT_PGM: &str = "--strict-pgm, given or set by --profile, turns reports off";
