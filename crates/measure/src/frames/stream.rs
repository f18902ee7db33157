//! What a stream of frames needs from a path: packets, buffers, a window, and luck.

use std::{fmt, time::Duration};

use super::binomial;
use crate::link::{frame, headers};

/// Frames of one size at a steady rate, cut into packets that are never fragmented.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FrameLoad {
    /// Bytes of one frame.
    pub frame_bytes: u64,
    /// Frames each second.
    pub frames_per_s: f64,
    /// Bytes of the largest IP packet of the path.
    pub mtu_bytes: u32,
    /// Whether the packets have the longer headers of IPv6.
    pub is_ipv6: bool,
    /// Bytes of each datagram that are no part of a frame: the headers above UDP.
    pub header_bytes: u32,
}

impl FrameLoad {
    /// Returns how many bytes of a frame one packet carries, at least 1.
    #[must_use]
    pub fn payload_bytes(&self) -> u64 {
        let headers = headers(self.is_ipv6) + u64::from(self.header_bytes);
        u64::from(self.mtu_bytes).saturating_sub(headers).max(1)
    }

    /// Returns the number of packets of one frame, without parity and repairs.
    #[must_use]
    pub fn packets_per_frame(&self) -> u64 {
        self.frame_bytes.div_ceil(self.payload_bytes())
    }

    /// Returns the number of packets each second, without parity and repairs.
    #[must_use]
    pub fn packets_per_s(&self) -> f64 {
        self.packets_per_frame() as f64 * self.frames_per_s
    }

    /// Returns the number of bits each second on an Ethernet wire, with all headers, preamble and
    /// gap.
    #[must_use]
    pub fn wire_bits_per_s(&self) -> f64 {
        self.wire_bytes_per_frame() as f64 * 8.0 * self.frames_per_s
    }

    /// Returns the share of the wire's bytes that are bytes of frames, from 0 to 1.
    #[must_use]
    pub fn efficiency(&self) -> f64 {
        self.frame_bytes as f64 / self.wire_bytes_per_frame().max(1) as f64
    }

    /// Returns the bytes of a socket buffer that holds one whole frame, as `SO_RCVBUF` and
    /// `net.core.rmem_max` count them. With this buffer, all packets of a frame may come before the
    /// receiver reads the first.
    #[must_use]
    pub fn frame_buffer_bytes(&self) -> u64 {
        self.buffer_bytes(self.packets_per_frame() as f64)
    }

    /// Returns the bytes of a socket buffer that holds what comes, at the stream's rate, while the
    /// receiver pauses.
    #[must_use]
    pub fn pause_buffer_bytes(&self, pause: Duration) -> u64 {
        self.buffer_bytes(self.packets_per_s() * pause.as_secs_f64())
    }

    /// Returns how many packets the sender must keep, so that a frame can be repaired until its
    /// deadline.
    #[must_use]
    pub fn window_packets(&self, deadline: Duration) -> u64 {
        let frames = (self.frames_per_s * deadline.as_secs_f64()).ceil() as u64;
        self.packets_per_frame()
            .saturating_mul(frames.saturating_add(1))
    }

    /// Returns the chance that a frame is not whole at its deadline, when each packet (data,
    /// repair, parity or request) is lost with the chance `packet_loss`, independently of the
    /// others. When losses come in bursts, fewer frames are hit, but parity repairs fewer of the
    /// frames that are hit.
    #[must_use]
    pub fn loss(&self, packet_loss: f64, repair: Repair) -> f64 {
        let packets = self.packets_per_frame();
        match repair {
            Repair::None => any_of(packets, packet_loss),
            Repair::Requests(chances) => {
                let fails = 1.0 - (1.0 - packet_loss) * (1.0 - packet_loss);
                let exponent = i32::try_from(chances).unwrap_or(i32::MAX);
                any_of(packets, packet_loss * fails.powi(exponent))
            }
            Repair::Parity { data, parity } => {
                let (data, parity) = (u64::from(data.max(1)), u64::from(parity));
                let fails = |data| binomial::more_than(data + parity, parity, packet_loss);
                let last = match packets % data {
                    0 => 0.0,
                    rest => fails(rest),
                };
                let whole = any_of(packets / data, fails(data));
                whole + last - whole * last
            }
        }
    }

    /// Returns the bytes of a socket buffer that holds this number of packets. Each packet costs a
    /// descriptor, and memory in the powers of two that drivers allocate.
    fn buffer_bytes(&self, packets: f64) -> u64 {
        let packet = u64::from(self.mtu_bytes) + ETHERNET_HEADER;
        let data = (packet + HEADROOM + SHARED_INFO).next_power_of_two();
        // The kernel doubles what is asked for, and charges the memory against the double.
        (packets * (data + DESCRIPTOR) as f64 / 2.0).ceil() as u64
    }

    fn wire_bytes_per_frame(&self) -> u64 {
        let headers = headers(self.is_ipv6) + u64::from(self.header_bytes);
        let payload = self.payload_bytes();
        let rest = self.frame_bytes % payload;
        let last = if rest > 0 { frame(rest + headers) } else { 0 };
        self.frame_bytes / payload * frame(payload + headers) + last
    }
}

/// How lost packets of a frame are replaced before its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Nothing: each lost packet costs its frame.
    None,
    /// Each lost packet is asked for up to this many times; a request or its answer may be lost,
    /// too.
    Requests(u32),
    /// Each group of `data` packets has `parity` further packets. Any `data` packets of the group,
    /// of either kind, are enough.
    Parity {
        /// Packets of a group that carry the frame; 0 counts as 1. The last group may have fewer.
        data: u16,
        /// Parity packets of each group.
        parity: u16,
    },
}

/// A resource that may limit a stream, with its capacity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Resource {
    /// The line.
    Line {
        /// Bits each second that the line carries.
        bits_per_s: u64,
    },
    /// The receiver's socket buffer: it must take what comes in a pause.
    SocketBuffer {
        /// Bytes of the buffer, as `SO_RCVBUF` and `net.core.rmem_max` count them.
        bytes: u64,
        /// The longest pause of the receiver.
        pause: Duration,
    },
    /// The receive ring of the adapter: it must take what comes before the kernel empties it.
    Ring {
        /// Packets that the ring holds.
        packets: u32,
        /// The longest time until the kernel empties the ring.
        pause: Duration,
    },
    /// The processor.
    Processor {
        /// Packets each second, of the stream's size, that the processor carried in a measurement.
        packets_per_s: f64,
    },
}

impl Resource {
    /// Returns the frames each second at which this resource becomes the limit; infinite when it
    /// never does. The stream's own rate is not used.
    #[must_use]
    pub fn frames_per_s_max(&self, stream: &FrameLoad) -> f64 {
        let one = FrameLoad {
            frames_per_s: 1.0,
            ..*stream
        };
        match *self {
            Self::Line { bits_per_s } => bits_per_s as f64 / one.wire_bits_per_s(),
            Self::SocketBuffer { bytes, pause } => {
                let each = one.buffer_bytes(one.packets_per_frame() as f64);
                bytes as f64 / (each as f64 * pause.as_secs_f64())
            }
            Self::Ring { packets, pause } => {
                f64::from(packets) / (one.packets_per_s() * pause.as_secs_f64())
            }
            Self::Processor { packets_per_s } => packets_per_s / one.packets_per_s(),
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Line { .. } => "the line",
            Self::SocketBuffer { .. } => "the receiver's socket buffer",
            Self::Ring { .. } => "the adapter's receive ring",
            Self::Processor { .. } => "the processor",
        })
    }
}

/// Returns the resource that limits the stream first, and the frames each second at which it does.
/// Of equal resources the first counts. `None` when `resources` is empty.
#[must_use]
pub fn tightest(resources: &[Resource], stream: &FrameLoad) -> Option<(Resource, f64)> {
    let limits = resources.iter();
    let limits = limits.map(|resource| (*resource, resource.frames_per_s_max(stream)));
    limits.min_by(|a, b| a.1.total_cmp(&b.1))
}

/// Returns the chance that at least one of `count` independent events occurs, each with the chance
/// `each`. The result is exact also for small chances.
fn any_of(count: u64, each: f64) -> f64 {
    if count == 0 {
        return 0.0;
    }
    -(count as f64 * (-each).ln_1p()).exp_m1()
}

const ETHERNET_HEADER: u64 = 14;
/// Bytes that drivers leave free before a packet (`NET_SKB_PAD`).
const HEADROOM: u64 = 64;
/// Bytes of `struct skb_shared_info`, which lies behind the data of each packet.
const SHARED_INFO: u64 = 320;
/// Bytes of `struct sk_buff`, rounded up to its slab.
const DESCRIPTOR: u64 = 256;

#[cfg(test)]
mod tests {
    use base::Rng;
    use proptest::prelude::*;

    use super::*;

    /// The camera of the published experience, on gigabit Ethernet.
    const CAMERA: FrameLoad = FrameLoad {
        frame_bytes: 1360 * 1024 * 2,
        frames_per_s: 15.5,
        mtu_bytes: 1500,
        is_ipv6: false,
        header_bytes: 72,
    };

    #[test]
    fn a_camera_on_gigabit_ethernet() {
        assert_eq!(CAMERA.payload_bytes(), 1400);
        assert_eq!(CAMERA.packets_per_frame(), 1990);
        assert!((CAMERA.packets_per_s() - 30_845.0).abs() < 1e-6);
        assert!((CAMERA.efficiency() - 1400.0 / 1538.0).abs() < 1e-3);
        let line = Resource::Line {
            bits_per_s: 1_000_000_000,
        };
        let most = line.frames_per_s_max(&CAMERA);
        assert!((40.8..40.9).contains(&most), "{most}");
        // 1,990 packets of 2,304 bytes, of which the kernel doubles half.
        assert_eq!(CAMERA.frame_buffer_bytes(), 1990 * 1152);
        assert_eq!(
            CAMERA.pause_buffer_bytes(Duration::from_secs(2)),
            61_690 * 1152
        );
        // One and a half frames pass in 100 ms, so two and the one that is being sent.
        assert_eq!(CAMERA.window_packets(Duration::from_millis(100)), 3 * 1990);
    }

    #[test]
    fn the_tightest_resource_is_named() {
        let pause = Duration::from_millis(10);
        let resources = [
            Resource::Line {
                bits_per_s: 10_000_000_000,
            },
            Resource::SocketBuffer {
                bytes: 212_992,
                pause,
            },
            Resource::Ring {
                packets: 4_096,
                pause,
            },
            Resource::Processor { packets_per_s: 1e6 },
        ];
        let (resource, most) = tightest(&resources, &CAMERA).expect("there are some");
        assert_eq!(resource, resources[1]);
        // 184 packets each 10 ms.
        assert!(
            (most - 212_992.0 / 1152.0 / 0.01 / 1990.0).abs() < 1e-9,
            "{most}"
        );
        assert_eq!(tightest(&[], &CAMERA), None);
        let none = Duration::ZERO;
        let endless = Resource::Ring {
            packets: 1,
            pause: none,
        };
        assert!(endless.frames_per_s_max(&CAMERA).is_infinite());
    }

    #[test]
    fn one_packet_in_a_thousand_costs_most_frames_until_they_are_repaired() {
        let without = CAMERA.loss(0.001, Repair::None);
        assert!(
            (without - (1.0 - 0.999_f64.powi(1990))).abs() < 1e-12,
            "{without}"
        );
        let once = CAMERA.loss(0.001, Repair::Requests(1));
        assert!((0.0039..0.0040).contains(&once), "{once}");
        let twice = CAMERA.loss(0.001, Repair::Requests(2));
        assert!(twice < 1e-5, "{twice}");
        assert!((CAMERA.loss(0.001, Repair::Requests(0)) - without).abs() < 1e-15);
        let none = Repair::Parity {
            data: 10,
            parity: 0,
        };
        assert!((CAMERA.loss(0.001, none) - without).abs() < 1e-9);
        assert!(CAMERA.loss(0.0, none).abs() < f64::EPSILON);
        assert!((CAMERA.loss(1.0, Repair::Requests(9)) - 1.0).abs() < f64::EPSILON);
    }

    #[test]
    fn expected_losses_are_those_that_happen() {
        let stream = FrameLoad {
            frame_bytes: 1400 * 25 - 3,
            ..CAMERA
        };
        for (seed, percent, repair) in [
            (1, 3, Repair::None),
            (2, 10, Repair::Requests(2)),
            (3, 10, Repair::Parity { data: 8, parity: 2 }),
        ] {
            let mut rng = Rng::new(seed);
            let lost = (0..20_000)
                .filter(|_| !arrives(&mut rng, percent, repair))
                .count();
            let expected = stream.loss(percent as f64 / 100.0, repair) * 20_000.0;
            // Four standard deviations of a count.
            let off = (lost as f64 - expected).abs();
            assert!(
                off < 4.0 * expected.sqrt(),
                "{repair:?}: {lost} of {expected}"
            );
        }
    }

    /// Whether a frame of 25 packets comes through.
    fn arrives(rng: &mut Rng, percent: u64, repair: Repair) -> bool {
        let mut is_lost = || rng.chance(percent, 100);
        match repair {
            Repair::None => !(0..25).any(|_| is_lost()),
            Repair::Requests(chances) => {
                (0..25).all(|_| !is_lost() || (0..chances).any(|_| !is_lost() && !is_lost()))
            }
            Repair::Parity { data, parity } => {
                [data, data, data, 25 - 3 * data].iter().all(|data| {
                    let lost = (0..data + parity).filter(|_| is_lost()).count();
                    lost <= usize::from(parity)
                })
            }
        }
    }

    proptest! {
        #[test]
        fn figures_of_any_stream_are_sound(
            frame_bytes in 0_u64..1 << 40, frames_per_s in 0.0_f64..10_000.0,
            mtu_bytes in 0_u32..70_000, is_ipv6: bool, header_bytes in 0_u32..200,
            packet_loss in 0.0_f64..=1.0, chances in 0_u32..10, data in 0_u16..300,
            parity in 0_u16..300,
        ) {
            let it = FrameLoad { frame_bytes, frames_per_s, mtu_bytes, is_ipv6, header_bytes };
            let carried = it.packets_per_frame() * it.payload_bytes();
            prop_assert!((frame_bytes..frame_bytes + it.payload_bytes()).contains(&carried));
            prop_assert!((0.0..1.0).contains(&it.efficiency()));
            prop_assert!(it.wire_bits_per_s() >= frame_bytes as f64 * frames_per_s * 8.0);
            let unrepaired = it.loss(packet_loss, Repair::None);
            for repair in [Repair::Requests(chances), Repair::Parity { data, parity }] {
                let loss = it.loss(packet_loss, repair);
                prop_assert!((0.0..=unrepaired + 1e-9).contains(&loss), "{repair:?}: {loss}");
            }
        }
    }
}
