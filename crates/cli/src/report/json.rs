//! JSON: one document a command, or one a line of a command that has several, with its schema's
//! name and version in front.

use std::io::{self, BufWriter, Write};

use serde::Serialize;

/// Writes one document, laid out for people too, and a line end.
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

/// Writes a document in few pieces, however many parts it has, and ends it: whoever reads on is to
/// have it at once.
fn as_line<W: Write>(
    output: W,
    document: impl FnOnce(&mut BufWriter<W>) -> serde_json::Result<()>,
) -> io::Result<()> {
    let mut output = BufWriter::new(output);
    document(&mut output)?;
    output.write_all(b"\n")?;
    output.flush()
}

#[derive(Serialize)]
struct Envelope<'a, T> {
    schema: &'a str,
    version: u32,
    #[serde(flatten)]
    body: &'a T,
}

/// The document of `sub`, written while the messages come: `messages` first, the closing report
/// after them. It appends to a buffer that the caller writes.
#[derive(Debug, Default)]
pub(crate) struct MessageStream {
    has_begun: bool,
}

/// One message of the document; text where it is text, otherwise its bytes in hexadecimal.
#[derive(Serialize)]
struct Message<'a> {
    source: &'a str,
    sqn: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hex: Option<String>,
}

impl MessageStream {
    /// Appends one message.
    pub(crate) fn message(&mut self, buffer: &mut Vec<u8>, source: &str, sqn: u64, data: &[u8]) {
        self.separate(buffer);
        let text = std::str::from_utf8(data).ok();
        let hex = || data.iter().map(|byte| format!("{byte:02x}")).collect();
        let hex = text.is_none().then(hex);
        let message = Message {
            source,
            sqn,
            text,
            hex,
        };
        serde_json::to_writer(buffer, &message).expect("plain data written to memory");
    }

    /// Appends the end of the document: the fields of `report`.
    pub(crate) fn end(mut self, buffer: &mut Vec<u8>, report: &impl Serialize) {
        if !self.has_begun {
            self.begin(buffer);
        }
        buffer.extend_from_slice(b"\n  ],\n  \"report\": ");
        serde_json::to_writer(&mut *buffer, report).expect("plain data written to memory");
        buffer.extend_from_slice(b"\n}\n");
    }

    fn separate(&mut self, buffer: &mut Vec<u8>) {
        if self.has_begun {
            buffer.push(b',');
        } else {
            self.begin(buffer);
        }
        buffer.extend_from_slice(b"\n    ");
    }

    fn begin(&mut self, buffer: &mut Vec<u8>) {
        self.has_begun = true;
        buffer.extend_from_slice(
            b"{\n  \"schema\": \"towline.sub\",\n  \"version\": 1,\n  \"messages\": [",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_of_messages_is_one_document() {
        for count in [0, 1, 3] {
            let mut stream = MessageStream::default();
            let mut buffer = Vec::new();
            for sqn in 0..count {
                let data: &[u8] = if sqn == 1 { &[0xff, 0] } else { b"a\"b" };
                stream.message(&mut buffer, "1.2.3", sqn, data);
            }
            stream.end(&mut buffer, &serde_json::json!({"messages": count}));
            let value: serde_json::Value = serde_json::from_slice(&buffer).unwrap();
            assert_eq!(
                value["messages"].as_array().map(Vec::len),
                usize::try_from(count).ok()
            );
            if count == 3 {
                assert_eq!(value["messages"][1]["hex"], "ff00");
                assert_eq!(value["messages"][2]["text"], "a\"b");
            }
        }
    }
}
