//! `towline mtu`.

use gauge::{
    mtu::{MtuVerdict, group_mtu, path_mtu},
    rtt::PORT,
};
use serde::Serialize;
use towline::resolve;

use crate::{
    args::MtuArgs,
    failure::{Failure, Verdict},
    interrupt::Interrupt,
    report::{GroupMtuDocument, MtuReport, Output},
};

#[derive(Serialize)]
struct Plan<'a> {
    target: &'a str,
    hops: u8,
    timeout_ms: u128,
}

pub(super) fn run(args: &MtuArgs, output: &Output) -> Result<Verdict, Failure> {
    let plan = Plan {
        target: &args.target,
        hops: args.hops,
        timeout_ms: args.timeout.as_millis(),
    };
    if output.shows_only("mtu", &plan)? {
        return Ok(Verdict::Done);
    }
    let interrupt = Interrupt::install()?;
    let peer = resolve(&args.target, PORT)?;
    if peer.ip().is_multicast() {
        let found = group_mtu(peer, args.hops, args.timeout, &|| interrupt.is_requested())?;
        output.finish(&GroupMtuDocument::new(&args.target, &found))?;
        return Ok(Verdict::of_session(interrupt.is_requested(), true));
    }
    let found = match path_mtu(peer, args.timeout, &|| interrupt.is_requested()) {
        Ok(found) => found,
        Err(_) if interrupt.is_requested() => return Ok(Verdict::Interrupted),
        Err(error) => return Err(error.into()),
    };
    output.finish(&MtuReport::new(&args.target, &found))?;
    let is_fine = matches!(found.verdict, MtuVerdict::Clear | MtuVerdict::Told);
    Ok(Verdict::of(is_fine))
}
