//! `towline mtu`.

use serde::Serialize;
use towline::{mtu::path_mtu, rtt::resolve};

use crate::{
    args::MtuArgs,
    failure::{Failure, Verdict},
    interrupt::Interrupt,
    report::{MtuReport, Output},
};

#[derive(Serialize)]
struct Plan<'a> {
    target: &'a str,
    timeout_ms: u128,
}

pub(super) fn run(args: &MtuArgs, output: &Output) -> Result<Verdict, Failure> {
    let plan = Plan {
        target: &args.target,
        timeout_ms: args.timeout.as_millis(),
    };
    if output.shows_only("mtu", &plan)? {
        return Ok(Verdict::Done);
    }
    let interrupt = Interrupt::install()?;
    let peer = resolve(&args.target)?;
    match path_mtu(peer, args.timeout, &|| interrupt.is_requested()) {
        Ok(found) => output.finish(&MtuReport::new(&args.target, &found))?,
        Err(_) if interrupt.is_requested() => return Ok(Verdict::Interrupted),
        Err(error) => return Err(error.into()),
    }
    Ok(Verdict::Done)
}
