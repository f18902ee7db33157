//! Content that is read ahead equals the files' bytes, in whatever order it is asked for.

use std::{fs, path::PathBuf};

use wire::object::ErrorCode;

use super::*;
use crate::Tree;

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let name = format!("towline-content-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// Asks until the answer is not pending.
fn awaited(mut ask: impl FnMut() -> Result<Poll<()>, ContentError>) -> Result<(), ContentError> {
    loop {
        match ask()? {
            Poll::Ready(()) => return Ok(()),
            Poll::Pending => thread::park(),
        }
    }
}

/// Reads as many bytes as `out` has.
fn read_into(
    content: &mut FileContent,
    manifest: &Manifest,
    offset: u64,
    out: &mut Vec<u8>,
) -> Result<(), ContentError> {
    let len = out.len();
    awaited(|| content.read_into(manifest, offset, len, out))
}

/// Files of many lengths, and all their bytes in the manifest's order.
fn sample(scratch: &Scratch) -> (Arc<Manifest>, FileContent, Vec<u8>) {
    let mut rng = base::Rng::new(5);
    fs::create_dir(scratch.0.join("d")).unwrap();
    for (number, len) in [700_000, 0, 1, 4096, 2_000_000, 4096].iter().enumerate() {
        let mut bytes = vec![0; *len];
        rng.fill(&mut bytes);
        fs::write(scratch.0.join("d").join(number.to_string()), bytes).unwrap();
    }
    let Tree {
        manifest,
        mut content,
        ..
    } = Tree::read(&[scratch.0.join("d")]).unwrap();
    let reader = thread::current();
    content.wake_by(move || reader.unpark());
    let path = |file| {
        std::str::from_utf8(manifest.path_of(file))
            .unwrap()
            .to_owned()
    };
    let bytes = manifest
        .files()
        .iter()
        .map(|file| fs::read(scratch.0.join(path(file))).unwrap());
    let bytes = bytes.flatten().collect();
    (manifest, content, bytes)
}

#[test]
fn pieces_in_order_by_jumps_and_in_between_are_the_files_bytes() {
    let scratch = Scratch::new("order");
    let (manifest, mut content, bytes) = sample(&scratch);
    let mut rng = base::Rng::new(6);
    let total = manifest.content_bytes();
    let pieces = total.div_ceil(PIECE_BYTES);
    let mut at = 0;
    for _ in 0..400 {
        let (start, len) = match rng.below(10) {
            0 => (rng.below(total - 5000), 5000),
            1 => {
                at = rng.below(pieces);
                (at * PIECE_BYTES, piece_len(&manifest, at * PIECE_BYTES))
            }
            2 if at + 2 < pieces => {
                at += 2;
                (at * PIECE_BYTES, piece_len(&manifest, at * PIECE_BYTES))
            }
            _ => {
                at = (at + 1) % pieces;
                (at * PIECE_BYTES, piece_len(&manifest, at * PIECE_BYTES))
            }
        };
        let mut out = vec![0; usize::try_from(len).unwrap()];
        match rng.below(2) {
            0 => read_into(&mut content, &manifest, start, &mut out).unwrap(),
            _ => awaited(|| content.read(&manifest, start, &mut out)).unwrap(),
        }
        let from = usize::try_from(start).unwrap();
        assert!(out == bytes[from..from + out.len()], "at {start}");
        let state = content
            .ahead
            .as_ref()
            .map(|ahead| ahead.lock().pieces.len());
        assert!(state.unwrap_or(0) <= DEPTH_MAX);
    }
}

#[test]
fn a_file_that_changed_is_told_when_its_piece_is_asked_for_and_again() {
    let scratch = Scratch::new("changed");
    let (manifest, mut content, bytes) = sample(&scratch);
    let file = fs::File::options().append(true).open(scratch.0.join("d/4"));
    std::io::Write::write_all(&mut file.unwrap(), b"more").unwrap();
    let len = usize::try_from(PIECE_BYTES).unwrap();
    let begins = manifest.files()[4].start / PIECE_BYTES;
    let mut out = vec![0; len];
    for piece in 0..begins {
        let at = piece * PIECE_BYTES;
        read_into(&mut content, &manifest, at, &mut out).unwrap();
        let from = usize::try_from(at).unwrap();
        assert!(out == bytes[from..from + len]);
    }
    for _ in 0..2 {
        let at = begins * PIECE_BYTES;
        let error = read_into(&mut content, &manifest, at, &mut out).unwrap_err();
        assert_eq!(error.code, ErrorCode::SourceChanged);
        assert!(error.text.contains("d/4"), "{error}");
    }
    read_into(&mut content, &manifest, 0, &mut out).unwrap();
    assert!(out == bytes[..len]);
}

/// A file in memory is read without the reading thread. The read of its last piece must find the
/// change, too.
#[test]
fn a_long_file_in_memory_that_changes_while_it_is_read_is_told_at_its_end() {
    let scratch = Scratch::new("cached");
    let path = scratch.0.join("image");
    let len = usize::try_from(PIECE_BYTES).unwrap();
    fs::write(&path, vec![1; 3 * len]).unwrap();
    let Tree {
        manifest,
        mut content,
        ..
    } = Tree::read(std::slice::from_ref(&path)).unwrap();
    let reader = thread::current();
    content.wake_by(move || reader.unpark());
    let mut out = vec![0; len];
    read_into(&mut content, &manifest, 0, &mut out).unwrap();
    if content.ahead.is_some() {
        println!("skipped: this filesystem does not tell what is in memory");
        return;
    }
    fs::write(&path, vec![2; 3 * len]).unwrap();
    let changed = fs::File::options().append(true).open(&path).unwrap();
    changed
        .set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1))
        .unwrap();
    read_into(&mut content, &manifest, PIECE_BYTES, &mut out).unwrap();
    let error = read_into(&mut content, &manifest, 2 * PIECE_BYTES, &mut out).unwrap_err();
    assert_eq!(error.code, ErrorCode::SourceChanged);
}

#[test]
fn a_file_that_is_withdrawn_reads_as_zeros_ahead_and_at_once() {
    let scratch = Scratch::new("withdrawn");
    let (manifest, mut content, mut bytes) = sample(&scratch);
    let file = fs::File::options().append(true).open(scratch.0.join("d/4"));
    std::io::Write::write_all(&mut file.unwrap(), b"more").unwrap();
    let mut at = 0;
    let mut withdrawn = Vec::new();
    let mut got = Vec::new();
    while at < manifest.content_bytes() {
        let mut out = vec![0; usize::try_from(piece_len(&manifest, at)).unwrap()];
        if let Err(error) = read_into(&mut content, &manifest, at, &mut out) {
            withdrawn.push(error.file.unwrap());
            content.withdraw(error.file.unwrap());
            continue;
        }
        at += out.len() as u64;
        got.extend(out);
    }
    let file = manifest.files()[withdrawn[0]];
    assert_eq!(withdrawn, [4]);
    let start = usize::try_from(file.start).unwrap();
    bytes.truncate(usize::try_from(manifest.content_bytes()).unwrap());
    let place = start..start + 2_000_000;
    assert!(
        got[place.clone()]
            .iter()
            .skip(PIECE_BYTES as usize)
            .all(|&byte| byte == 0)
    );
    assert!(got[..start] == bytes[..start] && got[place.end..] == bytes[place.end..]);
    let mut out = [1; 100];
    awaited(|| content.read(&manifest, file.start + 9, &mut out)).unwrap();
    assert_eq!(out, [0; 100]);
}
