//! Judges, before the first frame is sent, whether a path and this host can carry a stream of
//! frames.
//!
//! [`PathFacts::read`] asks the kernel. [`Advice::of`], a pure function, turns its answers into
//! figures, and into sentences that say what to change.

use std::{fs, time::Duration};

use measure::frames::{FrameLoad, Repair, Resource, VERY_STABLE_LOSS, tightest};
use net::Interface;
use serde::Serialize;
use sys::netlink::Ethtool;
use wire::{object::FrameHeader, pgm::Data};

/// The stream of frames that is to be judged.
#[derive(Clone, Copy, Debug)]
pub struct FramesAsked {
    /// The frames, and the packets that carry them.
    pub load: FrameLoad,
    /// How long a frame is of use.
    pub deadline: Duration,
    /// The longest pause of a receiver, for which the socket buffer has to last.
    pub pause: Duration,
    /// The probability that a packet is lost, from 0 to 1.
    pub packet_loss: f64,
    /// Packets each second that one processor carries, if that was measured.
    pub packets_per_s: Option<f64>,
}

/// What the kernel says of an interface and of socket buffers.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PathFacts {
    /// The interface.
    pub interface: String,
    /// Bytes of the interface's largest IP packet.
    pub mtu_bytes: u32,
    /// Bits each second of the line, as its driver or the caller says.
    pub bits_per_s: Option<u64>,
    /// `net.core.rmem_max`: the largest socket buffer that a receiver without privileges gets.
    pub socket_buffer_bytes_max: Option<u64>,
    /// How many packets the adapter's receive ring holds now, and the most that it can be set to.
    pub ring_packets: Option<[u32; 2]>,
}

/// The figures of a stream, and what to change.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Advice {
    /// What the kernel says on this host; it may be different on a receiver's host.
    pub path: PathFacts,
    /// Bytes of a frame in each packet.
    pub payload_bytes: u64,
    /// Packets of a frame.
    pub packets_per_frame: u64,
    /// Packets each second.
    pub packets_per_s: f64,
    /// Bits each second on the wire, with all headers.
    pub wire_bits_per_s: f64,
    /// The share of the wire's bytes that are bytes of frames.
    pub efficiency: f64,
    /// The socket buffer that holds a whole frame whose packets come at once.
    pub frame_buffer_bytes: u64,
    /// The socket buffer that holds what comes during a pause.
    pub pause_buffer_bytes: u64,
    /// Packets that the sender keeps until the deadline of their frame.
    pub window_packets: u64,
    /// The share of frames that get lost at the given loss of packets, for each kind of repair.
    pub losses: Vec<ExpectedLoss>,
    /// The resources that limit the rate, the lowest limit first.
    pub limits: Vec<Limit>,
    /// What to change, a sentence each; empty when nothing speaks against this stream.
    pub findings: Vec<String>,
}

/// The share of frames that get lost with one kind of repair.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExpectedLoss {
    /// The kind of repair.
    pub repair: String,
    /// The share of frames lost, from 0 to 1.
    pub frame_loss: f64,
}

/// A resource, and the rate at which it becomes the limit.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Limit {
    /// The resource.
    pub resource: String,
    /// Frames each second.
    pub frames_per_s_max: f64,
}

impl PathFacts {
    /// Asks the kernel. Facts that it does not know are `None`.
    #[must_use]
    pub fn read(interface: &Interface) -> Self {
        let limit = fs::read_to_string("/proc/sys/net/core/rmem_max").ok();
        let ring = Ethtool::open().and_then(|mut it| it.receive_ring(interface.index));
        // A virtual cable names a speed that it does not keep.
        let is_real = interface.driver.is_some();
        Self {
            interface: interface.name.clone(),
            mtu_bytes: interface.mtu_bytes,
            bits_per_s: interface.speed_bits_per_s.filter(|_| is_real),
            socket_buffer_bytes_max: limit.and_then(|text| text.trim().parse().ok()),
            ring_packets: ring.ok().flatten(),
        }
    }

    fn resources(&self, asked: &FramesAsked) -> Vec<Resource> {
        let pause = asked.pause;
        let line = self
            .bits_per_s
            .map(|bits_per_s| Resource::Line { bits_per_s });
        let buffer = self
            .socket_buffer_bytes_max
            .map(|bytes| Resource::SocketBuffer { bytes, pause });
        let ring = self.ring_packets.map(|[packets, _]| Resource::Ring {
            packets,
            pause: INTERRUPT_TIME,
        });
        let processor = asked
            .packets_per_s
            .map(|packets_per_s| Resource::Processor { packets_per_s });
        [line, buffer, ring, processor]
            .into_iter()
            .flatten()
            .collect()
    }
}

impl Advice {
    /// Judges whether the stream `asked` fits the path.
    #[must_use]
    pub fn of(asked: &FramesAsked, path: PathFacts) -> Self {
        let load = asked.load;
        let resources = path.resources(asked);
        let mut limits: Vec<_> = resources
            .iter()
            .map(|resource| Limit {
                resource: resource.to_string(),
                frames_per_s_max: resource.frames_per_s_max(&load),
            })
            .collect();
        limits.sort_by(|a, b| a.frames_per_s_max.total_cmp(&b.frames_per_s_max));
        Self {
            payload_bytes: load.payload_bytes(),
            packets_per_frame: load.packets_per_frame(),
            packets_per_s: load.packets_per_s(),
            wire_bits_per_s: load.wire_bits_per_s(),
            efficiency: load.efficiency(),
            frame_buffer_bytes: load.frame_buffer_bytes(),
            pause_buffer_bytes: load.pause_buffer_bytes(asked.pause),
            window_packets: load.window_packets(asked.deadline),
            losses: losses(asked),
            findings: findings(asked, &path, &resources),
            limits,
            path,
        }
    }
}

fn losses(asked: &FramesAsked) -> Vec<ExpectedLoss> {
    let repairs = [
        ("none", Repair::None),
        ("one request for each lost packet", Repair::Requests(1)),
        ("two requests", Repair::Requests(2)),
        ("three requests", Repair::Requests(3)),
        (
            "2 parity packets for each 64",
            Repair::Parity {
                data: 64,
                parity: 2,
            },
        ),
        (
            "4 parity packets for each 64",
            Repair::Parity {
                data: 64,
                parity: 4,
            },
        ),
    ];
    let expected = repairs.map(|(words, repair)| ExpectedLoss {
        repair: words.to_owned(),
        frame_loss: asked.load.loss(asked.packet_loss, repair),
    });
    expected.into()
}

fn findings(asked: &FramesAsked, path: &PathFacts, resources: &[Resource]) -> Vec<String> {
    let load = &asked.load;
    let mut texts = Vec::new();
    if load.mtu_bytes > path.mtu_bytes {
        texts.push(format!(
            "packets of {} bytes do not fit {}, which takes {}: the kernel would fragment \
             them, and one lost fragment loses its packet. Use --mtu {}",
            load.mtu_bytes, path.interface, path.mtu_bytes, path.mtu_bytes
        ));
    }
    let wanted = load.pause_buffer_bytes(asked.pause);
    match path.socket_buffer_bytes_max {
        Some(limit) if limit < wanted => texts.push(format!(
            "the kernel gives receivers at most {limit} bytes of socket buffer, and a pause of \
             {:?} needs {wanted}. Run: sysctl -w net.core.rmem_max={wanted}",
            asked.pause
        )),
        _ => {}
    }
    if let Some([used, most]) = path.ring_packets.filter(|[used, most]| used < most) {
        let needed = load.packets_per_s() * INTERRUPT_TIME.as_secs_f64();
        if f64::from(used) < needed {
            texts.push(format!(
                "the adapter's receive ring holds {used} packets, and {needed:.0} come while the \
                 kernel may be busy. Run: ethtool -G {} rx {most}",
                path.interface
            ));
        }
    }
    if let Some((resource, most)) = tightest(resources, load)
        && most < load.frames_per_s
    {
        texts.push(format!(
            "{:.1} frames/s are more than {resource} carries, which is {most:.1}. Send fewer \
             frames each second, or smaller ones",
            load.frames_per_s
        ));
    }
    let has_time = asked.deadline >= TWO_REQUESTS_TIME;
    let requests = if has_time { 2 } else { 1 };
    let lost = load.loss(asked.packet_loss, Repair::Requests(requests));
    if lost >= VERY_STABLE_LOSS {
        texts.push(format!(
            "with {} % of packets lost and {} for each of them, {:.2} % of frames are lost, which \
             is 1 in 1000 or more. {}",
            asked.packet_loss * 100.0,
            if has_time {
                "two requests"
            } else {
                "one request"
            },
            lost * 100.0,
            if has_time {
                "Send parity, such as --fec-group 64 --fec-proactive 4"
            } else {
                "Give a --deadline with time for two requests (100ms), or send parity"
            },
        ));
    }
    texts
}

/// Bytes of headers in each datagram: those of PGM and of a frame's piece.
pub const FRAME_HEADER_BYTES: u32 = (Data::HEAD_LEN + FrameHeader::LEN) as u32;

/// How long the kernel may be busy before it empties an adapter's ring. Judgement: two ticks of 250
/// Hz. A ring that lasts so long is large, which costs little.
const INTERRUPT_TIME: Duration = Duration::from_millis(8);

/// The shortest deadline with time for two requests and their answers. Judgement: a frame takes
/// most of its interval to leave, and at first a receiver repeats a request after 20 ms.
const TWO_REQUESTS_TIME: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> FramesAsked {
        FramesAsked {
            load: FrameLoad {
                frame_bytes: 1360 * 1024 * 2,
                frames_per_s: 20.0,
                mtu_bytes: 1500,
                is_ipv6: false,
                header_bytes: 64,
            },
            deadline: Duration::from_millis(100),
            pause: Duration::from_millis(50),
            packet_loss: 0.0,
            packets_per_s: None,
        }
    }

    fn path() -> PathFacts {
        PathFacts {
            interface: "eth0".to_owned(),
            mtu_bytes: 1500,
            bits_per_s: Some(1_000_000_000),
            socket_buffer_bytes_max: Some(8 << 20),
            ring_packets: Some([4_096, 4_096]),
        }
    }

    #[test]
    fn a_stream_that_fits_has_nothing_to_change() {
        let advice = Advice::of(&asked(), path());
        assert_eq!(advice.findings, Vec::<String>::new());
        assert_eq!(advice.limits[0].resource, "the line");
        assert!(
            advice
                .limits
                .is_sorted_by(|a, b| a.frames_per_s_max <= b.frames_per_s_max)
        );
        assert!(
            advice
                .losses
                .iter()
                .all(|loss| loss.frame_loss.abs() < f64::EPSILON)
        );
    }

    #[test]
    fn each_shortage_is_named_with_its_remedy() {
        let change = |change: fn(&mut FramesAsked, &mut PathFacts)| {
            let (mut asked, mut path) = (asked(), path());
            change(&mut asked, &mut path);
            Advice::of(&asked, path).findings
        };
        let found = change(|_, path| path.socket_buffer_bytes_max = Some(2_000_000));
        assert!(
            found[0].contains("sysctl -w net.core.rmem_max=2"),
            "{found:?}"
        );
        let found = change(|asked, _| asked.load.mtu_bytes = 9_000);
        assert!(found[0].contains("Use --mtu 1500"), "{found:?}");
        let found = change(|_, path| path.ring_packets = Some([256, 4_096]));
        assert!(found[0].contains("ethtool -G eth0 rx 4096"), "{found:?}");
        let found = change(|asked, _| asked.load.frames_per_s = 60.0);
        assert!(
            found
                .iter()
                .any(|it| it.contains("more than the line carries")),
            "{found:?}"
        );
        let found = change(|asked, _| asked.packets_per_s = Some(10_000.0));
        assert!(
            found[0].contains("more than the processor carries, which is 5.1"),
            "{found:?}"
        );
        let found = change(|asked, _| {
            (asked.packet_loss, asked.deadline) = (0.001, Duration::from_millis(99));
        });
        assert!(found[0].contains("time for two requests"), "{found:?}");
        let found = change(|asked, _| asked.packet_loss = 0.001);
        assert_eq!(found, Vec::<String>::new(), "two requests are enough");
        let found = change(|asked, _| asked.packet_loss = 0.02);
        assert!(found[0].contains("--fec-group 64"), "{found:?}");
        let found = change(|_, path| {
            *path = PathFacts {
                mtu_bytes: 1500,
                ..PathFacts::default()
            }
        });
        assert_eq!(
            found,
            Vec::<String>::new(),
            "what is not known is no shortage"
        );
    }
}
