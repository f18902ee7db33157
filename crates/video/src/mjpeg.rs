//! The bytes around the JPEG pictures of a stream that a browser shows as one moving picture. The
//! stream is HTTP's `multipart/x-mixed-replace`: each part takes the place of the part before.
//!
//! **Spec**: RFC 2046 section 5.1.1 for the delimiters. The type is a convention of browsers.

/// The value of `Content-Type` of the whole stream.
pub const CONTENT_TYPE: &str = "multipart/x-mixed-replace; boundary=towline";

/// Returns what stands before a JPEG of `bytes` bytes; [`AFTER`] stands behind the JPEG.
#[must_use]
pub fn before(bytes: usize) -> String {
    format!("--towline\r\nContent-Type: image/jpeg\r\nContent-Length: {bytes}\r\n\r\n")
}

/// What stands behind each JPEG.
pub const AFTER: &str = "\r\n";

/// What stands at the end of the stream, behind the last [`AFTER`].
pub const END: &str = "--towline--\r\n";
