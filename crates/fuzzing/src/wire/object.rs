//! The control stream, the manifest and the block header of the object protocol.

use wire::object::{BODY_LEN_MAX, BlockHeader, Decoder, FRAME_HEADER_LEN, ManifestRef, Message};

/// Reads any bytes as a control stream. Every message that can be read must be the same when it is
/// written and read again, and must be shown as a line without control characters.
///
/// **Panics**: when one of these conditions fails.
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

/// Reads any bytes as a manifest. When it is written and read again, it must have the same content,
/// version and length.
///
/// **Panics**: when one of these differs, or when an entry refers to an attribute or owner that the
/// manifest does not have.
pub fn manifest(data: &[u8]) {
    let Ok(manifest) = ManifestRef::parse(data) else {
        return;
    };
    let mut bytes = Vec::new();
    ManifestRef::emit(
        &mut bytes,
        manifest.header(),
        manifest.entries(),
        manifest.sections(),
    );
    let again = ManifestRef::parse(&bytes).expect("what was emitted parses");
    assert!(manifest.entries().eq(again.entries()));
    // Each version has one way to be written; the reserved field is not kept.
    assert_eq!((bytes.len(), bytes[4]), (data.len(), data[4]));
    assert_eq!(manifest.header(), again.header());
    assert_eq!(manifest.sections(), again.sections());
    if let Some(attributes) = manifest.sections().attributes {
        let sets = attributes.sets().count();
        for set in attributes.sets() {
            let names: Vec<&[u8]> = set.map(|attribute| attribute.name).collect();
            assert!(!names.is_empty() && names.is_sorted_by(|one, other| one < other));
        }
        for entry in 0..manifest.entries().count() {
            assert!(attributes.of(entry) as usize <= sets);
        }
    }
    if let Some(owners) = manifest.sections().owners {
        let (users, groups) = (owners.users().count(), owners.groups().count());
        for entry in 0..manifest.entries().count() {
            let (user, group) = owners.of(entry);
            assert!(usize::from(user) < users && usize::from(group) < groups);
        }
    }
}

/// Reads any bytes as a block. Its header must give the same bytes when it is written again.
///
/// **Panics**: when the bytes differ.
pub fn block(data: &[u8]) {
    if let Ok((header, rest)) = BlockHeader::parse(data) {
        assert_eq!(header.to_bytes(), data[..BlockHeader::LEN]);
        assert_eq!(rest.len(), data.len() - BlockHeader::LEN);
    }
}

fn identity(message: &Message<'_>) {
    let mut frame = Vec::new();
    message.emit(&mut frame);
    let told = message.to_string();
    assert!(told.starts_with(message.name()));
    assert!(told.chars().all(base::text::is_plain), "a line of a log");
    let mut decoder = Decoder::new(BODY_LEN_MAX);
    decoder.push(&frame);
    if let Message::Unknown { .. } = message {
        assert_eq!(frame.len(), FRAME_HEADER_LEN);
        return;
    }
    let again = decoder.next_message().expect("what was emitted parses");
    assert_eq!(again.as_ref(), Some(message));
}
