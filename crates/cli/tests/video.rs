//! `frames` with video: what goes in at the sender comes out at the receiver, byte for byte.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use serde_json::Value;

mod kit;
use kit::Killed;

/// A directory that is removed at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("towline-{name}-{}", std::process::id()));
        drop(fs::remove_dir_all(&path));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn start(&self, args: &[&str]) -> Killed {
        let mut command = Command::new(env!("CARGO_BIN_EXE_towline"));
        command
            .args(args)
            .current_dir(&self.0)
            .env("NO_COLOR", "1")
            .env_remove("XDG_RUNTIME_DIR")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Killed(command.spawn().unwrap())
    }

    fn run(&self, args: &[&str]) -> Output {
        end(self.start(args), b"")
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.0.join(name)).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// Writes `input`, and waits for the end.
fn end(mut process: Killed, input: &[u8]) -> Output {
    let child: &mut Child = &mut process.0;
    // A command that refuses its arguments reads nothing.
    drop(child.stdin.take().unwrap().write_all(input));
    let mut output = Output {
        status: child.wait().unwrap(),
        stdout: Vec::new(),
        stderr: Vec::new(),
    };
    if let Some(stdout) = &mut child.stdout {
        std::io::Read::read_to_end(stdout, &mut output.stdout).unwrap();
    }
    std::io::Read::read_to_end(child.stderr.as_mut().unwrap(), &mut output.stderr).unwrap();
    output
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Sends `input` with these flags to a receiver with those; both must be content.
fn through(place: &Place, group: &str, from: &[&str], to: &[&str], input: &[u8]) -> Output {
    let session = ["-g", group, "--timeout", "20s"];
    let recv = place.start(&[&["frames", "recv"], &session[..], to].concat());
    let send = place.start(&[&["frames", "send", "--fps", "50"], &session[..], from].concat());
    let sent = end(send, input);
    assert!(sent.status.success(), "{}", said(&sent));
    let received = end(recv, b"");
    assert!(received.status.success(), "{}", said(&received));
    received
}

/// Bytes in which no part is like another.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut byte = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    };
    (0..bytes).map(|_| byte()).collect()
}

const FRAMES: usize = 12;

#[test]
fn a_y4m_stream_from_a_pipe_is_written_as_it_was() {
    let place = Place::new("video-y4m");
    let mut input = b"YUV4MPEG2 W64 H48 F30000:1001 Ip A1:1 C420mpeg2 XYSCSS=420MPEG2\n".to_vec();
    for frame in noise(FRAMES * 64 * 48 * 3 / 2).chunks(64 * 48 * 3 / 2) {
        input.extend_from_slice(b"FRAME\n");
        input.extend_from_slice(frame);
    }
    let to = ["--output", "out.y4m", "--count", "12"];
    let received = through(
        &place,
        "239.192.77.61@lo:17561",
        &["--y4m", "-"],
        &to,
        &input,
    );
    assert_eq!(place.read("out.y4m"), input);
    let report = String::from_utf8_lossy(&received.stdout).into_owned();
    assert!(
        report.contains("0 of 0 checked"),
        "it is no pattern: {report}"
    );
    assert!(report.contains("12 frames written"), "{report}");
    assert!(report.contains("not known to be very stable:"), "{report}");
}

#[test]
fn raw_frames_of_packed_pixels_go_to_standard_output() {
    let place = Place::new("video-raw");
    let input = noise(FRAMES * 40 * 30 * 3 / 2);
    fs::write(place.0.join("in.bin"), &input).unwrap();
    let from = [
        "--raw",
        "in.bin",
        "--width",
        "40",
        "--height",
        "30",
        "--pixel-format",
        "mono12p",
    ];
    let to = ["--output", "-", "--as", "raw", "--count", "12"];
    let received = through(&place, "239.192.77.62@lo:17562", &from, &to, b"");
    assert_eq!(received.stdout, input);
    assert!(
        said(&received).contains("12 of 12"),
        "the report is beside the data"
    );
}

#[test]
fn a_reader_that_closes_the_pipe_ends_reception_with_a_report() {
    let place = Place::new("video-pipe");
    let session = ["-g", "239.192.77.67@lo:17567", "--timeout", "20s"];
    let to = ["frames", "recv", "--output", "-", "--as", "raw"];
    let mut recv = place.start(&[&to[..], &session].concat());
    drop(recv.0.stdout.take());
    let from = [
        "frames", "send", "--fps", "50", "--size", "64x48x2", "--count", "50",
    ];
    let send = place.start(&[&from[..], &session].concat());
    let received = end(recv, b"");
    assert!(received.status.success(), "{}", said(&received));
    assert!(
        said(&received).contains("share lost"),
        "{}",
        said(&received)
    );
    drop(end(send, b""));
}

#[test]
fn the_last_frames_of_a_pattern_are_kept_and_checked() {
    let place = Place::new("video-last");
    let from = ["--size", "64x48x2", "--count", "12"];
    let to = ["--last", "3", "--output", "kept", "--json"];
    let received = through(&place, "239.192.77.63@lo:17563", &from, &to, b"");
    let report: Value = serde_json::from_slice(&received.stdout).unwrap();
    assert_eq!(
        (&report["checked"], &report["damaged"]),
        (&12.into(), &0.into())
    );
    assert_eq!(report["film"]["written"], 12);
    assert_eq!(report["loss"]["stability"]["verdict"], "too-short");
    let mut names: Vec<_> = fs::read_dir(place.0.join("kept"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names.len(), 3, "{names:?}");
    let newest = place.read(&format!("kept/{}", names[2]));
    assert!(newest.starts_with(b"YUV4MPEG2 W64 H48 F50:1 Ip A0:0 Cmono16 XTOWLINE_PATTERN\nFRAME"));
}

/// Runs a sender that nobody listens to, and returns its report.
fn sent_alone(place: &Place, group: &str, words: &str) -> Value {
    let session = ["frames", "send", "-g", group, "--always", "--json"];
    let words: Vec<_> = words.split(' ').collect();
    let output = place.run(&[&session[..], &words].concat());
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)))
}

#[test]
fn a_sender_ends_with_its_time_and_not_with_a_frame_after_it() {
    let place = Place::new("video-for");
    let group = "239.192.77.65@lo:17565";
    let report = sent_alone(&place, group, "--size 1kB --fps 2 --for 1s");
    // A process that stands still for a moment sends fewer.
    assert!(report["frames"].as_u64().unwrap() <= 2, "{report}");
    let report = sent_alone(&place, group, "--size 1kB --fps 0.01 --for 1s");
    assert!(report["frames"].as_u64().unwrap() <= 1, "{report}");
    assert!(report["seconds"].as_f64().unwrap() < 50.0, "{report}");
}

#[test]
fn frames_that_do_not_leave_keep_a_sender_for_its_timeout_only() {
    let place = Place::new("video-drain");
    let words = "--size 3kB --count 1 --burst-limit 1 --micro-delay 200s --timeout 1s";
    let report = sent_alone(&place, "239.192.77.66@lo:17566", words);
    assert!(report["seconds"].as_f64().unwrap() < 100.0, "{report}");
}

#[test]
fn receivers_that_were_asked_for_are_awaited() {
    let place = Place::new("video-receivers");
    let group = ["-g", "239.192.77.68@lo:17568", "--dry-run", "--json"];
    for (words, receivers) in [
        (&[][..], 1),
        (&["--always"], 0),
        (&["--always", "--receivers", "1"], 1),
        (&["--receivers", "0"], 0),
    ] {
        let output = place.run(&[&["frames", "send"], words, &group].concat());
        let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(plan["receivers"], receivers, "{words:?}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_sent() {
    let place = Place::new("video-refused");
    fs::write(place.0.join("no.y4m"), b"RIFF\n").unwrap();
    fs::write(place.0.join("slow.y4m"), b"YUV4MPEG2 W4 H4 F1:1000 Cmono\n").unwrap();
    fs::write(
        place.0.join("fast.y4m"),
        b"YUV4MPEG2 W4 H4 F1000000:1 Cmono\n",
    )
    .unwrap();
    let group = ["-g", "239.192.77.64@lo:17564"];
    for (args, what) in [
        (&["send", "--y4m", "no.y4m"][..], "YUV4MPEG2"),
        (&["send", "--y4m", "none"], "none"),
        (&["send", "--y4m", "slow.y4m"], "give --fps"),
        (&["send", "--y4m", "fast.y4m"], "give --fps"),
        (&["send", "--y4m", "-", "--size", "3MB"], "--size"),
        (&["send", "--raw", "-", "--width", "4"], "--height"),
        (
            &[
                "send",
                "--raw",
                "-",
                "--width",
                "0",
                "--height",
                "1",
                "--pixel-format",
                "Mono8",
            ],
            "1 to 65535",
        ),
        (&["advise", "--pause", "0"], "longer than 0"),
        (&["advise", "--packets-per-second", "NaN"], "above 0"),
        (&["advise", "--packets-per-second", "0"], "above 0"),
        (&["recv", "--output", "-", "--json"], "leave one out"),
        (&["recv", "--output", "-", "--last", "2"], "a directory"),
        (&["recv", "--output", "-", "--display"], "leave one out"),
        (&["recv", "--last", "2"], "--output"),
        // The interface of the first feed, by another of its names.
        (&["recv", "--also", "239.192.77.64@127.0.0.1"], "first feed"),
        (&["send", "--also", "239.192.77.64@127.0.0.1"], "first feed"),
    ] {
        let group = if args[0] == "advise" { &[] } else { &group[..] };
        let output = place.run(&[&["frames"], args, group].concat());
        let said = said(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(what), "{args:?}: {said}");
    }
}

#[test]
fn advice_names_the_limit_and_the_remedy() {
    let place = Place::new("video-advise");
    let ask = |more: &[&str]| {
        let args = [
            "frames", "advise", "--iface", "lo", "--mtu", "1500", "--json",
        ];
        let output = place.run(&[&args[..], more].concat());
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code(), report)
    };
    let (code, report) = ask(&[
        "--link",
        "1G",
        "--fps",
        "60",
        "--pause",
        "1ms",
        "--packet-loss",
        "0%",
    ]);
    assert_eq!(code, Some(1), "{report}");
    assert_eq!(report["schema"], "towline.frames-advise");
    let findings = report["findings"].to_string();
    assert!(
        findings.contains("more than the line carries"),
        "{findings}"
    );
    let args = [
        "--size",
        "1000",
        "--fps",
        "1",
        "--packet-loss",
        "0%",
        "--link",
        "1G",
    ];
    let (code, report) = ask(&args);
    assert_eq!(
        (code, report["findings"].to_string().as_str()),
        (Some(0), "[]")
    );
    assert_eq!(report["packets_per_frame"], 1);
    assert!(Path::new("/proc/sys/net/core/rmem_max").exists());
    assert!(report["path"]["socket_buffer_bytes_max"].as_u64().is_some());
}
