//! The command as its users meet it: help, errors, exit codes, and messages between two processes.

use std::{
    env, fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    process::{Command, Output, Stdio},
};

fn towline(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_towline"));
    command
        .args(args)
        .env("NO_COLOR", "1")
        .env_remove("XDG_RUNTIME_DIR");
    command
}

fn run(args: &[&str]) -> Output {
    towline(args)
        .stdin(Stdio::null())
        .output()
        .expect("the command starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Output and exit code as one text, for snapshots.
fn shown(args: &[&str]) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = run(args);
    let code = status.code().unwrap_or(-1);
    format!(
        "$ towline {}\n{}{}exit {code}\n",
        args.join(" "),
        text(&stdout),
        text(&stderr)
    )
}

/// The commands that a help text lists, but for `help` itself.
fn listed(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = lines
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next());
    names
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn help_of_every_command() {
    let readme = include_str!("../../../README.md");
    let mut left = vec![Vec::new()];
    let mut seen = 0;
    while let Some(command) = left.pop() {
        seen += 1;
        let name = [&["help".to_owned()], &command[..]].concat().join("-");
        let args: Vec<&str> = command.iter().map(String::as_str).chain(["-h"]).collect();
        let help = shown(&args);
        for name in listed(&help) {
            let below = [&command[..], &[name]].concat();
            assert!(
                below.len() > 1 || readme.contains(&format!("`{}`", below[0])),
                "README.md does not name {below:?}"
            );
            left.push(below);
        }
        insta::assert_snapshot!(name, help);
    }
    assert!(seen >= 19, "{seen} commands");
}

#[test]
fn errors_say_what_to_do() {
    let wrong: [&[&str]; 17] = [
        &["pub"],
        &["sub", "--group", "239.1.1.1:0"],
        &["sub", "--group", "239.1.1.1", "--hops", "0"],
        &["pub", "-g", "239.1.1.1@eth0", "--iface", "eth1"],
        &["pub", "-g", "239.1.1.1", "--spm-active", "20s"],
        &["pub", "-g", "239.1.1.1", "--mtu", "12"],
        &["pub", "-g", "239.1.1.1", "--strict-pgm", "--receivers", "2"],
        &["load", "send", "-g", "239.1.1.1", "--size", "9-1"],
        &[
            "load",
            "send",
            "-g",
            "239.1.1.1",
            "-i",
            "lo",
            "--size",
            "9000",
            "--fragments-max",
            "2",
        ],
        &["pub", "-g", "239.1.1.1", "--rate", "10"],
        &["demo", "--rate", "10"],
        &["relay", "239.1.1.1@lo:7500", "10.0.0.2:7501"],
        &["relay", "239.1.1.1@lo:17551", "239.1.1.1@lo:17551"],
        &["relay", "239.1.1.1@lo:17551", "127.0.0.9:17551"],
        &["stat", "1"],
        &["stat", "4200000"],
        &["sub", "-g", "239.1.1.1", "--config", "no/such/file.toml"],
    ];
    let texts: Vec<String> = wrong.iter().map(|args| shown(args)).collect();
    assert!(
        texts.iter().all(|text| text.ends_with("exit 2\n")),
        "{texts:?}"
    );
    insta::assert_snapshot!("errors", texts.join("\n"));
}

/// Results that are kept with the documentation are told the same everywhere.
#[test]
fn reports_of_kept_results() {
    let trips = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/bench/raw/rtt-rates.rtt"
    );
    let sweep = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/bench/raw/udp-sizes.json"
    );
    let place = env::temp_dir().join(format!("towline-kept-{}", std::process::id()));
    fs::create_dir_all(&place).unwrap();
    fs::write(place.join("four.pcap"), four_packets()).unwrap();
    let texts = [
        (["rtt", "plot", trips], "report-rtt"),
        (["udp", "plot", sweep], "report-udp"),
        (["stats", "pcap:four.pcap", "--filter=udp"], "report-stats"),
    ];
    for (args, name) in texts {
        let output = towline(&args).current_dir(&place).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        insta::assert_snapshot!(name, text(&output.stdout));
    }
    let stats = ["stats", "pcap:four.pcap", "--segment"];
    let output = towline(&stats).current_dir(&place).output().unwrap();
    let said = text(&output.stderr);
    assert!(said.starts_with("--segment changes nothing here"), "{said}");
    fs::remove_dir_all(place).unwrap();
}

/// A file of four UDP datagrams, a millisecond apart, of 10.0.0.1 and 10.0.0.2.
fn four_packets() -> Vec<u8> {
    let mut file = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0];
    file.extend([0_u32, 0, 65_535, 1].map(u32::to_le_bytes).concat());
    for nth in 0..4_u8 {
        let payload = [0x55; 58];
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
        frame.extend([0x45, 0, 0, 86, 0, nth, 0x40, 0, 64, 17, 0, 0]);
        frame.extend([10, 0, 0, 1 + nth % 2, 10, 0, 0, 2 - nth % 2]);
        frame.extend([0x1d, 0x4c, 0x1d, 0x4c, 0, 66, 0, 0]);
        frame.extend(payload);
        let len = u32::try_from(frame.len()).expect("a short frame");
        let stamp = [1_700_000_000, u32::from(nth) * 1_000, len, len];
        file.extend(stamp.map(u32::to_le_bytes).concat());
        file.extend(frame);
    }
    file
}

#[test]
fn a_dry_run_shows_the_plan_with_every_default() {
    let args = [
        "load",
        "recv",
        "-g",
        "10.0.0.1@232.1.1.1:80",
        "--mtu",
        "9000",
        "--dry-run",
    ];
    let output = run(&args);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let plan: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(plan["schema"], "towline.plan.load-recv");
    let session = &plan["session"];
    assert_eq!(
        (&session["group"], &session["hops"]),
        (&"10.0.0.1@232.1.1.1:80".into(), &16.into())
    );
    assert_eq!(session["config"]["mtu"], "9000");
    assert_eq!(session["config"]["peer_expiry"], "30s");
}

#[test]
fn interfaces_as_table_and_as_json_name_the_same() {
    let table = text(&run(&["ifaces"]).stdout);
    let json = run(&["ifaces", "--json"]);
    assert_eq!(json.status.code(), Some(0));
    let document: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(
        (&document["schema"], &document["version"]),
        (&"towline.ifaces".into(), &1.into())
    );
    let list = document["interfaces"].as_array().unwrap();
    assert!(!list.is_empty());
    for interface in list {
        assert!(
            table.contains(interface["name"].as_str().unwrap()),
            "{table}"
        );
    }
    assert_eq!(run(&["ifaces", "no-such-one"]).status.code(), Some(2));
}

#[test]
fn a_publisher_whose_only_receiver_was_killed_does_not_claim_success() {
    let group = ["--group", "239.192.77.1:17504", "--iface", "lo"];
    let mut sub = towline(&["sub"])
        .args(group)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut publisher = towline(&["pub", "--receivers", "1", "--linger", "0s", "--json"])
        .args(group)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = publisher.stdin.take().unwrap();
    input.write_all(b"first\n").unwrap();
    let mut line = String::new();
    let mut received = BufReader::new(sub.stdout.take().unwrap());
    received.read_line(&mut line).unwrap();
    assert_eq!(line, "first\n");
    // It has everything so far, and nobody is left for what follows.
    sub.kill().unwrap();
    sub.wait().unwrap();
    input.write_all(b"second\n").unwrap();
    drop(input);
    let output = publisher.wait_with_output().unwrap();
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["given_up"], 1, "{document:#}");
    assert_eq!(output.status.code(), Some(1), "{document:#}");
}

#[test]
fn a_load_is_taken_from_the_senders_that_are_named_and_from_no_others() {
    let group = ["--group", "239.192.77.47:17547", "--iface", "lo", "--json"];
    let words = ["load", "recv", "--count", "50", "--timeout", "3s", "--from"];
    let [near, far] = ["127.0.0.0/8", "10.9.9.9"].map(|from| {
        let words = [&words[..], &[from, "--name", from]].concat();
        piped(&words, &group)
    });
    let words = ["load", "send", "--count", "50", "--receivers", "1"];
    let sender = piped(&words, &group);
    assert_eq!(sender.wait_with_output().unwrap().status.code(), Some(0));
    for (receiver, code, received) in [(near, 0, 50), (far, 1, 0)] {
        let output = receiver.wait_with_output().unwrap();
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["messages"], received, "{document:#}");
        assert_eq!(output.status.code(), Some(code), "{document:#}");
    }
}

#[test]
fn a_subscriber_is_told_what_its_publisher_is_called() {
    let group = ["--group", "239.192.77.48:17548", "--iface", "lo"];
    let subscriber = piped(&["sub", "--once"], &group);
    let words = ["pub", "hello", "--receivers", "1", "--name", "ticks"];
    let publisher = piped(&words, &group);
    assert_eq!(publisher.wait_with_output().unwrap().status.code(), Some(0));
    let output = subscriber.wait_with_output().unwrap();
    let remarks = String::from_utf8(output.stderr).unwrap();
    assert!(remarks.contains(" is ticks\n"), "{remarks}");
}

#[test]
fn a_load_whose_receiver_was_killed_says_so() {
    let group = ["--group", "239.192.77.10:17510", "--iface", "lo"];
    let mut receiver = piped(&["load", "recv"], &group);
    let words = ["load", "send", "--rate", "1MB/s", "--for", "6s", "--json"];
    let sender = piped(&[&words[..], &["--receivers", "1"]].concat(), &group);
    await_counter(&sender, "source.odata_packets", 10);
    receiver.kill().unwrap();
    receiver.wait().unwrap();
    let output = sender.wait_with_output().unwrap();
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&document["receivers"], &document["given_up"]),
        (&1.into(), &1.into()),
        "{document:#}"
    );
    assert_eq!(output.status.code(), Some(1), "{document:#}");
}

/// The kernel sends nothing from an address of this host alone to one that is elsewhere.
#[test]
fn what_the_kernel_refuses_whole_was_not_sent() {
    let group = [
        "-g",
        "8.8.8.8:17511",
        "--iface",
        "lo",
        "--timeout",
        "2s",
        "--json",
    ];
    for words in [&["pub", "hello"][..], &["load", "send", "--count", "3"]] {
        let Output {
            status,
            stdout,
            stderr,
        } = run(&[words, &group].concat());
        let document: serde_json::Value = serde_json::from_slice(&stdout).unwrap();
        assert_eq!(status.code(), Some(1), "{document:#}{}", text(&stderr));
        assert_eq!(document["is_confirmed"], false, "{document:#}");
        let failure = document["failure"].as_str().unwrap();
        let parts = [
            "cannot send to 8.8.8.8:17511",
            "(os error ",
            "`ip route get 8.8.8.8`",
        ];
        assert!(parts.iter().all(|part| failure.contains(part)), "{failure}");
    }
}

#[test]
fn nobody_confirms_what_nobody_receives() {
    let group = ["-g", "239.192.77.43:17543", "--iface", "lo", "--json"];
    for words in [&["pub", "hello"][..], &["load", "send", "--count", "3"]] {
        let Output { status, stdout, .. } = run(&[words, &group].concat());
        let document: serde_json::Value = serde_json::from_slice(&stdout).unwrap();
        assert_eq!(status.code(), Some(0), "{document:#}");
        assert_eq!(
            (
                &document["is_confirmed"],
                &document["receivers"],
                &document["failure"]
            ),
            (&false.into(), &0.into(), &serde_json::Value::Null),
        );
    }
}

#[test]
fn delays_count_from_when_each_message_was_due() {
    let group = ["--group", "239.192.77.12:17512", "--iface", "lo"];
    let receiver = piped(&["load", "recv", "--stamp", "--json"], &group);
    let words = "load send --per-second 1000 --count 500 --size 100 --stamp --receivers 1";
    let words: Vec<_> = words.split(' ').collect();
    let sent = piped(&words, &group).wait_with_output().unwrap();
    assert!(sent.status.success());
    let output = receiver.wait_with_output().unwrap();
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let delay = &document["delay"];
    assert_eq!(delay["count"], 500, "{document:#}");
    assert_eq!(delay["negative"], 0, "{document:#}");
    assert!(delay["p50_ns"].as_u64() > Some(0), "{document:#}");
    // Half a second of messages, each at its time.
    assert!(document["seconds"].as_f64() > Some(0.4), "{document:#}");
}

#[test]
fn a_message_on_the_command_line_is_sent_alone_and_a_file_sets_flags_of_its_command() {
    let group = ["--group", "239.192.77.42:17542", "--iface", "lo"];
    let path = env::temp_dir().join(format!("towline-pub-{}.toml", std::process::id()));
    fs::write(&path, "receivers = 1\ntimeout = '20s'").unwrap();
    let sub = piped(&["sub", "--once", "--framing", "nul"], &group);
    let words = ["pub", "one message\nof two lines", "--config"];
    let publisher = piped(&[&words[..], &[path.to_str().unwrap()]].concat(), &group);
    let output = publisher.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("sent 1 message, 24 B"), "{said}");
    assert!(said.contains("confirmed by the receiver"), "{said}");
    let output = sub.wait_with_output().unwrap();
    assert_eq!(text(&output.stdout), "one message\nof two lines\0");
    fs::remove_file(path).unwrap();
}

#[test]
fn the_profile_of_zeromq_frames_lines_unless_a_framing_is_given() {
    let group = [
        "--group",
        "239.192.77.43:17543",
        "--iface",
        "lo",
        "--profile",
        "zmq",
    ];
    let lines = piped(&["sub", "--once", "--fail-on", "loss"], &group);
    let packets = piped(&["sub", "--once", "--framing", "length"], &group);
    let publisher = piped(&["pub", "the door is open", "--receivers", "2"], &group);
    let said = text(&publisher.wait_with_output().unwrap().stderr);
    assert!(said.contains("sent 1 message, 16 B"), "{said}");
    let [lines, packets] = [lines, packets].map(|sub| sub.wait_with_output().unwrap());
    assert_eq!(text(&lines.stdout), "the door is open\n");
    assert!(lines.status.success(), "{}", text(&lines.stderr));
    let packet = b"\0\0\0\x14\0\0\x11\0the door is open";
    assert_eq!(packets.stdout, packet);

    // What is not framed is a loss, and is told once.
    let lines = piped(&["sub", "--once", "--fail-on", "loss"], &group);
    let words = ["pub", "--framing", "lines", "--receivers", "1"];
    let mut publisher = piped(&words, &group);
    let mut input = publisher.stdin.take().unwrap();
    input.write_all(b"plain\nlines\n").unwrap();
    drop(input);
    assert!(publisher.wait().unwrap().success());
    let output = lines.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), &*output.stdout), (Some(1), &b""[..]));
    assert_eq!(said.matches("give --framing lines").count(), 1, "{said}");
    assert!(said.contains("dropped: misframed 2"), "{said}");

    for flag in ["--pack", "--fragments-max=2"] {
        let output = run(&["pub", "-g", "239.192.77.43", "--profile", "zmq", flag]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("--framing zmq"), "{said}");
    }
}

/// A pipe can be read once.
#[test]
fn a_configuration_may_come_by_a_pipe() {
    let words = ["pub", "--config", "/dev/stdin", "--dry-run"];
    let mut command = towline(&words);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let settings = b"group = '239.1.1.1'\nhops = 9\nreceivers = 4\n";
    input.write_all(settings).unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    let plan: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&plan["receivers"], &plan["session"]["hops"]),
        (&4.into(), &9.into())
    );
}

#[test]
fn a_wrong_seed_is_suspected() {
    let group = ["--group", "239.192.77.11:17511", "--iface", "lo"];
    let receiver = piped(&["load", "recv", "--seed", "5"], &group);
    let words = ["load", "send", "--count", "3", "--receivers", "1"];
    let sent = piped(&words, &group).wait_with_output().unwrap();
    assert_eq!(sent.status.code(), Some(0), "{}", text(&sent.stderr));
    let output = receiver.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("none of 3 messages is intact"), "{said}");
    assert!(said.contains("--seed (5 here)"), "{said}");
    assert!(!said.contains("loopback"), "it was named: {said}");
}

#[test]
fn messages_go_from_one_process_to_another_and_back_out_as_they_went_in() {
    let group = ["--group", "239.192.77.1:17500", "--iface", "lo"];
    let sub = towline(&["sub", "--once", "--timeout", "20s", "--fail-on", "loss"])
        .args(group)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut publisher = towline(&["pub", "--receivers", "1", "--timeout", "20s", "--json"])
        .args(group)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines: String = (0..5_000).map(|n| format!("line {n}\n")).collect();
    publisher
        .stdin
        .take()
        .unwrap()
        .write_all(lines.as_bytes())
        .unwrap();
    let published = publisher.wait_with_output().unwrap();
    let subscribed = sub.wait_with_output().unwrap();
    let log = format!("{}{}", text(&published.stderr), text(&subscribed.stderr));
    assert!(text(&subscribed.stdout) == lines, "{log}");
    assert_eq!(
        (published.status.code(), subscribed.status.code()),
        (Some(0), Some(0)),
        "{log}"
    );
    let document: serde_json::Value = serde_json::from_slice(&published.stdout).unwrap();
    assert_eq!(
        (&document["messages"], &document["receivers"]),
        (&5_000.into(), &1.into())
    );
    assert_eq!(document["is_confirmed"], true);
}

#[test]
fn a_load_of_mixed_sizes_arrives_whole_and_its_sender_can_be_watched() {
    let group = ["--group", "239.192.77.2:17502", "--iface", "lo"];
    let recv = towline(&["load", "recv", "--timeout", "20s", "--json"])
        .args(group)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let send = towline(&[
        "load",
        "send",
        "--size",
        "1-20000",
        "--seconds",
        "2",
        "--rate",
        "10MB/s",
    ])
    .args(group)
    .args(["--receivers", "1", "--timeout", "20s"])
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    std::thread::sleep(std::time::Duration::from_secs(1));
    let pid = send.id().to_string();
    let stat = run(&["stat", &pid, "source.odata_packets"]);
    assert_eq!(stat.status.code(), Some(0), "{}", text(&stat.stderr));
    assert!(text(&stat.stdout).trim().parse::<u64>().unwrap() > 0);
    let top = run(&["top", "--once", "--json", &pid]);
    let document: serde_json::Value = serde_json::from_slice(&top.stdout).unwrap();
    assert_eq!(document["processes"][0]["sessions"][0]["role"], "publisher");

    let sent = send.wait_with_output().unwrap();
    let received = recv.wait_with_output().unwrap();
    assert_eq!(sent.status.code(), Some(0), "{}", text(&sent.stderr));
    let document: serde_json::Value = serde_json::from_slice(&received.stdout).unwrap();
    assert_eq!(received.status.code(), Some(0), "{document}");
    for clean in [
        "missing",
        "corrupt",
        "duplicates",
        "out_of_order",
        "lost_packets",
    ] {
        assert_eq!(document[clean], 0, "{clean}");
    }
    assert!(document["messages"].as_u64().unwrap() > 100);
}

#[test]
fn a_reader_that_closes_the_pipe_is_no_error() {
    let mut child = towline(&["ifaces", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

fn signal(child: &std::process::Child, name: &str) {
    let pid = child.id().to_string();
    let status = Command::new("kill").args([name, &pid]).status();
    assert!(status.expect("kill is there").success());
}

/// Waits until the process serves its counters: by then it has taken the signals over.
fn await_session(child: &std::process::Child) {
    let pid = child.id().to_string();
    for _ in 0..500 {
        if run(&["stat", &pid]).status.success() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("process {pid} opens no session");
}

/// Waits until a counter of the process is at least `least`.
fn await_counter(child: &std::process::Child, counter: &str, least: u64) {
    let pid = child.id().to_string();
    for _ in 0..1_500 {
        let value = text(&run(&["stat", &pid, counter]).stdout);
        if value.trim().parse().is_ok_and(|value: u64| value >= least) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("{counter} of process {pid} does not come to {least}");
}

fn piped(args: &[&str], group: &[&str]) -> std::process::Child {
    towline(args)
        .args(group)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts")
}

#[test]
fn a_signal_ends_a_session_properly_and_the_report_says_so() {
    let group = ["--group", "239.192.77.3:17503", "--iface", "lo"];
    let mut reader = piped(&["sub", "--name", "reader"], &group);
    let other = piped(&["sub", "--once", "--timeout", "30s"], &group);
    let mut publisher = piped(&["pub", "--receivers", "2", "--json"], &group);
    writeln!(publisher.stdin.as_mut().unwrap(), "hello").unwrap();
    let mut line = [0; 6];
    reader
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut line)
        .unwrap();
    assert_eq!(&line, b"hello\n");

    signal(&reader, "-INT");
    let reader = reader.wait_with_output().unwrap();
    let said = text(&reader.stderr);
    assert_eq!(reader.status.code(), Some(130), "{said}");
    assert!(said.contains("interrupted: 1 message,"), "{said}");

    signal(&publisher, "-TERM");
    let published = publisher.wait_with_output().unwrap();
    let said = text(&published.stderr);
    assert_eq!(published.status.code(), Some(130), "{said}");
    assert!(said.contains("receiver reader left"), "{said}");
    let document: serde_json::Value = serde_json::from_slice(&published.stdout).unwrap();
    assert_eq!(
        (&document["is_interrupted"], &document["is_confirmed"]),
        (&true.into(), &true.into()),
        "{document:#}"
    );
    // A report is never cut, however soon after its packet it comes: the stall clock would run on.
    assert_eq!(document["counters"]["audience.reports_ahead"], 0);
    // Its input was not at its end: who waits for that hears that the rest does not come.
    let other = other.wait_with_output().unwrap();
    assert_eq!(other.status.code(), Some(1), "{}", text(&other.stderr));
}

#[test]
fn a_second_receiver_of_one_name_hears_of_it_at_once_and_the_sender_says_it_once() {
    let group = ["--group", "239.192.77.12:17512", "--iface", "lo"];
    let words = ["sub", "--once", "--name", "twin"];
    let first = piped(&words, &group);
    let mut publisher = piped(&["pub", "--receivers", "1"], &group);
    let mut input = publisher.stdin.take().unwrap();
    await_counter(&publisher, "audience.reports", 1);
    let mut second = piped(&words, &group);
    let mut said = BufReader::new(second.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("has a receiver of this name already") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "it is not told");
    }
    assert!(
        line.starts_with("warning: ") && line.contains("--name"),
        "{line}"
    );
    await_counter(&publisher, "audience.refused", 3);
    input.write_all(b"hello\n").unwrap();
    drop(input);
    let published = publisher.wait_with_output().unwrap();
    let log = text(&published.stderr);
    assert_eq!(published.status.code(), Some(0), "{log}");
    let told: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("has this name"))
        .collect();
    assert_eq!(told.len(), 2, "{log}");
    assert!(told[1].ends_with("times in all"), "{log}");
    for twin in [first, second] {
        assert_eq!(text(&twin.wait_with_output().unwrap().stdout), "hello\n");
    }
}

#[test]
fn a_sender_that_is_killed_is_no_success() {
    let group = ["--group", "239.192.77.8:17508", "--iface", "lo"];
    let expiry = ["--peer-expiry", "2s", "--spm-ambient", "200ms"];
    let expiry = [&expiry[..], &["--timeout", "60s"]].concat();
    let commands: [&[&str]; 3] = [
        &["sub", "--once", "--fail-on", "loss", "--json"],
        &["sub", "--once"],
        &["load", "recv", "--json"],
    ];
    let receivers = commands.map(|words| {
        let child = piped(&[words, &expiry[..]].concat(), &group);
        await_session(&child);
        child
    });
    let words = ["load", "send", "--rate", "100kB/s", "--receivers", "3"];
    let mut sender = piped(&words, &group);
    await_counter(&sender, "source.odata_packets", 10);
    sender.kill().unwrap();
    sender.wait().unwrap();
    for (words, receiver) in commands.iter().zip(receivers) {
        let output = receiver.wait_with_output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        assert!(said.contains("has vanished"), "{words:?}: {said}");
    }
}

#[test]
fn a_line_that_is_too_long_is_refused_before_it_is_cut() {
    let words = ["pub", "--fragments-max", "2", "--profile=openpgm", "--pack"];
    let group = ["--group", "239.192.77.9:17509", "--iface", "lo"];
    let mut publisher = piped(&words, &group);
    let line = [&[b'x'; 9_000][..], b"\n"].concat();
    let mut stdin = publisher.stdin.take().unwrap();
    stdin.write_all(&line).unwrap();
    drop(stdin);
    let output = publisher.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("raise --fragments-max"), "{said}");
    assert!(said.contains("leave out --pack\n"), "{said}");
}

#[test]
fn a_signal_ends_what_only_waits_or_never_ends() {
    let group = ["--group", "239.192.77.4:17504", "--iface", "lo"];
    let commands: [&[&str]; 4] = [
        &["pub", "--receivers", "9", "--json"],
        &["load", "send", "--receivers", "9", "--json"],
        &["load", "send", "--rate", "1MB/s", "--json"],
        &["load", "recv", "--json"],
    ];
    for command in commands {
        let child = piped(command, &group);
        await_session(&child);
        signal(&child, "-INT");
        let output = child.wait_with_output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(130), "{command:?}: {said}");
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["is_interrupted"], true, "{command:?}");
    }
}
