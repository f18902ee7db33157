//! Towline's own option: it says in every SPM what kind of session this is and how to report on it.
//!
//! A private option, ignored by other implementations (OPX "ignore", not network-significant, last
//! in its chain). Others may use option type 0x6E, too: only the magic tells whose it is.
//!
//! ```text
//!  0       4         5         6          8          10             12                16
//! +-------+---------+---------+----------+----------+--------------+-----------------+
//! | magic | version | profile | required | optional | control port | receiver count  |
//! +-------+---------+---------+----------+----------+--------------+-----------------+
//!  16           24          32               40                   44              46         48
//! +------------+-----------+----------------+--------------------+---------------+----------+
//! | session id | tx time us| announced rate | limiting receiver  | upstream port | reserved |
//! +------------+-----------+----------------+--------------------+---------------+----------+
//!  48 (with required feature 1 only)  56         64                80
//! +-----------------------------------+----------+-----------------+
//! | number of the packet              | edge     | tag             |
//! +-----------------------------------+----------+-----------------+
//!  48 (with optional feature 1, without required feature 1)          64
//! +------------------------------------------------------------------+
//! | address of the partner                                           |
//! +------------------------------------------------------------------+
//! ```
//!
//! Versions: the high half of the byte is the major version. Every version keeps the first eight
//! bytes as they are, and minor versions only append fields. So a receiver can read a longer option
//! of its own major version. From an option of another major version, a receiver reads just enough
//! to name that version when it refuses the session.
//!
//! An end that knows no meaning for a reserved field writes 0 there and ignores what it reads: so
//! the upstream port needs no version of its own.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
};

use base::Pace;

use super::{Contents, ParityReading};
use crate::{
    ParseError,
    cursor::{Reader, Writer},
};

/// The mark: what a session of a Towline source says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Major version in the high four bits, minor version in the low; a sender writes
    /// [`Mark::VERSION`].
    pub version: u8,
    /// How the data is to be read.
    pub profile: Profile,
    /// Features that a receiver must know to follow the session; it refuses a session with an
    /// unknown bit.
    pub required: u16,
    /// Features that a receiver may ignore.
    pub optional: u16,
    /// The sender's TCP port for reports; 0 when the sender takes no reports.
    pub control_port: u16,
    /// Number of receivers that the sender counts.
    pub receiver_count: u32,
    /// A random number of this session, the same on every path and control connection.
    pub session_id: u64,
    /// The sender's clock when this SPM was made, in microseconds from an origin of its own.
    pub tx_time_us: u64,
    /// The pace at which the sender sends, headers included.
    pub announced_pace: Pace,
    /// The slot of the receiver that limits the rate; [`Mark::NO_RECEIVER`] when no receiver does.
    pub limiting_receiver: u32,
    /// The sender's UDP port for NAKs and SPMRs. 0 means the session's port; senders that do not
    /// know this field write 0.
    pub upstream_port: u16,
    /// The source address of the session with the same frames, [`Tsi::partner`]; the unspecified
    /// address when there is no such session. An IPv4 address is written as it is mapped to IPv6.
    /// In a mark of a known major version, this field is present exactly when `optional` has
    /// [`Mark::PARTNER`] and the session is not protected: a key keeps strangers out already.
    ///
    /// [`Tsi::partner`]: crate::pgm::Tsi::partner
    pub partner: Option<IpAddr>,
    /// The tag that shows that the SPM is genuine. In a mark of a known major version, it is
    /// present exactly when [`Mark::PROTECTED`] is required.
    pub tag: Option<MarkTag>,
}

/// The last bytes of the mark, and so of the SPM, in a session that is protected with a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MarkTag {
    /// The number of this packet. The source numbers its SPMs, NCFs, POLLs and parity packets in
    /// one series.
    pub number: u64,
    /// The 64-bit position of the newest data packet that has left. Its low half is a sequence
    /// number; its high half counts the laps of the sequence numbers, from 1.
    pub edge: u64,
    /// The keyed hash of the packet, made with zeros in place of the packet's checksum and tag.
    pub tag: [u8; Self::TAG_LEN],
}

impl MarkTag {
    /// Length of the tag in bytes.
    pub const TAG_LEN: usize = 16;
    /// Length of all three fields in bytes.
    pub const LEN: usize = 16 + Self::TAG_LEN;
    /// The most bytes by which protection makes a packet of the session longer.
    pub const PACKET_BYTES_MAX: usize = 16 + Self::TAG_LEN;
}

impl Mark {
    /// Required feature: the packets of the session are protected with a key.
    pub const PROTECTED: u16 = 1;
    /// Optional feature: the mark names the partner.
    pub const PARTNER: u16 = 1;
    /// Optional feature: the flags of OPT_PARITY_PRM have the form that OpenPGM gives them.
    pub const OPENPGM_PARITY: u16 = 2;
    /// The version that this crate writes: 1.0.
    pub const VERSION: u8 = 0x10;
    /// The magic "TWLN", which tells the mark from another option of the same type.
    pub const MAGIC: u32 = 0x5457_4C4E;
    /// The value of `limiting_receiver` when no receiver limits the rate.
    pub const NO_RECEIVER: u32 = u32::MAX;
    /// Length of the value in the version that this crate writes, in bytes.
    pub const LEN: usize = 48;

    /// Makes a mark of `profile` for the session `session_id`; all other fields have their
    /// defaults.
    #[must_use]
    pub const fn new(profile: Profile, session_id: u64) -> Self {
        Self {
            version: Self::VERSION,
            profile,
            required: 0,
            optional: 0,
            control_port: 0,
            receiver_count: 0,
            session_id,
            tx_time_us: 0,
            announced_pace: Pace::Unlimited,
            limiting_receiver: Self::NO_RECEIVER,
            upstream_port: 0,
            partner: None,
            tag: None,
        }
    }

    /// Returns the same mark with this address of the partner, or without an address. A relay does
    /// not pass the address on, because the partner's packets may come from another relay.
    #[must_use]
    pub const fn with_partner(mut self, partner: Option<IpAddr>) -> Self {
        self.optional &= !Self::PARTNER;
        if partner.is_some() {
            self.optional |= Self::PARTNER;
        }
        self.partner = partner;
        self
    }

    /// Returns the same mark for a source whose offer of parity has this form.
    #[must_use]
    pub const fn with_parity(mut self, form: ParityReading) -> Self {
        self.optional &= !Self::OPENPGM_PARITY;
        if matches!(form, ParityReading::OpenPgm) {
            self.optional |= Self::OPENPGM_PARITY;
        }
        self
    }

    /// Returns how to read the flags of OPT_PARITY_PRM in an SPM with this mark. An SPM without a
    /// mark has the form of the RFC, or comes from OpenPGM, which must not be asked for parity: its
    /// version 5.3 aborts when it is asked.
    #[must_use]
    pub fn parity_reading(mark: Option<&Self>) -> ParityReading {
        match mark {
            Some(mark) if mark.optional & Self::OPENPGM_PARITY != 0 => ParityReading::OpenPgm,
            _ => ParityReading::Rfc,
        }
    }

    /// Returns the same mark for a session that is protected with a key. The sender fills in the
    /// tag.
    #[must_use]
    pub const fn protected(mut self) -> Self {
        self.required |= Self::PROTECTED;
        self.tag = Some(MarkTag {
            number: 0,
            edge: 0,
            tag: [0; MarkTag::TAG_LEN],
        });
        self
    }

    /// Returns true when the packets of the session are protected with a key.
    #[must_use]
    pub const fn is_protected(&self) -> bool {
        self.required & Self::PROTECTED != 0
    }

    /// Returns the major version.
    #[must_use]
    pub const fn major(&self) -> u8 {
        self.version >> 4
    }

    /// Returns the minor version.
    #[must_use]
    pub const fn minor(&self) -> u8 {
        self.version & 0x0F
    }

    /// Returns true for the major version that this crate reads. In a mark of another major
    /// version, only version, profile and required features have a meaning.
    #[must_use]
    pub const fn is_known(&self) -> bool {
        self.major() == Self::VERSION >> 4
    }

    /// Checks that an end that knows the features in `known` can follow this session.
    ///
    /// **Errors**: the first of version, profile and required features that does not fit.
    pub const fn check(&self, known: u16) -> Result<(), Refusal> {
        if !self.is_known() {
            return Err(Refusal::Version(self.version));
        }
        if let Profile::Other(code) = self.profile {
            return Err(Refusal::Profile(code));
        }
        match self.required & !known {
            0 => Ok(()),
            missing => Err(Refusal::Features(missing)),
        }
    }

    /// Returns true when the value of an option of the mark's type carries the mark's magic.
    pub(super) fn is_ours(value: &[u8]) -> bool {
        value.len() >= Self::PREFIX_LEN && value.starts_with(&Self::MAGIC.to_be_bytes())
    }

    /// Returns how many bytes follow the fields that every mark of this version has.
    #[must_use]
    pub fn extra_len(&self) -> usize {
        let tag = self.tag.map_or(0, |_| MarkTag::LEN);
        tag + self.partner.map_or(0, |_| PARTNER_LEN)
    }

    const fn names_partner(&self) -> bool {
        self.optional & Self::PARTNER != 0 && !self.is_protected()
    }

    /// Length in bytes of what every version keeps: magic, version, profile, required features.
    const PREFIX_LEN: usize = 8;
}

impl<'a> Contents<'a> for Mark {
    const NAME: &'static str = "our SPM option";
    const KIND: u8 = 0x6E;

    fn parse(reader: &mut Reader<'a>, _specific: u8) -> Result<Self, ParseError> {
        let start = *reader;
        let mut mark = Self::new(Profile::Other(0), 0);
        reader.u32()?;
        mark.version = reader.u8()?;
        mark.profile = Profile::of(reader.u8()?);
        mark.required = reader.u16()?;
        if !mark.is_known() {
            reader.skip_all();
            return Ok(mark);
        }
        if start.rest().len() < Self::LEN {
            return Err(start.too_short(Self::LEN));
        }
        mark.optional = reader.u16()?;
        mark.control_port = reader.u16()?;
        mark.receiver_count = reader.u32()?;
        mark.session_id = reader.u64()?;
        mark.tx_time_us = reader.u64()?;
        mark.announced_pace = Pace::of(reader.u64()?);
        mark.limiting_receiver = reader.u32()?;
        mark.upstream_port = reader.u16()?;
        if mark.is_protected() {
            reader.u16()?;
            mark.tag = Some(MarkTag {
                number: reader.u64()?,
                edge: reader.u64()?,
                tag: reader.take()?,
            });
        } else if mark.names_partner() {
            reader.u16()?;
            let bytes: [u8; PARTNER_LEN] = reader.take()?;
            mark.partner = Some(Ipv6Addr::from(bytes).to_canonical());
        }
        reader.skip_all();
        Ok(mark)
    }

    fn value_len(&self) -> usize {
        Self::LEN + self.extra_len()
    }

    fn emit(&self, writer: &mut Writer<'_>) {
        writer.u32(Self::MAGIC);
        writer.u8(self.version);
        writer.u8(self.profile.code());
        writer.u16(self.required);
        writer.u16(self.optional);
        writer.u16(self.control_port);
        writer.u32(self.receiver_count);
        writer.u64(self.session_id);
        writer.u64(self.tx_time_us);
        writer.u64(self.announced_pace.to_number());
        writer.u32(self.limiting_receiver);
        writer.u16(self.upstream_port);
        writer.u16(0);
        if let Some(MarkTag { number, edge, tag }) = self.tag {
            writer.u64(number);
            writer.u64(edge);
            writer.put(&tag);
        }
        if let Some(partner) = self.partner {
            let partner = match partner {
                IpAddr::V4(address) => address.to_ipv6_mapped(),
                IpAddr::V6(address) => address,
            };
            writer.put(&partner.octets());
        }
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            profile,
            required,
            optional,
            control_port,
            receiver_count,
            session_id,
            tx_time_us,
            announced_pace,
            limiting_receiver,
            upstream_port,
            partner,
            tag,
            version: _,
        } = self;
        write!(f, "towline {}.{} {profile}", self.major(), self.minor())?;
        if !self.is_known() {
            return write!(f, " features {required:#06x}");
        }
        write!(f, " session {session_id:#018x} control {control_port}")?;
        write!(
            f,
            " features {required:#06x} {optional:#06x} time {tx_time_us} us"
        )?;
        let bytes_per_s = announced_pace.to_number();
        write!(f, " rate {bytes_per_s} receivers {receiver_count}")?;
        if *limiting_receiver != Self::NO_RECEIVER {
            write!(f, " limited by {limiting_receiver}")?;
        }
        if *upstream_port != 0 {
            write!(f, " upstream {upstream_port}")?;
        }
        if let Some(partner) = partner.filter(|it| !it.is_unspecified()) {
            write!(f, " partner {partner}")?;
        }
        match tag {
            None => Ok(()),
            Some(MarkTag { number, edge, .. }) => write!(f, " number {number} edge {edge}"),
        }
    }
}

const PARTNER_LEN: usize = 16;

/// The profile of a session: how its data is to be read. It never changes within a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Untouched application messages, in order.
    Messages,
    /// Blocks of files.
    Objects,
    /// Frames with a deadline.
    Frames,
    /// A profile that this crate does not know.
    Other(u8),
}

impl Profile {
    /// Returns the code on the wire.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Messages => 1,
            Self::Objects => 2,
            Self::Frames => 3,
            Self::Other(code) => code,
        }
    }

    /// Returns the profile that `code` stands for.
    #[must_use]
    pub const fn of(code: u8) -> Self {
        match code {
            1 => Self::Messages,
            2 => Self::Objects,
            3 => Self::Frames,
            code => Self::Other(code),
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Messages => f.write_str("messages"),
            Self::Objects => f.write_str("objects"),
            Self::Frames => f.write_str("frames"),
            Self::Other(code) => write!(f, "profile {code}"),
        }
    }
}

/// The reason why a receiver cannot follow a session of a Towline source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Another major version; this is the whole version byte.
    Version(u8),
    /// A profile that does not exist in this version.
    Profile(u8),
    /// Required features that this end does not know, as bits.
    Features(u16),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(byte) => {
                let (theirs, ours) = (byte >> 4, Mark::VERSION >> 4);
                write!(
                    f,
                    "the sender speaks session version {theirs}, this end {ours}"
                )
            }
            Self::Profile(code) => write!(f, "the session's profile {code} is unknown here"),
            Self::Features(Mark::PROTECTED) => {
                f.write_str("the session is protected with a key, and this end has none")
            }
            Self::Features(bits) => {
                write!(f, "the session requires features {bits:#06x} unknown here")
            }
        }
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(mark: &Mark) -> Vec<u8> {
        let mut bytes = vec![0; mark.value_len()];
        mark.emit(&mut Writer::new(&mut bytes));
        bytes
    }

    fn parse(bytes: &[u8]) -> Result<Mark, ParseError> {
        Mark::parse(&mut Reader::new(bytes, 0, "test", "test"), 0)
    }

    #[test]
    fn a_longer_option_of_our_version_is_read() {
        let mark = Mark {
            version: 0x13,
            control_port: 7500,
            tx_time_us: 1 << 40,
            ..Mark::new(Profile::Objects, 99)
        };
        let mut bytes = bytes_of(&mark);
        assert_eq!(parse(&bytes), Ok(mark));
        bytes.extend([1, 2, 3, 4]);
        assert_eq!(parse(&bytes), Ok(mark));
        assert_eq!(mark.check(0), Ok(()));
    }

    #[test]
    fn the_upstream_port_stands_where_others_write_and_read_zeros() {
        let told = Mark {
            upstream_port: 0x9C41,
            ..Mark::new(Profile::Messages, 7)
        };
        let bytes = bytes_of(&told);
        assert_eq!(bytes[44..], [0x9C, 0x41, 0, 0]);
        assert_eq!(parse(&bytes), Ok(told));
        // From a sender that knows no such field, whose last four bytes are reserved.
        let older = [&bytes[..44], &[0; 4]].concat();
        assert_eq!(parse(&older).unwrap().upstream_port, 0);
    }

    #[test]
    fn a_protected_session_carries_a_tag_and_no_other_does() {
        let mut mark = Mark::new(Profile::Messages, 7).protected();
        mark.tag = Some(MarkTag {
            number: 0x0102,
            edge: 0x1_0000_0005,
            tag: [9; 16],
        });
        let bytes = bytes_of(&mark);
        assert_eq!(bytes.len(), Mark::LEN + MarkTag::LEN);
        assert_eq!(bytes[54..56], [1, 2]);
        assert_eq!(bytes[59..64], [1, 0, 0, 0, 5]);
        assert_eq!(bytes[64..], [9; 16]);
        assert_eq!(parse(&bytes), Ok(mark));
        assert!(mark.is_protected() && mark.check(Mark::PROTECTED).is_ok());
        for len in Mark::LEN..bytes.len() {
            assert!(parse(&bytes[..len]).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn a_mark_names_the_partner_unless_a_key_does_better() {
        let plain = Mark::new(Profile::Frames, 7);
        for partner in ["10.0.0.1", "2001:db8::1", "::"] {
            let mark = plain.with_partner(Some(partner.parse().unwrap()));
            let bytes = bytes_of(&mark);
            assert_eq!(bytes.len(), Mark::LEN + 16);
            assert_eq!(parse(&bytes), Ok(mark));
            for len in Mark::LEN..bytes.len() {
                assert!(parse(&bytes[..len]).is_err(), "{len} bytes");
            }
            assert_eq!(mark.with_partner(None), plain);
        }
        let told = plain.with_partner(Some([10, 0, 0, 1].into()));
        assert_eq!(bytes_of(&told)[58..], [0xFF, 0xFF, 10, 0, 0, 1]);
        let bytes = bytes_of(&plain.with_partner(None).protected());
        let with_bit = [&bytes[..8], &[0, 1], &bytes[10..]].concat();
        assert_eq!(parse(&with_bit).unwrap().partner, None);
    }

    #[test]
    fn a_mark_says_which_form_the_offer_of_parity_has() {
        let plain = Mark::new(Profile::Messages, 7);
        for form in [ParityReading::Rfc, ParityReading::OpenPgm] {
            let bytes = bytes_of(&plain.with_parity(form));
            let read = parse(&bytes).unwrap();
            assert_eq!(Mark::parity_reading(Some(&read)), form);
            assert_eq!(read.with_parity(ParityReading::Rfc), plain);
        }
        assert_eq!(Mark::parity_reading(None), ParityReading::Rfc);
    }

    #[test]
    fn a_shorter_option_of_our_version_is_wrong() {
        let bytes = bytes_of(&Mark::new(Profile::Frames, 1));
        for len in 0..Mark::LEN {
            assert!(parse(&bytes[..len]).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn what_cannot_be_followed_is_refused_by_name() {
        let mut mark = Mark::new(Profile::Other(9), 1);
        mark.required = 0b101;
        assert_eq!(mark.check(0), Err(Refusal::Profile(9)));
        mark.profile = Profile::Messages;
        let refusal = mark.check(0b100).unwrap_err();
        assert!(refusal.to_string().contains("protected with a key"));
        assert_eq!(mark.check(0b101), Ok(()));
        mark.version = 0x20;
        let prefix = &bytes_of(&mark)[..Mark::PREFIX_LEN];
        let refusal = parse(prefix).unwrap().check(0xFFFF).unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "the sender speaks session version 2, this end 1"
        );
    }
}
