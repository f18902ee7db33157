//! The errors of the object layer name the place of the fault, and the bytes there are to it.

use proptest::{prelude::*, sample::Index};
use towline_wire::{
    Fault, ParseError,
    object::{
        BlockHeader, EntryKind, EntryRef, FRAME_HEADER_LEN, Hello, ManifestHeader, ManifestRef,
        Message, Mtime, Sections,
    },
};

/// The law for the error of a unit (frame, manifest, payload) of `len` bytes: offset and available
/// bytes lead to its end, or a length says what it is and what it may be.
fn check(error: ParseError, len: usize) -> Result<(), TestCaseError> {
    match error.what {
        Fault::Length => prop_assert_ne!(error.available, error.needed),
        Fault::TooLong => prop_assert!(error.available > error.needed),
        what => {
            prop_assert_eq!(error.offset + error.available, len, "{:?}", error);
            prop_assert_eq!(what == Fault::Truncated, error.needed > error.available);
        }
    }
    prop_assert!(error.offset <= len && !error.limited_by.is_empty());
    Ok(())
}

/// A manifest of files with these paths.
fn manifest(paths: &[String]) -> Vec<u8> {
    let header = ManifestHeader {
        slab_shift: 20,
        flags: 0,
        entry_count: 0,
        content_bytes: 0,
        identity: [0; 16],
    };
    let entries = paths.iter().map(|path| EntryRef {
        kind: EntryKind::File,
        mode: 0o644,
        mtime: Mtime::default(),
        size_bytes: 0,
        path: path.as_bytes(),
        target: b"",
    });
    let mut bytes = Vec::new();
    ManifestRef::emit(&mut bytes, &header, entries, Sections::default());
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn any_body_of_a_message_is_read_or_its_fault_has_a_place(
        kind in 0_u16..20,
        body in prop::collection::vec(prop_oneof![Just(0), any::<u8>()], 0..100),
    ) {
        if let Err(error) = Message::parse(kind, 0, &body) {
            check(error, FRAME_HEADER_LEN + body.len())?;
            prop_assert!(error.offset >= FRAME_HEADER_LEN);
        }
    }

    #[test]
    fn a_changed_byte_of_a_greeting_is_read_or_its_fault_has_a_place(
        name in "[a-z\u{e4}]{1,20}",
        at in any::<Index>(),
        value in any::<u8>(),
        cut in any::<Index>(),
    ) {
        let hello = Hello {
            version_min: 1,
            version_max: 1,
            instance: 2,
            session_id: 3,
            name: &name,
            nonce: None,
        };
        let mut frame = Vec::new();
        Message::Hello(hello).emit(&mut frame);
        let mut body = frame.split_off(FRAME_HEADER_LEN);
        let at = at.index(body.len());
        body[at] = value;
        body.truncate(cut.index(2 * body.len()));
        if let Err(error) = Message::parse(1, 0, &body) {
            check(error, FRAME_HEADER_LEN + body.len())?;
        }
    }

    #[test]
    fn any_payload_is_read_or_its_fault_has_a_place(
        payload in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        if let Err(error) = BlockHeader::parse(&payload) {
            check(error, payload.len())?;
        }
    }

    #[test]
    fn a_changed_byte_of_a_manifest_is_read_or_its_fault_has_a_place(
        paths in prop::collection::vec("[a-z]{1,9}", 0..4),
        at in any::<Index>(),
        value in any::<u8>(),
        more in 0_usize..3,
        cut in any::<Index>(),
    ) {
        let mut bytes = manifest(&paths);
        let at = at.index(bytes.len());
        bytes[at] = value;
        bytes.resize(bytes.len() + more, 0);
        bytes.truncate(cut.index(2 * bytes.len()));
        if let Err(error) = ManifestRef::parse(&bytes) {
            check(error, bytes.len())?;
        }
    }
}
