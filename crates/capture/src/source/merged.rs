//! Merges several files in the order of their time stamps.

use std::ops::ControlFlow;

use wire::pcapng::Options;

use super::{Progress, Source, Visit};
use crate::{CaptureError, Interface, Losses, Packet};

/// A source that gives the packets of several sources in the order of their stamps. Before it gives
/// a packet, it needs the next packet or the end of each source. So live sources cannot be merged.
#[derive(Debug)]
pub struct MergedSource {
    inputs: Vec<Input>,
    interfaces: Vec<Interface>,
}

#[derive(Debug)]
struct Input {
    source: Box<dyn Source>,
    /// The numbers of this input's interfaces in the merged list.
    interfaces: Vec<u32>,
    head: Option<Head>,
    is_over: bool,
    room: Vec<u8>,
    /// The options that the file has for the packet: their bytes, and whether they are big-endian.
    notes: (Vec<u8>, bool),
}

/// The next packet of an input; its bytes are in the input's `room`.
#[derive(Clone, Copy, Debug)]
struct Head {
    /// The packet without its bytes.
    packet: Packet<'static>,
}

impl MergedSource {
    /// Merges `sources`. When stamps are equal, the source that is first in the list comes first.
    #[must_use]
    pub fn new(sources: Vec<Box<dyn Source>>) -> Self {
        let input = |source| Input {
            source,
            interfaces: Vec::new(),
            head: None,
            is_over: false,
            room: Vec::new(),
            notes: (Vec::new(), false),
        };
        Self {
            inputs: sources.into_iter().map(input).collect(),
            interfaces: Vec::new(),
        }
    }
}

impl Source for MergedSource {
    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn read(&mut self, visit: &mut Visit<'_>) -> Result<Progress, CaptureError> {
        for _ in 0..PACKETS_A_SHARE {
            let known = self.interfaces.len();
            for input in &mut self.inputs {
                input.advance(&mut self.interfaces)?;
            }
            if self.interfaces.len() > known {
                // A caller with a list of interfaces must learn of a new one before its first
                // packet.
                return Ok(Progress::Some);
            }
            let stamp = |input: &&mut Input| input.head.map(|head| head.packet.stamp_ns);
            let with_head = self.inputs.iter_mut().filter(|input| input.head.is_some());
            let Some(first) = with_head.min_by_key(stamp) else {
                return Ok(Progress::End);
            };
            let Some(head) = first.head.take() else {
                return Ok(Progress::End);
            };
            let interface = first.interfaces.get(head.packet.interface as usize);
            let packet = Packet {
                data: &first.room,
                notes: Options::new(&first.notes.0, first.notes.1),
                interface: interface.copied().unwrap_or(0),
                ..head.packet
            };
            if visit(&packet).is_break() {
                break;
            }
        }
        Ok(Progress::Some)
    }

    fn losses(&mut self) -> Result<Losses, CaptureError> {
        let mut sum = Losses::default();
        for input in &mut self.inputs {
            sum = sum.plus(&input.source.losses()?);
        }
        Ok(sum)
    }

    fn take_remarks(&mut self) -> Vec<String> {
        let remarks = self.inputs.iter_mut();
        remarks
            .flat_map(|input| input.source.take_remarks())
            .collect()
    }
}

impl Input {
    /// Reads the next packet, unless the source is over or a packet is there already; adds new
    /// interfaces to `all`.
    fn advance(&mut self, all: &mut Vec<Interface>) -> Result<(), CaptureError> {
        while self.head.is_none() && !self.is_over {
            let (room, notes, head) = (&mut self.room, &mut self.notes, &mut self.head);
            let progress = self.source.read(&mut |packet| {
                room.clear();
                room.extend_from_slice(packet.data);
                let (bytes, is_big_endian) = packet.notes.as_bytes();
                notes.0.clear();
                notes.0.extend_from_slice(bytes);
                notes.1 = is_big_endian;
                *head = Some(Head {
                    packet: Packet {
                        data: &[],
                        notes: Options::empty(),
                        ..*packet
                    },
                });
                ControlFlow::Break(())
            })?;
            self.is_over = progress == Progress::End;
        }
        for interface in &self.source.interfaces()[self.interfaces.len()..] {
            self.interfaces.push(all.len() as u32);
            all.push(interface.clone());
        }
        Ok(())
    }
}

const PACKETS_A_SHARE: usize = 4096;
