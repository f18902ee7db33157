//! Bare UDP: the most that the kernel carries.

use std::path::PathBuf;

use lab::Lab;

use super::{GROUP, Peer, run_group};
use crate::{
    program::{self, number_after},
    sample::Sample,
};

/// Bare datagrams sent in GSO runs and received with GRO: no protocol, no repairs, nothing written.
#[derive(Debug)]
pub(crate) struct Datagrams {
    program: PathBuf,
    receivers: usize,
    datagram: usize,
}

impl Datagrams {
    /// Makes a sender of datagrams of `datagram` bytes to the hosts from 1 to `receivers`.
    pub(crate) fn new(receivers: usize, datagram: usize) -> Result<Self, String> {
        let program = program::compile("udplimit.c", &[])?;
        Ok(Self {
            program,
            receivers,
            datagram,
        })
    }

    /// Makes one run. The rate is that of the receiver that got the fewest datagrams. Each datagram
    /// counts as `payload` bytes.
    pub(crate) fn run(&self, lab: &Lab, payload: f64) -> Result<Sample, String> {
        let command = |host: usize, verb: &str| {
            let host = lab.host(host);
            let mut command = host.command(&self.program);
            command.args([verb, &host.ipv4().to_string(), GROUP]);
            command
        };
        let receivers = (1..=self.receivers).map(|host| {
            let mut recv = command(host, "recv");
            recv.args(["4.5", "gro"]);
            recv
        });
        let mut send = command(0, "send");
        send.args([&self.datagram.to_string(), "3", "gso"]);
        let (_, received, mut sample) = run_group(receivers, &mut send)?;
        sample.rate_per_s = f64::INFINITY;
        for text in received {
            let datagrams = number_after(&text, "received").ok_or("no rate from udplimit")?;
            sample.rate_per_s = sample.rate_per_s.min(datagrams);
        }
        sample.bytes = sample.rate_per_s * 3.0 * payload;
        Ok(sample)
    }
}

/// A peer that sends bare datagrams in place of Towline's packets: about as many for each message,
/// and about as long.
#[derive(Debug)]
pub(crate) struct RawUdp {
    datagrams: Datagrams,
    size: usize,
    pieces: usize,
}

impl RawUdp {
    /// Makes a peer for messages of `size` bytes to the hosts from 1 to `receivers`.
    pub(crate) fn new(size: usize, receivers: usize) -> Result<Self, String> {
        let pieces = size.div_ceil(PACKET_PAYLOAD);
        let datagram = size.div_ceil(pieces) + PGM_HEADER_BYTES;
        Ok(Self {
            datagrams: Datagrams::new(receivers, datagram)?,
            size,
            pieces,
        })
    }
}

impl Peer for RawUdp {
    fn name(&self) -> &'static str {
        "bare UDP, GSO and GRO (received)"
    }

    fn run(&self, lab: &Lab) -> Result<Sample, String> {
        let pieces = self.pieces as f64;
        let mut sample = self.datagrams.run(lab, self.size as f64 / pieces)?;
        sample.rate_per_s /= pieces;
        Ok(sample)
    }
}

/// About the payload of one packet at MTU 1500.
const PACKET_PAYLOAD: usize = 1428;
const PGM_HEADER_BYTES: usize = 24;
