//! The kernel's own ceiling.

use std::path::PathBuf;

use lab::{Host, Lab};

use super::{GROUP, Peer, run_pair};
use crate::{
    program::{self, number_after},
    sample::Sample,
};

/// Bare datagrams of the same size in GSO runs, received with GRO: no protocol at all.
#[derive(Debug)]
pub(crate) struct RawUdp {
    program: PathBuf,
    datagram: usize,
}

impl RawUdp {
    pub(crate) fn new(size: usize) -> Result<Self, String> {
        let program = program::compile("udplimit.c", &[])?;
        Ok(Self {
            program,
            datagram: size + PGM_HEADER_BYTES,
        })
    }
}

impl Peer for RawUdp {
    fn name(&self) -> &'static str {
        "bare UDP, GSO and GRO (received)"
    }

    fn run(&self, lab: &Lab) -> Result<Sample, String> {
        let address = |host: &Host| host.ipv4().to_string();
        let mut recv = lab.host(1).command(&self.program);
        recv.args(["recv", &address(lab.host(1)), GROUP, "4.5", "gro"]);
        let mut send = lab.host(0).command(&self.program);
        let size = self.datagram.to_string();
        send.args(["send", &address(lab.host(0)), GROUP, &size, "3", "gso"]);
        let (_, received, mut sample) = run_pair(&mut recv, &mut send)?;
        sample.rate = number_after(&received, "received").ok_or("no rate from udplimit")?;
        sample.bytes = sample.rate * 3.0 * (self.datagram - PGM_HEADER_BYTES) as f64;
        Ok(sample)
    }
}

const PGM_HEADER_BYTES: usize = 24;
