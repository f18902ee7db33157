//! Changes packets before they are sent again: addresses and tags. Checksums stay right.

use std::net::IpAddr;

use wire::link::{insert_tag, remove_tags, replace_address};

use crate::Packet;

/// The changes made to each packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edits {
    /// The new hardware address of the destination; `None` keeps the packet's own.
    pub to: Option<[u8; 6]>,
    /// The new hardware address of the source; `None` keeps the packet's own.
    pub from: Option<[u8; 6]>,
    /// Pairs of an old and a new IP address, both of one family. The old one is replaced wherever
    /// it stands, also in ARP.
    pub addresses: Vec<(IpAddr, IpAddr)>,
    /// VLAN tags.
    pub tag: TagEdit,
}

/// What happens to VLAN tags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TagEdit {
    /// The tags stay.
    #[default]
    Keep,
    /// All tags are removed.
    Remove,
    /// All tags are removed, and this one is inserted: its identifier and priority as on the wire.
    Set(u16),
}

impl Edits {
    /// Returns true when nothing is changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// An editor, which changes packets in memory of its own.
#[derive(Debug)]
pub struct Editor {
    edits: Edits,
    /// For each old address, whether some packet had it.
    met: Vec<bool>,
    room: Vec<u8>,
}

impl Editor {
    /// Makes an editor for the changes in `edits`.
    #[must_use]
    pub fn new(edits: Edits) -> Self {
        Self {
            met: vec![false; edits.addresses.len()],
            edits,
            room: Vec::new(),
        }
    }

    /// Returns the old addresses that no packet has had.
    pub(crate) fn unmet(&self) -> impl Iterator<Item = IpAddr> {
        let addresses = self.edits.addresses.iter().zip(&self.met);
        addresses
            .filter(|(_, met)| !**met)
            .map(|((old, _), _)| *old)
    }

    /// Returns the packet with the changes made.
    pub fn edit<'a>(&'a mut self, packet: &Packet<'a>) -> Packet<'a> {
        let room = &mut self.room;
        room.clear();
        room.extend_from_slice(packet.data);
        for (place, address) in [(0..6, self.edits.to), (6..12, self.edits.from)] {
            if let Some((place, address)) = room.get_mut(place).zip(address) {
                place.copy_from_slice(&address);
            }
        }
        for ((old, new), met) in self.edits.addresses.iter().zip(&mut self.met) {
            *met |= replace_address(room, *old, *new);
        }
        if self.edits.tag != TagEdit::Keep {
            // Each round removes the tags that the parser follows, and a frame may have more.
            while let len = remove_tags(room)
                && len < room.len()
            {
                room.truncate(len);
            }
        }
        if let TagEdit::Set(tag_control) = self.edits.tag {
            insert_tag(room, tag_control);
        }
        let wire_len = packet.wire_len as usize + room.len() - packet.data.len();
        Packet {
            data: room,
            wire_len: wire_len as u32,
            offload: None,
            ..*packet
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        generated::{Generator, SequenceCheck},
        packet::tests::packet,
    };

    #[test]
    fn an_edited_frame_is_still_right() {
        let frame = Generator::new("size=100".parse().unwrap())
            .next_frame()
            .unwrap()
            .to_vec();
        let mut editor = Editor::new(Edits {
            to: Some([2; 6]),
            from: Some([4; 6]),
            addresses: vec![("198.18.0.1".parse().unwrap(), "10.1.2.3".parse().unwrap())],
            tag: TagEdit::Keep,
        });
        assert_eq!(editor.unmet().count(), 1);
        let edited = editor.edit(&packet(&frame, 1)).data.to_vec();
        assert_eq!(editor.unmet().count(), 0);
        assert_eq!(edited[..12], [[2; 6], [4; 6]].concat());
        assert_eq!(edited[26..30], [10, 1, 2, 3]);
        let mut check = SequenceCheck::default();
        check.look(&edited);
        assert_eq!(
            (check.frames, check.corrupt),
            (1, 0),
            "its checksum is right"
        );

        let mut tagger = Editor::new(Edits {
            tag: TagEdit::Set(7),
            ..Edits::default()
        });
        let tagged = tagger.edit(&packet(&frame, 1));
        assert_eq!((tagged.data.len(), tagged.wire_len), (104, 104));
        let cut = packet(&frame, 1).cut_to(50);
        assert_eq!(tagger.edit(&cut).wire_len, 104);
        let tagged = tagger.edit(&packet(&frame, 1)).data.to_vec();
        let mut remover = Editor::new(Edits {
            tag: TagEdit::Remove,
            ..Edits::default()
        });
        assert_eq!(remover.edit(&packet(&tagged, 1)).data, frame);
        assert!(!remover.edits.is_empty() && Edits::default().is_empty());
    }
}
