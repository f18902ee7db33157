//! Reads vector files.
#![expect(
    clippy::disallowed_methods,
    reason = "the vectors are files; what reads them touches none"
)]

use std::{fs, path::PathBuf};

/// One vector file.
pub(crate) struct Vector {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
    pub(crate) outcome: Outcome,
    again: Vec<u8>,
}

/// What reading the bytes must give.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Line(String),
    Error(String),
    Unknown,
}

impl Vector {
    /// The bytes that the packet is sent as again.
    pub(crate) const fn sent_as(&self) -> &Vec<u8> {
        if self.again.is_empty() {
            &self.bytes
        } else {
            &self.again
        }
    }

    fn parse(name: String, text: &str) -> Self {
        let mut vector = Self {
            name,
            bytes: Vec::new(),
            outcome: Outcome::Unknown,
            again: Vec::new(),
        };
        for line in text.lines() {
            match line.split_at_checked(1) {
                Some(("=", line)) => vector.outcome = Outcome::Line(line.trim().into()),
                Some(("!", line)) => vector.outcome = Outcome::Error(line.trim().into()),
                Some(("~", line)) => vector.again.extend(hex(line)),
                _ => vector.bytes.extend(hex(line)),
            }
        }
        vector
    }
}

/// The vectors of one folder of `testdata/`, by name.
pub(crate) fn vectors(folder: &str) -> Vec<Vector> {
    let files = fs::read_dir(testdata(folder)).expect("testdata is part of the crate");
    let mut vectors: Vec<_> = files
        .map(|entry| entry.expect("a readable folder").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "hex"))
        .map(|path| {
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            let text = fs::read_to_string(&path).expect("a vector is text");
            Vector::parse(name.into_owned(), &text)
        })
        .collect();
    vectors.sort_by(|a, b| a.name.cmp(&b.name));
    vectors
}

/// One vector by its name.
pub(crate) fn vector(folder: &str, name: &str) -> Vector {
    let mut all = vectors(folder).into_iter();
    all.find(|vector| vector.name == name)
        .expect("the vector exists")
}

/// A path below `testdata/`.
pub(crate) fn testdata(folder: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "testdata", folder]
        .iter()
        .collect()
}

fn hex(line: &str) -> Vec<u8> {
    let code = line.split('#').next().unwrap_or_default();
    code.split_whitespace()
        .map(|pair| u8::from_str_radix(pair, 16).expect("two hex digits"))
        .collect()
}
