//! The daemons that keep this host's wall clock right, and what they report. They answer over the
//! loopback interface, or leave a file; no privileges are needed.
//!
//! chronyd answers a `tracking` request (UDP port 323), and ntpd a `readvar` (UDP port 123, mode
//! 6). systemd-timesyncd leaves a file when it has synchronised. ptp4l and phc2sys answer only
//! root, but the kernel's error bound shows their effect. Answers are bounded and checked. An
//! answer that makes no sense is ignored.

use std::{
    fs, io,
    net::{Ipv4Addr, UdpSocket},
    path::Path,
    time::Duration,
};

use serde::Serialize;

/// A daemon that keeps the wall clock right.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Keeper {
    /// The daemon's name.
    pub program: String,
    /// The number of its process; none when only its port answers, which happens in a container.
    pub process: Option<u32>,
    /// What the daemon reports; none when it cannot be asked or does not answer.
    pub state: Option<KeeperState>,
}

/// What a daemon reports about the clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KeeperState {
    /// The daemon follows a source.
    pub is_synchronised: bool,
    /// The host's distance from a reference clock: 1 with a reference clock of its own, and one
    /// more for each server between. 0, and 16 and more, mean that there is no reference clock.
    pub stratum: Option<u16>,
    /// How far the wall clock is ahead of true time, by the daemon's estimate, in nanoseconds.
    pub offset_ns: Option<i64>,
    /// The most by which the wall clock may be wrong, in nanoseconds: the sum of the offset, the
    /// dispersion and half the round-trip delay to the reference clock.
    pub error_ns_max: Option<u64>,
}

/// Looks for the daemons. **Cost**: reads a file for each process, and waits up to
/// [`ANSWER_TIME_MAX`] for each answer.
pub(super) fn keepers() -> Vec<Keeper> {
    let mut found = running(Path::new("/proc"));
    for keeper in &mut found {
        keeper.state = match keeper.program.as_str() {
            "ntpd" => ask(NTP_PORT, &NTP_READ, parse_ntp),
            "systemd-timesyncd" => Some(KeeperState {
                is_synchronised: Path::new(TIMESYNC_FILE).exists(),
                ..KeeperState::default()
            }),
            _ => None,
        };
    }
    // chronyd is asked even when no process is found: its port may answer although the process is
    // not visible.
    if let Some(state) = ask(CHRONY_PORT, &chrony_request(), parse_chrony) {
        match found.iter_mut().find(|it| it.program == "chronyd") {
            Some(keeper) => keeper.state = Some(state),
            None => found.push(Keeper {
                program: "chronyd".to_owned(),
                process: None,
                state: Some(state),
            }),
        }
    }
    found
}

/// Finds the daemons that run. `/proc` cuts their names after 15 bytes.
fn running(proc: &Path) -> Vec<Keeper> {
    let entries = fs::read_dir(proc).into_iter().flatten().flatten();
    let mut found: Vec<Keeper> = entries
        .filter_map(|entry| {
            let process = entry.file_name().to_str()?.parse().ok()?;
            let name = fs::read_to_string(entry.path().join("comm")).ok()?;
            let cut =
                |program: &&&str| program.get(..NAME_BYTES_MAX).unwrap_or(program) == name.trim();
            let program = PROGRAMS.iter().find(cut)?;
            Some(Keeper {
                program: (*program).to_owned(),
                process: Some(process),
                state: None,
            })
        })
        .collect();
    // A daemon may have child processes of the same name; the lowest process number is the
    // daemon's.
    found.sort_by(|a, b| (&a.program, a.process).cmp(&(&b.program, b.process)));
    found.dedup_by(|a, b| a.program == b.program);
    found
}

/// Asks a daemon at a port of the loopback interface.
fn ask(port: u16, question: &[u8], parse: fn(&[u8]) -> Option<KeeperState>) -> Option<KeeperState> {
    let answer = || -> io::Result<Vec<u8>> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.set_read_timeout(Some(ANSWER_TIME_MAX))?;
        socket.connect((Ipv4Addr::LOCALHOST, port))?;
        socket.send(question)?;
        let mut room = vec![0; ANSWER_BYTES_MAX];
        let len = socket.recv(&mut room)?;
        room.truncate(len);
        Ok(room)
    };
    parse(&answer().ok()?)
}

/// Makes a `tracking` request of chronyd's command protocol, version 6. chronyd demands a request
/// as long as the answer. <https://gitlab.com/chrony/chrony/-/blob/4.3/candm.h>
fn chrony_request() -> [u8; CHRONY_BYTES] {
    let mut request = [0; CHRONY_BYTES];
    request[..2].copy_from_slice(&[CHRONY_VERSION, 1]);
    request[4..6].copy_from_slice(&CHRONY_TRACKING.to_be_bytes());
    request
}

fn parse_chrony(answer: &[u8]) -> Option<KeeperState> {
    let answer = answer.get(..CHRONY_BYTES)?;
    let half = |at: usize| u16::from_be_bytes([answer[at], answer[at + 1]]);
    let float = |at: usize| {
        let word = answer[at..at + 4].try_into().expect("four bytes are there");
        chrony_float(u32::from_be_bytes(word))
    };
    let is_answer = answer[..2] == [CHRONY_VERSION, 2]
        && (half(4), half(6), half(8)) == (CHRONY_TRACKING, CHRONY_TRACKED, 0);
    if !is_answer {
        return None;
    }
    let (stratum, leap) = (half(52), half(54));
    // chronyd adds this correction to the clock: when it is positive, the clock is slow.
    let correction_s = float(68);
    let (delay_s, dispersion_s) = (float(92), float(96));
    let error_s = correction_s.abs() + dispersion_s.abs() + delay_s.abs() / 2.0;
    Some(KeeperState {
        is_synchronised: leap != LEAP_UNKNOWN,
        stratum: Some(stratum),
        offset_ns: Some((-correction_s * 1e9).round() as i64),
        error_ns_max: Some((error_s * 1e9).ceil() as u64),
    })
}

/// Reads a number that consists of a signed seven-bit exponent and a signed 25-bit fraction.
fn chrony_float(word: u32) -> f64 {
    let exponent = word.cast_signed() >> 25;
    let fraction = (word << 7).cast_signed() >> 7;
    f64::from(fraction) * f64::from(exponent - 25).exp2()
}

/// Reads the variables in ntpd's answer to `readvar`: `name=value, name=value ...`, with times in
/// milliseconds. RFC 9327, section 3.
fn parse_ntp(answer: &[u8]) -> Option<KeeperState> {
    let header = answer.get(..NTP_READ.len())?;
    let is_answer = header[0] & 0x07 == 6 && header[1] & 0xdf == 0x82;
    let len = usize::from(u16::from_be_bytes([header[10], header[11]]));
    let text = std::str::from_utf8(answer.get(NTP_READ.len()..)?.get(..len)?).ok()?;
    if !is_answer {
        return None;
    }
    let value = |name: &str| {
        let mut pairs = text
            .split(',')
            .filter_map(|pair| pair.trim().split_once('='));
        pairs
            .find(|(found, _)| *found == name)
            .map(|(_, value)| value)
    };
    let millis = |name: &str| value(name)?.parse().ok().filter(|it: &f64| it.is_finite());
    let (leap, stratum) = (
        value("leap")?.parse::<u16>().ok()?,
        value("stratum")?.parse().ok()?,
    );
    let (offset, delay) = (millis("offset"), millis("rootdelay"));
    let error = offset
        .zip(delay)
        .zip(millis("rootdisp"))
        .map(|((offset, delay), dispersion)| offset.abs() + delay.abs() / 2.0 + dispersion.abs());
    Some(KeeperState {
        is_synchronised: leap != LEAP_UNKNOWN && stratum < STRATUM_NONE,
        stratum: Some(stratum),
        // ntpd reports what must be added to the clock, so the sign changes.
        offset_ns: offset.map(|ms| (-ms * 1e6).round() as i64),
        error_ns_max: error.map(|ms| (ms * 1e6).ceil() as u64),
    })
}

const PROGRAMS: [&str; 6] = [
    "chronyd",
    "ntpd",
    "openntpd",
    "phc2sys",
    "ptp4l",
    "systemd-timesyncd",
];
const NAME_BYTES_MAX: usize = 15;
/// The file that timesyncd makes when it first synchronises after the machine started.
const TIMESYNC_FILE: &str = "/run/systemd/timesync/synchronized";
const CHRONY_PORT: u16 = 323;
const CHRONY_BYTES: usize = 104;
const CHRONY_VERSION: u8 = 6;
/// chronyd's `REQ_TRACKING`.
const CHRONY_TRACKING: u16 = 33;
/// chronyd's `RPY_TRACKING`.
const CHRONY_TRACKED: u16 = 5;
const NTP_PORT: u16 = 123;
/// Version 2, mode 6, operation readvar; association 0 stands for the system's own variables.
const NTP_READ: [u8; 12] = [0x16, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
/// The leap indicator of a clock that follows no source.
const LEAP_UNKNOWN: u16 = 3;
const STRATUM_NONE: u16 = 16;
const ANSWER_BYTES_MAX: usize = 1_024;
const ANSWER_TIME_MAX: Duration = Duration::from_millis(300);

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded from chronyd 4.3, which followed a server over a virtual cable. A moment later
    /// `chronyc tracking` said: stratum 9, 2.824 us fast, root delay 9.752 us.
    const CHRONY_FOLLOWS: &str = "0602000000210005000000000000000001020304000000000000000\
        00a4d00010a4d00010000000000000000000000000001000000090000000000006b0200963778465\
        3df3f101dd34ececeda8c6567fb59a889ed446563fc8a1a7ee2a39c85dea0d1550481a5ec";
    /// Recorded from ntpd of ntpsec 1.2.2, before it heard of any server.
    const NTP_ALONE: &str = "leap=3, stratum=16, precision=-24, rootdelay=0.000, \
        rootdisp=0.210,\r\nrefid=INIT, reftime=0x00000000.00000000, tc=0, peer=0, \
        offset=0.000000,\r\nfrequency=0.000000, sys_jitter=0.000000, clk_jitter=0.000060,\r\n\
        clock=0xeeac7f18.68bcf980, processor=\"x86_64\",\r\nsystem=\"Linux/6.18.44\", \
        version=\"ntpd ntpsec-1.2.2\",\r\nclk_wander=0.000000, mintc=0\r\n";

    fn bytes(hex: &str) -> Vec<u8> {
        let digits = hex.as_bytes().chunks(2);
        let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.map(byte).collect()
    }

    fn ntp(text: &str) -> Vec<u8> {
        let mut answer = vec![0xd6, 0x82, 0, 1, 0xc0, 0x16, 0, 0, 0, 0];
        answer.extend((text.len() as u16).to_be_bytes());
        answer.extend(text.as_bytes());
        // Filled up to a multiple of four.
        answer.extend([0; 3]);
        answer
    }

    #[test]
    fn chronyds_recorded_answer_is_read_and_nothing_else() {
        let answer = bytes(CHRONY_FOLLOWS);
        let found = parse_chrony(&answer).unwrap();
        assert_eq!((found.is_synchronised, found.stratum), (true, Some(9)));
        assert_eq!(found.offset_ns, Some(2_875));
        // 2.875 + 2.396 + 9.752 / 2 us.
        let error = found.error_ns_max.unwrap();
        assert!(error.abs_diff(10_147) <= 2, "{error}");
        for cut in 0..answer.len() {
            assert_eq!(parse_chrony(&answer[..cut]), None);
        }
        // Another version, a request, another command, another reply, a refusal.
        for at in [0, 1, 5, 7, 9] {
            let mut other = answer.clone();
            other[at] ^= 1;
            assert_eq!(parse_chrony(&other), None, "byte {at}");
        }
        let mut alone = answer;
        alone[55] = 3;
        assert!(!parse_chrony(&alone).unwrap().is_synchronised);
        assert_eq!(chrony_request()[..6], [6, 1, 0, 0, 0, 33]);
    }

    #[test]
    fn ntpds_recorded_answer_is_read_and_any_cut_is_none() {
        let answer = ntp(NTP_ALONE);
        let found = parse_ntp(&answer).unwrap();
        assert_eq!((found.is_synchronised, found.stratum), (false, Some(16)));
        assert_eq!(found.error_ns_max, Some(210_000));
        for cut in 0..answer.len() - 3 {
            assert_eq!(parse_ntp(&answer[..cut]), None);
        }
        let follows = NTP_ALONE
            .replace("leap=3, stratum=16", "leap=0, stratum=2")
            .replace("rootdelay=0.000", "rootdelay=1.000")
            .replace("offset=0.000000", "offset=-0.250000");
        let found = parse_ntp(&ntp(&follows)).unwrap();
        assert!(found.is_synchronised);
        assert_eq!(
            (found.offset_ns, found.error_ns_max),
            (Some(250_000), Some(960_000))
        );
        let silly = NTP_ALONE.replace("offset=0.000000", "offset=nan");
        assert_eq!(parse_ntp(&ntp(&silly)).unwrap().error_ns_max, None);
        let mut other = answer;
        other[1] = 0xc2;
        assert_eq!(parse_ntp(&other), None, "an error");
    }

    #[test]
    fn programs_are_found_by_their_cut_names_once_each() {
        let place = std::env::temp_dir().join(format!("towline-keepers-{}", std::process::id()));
        for (process, name) in [
            ("90", "systemd-timesyn\n"),
            ("21", "chronyd\n"),
            ("20", "chronyd\n"),
            ("30", "chronyd-not\n"),
            ("self", "ntpd\n"),
        ] {
            fs::create_dir_all(place.join(process)).unwrap();
            fs::write(place.join(process).join("comm"), name).unwrap();
        }
        let found = running(&place);
        fs::remove_dir_all(&place).unwrap();
        let names: Vec<_> = found
            .iter()
            .map(|it| (it.program.as_str(), it.process))
            .collect();
        assert_eq!(
            names,
            [("chronyd", Some(20)), ("systemd-timesyncd", Some(90))]
        );
    }
}
