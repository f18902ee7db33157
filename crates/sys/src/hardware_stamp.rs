//! Time stamps that a network device makes by its own clock. It makes them only on request.
//!
//! The request is a setting of the device, which holds for every program. [`HardwareStamping`]
//! restores the former setting when it is dropped. If the process is killed, the device goes on
//! stamping, which costs it next to nothing.
//!
//! Source: Documentation/networking/timestamping.rst of the kernel, section 3;
//! <https://github.com/torvalds/linux/blob/v6.1/include/uapi/linux/net_tstamp.h>

use std::{
    io,
    mem::{size_of, zeroed},
    os::fd::{AsRawFd as _, OwnedFd},
};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::call::check;

/// The packets that a device can stamp by its own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StampAbilities {
    /// True when the device can stamp every packet that it sends.
    pub stamps_sent: bool,
    /// True when the device can stamp every packet that it receives; false when it can stamp only
    /// PTP packets.
    pub stamps_all_received: bool,
    /// Number of the device's clock: `/dev/ptpN`.
    pub clock: Option<u32>,
}

/// A device that is set to stamp all packets. When this value is dropped, the device gets its
/// former setting back.
#[derive(Debug)]
pub struct HardwareStamping {
    device: Device,
    /// The setting to restore; `None` when nothing was changed.
    former: Option<Config>,
}

impl HardwareStamping {
    /// Makes the device stamp all packets, both ways.
    ///
    /// # Errors
    /// `Unsupported` when the device cannot do that; `EPERM` without CAP_NET_ADMIN in the device's
    /// network namespace; `ENODEV` when there is no such interface.
    pub fn start(interface: &str) -> io::Result<Self> {
        let device = Device::open(interface)?;
        let can = device.abilities()?;
        if !can.stamps_sent || !can.stamps_all_received {
            return Err(io::ErrorKind::Unsupported.into());
        }
        // If the driver does not report its setting, `OFF` is restored later: drivers begin with
        // it.
        let former = device.config().unwrap_or(Config::OFF);
        if former == Config::ALL {
            let former = None;
            return Ok(Self { device, former });
        }
        let granted = device.set(Config::ALL)?;
        let stamping = Self {
            device,
            former: Some(former),
        };
        // A driver may grant less than was asked of it; dropping `stamping` then restores the
        // former setting.
        if granted.sent != Config::ALL.sent || granted.received != Config::ALL.received {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(stamping)
    }
}

impl Drop for HardwareStamping {
    fn drop(&mut self) {
        if let Some(former) = self.former.take() {
            // When the interface is gone, there is nothing to restore.
            drop(self.device.set(former));
        }
    }
}

/// Reads what the device of `interface` can stamp.
///
/// # Errors
/// `ENODEV` when there is no such interface, `EOPNOTSUPP` when its driver does not tell.
pub fn abilities(interface: &str) -> io::Result<StampAbilities> {
    Device::open(interface)?.abilities()
}

/// An interface, and a socket for requests to its driver.
#[derive(Debug)]
struct Device {
    socket: OwnedFd,
    name: [libc::c_char; libc::IFNAMSIZ],
}

impl Device {
    fn open(interface: &str) -> io::Result<Self> {
        let mut name = [0; libc::IFNAMSIZ];
        if interface.len() >= name.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        for (place, byte) in name.iter_mut().zip(interface.bytes()) {
            *place = byte.cast_signed();
        }
        let (kind, flags) = (SocketType::DGRAM, SocketFlags::CLOEXEC);
        let socket = socket_with(AddressFamily::INET, kind, flags, None)?;
        Ok(Self { socket, name })
    }

    fn abilities(&self) -> io::Result<StampAbilities> {
        let mut info = Info {
            command: GET_TS_INFO,
            ..Info::default()
        };
        self.request(libc::SIOCETHTOOL as libc::Ioctl, &mut info)?;
        Ok(parse(&info))
    }

    fn config(&self) -> io::Result<Config> {
        let mut config = Config::OFF;
        self.request(GET_CONFIG, &mut config)?;
        Ok(config)
    }

    /// Changes the device's setting, and returns the setting that the driver granted.
    fn set(&self, mut config: Config) -> io::Result<Config> {
        self.request(SET_CONFIG, &mut config)?;
        Ok(config)
    }

    fn request<T: Answer>(&self, request: libc::Ioctl, answer: &mut T) -> io::Result<()> {
        // SAFETY: an `ifreq` is a name, integers and pointers; all zero is a valid value.
        let mut envelope: libc::ifreq = unsafe { zeroed() };
        envelope.ifr_name = self.name;
        envelope.ifr_ifru.ifru_data = std::ptr::from_mut(answer).cast();
        // SAFETY: `envelope` is live and points at `answer`, which is exclusively borrowed and laid
        // out like the kernel's structure of this request; the kernel writes no more than that.
        check(unsafe { libc::ioctl(self.socket.as_raw_fd(), request, &raw mut envelope) })?;
        Ok(())
    }
}

fn parse(info: &Info) -> StampAbilities {
    let has = |set: u32, bit: u32| set & (1 << bit) != 0;
    let needed = libc::SOF_TIMESTAMPING_TX_HARDWARE
        | libc::SOF_TIMESTAMPING_RX_HARDWARE
        | libc::SOF_TIMESTAMPING_RAW_HARDWARE;
    let is_able = info.stamping & needed == needed;
    StampAbilities {
        stamps_sent: is_able && has(info.sent_kinds, TX_ON),
        stamps_all_received: is_able && has(info.received_kinds, FILTER_ALL),
        clock: u32::try_from(info.clock).ok(),
    }
}

/// The C structure `struct ethtool_ts_info`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Info {
    command: u32,
    stamping: u32,
    clock: i32,
    sent_kinds: u32,
    sent_reserved: [u32; 3],
    received_kinds: u32,
    received_reserved: [u32; 3],
}

/// The C structure `struct hwtstamp_config`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
struct Config {
    flags: i32,
    sent: i32,
    received: i32,
}

impl Config {
    const OFF: Self = Self {
        flags: 0,
        sent: 0,
        received: 0,
    };
    const ALL: Self = Self {
        flags: 0,
        sent: TX_ON as i32,
        received: FILTER_ALL as i32,
    };
}

/// A type that [`Device::request`] may hand to the kernel: plain integers, laid out as the kernel
/// has them.
trait Answer {}
impl Answer for Info {}
impl Answer for Config {}

/// `ETHTOOL_GET_TS_INFO`.
const GET_TS_INFO: u32 = 0x41;
/// `SIOCSHWTSTAMP`.
const SET_CONFIG: libc::Ioctl = 0x89b0;
/// `SIOCGHWTSTAMP`.
const GET_CONFIG: libc::Ioctl = 0x89b1;
/// `HWTSTAMP_TX_ON`.
const TX_ON: u32 = 1;
/// `HWTSTAMP_FILTER_ALL`.
const FILTER_ALL: u32 = 1;

const _: () = assert!(size_of::<Info>() == 44);
const _: () = assert!(size_of::<Config>() == 12);

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes the kernel's structure from the values that `ethtool -T` prints for a device.
    fn info(stamping: u32, clock: i32, sent_kinds: u32, received_kinds: u32) -> Info {
        Info {
            command: GET_TS_INFO,
            stamping,
            clock,
            sent_kinds,
            received_kinds,
            ..Info::default()
        }
    }

    #[test]
    fn devices_that_stamp_all_only_ptp_or_nothing_are_told_apart() {
        let all = parse(&info(0x7f, 0, 0b11, 0b11));
        let able = StampAbilities {
            stamps_sent: true,
            stamps_all_received: true,
            clock: Some(0),
        };
        assert_eq!(all, able);
        // This device can stamp only PTP event packets of version 2 among those that it receives.
        let ptp = parse(&info(0x7f, 1, 0b11, 1 | 1 << 12));
        assert!(ptp.stamps_sent && !ptp.stamps_all_received);
        let software = parse(&info(0x1a, -1, 0, 0));
        assert_eq!((software.stamps_sent, software.clock), (false, None));
    }

    #[test]
    fn a_device_without_stamps_is_refused_and_left_as_it_is() {
        let error = HardwareStamping::start("lo").unwrap_err();
        let is_told = error.kind() == io::ErrorKind::Unsupported
            || error.raw_os_error() == Some(libc::EOPNOTSUPP);
        assert!(is_told, "{error}");
        let error = abilities("no-such-one").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
        assert!(abilities("a name that is too long for it").is_err());
    }
}
