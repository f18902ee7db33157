//! `gen:`: generated frames.

use std::{ops::ControlFlow, time::Duration};

use base::Instant;
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

/// Generated frames, as fast as they are taken or at a fixed rate.
#[derive(Debug)]
pub struct GeneratorSource {
    generator: Generator,
    interface: [Interface; 1],
    rate: Option<Rate>,
}

/// A rate, counted from the first frame on, so that no error adds up.
#[derive(Clone, Copy, Debug)]
struct Rate {
    frames_per_s: u64,
    /// True when each frame waits until it is due. Otherwise frames come at once, stamped with the
    /// time when they would be due.
    waits: bool,
    /// The time of the first frame, and its stamp.
    started: Option<(Instant, u64)>,
}

impl GeneratorSource {
    /// Makes a source that stands before its first frame. With a rate, each frame comes when it is
    /// due.
    #[must_use]
    pub fn new(spec: GeneratorSpec) -> Self {
        Self::with(spec, true)
    }

    /// Makes a source as [`GeneratorSource::new`] does, but frames come as fast as they are taken,
    /// and a rate only sets their stamps. This is for a sender that paces by stamps.
    #[must_use]
    pub fn stamped(spec: GeneratorSpec) -> Self {
        Self::with(spec, false)
    }

    fn with(spec: GeneratorSpec, waits: bool) -> Self {
        let rate = spec.frames_per_s.map(|frames_per_s| Rate {
            frames_per_s,
            waits,
            started: None,
        });
        Self {
            rate,
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

impl Rate {
    /// Returns how long after the first frame the frame `number` is due.
    fn offset_ns(&self, number: u64) -> u64 {
        let offset_ns = u128::from(number) * NANOS / u128::from(self.frames_per_s.max(1));
        u64::try_from(offset_ns).unwrap_or(u64::MAX)
    }

    /// Returns the stamp of the frame `number`; `None` when the frame must wait, because it is not
    /// due at `now`.
    fn stamp_ns(&mut self, number: u64, now: Instant) -> Option<u64> {
        let start = || (now, clock::wall_nanos());
        let (started, stamp_ns) = *self.started.get_or_insert_with(start);
        let offset_ns = self.offset_ns(number);
        let is_due = u128::from(offset_ns) <= now.since(started).as_nanos();
        (is_due || !self.waits).then(|| stamp_ns.saturating_add(offset_ns))
    }
}

impl Source for GeneratorSource {
    fn interfaces(&self) -> &[Interface] {
        &self.interface
    }

    fn read(&mut self, visit: &mut Visit<'_>) -> Result<Progress, CaptureError> {
        let (now, wall_ns) = (clock::monotonic(), clock::wall_nanos());
        for number in 0..FRAMES_A_SHARE {
            let made = self.generator.made();
            let stamp_ns = match &mut self.rate {
                None => Some(wall_ns),
                Some(rate) => rate.stamp_ns(made, now),
            };
            if stamp_ns.is_none() && !self.generator.is_over() {
                return Ok(if number > 0 {
                    Progress::Some
                } else {
                    Progress::Idle
                });
            }
            let Some((data, stamp_ns)) = self.generator.next_frame().zip(stamp_ns) else {
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

    fn due(&self) -> Option<Instant> {
        let rate = self.rate.filter(|rate| rate.waits)?;
        let (started, _) = rate.started?;
        Some(started + Duration::from_nanos(rate.offset_ns(self.generator.made())))
    }

    fn losses(&mut self) -> Result<Losses, CaptureError> {
        Ok(Losses::default())
    }
}

const FRAMES_A_SHARE: usize = 1024;
const NANOS: u128 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives the stamps of all frames.
    fn stamps(source: &mut GeneratorSource) -> Vec<u64> {
        let mut stamps = Vec::new();
        loop {
            let mut take = |packet: &Packet<'_>| {
                stamps.push(packet.stamp_ns);
                ControlFlow::Continue(())
            };
            match source.read(&mut take).unwrap() {
                Progress::End => return stamps,
                Progress::Some => {}
                Progress::Idle => {
                    let due = source.due().unwrap();
                    let nap = due.since(clock::monotonic());
                    assert!(nap <= Duration::from_millis(1), "{nap:?}");
                    std::thread::sleep(nap);
                }
            }
        }
    }

    #[test]
    fn a_rate_is_kept_or_only_stamped() {
        let spec: GeneratorSpec = "rate=1000,count=101".parse().unwrap();
        let begun = clock::monotonic();
        let kept = stamps(&mut GeneratorSource::new(spec.clone()));
        assert!(clock::monotonic().since(begun) >= Duration::from_millis(100));
        let gaps_are_even =
            |stamps: &[u64]| stamps.windows(2).all(|two| two[1] - two[0] == 1_000_000);
        assert!(kept.len() == 101 && gaps_are_even(&kept), "{kept:?}");
        let begun = clock::monotonic();
        let mut source = GeneratorSource::stamped(spec);
        let stamped = stamps(&mut source);
        assert!(clock::monotonic().since(begun) < Duration::from_millis(100));
        assert!(
            stamped.len() == 101 && gaps_are_even(&stamped),
            "{stamped:?}"
        );
        assert_eq!(source.due(), None);
    }
}
