//! `replay` and `--fail-on` as their users meet them when something is wrong.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use lab::{Lab, LabSpec, isolated};

use crate::{PROGRAM, json, run, signal};

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Processor time that a process has taken so far, in ticks of which there are a hundred a second.
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// Without a carrier a replay waits without spinning, and ends at the first signal with a report.
#[test]
fn the_first_signal_ends_a_replay_without_a_cable() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2).direct()).unwrap();
        lab.set_interface_up(1, false).unwrap();
        for kind in ["ring:e0", "int:e0"] {
            let mut command = lab.host(0).command(PROGRAM);
            command.args(["replay", "gen:", "-o", kind, "--pps", "1k", "--json"]);
            let replay = command.stdout(Stdio::piped()).stderr(Stdio::piped());
            let replay = replay.spawn().unwrap();
            thread::sleep(Duration::from_secs(1));
            let taken = ticks(replay.id());
            signal(&replay, "-TERM");
            let begun = Instant::now();
            let output = replay.wait_with_output().unwrap();
            assert!(begun.elapsed() < Duration::from_secs(3), "{kind}");
            assert!(taken < 30, "{kind} spins: {taken} ticks in a second");
            let report = json(&output);
            assert_eq!(report["ended_by"], "stopped", "{report}");
            assert_eq!(report["sent"], 0, "{report}");
            assert!(report["refused"].as_u64().unwrap() > 0, "{report}");
            assert!(report["refused_bytes"].as_u64().unwrap() >= 60, "{report}");
        }
    });
}

/// A rate that cannot be kept, or that no link of that speed carries, is told.
#[test]
fn a_rate_that_is_not_attained_is_told() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2).direct()).unwrap();
        for flag in ["--pps", "--rate"] {
            let args = ["replay", "gen:count=9", "-o", "ring:e0", flag, "0"];
            let output = run(lab.host(0), &args);
            assert_eq!(output.status.code(), Some(2));
            assert!(said(&output).contains("a rate of 0 carries nothing"));
        }
        // More than 10 Gbit/s carries of the least frames, which no single processor makes either.
        let fast = ["--pps", "20M", "--json"];
        let args = ["replay", "gen:count=300000", "-o", "ring:e0"];
        let output = run(lab.host(0), &[&args[..], &fast].concat());
        let report = json(&output);
        assert!(report["attained_share"].as_f64().unwrap() < 0.9, "{report}");
        let said = said(&output);
        assert!(said.contains("of the rate asked for"), "{said}");
        let most = "but a line of 10 Gbit/s carries 14.9 M/s of 60 B frames";
        assert!(said.contains(most), "{said}");
        let slow = ["--pps", "1k", "--json"];
        let args = ["replay", "gen:count=100", "-o", "ring:e0"];
        let output = run(lab.host(0), &[&args[..], &slow].concat());
        let share = json(&output)["attained_share"].as_f64().unwrap();
        assert!((0.0..=1.0).contains(&share), "{share}");
        assert!(!self::said(&output).contains("14.9 M/s"));
    });
}

/// A generator's own rate is kept as any other.
#[test]
fn generated_packets_have_a_rate_of_their_own() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2).direct()).unwrap();
        let args = [
            "replay",
            "gen:rate=2k,size=60*7+570*4+1514",
            "-o",
            "ring:e0",
        ];
        let output = run(
            lab.host(0),
            &[&args[..], &["--for", "1s", "--json"]].concat(),
        );
        let report = json(&output);
        // By its own account of the time: a busy machine sends late, and never faster than asked.
        let is_kept = |report: &serde_json::Value, count: &str, rate: f64| {
            let count = report[count].as_f64().unwrap();
            let most = report["elapsed_s"].as_f64().unwrap() * rate + 10.0;
            assert!((1.0..=most).contains(&count), "{report}");
        };
        is_kept(&report, "sent", 2_000.0);
        assert_eq!(report["ended_by"], "limit", "{report}");
        assert!(report["gap_error"]["gaps"].as_u64() > Some(0), "{report}");
        let captured = run(
            lab.host(0),
            &["capture", "gen:rate=1k", "--for", "500ms", "--json"],
        );
        is_kept(&json(&captured), "delivered", 1_000.0);
    });
}

/// What a damaged file lost is loss, in the exit code and in its second.
#[test]
fn damage_is_loss() {
    let path = std::env::temp_dir().join(format!("towline-damaged-{}.pcap", std::process::id()));
    let file = format!("pcap:{}", path.display());
    let run = |args: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.args(args).stdin(Stdio::null()).output().unwrap()
    };
    let made = run(&["capture", "gen:count=10,size=100", "-o", &file]);
    assert!(made.status.success(), "{}", said(&made));
    let read = ["capture", &file, "--fail-on", "loss", "--json"];
    assert_eq!(run(&read).status.code(), Some(0));
    let whole = std::fs::read(&path).unwrap();
    // Cut in the middle of the last record.
    std::fs::write(&path, &whole[..whole.len() - 50]).unwrap();
    let cut = run(&read);
    assert_eq!(
        (cut.status.code(), &json(&cut)["delivered"]),
        (Some(1), &9.into())
    );
    // A record that claims more than any has.
    let mut damaged = whole;
    damaged[24 + 116 * 5 + 8..][..4].fill(0x7f);
    std::fs::write(&path, damaged).unwrap();
    let output = run(&read);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let report = json(&output);
    let seconds = report["per_second"].as_array().unwrap();
    let damaged = seconds
        .iter()
        .map(|second| second["damaged_records"].as_u64().unwrap());
    assert_eq!(damaged.sum::<u64>(), 1, "{report}");
    assert_eq!(
        (&report["delivered"], &report["sink_residual"]),
        (&5.into(), &0.into())
    );
}

/// A capture that reads what it writes would find it empty.
#[test]
fn a_file_is_not_written_over_itself() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(1)).unwrap();
        let towline = |args: &[&str]| run(lab.host(0), args);
        let directory = scratch("itself");
        let (file, link) = (directory.join("a.pcapng"), directory.join("b.pcapng"));
        let of = |path: &Path| format!("pcapng:{}", path.display());
        let made = towline(&["capture", "gen:count=100,size=1000", "-o", &of(&file)]);
        assert!(made.status.success(), "{}", said(&made));
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let before = std::fs::read(&file).unwrap();
        for target in [&file, &link] {
            let refused = towline(&["capture", &of(&file), "-o", &of(target)]);
            assert_eq!(refused.status.code(), Some(2));
            assert!(
                said(&refused).contains("are the same file"),
                "{}",
                said(&refused)
            );
            assert_eq!(std::fs::read(&file).unwrap(), before);
        }
        std::fs::remove_dir_all(directory).unwrap();
    });
}

/// Damage is what `--fail-on any` is for; frames that were kept short, or are too long for an
/// interface, are sent or refused with a word.
#[test]
fn what_is_not_as_it_was_is_told() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2).direct()).unwrap();
        let towline = |args: &[&str]| run(lab.host(0), args);
        let directory = scratch("damage");
        let of = |name: &str| format!("pcapng:{}", directory.join(name).display());
        let generated = "gen:count=100,size=1000";
        towline(&["capture", generated, "-s", "0", "-o", &of("whole")]);
        towline(&["capture", generated, "-s", "100", "-o", &of("short")]);
        let mut bytes = std::fs::read(directory.join("whole")).unwrap();
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let mut packet_block = 0;
        while word(packet_block) != 6 {
            packet_block += word(packet_block + 4) as usize;
        }
        bytes[packet_block + 28 + 500] ^= 1;
        std::fs::write(directory.join("damaged"), bytes).unwrap();
        for (file, fail_on, code) in [
            ("whole", "any", 0),
            ("damaged", "none", 0),
            ("damaged", "loss", 0),
            ("damaged", "any", 1),
        ] {
            let words = ["--check-gen", "--fail-on", fail_on, "--json"];
            let read = towline(&[&["capture", &of(file)], &words[..]].concat());
            assert_eq!(read.status.code(), Some(code), "{file} {fail_on}");
            assert_eq!(json(&read)["cut"], 0, "{file}: -s 0 keeps all");
        }
        let nobody = ["--address", "192.0.2.1=10.0.0.1", "--json"];
        let short = towline(&[&["replay", &of("short"), "-o", "ring:e0"], &nobody[..]].concat());
        let unmet = "no packet had the address 192.0.2.1";
        assert!(said(&short).contains(unmet), "{}", said(&short));
        assert_eq!(json(&short)["cut"], 100);
        assert!(said(&short).contains("cut short when"), "{}", said(&short));
        for kind in ["ring:e0", "int:e0"] {
            let long = towline(&["replay", "gen:size=9000,count=5", "-o", kind]);
            assert_eq!(long.status.code(), Some(1));
            assert!(said(&long).contains("its MTU is 1500"), "{}", said(&long));
        }
        std::fs::remove_dir_all(directory).unwrap();
    });
}

/// Nothing comes by an interface that was taken away, so the capture of it ends, its packets kept:
/// also those of the block that the kernel was still filling.
#[test]
fn a_capture_ends_with_its_interface() {
    if Command::new("ip").arg("-V").output().is_err() {
        println!("skipped: ip is not installed");
        return;
    }
    isolated(|| {
        for (kind, retire) in [
            ("ring:e0", "20ms"),
            ("ring:e0", "1s"),
            ("ring2:e0", "20ms"),
            ("int:e0", "20ms"),
        ] {
            let lab = Lab::new(&LabSpec::new(2).direct()).unwrap();
            let mut command = lab.host(1).command(PROGRAM);
            command.args(["capture", kind, "--incoming", "--retire", retire, "--json"]);
            let capture = command.stdout(Stdio::piped()).stderr(Stdio::piped());
            let capture = capture.spawn().unwrap();
            thread::sleep(Duration::from_millis(500));
            run(lab.host(0), &["replay", "gen:count=100", "-o", "int:e0"]);
            let mut ip = lab.host(1).command("ip");
            assert!(ip.args(["link", "del", "e0"]).status().unwrap().success());
            let ended = capture.wait_with_output().unwrap();
            let report = json(&ended);
            assert_eq!(report["ended_by"], "source", "{kind} {retire}: {report}");
            assert_eq!(report["residual"], 0, "{kind} {retire}: {report}");
            assert!(
                report["delivered"].as_u64().unwrap() >= 100,
                "{kind} {retire}: {report}"
            );
            assert!(said(&ended).contains("e0 was removed"), "{}", said(&ended));
        }
    });
}

/// An empty directory.
fn scratch(name: &str) -> PathBuf {
    let name = format!("towline-{name}-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&directory).unwrap();
    directory
}
