//! What a peer says of a stream whose bytes are proven.

use wire::delivered::Frame;

use super::write;

pub(super) fn write_all() {
    let digest = [0x5A; 32];
    let frames = [
        ("confirm", Frame::Confirm { total: 1 << 40 }, &[][..]),
        ("data", Frame::Data { bytes: 5 }, b"hello"),
        ("done", Frame::Done { total: 5, digest }, &[]),
        ("end", Frame::End { total: 5, digest }, &[]),
    ];
    let mut all = Vec::new();
    for (name, frame, behind) in frames {
        let mut bytes = Vec::new();
        frame.emit(&mut bytes);
        bytes.extend_from_slice(behind);
        write("delivered_stream", name, &bytes);
        all.extend_from_slice(&bytes);
    }
    write("delivered_stream", "all", &all);
}
