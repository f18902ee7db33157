//! The offset of a network adapter's clock (PTP hardware clock) from the system's wall clock.
//!
//! ```text
//!   precise:   one moment, latched by the hardware in both clocks
//!   extended:  system | device | system   25 times; the driver reads the system clock right before
//!                                         and after the device's register
//!   basic:     system | device | system | device ...   the kernel reads the system clock before
//!                                         and after each whole call that reads the device
//! ```
//! The last two methods read the device's clock between two readings of the system clock. Of these
//! triples, the one whose two system readings are closest together counts; its error is at most
//! half the time between them. The code sets neither clock.
//!
//! Source: <https://github.com/torvalds/linux/blob/v6.1/include/uapi/linux/ptp_clock.h>

use std::{
    fs::File,
    io,
    mem::size_of,
    os::fd::{AsRawFd as _, BorrowedFd},
    path::Path,
};

use crate::call::check;

/// The difference between two clocks at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhcOffset {
    /// The time of the device's clock minus the time of the system's wall clock, in nanoseconds. A
    /// device that keeps international atomic time is ahead by the difference of that time and UTC
    /// (37 s since 2017).
    pub offset_ns: i64,
    /// The most by which the offset may be wrong, in nanoseconds: half the time between the two
    /// system readings; zero where the hardware latches both clocks.
    pub error_ns_max: u64,
    /// The method by which the clocks were read.
    pub method: PhcMethod,
}

/// A method of reading the two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PhcMethod {
    /// The hardware latched both clocks at one moment (`PTP_SYS_OFFSET_PRECISE`).
    Precise,
    /// The driver read the system clock right before and after the device's register
    /// (`PTP_SYS_OFFSET_EXTENDED`).
    Extended,
    /// The kernel read the system clock before and after the whole call that reads the device
    /// (`PTP_SYS_OFFSET`).
    Basic,
}

/// Compares the clock of `device`, such as `/dev/ptp0`, with the wall clock, by the most exact
/// method that the device has.
///
/// # Errors
/// `EACCES` for users who may not read the device; `ENOTTY` when the device is no such clock.
///
/// **Cost**: opens the device and tries one to three methods. Each method reads the device's clock
/// at most 25 times. That takes about 10 to 100 us.
pub fn offset(device: &Path) -> io::Result<PhcOffset> {
    use std::os::fd::AsFd as _;
    let file = File::open(device)?;
    let mut precise = Precise::default();
    if ask(file.as_fd(), PRECISE, &mut precise).is_ok()
        && let Some(found) = of_precise(&precise)
    {
        return Ok(found);
    }
    let mut extended = Extended {
        count: READINGS as u32,
        reserved: [0; 3],
        times: [[Time::default(); 3]; READINGS],
    };
    if ask(file.as_fd(), EXTENDED, &mut extended).is_ok()
        && let Some(found) = of_extended(&extended.times)
    {
        return Ok(found);
    }
    let mut basic = Basic {
        count: READINGS as u32,
        reserved: [0; 3],
        times: [Time::default(); 2 * READINGS + 1],
    };
    ask(file.as_fd(), BASIC, &mut basic)?;
    of_basic(&basic.times).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Makes the kernel fill in `question`, whose type belongs to `request`.
fn ask<T: Question>(fd: BorrowedFd<'_>, request: libc::Ioctl, question: &mut T) -> io::Result<()> {
    let pointer = std::ptr::from_mut(question);
    // SAFETY: `question` is live and exclusively borrowed. The request's number holds the size of
    // the question's type, as assertions below check. The kernel writes at most that many bytes and
    // keeps no pointer.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), request, pointer) })?;
    Ok(())
}

fn of_precise(found: &Precise) -> Option<PhcOffset> {
    let (device, system) = (found.device.nanos()?, found.realtime.nanos()?);
    Some(PhcOffset {
        offset_ns: i64::try_from(device - system).ok()?,
        error_ns_max: 0,
        method: PhcMethod::Precise,
    })
}

/// Picks the offset from triples of readings: system clock, device's clock, system clock again.
fn of_extended(times: &[[Time; 3]]) -> Option<PhcOffset> {
    let triples = times
        .iter()
        .map(|[before, device, after]| Some((before.nanos()?, device.nanos()?, after.nanos()?)));
    shortest(triples.flatten(), PhcMethod::Extended)
}

/// Picks the offset from readings that alternate between the two clocks. The first and the last
/// reading are of the system clock.
fn of_basic(times: &[Time]) -> Option<PhcOffset> {
    let triples = times
        .windows(3)
        .step_by(2)
        .map(|three| Some((three[0].nanos()?, three[1].nanos()?, three[2].nanos()?)));
    shortest(triples.flatten(), PhcMethod::Basic)
}

/// Returns the offset by the triple (system, device, system) whose system times are closest
/// together.
fn shortest(
    triples: impl Iterator<Item = (i128, i128, i128)>,
    method: PhcMethod,
) -> Option<PhcOffset> {
    let sound = triples.filter(|(before, _, after)| after >= before);
    let (before, device, after) = sound.min_by_key(|(before, _, after)| after - before)?;
    Some(PhcOffset {
        offset_ns: i64::try_from(device - (before + after) / 2).ok()?,
        error_ns_max: u64::try_from((after - before + 1) / 2).ok()?,
        method,
    })
}

/// The C structure `struct ptp_clock_time`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Time {
    seconds: i64,
    nanos: u32,
    reserved: u32,
}

impl Time {
    /// Returns the time in nanoseconds; `None` when the kernel did not fill it in or it makes no
    /// sense.
    fn nanos(&self) -> Option<i128> {
        let is_sound = self.seconds >= 0 && self.nanos < 1_000_000_000;
        let ns = i128::from(self.seconds) * 1_000_000_000 + i128::from(self.nanos);
        (is_sound && ns > 0).then_some(ns)
    }
}

/// The C structure `struct ptp_sys_offset_precise`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Precise {
    device: Time,
    realtime: Time,
    monotonic_raw: Time,
    reserved: [u32; 4],
}

/// The C structure `struct ptp_sys_offset_extended`.
#[repr(C)]
struct Extended {
    count: u32,
    reserved: [u32; 3],
    times: [[Time; 3]; READINGS],
}

/// The C structure `struct ptp_sys_offset`.
#[repr(C)]
struct Basic {
    count: u32,
    reserved: [u32; 3],
    times: [Time; 2 * READINGS + 1],
}

/// A type that [`ask`] may hand to the kernel: plain integers, laid out as the kernel has them.
trait Question {}
impl Question for Precise {}
impl Question for Extended {}
impl Question for Basic {}

/// `PTP_MAX_SAMPLES`.
const READINGS: usize = 25;
/// `_IOW('=', 5, struct ptp_sys_offset)`.
const BASIC: libc::Ioctl = 0x4340_3d05;
/// `_IOWR('=', 8, struct ptp_sys_offset_precise)`.
const PRECISE: libc::Ioctl = 0xc040_3d08_u32 as libc::Ioctl;
/// `_IOWR('=', 9, struct ptp_sys_offset_extended)`.
const EXTENDED: libc::Ioctl = 0xc4c0_3d09_u32 as libc::Ioctl;

const _: () = assert!(size_of::<Basic>() == 0x340);
const _: () = assert!(size_of::<Precise>() == 0x40);
const _: () = assert!(size_of::<Extended>() == 0x4c0);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: i64) -> Time {
        Time {
            seconds: 1_700_000_000 + ns.div_euclid(1_000_000_000),
            nanos: ns.rem_euclid(1_000_000_000) as u32,
            reserved: 0,
        }
    }

    #[test]
    fn the_shortest_reading_counts_and_bounds_its_error() {
        // The device is 37 s ahead, as one that keeps atomic time; the second reading is the best.
        let ahead = 37_000_000_000;
        let times = [
            [at(0), at(ahead + 5_000), at(4_000)],
            [at(10_000), at(ahead + 10_400), at(10_600)],
            [at(20_000), at(ahead + 21_000), at(23_000)],
        ];
        let expected = PhcOffset {
            offset_ns: ahead + 100,
            error_ns_max: 300,
            method: PhcMethod::Extended,
        };
        assert_eq!(of_extended(&times), Some(expected));
        let flat: Vec<Time> = times
            .iter()
            .flat_map(|it| [it[0], it[1]])
            .chain([at(23_000)])
            .collect();
        let found = of_basic(&flat).unwrap();
        // In the basic method, the whole call that reads the device lies between two system
        // readings.
        assert_eq!(found.method, PhcMethod::Basic);
        assert_eq!((found.offset_ns, found.error_ns_max), (ahead - 500, 1_500));
        let precise = Precise {
            device: at(ahead),
            realtime: at(7),
            ..Precise::default()
        };
        let found = of_precise(&precise).unwrap();
        assert_eq!((found.offset_ns, found.error_ns_max), (ahead - 7, 0));
    }

    #[test]
    fn what_makes_no_sense_is_left_out() {
        let empty = [[Time::default(); 3]; READINGS];
        assert_eq!(of_extended(&empty), None);
        assert_eq!(of_precise(&Precise::default()), None);
        let backwards = [[at(5_000), at(1), at(4_000)]];
        assert_eq!(of_extended(&backwards), None);
        let broken = Time {
            nanos: 1_000_000_000,
            ..at(0)
        };
        assert_eq!(of_extended(&[[at(0), broken, at(1)]]), None);
        assert_eq!(of_basic(&[at(0)]), None);
    }

    #[test]
    fn what_is_no_clock_is_refused() {
        let error = offset(Path::new("/dev/null")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTTY));
        assert!(offset(Path::new("/dev/no-such-clock")).is_err());
    }
}
