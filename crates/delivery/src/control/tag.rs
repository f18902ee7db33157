//! A pre-shared key on a control connection: both ends show that they have it, and every message
//! that follows carries a tag.
//!
//! It does not hide what is said, and does not protect the packet stream. The packets of a transfer
//! are checked against the manifest's id and the seals' hash, which both come tagged. Messages are
//! as open as without a key: only joining and reporting need one.
//!
//! ```text
//!   receiver                                      sender
//!   HELLO{nonce r} ----------------------------->
//!        <--------------------- CHALLENGE{nonce s}, tagged: the sender has the key
//!   HELLO again, tagged: the receiver has it ---> only now is anything kept of it
//!        <------------------------------ WELCOME, tagged, and so on
//!
//!   key  --keyed hash of (role, session, r, s)-->  one key for each direction
//!   tag  =  keyed hash of (number of the message in its direction, header, body)
//! ```
//!
//! Invariant: a message that was not tagged by the other end for this place in this connection is
//! never handed on.

use std::fmt;

use wire::object::{Frame, NONCE_LEN, TAG_LEN};

/// A secret that the two ends of a session share.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; 32]);

/// What makes one connection's keys its own.
pub(crate) type Nonce = [u8; NONCE_LEN];

/// The keys of one connection, as one of its ends uses them.
pub(crate) struct Tags {
    own: Direction,
    peer: Direction,
}

struct Direction {
    key: [u8; 32],
    /// Messages so far.
    count: u64,
}

/// Which end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Sender,
    Receiver,
}

impl Key {
    /// The key that follows from a secret of any length. The secret should be random, as from `head
    /// -c 32 /dev/urandom`: a host that hears a greeting can try the words of a dictionary.
    ///
    /// **Spec**: BLAKE3 in its mode for deriving keys.
    #[must_use]
    pub fn derive(secret: &[u8]) -> Self {
        Self(blake3::derive_key(CONTEXT, secret))
    }

    /// A nonce from values that never repeat at this end; it cannot be predicted without the key.
    pub(crate) fn nonce(&self, role: Role, unique: &[u64]) -> Nonce {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(match role {
            Role::Sender => b"nonce of a sender",
            Role::Receiver => b"nonce of a receiver",
        });
        for number in unique {
            hasher.update(&number.to_be_bytes());
        }
        let mut nonce = [0; NONCE_LEN];
        nonce.copy_from_slice(&hasher.finalize().as_bytes()[..NONCE_LEN]);
        nonce
    }

    /// The keys of a connection, for the end that `role` names.
    pub(crate) fn tags(
        &self,
        role: Role,
        session_id: u64,
        receiver: &Nonce,
        sender: &Nonce,
    ) -> Tags {
        let direction = |from: &[u8]| {
            let mut hasher = blake3::Hasher::new_keyed(&self.0);
            hasher.update(from);
            hasher.update(&session_id.to_be_bytes());
            hasher.update(receiver).update(sender);
            let key = *hasher.finalize().as_bytes();
            Direction { key, count: 0 }
        };
        let (from_sender, from_receiver) = (direction(b"from sender"), direction(b"from receiver"));
        match role {
            Role::Sender => Tags {
                own: from_sender,
                peer: from_receiver,
            },
            Role::Receiver => Tags {
                own: from_receiver,
                peer: from_sender,
            },
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

impl Tags {
    /// The tag of the next message of this end.
    pub(crate) fn tag(&mut self, covered: &[u8]) -> [u8; TAG_LEN] {
        *self.own.next(covered).as_bytes()
    }

    /// True when the frame is the next message of the other end.
    pub(crate) fn is_genuine(&mut self, frame: &Frame<'_>) -> bool {
        let Some((covered, tag)) = frame.split_tag() else {
            return false;
        };
        // The comparison of BLAKE3 hashes takes the same time wherever they differ.
        self.peer.next(covered) == *tag
    }
}

impl fmt::Debug for Tags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tags(..)")
    }
}

impl Direction {
    fn next(&mut self, covered: &[u8]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&self.count.to_be_bytes()).update(covered);
        self.count += 1;
        hasher.finalize()
    }
}

/// Separates these keys from those that other programs derive from the same secret.
const CONTEXT: &str = "towline 2026-11-21 object control connection version 1";

#[cfg(test)]
mod tests {
    use wire::object::{BODY_LEN_MAX, Decoder, Message, tag_frame};

    use super::*;

    fn ends(key: &Key, other: &Key) -> (Tags, Tags) {
        let (r, s) = ([1; NONCE_LEN], [2; NONCE_LEN]);
        let sender = key.tags(Role::Sender, 5, &r, &s);
        (sender, other.tags(Role::Receiver, 5, &r, &s))
    }

    fn tagged(tags: &mut Tags, message: &Message<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        message.emit(&mut bytes);
        tag_frame(&mut bytes, 0, |covered| tags.tag(covered));
        bytes
    }

    /// True when each of these is taken for the next message.
    fn accepts(tags: &mut Tags, frames: &[Vec<u8>]) -> bool {
        let mut decoder = Decoder::new(BODY_LEN_MAX);
        frames.iter().all(|bytes| {
            decoder.push(bytes);
            let frame = decoder.next_frame().unwrap().unwrap();
            tags.is_genuine(&frame) && frame.message() == Ok(Message::Complete { pass: 7 })
        })
    }

    #[test]
    fn what_one_end_tags_the_other_accepts_in_order_and_once() {
        let key = Key::derive(b"secret");
        let (mut sender, _) = ends(&key, &key);
        let message = Message::Complete { pass: 7 };
        let frames = [tagged(&mut sender, &message), tagged(&mut sender, &message)];
        let [first, second] = frames.clone();
        let takes = |frames: &[Vec<u8>]| accepts(&mut ends(&key, &key).1, frames);
        assert!(takes(&frames));
        assert!(!takes(std::slice::from_ref(&second)), "one is left out");
        assert!(!takes(&[second, first.clone()]), "the other way round");
        assert!(!takes(&[first.clone(), first]), "played again");
    }

    #[test]
    fn another_key_session_nonce_or_direction_and_any_turned_bit_are_noticed() {
        let key = Key::derive(b"secret");
        let message = Message::Complete { pass: 7 };
        let frame = tagged(&mut ends(&key, &key).0, &message);
        assert!(!accepts(
            &mut ends(&key, &Key::derive(b"other")).1,
            std::slice::from_ref(&frame)
        ));
        let (r, s) = ([1; NONCE_LEN], [2; NONCE_LEN]);
        let other = [
            key.tags(Role::Receiver, 6, &r, &s),
            key.tags(Role::Receiver, 5, &s, &s),
            key.tags(Role::Receiver, 5, &r, &r),
            key.tags(Role::Sender, 5, &r, &s),
        ];
        for mut tags in other {
            assert!(!accepts(&mut tags, std::slice::from_ref(&frame)));
        }
        for bit in 0..frame.len() * 8 {
            let mut turned = frame.clone();
            turned[bit / 8] ^= 1 << (bit % 8);
            let mut decoder = Decoder::new(BODY_LEN_MAX);
            decoder.push(&turned);
            if let Ok(Some(frame)) = decoder.next_frame() {
                assert!(!ends(&key, &key).1.is_genuine(&frame), "bit {bit}");
            }
        }
    }

    #[test]
    fn a_key_is_never_shown() {
        assert_eq!(format!("{:?}", Key::derive(b"secret")), "Key(..)");
    }
}
