//! Counts packets and bytes by filter, protocol, size, pair of addresses and time, in one pass.
//!
//! [`StatsSink`] is a sink that counts packets. [`StatsSink::summary`] gives a handle, which reads
//! the sums while a session owns the sink and after that.
//!
//! Memory is bounded. After [`PAIRS_MAX`] pairs of addresses of an IP version, all further pairs
//! are counted together. When there are 4,096 steps of time, the steps become twice as long.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hash, Hasher},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use wire::{
    link::{Ipv4, Ipv6, Layers, Stop},
    trace_file::ETHERNET,
};

use crate::{Account, CaptureError, Filter, Interface, Packet, Sink};

/// Packets, and bytes that they had on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Bytes, without check sequence.
    pub bytes: u64,
}

impl Count {
    #[inline]
    fn add(&mut self, bytes: u64) {
        self.packets += 1;
        self.bytes += bytes;
    }

    const fn plus(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            bytes: self.bytes + other.bytes,
        }
    }
}

/// The sums so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Everything.
    pub all: Count,
    /// Counts by filter, in the order given; a packet may count for several filters.
    pub filters: Vec<(String, Count)>,
    /// Counts by protocol, most bytes first: the protocol in the IP header, or the type of a frame
    /// without IP.
    pub protocols: Vec<(String, Count)>,
    /// Counts by size on the wire, without check sequence; each size is the largest of its class.
    pub sizes: Vec<(u32, Count)>,
    /// The pairs of source and destination with the most bytes, most first.
    pub talkers: Vec<(IpAddr, IpAddr, Count)>,
    /// Packets of the further pairs, which are counted together.
    pub untold: Count,
    /// Number of pairs that are counted separately.
    pub pairs: u64,
    /// Frames with a VLAN tag.
    pub tagged: Count,
    /// Packets that are fragments of IP packets.
    pub fragments: Count,
    /// Packets that end within or in front of an Ethernet, VLAN or IP header, options and extension
    /// headers included. IPv6 packets among them are a row of their own in `protocols`.
    pub cut: Count,
    /// The earliest and the latest stamp, in nanoseconds since 1970.
    pub stamps_ns: Option<(u64, u64)>,
    /// Length of a step of `rate`.
    pub step: Duration,
    /// Counts by time, from the first packet's stamp on; earlier stamps count for the first step.
    pub rate: Vec<Count>,
}

/// A handle that reads the sums of a sink that a session owns.
#[derive(Clone, Debug, Default)]
pub struct SharedSummary(Arc<Mutex<Summary>>);

impl SharedSummary {
    /// Returns the sums as of the last second; all of them once the session has ended.
    #[must_use]
    pub fn read(&self) -> Summary {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// A sink that counts packets.
#[derive(Debug)]
pub struct StatsSink {
    /// The link type of each interface, by its number.
    link_types: Vec<u16>,
    filters: Vec<(Filter, Count)>,
    talkers_max: usize,
    counts: Counts,
    shared: SharedSummary,
}

impl StatsSink {
    /// Makes a sink that also counts by `filters`, and names `talkers_max` pairs.
    #[must_use]
    pub fn new(filters: Vec<Filter>, talkers_max: usize) -> Self {
        let zero = |filter| (filter, Count::default());
        Self {
            link_types: Vec::new(),
            filters: filters.into_iter().map(zero).collect(),
            talkers_max,
            counts: Counts::default(),
            shared: SharedSummary::default(),
        }
    }

    /// Counts packets, bytes, sizes and times only, without looking into packets.
    #[must_use]
    pub fn without_headers(mut self) -> Self {
        self.counts.reads_headers = false;
        self
    }

    /// Returns a handle to the sums.
    #[must_use]
    pub fn summary(&self) -> SharedSummary {
        self.shared.clone()
    }
}

impl Sink for StatsSink {
    fn interface(&mut self, interface: &Interface) -> Result<(), CaptureError> {
        self.link_types.push(interface.link_type);
        let mut filters = self.filters.iter_mut();
        filters.try_for_each(|(filter, _)| filter.add_link_type(interface.link_type))
    }

    fn write(&mut self, packet: &Packet<'_>) -> Result<(), CaptureError> {
        let link_type = self.link_types.get(packet.interface as usize);
        let link_type = link_type.copied().unwrap_or(ETHERNET);
        for (filter, count) in &mut self.filters {
            if filter.accepts(packet, link_type) {
                count.add(packet.wire_len.into());
            }
        }
        self.counts.add(packet, link_type);
        Ok(())
    }

    fn note(&mut self, _: &Account, _: u64) -> Result<(), CaptureError> {
        Ok(())
    }

    fn flush(&mut self) -> Result<(), CaptureError> {
        let mut summary = self.counts.summary(self.talkers_max);
        let named = |(filter, count): &(Filter, Count)| (filter.text().to_owned(), *count);
        summary.filters = self.filters.iter().map(named).collect();
        *self.shared.0.lock().unwrap_or_else(PoisonError::into_inner) = summary;
        Ok(())
    }
}

/// The sums in the form in which they are counted.
#[derive(Debug)]
struct Counts {
    reads_headers: bool,
    by_protocol: Box<[Count; 256]>,
    /// Frames without IP, by type. A list is enough, because there are few types.
    by_type: Vec<(u16, Count)>,
    /// Packets of link types that are not decoded, by link type.
    by_link_type: Vec<(u16, Count)>,
    by_size: [Count; SIZES.len()],
    v4: Pairs<u64>,
    v6: Pairs<[u8; 32]>,
    untold: Count,
    tagged: Count,
    fragments: Count,
    cut: Count,
    /// IPv6 packets whose extension headers do not lead to a transport protocol.
    unreached: Count,
    first_ns: Option<u64>,
    earliest_ns: u64,
    latest_ns: u64,
    step_ns: u64,
    step_at: StepAt,
    rate: Vec<Count>,
}

/// The step of time that the last packet was in.
#[derive(Clone, Copy, Debug, Default)]
struct StepAt {
    index: usize,
    begin_ns: u64,
    /// Length of the step in nanoseconds; 0 before the first packet.
    len_ns: u64,
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            reads_headers: true,
            by_protocol: Box::new([Count::default(); 256]),
            by_type: Vec::new(),
            by_link_type: Vec::new(),
            by_size: [Count::default(); SIZES.len()],
            v4: Pairs::default(),
            v6: Pairs::default(),
            untold: Count::default(),
            tagged: Count::default(),
            fragments: Count::default(),
            cut: Count::default(),
            unreached: Count::default(),
            first_ns: None,
            earliest_ns: u64::MAX,
            latest_ns: 0,
            step_ns: STEP_NS,
            step_at: StepAt::default(),
            rate: Vec::new(),
        }
    }
}

impl Counts {
    #[inline]
    fn add(&mut self, packet: &Packet<'_>, link_type: u16) {
        let bytes = u64::from(packet.wire_len);
        self.by_size[size_class(packet.wire_len)].add(bytes);
        self.add_time(packet.stamp_ns, bytes);
        if self.reads_headers {
            self.add_headers(packet, link_type, bytes);
        }
    }

    #[inline]
    fn add_headers(&mut self, packet: &Packet<'_>, link_type: u16, bytes: u64) {
        let Some(layers) = Layers::of(link_type, packet.data) else {
            self.add_unknown(link_type, bytes);
            return;
        };
        if layers.tags > 0 {
            self.tagged.add(bytes);
        }
        if layers.stop == Stop::Cut {
            self.cut.add(bytes);
        }
        let Some(ip) = layers.ip else {
            let is_untyped = layers.stop == Stop::Cut && layers.ether_type == 0;
            let kind = if is_untyped {
                CUT_TYPE
            } else {
                layers.ether_type
            };
            self.add_type(kind, bytes);
            return;
        };
        // IPv4 names the transport protocol in its fixed part, IPv6 after all extension headers.
        if layers.stop == Stop::Transport || ip.version == 4 {
            self.by_protocol[usize::from(ip.protocol)].add(bytes);
        } else {
            self.unreached.add(bytes);
        }
        if ip.is_fragment {
            self.fragments.add(bytes);
        }
        // The parser finds a layer only when its whole fixed header is there.
        let header = &packet.data[layers.network..];
        let is_told = if ip.version == 4 {
            let pair = Ipv4::of(header).map(|ip| u64::from_be_bytes(ip.addresses()));
            pair.is_some_and(|pair| self.v4.add(pair, bytes))
        } else {
            let pair = Ipv6::of(header).map(|ip| ip.addresses());
            pair.is_some_and(|pair| self.v6.add(pair, bytes))
        };
        if !is_told {
            self.untold.add(bytes);
        }
    }

    #[inline]
    fn add_time(&mut self, stamp_ns: u64, bytes: u64) {
        self.earliest_ns = self.earliest_ns.min(stamp_ns);
        self.latest_ns = self.latest_ns.max(stamp_ns);
        let step = &self.step_at;
        if stamp_ns.wrapping_sub(step.begin_ns) >= step.len_ns {
            self.enter_step(stamp_ns);
        }
        self.rate[self.step_at.index].add(bytes);
    }

    /// Finds the step of a packet. It is called only for a packet outside the last packet's step,
    /// because its division takes as long as all the rest.
    fn enter_step(&mut self, stamp_ns: u64) {
        let first_ns = *self.first_ns.get_or_insert(stamp_ns);
        let since_ns = stamp_ns.saturating_sub(first_ns);
        while since_ns / self.step_ns >= STEPS_MAX {
            self.step_ns *= 2;
            let pairs = self.rate.chunks(2);
            let sum = |pair: &[Count]| pair.iter().fold(Count::default(), |a, b| a.plus(*b));
            self.rate = pairs.map(sum).collect();
        }
        let index = (since_ns / self.step_ns) as usize;
        if index >= self.rate.len() {
            self.rate.resize(index + 1, Count::default());
        }
        self.step_at = StepAt {
            index,
            begin_ns: first_ns + index as u64 * self.step_ns,
            len_ns: self.step_ns,
        };
    }

    #[cold]
    fn add_type(&mut self, ether_type: u16, bytes: u64) {
        add_to(&mut self.by_type, ether_type, bytes);
    }

    /// Counts a packet of a link type that is not decoded.
    #[cold]
    fn add_unknown(&mut self, link_type: u16, bytes: u64) {
        add_to(&mut self.by_link_type, link_type, bytes);
    }

    fn summary(&self, talkers_max: usize) -> Summary {
        let by_protocol = self.by_protocol.iter().enumerate();
        let named = by_protocol.map(|(number, count)| (protocol_name(number), *count));
        let others = self.by_type.iter();
        let others = others.map(|(kind, count)| (type_name(*kind), *count));
        let unknown = self.by_link_type.iter();
        let unknown = unknown.map(|(link_type, count)| {
            let name = match *link_type {
                OTHER_TYPES => "other link types".to_owned(),
                link_type => format!("link type {link_type}"),
            };
            (format!("{name}, not looked into"), *count)
        });
        let unreached = (
            "IPv6, transport protocol not reached".to_owned(),
            self.unreached,
        );
        let mut protocols: Vec<(String, Count)> = named
            .chain(others)
            .chain([unreached])
            .chain(unknown)
            .filter(|(_, count)| count.packets > 0)
            .collect();
        protocols.sort_by_key(|(_, count)| std::cmp::Reverse(count.bytes));
        let v4 = self.v4.counts().map(|(pair, count)| {
            let [a, b, c, d, e, f, g, h] = pair.to_be_bytes();
            let from = IpAddr::from(Ipv4Addr::new(a, b, c, d));
            (from, IpAddr::from(Ipv4Addr::new(e, f, g, h)), *count)
        });
        let v6 = self.v6.counts().map(|(pair, count)| {
            let half = |at: usize| <[u8; 16]>::try_from(&pair[at..at + 16]).unwrap_or_default();
            let from = IpAddr::from(Ipv6Addr::from(half(0)));
            (from, IpAddr::from(Ipv6Addr::from(half(16))), *count)
        });
        let mut talkers: Vec<_> = v4.chain(v6).collect();
        let pairs = talkers.len() as u64;
        talkers.sort_by_key(|(from, to, count)| (std::cmp::Reverse(count.bytes), *from, *to));
        talkers.truncate(talkers_max);
        Summary {
            all: self.by_size.into_iter().fold(Count::default(), Count::plus),
            filters: Vec::new(),
            protocols,
            sizes: SIZES.into_iter().zip(self.by_size).collect(),
            talkers,
            untold: self.untold,
            pairs,
            tagged: self.tagged,
            fragments: self.fragments,
            cut: self.cut,
            stamps_ns: self.first_ns.map(|_| (self.earliest_ns, self.latest_ns)),
            step: Duration::from_nanos(self.step_ns),
            rate: self.rate.clone(),
        }
    }
}

/// Counts a frame under its type; under [`OTHER_TYPES`] when the list has no place for a new type.
fn add_to(kinds: &mut Vec<(u16, Count)>, kind: u16, bytes: u64) {
    let place = |kinds: &[(u16, Count)], kind| kinds.iter().position(|(known, _)| *known == kind);
    let (kind, at) = match place(kinds, kind) {
        None if kinds.len() + 1 >= TYPES_MAX => (OTHER_TYPES, place(kinds, OTHER_TYPES)),
        at => (kind, at),
    };
    match at {
        Some(at) => kinds[at].1.add(bytes),
        None => kinds.push((kind, Count { packets: 1, bytes })),
    }
}

/// Counts by pair of addresses.
#[derive(Debug)]
struct Pairs<K> {
    counts: Vec<(K, Count)>,
    /// The place of each pair in `counts`.
    places: HashMap<K, u32, BuildHasherDefault<Mixer>>,
    /// The places of pairs met lately, by some bits of their hash. Most packets find their pair
    /// here.
    lately: Box<[u32; LATELY_LEN]>,
}

impl<K> Default for Pairs<K> {
    fn default() -> Self {
        Self {
            counts: Vec::new(),
            places: HashMap::default(),
            lately: Box::new([u32::MAX; LATELY_LEN]),
        }
    }
}

impl<K: Copy + Eq + Hash> Pairs<K> {
    /// Counts a packet of a pair. Returns false when the pair is new and there are too many pairs
    /// already.
    #[inline]
    fn add(&mut self, pair: K, bytes: u64) -> bool {
        let mut mixer = Mixer::default();
        pair.hash(&mut mixer);
        let slot = mixer.finish() as usize % LATELY_LEN;
        if let Some((known, count)) = self.counts.get_mut(self.lately[slot] as usize)
            && *known == pair
        {
            count.add(bytes);
            return true;
        }
        let Some(place) = self.place(pair) else {
            return false;
        };
        self.lately[slot] = place;
        self.counts[place as usize].1.add(bytes);
        true
    }

    /// Returns the place in `counts` of a pair; `None` when it is new and there are too many pairs.
    fn place(&mut self, pair: K) -> Option<u32> {
        if let Some(place) = self.places.get(&pair) {
            return Some(*place);
        }
        let place = self.counts.len();
        (place < PAIRS_MAX).then(|| {
            self.counts.push((pair, Count::default()));
            self.places.insert(pair, place as u32);
            place as u32
        })
    }

    fn counts(&self) -> impl Iterator<Item = &(K, Count)> {
        self.counts.iter()
    }
}

/// A hasher that mixes addresses in a few nanoseconds. A sender that forges addresses can make some
/// thousands of pairs collide, which costs time; [`PAIRS_MAX`] bounds how much.
#[derive(Debug, Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words
            .iter()
            .for_each(|word| self.write_u64(u64::from_le_bytes(*word)));
        rest.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * u128::from(MULTIPLIER);
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
}

/// Returns IANA's name of a protocol, for the usual ones.
fn protocol_name(number: usize) -> String {
    let name = match number {
        1 => "ICMP",
        2 => "IGMP",
        6 => "TCP",
        17 => "UDP",
        46 => "RSVP",
        47 => "GRE",
        50 => "ESP",
        51 => "AH",
        58 => "ICMPv6",
        89 => "OSPF",
        103 => "PIM",
        112 => "VRRP",
        113 => "PGM",
        132 => "SCTP",
        136 => "UDP-Lite",
        other => return format!("IP protocol {other}"),
    };
    name.to_owned()
}

fn type_name(kind: u16) -> String {
    match kind {
        0x0806 => "ARP".to_owned(),
        0x0800 => "IPv4, cut or damaged".to_owned(),
        0x86DD => "IPv6, cut or damaged".to_owned(),
        0x88CC => "LLDP".to_owned(),
        0x88F7 => "PTP".to_owned(),
        0x8847 => "MPLS".to_owned(),
        OTHER_TYPES => "other types".to_owned(),
        CUT_TYPE => "cut in front of its type".to_owned(),
        0..=1500 => "802.3".to_owned(),
        other => format!("type {other:#06x}"),
    }
}

/// Returns the number of the class in [`SIZES`] that a size belongs to.
#[inline]
fn size_class(wire_len: u32) -> usize {
    let class = SIZE_CLASSES.get(wire_len as usize);
    class.map_or_else(|| classify(wire_len), |class| usize::from(*class)) % SIZES.len()
}

const fn classify(wire_len: u32) -> usize {
    let mut class = 0;
    while wire_len > SIZES[class] {
        class += 1;
    }
    class
}

/// How many pairs of addresses are counted separately, for each IP version.
pub const PAIRS_MAX: usize = 65_536;
/// The largest size of each class, without check sequence: the classes of RFC 2819, less 4 bytes.
const SIZES: [u32; 8] = [60, 123, 251, 507, 1019, 1514, 9014, u32::MAX];
/// The class of each size below 2,048 bytes, for looking up.
static SIZE_CLASSES: [u8; 2048] = {
    let mut classes = [0; 2048];
    let mut len = 0;
    while len < classes.len() {
        classes[len] = classify(len as u32) as u8;
        len += 1;
    }
    classes
};
/// How many pairs `lately` holds. They are found without a search, and take 1 KiB.
const LATELY_LEN: usize = 256;
const TYPES_MAX: usize = 256;
/// A reserved type, which is shown as `other types`.
const OTHER_TYPES: u16 = 0xFFFF;
/// A number between the lengths of 802.3 and the types, which stands for frames that end in front
/// of their type.
const CUT_TYPE: u16 = 1535;
/// The first length of a step, in nanoseconds. `STEPS_MAX` is the most steps.
const STEP_NS: u64 = 1_000_000;
const STEPS_MAX: u64 = 4096;
/// 2^64 divided by the golden ratio, rounded to an odd number.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{generated::Generator, packet::tests::packet};

    #[test]
    fn types_beyond_the_longest_list_are_counted_together() {
        let mut kinds = Vec::new();
        for _ in 0..2 {
            for kind in 0x0800..0x0800 + 2 * TYPES_MAX as u16 {
                add_to(&mut kinds, kind, 10);
            }
        }
        assert_eq!(kinds.len(), TYPES_MAX);
        let (others, listed): (Vec<_>, Vec<_>) = kinds
            .into_iter()
            .partition(|(kind, _)| *kind == OTHER_TYPES);
        assert!(
            listed
                .iter()
                .all(|(_, count)| (count.packets, count.bytes) == (2, 20))
        );
        let others: u64 = others.iter().map(|(_, count)| count.packets).sum();
        assert_eq!(others, 2 * (TYPES_MAX as u64 + 1));
    }

    #[test]
    fn everything_is_counted_once() {
        let mut sink = StatsSink::new(Vec::new(), 5);
        let summary = sink.summary();
        let mut generator = Generator::new("count=500,size=60-1514".parse().unwrap());
        let mut bytes = 0;
        let mut at_ns = 1_000_000_000;
        while let Some(frame) = generator.next_frame() {
            bytes += frame.len() as u64;
            at_ns += 10_000_000;
            sink.write(&packet(frame, at_ns)).unwrap();
        }
        let mut arp = [0; 60];
        arp[12..14].copy_from_slice(&[8, 6]);
        sink.write(&packet(&arp, at_ns)).unwrap();
        sink.write(&packet(&arp[..3], 5)).unwrap();
        assert_eq!(summary.read(), Summary::default(), "nothing before a flush");
        sink.flush().unwrap();
        let summary = summary.read();
        assert_eq!((summary.all.packets, summary.all.bytes), (502, bytes + 63));
        let [udp, arp, cut] = summary.protocols.as_slice() else {
            panic!("{:?}", summary.protocols);
        };
        assert_eq!(
            (udp.0.as_str(), udp.1.packets, udp.1.bytes),
            ("UDP", 500, bytes)
        );
        let names = (arp.0.as_str(), cut.0.as_str());
        assert_eq!(names, ("ARP", "cut in front of its type"));
        assert_eq!((summary.cut.packets, summary.cut.bytes), (1, 3));
        let sum =
            |counts: &mut dyn Iterator<Item = Count>| counts.fold(Count::default(), Count::plus);
        assert_eq!(
            sum(&mut summary.sizes.iter().map(|(_, count)| *count)),
            summary.all
        );
        assert_eq!(sum(&mut summary.rate.iter().copied()), summary.all);
        assert_eq!(summary.stamps_ns, Some((5, at_ns)));
        let (from, to, count) = summary.talkers[0];
        assert_eq!(
            (from.to_string(), to.to_string()),
            ("198.18.0.1".into(), "198.18.0.2".into())
        );
        assert_eq!((summary.pairs, count.packets), (1, 500));
        // Five seconds make too many steps of 1 ms, so the steps became longer.
        assert_eq!(summary.step, Duration::from_millis(2));
    }

    #[test]
    fn packets_are_looked_into_by_their_link_type() {
        let mut sink = StatsSink::new(Vec::new(), 5);
        let summary = sink.summary();
        for link_type in [ETHERNET, 101, 105] {
            let interface = Interface {
                link_type,
                ..Interface::default()
            };
            sink.interface(&interface).unwrap();
        }
        let mut generator = Generator::new("count=1,size=60".parse().unwrap());
        let frame = generator.next_frame().unwrap();
        for (interface, data) in [(0, frame), (1, &frame[14..]), (2, frame)] {
            let packet = Packet {
                interface,
                ..packet(data, 1)
            };
            sink.write(&packet).unwrap();
        }
        sink.flush().unwrap();
        let summary = summary.read();
        let names: Vec<_> = summary
            .protocols
            .iter()
            .map(|(name, count)| (name.as_str(), count.packets))
            .collect();
        assert_eq!(names, [("UDP", 2), ("link type 105, not looked into", 1)]);
        assert_eq!((summary.pairs, summary.talkers[0].2.bytes), (1, 60 + 46));
    }

    #[test]
    fn packets_cut_in_front_of_their_transport_header_are_counted_apart() {
        let mut udp_v6 = [0_u8; 14 + 40 + 16 + 8];
        udp_v6[12..14].copy_from_slice(&[0x86, 0xdd]);
        udp_v6[14] = 0x60;
        (udp_v6[54], udp_v6[55]) = (17, 1); // hop-by-hop options of 16 bytes, then UDP
        for len in 0..=udp_v6.len() {
            let mut counts = Counts::default();
            counts.add(&packet(&udp_v6[..len], 1), ETHERNET);
            let summary = counts.summary(1);
            let expected = match len {
                0..14 => "cut in front of its type",
                14..54 => "IPv6, cut or damaged",
                54..70 => "IPv6, transport protocol not reached",
                _ => "UDP",
            };
            let [(name, count)] = summary.protocols.as_slice() else {
                panic!("{len} bytes: {:?}", summary.protocols);
            };
            assert_eq!((name.as_str(), count.packets), (expected, 1), "{len} bytes");
            assert_eq!(summary.cut.packets, u64::from(len < 70), "{len} bytes");
        }
    }

    #[test]
    fn without_headers_only_what_a_record_says_is_counted() {
        let mut generator = Generator::new("count=9,size=60".parse().unwrap());
        let mut sink = StatsSink::new(Vec::new(), 5).without_headers();
        let summary = sink.summary();
        let mut at_ns = 10;
        while let Some(frame) = generator.next_frame() {
            at_ns += STEP_NS;
            sink.write(&packet(frame, at_ns)).unwrap();
        }
        sink.flush().unwrap();
        let summary = summary.read();
        let nine = Count {
            packets: 9,
            bytes: 540,
        };
        assert_eq!((summary.all, summary.sizes[0]), (nine, (60, nine)));
        assert_eq!(summary.stamps_ns, Some((10 + STEP_NS, at_ns)));
        assert_eq!(summary.rate.len(), 9);
        assert!(summary.protocols.is_empty() && summary.talkers.is_empty());
    }

    #[test]
    fn pairs_are_bounded_and_the_rest_is_counted_together() {
        let mut counts = Counts::default();
        let mut frame = Generator::new("count=1".parse().unwrap())
            .next_frame()
            .unwrap()
            .to_vec();
        for number in 0..PAIRS_MAX as u32 + 10 {
            frame[26..30].copy_from_slice(&number.to_be_bytes());
            counts.add(&packet(&frame, 1), ETHERNET);
        }
        let summary = counts.summary(3);
        assert_eq!(
            (summary.pairs, summary.untold.packets),
            (PAIRS_MAX as u64, 10)
        );
        assert_eq!(summary.talkers.len(), 3);
    }
}
