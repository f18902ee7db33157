//! The key that all ends of a session share. [`read_key`] takes it from a file that only its owner
//! may read.

use std::{io::Read as _, os::unix::fs::MetadataExt as _, path::Path};

use net::SystemError;
use protection::{Aead, NONCE_LEN, TAG_LEN};
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, Tag, UnboundKey};

use crate::Error;

/// A secret that all ends of a session share; it protects the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key(delivery::Key);

impl Key {
    /// Derives the key from a secret of any length. The secret should be random, as from
    /// `head -c 32 /dev/urandom`: a host that hears one packet can try all words of a dictionary.
    ///
    /// **Spec**: BLAKE3 in its mode for deriving keys; packets are encrypted with AES-128-GCM.
    #[must_use]
    pub fn derive(secret: &[u8]) -> Self {
        Self(delivery::Key::derive(secret, cipher))
    }

    pub(crate) fn into_inner(self) -> delivery::Key {
        self.0
    }
}

/// Makes the cipher AES-128-GCM from the first 16 bytes of `key`.
fn cipher(key: &[u8; 32]) -> Box<dyn Aead> {
    let key = UnboundKey::new(&AES_128_GCM, &key[..16]).expect("AES-128 takes keys of 16 bytes");
    Box::new(Cipher(LessSafeKey::new(key)))
}

struct Cipher(LessSafeKey);

impl std::fmt::Debug for Cipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cipher(..)")
    }
}

impl Aead for Cipher {
    fn seal(&self, nonce: &[u8; NONCE_LEN], associated: &[u8], data: &mut [u8]) -> [u8; TAG_LEN] {
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let tag = self
            .0
            .seal_in_place_separate_tag(nonce, Aad::from(associated), data);
        let tag = tag.expect("packets are far shorter than 64 GiB");
        let mut bytes = [0; TAG_LEN];
        bytes.copy_from_slice(tag.as_ref());
        bytes
    }

    fn open(
        &self,
        nonce: &[u8; NONCE_LEN],
        associated: &[u8],
        data: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> bool {
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let (associated, tag) = (Aad::from(associated), Tag::from(*tag));
        let opened = self
            .0
            .open_in_place_separate_tag(nonce, associated, tag, data, 0..);
        opened.is_ok()
    }
}

/// Reads the key in the file `path`: 32 to 4096 random bytes, as from `head -c 32 /dev/urandom`. A
/// secret that is text has at least 43 characters, as many as 32 random bytes take in base64, and
/// holds no words. Line ends at the end of the file do not count, except within the first 32 bytes.
///
/// # Errors
/// When the file cannot be read or is not a regular file, when neither this user nor root owns it,
/// or when others may read or change it. When the secret is too short or too long, is a text of
/// words, or repeats a few bytes: a host that hears one packet could then guess the key.
pub fn read_key(path: &Path) -> Result<Key, Error> {
    let shown = path.display();
    let failed = |error: &std::io::Error| unread(&shown, error);
    let mut file = sys::file::open_without_waiting(path).map_err(|error| failed(&error))?;
    let metadata = file.metadata().map_err(|error| failed(&error))?;
    let refused = |cause: &str| SystemError::refused("use the key in", &shown, cause);
    if !metadata.is_file() {
        let error = refused("it is not a regular file");
        return Err(error.advise("name a file that holds the key").into());
    }
    if ![0, sys::file::effective_user()].contains(&metadata.uid()) {
        let cause = format!("user {} owns it, and can read or change it", metadata.uid());
        let remedy = format!(
            "as root run `chown {} {shown}`",
            sys::file::effective_user()
        );
        return Err(refused(&cause).advise(remedy).into());
    }
    if metadata.mode() & OTHERS != 0 {
        let cause = format!(
            "its mode {:04o} gives rights to other users than its owner",
            metadata.mode() & 0o7777
        );
        let own = sys::file::effective_user();
        let remedy = if metadata.uid() == own {
            format!("run `chmod 600 {shown}`")
        } else {
            // Root owns the file: with mode 600 alone this user could not read it.
            format!("as root run `chown {own} {shown}; chmod 600 {shown}`")
        };
        return Err(refused(&cause).advise(remedy).into());
    }
    let mut secret = Vec::new();
    // The longest secret, a line end of up to two bytes, and one byte more: a file from which that
    // many bytes can be read is too long.
    let limit = SECRET_BYTES_MAX as u64 + 3;
    let read = file.by_ref().take(limit).read_to_end(&mut secret);
    read.map_err(|error| failed(&error))?;
    let is_whole = (secret.len() as u64) < limit;
    // The last of 32 random bytes may look like a line end.
    while is_whole
        && secret.len() > SECRET_BYTES_MIN
        && matches!(secret.last(), Some(b'\n' | b'\r'))
    {
        secret.pop();
    }
    check_secret(&secret, &shown)?;
    Ok(Key::derive(&secret))
}

/// Refuses a secret that is too long or easy to guess.
fn check_secret(secret: &[u8], shown: &impl std::fmt::Display) -> Result<(), SystemError> {
    let len = secret.len();
    let refused = |cause: String| SystemError::refused("use the key in", shown, cause);
    if len > SECRET_BYTES_MAX {
        let cause = format!(
            "it has more than {SECRET_BYTES_MAX} bytes, and a key has {SECRET_BYTES_MIN} to \
             {SECRET_BYTES_MAX}"
        );
        return Err(refused(cause).advise("name the file that holds the key"));
    }
    let mut distinct = secret.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    // Hexadecimal digits may have blanks between them; base64 may have several lines.
    let is_shown = |char: char| !char.is_control() || matches!(char, '\t' | '\n' | '\r');
    let text = std::str::from_utf8(secret).ok();
    let text = text.filter(|text| text.chars().all(is_shown));
    let is_of_words = |char: char| char.is_alphabetic() && !char.is_ascii_hexdigit();
    let has_words = text.is_some_and(|text| {
        let has_blanks = text.contains([' ', '\t']);
        (has_blanks || is_list_of_words(text)) && text.contains(is_of_words)
    });
    let cause = if len < SECRET_BYTES_MIN {
        format!("it has {len} bytes, and a key has {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX}")
    } else if let Some(text) = text
        && len < TEXT_BYTES_MIN
    {
        format!(
            "it is a text of {} characters, which can be guessed: 32 random bytes, written in \
             base64, take {TEXT_BYTES_MIN} characters",
            text.chars().count()
        )
    } else if has_words {
        "it is a text of words, which can be guessed".to_owned()
    } else if distinct.len() < DISTINCT_BYTES_MIN {
        format!(
            "its {len} bytes repeat a few values ({} in all), so it can be guessed",
            distinct.len()
        )
    } else {
        return Ok(());
    };
    Err(refused(cause).advise(format!(
        "make a new one with `(umask 077; head -c 32 /dev/urandom > {shown})`, and copy it to all \
         ends"
    )))
}

/// Returns true when the text is a list of words, separated by any other characters than letters
/// and digits. Base64 is no such list: the pieces between such characters are longer than words,
/// or have digits.
fn is_list_of_words(text: &str) -> bool {
    let pieces = || {
        let all = text.split(|char: char| !char.is_alphanumeric());
        all.filter(|piece| !piece.is_empty())
    };
    let is_word =
        |piece: &str| piece.len() <= WORD_BYTES_MAX && piece.chars().all(char::is_alphabetic);
    pieces().count() > 1 && pieces().all(is_word)
}

/// Makes the error for a key file that cannot be read.
fn unread(shown: &impl std::fmt::Display, error: &std::io::Error) -> SystemError {
    let fault = SystemError::system("read the key in", shown, error);
    match error.kind() {
        std::io::ErrorKind::NotFound => fault.advise(format!(
            "check the path, or make a key with `(umask 077; head -c 32 /dev/urandom > {shown})` \
             and copy it to all ends"
        )),
        std::io::ErrorKind::PermissionDenied => {
            fault.advise("let this user read the file, and nobody else (mode 0600)")
        }
        _ => fault,
    }
}

/// The permission bits of the group and all others.
const OTHERS: u32 = 0o077;
const SECRET_BYTES_MIN: usize = 32;
/// The fewest characters of a secret that is text: as many as 32 random bytes take in base64.
const TEXT_BYTES_MIN: usize = 43;
/// Length of the longest word that a person would choose, in bytes.
const WORD_BYTES_MAX: usize = 24;
/// The fewest different bytes that a secret must have. A random secret hardly ever has fewer: of
/// secrets of 64 random hexadecimal digits, less than one in a billion.
const DISTINCT_BYTES_MIN: usize = 10;
const SECRET_BYTES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[test]
    fn the_two_ciphers_are_one() {
        let (key, nonce) = ([7; 32], [9; NONCE_LEN]);
        let (ours, other) = (cipher(&key), protection::portable(&key));
        for len in [0, 1, 15, 16, 17, 1400] {
            let plain: Vec<u8> = (0..len).map(|n| n as u8).collect();
            let (mut one, mut two) = (plain.clone(), plain.clone());
            let tag = ours.seal(&nonce, b"associated", &mut one);
            assert_eq!(tag, other.seal(&nonce, b"associated", &mut two));
            assert_eq!(one, two);
            assert!(!ours.open(&nonce, b"other", &mut two, &tag));
            assert!(ours.open(&nonce, b"associated", &mut one, &tag));
            assert_eq!(one, plain);
        }
    }

    const GOOD: &[u8] = b"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn a_fifo_is_refused_and_not_waited_for() {
        let path = std::env::temp_dir().join(format!("towline-fifo-{}", std::process::id()));
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.expect("mkfifo is there").success());
        let error = read_key(&path).expect_err("no file").to_string();
        fs::remove_file(&path).expect("it is ours");
        assert!(error.contains("not a regular file"), "{error}");
    }

    #[test]
    fn a_key_that_another_user_owns_is_refused() {
        const NOBODY: u32 = 65_534;
        let path = std::env::temp_dir().join(format!("towline-owner-{}", std::process::id()));
        fs::write(&path, GOOD).expect("room");
        let mode = fs::Permissions::from_mode(0o600);
        fs::set_permissions(&path, mode).expect("it is ours");
        // Only root may give a file away.
        let given = std::os::unix::fs::chown(&path, Some(NOBODY), None);
        let error = read_key(&path).map(|_| ()).map_err(|it| it.to_string());
        fs::remove_file(&path).expect("it lies in a directory of ours");
        if given.is_ok() {
            let error = error.expect_err("its owner can read and change it");
            assert!(error.contains("user 65534 owns it"), "{error}");
        } else {
            assert_eq!(error, Ok(()), "it is still ours");
        }
    }

    #[test]
    fn a_key_is_a_secret_that_nobody_else_reads() {
        let path = std::env::temp_dir().join(format!("towline-key-{}", std::process::id()));
        let write = |content: &[u8], mode: u32| {
            fs::write(&path, content).expect("room");
            let mode = fs::Permissions::from_mode(mode);
            fs::set_permissions(&path, mode).expect("it is ours");
            read_key(&path).map_err(|error| error.to_string())
        };
        let key = write(GOOD, 0o600).expect("a good key");
        assert!(key == write(&[GOOD, b"\n"].concat(), 0o400).expect("the same"));
        let mut random: Vec<u8> = (150..181).collect();
        random.push(b'\n');
        assert!(key != write(&random, 0o600).expect("32 bytes, and none of them a line end"));
        for mode in [0o640, 0o604, 0o620, 0o777] {
            let error = write(GOOD, mode).expect_err("others may");
            assert!(error.contains("chmod 600"), "{error}");
        }
        let error = write(b"short", 0o600).expect_err("no secret");
        assert!(
            error.contains("5 bytes") && error.contains("urandom"),
            "{error}"
        );
        let error = write(&[7; 5000], 0o600).expect_err("no key file");
        assert!(error.contains("32 to 4096"), "{error}");
        let longest: Vec<u8> = (0..4096_u32).map(|n| ((n * 7) >> 3) as u8 | 1).collect();
        assert!(write(&[&longest[..], b"\r\n"].concat(), 0o600).is_ok());
        let error = write(&[&longest[..], b"\n\n\nmore"].concat(), 0o600).expect_err("longer");
        assert!(error.contains("more than 4096 bytes"), "{error}");
        let error = write(&[b'a'; 64], 0o600).expect_err("guessed at once");
        assert!(error.contains("(1 in all)"), "{error}");
        let error = write("päss".repeat(8).as_bytes(), 0o600).expect_err("short");
        assert!(error.contains("a text of 32 characters"), "{error}");
        let phrase = b"correct horse battery staple and more";
        let error = write(phrase, 0o600).expect_err("in a dictionary");
        assert!(error.contains("a text of 37 characters"), "{error}");
        let longer = [&phrase[..], b" words, however many they are\n"].concat();
        let error = write(&longer, 0o600).expect_err("words");
        assert!(error.contains("a text of words"), "{error}");
        for between in [&b"\n"[..], b"-", b", "] {
            let words = [
                &b"correct"[..],
                b"horse",
                b"battery",
                b"staple",
                b"and",
                b"a",
                b"dozen",
                b"more",
            ];
            let error = write(&words.join(between), 0o600).expect_err("words");
            assert!(error.contains("a text of words"), "{error}");
        }
        let phrase = "Korrekt Pferd Batterie Büroklammer Übung und noch mehr davon";
        let error = write(phrase.as_bytes(), 0o600).expect_err("words");
        assert!(error.contains("a text of words"), "{error}");
        let lines = [GOOD, b"\n", GOOD, b"\n"].concat();
        assert!(
            write(&lines, 0o600).is_ok(),
            "base64 may have several lines"
        );
        fs::remove_file(&path).expect("it is ours");
        assert!(read_key(&path).is_err() && read_key(Path::new("/dev/null")).is_err());
    }
}
