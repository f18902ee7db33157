//! `capture` and `replay` as their users meet them: two processes on two hosts.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    process::{Child, Command, Output, Stdio},
    thread,
    time::Duration,
};

use lab::{Host, Lab, LabSpec, isolated};
use serde_json::Value;

mod replay;

#[path = "../schema_kit/mod.rs"]
mod schema_kit;

const PROGRAM: &str = env!("CARGO_BIN_EXE_towline");

fn run(host: &Host, args: &[&str]) -> Output {
    let mut command = host.command(PROGRAM);
    command.args(args).stdin(Stdio::null()).output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// Starts a capture and waits until it has made its file: its ring is open then.
fn start_capture(host: &Host, file: &std::path::Path, args: &[&str]) -> Child {
    let mut command = host.command(PROGRAM);
    let sink = format!("pcapng:{}", file.display());
    command
        .args(["capture", "ring:e0", "--json", "-o", &sink])
        .args(args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    while !file.exists() {
        thread::sleep(Duration::from_millis(5));
    }
    child
}

/// Tells a capture to stop; gives its account.
fn interrupt(capture: Child) -> Value {
    signal(&capture, "-INT");
    json(&capture.wait_with_output().unwrap())
}

fn signal(program: &Child, signal: &str) {
    let pid = program.id().to_string();
    let told = Command::new("kill").args([signal, &pid]).status();
    assert!(told.unwrap().success());
}

/// A capture that is told to stop writes its file out and closes its account.
#[test]
fn a_signal_ends_a_capture_with_everything_in_its_file() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2).direct()).unwrap();
        let file = std::env::temp_dir().join(format!("towline-cli-{}.pcapng", std::process::id()));
        let capture = start_capture(lab.host(1), &file, &["--check-gen", "--incoming"]);
        let spec = "gen:size=60-1514,count=5000";
        let sent = run(
            lab.host(0),
            &["replay", spec, "-o", "ring:e0", "--pps", "10k", "--json"],
        );
        assert_eq!(
            sent.status.code(),
            Some(0),
            "{}",
            String::from_utf8_lossy(&sent.stderr)
        );
        let sent = json(&sent);
        assert_eq!((&sent["sent"], &sent["refused"]), (&5000.into(), &0.into()));
        assert_eq!(sent["gap_error"]["gaps"], 4999);
        assert_eq!(sent["asked_packets_per_s"], 10_000.0);
        // A virtual cable's driver says 10 Gbit/s; frames of 787 bytes fill 811 bytes of it.
        let link = &sent["link"];
        assert_eq!(link["speed_bits_per_s"], 10_000_000_000_u64);
        let most = link["packets_per_s_max"].as_f64().unwrap();
        let bytes = link["frame_bytes"].as_f64().unwrap();
        assert!((most * (bytes + 24.0) * 8.0 - 1e10).abs() < 1.0, "{link}");
        signal(&capture, "-INT");
        let output = capture.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        let account = json(&output);
        assert_eq!(account["schema"], "towline.capture");
        assert_eq!(
            (&account["ended_by"], &account["residual"]),
            (&"stopped".into(), &0.into())
        );
        let lost = account["lost"]["ring"].as_u64().unwrap();
        let frames = account["generated"]["frames"].as_u64().unwrap();
        assert!(frames + lost >= 5000, "{account}");
        // The file holds what the account says was delivered.
        let path = format!("pcapng:{}", file.display());
        let read = json(&run(
            lab.host(1),
            &["capture", &path, "--check-gen", "--json"],
        ));
        std::fs::remove_file(&file).unwrap();
        assert_eq!(read["delivered"], account["delivered"]);
        assert_eq!(read["generated"], account["generated"]);
    });
}

/// A source that takes packets away says so before and after, and leaves nothing behind when it is
/// killed.
#[test]
fn what_takes_packets_away_says_so_and_leaves_nothing() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2).direct()).unwrap();
        let program = || {
            let link = lab.host(1).enter(|| {
                let mut netlink = sys::netlink::Rtnetlink::open().unwrap();
                netlink.link("e0").unwrap()
            });
            link.unwrap().program
        };
        let taking = ["capture", "xdp:e0", "--json", "--for"];
        let output = run(lab.host(1), &[&taking[..], &["10ms"]].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if said.contains("not permitted") || said.contains("use ring:") {
            println!("skipped: {said}");
            return;
        }
        assert!(
            said.starts_with("warning: xdp:e0 takes all packets that arrive on e0"),
            "{said}"
        );
        let report = json(&output);
        assert_eq!(report["taken_from_host"], serde_json::json!(["e0"]));
        assert_eq!((&report["residual"], program()), (&0.into(), None));

        let mut command = lab.host(1).command(PROGRAM);
        let mut capture = command.args(taking).arg("1m").spawn().unwrap();
        wait_until(|| program().is_some());
        capture.kill().unwrap();
        capture.wait().unwrap();
        wait_until(|| program().is_none());
    });
}

fn wait_until(is_so: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(10), "it never was");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Workers have a file each, and one account of what is in them.
#[test]
fn workers_write_their_shares_and_close_one_account() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2).direct()).unwrap();
        let name = format!("towline-workers-{}.pcapng", std::process::id());
        let file = std::env::temp_dir().join(name);
        let shares = ["0.pcapng", "1.pcapng"].map(|end| file.with_extension(end));
        let mut command = lab.host(1).command(PROGRAM);
        let sink = format!("pcapng:{}", file.display());
        command
            .args(["capture", "ring:e0", "--workers", "2", "--check-gen"])
            .args(["--incoming", "--json", "-o", &sink])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let capture = command.spawn().unwrap();
        // The last is made when both rings are open.
        while !shares[1].exists() {
            thread::sleep(Duration::from_millis(5));
        }
        let spec = "gen:size=60-1514,count=5000,flows=32";
        let sent = run(
            lab.host(0),
            &["replay", spec, "-o", "ring:e0", "--pps", "10k", "--json"],
        );
        assert_eq!(json(&sent)["sent"], 5000);
        let account = interrupt(capture);
        assert_eq!(account["residual"], 0, "{account}");
        let lost = account["lost"]["ring"].as_u64().unwrap();
        let frames = account["generated"]["frames"].as_u64().unwrap();
        assert!(frames + lost >= 5000, "{account}");
        let by_worker = account["delivered_by_worker"].as_array().unwrap();
        assert_eq!(by_worker.len(), 2);
        for (share, delivered) in shares.iter().zip(by_worker) {
            let source = format!("pcapng:{}", share.display());
            let read = json(&run(lab.host(1), &["capture", &source, "--json"]));
            std::fs::remove_file(share).unwrap();
            assert_eq!(&read["delivered"], delivered);
        }
    });
}

/// A sweep needs no interface: it makes its own cable, and draws what it found.
#[test]
fn a_sweep_measures_every_source_at_every_size() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2).direct()).unwrap();
        let name = format!("towline-sweep-{}.svg", std::process::id());
        let picture = std::env::temp_dir().join(name);
        let plot = picture.to_string_lossy().into_owned();
        let sweep = ["stats", "--sweep", "ring-size", "--for", "50ms"];
        let rest = ["--pps", "2k", "--plot", &plot, "--json"];
        let output = run(lab.host(0), &[&sweep[..], &rest].concat());
        assert_eq!(output.status.code(), Some(0));
        let (name, report) = schema_kit::check_schema(&String::from_utf8_lossy(&output.stdout));
        assert_eq!(name, "stats-sweep");
        let rows = report["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 18);
        assert!(rows.iter().all(|row| row["sent"] == 100), "{report}");
        let drawn = std::fs::read_to_string(&picture).unwrap();
        std::fs::remove_file(&picture).unwrap();
        assert!(drawn.contains("ring2:") && drawn.contains("65536"));
        let refused = run(lab.host(0), &[&sweep[..], &["--plot", "x.csv"]].concat());
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            text.contains("--plot x.csv: its name must end in .png"),
            "{text}"
        );
    });
}

#[test]
fn what_cannot_be_done_is_said() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2).direct()).unwrap();
        let failing: [(&[&str], &str); 14] = [
            (
                &["capture", "ring:e0", "--retire", "3s"],
                "--retire is at most 2 s",
            ),
            (
                &["stats", "gen:count=9", "--plot", "x.csv"],
                "--plot x.csv: its name must end in .png, .svg or .html",
            ),
            (
                &[
                    "capture",
                    "gen:count=9",
                    "-o",
                    "pcap:/dev/null",
                    "--comment",
                    "x",
                ],
                "only pcapng:FILE has a place",
            ),
            (
                &["capture", "ring:e0", "--user", "no such user"],
                "--user no such user: this host has no such user",
            ),
            (
                &["replay", "gen:rate=0", "-o", "ring:e0"],
                "write gen:size=60-1514,rate=N",
            ),
            (
                &["capture", "int:e0", "--workers", "2"],
                "--workers needs exactly one source, a ring:IF",
            ),
            (
                &["capture", "ring:e0", "--workers", "2", "-o", "pcap:-"],
                "a file of its own",
            ),
            (
                &["capture", "ring:e7"],
                "there is no interface e7; this host has lo, e0; if e7 is a file, write pcapng:e7",
            ),
            (
                &["capture", "ring:e0", "-f", "udp and and"],
                "is not a filter: ",
            ),
            (&["capture", "e 0"], "not a source of packets"),
            (&["capture", "ring:e0", "-o", "/"], "not a sink of packets"),
            (
                &["replay", "gen:count=1", "-o", "null:"],
                "is not an interface to replay on",
            ),
            (
                &["replay", "gen:size=1", "-o", "ring:e0"],
                "a size is 60 to 9014 bytes",
            ),
            (
                &["capture", "gen:count=9", "-o", "pcap:/dev/full"],
                "No space left on device",
            ),
        ];
        for (args, text) in failing {
            let output = run(lab.host(0), args);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
            assert!(said.contains(text), "{args:?}: {said}");
        }
    });
}

/// While files follow each other, nothing stays of what root may do but to open them.
#[test]
fn a_capture_keeps_no_more_than_opening_files_takes() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2).direct()).unwrap();
        let name = format!("towline-caps-{}.pcapng", std::process::id());
        let file = std::env::temp_dir().join(name);
        for (rotates, most) in [(true, 2), (false, 0)] {
            let first = if rotates {
                file.with_extension("00001.pcapng")
            } else {
                file.clone()
            };
            let mut command = lab.host(1).command(PROGRAM);
            let sink = format!("pcapng:{}", file.display());
            command.args(["capture", "ring:e0", "--json", "-o", &sink]);
            if rotates {
                command.args(["--rotate-size", "1k"]);
            }
            let capture = command.stdout(Stdio::piped()).spawn().unwrap();
            while !first.exists() {
                thread::sleep(Duration::from_millis(5));
            }
            thread::sleep(Duration::from_millis(200));
            let status = std::fs::read_to_string(format!("/proc/{}/status", capture.id()));
            let account = interrupt(capture);
            std::fs::remove_file(&first).unwrap();
            let status = status.unwrap();
            let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
            let effective = u64::from_str_radix(effective.unwrap().trim(), 16).unwrap();
            assert_eq!(effective & !most, 0, "{effective:x}");
            assert_eq!(account["sink_residual"], 0);
        }
    });
}

/// Files that follow each other hold everything between them, and what is sent again of them all,
/// merged, changed and in rounds, is what was asked for.
#[test]
fn files_follow_each_other_and_are_sent_again() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2).direct()).unwrap();
        let folder = std::env::temp_dir().join(format!("towline-turns-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let sink = format!("pcapng:{}", folder.join("x.pcapng").display());
        let made = run(
            lab.host(0),
            &[
                "capture",
                "gen:count=3000",
                "-o",
                &sink,
                "--rotate-size",
                "100k",
                "--json",
            ],
        );
        assert_eq!(json(&made)["delivered"], 3000);
        let mut files: Vec<String> = std::fs::read_dir(&folder)
            .unwrap()
            .map(|entry| format!("pcapng:{}", entry.unwrap().path().display()))
            .collect();
        files.sort();
        assert!(files.len() > 2, "{files:?}");
        let arrived = folder.join("arrived.pcapng");
        let capture = start_capture(lab.host(1), &arrived, &["--incoming", "--check-gen"]);
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        let options = [
            "-o",
            "ring:e0",
            "--pps",
            "20k",
            "--burst",
            "16",
            "--loop",
            "2",
            "--json",
            "--address",
            "198.18.0.1=10.1.2.3",
            "--vlan",
            "none",
            "--to-mac",
            "02:00:00:00:00:09",
        ];
        let sent = run(
            lab.host(0),
            &[["replay"].as_slice(), &files, &options].concat(),
        );
        let said = String::from_utf8_lossy(&sent.stderr).into_owned();
        assert_eq!(json(&sent)["sent"], 6000, "{said}");
        let account = interrupt(capture);
        let generated = &account["generated"];
        // Every checksum is right; the second round has the numbers of the first.
        assert_eq!(
            (&generated["corrupt"], &account["residual"]),
            (&0.into(), &0.into())
        );
        let lost = account["lost"]["ring"].as_u64().unwrap();
        let seen =
            generated["frames"].as_u64().unwrap() + generated["duplicates"].as_u64().unwrap();
        assert!(seen + lost >= 6000, "{account}");
        let bytes = std::fs::read(&arrived).unwrap();
        let changed = [&[10, 1, 2, 3][..], &[198, 18, 0, 2]].concat();
        assert!(bytes.windows(8).any(|window| window == changed));
        std::fs::remove_dir_all(&folder).unwrap();
    });
}

/// One pass counts everything, and each filter for itself.
#[test]
fn stats_say_what_packets_are() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2).direct()).unwrap();
        let picture = std::env::temp_dir().join(format!("towline-{}.svg", std::process::id()));
        let drawn = picture.display().to_string();
        let mut args = vec![
            "stats",
            "gen:count=1000,size=100,flows=4",
            "--json",
            "--plot",
            &drawn,
        ];
        let filters = ["--filter", "udp src port 20001", "--filter", "arp"];
        let has_filters = run(lab.host(0), &["capture", "gen:count=1", "-f", "arp"]);
        let has_filters = has_filters.status.success();
        if has_filters {
            args.extend(filters);
        }
        let output = run(lab.host(0), &args);
        let stats = json(&output);
        let svg = std::fs::read_to_string(&picture).unwrap();
        std::fs::remove_file(&picture).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        for unit in [">bit/s, mean of ", ">packets/s, mean of ", ">gen:<"] {
            assert!(svg.contains(unit), "{unit}: {svg}");
        }
        let dots = picture.with_extension("png");
        let drawn = dots.display().to_string();
        let plotted = run(lab.host(0), &["stats", "gen:count=9", "--plot", &drawn]);
        assert_eq!(plotted.status.code(), Some(0));
        assert!(std::fs::read(&dots).unwrap().starts_with(b"\x89PNG"));
        std::fs::remove_file(&dots).unwrap();
        assert_eq!(
            (&stats["packets"], &stats["bytes"]),
            (&1000.into(), &100_000.into())
        );
        assert_eq!(stats["protocols"][0]["name"], "UDP");
        assert_eq!(stats["sizes"][1]["packets"], 1000, "61 to 123 bytes");
        assert_eq!(stats["talkers"][0]["to"], "198.18.0.2");
        if has_filters {
            assert_eq!(stats["filters"][0]["packets"], 250);
            assert_eq!(stats["filters"][1]["packets"], 0);
        } else {
            println!("skipped: filters need libpcap");
        }
        let text = run(lab.host(0), &["stats", "gen:count=1000,size=100"]);
        let text = String::from_utf8_lossy(&text.stdout).into_owned();
        assert!(text.contains("100.00 %  198.18.0.1 > 198.18.0.2"), "{text}");
        let losses = text.lines().skip(1).take(3);
        let losses: Vec<&str> = losses.map(str::trim_start).collect();
        let told = [
            "0  lost because the ring was full",
            "0  lost by the interface or its driver",
            "0  records damaged",
        ];
        assert_eq!(losses, told, "{text}");
    });
}
