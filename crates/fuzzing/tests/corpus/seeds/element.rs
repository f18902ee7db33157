//! Operations on a network element, as `fuzzing::pgm::element_ops` reads them.

use super::write;

/// The first byte of a list: the settings of the element.
const KEEPS_MUCH: u8 = 4;
/// Operations on the source whose number is in the upper half.
const DATA: u8 = 0;
const REPAIR: u8 = 2;
const SPM: u8 = 3;
const NAK: u8 = 5;
const NCF: u8 = 7;
const REQUEST: u8 = 8;
const BROKEN: u8 = 9;
const PASS: u8 = 13;

pub(super) fn write_all() {
    let spm = [SPM, 0x0B];
    let [came, lost] = [[DATA, 0], [DATA, 3]];
    // One way asks for the packet before the lead.
    let nak = |way: u8| [NAK, way, 1, 0, 0];
    let (ncf, repair, pass) = ([NCF, 0, 1, 0, 0], [REPAIR, 1, 0], [PASS, 1, 0]);
    write(
        "element_ops",
        "made_lost_before_and_behind",
        &list(
            KEEPS_MUCH,
            &[
                &spm,
                &came,
                &nak(1),
                &nak(2),
                &lost,
                &nak(1),
                &nak(2),
                &ncf,
                &repair,
                &pass,
            ],
        ),
    );
    let parity = [SPM, 0x05];
    let ask = [NAK, 0xC1, 9, 0, 2];
    let confirm = [NCF, 0xC0, 9, 0, 2];
    let sent = [REPAIR, 9, 0x40];
    write(
        "element_ops",
        "made_parity",
        &list(0, &[&parity, &came, &lost, &ask, &confirm, &sent, &pass]),
    );
    // Another source with a tunnel, and requests: for an SPM, and polls.
    let far = [SPM | 0x20, 0x09];
    write(
        "element_ops",
        "made_requests",
        &list(
            0,
            &[
                &spm,
                &far,
                &[REQUEST, 2],
                &[REQUEST, 1, 0, 9],
                &[REQUEST | 0x20, 1, 0, 9],
                &pass,
                &[SPM, 1],
                &nak(1),
                &spm,
                &[BROKEN, 4, 0, 12, 0, 0, 0, 9, 0, 0, 0, 0, 7, 7, 7, 7],
            ],
        ),
    );
}

fn list(settings: u8, ops: &[&[u8]]) -> Vec<u8> {
    [&[settings], ops.concat().as_slice()].concat()
}
