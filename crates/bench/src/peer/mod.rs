//! The programs compared by messages: Towline with its defaults, the others with their best
//! settings, and bare UDP as the ceiling.

use std::{borrow::BorrowMut, process::Command, thread, time::Duration};

use lab::Lab;

use crate::{
    machine::Ticks,
    program::{Running, number_after},
    sample::Sample,
};

mod aeron;
pub(crate) use aeron::Aeron;

mod libpgm;
pub(crate) use libpgm::Libpgm;

mod norm;
pub(crate) use norm::Norm;

mod ours;
pub(crate) use ours::Towline;

mod raw;
pub(crate) use raw::{Datagrams, RawUdp};

mod zeromq;
pub(crate) use zeromq::ZeroMq;

/// A program that sends from host 0 to host 1, or to several hosts from host 1 on.
pub(crate) trait Peer {
    /// Returns the row's title.
    fn name(&self) -> &'static str;

    /// Makes one run.
    fn run(&self, lab: &Lab) -> Result<Sample, String>;
}

/// Starts the receiver, then the sender; returns what the sender printed, what the receiver
/// printed, and what the machine spent.
fn run_pair(recv: &mut Command, send: &mut Command) -> Result<(String, String, Sample), String> {
    let (sent, received, sample) = run_group([recv], send)?;
    Ok((sent, received.concat(), sample))
}

/// Starts the receivers, then the sender; returns what the sender printed, what each receiver
/// printed, and what the machine spent.
fn run_group(
    receivers: impl IntoIterator<Item: BorrowMut<Command>>,
    send: &mut Command,
) -> Result<(String, Vec<String>, Sample), String> {
    let before = Ticks::read();
    let started = receivers
        .into_iter()
        .map(|mut recv| Running::start(recv.borrow_mut()));
    let started = started.collect::<Result<Vec<_>, _>>()?;
    thread::sleep(SETTLE);
    let (mut printed, peak_kib) = Running::start(send)?.finish_with(started, RUN_LIMIT)?;
    let received = printed.split_off(1);
    let sample = Sample {
        peak_kib,
        ..Sample::since(before)
    };
    Ok((printed.concat(), received, sample))
}

/// Completes `sample` with what the receiver of `count` messages of `size` bytes printed: how many
/// it `received`, how often the sequence `breaks`, and their `rate`.
fn counted(printed: &str, count: u32, size: usize, sample: Sample) -> Result<Sample, String> {
    let number = |key: &str| {
        number_after(printed, key).ok_or_else(|| format!("no '{key}' in what it said: {printed}"))
    };
    let received = number("received")?;
    Ok(Sample {
        rate_per_s: number("rate")?,
        bytes: received * size as f64,
        missing: (f64::from(count) - received + number("breaks")?) as u64,
        ..sample
    })
}

const GROUP: &str = "239.192.7.1";
const GROUP_AND_PORT: &str = "239.192.7.1:7500";
/// Time for receivers to start listening.
const SETTLE: Duration = Duration::from_millis(500);
const RUN_LIMIT: Duration = Duration::from_secs(60);
