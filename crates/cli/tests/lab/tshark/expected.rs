//! What tshark is to say about a packet, from our own reading of it.
//!
//! Where Wireshark 4.0 (packet-pgm.c) reads less than RFC 3208 defines, the expectation is what it
//! says, and a comment at the place tells the limit.

use std::{collections::BTreeMap, net::IpAddr};

use wire::{
    Sqn,
    pgm::{Body, ChecksumState, Packet, PacketType, PgmOption, verify_checksum},
};

use super::recording::Recorded;

/// The values of each field in a packet, in their order.
#[derive(Debug, Default)]
struct Row(BTreeMap<&'static str, Vec<String>>);

impl Row {
    fn put(&mut self, field: &'static str, value: impl ToString) {
        assert!(FIELDS.contains(&field), "{field}");
        self.0.entry(field).or_default().push(value.to_string());
    }

    fn sqn(&mut self, field: &'static str, sqn: Sqn) {
        self.put(field, format!("{:#010x}", sqn.0));
    }

    fn byte(&mut self, field: &'static str, value: u8) {
        self.put(field, format!("{value:#04x}"));
    }

    /// An address with its family.
    fn nla(&mut self, [family, ipv4, ipv6]: [&'static str; 3], address: IpAddr) {
        let (number, field) = if address.is_ipv6() {
            (2, ipv6)
        } else {
            (1, ipv4)
        };
        self.put(family, number);
        self.put(field, address);
    }

    fn text(mut self) -> String {
        let columns = FIELDS.map(|field| self.0.remove(field).unwrap_or_default().join(","));
        columns.join(";")
    }
}

/// The row of [`FIELDS`] for a packet.
pub(super) fn row(recorded: &Recorded, packet: &Packet<'_>) -> String {
    let mut row = Row::default();
    let header = packet.header();
    if recorded.is_raw && recorded.from.is_ipv4() && header.kind.has_router_alert() {
        row.put("ip.opt.ra", 0);
    }
    // Wireshark 4.0 shows no field of an SPMR, with what a key adds behind it or without.
    if header.kind == PacketType::Spmr {
        return row.text();
    }
    row.put("pgm.hdr.sport", header.source_port);
    row.put("pgm.hdr.dport", header.destination_port);
    row.byte("pgm.hdr.type", header.kind.code());
    row.byte("pgm.hdr.opts", header.flags.0);
    let gsi = header.gsi.0.iter().map(|byte| format!("{byte:02x}"));
    row.put("pgm.hdr.gsi", gsi.collect::<String>());
    // The status shares its name with the checksum, of which the first byte is printed before it.
    let is_good = verify_checksum(&recorded.tpdu) == ChecksumState::Good;
    row.put("pgm.hdr.cksum.status", header.checksum >> 8);
    row.put("pgm.hdr.cksum.status", u8::from(is_good));
    row.put("pgm.hdr.tsdulen", header.tsdu_len);
    put_body(&mut row, packet.body());
    if !packet.options().is_empty() {
        let options = packet.options().map(|option| option.wire_len());
        row.put("pgm.opts.tlen", OPT_LENGTH_BYTES + options.sum::<usize>());
    }
    packet
        .options()
        .for_each(|option| put_option(&mut row, option));
    row.text()
}

fn put_body(row: &mut Row, body: Body) {
    match body {
        Body::Spm(spm) => {
            row.sqn("pgm.spm.sqn", spm.sqn);
            row.sqn("pgm.spm.trail", spm.trail);
            row.sqn("pgm.spm.lead", spm.lead);
            row.nla(SPM_PATH, spm.path_nla);
        }
        Body::Odata(data) | Body::Rdata(data) => {
            row.sqn("pgm.spm.sqn", data.sqn);
            row.sqn("pgm.spm.trail", data.trail);
        }
        Body::Nak(nak) | Body::Ncf(nak) => {
            row.sqn("pgm.nak.sqn", nak.sqn);
            row.nla(NAK_SOURCE, nak.source_nla);
            row.nla(NAK_GROUP, nak.group_nla);
        }
        Body::Poll(poll) => {
            row.sqn("pgm.poll.sqn", poll.sqn);
            row.put("pgm.poll.round", poll.round);
            row.put("pgm.poll.subtype", format!("{:#06x}", poll.sub_type));
            row.nla(POLL_PATH, poll.path_nla);
            row.put("pgm.poll.backoff_ivl", poll.back_off_us);
            row.put("pgm.poll.rand_str", format!("{:#010x}", poll.random));
            row.put("pgm.poll.matching_bmask", format!("{:#010x}", poll.mask));
        }
        Body::Polr(polr) => {
            row.sqn("pgm.polr.sqn", polr.sqn);
            row.put("pgm.polr.round", polr.round);
        }
        other => panic!("{other:?} in a recorded run"),
    }
}

/// What Wireshark has fields for. It names OPT_SYN, OPT_FIN, OPT_RST and OPT_CURR_TGSIZE, and shows
/// no field of them. Of what it does not know it shows none either.
fn put_option(row: &mut Row, option: PgmOption<'_>) {
    let mut opx = 0;
    match option {
        PgmOption::Fragment(fragment) => {
            row.sqn("pgm.opts.fragment.first_sqn", fragment.first);
            row.put("pgm.opts.fragment.fragment_offset", fragment.offset);
            row.put("pgm.opts.fragment.total_length", fragment.apdu_len);
        }
        // Wireshark shows the contents as if they were not encoded, and takes F, which stands
        // beside OPX in the third byte, for a part of OPX.
        PgmOption::Encoded(raw) => {
            let word = |at: usize| u32::from_be_bytes(raw.value[at..at + 4].try_into().unwrap());
            row.sqn("pgm.opts.fragment.first_sqn", Sqn(word(0)));
            row.put("pgm.opts.fragment.fragment_offset", word(4));
            row.put("pgm.opts.fragment.total_length", word(8));
            opx = raw.bits;
        }
        PgmOption::Join(join) => row.sqn("pgm.opts.join.min_join", join.min),
        PgmOption::ParityPrm(offer) => {
            row.byte("pgm.opts.parity_prm.op", offer.flags);
            row.sqn("pgm.opts.parity_prm.prm_grp", Sqn(offer.group_size));
        }
        // The fields have the names of the other option's.
        PgmOption::ParityGrp(set) => {
            row.byte("pgm.opts.parity_prm.op", 0);
            row.sqn("pgm.opts.parity_prm.prm_grp", Sqn(set.group));
        }
        PgmOption::NakList(_) => {}
        _ => return,
    }
    row.byte("pgm.genopts.type", option.kind());
    row.put("pgm.genopts.len", option.wire_len());
    row.byte("pgm.genopts.opx", opx);
}

/// The lines by which Wireshark names an option, with all that a NAK list holds.
pub(super) fn option_lines(option: PgmOption<'_>, lines: &mut Vec<String>) {
    let kind = option.kind();
    let name = match name(option) {
        "Encoded" => "Fragment".to_owned(),
        // What Wireshark calls it.
        "CurrTgsize" => "CurrTgsiz".to_owned(),
        // Our own.
        "Mark" | "Packed" => format!("Unknown ({kind:#04x})"),
        name => name.to_owned(),
    };
    lines.push(format!("Option: {name}, Length: {}", option.wire_len()));
    if let PgmOption::NakList(list) = option {
        let sqns: Vec<_> = list.iter().map(|sqn| format!("{:#x}", sqn.0)).collect();
        lines.push(format!("List({}): {}", sqns.len(), sqns.join(" ")));
    }
}

/// The name of an option that a run may show.
pub(super) fn name(option: PgmOption<'_>) -> &'static str {
    match option {
        PgmOption::Fragment(_) => "Fragment",
        PgmOption::Encoded(_) => "Encoded",
        PgmOption::NakList(_) => "NakList",
        PgmOption::Join(_) => "Join",
        PgmOption::ParityPrm(_) => "ParityPrm",
        PgmOption::ParityGrp(_) => "ParityGrp",
        PgmOption::CurrTgsize(_) => "CurrTgsize",
        PgmOption::Syn => "Syn",
        PgmOption::Fin => "Fin",
        PgmOption::Rst(_) => "Rst",
        PgmOption::Packed(_) => "Packed",
        PgmOption::Mark(_) => "Mark",
        other => panic!("{other:?} in a recorded run"),
    }
}

pub(super) const FIELDS: [&str; 43] = [
    "ip.opt.ra",
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
    "pgm.spm.pathafi",
    "pgm.spm.path.ipv4",
    "pgm.spm.path.ipv6",
    "pgm.nak.sqn",
    "pgm.nak.srcafi",
    "pgm.nak.src.ipv4",
    "pgm.nak.src.ipv6",
    "pgm.nak.grpafi",
    "pgm.nak.grp.ipv4",
    "pgm.nak.grp.ipv6",
    "pgm.poll.sqn",
    "pgm.poll.round",
    "pgm.poll.subtype",
    "pgm.poll.pathafi",
    "pgm.poll.path.ipv4",
    "pgm.poll.path.ipv6",
    "pgm.poll.backoff_ivl",
    "pgm.poll.rand_str",
    "pgm.poll.matching_bmask",
    "pgm.polr.sqn",
    "pgm.polr.round",
    "pgm.opts.tlen",
    "pgm.genopts.type",
    "pgm.genopts.len",
    "pgm.genopts.opx",
    "pgm.opts.join.min_join",
    "pgm.opts.fragment.first_sqn",
    "pgm.opts.fragment.fragment_offset",
    "pgm.opts.fragment.total_length",
    "pgm.opts.parity_prm.op",
    "pgm.opts.parity_prm.prm_grp",
    "_ws.malformed",
];

const SPM_PATH: [&str; 3] = ["pgm.spm.pathafi", "pgm.spm.path.ipv4", "pgm.spm.path.ipv6"];
const NAK_SOURCE: [&str; 3] = ["pgm.nak.srcafi", "pgm.nak.src.ipv4", "pgm.nak.src.ipv6"];
const NAK_GROUP: [&str; 3] = ["pgm.nak.grpafi", "pgm.nak.grp.ipv4", "pgm.nak.grp.ipv6"];
const POLL_PATH: [&str; 3] = [
    "pgm.poll.pathafi",
    "pgm.poll.path.ipv4",
    "pgm.poll.path.ipv6",
];
const OPT_LENGTH_BYTES: usize = 4;
