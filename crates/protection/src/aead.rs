//! The cipher that the owner gives to a session: authenticated encryption with associated data (RFC
//! 5116).

use std::fmt::Debug;

/// One key of an AEAD cipher with nonces of 12 bytes and tags of 16 bytes, such as AES-128-GCM.
pub trait Aead: Debug + Send + Sync {
    /// Encrypts `data` in place and returns the tag over `data` and `associated`. No two calls with
    /// one key may have the same nonce, unless data and associated data are the same, too.
    fn seal(&self, nonce: &[u8; NONCE_LEN], associated: &[u8], data: &mut [u8]) -> [u8; TAG_LEN];

    /// Decrypts `data` in place. Returns false when the tag does not match; `data` is then
    /// worthless.
    #[must_use]
    fn open(
        &self,
        nonce: &[u8; NONCE_LEN],
        associated: &[u8],
        data: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> bool;
}

/// A function that makes an AES-128-GCM cipher from the first 16 bytes of its argument.
pub type Suite = fn(&[u8; 32]) -> Box<dyn Aead>;

/// Length of a nonce in bytes.
pub const NONCE_LEN: usize = 12;
/// Length of a tag in bytes.
pub const TAG_LEN: usize = 16;

#[cfg(feature = "portable")]
mod software {
    use aes_gcm::{AeadInPlace as _, Aes128Gcm, KeyInit as _};

    use super::{Aead, NONCE_LEN, TAG_LEN};

    /// Makes an AES-128-GCM cipher in portable Rust: a [`super::Suite`] for the simulator, fuzzers
    /// and tests.
    #[must_use]
    pub fn portable(key: &[u8; 32]) -> Box<dyn Aead> {
        let (key, _) = key.split_at(16);
        Box::new(Portable(Aes128Gcm::new(key.into())))
    }

    struct Portable(Aes128Gcm);

    impl std::fmt::Debug for Portable {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Portable(..)")
        }
    }

    impl Aead for Portable {
        fn seal(
            &self,
            nonce: &[u8; NONCE_LEN],
            associated: &[u8],
            data: &mut [u8],
        ) -> [u8; TAG_LEN] {
            let tag = self
                .0
                .encrypt_in_place_detached(nonce.into(), associated, data);
            tag.expect("packets are far shorter than 64 GiB").into()
        }

        fn open(
            &self,
            nonce: &[u8; NONCE_LEN],
            associated: &[u8],
            data: &mut [u8],
            tag: &[u8; TAG_LEN],
        ) -> bool {
            let opened =
                self.0
                    .decrypt_in_place_detached(nonce.into(), associated, data, tag.into());
            opened.is_ok()
        }
    }
}
#[cfg(feature = "portable")]
pub use software::portable;
