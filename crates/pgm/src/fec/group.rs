//! One group at a receiver: which of its packets arrived, and which can be recovered.
//!
//! A group does not know sequence numbers, sessions or times. In: members and parity packets, once
//! or repeatedly. Out: the lost members with their OPT_FRAGMENT, as soon as the group has as many
//! packets as members.
//!
//! ```text
//!   members 0 .. size-1   [x][x][ ][x][ ][x]        once `size` packets are here:
//!   parities, by index j  [j 0][j 7]                recovers members 2 and 4
//! ```
//!
//! A host that can forge data packets can forge parity packets, and nothing here detects that. A
//! group does detect packets that contradict each other (lengths, sizes, options). It is then
//! barred ([`Group::is_barred`]), and no parity is used for it: the receiver must ask for its
//! members one by one.
//!
//! A bit error in one packet of a group, when no checksum detects it, also spreads to every member
//! recovered with that packet.
//!
//! Invariants: a group keeps at most `group_size` packets, none longer than `payload_bytes_max` and
//! [`LENGTH_BYTES`] together. Its memory grows with the bytes that arrive, never with a length that
//! a packet claims.
//!
//! **Spec**: RFC 3208 sections 11.2 and 11.5.

use wire::pgm::Fragment;

use super::{
    Code, Decoder, FRAGMENT_BYTES, Irreparable, LENGTH_BYTES, fragment_contents, fragment_of,
};

/// Members and parity packets of one group.
#[derive(Clone, Debug, Default)]
pub struct Group {
    rows: Vec<Row>,
    bytes: Vec<u8>,
    /// Number of members; `None` until a parity packet has shown it.
    packet_count: Option<usize>,
    /// Whether the parity packets say OPT_VAR_PKTLEN, and whether they have an encoded
    /// OPT_FRAGMENT; `None` before the first parity packet.
    shape: Option<(bool, bool)>,
    /// Which packets have arrived: a bit for each member, then a bit for each parity packet of the
    /// code.
    known: [u64; 4],
    is_barred: bool,
}

/// One packet of a group.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// The member's index in the group, or the parity packet's index in the code.
    at: usize,
    is_parity: bool,
    start: usize,
    len: usize,
    fragment: [u8; FRAGMENT_BYTES],
}

/// A parity packet, as far as the code needs it.
#[derive(Clone, Copy, Debug)]
pub struct Parity<'a> {
    /// The packet's index among the code's parity packets.
    pub index: usize,
    /// The packet's payload.
    pub payload: &'a [u8],
    /// True when the packet says OPT_VAR_PKTLEN.
    pub is_variable: bool,
    /// The contents of the packet's encoded OPT_FRAGMENT.
    pub fragment: Option<[u8; FRAGMENT_BYTES]>,
    /// How many packets the group has, when the packet says OPT_CURR_TGSIZE.
    pub packet_count: Option<usize>,
}

/// The decoders of payloads and of options, which all groups of a session share.
#[derive(Clone, Debug)]
pub struct Workspace {
    payloads: Decoder,
    fragments: Decoder,
    payload_bytes_max: usize,
}

impl Workspace {
    /// Makes the decoders for payloads of at most `payload_bytes_max` bytes, in groups of the
    /// code's size.
    #[must_use]
    pub fn new(combine: super::Combine, code: &Code, payload_bytes_max: usize) -> Self {
        Self {
            payloads: Decoder::new(combine, code.group_size(), payload_bytes_max),
            fragments: Decoder::new(combine, code.group_size(), FRAGMENT_BYTES),
            payload_bytes_max,
        }
    }
}

impl Group {
    /// Keeps member `at`. Returns false when the group is barred, has that member or enough packets
    /// already, or when the member cannot belong to it. A member longer than any that the decoder
    /// can recover bars the group.
    pub fn add_member(
        &mut self,
        code: &Code,
        work: &Workspace,
        at: usize,
        payload: &[u8],
        fragment: Option<&Fragment>,
    ) -> bool {
        if payload.len() > work.payload_bytes_max {
            self.bar();
        }
        let fits = at < self.packet_count(code) && !self.is_barred && !self.is_full(code);
        if !fits || self.holds(at) {
            return false;
        }
        self.keep(at, false, payload, fragment_contents(fragment));
        self.know(at);
        true
    }

    /// Takes a parity packet, and keeps it if the group still needs it. Returns false when the
    /// group is barred, has the packet or enough packets already, or when the code has no such
    /// packet. Returns false, too, when the packet contradicts others or is too long; this bars the
    /// group.
    pub fn add_parity(&mut self, code: &Code, work: &Workspace, parity: &Parity<'_>) -> bool {
        let row = code.group_size() + parity.index.min(code.parities_max());
        let is_known = parity.index >= code.parities_max() || self.holds(row);
        if self.is_barred || is_known || self.is_full(code) {
            return false;
        }
        let size = parity.packet_count.unwrap_or(code.group_size());
        let beyond = |row: &Row| !row.is_parity && row.at >= size;
        let shape = (parity.is_variable, parity.fragment.is_some());
        let is_sound = (1..=code.group_size()).contains(&size)
            && self.packet_count.is_none_or(|known| known == size)
            && self.shape.is_none_or(|known| known == shape)
            && !self.rows.iter().any(beyond)
            && parity.payload.len() <= work.payload_bytes_max + LENGTH_BYTES;
        if !is_sound {
            self.bar();
            return false;
        }
        (self.packet_count, self.shape) = (Some(size), Some(shape));
        if !self.is_full(code) {
            let fragment = parity.fragment.unwrap_or_default();
            self.keep(parity.index, true, parity.payload, fragment);
            self.know(row);
        }
        true
    }

    /// Returns the number of bytes of memory that the packets take.
    #[must_use]
    pub const fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.rows.capacity() * size_of::<Row>()
    }

    /// Forgets the packets, and keeps the memory for another group.
    pub fn reset(&mut self) {
        let (mut rows, mut bytes) = (
            std::mem::take(&mut self.rows),
            std::mem::take(&mut self.bytes),
        );
        rows.clear();
        bytes.clear();
        *self = Self {
            rows,
            bytes,
            ..Self::default()
        };
    }

    /// Returns true when every member arrived, so that there is nothing to recover.
    #[must_use]
    pub fn is_whole(&self, code: &Code) -> bool {
        self.is_full(code) && !self.rows.iter().any(|row| row.is_parity)
    }

    /// Returns the code's group size minus the number of packets kept, even if the source gave this
    /// group fewer members. A parity NAK counts the missing packets in the same way.
    #[must_use]
    pub fn lacking(&self, code: &Code) -> usize {
        code.group_size() - self.rows.len()
    }

    /// Returns true when enough packets arrived for [`Group::recover`].
    #[must_use]
    pub fn is_full(&self, code: &Code) -> bool {
        self.rows.len() >= self.packet_count(code)
    }

    /// Returns true when the group is barred, for example because its packets contradict each
    /// other: no parity is used for it.
    #[must_use]
    pub const fn is_barred(&self) -> bool {
        self.is_barred
    }

    /// Calls `visit` with the index, payload and OPT_FRAGMENT of each member that did not arrive.
    ///
    /// # Errors
    /// [`Irreparable::TooFewParities`] until enough packets have arrived ([`Group::is_full`]), and
    /// for a barred group. Any other error bars the group.
    pub fn recover(
        &mut self,
        code: &Code,
        work: &mut Workspace,
        mut visit: impl FnMut(usize, &[u8], Option<Fragment>),
    ) -> Result<(), Irreparable> {
        if self.is_barred || !self.is_full(code) {
            return Err(Irreparable::TooFewParities);
        }
        let recovered = self.decode(code, work, &mut visit);
        if recovered.is_err() {
            self.bar();
        }
        recovered
    }

    fn decode(
        &self,
        code: &Code,
        work: &mut Workspace,
        visit: &mut impl FnMut(usize, &[u8], Option<Fragment>),
    ) -> Result<(), Irreparable> {
        let (is_variable, has_fragments) = self.shape.unwrap_or_default();
        let size = self.packet_count(code);
        let mut payloads: Vec<Option<&[u8]>> = vec![None; size];
        let mut contents: Vec<Option<&[u8]>> = vec![None; size];
        let (mut parities, mut options) = (Vec::new(), Vec::new());
        for row in &self.rows {
            let payload = &self.bytes[row.start..row.start + row.len];
            if row.is_parity {
                parities.push((row.at, payload));
                options.push((row.at, &row.fragment[..]));
            } else {
                payloads[row.at] = Some(payload);
                contents[row.at] = Some(&row.fragment[..]);
            }
        }
        let none = fragment_contents(None);
        let has_option = |at: &&[u8]| **at != none[..];
        if !has_fragments && !parities.is_empty() && contents.iter().flatten().any(has_option) {
            return Err(Irreparable::Length);
        }
        let options = if has_fragments { &options[..] } else { &[] };
        let mut found = vec![none; size];
        if has_fragments {
            let decoded = work.fragments.decode(code, &contents, options, false)?;
            for (at, bytes) in decoded.members() {
                found[at].copy_from_slice(bytes);
            }
        }
        let decoded = work
            .payloads
            .decode(code, &payloads, &parities, is_variable)?;
        for (at, payload) in decoded.members() {
            visit(at, payload, fragment_of(&found[at]));
        }
        Ok(())
    }

    fn packet_count(&self, code: &Code) -> usize {
        self.packet_count.unwrap_or(code.group_size())
    }

    const fn holds(&self, row: usize) -> bool {
        self.known[row / 64] >> (row % 64) & 1 != 0
    }

    const fn know(&mut self, row: usize) {
        self.known[row / 64] |= 1 << (row % 64);
    }

    fn keep(&mut self, at: usize, is_parity: bool, payload: &[u8], fragment: [u8; FRAGMENT_BYTES]) {
        let (start, len) = (self.bytes.len(), payload.len());
        self.bytes.extend_from_slice(payload);
        self.rows.push(Row {
            at,
            is_parity,
            start,
            len,
            fragment,
        });
    }

    /// Bars the group: forgets its packets and frees its memory.
    pub fn bar(&mut self) {
        *self = Self {
            is_barred: true,
            ..Self::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Encoder, combine},
        *,
    };
    use wire::Sqn;

    /// Makes the payloads of parity packets 0 and 1 of `members`, each with true if it needs
    /// OPT_VAR_PKTLEN.
    fn parities(code: &Code, members: &[&[u8]], size: Option<usize>) -> Vec<(Vec<u8>, bool)> {
        let mut encoder = Encoder::new(combine, 2, 100);
        let encoded = encoder.encode(code, members, &[0, 1]);
        assert!(size.is_none_or(|size| size == members.len()));
        let is_variable = encoded.is_variable();
        encoded
            .payloads()
            .map(|payload| (payload.to_vec(), is_variable))
            .collect()
    }

    fn parity(index: usize, from: &(Vec<u8>, bool), packet_count: Option<usize>) -> Parity<'_> {
        Parity {
            index,
            payload: &from.0,
            is_variable: from.1,
            fragment: None,
            packet_count,
        }
    }

    fn recovered(group: &mut Group, code: &Code, work: &mut Workspace) -> Vec<(usize, Vec<u8>)> {
        let mut all = Vec::new();
        group
            .recover(code, work, |at, payload, fragment| {
                assert_eq!(fragment, None);
                all.push((at, payload.to_vec()));
            })
            .unwrap();
        all
    }

    #[test]
    fn any_two_lost_come_back_in_full_and_short_groups_whatever_comes_first() {
        let code = Code::new(8).unwrap();
        let all: [&[u8]; 8] = [b"a", b"bcd", b"", b"efghij", b"k", b"lm", b"n", b"opq"];
        for size in [3, 5, 8] {
            let members = &all[..size];
            let claimed = (size < 8).then_some(size);
            let sent = parities(&code, members, claimed);
            for (one, two) in (0..size).flat_map(|one| (one + 1..size).map(move |two| (one, two))) {
                for is_parity_first in [false, true] {
                    let mut work = Workspace::new(combine, &code, 100);
                    let mut group = Group::default();
                    let add_parities = |group: &mut Group| {
                        for (index, sent) in sent.iter().enumerate() {
                            let packet = parity(index, sent, claimed);
                            assert!(group.add_parity(&code, &work, &packet));
                        }
                    };
                    if is_parity_first {
                        add_parities(&mut group);
                    }
                    for (at, member) in members.iter().enumerate() {
                        if at != one && at != two {
                            assert!(!group.is_full(&code));
                            assert!(group.add_member(&code, &work, at, member, None));
                        }
                    }
                    if !is_parity_first {
                        assert_eq!(group.lacking(&code), 8 - size + 2);
                        add_parities(&mut group);
                    }
                    let expected = [one, two].map(|at| (at, members[at].to_vec()));
                    assert_eq!(recovered(&mut group, &code, &mut work), expected);
                }
            }
        }
    }

    #[test]
    fn a_forged_parity_packet_that_contradicts_bars_the_group_and_frees_it() {
        let code = Code::new(4).unwrap();
        let members: [&[u8]; 4] = [b"one", b"two", b"six", b"ten"];
        let sent = parities(&code, &members, None);
        let good = parity(0, &sent[0], None);
        let long = [0; 200];
        for bad in [
            Parity {
                is_variable: true,
                ..parity(1, &sent[1], None)
            },
            Parity {
                packet_count: Some(3),
                ..parity(1, &sent[1], None)
            },
            Parity {
                packet_count: Some(0),
                ..parity(1, &sent[1], None)
            },
            Parity {
                packet_count: Some(1 << 40),
                ..parity(1, &sent[1], None)
            },
            Parity {
                fragment: Some([0; 13]),
                ..parity(1, &sent[1], None)
            },
            Parity {
                payload: &long,
                ..parity(1, &sent[1], None)
            },
        ] {
            let work = Workspace::new(combine, &code, 100);
            let mut group = Group::default();
            assert!(group.add_parity(&code, &work, &good));
            assert!(!group.add_parity(&code, &work, &bad), "{bad:?}");
            assert!(group.is_barred() && group.bytes.capacity() == 0);
            assert!(!group.add_member(&code, &work, 0, b"one", None));
        }
    }

    #[test]
    fn lengths_that_contradict_are_found_when_decoding() {
        let code = Code::new(2).unwrap();
        let mut work = Workspace::new(combine, &code, 100);
        let mut group = Group::default();
        assert!(group.add_member(&code, &work, 0, b"longer", None));
        let forged = (b"abc".to_vec(), false);
        assert!(group.add_parity(&code, &work, &parity(3, &forged, None)));
        let visit = |_, _: &[u8], _| panic!("something was made up");
        assert_eq!(
            group.recover(&code, &mut work, visit),
            Err(Irreparable::Length)
        );
        assert!(group.is_barred());
    }

    #[test]
    fn a_fragment_comes_back_with_its_option() {
        let code = Code::new(2).unwrap();
        let fragment = Fragment {
            first: Sqn(6),
            offset: 5,
            apdu_len: 9,
        };
        let contents = [fragment_contents(None), fragment_contents(Some(&fragment))];
        let (mut payloads, mut options) = (
            Encoder::new(combine, 1, 100),
            Encoder::new(combine, 1, FRAGMENT_BYTES),
        );
        let payload = payloads.encode(&code, &[b"whole", b"part"], &[0]);
        let option = options.encode(&code, &[&contents[0], &contents[1]], &[0]);
        let packet = Parity {
            index: 0,
            payload: payload.payloads().next().unwrap(),
            is_variable: payload.is_variable(),
            fragment: option.payloads().next().unwrap().try_into().ok(),
            packet_count: None,
        };
        let mut work = Workspace::new(combine, &code, 100);
        let mut group = Group::default();
        assert!(group.add_member(&code, &work, 0, b"whole", None));
        assert!(group.add_parity(&code, &work, &packet));
        let mut found = None;
        let visit = |at, payload: &[u8], option| found = Some((at, payload.to_vec(), option));
        group.recover(&code, &mut work, visit).unwrap();
        assert_eq!(found, Some((1, b"part".to_vec(), Some(fragment))));
    }
}
