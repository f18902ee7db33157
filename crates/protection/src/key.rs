//! The secret that all ends of a session share, and the keys that follow from it.

use std::fmt;

use crate::{Aead, Suite};

/// A secret that the ends of a session share.
#[derive(Clone)]
pub struct Key {
    secret: [u8; 32],
    suite: Suite,
}

impl Key {
    /// Derives the key from a secret of any length, to be used with the cipher of `suite`. The
    /// secret should be random, as from `head -c 32 /dev/urandom`: a host that hears a protected
    /// packet can try the words of a dictionary.
    ///
    /// **Spec**: BLAKE3 in its mode for deriving keys.
    #[must_use]
    pub fn derive(secret: &[u8], suite: Suite) -> Self {
        Self {
            secret: blake3::derive_key(CONTEXT, secret),
            suite,
        }
    }

    /// Derives the key for one purpose. `label` names the purpose; `parts` name what the key
    /// serves, such as one session. Under one label, each part must always have the same length.
    #[must_use]
    pub fn subkey(&self, label: &[u8], parts: &[&[u8]]) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        hasher.update(label);
        for part in parts {
            hasher.update(part);
        }
        *hasher.finalize().as_bytes()
    }

    /// Returns the cipher with a key for one purpose, derived as by [`Key::subkey`].
    #[must_use]
    pub fn cipher(&self, label: &[u8], parts: &[&[u8]]) -> Box<dyn Aead> {
        (self.suite)(&self.subkey(label, parts))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        // This comparison takes the same time wherever the hashes differ.
        blake3::Hash::from_bytes(self.secret) == blake3::Hash::from_bytes(other.secret)
    }
}

impl Eq for Key {}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// The context that separates these keys from keys which other programs derive from the same
/// secret.
const CONTEXT: &str = "towline 2026-11-23 protected session version 2";

#[cfg(all(test, feature = "portable"))]
mod tests {
    use super::*;
    use crate::portable;

    #[test]
    fn a_key_is_never_shown() {
        let key = Key::derive(b"secret", portable);
        assert_eq!(format!("{key:?}"), "Key(..)");
        assert!(!format!("{:?}", key.cipher(b"label", &[])).contains("secret"));
    }

    #[test]
    fn purposes_and_secrets_have_keys_of_their_own() {
        let key = Key::derive(b"secret", portable);
        let all = [
            key.subkey(b"one", &[b"a"]),
            key.subkey(b"two", &[b"a"]),
            key.subkey(b"one", &[b"b"]),
            Key::derive(b"other", portable).subkey(b"one", &[b"a"]),
        ];
        for (n, one) in all.iter().enumerate() {
            assert!(all[..n].iter().all(|other| other != one), "{n}");
        }
        assert!(key == key.clone() && key != Key::derive(b"other", portable));
    }
}
