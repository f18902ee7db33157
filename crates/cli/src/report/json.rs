//! JSON: a command prints one document, or several, each on a line of its own. Each begins with its
//! schema's name and version.

use std::{
    fmt::Write as _,
    io::{self, Write},
    net::IpAddr,
    time::{SystemTime, UNIX_EPOCH},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use schemars::JsonSchema;
use serde::Serialize;
use towline::text::is_plain;

/// Writes one document with a line end, laid out for people too.
pub(super) fn write(
    output: &mut impl Write,
    schema: &str,
    version: u32,
    body: &impl Serialize,
) -> io::Result<()> {
    let envelope = Envelope {
        schema,
        version,
        body,
    };
    end_line(output, serde_json::to_string_pretty(&envelope)?)
}

/// Writes one document as one line: JSON Lines.
pub(super) fn write_line(
    output: &mut impl Write,
    schema: &str,
    version: u32,
    body: &impl Serialize,
) -> io::Result<()> {
    let envelope = Envelope {
        schema,
        version,
        body,
    };
    end_line(output, serde_json::to_string(&envelope)?)
}

/// Writes a document and its line end with one call, and flushes, so that a reader has it at once.
fn end_line(output: &mut impl Write, document: String) -> io::Result<()> {
    let mut document = plain(document);
    document.push('\n');
    output.write_all(document.as_bytes())?;
    output.flush()
}

/// Escapes characters that a terminal would obey or hide. The document keeps its meaning, because
/// such characters occur only in strings. The serializer itself escapes only control characters
/// below U+0020, quotes and backslashes.
fn plain(document: String) -> String {
    let is_fit = |c: char| c == '\n' || is_plain(c);
    if document.chars().all(is_fit) {
        return document;
    }
    let mut escaped = String::with_capacity(document.len() + 16);
    for c in document.chars() {
        if is_fit(c) {
            escaped.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            write!(escaped, "\\u{unit:04x}").expect("writing to a String cannot fail");
        }
    }
    escaped
}

/// A document, preceded by the name and version of its schema.
#[derive(Serialize, JsonSchema)]
pub(super) struct Envelope<'a, T> {
    schema: &'a str,
    version: u32,
    #[serde(flatten)]
    body: &'a T,
}

/// `sub`: one message, as one line. Its data is in `text` when it is UTF-8, otherwise in `base64`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct MessageLine<'a> {
    /// When the message was taken from the session: seconds since 1970 by this host's clock.
    pub(crate) received_s: f64,
    /// Who sent the message: the identifier of the sender's session.
    pub(crate) sender: &'a str,
    /// The name of the sender (`pub --name`); absent until the sender has told it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sender_name: Option<&'a str>,
    /// The address that the sender sends from.
    pub(crate) address: Option<IpAddr>,
    /// Position of the message's (first) packet in the sender's session.
    pub(crate) position: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

impl<'a> MessageLine<'a> {
    pub(crate) const SCHEMA: &'static str = "towline.message";
    pub(super) const VERSION: u32 = 1;

    pub(crate) fn new(
        (sender, sender_name): (&'a str, Option<&'a str>),
        address: Option<IpAddr>,
        position: u64,
        data: &'a [u8],
    ) -> Self {
        let text = std::str::from_utf8(data).ok();
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            // A clock before 1970 gives 0.
            received_s: since_1970.unwrap_or_default().as_secs_f64(),
            sender,
            sender_name,
            address,
            position,
            text,
            base64: text.is_none().then(|| BASE64_STANDARD.encode(data)),
        }
    }

    /// Appends the line to a buffer.
    pub(crate) fn write(&self, buffer: &mut Vec<u8>) {
        let envelope = Envelope {
            schema: Self::SCHEMA,
            version: Self::VERSION,
            body: self,
        };
        let line = serde_json::to_string(&envelope).expect("plain data written to memory");
        buffer.extend_from_slice(plain(line).as_bytes());
        buffer.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_text_where_it_is_text_and_base64_elsewhere() {
        let line = |data: &[u8]| -> serde_json::Value {
            let mut buffer = Vec::new();
            let address = Some([10, 0, 0, 1].into());
            MessageLine::new(("1.2.3", None), address, 7, data).write(&mut buffer);
            assert_eq!(buffer.pop(), Some(b'\n'));
            assert!(!buffer.contains(&b'\n'));
            serde_json::from_slice(&buffer).unwrap()
        };
        let text = line(b"a\"b\nc");
        assert_eq!(text["text"], "a\"b\nc");
        assert_eq!(
            (&text["position"], &text["address"]),
            (&7.into(), &"10.0.0.1".into())
        );
        assert!(text.get("base64").is_none());
        // The clock is read now: 1.7e9 s is November 2023.
        assert!(text["received_s"].as_f64() > Some(1.7e9), "{text}");
        let odd = "\u{9b}31m\u{202e}\u{7f}\u{e0041} ü";
        assert_eq!(line(odd.as_bytes())["text"], odd);
        let document = plain(serde_json::json!({ "name": odd }).to_string());
        assert_eq!(
            document,
            r#"{"name":"\u009b31m\u202e\u007f\udb40\udc41 ü"}"#
        );
        let binary = line(&[0xff, 0]);
        assert_eq!(binary["base64"], "/wA=");
        assert!(binary.get("text").is_none());
    }
}
