//! Control messages as kernels send them, byte by byte; and live stamps on the loopback interface.

use std::{net::Ipv4Addr, os::fd::AsFd as _, time::Duration};

use super::*;
use crate::{Family, UdpSocket, clock, datagram};

/// A control message in the kernel's form.
fn message(level: c_int, kind: c_int, data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES];
    put_header(&mut bytes, level, kind, data.len());
    bytes.extend_from_slice(data);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

fn timestamping(times: [(u64, u64); 3]) -> Vec<u8> {
    let words = times.iter().flat_map(|&(s, ns)| [s, ns]);
    let data: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
    message(libc::SOL_SOCKET, libc::SCM_TIMESTAMPING, &data)
}

fn extended(errno: u32, origin: u8, kind: u8, code: u8, info: u32, data: u32) -> Vec<u8> {
    let mut bytes = errno.to_ne_bytes().to_vec();
    bytes.extend_from_slice(&[origin, kind, code, 0]);
    bytes.extend_from_slice(&info.to_ne_bytes());
    bytes.extend_from_slice(&data.to_ne_bytes());
    bytes
}

#[test]
fn a_hardware_stamp_of_a_sent_packet() {
    // This is the answer of an Intel i210 adapter: no software time, and the device's clock in the
    // third place.
    let mut control = timestamping([(0, 0), (0, 0), (37, 123_456_789)]);
    let error = extended(42, 4, 0, 0, 0, 9);
    control.extend(message(libc::IPPROTO_IP, libc::IP_RECVERR, &error));
    let stamps = Stamps {
        software_ns: None,
        hardware_ns: Some(37_123_456_789),
    };
    let stage = Stage::Sent;
    let number = 9;
    let wanted = Report::Stamp {
        number,
        stage,
        stamps,
    };
    assert_eq!(parse_report(&control), Some(wanted));
}

/// Control messages as Linux 6.18 gave them to a program on x86-64, byte by byte.
#[cfg(all(target_endian = "little", target_pointer_width = "64"))]
mod recorded {
    use super::*;

    const ARRIVED: &str = "400000000000000001000000250000007cce016b000000006102252600000000\
        0000000000000000000000000000000000000000000000000000000000000000";
    const SCHEDULED: &str = "400000000000000001000000250000007cce016b0000000089f9242600000000\
        0000000000000000000000000000000000000000000000000000000000000000\
        3000000000000000000000000b0000002a000000040000000100000000000000\
        00000000000000000000000000000000";
    const SENT: &str = "400000000000000001000000250000007cce016b000000006200252600000000\
        0000000000000000000000000000000000000000000000000000000000000000\
        3000000000000000000000000b0000002a000000040000000000000000000000\
        00000000000000000000000000000000";
    /// A stamp of the device's clock, in the third place. A sent packet with this stamp has no
    /// software stamp, unless the socket sets `SOF_TIMESTAMPING_OPT_TX_SWHW`.
    const HARDWARE: &str = "0000000000000000000000000000000000000000000000000000000000000000\
        7cce016b0000000015cd5b0700000000";
    const SECOND_NS: u64 = 0x6b01_ce7c * 1_000_000_000;

    fn bytes(hex: &str) -> Vec<u8> {
        let pairs = hex.as_bytes().chunks(2);
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16);
        pairs.map(|pair| byte(pair).unwrap()).collect()
    }

    /// A recording with the device's stamp in the place of the kernel's.
    fn by_hardware(recording: &str) -> Vec<u8> {
        let mut control = bytes(recording);
        control[HEADER_BYTES..HEADER_BYTES + 48].copy_from_slice(&bytes(HARDWARE));
        control
    }

    #[test]
    fn arrivals_by_the_kernel_and_by_the_device() {
        let software_ns = Some(SECOND_NS + 0x2625_0261);
        let hardware_ns = None;
        let stamps = Stamps {
            software_ns,
            hardware_ns,
        };
        assert_eq!(parse_arrival(&bytes(ARRIVED)), stamps);
        let stamps = parse_arrival(&by_hardware(ARRIVED));
        assert_eq!(stamps.software_ns, None);
        assert_eq!(stamps.hardware_ns, Some(SECOND_NS + 123_456_789));
    }

    #[test]
    fn reports_by_the_kernel_and_by_the_device() {
        for (recording, stage, ns) in [
            (SCHEDULED, Stage::Scheduled, 0x2624_f989),
            (SENT, Stage::Sent, 0x2625_0062),
        ] {
            let found = parse_report(&bytes(recording));
            let wanted = |stamps| {
                let number = 0;
                Some(Report::Stamp {
                    number,
                    stage,
                    stamps,
                })
            };
            let software_ns = Some(SECOND_NS + ns);
            let by_kernel = Stamps {
                software_ns,
                hardware_ns: None,
            };
            assert_eq!(found, wanted(by_kernel));
            let by_device = Stamps {
                software_ns: None,
                hardware_ns: Some(SECOND_NS + 123_456_789),
            };
            assert_eq!(parse_report(&by_hardware(recording)), wanted(by_device));
        }
        // Messages that are cut short at any byte give no time or the same time, never another
        // time.
        let whole = by_hardware(SENT);
        for cut in 0..whole.len() {
            let stamps = parse_arrival(&whole[..cut]);
            assert!(stamps == Stamps::default() || stamps == parse_arrival(&whole));
        }
    }
}

#[test]
fn a_software_stamp_of_the_scheduler_over_ipv6() {
    let mut control = timestamping([(1_700_000_000, 5), (0, 0), (0, 0)]);
    let error = extended(42, 4, 0, 0, 1, u32::MAX);
    control.extend(message(libc::IPPROTO_IPV6, libc::IPV6_RECVERR, &error));
    let Some(Report::Stamp {
        number,
        stage,
        stamps,
    }) = parse_report(&control)
    else {
        panic!("no stamp");
    };
    assert_eq!((number, stage), (u32::MAX, Stage::Scheduled));
    assert_eq!(stamps.software_ns, Some(1_700_000_000_000_000_005));
}

#[test]
fn an_icmp_error_with_the_router_that_sent_it() {
    let mut error = extended(libc::EMSGSIZE as u32, 2, 3, 4, 1_400, 0);
    error.extend_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    error.extend_from_slice(&[0, 0, 10, 77, 0, 9]);
    error.extend_from_slice(&[0; 8]);
    let control = message(libc::IPPROTO_IP, libc::IP_RECVERR, &error);
    let wanted = Report::Failure {
        errno: libc::EMSGSIZE,
        origin: Origin::Icmp,
        icmp: (3, 4),
        info: 1_400,
        offender: Some(Ipv4Addr::new(10, 77, 0, 9).into()),
    };
    assert_eq!(parse_report(&control), Some(wanted));
}

#[test]
fn hostile_control_bytes_do_no_harm() {
    let mut control = timestamping([(u64::MAX, u64::MAX), (0, 0), (1, 1)]);
    control.extend(message(
        libc::IPPROTO_IP,
        libc::IP_RECVERR,
        &extended(42, 4, 0, 0, 7, 1),
    ));
    for cut in 0..control.len() {
        let _none_or_some = parse_report(&control[..cut]);
    }
    for at in 0..control.len() {
        for byte in [0, 1, 0x7f, 0xff] {
            let mut bytes = control.clone();
            bytes[at] = byte;
            let _none_or_some = parse_report(&bytes);
        }
    }
    let stage = Stage::Other(7);
    let hardware_ns = Some(1_000_000_001);
    let stamps = Stamps {
        software_ns: None,
        hardware_ns,
    };
    let number = 1;
    assert_eq!(
        parse_report(&control),
        Some(Report::Stamp {
            number,
            stage,
            stamps
        })
    );
}

#[test]
fn the_loopback_interface_stamps_in_order() {
    let (one, other) = (bound(), bound());
    datagram::connect(one.as_fd(), other.local_addr().unwrap()).unwrap();
    enable(one.as_fd()).unwrap();
    enable(other.as_fd()).unwrap();
    let before = clock::wall_nanos();
    // The kernel begins to stamp some time after it was asked to.
    let end = clock::monotonic() + Duration::from_secs(10);
    let mut arrived = None;
    while arrived.is_none() && clock::monotonic() < end {
        datagram::send(one.as_fd(), b"plain").unwrap();
        arrived = received(&other).software_ns;
    }
    // Of all packets sent here, this is the first that is stamped on sending, so its number is 0.
    send_stamped(one.as_fd(), b"stamped").unwrap();
    let arrived = received(&other).software_ns.unwrap_or(0);
    let mut times = [0; 2];
    for _ in 0..2 {
        match receive_report(one.as_fd()).unwrap() {
            Some(Report::Stamp {
                number,
                stage,
                stamps,
            }) => {
                assert_eq!(number, 0);
                let place = usize::from(stage == Stage::Sent);
                times[place] = stamps.software_ns.unwrap();
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(receive_report(one.as_fd()).unwrap(), None);
    // The wall clock may be set while this runs, so only a difference of a minute or more is an
    // error.
    assert!(times[0].abs_diff(before) < 60_000_000_000 && times[1] > 0 && arrived > 0);
    disable(one.as_fd()).unwrap();
}

fn received(socket: &UdpSocket) -> Stamps {
    assert!(datagram::wait_readable(socket.as_fd(), Duration::from_secs(5)).unwrap());
    receive_stamped(socket.as_fd(), &mut [0; 16]).unwrap().1
}

fn bound() -> UdpSocket {
    let socket = UdpSocket::new(Family::V4).unwrap();
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    socket
}
