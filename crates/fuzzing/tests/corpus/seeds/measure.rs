//! One message of each kind, and beacons to a group and to a host.

use measure::{Beacon, CLOCK_BYTES, ClockWord, PROBE_BYTES_MIN, Probe, ProbeKind};

use super::write;

pub(super) fn write_all() {
    messages();
    beacons();
}

fn beacons() {
    let beacon = Beacon {
        towline_reach: Beacon::VERSION,
        token: 7,
        name: "camera \u{1b}[1m".to_owned(),
        group: ([239, 192, 0, 1], 7500).into(),
        hops: 16,
        interface: "e0".to_owned(),
        address: Some([10, 0, 0, 1].into()),
        refusal: None,
        heard: Vec::new(),
        is_cut: false,
        is_group: true,
    };
    write("reach_beacon", "to_group", &beacon.emit());
    let answer = Beacon {
        refusal: Some("send: Network is unreachable".to_owned()),
        heard: vec![1, u64::MAX],
        is_cut: true,
        is_group: false,
        ..beacon
    };
    write("reach_beacon", "to_host", &answer.emit());
}

fn messages() {
    for (name, kind, size) in KINDS {
        let mut message = vec![0; size];
        let (token, sequence) = (0x0123_4567_89ab_cdef, 7);
        Probe {
            kind,
            token,
            sequence,
        }
        .emit(&mut message);
        if kind == ProbeKind::ClockTold {
            let word = ClockWord {
                is_synchronised: true,
                error_ns_max: 1_500_000,
                error_ns_estimated: 20_000,
                received_ns: 1_700_000_000_000_000_000,
                sent_ns: 1_700_000_000_000_004_000,
            };
            word.put(&mut message);
        }
        write("rtt_message", name, &message);
    }
}

const KINDS: [(&str, ProbeKind, usize); 5] = [
    ("hello", ProbeKind::Hello, PROBE_BYTES_MIN),
    ("probe", ProbeKind::Probe, 64),
    ("echo", ProbeKind::Echo, 100),
    ("clock", ProbeKind::Clock, CLOCK_BYTES),
    ("clock_told", ProbeKind::ClockTold, CLOCK_BYTES + 8),
];
