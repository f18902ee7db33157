//! The control stream, the manifest and the block header of the object protocol.

use wire::object::{BODY_LEN_MAX, BlockHeader, Decoder, FRAME_HEADER_LEN, ManifestRef, Message};

/// A control stream: every message that parses is emitted and read back unchanged.
///
/// **Panics**: when that identity does not hold.
pub fn stream(data: &[u8]) {
    let mut decoder = Decoder::new(BODY_LEN_MAX);
    for piece in data.chunks(37) {
        decoder.push(piece);
        loop {
            match decoder.next_message() {
                Ok(Some(message)) => identity(&message),
                Ok(None) => break,
                Err(error) => {
                    assert!(!error.to_string().is_empty());
                    return;
                }
            }
        }
    }
}

/// A manifest: reading, writing and reading again gives the same bytes.
///
/// **Panics**: when that identity does not hold.
pub fn manifest(data: &[u8]) {
    let Ok(manifest) = ManifestRef::parse(data) else {
        return;
    };
    let mut bytes = Vec::new();
    ManifestRef::emit(&mut bytes, manifest.header(), manifest.entries());
    let again = ManifestRef::parse(&bytes).expect("what was emitted parses");
    assert!(manifest.entries().eq(again.entries()));
    assert_eq!(manifest.header(), again.header());
}

/// A block: the header written again gives the same bytes.
///
/// **Panics**: when that identity does not hold.
pub fn block(data: &[u8]) {
    if let Ok((header, rest)) = BlockHeader::parse(data) {
        assert_eq!(header.to_bytes(), data[..BlockHeader::LEN]);
        assert_eq!(rest.len(), data.len() - BlockHeader::LEN);
    }
}

fn identity(message: &Message<'_>) {
    let mut frame = Vec::new();
    message.emit(&mut frame);
    let mut decoder = Decoder::new(BODY_LEN_MAX);
    decoder.push(&frame);
    if let Message::Unknown { .. } = message {
        assert_eq!(frame.len(), FRAME_HEADER_LEN);
        return;
    }
    let again = decoder.next_message().expect("what was emitted parses");
    assert_eq!(again.as_ref(), Some(message));
}
