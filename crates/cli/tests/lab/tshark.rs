//! A recorded run as Wireshark reads it, packet by packet, beside our own reading.
//!
//! Recorded at the receiver's host before its loss takes packets away, each packet by itself.
//! Skipped, with the reason printed, where tshark or a program that records is missing.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use lab::{Host, Lab, LabSpec};
use wire::{
    Sqn,
    pgm::{Body, ChecksumState, Packet, PgmOption, verify_checksum},
};

use crate::ends::{End, alone, assert_complete, towline};

const GROUP: &str = "239.192.0.1:7500";
const LIMIT: Duration = Duration::from_secs(60);

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
    let mut command = host.command("tcpdump");
    // As the user it was started by, whole packets, each handed on at once, and room for many.
    command.args([
        "-Z",
        "root",
        "-i",
        host.interface(),
        "-s",
        "0",
        "--immediate-mode",
        "-U",
        "-B",
        "65536",
        "-w",
    ]);
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

/// The UDP payloads of a capture file, in order.
fn payloads(path: &Path) -> Vec<Vec<u8>> {
    let file = fs::read(path).unwrap();
    let (head, mut rest) = file.split_at(24);
    let is_swapped = head[..4] == [0xD4, 0xC3, 0xB2, 0xA1];
    let word = |bytes: &[u8]| {
        let bytes = bytes.try_into().unwrap();
        if is_swapped {
            u32::from_le_bytes(bytes)
        } else {
            u32::from_be_bytes(bytes)
        }
    };
    assert_eq!(word(&head[20..24]), 1, "Ethernet");
    let mut payloads = Vec::new();
    while !rest.is_empty() {
        let (kept, len) = (word(&rest[8..12]), word(&rest[12..16]));
        assert_eq!(kept, len, "recorded whole");
        let frame;
        (frame, rest) = rest[16..].split_at(kept as usize);
        let packet = &frame[14..];
        let udp = &packet[usize::from(packet[0] & 15) * 4..];
        let udp_len = usize::from(u16::from_be_bytes([udp[4], udp[5]]));
        payloads.push(udp[8..udp_len].to_vec());
    }
    payloads
}

/// Every option of every packet in order, each with its length, and what NAK lists hold: fields
/// tell options that Wireshark does not know, or only names, not at all.
fn tshark_options(path: &Path) -> Vec<String> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(path);
    command.args(["-d", "udp.port==7500,pgm", "-V"]);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.lines().map(str::trim);
    let options = lines.filter(|line| line.starts_with("List(") || line.starts_with("Option: "));
    options.map(str::to_owned).collect()
}

/// One row a packet, of these fields; several values of one field with commas.
fn tshark(path: &Path) -> Vec<String> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(path);
    command.args(["-d", "udp.port==7500,pgm", "-T", "fields"]);
    command.args([
        "-E",
        "separator=;",
        "-E",
        "occurrence=a",
        "-E",
        "aggregator=,",
    ]);
    for field in FIELDS {
        command.args(["-e", field]);
    }
    let output = command.output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn every_recorded_packet_reads_the_same() {
    alone(|| {
        if !(is_there("tshark") && is_there("tcpdump")) {
            println!("skipped: tshark or tcpdump is not installed");
            return;
        }
        let path = std::env::temp_dir().join(format!("towline-lab-{}.pcap", std::process::id()));
        let lab = Lab::new(&LabSpec::new(2).segments_at_switch()).unwrap();
        lab.host(1).set_loss(15, 100).unwrap();
        let recorder = record(lab.host(1), &path, &["udp", "port", "7500"]);
        let words =
            format!("load recv -g {GROUP} --json --count 2000 --timeout 20s --faults nogso");
        let receiver = End::start(towline(lab.host(1), &words));
        let words = format!(
            "load send -g {GROUP} --json --receivers 1 --count 2000 --size 1-20000 --rate 20MB/s"
        );
        End::start(towline(lab.host(0), &words)).report(LIMIT);
        assert_complete(&receiver.report(LIMIT), 2000);
        thread::sleep(Duration::from_millis(500));
        recorder.signal("-INT");
        recorder.finish(LIMIT);
        let (rows, options) = (tshark(&path), tshark_options(&path));
        let payloads = payloads(&path);
        fs::remove_file(&path).unwrap();

        assert_eq!(rows.len(), payloads.len(), "a row a packet");
        let (mut seen, mut our_options) = (BTreeMap::new(), Vec::new());
        for (number, (row, payload)) in (1..).zip(rows.iter().zip(&payloads)) {
            let packet = Packet::parse(payload).unwrap();
            note_kinds(&packet, &mut seen);
            packet
                .options()
                .for_each(|option| name_option(option, &mut our_options));
            assert_eq!(
                *row,
                expected(payload, &packet),
                "packet {number}: {packet}"
            );
        }
        assert_eq!(options.len(), our_options.len());
        for (option, ours) in options.iter().map(String::as_str).zip(&our_options) {
            // Of a long list Wireshark writes the number and the beginning.
            let is_same = option == ours || option.len() > 60 && ours.starts_with(option);
            assert!(is_same, "{option} instead of {ours}");
        }
        println!("{} packets read alike: {seen:?}", payloads.len());
        let kinds: Vec<_> = seen.into_keys().collect();
        assert_eq!(
            kinds, KINDS,
            "the run shows every kind of packet and option"
        );
    });
}

/// What the run is to show: packet types, and options with the packets that carry them. An SPMR is
/// not among them: tshark 4.0 shows no field at all of a packet that is a header and nothing more.
const KINDS: [&str; 10] = [
    "Fragment in Odata",
    "Fragment in Rdata",
    "NakList in Nak",
    "NakList in Ncf",
    "fin in Spm",
    "mark in Spm",
    "plain Nak",
    "plain Ncf",
    "plain Odata",
    "plain Rdata",
];

fn note_kinds(packet: &Packet<'_>, seen: &mut BTreeMap<String, u64>) {
    let kind = packet.header().kind;
    let mut options = packet.options().peekable();
    if options.peek().is_none() {
        *seen.entry(format!("plain {kind:?}")).or_default() += 1;
    }
    for option in options {
        let name = match option {
            PgmOption::Fragment(_) => "Fragment",
            PgmOption::NakList(_) => "NakList",
            PgmOption::Fin => "fin",
            PgmOption::Mark(_) => "mark",
            other => panic!("{other:?} in {kind:?}"),
        };
        *seen.entry(format!("{name} in {kind:?}")).or_default() += 1;
    }
}

/// What tshark is to say about a packet, from our own reading of it.
fn expected(payload: &[u8], packet: &Packet<'_>) -> String {
    let header = packet.header();
    let hex = |sqn: Sqn| format!("{:#010x}", sqn.0);
    let mut row: BTreeMap<&str, String> = BTreeMap::new();
    row.insert("pgm.hdr.sport", header.source_port.to_string());
    row.insert("pgm.hdr.dport", header.destination_port.to_string());
    row.insert("pgm.hdr.type", format!("{:#04x}", header.kind.code()));
    row.insert("pgm.hdr.opts", format!("{:#04x}", header.flags.0));
    let gsi = header.gsi.0.iter().map(|byte| format!("{byte:02x}"));
    row.insert("pgm.hdr.gsi", gsi.collect());
    // The status shares its name with the checksum, of which the first byte is printed before it.
    let is_good = verify_checksum(payload) == ChecksumState::Good;
    let status = format!("{},{}", header.checksum >> 8, u8::from(is_good));
    row.insert("pgm.hdr.cksum.status", status);
    row.insert("pgm.hdr.tsdulen", header.tsdu_len.to_string());
    let body_end = match packet.body() {
        Body::Spm(spm) => {
            row.insert("pgm.spm.sqn", hex(spm.sqn));
            row.insert("pgm.spm.trail", hex(spm.trail));
            row.insert("pgm.spm.lead", hex(spm.lead));
            row.insert("pgm.spm.path.ipv4", spm.path_nla.to_string());
            36
        }
        Body::Odata(data) | Body::Rdata(data) => {
            row.insert("pgm.spm.sqn", hex(data.sqn));
            row.insert("pgm.spm.trail", hex(data.trail));
            24
        }
        Body::Nak(nak) | Body::Ncf(nak) => {
            row.insert("pgm.nak.sqn", hex(nak.sqn));
            row.insert("pgm.nak.src.ipv4", nak.source_nla.to_string());
            row.insert("pgm.nak.grp.ipv4", nak.group_nla.to_string());
            36
        }
        other => panic!("{other:?} in an ordinary run"),
    };
    let options_len = packet.tsdu_range().start - body_end;
    if options_len > 0 {
        row.insert("pgm.opts.tlen", options_len.to_string());
    }
    expect_options(packet, &mut row);
    let columns = FIELDS.map(|field| row.remove(field).unwrap_or_default());
    columns.join(";")
}

/// An option as Wireshark writes it; our own mark has no name there.
fn name_option(option: PgmOption<'_>, lines: &mut Vec<String>) {
    let (name, len) = match option {
        PgmOption::Fragment(_) => ("Fragment", 16),
        PgmOption::NakList(list) => ("NakList", 4 + 4 * list.len()),
        PgmOption::Fin => ("Fin", 4),
        PgmOption::Mark(_) => ("Unknown (0x6e)", 52),
        other => panic!("{other:?} in an ordinary run"),
    };
    lines.push(format!("Option: {name}, Length: {len}"));
    if let PgmOption::NakList(list) = option {
        let sqns: Vec<_> = list.iter().map(|sqn| format!("{:#x}", sqn.0)).collect();
        lines.push(format!("List({}): {}", sqns.len(), sqns.join(" ")));
    }
}

/// What Wireshark has fields for.
fn expect_options(packet: &Packet<'_>, row: &mut BTreeMap<&str, String>) {
    let mut kinds = Vec::new();
    for option in packet.options() {
        match option {
            PgmOption::Fragment(fragment) => {
                kinds.push("0x01");
                let first = format!("{:#010x}", fragment.first.0);
                row.insert("pgm.opts.fragment.first_sqn", first);
                row.insert(
                    "pgm.opts.fragment.fragment_offset",
                    fragment.offset.to_string(),
                );
                row.insert(
                    "pgm.opts.fragment.total_length",
                    fragment.apdu_len.to_string(),
                );
            }
            PgmOption::NakList(_) => kinds.push("0x02"),
            _ => {}
        }
    }
    row.insert("pgm.genopts.type", kinds.join(","));
}

const FIELDS: [&str; 20] = [
    "pgm.hdr.sport",
    "pgm.hdr.dport",
    "pgm.hdr.type",
    "pgm.hdr.opts",
    "pgm.hdr.gsi",
    "pgm.hdr.cksum.status",
    "pgm.hdr.tsdulen",
    "pgm.spm.sqn",
    "pgm.spm.trail",
    "pgm.spm.lead",
    "pgm.spm.path.ipv4",
    "pgm.nak.sqn",
    "pgm.nak.src.ipv4",
    "pgm.nak.grp.ipv4",
    "pgm.opts.tlen",
    "pgm.genopts.type",
    "pgm.opts.fragment.first_sqn",
    "pgm.opts.fragment.fragment_offset",
    "pgm.opts.fragment.total_length",
    "_ws.malformed",
];
