//! The valid vectors as Wireshark sees them. Skipped, and said so, where tshark is not installed.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test that asks another program"
)]

use std::{fs, path::Path, process::Command};

use towline_wire::pgm::{Body, ChecksumState, Packet, PacketType, verify_checksum};

use crate::file::{Vector, vectors};

#[test]
fn tshark_reads_the_same_fields() {
    let vectors: Vec<Vector> = vectors("pgm").into_iter().filter(is_comparable).collect();
    let path = std::env::temp_dir().join(format!("towline-vectors-{}.pcap", std::process::id()));
    fs::write(&path, pcap(&vectors)).expect("a writable folder for temporary files");
    let seen = tshark(&path);
    fs::remove_file(&path).expect("our own file");
    let Some(seen) = seen else {
        println!("skipped: tshark is not installed");
        return;
    };
    let expected: Vec<String> = vectors.iter().map(line).collect();
    assert_eq!(seen.lines().collect::<Vec<_>>(), expected);
}

/// Wireshark takes a header alone (SPMR) for something else than PGM, and finds fault with a chain
/// without options.
fn is_comparable(vector: &Vector) -> bool {
    let packet = Packet::parse(&vector.bytes).expect("a valid vector");
    packet.header().kind != PacketType::Spmr && vector.name != "spm_empty_chain"
}

/// What tshark is asked for, in the same order and form, from our own reading.
fn line(vector: &Vector) -> String {
    let packet = Packet::parse(&vector.bytes).expect("a valid vector");
    let header = packet.header();
    let sqn = match packet.body() {
        Body::Spm(spm) => spm.sqn,
        Body::Poll(poll) => poll.sqn,
        Body::Polr(polr) => polr.sqn,
        Body::Odata(data) | Body::Rdata(data) => data.sqn,
        Body::Nak(nak) | Body::Nnak(nak) | Body::Ncf(nak) => nak.sqn,
        Body::Ack(ack) => ack.rx_max,
        Body::Spmr => unreachable!("left out above"),
    };
    let fields = [
        header.source_port.to_string(),
        header.destination_port.to_string(),
        format!("{:#04x}", header.kind.code()),
        format!("{:#04x}", header.flags.0),
        u8::from(verify_checksum(&vector.bytes) == ChecksumState::Good).to_string(),
        header.tsdu_len.to_string(),
        format!("{:#010x}", sqn.0),
        String::new(),
    ];
    fields.join(";")
}

fn tshark(path: &Path) -> Option<String> {
    let sqns = ["spm", "poll", "polr", "nak"].map(|body| format!("pgm.{body}.sqn"));
    let header = ["sport", "dport", "type", "opts", "cksum.status", "tsdulen"];
    let mut command = Command::new("tshark");
    command.arg("-r").arg(path);
    command.args(["-d", "udp.port==7500,pgm", "-T", "fields"]);
    // The last occurrence: the checksum's status shares its name with the checksum.
    command.args(["-E", "separator=;", "-E", "occurrence=l"]);
    for field in header {
        command.args(["-e", &format!("pgm.hdr.{field}")]);
    }
    for field in sqns
        .iter()
        .map(String::as_str)
        .chain(["pgm.ack.maxsqn", "_ws.malformed"])
    {
        command.args(["-e", field]);
    }
    let output = command.output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    // One of the sequence number columns holds a value (data uses that of SPM): the others go.
    let rows = text.lines().map(|row| {
        let columns: Vec<&str> = row.split(';').collect();
        let (header, rest) = columns.split_at(header.len().min(columns.len()));
        let (sqns, malformed) = rest.split_at(rest.len().saturating_sub(1));
        [header.join(";"), sqns.concat(), malformed.concat()].join(";")
    });
    Some(rows.collect::<Vec<_>>().join("\n"))
}

/// A capture file of raw IP packets, each with one vector in UDP.
fn pcap(vectors: &[Vector]) -> Vec<u8> {
    const LINKTYPE_RAW: u32 = 101;
    let mut file = Vec::new();
    let words = [0xA1B2_C3D4, 0x0002_0004, 0, 0, 65_535, LINKTYPE_RAW];
    file.extend(words.iter().flat_map(|word: &u32| word.to_be_bytes()));
    for vector in vectors {
        let len = u16::try_from(28 + vector.bytes.len()).expect("a short vector");
        let lens = [0, 0, u32::from(len), u32::from(len)];
        file.extend(lens.iter().flat_map(|word| word.to_be_bytes()));
        file.extend([0x45, 0]);
        file.extend(len.to_be_bytes());
        file.extend([0, 1, 0, 0, 16, 17, 0, 0, 10, 0, 0, 1, 239, 192, 0, 1]);
        for field in [5000, 7500, len - 20, 0] {
            file.extend(u16::to_be_bytes(field));
        }
        file.extend(&vector.bytes);
    }
    file
}
