//! A key on a control connection: both ends show that they have it, and every message that follows
//! is encrypted and authenticated.
//!
//! ```text
//!   receiver                                      sender
//!   HELLO{no name, nonce r} -------------------->
//!        <-------------------------- CHALLENGE{nonce s}: shows nothing yet
//!   HELLO, protected: the receiver has the key --> only now the sender keeps state
//!        <---------- WELCOME, protected: the sender has the key; and so on
//!
//!   key  --keyed hash of (role, session, r, s)-->  one key for each direction
//!   nonce of a message = its number in its direction; its header is authenticated too
//! ```
//!
//! Invariant: a message is handed on only if the other end made it for this connection and for this
//! place in the sequence of messages.
//!
//! **Spec**: `docs/src/protocol.md` section 9, "Control connections".

use protection::{Aead, Key};
use wire::object::{NONCE_LEN, TAG_LEN};

/// What one end adds to a connection's keys, so that no other connection has the same keys.
pub(crate) type Nonce = [u8; NONCE_LEN];

/// The keys of one connection, as one of its ends uses them.
#[derive(Debug)]
pub(crate) struct LinkProtection {
    own: Direction,
    peer: Direction,
}

#[derive(Debug)]
struct Direction {
    cipher: Box<dyn Aead>,
    /// Number of messages so far in this direction.
    count: u64,
}

/// Which end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Sender,
    Receiver,
}

/// Makes a nonce from values that never repeat at this end; nobody can predict it without the key.
pub(crate) fn nonce(key: &Key, role: Role, unique: &[u64]) -> Nonce {
    let label: &[u8] = match role {
        Role::Sender => b"nonce of a sender",
        Role::Receiver => b"nonce of a receiver",
    };
    let unique: Vec<u8> = unique.iter().flat_map(|n| n.to_be_bytes()).collect();
    let mut nonce = [0; NONCE_LEN];
    nonce.copy_from_slice(&key.subkey(label, &[&unique])[..NONCE_LEN]);
    nonce
}

impl LinkProtection {
    /// Makes the keys of a connection, for the end that `role` names.
    pub(crate) fn new(
        key: &Key,
        role: Role,
        session_id: u64,
        receiver: &Nonce,
        sender: &Nonce,
    ) -> Self {
        let direction = |from: &[u8]| Direction {
            cipher: key.cipher(from, &[&session_id.to_be_bytes(), receiver, sender]),
            count: 0,
        };
        let (from_sender, from_receiver) = (direction(b"from sender"), direction(b"from receiver"));
        match role {
            Role::Sender => Self {
                own: from_sender,
                peer: from_receiver,
            },
            Role::Receiver => Self {
                own: from_receiver,
                peer: from_sender,
            },
        }
    }

    /// Encrypts the next message of this end and returns its tag.
    pub(crate) fn seal(&mut self, header: &[u8], body: &mut [u8]) -> [u8; TAG_LEN] {
        let nonce = self.own.next_nonce();
        self.own.cipher.seal(&nonce, header, body)
    }

    /// Decrypts the next message of the other end; returns false when this is not that message.
    pub(crate) fn open(&mut self, header: &[u8], body: &mut [u8], tag: &[u8; TAG_LEN]) -> bool {
        let nonce = self.peer.next_nonce();
        self.peer.cipher.open(&nonce, header, body, tag)
    }
}

impl Direction {
    fn next_nonce(&mut self) -> [u8; protection::NONCE_LEN] {
        let [a, b, c, d, e, f, g, h] = self.count.to_be_bytes();
        self.count += 1;
        [0, 0, 0, 0, a, b, c, d, e, f, g, h]
    }
}

#[cfg(test)]
mod tests {
    use protection::portable;
    use wire::object::{BODY_LEN_MAX, Decoder, Message, protect_frame};

    use super::*;

    fn ends(key: &Key, other: &Key) -> (LinkProtection, LinkProtection) {
        let (r, s) = ([1; NONCE_LEN], [2; NONCE_LEN]);
        let sender = LinkProtection::new(key, Role::Sender, 5, &r, &s);
        (
            sender,
            LinkProtection::new(other, Role::Receiver, 5, &r, &s),
        )
    }

    fn protected(link: &mut LinkProtection, message: &Message<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        message.emit(&mut bytes);
        protect_frame(&mut bytes, 0, |header, body| link.seal(header, body));
        bytes
    }

    /// Returns true when each of these frames is accepted as the next message.
    fn accepts(link: &mut LinkProtection, frames: &[Vec<u8>]) -> bool {
        let mut decoder = Decoder::new(BODY_LEN_MAX);
        frames.iter().all(|bytes| {
            decoder.push(bytes);
            let message = decoder.next_protected(|header, body, tag| link.open(header, body, tag));
            message == Ok(Some(Message::Complete { pass: 7 }))
        })
    }

    #[test]
    fn what_one_end_protects_the_other_accepts_in_order_and_once() {
        let key = Key::derive(b"secret", portable);
        let (mut sender, _) = ends(&key, &key);
        let message = Message::Complete { pass: 7 };
        let frames = [
            protected(&mut sender, &message),
            protected(&mut sender, &message),
        ];
        let [first, second] = frames.clone();
        let takes = |frames: &[Vec<u8>]| accepts(&mut ends(&key, &key).1, frames);
        assert!(takes(&frames));
        assert!(!takes(std::slice::from_ref(&second)), "one is left out");
        assert!(!takes(&[second, first.clone()]), "the other way round");
        assert!(!takes(&[first.clone(), first]), "played again");
    }

    #[test]
    fn another_key_session_nonce_or_direction_and_any_turned_bit_are_noticed() {
        let key = Key::derive(b"secret", portable);
        let message = Message::Complete { pass: 7 };
        let frame = protected(&mut ends(&key, &key).0, &message);
        assert!(!accepts(
            &mut ends(&key, &Key::derive(b"other", portable)).1,
            std::slice::from_ref(&frame)
        ));
        let (r, s) = ([1; NONCE_LEN], [2; NONCE_LEN]);
        let other = [
            LinkProtection::new(&key, Role::Receiver, 6, &r, &s),
            LinkProtection::new(&key, Role::Receiver, 5, &s, &s),
            LinkProtection::new(&key, Role::Receiver, 5, &r, &r),
            LinkProtection::new(&key, Role::Sender, 5, &r, &s),
        ];
        for mut link in other {
            assert!(!accepts(&mut link, std::slice::from_ref(&frame)));
        }
        for bit in 0..frame.len() * 8 {
            let mut turned = frame.clone();
            turned[bit / 8] ^= 1 << (bit % 8);
            let mut decoder = Decoder::new(BODY_LEN_MAX);
            decoder.push(&turned);
            let mut link = ends(&key, &key).1;
            let message = decoder.next_protected(|header, body, tag| link.open(header, body, tag));
            assert!(!matches!(message, Ok(Some(_))), "bit {bit}");
        }
    }
}
