//! Super-packets cut up here are what the sender's kernel makes of them without offloads; tagged
//! frames are what was sent.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, IoSlice, Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    ops::ControlFlow,
    os::fd::AsFd as _,
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use lab::{Host, Lab, isolated};
use sys::{
    Control, RawAddress, message,
    netlink::{Ethtool, Rtnetlink},
    packet::{PacketSocket, Packets},
};
use towline_capture::{
    Account, CaptureError, Interface, LiveOptions, Packet, Sink, Source as _,
    source::{FileSource, Progress},
};
use wire::{checksum, link::Layers};

use crate::{capture_with, incoming, pair};

/// Keeps the packets of one protocol, of IPv4 unless of IPv6.
#[derive(Clone, Debug)]
struct Keep {
    protocol: u8,
    v6: bool,
    packets: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Keep {
    fn new(protocol: u8) -> Self {
        Self {
            protocol,
            v6: false,
            packets: Arc::default(),
        }
    }

    fn take(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.packets.lock().unwrap())
    }
}

impl Sink for Keep {
    fn interface(&mut self, _: &Interface) -> Result<(), CaptureError> {
        Ok(())
    }

    fn write(&mut self, packet: &Packet<'_>) -> Result<(), CaptureError> {
        let ip = Layers::parse(packet.data).ip;
        if ip.is_some_and(|ip| (ip.version == 6) == self.v6 && ip.protocol == self.protocol) {
            self.packets.lock().unwrap().push(packet.data.to_vec());
        }
        Ok(())
    }

    fn note(&mut self, _: &Account, _: u64) -> Result<(), CaptureError> {
        Ok(())
    }

    fn flush(&mut self) -> Result<(), CaptureError> {
        Ok(())
    }
}

fn set_offloads(host: &Host, on: bool) {
    let names = [
        "tx-udp-segmentation",
        "tx-tcp-segmentation",
        "tx-checksum-ip-generic",
    ];
    set_features(host, &names, on);
}

fn set_features(host: &Host, names: &[&str], on: bool) {
    let set = host.enter(|| {
        let index = Rtnetlink::open()
            .unwrap()
            .link_index(host.interface())
            .unwrap();
        let mut ethtool = Ethtool::open().unwrap();
        for name in names {
            ethtool.set_feature(index, name, on).unwrap();
        }
    });
    set.unwrap();
}

fn captured(
    lab: &Lab,
    kind: &str,
    protocol: u8,
    meanwhile: &(dyn Fn() + Sync),
) -> (Vec<Vec<u8>>, Account) {
    captured_by(lab, kind, &Keep::new(protocol), meanwhile)
}

fn captured_by(
    lab: &Lab,
    kind: &str,
    keep: &Keep,
    meanwhile: &(dyn Fn() + Sync),
) -> (Vec<Vec<u8>>, Account) {
    let options = LiveOptions {
        has_room_for_super_packets: true,
        ..incoming()
    };
    let sink = Box::new(keep.clone());
    let captured = capture_with(lab.host(1), kind, &options, sink, true, meanwhile);
    assert_eq!(captured.account.residual(), Some(0));
    (keep.take(), captured.account)
}

/// The identification is drawn anew for each packet that is sent: what must be equal is how it goes
/// on. Gives the packet without it and without the header checksum that depends on it.
fn without_id(packet: &[u8], first: &[u8]) -> (Vec<u8>, u16) {
    let id = |packet: &[u8]| u16::from_be_bytes([packet[18], packet[19]]);
    assert_eq!(checksum::fold(checksum::sum(&packet[14..34])), 0xFFFF);
    let mut rest = packet.to_vec();
    rest[18..20].fill(0);
    rest[24..26].fill(0);
    (rest, id(packet).wrapping_sub(id(first)))
}

#[test]
fn datagrams_are_what_the_kernel_makes_of_them() {
    isolated(|| {
        let lab = pair();
        let address = |host: &Host| SocketAddr::from((host.ipv4(), 9));
        let to = address(lab.host(1));
        let receiver = lab.host(1).enter(|| UdpSocket::bind(to).unwrap()).unwrap();
        let from = (lab.host(0).ipv4(), 4000);
        let sender = lab
            .host(0)
            .enter(|| UdpSocket::bind(from).unwrap())
            .unwrap();
        sender.send_to(b"the neighbour is known", to).unwrap();
        let payload: Vec<u8> = (0..4_321_u32).map(|at| (at % 251) as u8).collect();
        let send = || {
            let control = Control::new().segment(1000);
            let raw = RawAddress::from(to);
            let pieces = [IoSlice::new(&payload)];
            message::send(sender.as_fd(), &raw, &pieces, &control).unwrap();
        };
        let (ours, account) = captured(&lab, "ring", 17, &send);
        assert!(account.super_frames >= 1, "{account:?}");
        assert_eq!(account.uncut_super_frames, 0);
        assert_eq!((account.pieces, account.sink_residual()), (4, 0));
        for kind in ["ring2", "int"] {
            let (theirs, account) = captured(&lab, kind, 17, &send);
            assert_eq!(
                (account.super_frames, account.uncut_super_frames),
                (1, 0),
                "{kind}"
            );
            for (one, other) in ours.iter().zip(&theirs) {
                assert_eq!(
                    without_id(one, &ours[0]),
                    without_id(other, &theirs[0]),
                    "{kind}"
                );
            }
            assert_eq!(theirs.len(), 5, "{kind}");
        }
        set_offloads(lab.host(0), false);
        let (kernels, account) = captured(&lab, "ring", 17, &send);
        assert_eq!(account.super_frames, 0);
        drop(receiver);
        assert_eq!(ours.len(), 5);
        assert_eq!(kernels.len(), 5);
        for (one, other) in ours.iter().zip(&kernels) {
            assert_eq!(without_id(one, &ours[0]), without_id(other, &kernels[0]));
        }
    });
}

/// A stream's packets depend on when acknowledgements come; what must be right is every checksum,
/// and that the packets make up the stream.
#[test]
fn segments_make_up_the_stream() {
    isolated(|| {
        let lab = pair();
        let sent: Vec<u8> = (0..200_000_u32).map(|at| (at % 251) as u8).collect();
        let transfer = || {
            let listen = || TcpListener::bind((lab.host(1).ipv4(), 0)).unwrap();
            let listener = lab.host(1).enter(listen).unwrap();
            let to = listener.local_addr().unwrap();
            thread::scope(|scope| {
                let reader = scope.spawn(move || {
                    let (mut stream, _) = listener.accept().unwrap();
                    let mut got = Vec::new();
                    stream.read_to_end(&mut got).unwrap();
                    got.len()
                });
                let mut stream = lab
                    .host(0)
                    .enter(|| TcpStream::connect(to).unwrap())
                    .unwrap();
                stream.write_all(&sent).unwrap();
                drop(stream);
                assert_eq!(reader.join().unwrap(), sent.len());
            });
        };
        let (packets, account) = captured(&lab, "ring", 6, &transfer);
        assert!(account.super_frames > 0, "{account:?}");
        assert_eq!(account.uncut_super_frames, 0);
        assert!(account.delivered > account.received);
        let mut stream = BTreeMap::new();
        let mut first = None;
        for packet in &packets {
            assert!(packet.len() <= 1514, "{} bytes", packet.len());
            let tcp = &packet[34..];
            let sum = checksum::sum(&packet[26..34])
                + checksum::of_words(6 + tcp.len() as u32)
                + checksum::sum(tcp);
            assert_eq!(checksum::fold(sum), 0xFFFF);
            let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
            let begin = *first.get_or_insert(sequence.wrapping_add(1));
            let data = &tcp[usize::from(tcp[12] >> 4) * 4..];
            if !data.is_empty() {
                stream.insert(sequence.wrapping_sub(begin), data.to_vec());
            }
        }
        let stream: Vec<u8> = stream.into_values().flatten().collect();
        assert!(stream == sent, "{} bytes of {}", stream.len(), sent.len());
    });
}

/// Tags that the kernel took out are back in their places, the outer one of two included.
#[test]
fn tags_are_in_the_capture_as_they_were_sent() {
    isolated(|| {
        let lab = pair();
        let frames = tagged_frames();
        for kind in ["ring", "ring2", "int"] {
            let keep = Keep::new(OURS);
            let options = incoming();
            let sink = Box::new(keep.clone());
            let captured = capture_with(lab.host(1), kind, &options, sink, false, || {
                put_on_wire(lab.host(0), &frames);
            });
            assert_eq!(keep.take(), frames, "{kind}");
            assert_eq!(captured.account.cut, 0);
        }
    });
}

/// What tcpdump sees at the far end while `meanwhile` runs, as its file has it; or why it cannot be
/// had.
fn seen_by_tcpdump(lab: &Lab, filter: &str, meanwhile: &dyn Fn()) -> Result<Vec<Vec<u8>>, String> {
    let unique = filter.replace([' ', ':'], "");
    let name = format!("towline-tcpdump-{}-{unique}.pcap", std::process::id());
    let path = std::env::temp_dir().join(name);
    let mut command = lab.host(1).command("tcpdump");
    command.args([
        "-i",
        "e0",
        "-Q",
        "in",
        "--immediate-mode",
        "-U",
        "-s",
        "0",
        "-w",
    ]);
    command.arg(&path).args(["-Z", "root", filter]);
    let tcpdump = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut tcpdump = tcpdump.map_err(|error| format!("no tcpdump to compare with: {error}"))?;
    let mut said = BufReader::new(tcpdump.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("listening on") {
        if said.read_line(&mut line).unwrap() == 0 {
            tcpdump.wait().unwrap();
            return Err(format!("tcpdump cannot capture here: {line}"));
        }
    }
    meanwhile();
    thread::sleep(Duration::from_millis(300));
    let pid = tcpdump.id().to_string();
    let told = Command::new("kill").args(["-INT", &pid]).status();
    assert!(told.unwrap().success() && tcpdump.wait().unwrap().success());
    let mut source = FileSource::open(&path).unwrap();
    let mut packets = Vec::new();
    let mut keep = |packet: &Packet<'_>| {
        packets.push(packet.data.to_vec());
        ControlFlow::Continue(())
    };
    while source.read(&mut keep).unwrap() != Progress::End {}
    std::fs::remove_file(path).unwrap();
    Ok(packets)
}

/// Datagrams that the sender's kernel cuts up with offloads off, as tcpdump sees them, are those
/// that we cut up here with offloads on: of both versions of IP, in full pieces and a shorter last.
#[test]
fn datagrams_are_what_tcpdump_sees_without_offloads() {
    isolated(|| {
        let lab = pair();
        let cases = [
            (false, 4_321_u16, 1_000),
            (false, 2_944, 1_472),
            (true, 4_321, 1_000),
        ];
        for (v6, payload_len, piece_len) in cases {
            let of = |host: &Host| -> IpAddr {
                if v6 {
                    host.ipv6().into()
                } else {
                    host.ipv4().into()
                }
            };
            let to = SocketAddr::from((of(lab.host(1)), 9));
            let receiver = lab.host(1).enter(|| UdpSocket::bind(to).unwrap()).unwrap();
            let from = SocketAddr::from((of(lab.host(0)), 4000));
            let sender = lab.host(0).enter(|| UdpSocket::bind(from).unwrap());
            let sender = sender.unwrap();
            sender.send_to(b"the neighbour is known", to).unwrap();
            let payload: Vec<u8> = (0..payload_len).map(|at| (at % 251) as u8).collect();
            let send = || {
                let control = Control::new().segment(piece_len);
                let raw = RawAddress::from(to);
                let pieces = [IoSlice::new(&payload)];
                message::send(sender.as_fd(), &raw, &pieces, &control).unwrap();
            };
            set_offloads(lab.host(0), true);
            let keep = Keep {
                v6,
                ..Keep::new(17)
            };
            let (ours, account) = captured_by(&lab, "ring", &keep, &send);
            assert_eq!((account.super_frames, account.uncut_super_frames), (1, 0));
            set_offloads(lab.host(0), false);
            let theirs = match seen_by_tcpdump(&lab, "udp dst port 9", &send) {
                Ok(theirs) => theirs,
                Err(reason) => {
                    println!("skipped: {reason}");
                    return;
                }
            };
            drop(receiver);
            let pieces = usize::from(payload_len.div_ceil(piece_len));
            assert_eq!((ours.len(), theirs.len()), (pieces, pieces));
            for (one, other) in ours.iter().zip(&theirs) {
                if v6 {
                    assert_eq!(one, other);
                } else {
                    assert_eq!(without_id(one, &ours[0]), without_id(other, &theirs[0]));
                }
            }
        }
    });
}

/// Sends frames as they are.
fn put_on_wire(host: &Host, frames: &[Vec<u8>]) {
    let send = || {
        let socket = PacketSocket::open().unwrap();
        let index = Rtnetlink::open().unwrap().link_index("e0").unwrap();
        socket.bind(index, Packets::None).unwrap();
        for frame in frames {
            assert!(socket.send(frame).unwrap());
        }
    };
    host.enter(send).unwrap();
}

/// Tagged frames, which the adapters are no longer to take tags out of, are in tcpdump's file what
/// they are in ours while these do.
#[test]
fn tagged_frames_are_what_tcpdump_sees_without_offloads() {
    isolated(|| {
        let lab = pair();
        let frames = tagged_frames();
        let send = || put_on_wire(lab.host(0), &frames);
        let mut ours = Vec::new();
        for kind in ["ring", "ring2", "int"] {
            let (packets, account) = captured_by(&lab, kind, &Keep::new(OURS), &send);
            assert_eq!((packets.len(), account.cut), (frames.len(), 0), "{kind}");
            ours.push(packets);
        }
        let tagging = ["tx-vlan-hw-insert", "tx-vlan-stag-hw-insert"];
        set_features(lab.host(0), &tagging, false);
        let filter = "ether src 02:00:00:00:00:01";
        let theirs = match seen_by_tcpdump(&lab, filter, &send) {
            Ok(theirs) => theirs,
            Err(reason) => {
                println!("skipped: {reason}");
                return;
            }
        };
        assert_eq!(theirs.len(), frames.len());
        for ours in ours {
            assert_eq!(ours, theirs);
        }
    });
}

/// A tag, two of them, one with a priority and no number, and none.
fn tagged_frames() -> [Vec<u8>; 4] {
    let tags: [&[u8]; 4] = [
        &[0x81, 0x00, 0x00, 0x05],
        &[0x88, 0xa8, 0x20, 0x07, 0x81, 0x00, 0x00, 0x09],
        &[0x81, 0x00, 0xe0, 0x00],
        &[],
    ];
    let mut ip = vec![0_u8; 46];
    (ip[0], ip[3], ip[8], ip[9]) = (0x45, 46, 64, OURS);
    let macs = [0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, 1];
    tags.map(|tag| [&macs, tag, &[8, 0], &ip].concat())
}

/// A protocol number for experiments (RFC 3692), which no kernel sends by itself.
const OURS: u8 = 253;
