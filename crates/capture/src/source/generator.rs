//! `gen:`: frames made on the spot.

use std::ops::ControlFlow;

use sys::{
    clock,
    packet::{Checksum, Direction},
};

use wire::pcapng::Options;

use super::{Progress, Source, Visit};
use crate::{
    CaptureError, Interface, Losses, Packet,
    generated::{Generator, GeneratorSpec},
};

/// Generated frames, as fast as they are taken.
#[derive(Debug)]
pub struct GeneratorSource {
    generator: Generator,
    interface: [Interface; 1],
}

impl GeneratorSource {
    /// At the first frame.
    #[must_use]
    pub fn new(spec: GeneratorSpec) -> Self {
        Self {
            generator: Generator::new(spec),
            interface: [Interface {
                name: "gen".to_owned(),
                link_type: wire::trace_file::ETHERNET,
                snap_len: 0,
                description: "generated frames".to_owned(),
            }],
        }
    }
}

impl Source for GeneratorSource {
    fn interfaces(&self) -> &[Interface] {
        &self.interface
    }

    fn read(&mut self, visit: &mut Visit<'_>) -> Result<Progress, CaptureError> {
        let stamp_ns = clock::wall_nanos();
        for _ in 0..FRAMES_A_SHARE {
            let Some(data) = self.generator.next_frame() else {
                return Ok(Progress::End);
            };
            let packet = Packet {
                data,
                wire_len: data.len() as u32,
                stamp_ns,
                interface: 0,
                direction: Some(Direction::Outgoing),
                checksum: Checksum::Valid,
                offload: None,
                notes: Options::empty(),
                is_rejected: false,
            };
            if visit(&packet) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(Progress::Some)
    }

    fn losses(&mut self) -> Result<Losses, CaptureError> {
        Ok(Losses::default())
    }
}

const FRAMES_A_SHARE: usize = 1024;
