//! Who is compared by messages: ours at its defaults, the others at their best, and bare UDP as the
//! ceiling.

use std::{process::Command, thread, time::Duration};

use lab::Lab;

use crate::{machine::Ticks, program::Running, sample::Sample};

mod aeron;
pub(crate) use aeron::Aeron;

mod libpgm;
pub(crate) use libpgm::Libpgm;

mod ours;
pub(crate) use ours::Towline;

mod raw;
pub(crate) use raw::RawUdp;

mod zeromq;
pub(crate) use zeromq::ZeroMq;

/// Something that sends messages from host 0 to host 1.
pub(crate) trait Peer {
    /// The row's title.
    fn name(&self) -> &'static str;

    /// One run.
    fn run(&self, lab: &Lab) -> Result<Sample, String>;
}

/// Starts the receiver, then the sender; gives what both printed and the machine's cost.
fn run_pair(recv: &mut Command, send: &mut Command) -> Result<(String, String, Sample), String> {
    let before = Ticks::read();
    let receiver = Running::start(recv)?;
    thread::sleep(Duration::from_millis(500));
    let sent = Running::start(send)?.finish(RUN_LIMIT)?;
    let received = receiver.finish(RUN_LIMIT)?;
    let after = Ticks::read();
    let sample = Sample {
        cpu_seconds: after.busy_seconds_since(before),
        steal_permille: after.steal_permille_since(before),
        ..Sample::default()
    };
    Ok((sent, received, sample))
}

const GROUP: &str = "239.192.7.1";
const GROUP_AND_PORT: &str = "239.192.7.1:7500";
const RUN_LIMIT: Duration = Duration::from_secs(60);
