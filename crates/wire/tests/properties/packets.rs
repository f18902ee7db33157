//! Arbitrary packets: every type, every option, every combination that can be described.

use std::net::{IpAddr, Ipv6Addr};

use base::Pace;
use proptest::{prelude::*, sample::select};
use towline_wire::{
    Sqn,
    pgm::{
        Ack, Addressing, Body, Cr, Crqst, CurrTgsize, Data, Feedback, Flags, Fragment, Gsi, Join,
        Loads, Mark, MarkTag, Nak, NakBackOffInterval, NakBackOffRange, NakList, Packed, ParityGrp,
        ParityPrm, PathNla, PgmOption, PgmccData, Poll, Polr, Profile, RawOption, Redirect, Rst,
        Spm, emit_flagged,
    },
};

/// One packet by its parts, owning what options borrow.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    pub addressing: Addressing,
    pub flags: Flags,
    pub body: Body,
    pub options: Vec<OwnedOption>,
    pub tsdu: Vec<u8>,
}

impl Parts {
    pub(crate) fn options(&self) -> Vec<PgmOption<'_>> {
        self.options.iter().map(OwnedOption::borrow).collect()
    }

    pub(crate) fn emit(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let (flags, options) = (self.flags, self.options());
        emit_flagged(
            &mut bytes,
            &self.addressing,
            flags,
            &self.body,
            &options,
            &self.tsdu,
        );
        bytes
    }
}

/// An option that owns what it carries.
#[derive(Clone, Debug)]
pub(crate) enum OwnedOption {
    Plain(PgmOption<'static>),
    NakList(Vec<Sqn>),
    Raw(RawKind, u8, u8, u8, Vec<u8>),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum RawKind {
    Encoded,
    Invalid,
    Unknown,
}

impl OwnedOption {
    fn borrow(&self) -> PgmOption<'_> {
        match self {
            Self::Plain(option) => *option,
            Self::NakList(sqns) => PgmOption::NakList(NakList::new(sqns)),
            Self::Raw(raw_kind, kind, bits, specific, value) => {
                let (kind, bits, specific) = (*kind, *bits, *specific);
                let raw = RawOption {
                    kind,
                    bits,
                    specific,
                    value,
                };
                match raw_kind {
                    RawKind::Encoded => PgmOption::Encoded(raw),
                    RawKind::Invalid => PgmOption::Invalid(raw),
                    RawKind::Unknown => PgmOption::Unknown(raw),
                }
            }
        }
    }
}

/// Every packet that can be described.
pub(crate) fn packets() -> impl Strategy<Value = Parts> {
    let flags = select(vec![0x00, 0x00, 0x80, 0xC0]).prop_map(Flags);
    (any_addressing(), flags, bodies()).prop_flat_map(|(addressing, flags, body)| {
        let is_data = body.kind().is_data();
        let tsdu = prop::collection::vec(any::<u8>(), if is_data { 0..200 } else { 0..1 });
        let is_parity = is_data && flags.contains(Flags::PARITY);
        let options = prop::collection::vec(options(is_parity), 0..=16);
        (options, tsdu).prop_map(move |(options, tsdu)| Parts {
            addressing,
            flags,
            body,
            options,
            tsdu,
        })
    })
}

fn any_addressing() -> impl Strategy<Value = Addressing> {
    (any::<u16>(), any::<u16>(), any::<[u8; 6]>()).prop_map(
        |(source_port, destination_port, gsi)| Addressing {
            source_port,
            destination_port,
            gsi: Gsi(gsi),
        },
    )
}

fn sqns() -> impl Strategy<Value = Sqn> {
    any::<u32>().prop_map(Sqn)
}

fn nlas() -> impl Strategy<Value = IpAddr> {
    any::<IpAddr>()
}

fn bodies() -> impl Strategy<Value = Body> {
    let spm = (sqns(), sqns(), sqns(), nlas()).prop_map(|(sqn, trail, lead, path_nla)| Spm {
        sqn,
        trail,
        lead,
        path_nla,
    });
    let numbers = (
        any::<u16>(),
        any::<u16>(),
        any::<u32>(),
        any::<u32>(),
        any::<u32>(),
    );
    let poll = (sqns(), nlas(), numbers).prop_map(|(sqn, path_nla, numbers)| {
        let (round, sub_type, back_off_us, random, mask) = numbers;
        Poll {
            sqn,
            round,
            sub_type,
            path_nla,
            back_off_us,
            random,
            mask,
        }
    });
    let polr = (sqns(), any::<u16>()).prop_map(|(sqn, round)| Polr { sqn, round });
    let naks = || {
        (sqns(), nlas(), nlas()).prop_map(|(sqn, source_nla, group_nla)| Nak {
            sqn,
            source_nla,
            group_nla,
        })
    };
    let ack = (sqns(), any::<u32>()).prop_map(|(rx_max, bitmap)| Ack { rx_max, bitmap });
    let data = || (sqns(), sqns()).prop_map(|(sqn, trail)| Data { sqn, trail });
    prop_oneof![
        spm.prop_map(Body::Spm),
        poll.prop_map(Body::Poll),
        polr.prop_map(Body::Polr),
        data().prop_map(Body::Odata),
        data().prop_map(Body::Rdata),
        naks().prop_map(Body::Nak),
        naks().prop_map(Body::Nnak),
        naks().prop_map(Body::Ncf),
        Just(Body::Spmr),
        ack.prop_map(Body::Ack),
    ]
}

fn options(is_parity: bool) -> BoxedStrategy<OwnedOption> {
    let list = prop::collection::vec(sqns(), 0..=NakList::SQNS_MAX).prop_map(OwnedOption::NakList);
    let plain = plain_options().prop_map(OwnedOption::Plain);
    prop_oneof![8 => plain, 2 => list, 2 => raw_options(is_parity)].boxed()
}

fn plain_options() -> impl Strategy<Value = PgmOption<'static>> {
    let fragment = (sqns(), any::<u32>(), any::<u32>()).prop_map(|(first, offset, apdu_len)| {
        PgmOption::Fragment(Fragment {
            first,
            offset,
            apdu_len,
        })
    });
    let interval = (any::<u32>(), sqns()).prop_map(|(interval_us, poll_sqn)| {
        PgmOption::NakBackOffInterval(NakBackOffInterval {
            interval_us,
            poll_sqn,
        })
    });
    let range = any::<(u32, u32)>().prop_map(|(max_us, min_us)| {
        PgmOption::NakBackOffRange(NakBackOffRange { max_us, min_us })
    });
    let offer = (0_u8..0x80, any::<u32>())
        .prop_map(|(flags, group_size)| PgmOption::ParityPrm(ParityPrm { flags, group_size }));
    let rst = (any::<bool>(), 0_u8..0x40)
        .prop_map(|(is_deaf, reason)| PgmOption::Rst(Rst { is_deaf, reason }));
    prop_oneof![
        fragment,
        sqns().prop_map(|min| PgmOption::Join(Join { min })),
        interval,
        range,
        nlas().prop_map(|dlr_nla| PgmOption::Redirect(Redirect { dlr_nla })),
        offer,
        any::<u32>().prop_map(|group| PgmOption::ParityGrp(ParityGrp { group })),
        any::<u32>().prop_map(|size| PgmOption::CurrTgsize(CurrTgsize { packet_count: size })),
        nlas().prop_map(|nla| PgmOption::PathNla(PathNla { nla })),
        rst,
        crs().prop_map(PgmOption::Cr),
        loads().prop_map(|loads| PgmOption::Crqst(Crqst { loads })),
        congestion_options(),
        Just(PgmOption::Packed(Packed)),
        marks().prop_map(PgmOption::Mark),
        select(vec![PgmOption::NbrUnreach, PgmOption::Syn, PgmOption::Fin]),
    ]
}

fn congestion_options() -> impl Strategy<Value = PgmOption<'static>> {
    let data = (any::<u32>(), nlas()).prop_map(|(stamp_ms, acker_nla)| {
        PgmOption::PgmccData(PgmccData {
            stamp_ms,
            acker_nla,
        })
    });
    let feedback = (any::<u32>(), any::<u16>(), nlas()).prop_map(|(echo_ms, loss, own_nla)| {
        PgmOption::Feedback(Feedback {
            echo_ms,
            loss,
            own_nla,
        })
    });
    prop_oneof![data, feedback]
}

fn loads() -> impl Strategy<Value = Loads> {
    any::<(bool, bool, bool)>().prop_map(|(link, path, receiver)| Loads {
        link,
        path,
        receiver,
    })
}

fn crs() -> impl Strategy<Value = Cr> {
    (loads(), sqns(), any::<(u16, u16, u16)>(), nlas()).prop_map(
        |(loads, reference, (worst_link, worst_path, worst_receiver_path), worst_receiver)| Cr {
            loads,
            reference,
            worst_link,
            worst_path,
            worst_receiver_path,
            worst_receiver,
        },
    )
}

fn marks() -> impl Strategy<Value = Mark> {
    let small = (
        0x10_u8..0x20,
        any::<u8>(),
        any::<[u16; 4]>(),
        any::<[u32; 2]>(),
    );
    let tag = any::<([u64; 2], [u8; MarkTag::TAG_LEN])>();
    (small, any::<[u64; 3]>(), tag, any::<[u8; 16]>()).prop_map(
        |((version, profile, features, counts), large, tag, partner)| {
            let [required, optional, control_port, upstream_port] = features;
            let [receiver_count, limiting_receiver] = counts;
            let [session_id, tx_time_us, bytes_per_s] = large;
            Mark {
                version,
                profile: Profile::of(profile),
                required,
                optional,
                control_port,
                receiver_count,
                session_id,
                tx_time_us,
                announced_pace: Pace::of(bytes_per_s),
                limiting_receiver,
                upstream_port,
                partner: (optional & Mark::PARTNER != 0 && required & Mark::PROTECTED == 0)
                    .then_some(Ipv6Addr::from(partner).to_canonical()),
                tag: (required & Mark::PROTECTED != 0).then_some({
                    let ([number, edge], tag) = tag;
                    MarkTag { number, edge, tag }
                }),
            }
        },
    )
}

/// Options whose bytes are kept as they are: unknown, neutralised and, in parity packets, encoded.
fn raw_options(is_parity: bool) -> BoxedStrategy<OwnedOption> {
    let unknown_kinds = select(vec![0x06_u8, 0x14, 0x15, 0x20, 0x6D, 0x6E, 0x6F, 0x7E]);
    let value = prop::collection::vec(any::<u8>(), 0..=251);
    // F has its meaning in parity packets only, whatever the option.
    let plain_bits = if is_parity { 0xF3 } else { 0xFF };
    let unknown = (unknown_kinds, any::<u8>(), any::<u8>(), value.clone()).prop_map(
        move |(kind, bits, specific, value)| {
            OwnedOption::Raw(RawKind::Unknown, kind, bits & plain_bits, specific, value)
        },
    );
    let invalid =
        (any::<u8>(), any::<u8>(), value.clone()).prop_map(move |(bits, specific, value)| {
            let kind = RawOption::INVALID;
            OwnedOption::Raw(RawKind::Invalid, kind, bits & plain_bits, specific, value)
        });
    if !is_parity {
        return prop_oneof![unknown, invalid].boxed();
    }
    let f = select(vec![0x04_u8, 0x08]);
    let encoded = (1_u8..0x80, f, any::<u8>(), any::<u8>(), value).prop_map(
        |(kind, f, bits, specific, value)| {
            OwnedOption::Raw(RawKind::Encoded, kind, bits | f, specific, value)
        },
    );
    prop_oneof![unknown, invalid, encoded].boxed()
}
