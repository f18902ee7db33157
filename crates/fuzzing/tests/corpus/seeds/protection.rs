//! Protected packets of each kind, untouched and with a byte turned.

use super::write;

pub(super) fn write_all() {
    let kinds = ["spm", "odata", "rdata", "parity", "ncf"];
    for (kind, name) in kinds.into_iter().enumerate() {
        let kind = kind as u8;
        write("protected_packets", name, &[kind, 5, 0, 0, 0]);
        let turned: Vec<u8> = (0..120).flat_map(|at| [kind, at, 0, at, 1]).collect();
        write("protected_packets", &format!("{name}_turned"), &turned);
    }
}
