//! Recordings of what a host's interface sees, as this project reads them and as tshark does.

use std::{
    fs,
    net::IpAddr,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use lab::Host;
use wire::{
    Fault,
    link::{Ipv4, Ipv6, Layers, PROTOCOL_UDP},
    pcap,
    pgm::Packet,
    trace_file::{Record, Step},
};

use super::expected::FIELDS;
use crate::ends::End;

pub(crate) fn is_there(program: &str) -> bool {
    let found = Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    found.is_ok_and(|status| status.success())
}

/// Starts to record what the filter chooses into a file.
pub(crate) fn record(host: &Host, path: &Path, filter: &[&str]) -> End {
    record_at(host, host.interface(), path, filter)
}

/// As [`record`], at an interface by name; `any` stands for all of them.
pub(crate) fn record_at(host: &Host, interface: &str, path: &Path, filter: &[&str]) -> End {
    let mut command = host.command("tcpdump");
    // As the user it was started by, whole packets, each handed on at once, and room for many.
    command.args(["-Z", "root", "-i", interface, "-s", "0"]);
    command.args(["--immediate-mode", "-U", "-B", "65536", "-w"]);
    let recorder = End::start({
        command.arg(path).args(filter);
        command
    });
    // The file's header is written when the recording has begun.
    while fs::metadata(path).map_or(true, |file| file.len() < 24) {
        thread::sleep(Duration::from_millis(10));
    }
    recorder
}

/// A recorded packet of PGM.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    /// Who sent it, by its IP header.
    pub(crate) from: IpAddr,
    /// True for PGM in IP, false for PGM in UDP.
    pub(crate) is_raw: bool,
    pub(crate) tpdu: Vec<u8>,
}

impl Recorded {
    /// The packets of a capture file, in order.
    pub(crate) fn all(path: &Path) -> Vec<Self> {
        let file = fs::read(path).unwrap();
        let (mut decoder, mut rest, mut packets) = (pcap::Decoder::new(), &file[..], Vec::new());
        while !rest.is_empty() {
            let (taken, step) = decoder.step(rest);
            rest = &rest[taken..];
            match step {
                Step::Packet(record) => packets.push(Self::of(&record)),
                Step::Block(_) => {}
                other => panic!("{other:?}"),
            }
        }
        packets
    }

    /// The packet, and how many bytes stand behind it that its lengths do not count.
    pub(crate) fn packet(&self) -> (Packet<'_>, usize) {
        let error = match Packet::parse(&self.tpdu) {
            Ok(packet) => return (packet, 0),
            Err(error) => error,
        };
        assert_eq!(error.what, Fault::Surplus, "{error}");
        let surplus = error.available - error.needed;
        let counted = &self.tpdu[..self.tpdu.len() - surplus];
        (Packet::parse(counted).unwrap(), surplus)
    }

    fn of(record: &Record<'_>) -> Self {
        assert_eq!(
            record.data.len(),
            record.wire_len as usize,
            "recorded whole"
        );
        let layers = Layers::of(record.link_type, record.data).unwrap();
        let ip = layers.ip.unwrap();
        let packet = &record.data[layers.network..];
        let (from, len): (IpAddr, _) = if ip.version == 4 {
            let header = Ipv4::of(packet).unwrap();
            (header.source().into(), header.total_len().into())
        } else {
            let header = Ipv6::of(packet).unwrap();
            let payload_len = usize::from(header.payload_len());
            (header.source().into(), IPV6_HEADER_BYTES + payload_len)
        };
        let payload = &packet[ip.transport - layers.network..len];
        let is_raw = ip.protocol != PROTOCOL_UDP;
        assert!(!is_raw || ip.protocol == PROTOCOL_PGM, "{ip:?}");
        Self {
            from,
            is_raw,
            tpdu: payload[if is_raw { 0 } else { UDP_HEADER_BYTES }..].to_vec(),
        }
    }
}

/// One row a packet, of [`FIELDS`]; several values of one field with commas.
pub(super) fn rows(path: &Path) -> Vec<String> {
    let mut words = vec!["-T", "fields", "-E", "separator=;"];
    words.extend(["-E", "occurrence=a", "-E", "aggregator=,"]);
    words.extend(FIELDS.iter().flat_map(|field| ["-e", field]));
    said(path, &words).lines().map(str::to_owned).collect()
}

/// Every option of every packet in order, each with its length, and what NAK lists hold: fields
/// tell of options that Wireshark does not know, or only names, nothing at all.
pub(super) fn options(path: &Path) -> Vec<String> {
    let mut options: Vec<String> = Vec::new();
    for line in said(path, &["-V"]).lines().map(str::trim) {
        if line.starts_with("Option: ") || line.starts_with("List(") {
            options.push(line.to_owned());
        } else if let (Some(more), Some(list)) = (line.strip_prefix("List:"), options.last_mut()) {
            // Eight numbers stand in each line.
            list.push_str(more);
        }
    }
    options
}

fn said(path: &Path, words: &[&str]) -> String {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(path);
    for port in UDP_PORTS {
        command.arg("-d").arg(format!("udp.port=={port},pgm"));
    }
    let output = command.args(words).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    String::from_utf8(output.stdout).unwrap()
}

/// The ports of the sessions: ours, and those of the profiles.
const UDP_PORTS: [u16; 3] = [7500, 3056, 5555];
const IPV6_HEADER_BYTES: usize = 40;
const UDP_HEADER_BYTES: usize = 8;
const PROTOCOL_PGM: u8 = 113;
