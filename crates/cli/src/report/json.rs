//! JSON: a command prints one document, or several with one a line. Each begins with its schema's
//! name and version.

use std::{
    io::{self, BufWriter, Write},
    net::IpAddr,
    time::{SystemTime, UNIX_EPOCH},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use schemars::JsonSchema;
use serde::Serialize;

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
    as_line(output, |output| {
        serde_json::to_writer_pretty(output, &envelope)
    })
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
    as_line(output, |output| serde_json::to_writer(output, &envelope))
}

/// Writes a document in few pieces, however many parts it has, and flushes, so that a reader has it
/// at once.
fn as_line<W: Write>(
    output: W,
    document: impl FnOnce(&mut BufWriter<W>) -> serde_json::Result<()>,
) -> io::Result<()> {
    let mut output = BufWriter::new(output);
    document(&mut output)?;
    output.write_all(b"\n")?;
    output.flush()
}

/// A document with what it is and which version of it.
#[derive(Serialize, JsonSchema)]
pub(super) struct Envelope<'a, T> {
    schema: &'a str,
    version: u32,
    #[serde(flatten)]
    body: &'a T,
}

/// `sub`: one message, as one line. Its data is text where it is text, otherwise base64.
#[derive(Serialize, JsonSchema)]
pub(crate) struct MessageLine<'a> {
    /// When it was taken from the session: seconds since 1970 by this host's clock.
    pub(crate) received_s: f64,
    /// Who sent it.
    pub(crate) sender: &'a str,
    /// The address that its sender sends from.
    pub(crate) address: Option<IpAddr>,
    /// Its place in the sender's session.
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
        sender: &'a str,
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
        serde_json::to_writer(&mut *buffer, &envelope).expect("plain data written to memory");
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
            MessageLine::new("1.2.3", address, 7, data).write(&mut buffer);
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
        // After the tests were written, and before they are history.
        assert!(text["received_s"].as_f64() > Some(1.7e9), "{text}");
        let binary = line(&[0xff, 0]);
        assert_eq!(binary["base64"], "/wA=");
        assert!(binary.get("text").is_none());
    }
}
