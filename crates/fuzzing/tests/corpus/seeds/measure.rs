//! One message of each kind.

use measure::{CLOCK_BYTES, ClockWord, PROBE_BYTES_MIN, Probe, ProbeKind};

use super::write;

pub(super) fn write_all() {
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
