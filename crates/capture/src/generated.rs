//! Frames with a sequence number. `gen:` makes them, and the receiving end checks them, so that
//! losses that nothing else counts show, too.
//!
//! ```text
//! | Ethernet 14 | IPv4 20 | UDP 8 | mark u32 | flow u16 | sequence u64 | filling |
//! ```
//! The UDP checksum covers the filling; addresses are of the range for benchmarks (RFC 2544).

use std::str::FromStr;

use base::{Rng, quantity};
use wire::{
    checksum,
    link::{ETHER_TYPE_IPV4, EthernetHeader, Ipv4, Ipv4Header, PROTOCOL_UDP, Udp, UdpHeader},
};

use crate::CaptureError;

/// How long frames are, without their check sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// Drawn uniformly from the first size to the second, both included.
    Between(u16, u16),
    /// Sizes with weights: a size of weight N is drawn N times as often as one of weight 1.
    Weighted(Vec<(u16, u32)>),
}

/// A description of the frames to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratorSpec {
    /// Bytes of a frame.
    pub sizes: Sizes,
    /// Frames a second; `None` for as many as the sink takes.
    pub frames_per_s: Option<u64>,
    /// Number of frames; `None` for no end.
    pub count: Option<u64>,
    /// Number of flows (UDP source ports), which take turns.
    pub flows: u16,
    /// Hardware address of destination.
    pub to: [u8; 6],
    /// The seed for drawing the sizes.
    pub seed: u64,
}

impl Default for GeneratorSpec {
    fn default() -> Self {
        Self {
            sizes: Sizes::Between(FRAME_BYTES_LEAST, FRAME_BYTES_LEAST),
            frames_per_s: None,
            count: None,
            flows: 1,
            to: [2, 0, 0, 0, 0, 2],
            seed: 1,
        }
    }
}

impl FromStr for GeneratorSpec {
    type Err = CaptureError;

    /// Reads `size=60,rate=10k,count=1000000,flows=4,to=02:00:00:00:00:02,seed=1`, each part
    /// optional.
    fn from_str(text: &str) -> Result<Self, CaptureError> {
        let mut spec = Self::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let error = |reason: &str| CaptureError::Address {
                address: format!("gen:{text}"),
                what: "source of packets",
                reason: reason.to_owned(),
            };
            let no_value = || error(&format!("{part:?} has no value; {FORM}"));
            let (key, value) = part.split_once('=').ok_or_else(no_value)?;
            let is_read = match key {
                "size" => value.parse().ok().map(|sizes| spec.sizes = sizes),
                "rate" => frames_per_s(value).map(|it| spec.frames_per_s = Some(it)),
                "count" => quantity::count(value)
                    .ok()
                    .map(|count| spec.count = Some(count)),
                "flows" => positive(value).map(|flows| spec.flows = flows),
                "seed" => value.parse().ok().map(|seed| spec.seed = seed),
                "to" => hardware_address(value).map(|to| spec.to = to),
                _ => return Err(error(&format!("{key:?} is no key; {FORM}"))),
            };
            is_read.ok_or_else(|| error(&format!("{part:?} cannot be used; {FORM}")))?;
        }
        Ok(spec)
    }
}

impl FromStr for Sizes {
    type Err = ();

    /// Reads `60`, `60-1514`, or `60*7+570*4+1514`.
    fn from_str(text: &str) -> Result<Self, ()> {
        let size = |text: &str| {
            let size: u16 = text.parse().map_err(drop)?;
            let is_fine = (FRAME_BYTES_LEAST..=FRAME_BYTES_MOST).contains(&size);
            is_fine.then_some(size).ok_or(())
        };
        if !text.contains(['*', '+']) {
            let (least, most) = text.split_once('-').unwrap_or((text, text));
            let (least, most) = (size(least)?, size(most)?);
            return (least <= most)
                .then_some(Self::Between(least, most))
                .ok_or(());
        }
        let weighted = text.split('+').map(|part| {
            let (bytes, weight) = part.split_once('*').unwrap_or((part, "1"));
            let weight: u32 = weight.parse().map_err(drop)?;
            let weight = (1..=WEIGHT_MOST).contains(&weight).then_some(weight);
            Ok((size(bytes)?, weight.ok_or(())?))
        });
        weighted.collect::<Result<_, ()>>().map(Self::Weighted)
    }
}

impl Sizes {
    /// Returns the length of the longest frame in bytes.
    #[must_use]
    pub fn most(&self) -> u16 {
        match self {
            Self::Between(_, most) => *most,
            Self::Weighted(sizes) => {
                let longest = sizes.iter().map(|(bytes, _)| *bytes).max();
                longest.unwrap_or(FRAME_BYTES_LEAST)
            }
        }
    }

    /// Draws one of the sizes.
    #[inline]
    fn draw(&self, random: &mut Rng) -> u16 {
        match self {
            Self::Between(least, most) if least == most => *least,
            Self::Between(least, most) => least + random.below(u64::from(most - least) + 1) as u16,
            Self::Weighted(sizes) => {
                let all = sizes.iter().map(|(_, weight)| u64::from(*weight)).sum();
                let mut left = random.below(all);
                let drawn = sizes.iter().find(|(_, weight)| {
                    let is_it = left < u64::from(*weight);
                    left = left.saturating_sub(u64::from(*weight));
                    is_it
                });
                drawn.map_or(FRAME_BYTES_LEAST, |(bytes, _)| *bytes)
            }
        }
    }
}

/// Reads `150000`, `150k` or `1.5M`: at least 1, and at most 10^12.
fn frames_per_s(text: &str) -> Option<u64> {
    let frames_per_s = quantity::count(text).ok()?;
    (1..=1_000_000_000_000)
        .contains(&frames_per_s)
        .then_some(frames_per_s)
}

fn positive(text: &str) -> Option<u16> {
    text.parse().ok().filter(|number| *number > 0)
}

/// Reads a hardware address, such as `02:00:00:00:00:02`.
fn hardware_address(text: &str) -> Option<[u8; 6]> {
    let mut address = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut address {
        *byte = u8::from_str_radix(parts.next()?, 16).ok()?;
    }
    parts.next().is_none().then_some(address)
}

/// A generator, which makes the frames one after the other.
#[derive(Debug)]
pub struct Generator {
    spec: GeneratorSpec,
    sequence: u64,
    random: Rng,
    frame: Vec<u8>,
}

impl Generator {
    /// Makes a generator that stands before the first frame.
    #[must_use]
    pub fn new(spec: GeneratorSpec) -> Self {
        let len = usize::from(spec.sizes.most());
        let mut frame = Vec::with_capacity(len);
        let ethernet = EthernetHeader {
            destination: spec.to,
            source: [2, 0, 0, 0, 0, 1],
            tag: None,
            ether_type: ETHER_TYPE_IPV4,
        };
        ethernet.emit(&mut frame);
        let ip = Ipv4Header {
            source: [198, 18, 0, 1].into(),
            destination: [198, 18, 0, 2].into(),
            protocol: PROTOCOL_UDP,
            hops_left: 64,
            // Lengths, source port and checksums are filled in for each frame.
            total_len: 0,
            is_whole: true,
        };
        ip.emit(&mut frame);
        let udp = UdpHeader {
            source_port: FIRST_PORT,
            destination_port: DISCARD_PORT,
        };
        udp.emit(&mut frame, &MARK_WORD.to_be_bytes(), 0);
        frame.resize(len, 0);
        Self {
            random: Rng::new(spec.seed),
            sequence: 0,
            frame,
            spec,
        }
    }

    /// Returns true when all frames are made.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.spec.count.is_some_and(|count| self.sequence >= count)
    }

    /// Makes the next frame; `None` when all frames are made.
    pub fn next_frame(&mut self) -> Option<&[u8]> {
        if self.is_over() {
            return None;
        }
        let len = usize::from(self.spec.sizes.draw(&mut self.random));
        let flow = (self.sequence % u64::from(self.spec.flows)) as u16;
        let frame = &mut self.frame[..len];
        frame[MARK + 4..MARK + 6].copy_from_slice(&flow.to_be_bytes());
        frame[MARK + 6..MARK + 14].copy_from_slice(&self.sequence.to_be_bytes());
        let (ip, datagram) = frame[ETHERNET..].split_at_mut(PORTS - ETHERNET);
        let mut ip = Ipv4::of(ip).expect("the frame was made with an IPv4 header");
        ip.set_total_len((len - ETHERNET) as u16);
        ip.fill_checksum();
        let pseudo = ip.pseudo_sum(PROTOCOL_UDP, len - PORTS);
        let mut datagram = Udp::of(datagram).expect("a frame has room for a UDP header");
        datagram.set_source_port(FIRST_PORT + flow % 32_768);
        datagram.set_total_len((len - PORTS) as u16);
        datagram.fill_checksum(pseudo);
        self.sequence += 1;
        Some(&self.frame[..len])
    }

    /// Returns the number of frames made so far.
    #[must_use]
    pub const fn made(&self) -> u64 {
        self.sequence
    }
}

/// A check that finds generated frames among others, and counts the missing ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SequenceCheck {
    /// Generated frames, each counted once.
    pub frames: u64,
    /// Frames that came again.
    pub duplicates: u64,
    /// Frames that came late or again: their number was not higher than all that had come.
    pub late: u64,
    /// Frames whose checksum is wrong.
    pub corrupt: u64,
    /// One more than the highest sequence number.
    pub end: u64,
    /// A bit for each of the `WINDOW` numbers below `end`, set when that number has come. Its place
    /// is the number modulo `WINDOW`.
    recent: Vec<u64>,
}

impl Default for SequenceCheck {
    fn default() -> Self {
        Self {
            frames: 0,
            duplicates: 0,
            late: 0,
            corrupt: 0,
            end: 0,
            recent: vec![0; (WINDOW / 64) as usize],
        }
    }
}

impl SequenceCheck {
    /// Looks at one frame. Ignores all but generated frames.
    pub fn look(&mut self, frame: &[u8]) {
        let Some(head) = frame.get(..MARK + 14) else {
            return;
        };
        let mark = u32::from_be_bytes([head[MARK], head[MARK + 1], head[MARK + 2], head[MARK + 3]]);
        let ip = Ipv4::of(&frame[ETHERNET..]).filter(|ip| ip.protocol() == PROTOCOL_UDP);
        let (MARK_WORD, [8, 0], Some(ip)) = (mark, [head[12], head[13]], ip) else {
            return;
        };
        let ip_len = usize::from(ip.total_len());
        let Some(frame) = frame
            .get(..ETHERNET + ip_len)
            .filter(|frame| frame.len() > MARK)
        else {
            // The frame was cut: it has its number, but its checksum cannot be checked.
            self.note(sequence(head));
            return;
        };
        let datagram = &frame[PORTS..];
        let sum = ip.pseudo_sum(PROTOCOL_UDP, datagram.len()) + checksum::sum(datagram);
        if checksum::fold(sum) == u16::MAX {
            self.note(sequence(head));
        } else {
            self.corrupt += 1;
        }
    }

    /// Adds the counts of another worker on the same source. Each flow must go to one worker.
    /// Whether a frame is late is judged only among the frames of its own worker.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            frames: self.frames + other.frames,
            duplicates: self.duplicates + other.duplicates,
            late: self.late + other.late,
            corrupt: self.corrupt + other.corrupt,
            end: self.end.max(other.end),
            recent: self.recent.clone(),
        }
    }

    /// Returns how many numbers below [`SequenceCheck::end`] have not come intact.
    #[must_use]
    pub const fn missing(&self) -> u64 {
        self.end - self.frames
    }

    fn note(&mut self, sequence: u64) {
        if sequence >= self.end {
            // After a jump beyond the window every bit of it is cleared.
            let first = self.end.max(sequence.saturating_sub(WINDOW));
            for passed in first..=sequence {
                self.set(passed, false);
            }
            self.end = sequence + 1;
        } else {
            self.late += 1;
            if self.end - sequence > WINDOW || self.has(sequence) {
                self.duplicates += 1;
                return;
            }
        }
        self.set(sequence, true);
        self.frames += 1;
    }

    fn has(&self, sequence: u64) -> bool {
        let at = sequence % WINDOW;
        self.recent[(at / 64) as usize] >> (at % 64) & 1 == 1
    }

    fn set(&mut self, sequence: u64, is_there: bool) {
        let at = sequence % WINDOW;
        let bit = 1 << (at % 64);
        let word = &mut self.recent[(at / 64) as usize];
        *word = if is_there { *word | bit } else { *word & !bit };
    }
}

fn sequence(head: &[u8]) -> u64 {
    u64::from_be_bytes(std::array::from_fn(|at| head[MARK + 6 + at]))
}

const ETHERNET: usize = 14;
const PORTS: usize = ETHERNET + 20;
const MARK: usize = PORTS + 8;
const MARK_WORD: u32 = 0x546f_776c;
const DISCARD_PORT: u16 = 9;
const FIRST_PORT: u16 = 20_000;
/// Bytes of the shortest Ethernet frame, without check sequence.
const FRAME_BYTES_LEAST: u16 = 60;
const FRAME_BYTES_MOST: u16 = 9_014;
/// A frame whose number is at least this much below the highest that has come counts as a
/// duplicate.
const WINDOW: u64 = 65_536;
/// The largest weight: the sum of many larger weights could overflow.
const WEIGHT_MOST: u32 = 1_000_000;
const FORM: &str = "write gen:size=60-1514,rate=N,count=N,flows=N,to=MAC,seed=N, with only the \
     keys that are wanted; a size is 60 to 9014 bytes, or sizes by weight as 60*7+570*4+1514";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_is_found_and_what_is_missing_is_counted() {
        let spec: GeneratorSpec = "size=60-1514,count=1000,flows=3".parse().unwrap();
        let mut generator = Generator::new(spec);
        let mut check = SequenceCheck::default();
        let mut held = Vec::new();
        while let Some(frame) = generator.next_frame() {
            assert!((60..=1514).contains(&frame.len()));
            let (frame, made) = (frame.to_vec(), generator.made());
            match made {
                10 | 500 => {}
                20 => held = frame,
                30 => {
                    check.look(&frame);
                    check.look(&held);
                    check.look(&frame);
                }
                40 => {
                    let mut frame = frame;
                    *frame.last_mut().unwrap() ^= 1;
                    check.look(&frame);
                }
                50 => check.look(&frame[..58]),
                _ => check.look(&frame),
            }
        }
        check.look(b"something else");
        assert_eq!((check.frames, check.missing()), (997, 3));
        assert_eq!((check.duplicates, check.late, check.corrupt), (1, 2, 1));
    }

    #[test]
    fn a_jump_beyond_the_window_forgets_nothing_that_counts() {
        let mut check = SequenceCheck::default();
        for number in [0, 1, 5_000_000, 4_999_999, 4_999_999, 2] {
            check.note(number);
        }
        assert_eq!((check.frames, check.end), (4, 5_000_001));
        assert_eq!((check.duplicates, check.late), (2, 3));
    }

    #[test]
    fn specifications_are_checked() {
        let wrong = [
            "size=59",
            "size=90-80",
            "size=60*0",
            "size=60*2+",
            "size=60*2+59",
            "size=60-70*2",
            "rate=0",
            "rate=0.5",
            "rate=-1",
            "rate=fast",
            "flows=0",
            "to=1:2",
            "what=1",
            "size",
        ];
        for wrong in wrong {
            assert!(wrong.parse::<GeneratorSpec>().is_err(), "{wrong}");
        }
        let spec: GeneratorSpec = "to=0a:00:00:00:00:ff,seed=7".parse().unwrap();
        assert_eq!((spec.to[5], spec.seed), (255, 7));
        assert_eq!(
            (spec.sizes, spec.frames_per_s),
            (Sizes::Between(60, 60), None)
        );
        let rate = |text: &str| text.parse::<GeneratorSpec>().unwrap().frames_per_s;
        assert_eq!(
            (rate("rate=150k"), rate("rate=7")),
            (Some(150_000), Some(7))
        );
        assert_eq!(rate("rate=1.5M"), Some(1_500_000));
    }

    #[test]
    fn sizes_come_as_often_as_their_weights_say() {
        let spec: GeneratorSpec = "size=60*7+570*4+1514,count=12000".parse().unwrap();
        assert_eq!(spec.sizes.most(), 1514);
        let mut generator = Generator::new(spec);
        let mut counts = std::collections::BTreeMap::new();
        let mut check = SequenceCheck::default();
        while let Some(frame) = generator.next_frame() {
            check.look(frame);
            *counts.entry(frame.len()).or_insert(0_u32) += 1;
        }
        assert_eq!((check.frames, check.corrupt), (12_000, 0));
        // The expected counts, plus or minus six standard deviations.
        for (bytes, wanted) in [(60, 7_000_u32), (570, 4_000), (1514, 1_000)] {
            assert!(counts[&bytes].abs_diff(wanted) < 350, "{counts:?}");
        }
        assert_eq!(counts.len(), 3);
    }
}
