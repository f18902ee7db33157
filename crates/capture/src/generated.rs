//! Frames with a sequence number: made by `gen:`, and checked where they arrive, so that what
//! vanished without being counted is known too.
//!
//! ```text
//! | Ethernet 14 | IPv4 20 | UDP 8 | mark u32 | flow u16 | sequence u64 | filling |
//! ```
//! The UDP checksum covers the filling; addresses are of the range for benchmarks (RFC 2544).

use std::str::FromStr;

use base::Rng;
use wire::checksum;

use crate::CaptureError;

/// What frames are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratorSpec {
    /// Bytes of a frame without its check sequence, from and to, both inclusive; drawn uniformly.
    pub sizes: (u16, u16),
    /// Frames; none for endless.
    pub count: Option<u64>,
    /// Flows (UDP source ports), taken in turn.
    pub flows: u16,
    /// Destination of the frames.
    pub to: [u8; 6],
    /// Draws the sizes.
    pub seed: u64,
}

impl Default for GeneratorSpec {
    fn default() -> Self {
        Self {
            sizes: (FRAME_BYTES_LEAST, FRAME_BYTES_LEAST),
            count: None,
            flows: 1,
            to: [2, 0, 0, 0, 0, 2],
            seed: 1,
        }
    }
}

impl FromStr for GeneratorSpec {
    type Err = CaptureError;

    /// `size=60,count=1000000,flows=4,to=02:00:00:00:00:02,seed=1`, each where wanted.
    fn from_str(text: &str) -> Result<Self, CaptureError> {
        let mut spec = Self::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let error = |reason: &str| CaptureError::Address {
                address: format!("gen:{text}"),
                what: "source of packets",
                reason: reason.to_owned(),
            };
            let (key, value) = part.split_once('=').ok_or_else(|| error(FORM))?;
            let is_read = match key {
                "size" => sizes(value).map(|sizes| spec.sizes = sizes),
                "count" => value.parse().ok().map(|count| spec.count = Some(count)),
                "flows" => positive(value).map(|flows| spec.flows = flows),
                "seed" => value.parse().ok().map(|seed| spec.seed = seed),
                "to" => hardware_address(value).map(|to| spec.to = to),
                _ => None,
            };
            is_read.ok_or_else(|| error(FORM))?;
        }
        Ok(spec)
    }
}

fn sizes(text: &str) -> Option<(u16, u16)> {
    let (least, most) = text.split_once('-').unwrap_or((text, text));
    let (least, most) = (least.parse().ok()?, most.parse().ok()?);
    let is_fine = (FRAME_BYTES_LEAST..=most).contains(&least) && most <= FRAME_BYTES_MOST;
    is_fine.then_some((least, most))
}

fn positive(text: &str) -> Option<u16> {
    text.parse().ok().filter(|number| *number > 0)
}

/// `02:00:00:00:00:02`.
fn hardware_address(text: &str) -> Option<[u8; 6]> {
    let mut address = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut address {
        *byte = u8::from_str_radix(parts.next()?, 16).ok()?;
    }
    parts.next().is_none().then_some(address)
}

/// Makes the frames, one after the other.
#[derive(Debug)]
pub struct Generator {
    spec: GeneratorSpec,
    sequence: u64,
    random: Rng,
    frame: Vec<u8>,
}

impl Generator {
    /// At the first frame.
    #[must_use]
    pub fn new(spec: GeneratorSpec) -> Self {
        let mut frame = vec![0; usize::from(spec.sizes.1)];
        frame[..6].copy_from_slice(&spec.to);
        frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
        frame[12..ETHERNET + 12]
            .copy_from_slice(&[8, 0, 0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, UDP, 0, 0]);
        frame[ETHERNET + 12..ETHERNET + 20].copy_from_slice(&[198, 18, 0, 1, 198, 18, 0, 2]);
        frame[PORTS + 2..PORTS + 4].copy_from_slice(&9_u16.to_be_bytes());
        frame[MARK..MARK + 4].copy_from_slice(&MARK_WORD.to_be_bytes());
        Self {
            random: Rng::new(spec.seed),
            sequence: 0,
            frame,
            spec,
        }
    }

    /// The next frame; none when all are made.
    pub fn next_frame(&mut self) -> Option<&[u8]> {
        if self.spec.count.is_some_and(|count| self.sequence >= count) {
            return None;
        }
        let (least, most) = self.spec.sizes;
        let len = if least == most {
            usize::from(least)
        } else {
            let range = u64::from(most - least) + 1;
            usize::from(least) + self.random.below(range) as usize
        };
        let flow = (self.sequence % u64::from(self.spec.flows)) as u16;
        let frame = &mut self.frame[..len];
        let ip_len = (len - ETHERNET) as u16;
        frame[ETHERNET + 2..ETHERNET + 4].copy_from_slice(&ip_len.to_be_bytes());
        frame[ETHERNET + 10..ETHERNET + 12].fill(0);
        let check = !checksum::fold(checksum::sum(&frame[ETHERNET..PORTS]));
        frame[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&check.to_be_bytes());
        frame[PORTS..PORTS + 2].copy_from_slice(&(FIRST_PORT + flow % 32_768).to_be_bytes());
        frame[PORTS + 4..PORTS + 6].copy_from_slice(&(ip_len - 20).to_be_bytes());
        frame[PORTS + 6..MARK].fill(0);
        frame[MARK + 4..MARK + 6].copy_from_slice(&flow.to_be_bytes());
        frame[MARK + 6..MARK + 14].copy_from_slice(&self.sequence.to_be_bytes());
        let check = checksum::finish(udp_sum(frame));
        frame[PORTS + 6..MARK].copy_from_slice(&check.to_be_bytes());
        self.sequence += 1;
        Some(&self.frame[..len])
    }

    /// Frames made so far.
    #[must_use]
    pub const fn made(&self) -> u64 {
        self.sequence
    }
}

/// Finds generated frames among others and says what is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SequenceCheck {
    /// Generated frames, each once.
    pub frames: u64,
    /// Frames that came again.
    pub duplicates: u64,
    /// Frames that came after a later one.
    pub late: u64,
    /// Frames whose checksum is wrong.
    pub corrupt: u64,
    /// One more than the highest sequence number.
    pub end: u64,
    /// Numbers `end - WINDOW .. end` that have come, as bits at their number modulo the window.
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
    /// Looks at one frame, which may be any.
    pub fn look(&mut self, frame: &[u8]) {
        let Some(head) = frame.get(..MARK + 14) else {
            return;
        };
        let mark = u32::from_be_bytes([head[MARK], head[MARK + 1], head[MARK + 2], head[MARK + 3]]);
        if mark != MARK_WORD || head[12..14] != [8, 0] || head[ETHERNET + 9] != UDP {
            return;
        }
        let ip_len = usize::from(u16::from_be_bytes([head[ETHERNET + 2], head[ETHERNET + 3]]));
        let Some(frame) = frame
            .get(..ETHERNET + ip_len)
            .filter(|frame| frame.len() > MARK)
        else {
            // Cut short: the number is there, the sum cannot be checked.
            self.note(sequence(head));
            return;
        };
        if checksum::fold(udp_sum(frame)) == u16::MAX {
            self.note(sequence(head));
        } else {
            self.corrupt += 1;
        }
    }

    /// What two saw who shared the frames of one source, each flow with one of them. A number that
    /// came late for both together came in order for one.
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

    /// Numbers below [`SequenceCheck::end`] that have not come.
    #[must_use]
    pub const fn missing(&self) -> u64 {
        self.end - self.frames
    }

    fn note(&mut self, sequence: u64) {
        if sequence >= self.end {
            // A jump beyond the window leaves nothing of it.
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

/// The sum of pseudo header and datagram of a generated frame.
fn udp_sum(frame: &[u8]) -> u64 {
    let udp_len = (frame.len() - PORTS) as u32;
    checksum::sum(&frame[ETHERNET + 12..ETHERNET + 20])
        + checksum::of_words(u32::from(UDP) + udp_len)
        + checksum::sum(&frame[PORTS..])
}

const ETHERNET: usize = 14;
const PORTS: usize = ETHERNET + 20;
const MARK: usize = PORTS + 8;
const UDP: u8 = 17;
const MARK_WORD: u32 = 0x546f_776c;
const FIRST_PORT: u16 = 20_000;
/// The least that Ethernet sends, without check sequence.
const FRAME_BYTES_LEAST: u16 = 60;
const FRAME_BYTES_MOST: u16 = 9_014;
/// Frames that come later than this behind a later one count as duplicates.
const WINDOW: u64 = 65_536;
const FORM: &str =
    "it is gen:size=60-1514,count=N,flows=N,to=MAC,seed=N, each where wanted; sizes of 60 to 9014";

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
        for wrong in ["size=59", "size=9-8", "flows=0", "to=1:2", "what=1", "size"] {
            assert!(wrong.parse::<GeneratorSpec>().is_err(), "{wrong}");
        }
        let spec: GeneratorSpec = "to=0a:00:00:00:00:ff,seed=7".parse().unwrap();
        assert_eq!((spec.to[5], spec.seed, spec.sizes), (255, 7, (60, 60)));
    }
}
