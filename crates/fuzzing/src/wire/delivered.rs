//! The frames of a stream whose bytes are proven.

use wire::delivered::{DATA_BYTES_MAX, Frame};

/// Reads any bytes as the stream of a peer after its greeting. Each frame that can be read must
/// give the same bytes when it is written, and must not be read before its last byte has come.
///
/// **Panics**: when one of these conditions fails.
pub fn delivered(data: &[u8]) {
    let mut rest = data;
    loop {
        let (frame, len) = match Frame::parse(rest) {
            Ok(Some(read)) => read,
            Ok(None) => return assert!(rest.len() < Frame::LEN_MAX, "no frame is longer"),
            Err(error) => return assert!(!error.to_string().is_empty()),
        };
        let mut bytes = Vec::new();
        frame.emit(&mut bytes);
        assert_eq!(bytes, rest[..len]);
        for cut in 0..len {
            assert_eq!(Frame::parse(&rest[..cut]), Ok(None), "{frame:?}");
        }
        rest = &rest[len..];
        if let Frame::Data { bytes } = frame {
            assert!((1..=DATA_BYTES_MAX).contains(&bytes));
            rest = rest.get(bytes as usize..).unwrap_or(&[]);
        }
    }
}
