//! Device features (segmentation and checksum offloads), speed, queues and rings, over the ethtool
//! netlink family.

use super::{
    Attributes, NetlinkError, NetlinkSocket, Protocol, Request,
    message::{fixed, u16_at},
};

/// The features, speeds, queues and rings of the devices in one network namespace. Needs Linux 5.7
/// or later.
#[derive(Debug)]
pub struct Ethtool {
    socket: NetlinkSocket,
    family: u16,
}

impl Ethtool {
    /// Opens a socket for the calling thread's network namespace and looks up the ethtool family.
    ///
    /// # Errors
    /// When the kernel has no ethtool netlink family.
    pub fn open() -> Result<Self, NetlinkError> {
        let mut socket = NetlinkSocket::open(Protocol::Generic)?;
        let mut request = Request::new(CONTROLLER, 0);
        request
            .fixed(&header(GET_FAMILY))
            .text(FAMILY_NAME, "ethtool");
        let mut family = None;
        let what = "find the kernel's ethtool netlink family";
        socket
            .request(request, &mut |reply| {
                let (_, rest) = fixed::<HEADER_LEN>(reply.payload, "generic netlink header")?;
                for attribute in Attributes::parse(rest)? {
                    if let (FAMILY_ID, Some((id, _))) =
                        (attribute.kind, attribute.payload.split_first_chunk::<2>())
                    {
                        family = Some(u16_at(id, 0));
                    }
                }
                Ok(())
            })
            .map_err(|error| error.during(what))?;
        let family = family.ok_or_else(|| NetlinkError::missing(what))?;
        Ok(Self { socket, family })
    }

    /// Switches one feature of a link on or off. `name` is the feature's name as `ethtool -k`
    /// prints it.
    ///
    /// # Errors
    /// Without CAP_NET_ADMIN, or when the device has no such feature. When the driver leaves a
    /// feature unchanged, the call succeeds: [`Ethtool::is_active`] shows the feature's state.
    pub fn set_feature(&mut self, index: u32, name: &str, on: bool) -> Result<(), NetlinkError> {
        let mut request = Request::new(self.family, 0);
        request.fixed(&header(FEATURES_SET));
        request.nested(FEATURES_HEADER, |device| {
            device.number(HEADER_DEVICE_INDEX, index);
        });
        // A bit that is named without its value flag is cleared; bits that are not named stay as
        // they are.
        request.nested(FEATURES_WANTED, |set| {
            set.nested(BITSET_BITS, |bits| {
                bits.nested(BITSET_BITS_BIT, |bit| {
                    bit.text(BITSET_BIT_NAME, name);
                    if on {
                        bit.attribute(BITSET_BIT_VALUE, &[]);
                    }
                });
            });
        });
        let word = if on { "on" } else { "off" };
        self.socket
            .request(request, &mut |_| Ok(()))
            .map_err(|error| error.during(format!("switch {name} {word} on interface {index}")))
    }

    /// Returns a link's speed in bits a second, as its driver states it. `None` where the driver
    /// does not know, as for a link that is down. A virtual interface does not keep to the rate
    /// that its driver names.
    ///
    /// # Errors
    /// When the link does not exist, or its driver has no speed.
    pub fn speed_bits(&mut self, index: u32) -> Result<Option<u64>, NetlinkError> {
        let mut request = Request::new(self.family, 0);
        request.fixed(&header(LINK_MODES_GET));
        request.nested(LINK_MODES_HEADER, |device| {
            device.number(HEADER_DEVICE_INDEX, index);
        });
        let mut speed = None;
        self.socket
            .request(request, &mut |reply| {
                let (_, rest) = fixed::<HEADER_LEN>(reply.payload, "generic netlink header")?;
                for attribute in Attributes::parse(rest)? {
                    if attribute.kind == LINK_MODES_SPEED {
                        let known = attribute.number().filter(|megabits| *megabits < u32::MAX);
                        speed = known.map(|megabits| u64::from(megabits) * 1_000_000);
                    }
                }
                Ok(())
            })
            .map_err(|error| error.during(format!("read the speed of interface {index}")))?;
        Ok(speed)
    }

    /// Returns the number of a link's receive queues in use; `None` where the driver does not say.
    ///
    /// # Errors
    /// When the link does not exist, or its driver knows nothing of queues.
    pub fn receive_queues(&mut self, index: u32) -> Result<Option<u32>, NetlinkError> {
        let mut request = Request::new(self.family, 0);
        request.fixed(&header(CHANNELS_GET));
        request.nested(CHANNELS_HEADER, |device| {
            device.number(HEADER_DEVICE_INDEX, index);
        });
        let mut queues = 0;
        self.socket
            .request(request, &mut |reply| {
                let (_, rest) = fixed::<HEADER_LEN>(reply.payload, "generic netlink header")?;
                for attribute in Attributes::parse(rest)? {
                    // A driver has queues that only receive, queues for both directions, or some of
                    // each.
                    if matches!(attribute.kind, CHANNELS_RX_COUNT | CHANNELS_COMBINED_COUNT) {
                        queues += attribute.number().unwrap_or(0);
                    }
                }
                Ok(())
            })
            .map_err(|error| error.during(format!("count the queues of interface {index}")))?;
        Ok((queues > 0).then_some(queues))
    }

    /// Returns the size of a link's receive ring, and the largest size that the ring can have, in
    /// packets; `None` where the driver does not say.
    ///
    /// # Errors
    /// When the link does not exist, or its driver knows nothing of rings.
    pub fn receive_ring(&mut self, index: u32) -> Result<Option<[u32; 2]>, NetlinkError> {
        let mut request = Request::new(self.family, 0);
        request.fixed(&header(RINGS_GET));
        request.nested(RINGS_HEADER, |device| {
            device.number(HEADER_DEVICE_INDEX, index);
        });
        let (mut used, mut most) = (None, None);
        self.socket
            .request(request, &mut |reply| {
                let (_, rest) = fixed::<HEADER_LEN>(reply.payload, "generic netlink header")?;
                for attribute in Attributes::parse(rest)? {
                    match attribute.kind {
                        RINGS_RX => used = attribute.number(),
                        RINGS_RX_MAX => most = attribute.number(),
                        _ => {}
                    }
                }
                Ok(())
            })
            .map_err(|error| error.during(format!("read the rings of interface {index}")))?;
        Ok(used.map(|used| [used, most.unwrap_or(used)]))
    }

    /// Sets the number of queues that a link uses in each direction.
    ///
    /// # Errors
    /// Without CAP_NET_ADMIN; when the driver has fewer queues, or cannot set the queues of both
    /// directions.
    pub fn set_queues(&mut self, index: u32, queues: u32) -> Result<(), NetlinkError> {
        let mut request = Request::new(self.family, 0);
        request.fixed(&header(CHANNELS_SET));
        request.nested(CHANNELS_HEADER, |device| {
            device.number(HEADER_DEVICE_INDEX, index);
        });
        request.number(CHANNELS_RX_COUNT, queues);
        request.number(CHANNELS_TX_COUNT, queues);
        self.socket
            .request(request, &mut |_| Ok(()))
            .map_err(|error| error.during(format!("use {queues} queues of interface {index}")))
    }

    /// Returns true when the feature called `name` is on at this moment.
    ///
    /// # Errors
    /// When the link does not exist.
    pub fn is_active(&mut self, index: u32, name: &str) -> Result<bool, NetlinkError> {
        let mut request = Request::new(self.family, 0);
        request.fixed(&header(FEATURES_GET));
        request.nested(FEATURES_HEADER, |device| {
            device.number(HEADER_DEVICE_INDEX, index);
        });
        let mut active = false;
        self.socket
            .request(request, &mut |reply| {
                let (_, rest) = fixed::<HEADER_LEN>(reply.payload, "generic netlink header")?;
                for set in Attributes::parse(rest)?.filter(|set| set.kind == FEATURES_ACTIVE) {
                    for bits in set.nested()?.filter(|bits| bits.kind == BITSET_BITS) {
                        for bit in bits.nested()? {
                            let mut inner = bit.nested()?;
                            active |= inner
                                .any(|part| part.kind == BITSET_BIT_NAME && part.text() == name);
                        }
                    }
                }
                Ok(())
            })
            .map_err(|error| error.during(format!("read the features of interface {index}")))?;
        Ok(active)
    }
}

/// Makes a `struct genlmsghdr`: command u8, version u8, reserved u16.
const fn header(command: u8) -> [u8; HEADER_LEN] {
    [command, 1, 0, 0]
}

const HEADER_LEN: usize = 4;
/// `GENL_ID_CTRL`.
const CONTROLLER: u16 = 16;
/// `CTRL_CMD_GETFAMILY`.
const GET_FAMILY: u8 = 3;
/// `CTRL_ATTR_FAMILY_ID`.
const FAMILY_ID: u16 = 1;
/// `CTRL_ATTR_FAMILY_NAME`.
const FAMILY_NAME: u16 = 2;
/// `ETHTOOL_MSG_LINKMODES_GET`.
const LINK_MODES_GET: u8 = 4;
/// `ETHTOOL_A_LINKMODES_HEADER`.
const LINK_MODES_HEADER: u16 = 1;
/// `ETHTOOL_A_LINKMODES_SPEED`.
const LINK_MODES_SPEED: u16 = 5;
/// `ETHTOOL_MSG_RINGS_GET`.
const RINGS_GET: u8 = 15;
/// `ETHTOOL_A_RINGS_HEADER`.
const RINGS_HEADER: u16 = 1;
/// `ETHTOOL_A_RINGS_RX_MAX`.
const RINGS_RX_MAX: u16 = 2;
/// `ETHTOOL_A_RINGS_RX`.
const RINGS_RX: u16 = 6;
/// `ETHTOOL_MSG_CHANNELS_GET`.
const CHANNELS_GET: u8 = 17;
/// `ETHTOOL_MSG_CHANNELS_SET`.
const CHANNELS_SET: u8 = 18;
/// `ETHTOOL_A_CHANNELS_HEADER`.
const CHANNELS_HEADER: u16 = 1;
/// `ETHTOOL_A_CHANNELS_RX_COUNT`.
const CHANNELS_RX_COUNT: u16 = 6;
/// `ETHTOOL_A_CHANNELS_TX_COUNT`.
const CHANNELS_TX_COUNT: u16 = 7;
/// `ETHTOOL_A_CHANNELS_COMBINED_COUNT`.
const CHANNELS_COMBINED_COUNT: u16 = 9;
/// `ETHTOOL_MSG_FEATURES_GET`.
const FEATURES_GET: u8 = 11;
/// `ETHTOOL_MSG_FEATURES_SET`.
const FEATURES_SET: u8 = 12;
/// `ETHTOOL_A_FEATURES_HEADER`.
const FEATURES_HEADER: u16 = 1;
/// `ETHTOOL_A_FEATURES_WANTED`.
const FEATURES_WANTED: u16 = 3;
/// `ETHTOOL_A_FEATURES_ACTIVE`.
const FEATURES_ACTIVE: u16 = 4;
/// `ETHTOOL_A_HEADER_DEV_INDEX`.
const HEADER_DEVICE_INDEX: u16 = 1;
/// `ETHTOOL_A_BITSET_BITS`.
const BITSET_BITS: u16 = 3;
/// `ETHTOOL_A_BITSET_BITS_BIT`.
const BITSET_BITS_BIT: u16 = 1;
/// `ETHTOOL_A_BITSET_BIT_NAME`.
const BITSET_BIT_NAME: u16 = 2;
/// `ETHTOOL_A_BITSET_BIT_VALUE`.
const BITSET_BIT_VALUE: u16 = 3;
