//! `towline reach`.

use std::time::Duration;

use gauge::{
    reach::{ReachSpec, reach},
    rtt::host,
};
use serde::Serialize;
use towline::resolve;

use crate::{
    args::ReachArgs,
    failure::{Failure, Verdict},
    interrupt::Interrupt,
    report::{Output, ReachDocument},
};

#[derive(Serialize)]
struct Plan {
    group: String,
    iface: Option<String>,
    hops: u8,
    peers: Vec<String>,
    port: u16,
    time: Duration,
}

pub(super) fn run(args: &ReachArgs, output: &Output) -> Result<Verdict, Failure> {
    if !args.group.is_multicast() {
        let text = format!("--group {}: that is no multicast group", args.group);
        return Err(Failure::usage(text));
    }
    let written = args.group.interface().map(str::to_owned);
    let plan = Plan {
        group: args.group.to_string(),
        iface: args.iface.as_ref().map(ToString::to_string).or(written),
        hops: args.hops,
        peers: args.peers.clone(),
        port: args.port,
        time: args.time,
    };
    if output.shows_only("reach", &plan)? {
        return Ok(Verdict::Done);
    }
    let interrupt = Interrupt::install()?;
    let spec = spec(args, &plan)?;
    output.note(&format!(
        "looking for {:?}; run it on the other host meanwhile",
        args.time
    ));
    let report = reach(&spec, &|| interrupt.is_requested())?;
    let is_fine = report.findings.is_empty();
    output.finish(&ReachDocument(report))?;
    Ok(Verdict::of_session(interrupt.is_requested(), is_fine))
}

fn spec(args: &ReachArgs, plan: &Plan) -> Result<ReachSpec, Failure> {
    let group = args
        .group
        .resolve()
        .map_err(|error| Failure::usage(error.to_string()))?;
    let interface = plan.iface.as_deref().map(str::parse).transpose();
    let peers = args.peers.iter().map(|peer| resolve(peer, args.port));
    let peers = peers.collect::<Result<Vec<_>, _>>()?;
    if let Some(other) = peers.iter().find(|peer| peer.is_ipv4() != group.is_ipv4()) {
        let text = format!("{other} and {group} are of different kinds of IP");
        return Err(Failure::usage(text));
    }
    Ok(ReachSpec {
        group,
        interface: interface
            .map_err(|error: towline::InterfaceError| Failure::usage(error.to_string()))?,
        hops: args.hops,
        peers,
        port: args.port,
        time: args.time,
        name: host().name,
        token: gauge::reach::new_token()?,
    })
}
