//! Functions that the tests of the packets' bodies share.

use super::{Body, Header, PacketType};
use crate::{
    Fault, ParseError,
    cursor::{Reader, Writer},
};

/// Reads `bytes` as the body of a packet of type `kind`.
pub(super) fn read(kind: PacketType, bytes: &[u8]) -> Result<Body, ParseError> {
    let mut reader = Reader::new(bytes, Header::LEN, kind.name(), "the packet's end");
    Body::parse(kind, &mut reader)
}

/// Asserts that `bytes` are read as `body`, that `body` is written as `bytes`, and that reading
/// fails wherever `bytes` are cut.
pub(super) fn assert_bytes(bytes: &[u8], body: Body) {
    let kind = body.kind();
    assert_eq!(read(kind, bytes), Ok(body));
    let mut written = vec![0xEE; body.wire_len()];
    body.emit(&mut Writer::new(&mut written));
    assert_eq!(written, bytes);
    for len in 0..bytes.len() {
        let error = read(kind, &bytes[..len]).unwrap_err();
        assert_eq!((error.what, error.layer), (Fault::Truncated, kind.name()));
        assert!(
            error.offset + error.available == Header::LEN + len && error.needed > error.available,
            "cut to {len}: {error}"
        );
    }
}
