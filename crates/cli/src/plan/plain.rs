//! Plan of `send --plain`.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use schemars::JsonSchema;
use serde::Serialize;

use super::{Plan, session::seconds};
use crate::{args::SendArgs, failure::Failure};

/// The plan of `send --plain`: to send a file, or standard input, to a program that does not speak
/// our protocols.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct PlainPlan {
    /// The file to send; `-` is standard input.
    pub(crate) path: PathBuf,
    /// The host to send to, as `HOST:PORT`.
    pub(crate) to: String,
    #[serde(rename = "timeout_s", serialize_with = "seconds")]
    #[schemars(with = "f64")]
    pub(crate) timeout: Duration,
    /// The command succeeds when the peer's kernel has acknowledged everything and the peer has
    /// then closed without a reset.
    pub(crate) accepts_unconfirmed: bool,
}

impl Plan for PlainPlan {
    const SCHEMA: &'static str = "towline.plan.send-plain";
}

impl PlainPlan {
    pub(crate) fn new(args: &SendArgs) -> Result<Self, Failure> {
        let ([path], [to]) = (&args.paths[..], &args.to[..]) else {
            return Err(Failure::usage(format!(
                "--plain sends one file, or - for standard input, to one HOST:PORT (paths named: \
                 {}, hosts: {})",
                args.paths.len(),
                args.to.len()
            )));
        };
        let has_port = to
            .rsplit_once(':')
            .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        if !has_port || to.parse::<std::net::Ipv6Addr>().is_ok() {
            let text = format!(
                "{to}: with --plain the port is that of the other program: write HOST:PORT, or \
                 [ADDRESS]:PORT for IPv6"
            );
            return Err(Failure::usage(text));
        }
        let given = args.session.given();
        // A profile sets other flags, which the user did not write. So the error names the profile.
        let mut names = given.values.keys();
        let profile = given.values.get_key_value("profile").map(|(name, _)| name);
        if let Some(name) = profile.or_else(|| names.next()) {
            let name = crate::args::flag(name);
            return Err(Failure::usage(format!(
                "--{name} is for receivers that run towline, and with --plain the receiver is \
                 another program: leave --{name} or --plain out"
            )));
        }
        Ok(Self {
            path: path.clone(),
            to: to.clone(),
            timeout: args.timeout,
            accepts_unconfirmed: args.accept_unconfirmed,
        })
    }

    /// Looks up the host's address.
    pub(crate) fn address(&self) -> Result<SocketAddr, Failure> {
        // The user has written the port, so the default port 0 is never used.
        Ok(towline::resolve(&self.to, 0)?)
    }

    /// Returns true for standard input.
    pub(crate) fn is_stdin(&self) -> bool {
        self.path.as_os_str() == "-"
    }
}
