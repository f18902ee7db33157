//! The keys of one session, and what an end has seen of the session.
//!
//! **Spec**: `docs/src/protocol.md` section 9, "Packets".

use std::{collections::BTreeMap, net::IpAddr};

use wire::{Sqn, pgm::Tsi};

use super::replay::ReplayWindow;
use crate::{Aead, Key, NONCE_LEN, TAG_LEN, parameters::PROTECTED_RECEIVERS_MAX};

/// One session, at either of its ends.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) session_id: u64,
    /// The only network address that the session's source sends from; the source's SPMs name it.
    pub(super) nla: IpAddr,
    /// The cipher for data and parity.
    cipher: Box<dyn Aead>,
    from_source: [u8; 32],
    from_receivers: [u8; 32],
    /// The highest position of data so far.
    pub(super) edge: u64,
    /// The trail that the last SPM announced; a data packet's own word on it is not believed.
    pub(super) trail: Sqn,
    /// The numbers of the source's packets other than data and repairs of data.
    pub(super) numbers: ReplayWindow,
    /// The numbers of each receiver's packets, by instance, and when the receiver was last heard.
    receivers: BTreeMap<u64, (u64, ReplayWindow)>,
    /// When the session was last heard, on the owner's count of packets.
    pub(super) heard: u64,
}

/// The kind of a packet in the nonce: packets of different kinds never share a nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// ODATA and RDATA, numbered by their position: a repair equals the original.
    Data = 0,
    /// Parity, numbered by the source.
    Parity = 1,
}

/// The end that made a packet without data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    Source,
    Receiver,
}

impl Session {
    pub(super) fn new(key: &Key, tsi: Tsi, session_id: u64, nla: IpAddr) -> Self {
        let (id, port) = (session_id.to_be_bytes(), tsi.port.to_be_bytes());
        let parts: &[&[u8]] = &[&id, &tsi.gsi.0, &port];
        Self {
            session_id,
            nla,
            cipher: key.cipher(b"packets with data", parts),
            from_source: key.subkey(b"packets of the source", parts),
            from_receivers: key.subkey(b"packets of receivers", parts),
            edge: 0,
            trail: Sqn(0),
            numbers: ReplayWindow::new(),
            receivers: BTreeMap::new(),
            heard: 0,
        }
    }

    /// Encrypts a payload; see [`Aead::seal`].
    #[inline]
    pub(super) fn seal(
        &self,
        kind: Kind,
        number: u64,
        associated: &[u8],
        data: &mut [u8],
    ) -> [u8; TAG_LEN] {
        self.cipher.seal(&nonce(kind, number), associated, data)
    }

    /// Decrypts a payload; see [`Aead::open`].
    #[inline]
    pub(super) fn open(
        &self,
        kind: Kind,
        number: u64,
        associated: &[u8],
        data: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> bool {
        let nonce = nonce(kind, number);
        self.cipher.open(&nonce, associated, data, tag)
    }

    /// Returns the tag of a packet without data.
    pub(super) fn tag(&self, from: From, packet: &[u8]) -> [u8; TAG_LEN] {
        let key = match from {
            From::Source => &self.from_source,
            From::Receiver => &self.from_receivers,
        };
        let hash = blake3::keyed_hash(key, packet);
        let mut tag = [0; TAG_LEN];
        tag.copy_from_slice(&hash.as_bytes()[..TAG_LEN]);
        tag
    }

    /// Returns true when `tag` is the tag of `packet`. Takes the same time wherever the two differ.
    pub(super) fn is_tag(&self, from: From, packet: &[u8], tag: &[u8; TAG_LEN]) -> bool {
        let own = self.tag(from, packet);
        let differing = own.iter().zip(tag).fold(0, |sum, (a, b)| sum | (a ^ b));
        std::hint::black_box(differing) == 0
    }

    /// Takes the number of a receiver's packet. Only holders of the key get here, so the table is
    /// filled by members alone. When it is full, the member that was silent for longest makes room.
    pub(super) fn take_number(&mut self, instance: u64, number: u64, now: u64) -> NumberVerdict {
        let is_known = self.receivers.contains_key(&instance);
        let has_evicted = !is_known && self.receivers.len() >= PROTECTED_RECEIVERS_MAX as usize;
        if has_evicted {
            let oldest = self.receivers.iter().min_by_key(|(_, (heard, _))| *heard);
            if let Some((&instance, _)) = oldest {
                self.receivers.remove(&instance);
            }
        }
        let fresh = (now, ReplayWindow::new());
        let (heard, window) = self.receivers.entry(instance).or_insert(fresh);
        *heard = now;
        NumberVerdict {
            is_new: window.take(number),
            has_evicted,
        }
    }
}

const fn nonce(kind: Kind, number: u64) -> [u8; NONCE_LEN] {
    let [a, b, c, d, e, f, g, h] = number.to_be_bytes();
    [kind as u8, 0, 0, 0, a, b, c, d, e, f, g, h]
}

/// What became of a receiver's number.
#[derive(Clone, Copy, Debug)]
pub(super) struct NumberVerdict {
    /// True when the number was not taken before.
    pub(super) is_new: bool,
    /// True when another receiver's numbers were forgotten to make room.
    pub(super) has_evicted: bool,
}
