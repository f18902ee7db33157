//! Frames: their headers, and frames as the kernel hands them over, before they are cut or their
//! checksums are made.

use wire::link::{
    Ethernet, Igmp, Ipv4, Ipv6, Layers, Mld, SegmentKind, Stop, Tcp, Udp, fill_checksum, segment,
};

/// Reads any bytes as a packet of each link type, and as each header.
///
/// The first two bytes are the link type. The places of headers must lie within the packet, unless
/// the search says why it stopped. A view must take exactly the bytes that hold its fixed part.
/// Each field that is written must be read again, and nothing else may change. A header that is
/// written from its value must give the same value.
///
/// **Panics**: when one of these does not hold.
pub fn headers(data: &[u8]) {
    let Some((link_type, packet)) = data.split_first_chunk::<2>() else {
        return;
    };
    if let Some(layers) = Layers::of(u16::from_be_bytes(*link_type), packet) {
        let is_whole = layers.stop == Stop::Transport;
        assert!(!is_whole || layers.ip.is_some());
        if let Some(ip) = layers.ip {
            assert!(layers.network < ip.transport);
            assert!(!is_whole || ip.transport <= packet.len());
            let network = &packet[layers.network..];
            assert_eq!(ip.version == 4, Ipv4::of(network).is_some());
            assert_eq!(ip.version == 6, Ipv6::of(network).is_some());
        }
    }
    ethernet(packet);
    ipv4(packet);
    ipv6(packet);
    tcp(packet);
    udp(packet);
    igmp(packet);
    mld(packet);
}

fn ethernet(packet: &[u8]) {
    let mut written = packet.to_vec();
    let Some(mut view) = Ethernet::of(&mut written[..]) else {
        assert!(packet.len() < 18);
        return;
    };
    let (header, len) = (view.header(), view.header_len());
    assert_eq!(len, if header.tag.is_some() { 18 } else { 14 });
    assert_eq!(view.is_to_group(), packet[0] & 1 == 1);
    assert_eq!(view.to_string(), header.to_string());
    assert_eq!(emitted(|out| header.emit(out)), &packet[..len]);
    view.set_ether_type(0x0800);
    assert_eq!(view.ether_type(), 0x0800);
    assert_unchanged(packet, &written, len - 2..len);
}

fn igmp(packet: &[u8]) {
    let Some(view) = Igmp::of(packet) else {
        assert!(packet.len() < 8);
        return;
    };
    // Only a report reports a group.
    let is_report = matches!(view.kind(), 0x12 | 0x16 | 0x22);
    assert!(is_report || !view.reports(view.group()));
    let version = view.query_version(packet.len());
    assert_eq!(version.is_some(), view.kind() == 0x11);
    assert!(view.to_string().starts_with("IGMP"));
    let emitted = emitted(|out| view.message().emit(out));
    let again = Igmp::of(&emitted).expect("a message was written");
    assert_eq!(again.message(), view.message());
    assert_eq!(sum(&emitted) % 0xFFFF, 0);
}

fn mld(packet: &[u8]) {
    let Some(view) = Mld::of(packet) else {
        assert!(packet.len() < 24 || !matches!(packet[0], 130..=132 | 143));
        return;
    };
    assert_eq!(view.group().is_none(), packet[0] == 143);
    let reports_its_group = view.group().is_some_and(|group| view.reports(group));
    assert_eq!(reports_its_group, packet[0] == 131);
    assert!(view.to_string().starts_with("MLD"));
    let Some(message) = view.message() else {
        return;
    };
    let emitted = emitted(|out| message.emit(out, 0));
    let again = Mld::of(&emitted).expect("a message was written");
    assert_eq!(again.message(), Some(message));
    assert_eq!(sum(&emitted) % 0xFFFF, 0);
}

fn ipv4(packet: &[u8]) {
    let mut written = packet.to_vec();
    let Some(mut view) = Ipv4::of(&mut written[..]) else {
        assert!(packet.len() < 20 || packet[0] >> 4 != 4 || packet[0] & 15 < 5);
        return;
    };
    assert!((20..=60).contains(&view.header_len()));
    assert!(view.is_fragment() || !view.is_later_fragment());
    let ends = [view.source().octets(), view.destination().octets()];
    assert_eq!(view.addresses()[..], ends.concat());
    assert!(view.to_string().starts_with("IPv4 "));
    let emitted = emitted(|out| view.header().emit(out));
    let again = Ipv4::of(&emitted).expect("a header was written");
    assert_eq!(again.header(), view.header());
    assert_eq!(sum(&emitted) % 0xFFFF, 0);
    let header_len = view.header_len();
    let was = (view.total_len(), view.identification());
    view.set_total_len(!was.0);
    view.set_identification(!was.1);
    assert_eq!((view.total_len(), view.identification()), (!was.0, !was.1));
    view.set_total_len(was.0);
    view.set_identification(was.1);
    assert_unchanged(packet, &written, 0..0);
    let mut view = Ipv4::of(&mut written[..]).expect("it was one");
    view.fill_checksum();
    if packet.len() >= header_len {
        assert_eq!(sum(&written[..header_len]) % 0xFFFF, 0);
    } else {
        assert_eq!(written, packet, "options that are cut have no checksum");
    }
    assert_unchanged(packet, &written, 10..12);
}

fn ipv6(packet: &[u8]) {
    let mut written = packet.to_vec();
    let Some(mut view) = Ipv6::of(&mut written[..]) else {
        assert!(packet.len() < 40 || packet[0] >> 4 != 6);
        return;
    };
    let ends = [view.source().octets(), view.destination().octets()];
    assert_eq!(view.addresses()[..], ends.concat());
    assert!(view.to_string().starts_with("IPv6 "));
    let emitted = emitted(|out| view.header().emit(out));
    let again = Ipv6::of(&emitted).expect("a header was written");
    assert_eq!(again.header(), view.header());
    let was = view.payload_len();
    view.set_payload_len(!was);
    assert_eq!(view.payload_len(), !was);
    assert_unchanged(packet, &written, 4..6);
}

fn tcp(packet: &[u8]) {
    let mut written = packet.to_vec();
    let Some(mut view) = Tcp::of(&mut written[..]) else {
        assert!(packet.len() < 20 || packet[12] >> 4 < 5);
        return;
    };
    assert!((20..=60).contains(&view.header_len()));
    assert!(view.to_string().starts_with("TCP "));
    let emitted = emitted(|out| view.header().emit(out, packet, 0));
    let again = Tcp::of(&emitted).expect("a header was written");
    assert_eq!(again.header(), view.header());
    assert_eq!(sum(&emitted) % 0xFFFF, 0);
    let was = (view.sequence(), view.flags());
    view.set_sequence(!was.0);
    view.set_flags(!was.1);
    assert_eq!((view.sequence(), view.flags()), (!was.0, !was.1));
    view.set_sequence(was.0);
    view.set_flags(was.1);
    view.fill_checksum(0);
    assert_eq!(sum(&written) % 0xFFFF, 0);
    assert_unchanged(packet, &written, 16..18);
}

fn udp(packet: &[u8]) {
    let mut written = packet.to_vec();
    let Some(mut view) = Udp::of(&mut written[..]) else {
        assert!(packet.len() < 8);
        return;
    };
    assert!(view.to_string().starts_with("UDP "));
    let emitted = emitted(|out| view.header().emit(out, packet, 0));
    let again = Udp::of(&emitted).expect("a header was written");
    assert_eq!(again.header(), view.header());
    assert_eq!(sum(&emitted) % 0xFFFF, 0);
    let was = (
        view.source_port(),
        view.destination_port(),
        view.total_len(),
    );
    view.set_source_port(!was.0);
    view.set_destination_port(!was.1);
    view.set_total_len(!was.2);
    let is = (
        view.source_port(),
        view.destination_port(),
        view.total_len(),
    );
    assert_eq!(is, (!was.0, !was.1, !was.2));
    view.set_source_port(was.0);
    view.set_destination_port(was.1);
    view.set_total_len(was.2);
    view.fill_checksum(0);
    assert_ne!(view.checksum(), 0, "0 would mean that there is none");
    assert_eq!(sum(&written) % 0xFFFF, 0);
    assert_unchanged(packet, &written, 6..8);
}

fn emitted(emit: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    emit(&mut bytes);
    bytes
}

/// Checks that only the bytes of `field` differ.
fn assert_unchanged(before: &[u8], after: &[u8], field: std::ops::Range<usize>) {
    assert_eq!(before[..field.start], after[..field.start]);
    assert_eq!(before[field.end..], after[field.end..]);
}

/// Cuts a frame of any bytes as a super-packet, and fills in one checksum of the same frame.
///
/// The first bytes say of which kind the super-packet is, how much payload each packet gets, and
/// where the checksum stands. After a cut, the packets must carry the whole payload in order,
/// behind headers whose lengths and checksums are right. A checksum that is filled in must be
/// right, and nothing else may change.
///
/// **Panics**: when one of these does not hold.
pub fn segments(data: &[u8]) {
    let Some((asked, frame)) = data.split_at_checked(ASKED_LEN) else {
        return;
    };
    let word = |at: usize| usize::from(u16::from_be_bytes([asked[at], asked[at + 1]]));
    let kind = match asked[0] & 1 {
        0 => SegmentKind::Tcp,
        _ => SegmentKind::Udp,
    };
    cut(frame, kind, word(1));
    fill(frame, word(3), word(5));
}

fn cut(frame: &[u8], kind: SegmentKind, payload_bytes: usize) {
    let mut packets: Vec<Vec<u8>> = Vec::new();
    let is_cut = segment(frame, kind, payload_bytes, &mut Vec::new(), |packet| {
        packets.push(packet.to_vec());
    });
    assert_eq!(is_cut, !packets.is_empty(), "packets, or none and false");
    if !is_cut {
        return;
    }
    let layers = Layers::parse(frame);
    let ip = layers.ip.expect("only IP packets are cut");
    let (protocol, header_len) = match kind {
        SegmentKind::Tcp => (6, usize::from(frame[ip.transport + 12] >> 4) * 4),
        SegmentKind::Udp => (17, 8),
    };
    assert_eq!(ip.protocol, protocol);
    let header_end = ip.transport + header_len;
    let (last, others) = packets.split_last().expect("there is one");
    for packet in others {
        assert_eq!(packet.len(), header_end + payload_bytes, "a full packet");
    }
    assert!((header_end..=header_end + payload_bytes).contains(&last.len()));
    let payloads = packets.iter().map(|packet| &packet[header_end..]);
    let payload: Vec<u8> = payloads.flatten().copied().collect();
    assert_eq!(payload, &frame[header_end..]);
    for (index, packet) in packets.iter().enumerate() {
        assert_eq!(Layers::parse(packet), layers);
        assert_headers(packet, layers.network, ip.transport, ip.version, protocol);
        let transport = &packet[ip.transport..];
        match kind {
            SegmentKind::Tcp => {
                let sequence = sequence_of(&frame[ip.transport..]);
                let begins = sequence.wrapping_add((index * payload_bytes) as u32);
                assert_eq!(sequence_of(transport), begins, "sequence number");
            }
            SegmentKind::Udp => {
                let len = u16::from_be_bytes([transport[4], transport[5]]);
                assert_eq!(len, transport.len() as u16, "UDP length");
            }
        }
    }
}

fn sequence_of(tcp: &[u8]) -> u32 {
    u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]])
}

/// Checks the lengths and checksums of a packet. It follows RFC 791, 8200 and 1071 and not the
/// code, so that the two check each other.
fn assert_headers(packet: &[u8], network: usize, transport: usize, version: u8, protocol: u8) {
    let field = |at: usize| u16::from_be_bytes([packet[network + at], packet[network + at + 1]]);
    let len = packet.len() - network;
    let addresses = if version == 4 {
        assert_eq!(field(2), len as u16, "total length");
        assert_eq!(sum(&packet[network..transport]) % 0xFFFF, 0, "IPv4 header");
        network + 12..network + 20
    } else {
        assert_eq!(field(4), (len - 40) as u16, "payload length");
        network + 8..network + 40
    };
    let transport_len = (packet.len() - transport) as u64;
    let pseudo = sum(&packet[addresses]) + u64::from(protocol) + transport_len;
    let whole = pseudo + sum(&packet[transport..]);
    assert_eq!(whole % 0xFFFF, 0, "transport checksum");
}

fn fill(frame: &[u8], start: usize, offset: usize) {
    let mut filled = frame.to_vec();
    let is_filled = fill_checksum(&mut filled, start, offset);
    let at = start + offset;
    assert_eq!(is_filled, at + 2 <= frame.len());
    if !is_filled {
        assert_eq!(filled, frame);
        return;
    }
    let check = u64::from(u16::from_be_bytes([filled[at], filled[at + 1]]));
    assert_ne!(check, 0, "0 would mean that there is none");
    assert_eq!((sum(&frame[start..]) + check) % 0xFFFF, 0);
    filled[at..at + 2].copy_from_slice(&frame[at..at + 2]);
    assert_eq!(filled, frame, "only the checksum changes");
}

/// Returns the sum of the 16-bit words, of which the last may lack a byte.
fn sum(bytes: &[u8]) -> u64 {
    let word = |pair: &[u8]| u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
    bytes.chunks(2).map(word).sum()
}

/// Kind, bytes of payload, start and offset of the checksum.
const ASKED_LEN: usize = 7;
