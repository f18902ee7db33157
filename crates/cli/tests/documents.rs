//! What each command prints with `--json` is as its schema in the reference says, and has the shape
//! that its snapshot shows; and so are the results that are committed.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    env, fs,
    io::{Read as _, Write as _},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

mod kit;
use kit::Killed;

mod schema_kit;
use schema_kit::{check_schema, json};

mod shape_kit;
use shape_kit::{check, check_as};

fn towline(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_towline"));
    command.args(line.split(' '));
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command
}

fn start(line: &str) -> Killed {
    Killed(towline(line).spawn().unwrap())
}

fn printed(mut running: Killed) -> String {
    let mut text = String::new();
    let output = running.0.stdout.as_mut().unwrap();
    output.read_to_string(&mut text).unwrap();
    text
}

fn stop(running: &Killed) {
    let pid = running.0.id().to_string();
    assert!(Command::new("kill").arg(pid).status().unwrap().success());
}

#[test]
fn messages() {
    let group = "-g 239.192.77.30:17530 -i lo --json";
    let sub = start(&format!("sub {group} --once"));
    let mut publish = towline(&format!("pub {group} --receivers 1 --name ticks"));
    let mut publish = Killed(publish.stdin(Stdio::piped()).spawn().unwrap());
    publish
        .0
        .stdin
        .take()
        .unwrap()
        .write_all(b"one\ntwo\n")
        .unwrap();
    check(&printed(publish));
    let lines = printed(sub);
    let lines: Vec<&str> = lines.lines().collect();
    let [first, second, report] = lines[..] else {
        panic!("{lines:#?}");
    };
    // Whether the sender has said its name by then is a matter of microseconds.
    let mut first = json(first);
    let name = first.as_object_mut().unwrap().remove("sender_name");
    assert!(name.is_none_or(|name| name == "ticks"), "{first}");
    check(&first.to_string());
    assert_eq!(json(second)["text"], "two");
    check(report);
    let report = json(report);
    assert_eq!(
        (&report["messages"], &report["failure"]),
        (&2.into(), &Value::Null)
    );
}

/// A message is on the output before the session ends, and why an end is none is in the report.
#[test]
fn a_subscription_that_fails_says_why_in_its_last_line() {
    let group = "-g 239.192.77.33:17533 -i lo";
    let sub = printed(start(&format!("sub {group} --json --timeout 1s")));
    assert_eq!(json(&sub)["failure"], "no message came within --timeout");
    let publish = printed(start(&format!(
        "pub {group} --json --receivers 1 --timeout 1s"
    )));
    let failure = &json(&publish)["failure"];
    assert_eq!(failure, "nothing was sent: 0 of 1 receiver joined in time");
}

#[test]
fn loads_and_what_top_and_stat_see_of_them() {
    let group = "-g 239.192.77.31:17531 -i lo --json";
    let recv = start(&format!("load recv {group} --stamp"));
    let send = start(&format!(
        "load send {group} --receivers 1 --per-second 1000 --stamp --for 4s"
    ));
    let pid = send.0.id();
    let until = Instant::now() + Duration::from_secs(10);
    // The first snapshot comes within a tick of the session's beginning.
    let stat = loop {
        let stat = printed(start(&format!("stat {pid} --json")));
        if stat.contains("\"behind\"") {
            break stat;
        }
        assert!(Instant::now() < until, "{stat}");
        thread::sleep(Duration::from_millis(20));
    };
    check(&stat);
    check(&printed(start(&format!("top {pid} --json"))));
    check(&printed(send));
    check(&printed(recv));
}

#[test]
fn files() {
    let place = env::temp_dir().join(format!("towline-documents-{}", std::process::id()));
    fs::create_dir_all(&place).unwrap();
    let file = place.join("file");
    fs::write(&file, [7; 100_000]).unwrap();
    let (file, place) = (file.display(), place.display());
    let group = "-g 239.192.77.32:17532 -i lo --json";
    check(&printed(start(&format!(
        "send {file} {group} --hash --dry-run"
    ))));
    let recv = start(&format!("recv {place}/to {group}"));
    check(&printed(start(&format!(
        "send {file} {group} --receivers 1 --hash"
    ))));
    check(&printed(recv));
    let recv = start(&format!("recv {place}/served {group} --serve"));
    printed(start(&format!("send {file} {group} --receivers 1")));
    stop(&recv);
    let lines = printed(recv);
    let (first, last) = lines.trim_end().split_once('\n').unwrap();
    assert_eq!(json(first)["schema"], "towline.recv");
    check(last);
    fs::remove_dir_all(place.to_string()).unwrap();
}

#[test]
fn a_file_to_a_program_that_confirms_nothing() {
    let file = env::temp_dir().join(format!("towline-plain-{}", std::process::id()));
    fs::write(&file, [7; 100_000]).unwrap();
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let to = listener.local_addr().unwrap();
    let sent = start(&format!("send {} --to {to} --plain --json", file.display()));
    let (mut stream, _) = listener.accept().unwrap();
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    drop(stream);
    assert_eq!(got.len(), 100_000);
    check(&printed(sent));
    fs::remove_file(file).unwrap();
}

#[test]
fn captures() {
    let place = env::temp_dir().join(format!("towline-packets-{}.pcapng", std::process::id()));
    let path = place.display();
    check(&printed(start(&format!(
        "capture gen:size=64,count=200 -o pcapng:{path} --json"
    ))));
    check(&printed(start(&format!("stats pcapng:{path} --json"))));
    let replay = printed(start(&format!("replay pcapng:{path} -o int:lo --json")));
    if replay.is_empty() {
        println!("skipped: this user may not send frames");
    } else {
        check(&replay);
    }
    fs::remove_file(place).unwrap();
}

#[test]
fn round_trips() {
    let place = env::temp_dir().join(format!("towline-trips-{}.rtt", std::process::id()));
    let path = place.display();
    let reflect = start("rtt reflect --listen 127.0.0.1:17534 --json");
    let until = Instant::now() + Duration::from_secs(10);
    let rtt = loop {
        let rtt = printed(start(&format!(
            "rtt run 127.0.0.1:17534 --time 1s --rate 500 --wait block -o {path} --json"
        )));
        if !rtt.is_empty() {
            break rtt;
        }
        assert!(Instant::now() < until, "no reflector came up");
    };
    check(&rtt);
    stop(&reflect);
    check(&printed(reflect));
    fs::remove_file(place).unwrap();
}

#[test]
fn paths() {
    check(&printed(start("ifaces lo --json")));
    check(&printed(start("clock --json")));
    let serve =
        start("udp serve --listen 127.0.0.1:17535 --allow-group 239.192.77.35:17548 --json");
    let until = Instant::now() + Duration::from_secs(10);
    let udp = loop {
        let udp = printed(start(
            "udp run 127.0.0.1:17535 --size 100 --rate 100 --time 100ms --json",
        ));
        if !udp.is_empty() {
            break udp;
        }
        assert!(Instant::now() < until, "no server came up");
    };
    check(&udp);
    let grouped = printed(start(
        "udp run 127.0.0.1:17535 --group 239.192.77.35@lo:17548 --direction there --size 100 \
         --rate 100 --time 100ms --json",
    ));
    let grouped = json(&grouped);
    assert_eq!(grouped["interface"], "lo", "{grouped}");
    assert_eq!(
        grouped["rows"][0]["flows"].as_array().unwrap().len(),
        1,
        "{grouped}"
    );
    let nowhere = "udp run 127.0.0.1:17535 --group 239.192.77.35@nope --direction there";
    assert_eq!(printed(start(nowhere)), "");
    check(&printed(start("mtu 127.0.0.1 --json")));
    stop(&serve);
    check(&printed(serve));
    let reach = printed(start(
        "reach -g 239.192.77.36:17536 --iface lo --time 1s --json",
    ));
    let facts = &json(&reach)["facts"];
    assert!(facts["lasted_s"].as_f64() > Some(0.9), "{reach}");
    check(&reach);
}

/// Each plan with every default. Of the protocol's parameters, which have a reference of their own,
/// the first stays.
#[test]
fn plans() {
    let lines = [
        "pub hello -g 239.192.77.43:17543 --receivers 2",
        "sub -g 239.192.77.43 --timeout 1500ms",
        "load send -g 239.192.77.43 --per-second 1000 --for 4s",
        "load recv -g 239.192.77.43 --fail-on loss",
        "frames send -g 239.192.77.43 --fps 59.94 --burst-limit 32 --micro-delay 100us",
        "frames recv -g 239.192.77.43 --max-frame 8MB",
        "recv incoming -g 239.192.77.43@lo --from 10.0.0.0/8",
        "capture gen:size=64,count=200 -o pcapng:packets.pcapng",
        "replay pcapng:packets.pcapng -o int:lo",
        "stats pcapng:packets.pcapng",
        "stats --sweep ring-size",
        "rtt run 127.0.0.1 --rate 100",
        "rtt reflect --listen 127.0.0.1:17534",
        "rtt plot trips.rtt --to trips.svg",
        "udp run 127.0.0.1 --size 100 --rate 100",
        "udp serve --listen 127.0.0.1:17535 --allow-group 239.192.77.35,[ff15::7]:9",
        "udp plot sweep.json --to sweep.svg",
        "send image.iso --to 127.0.0.1:9000 --plain",
        "tcp watch --port 7500 --for 2s",
        "tcp writes 127.0.0.1 --size 64 --send-buffer 16k",
        "tcp serve --listen 127.0.0.1:17535",
        "mtu 127.0.0.1",
        "reach -g 239.192.77.43 --iface lo",
        "relay 239.192.77.43@lo 127.0.0.2:7501 --pgm-port 7500",
        "clock 127.0.0.1",
        "demo",
    ];
    for line in lines {
        let (name, mut plan) = check_schema(&printed(start(&format!("{line} --dry-run"))));
        let session = plan.get_mut("session");
        let parameters = session.and_then(|session| session.get_mut("config"));
        if let Some(parameters) = parameters.and_then(Value::as_object_mut) {
            let (name, value) = parameters.iter().next().unwrap();
            *parameters = [(name.clone(), value.clone())].into_iter().collect();
        }
        insta::assert_snapshot!(name, serde_json::to_string_pretty(&plan).unwrap());
    }
}

/// Holds the lines of `--every` against their schema, and one of them against its snapshot; gives
/// what they count together, and the report after them.
fn intervals(printed: &str, what: &str) -> (u64, Value) {
    let mut lines: Vec<&str> = printed.lines().collect();
    let report = json(lines.pop().unwrap());
    assert!(!lines.is_empty(), "{report}");
    let lines = lines.into_iter().map(|line| check_schema(line).1);
    let lines: Vec<Value> = lines.filter(|line| line["what"] == what).collect();
    // In the fullest interval, every figure is there.
    let fullest = lines.iter().max_by_key(|line| line["count"].as_u64());
    check_as(&format!("interval-{what}"), fullest.unwrap());
    let mut until: Option<f64> = None;
    for line in &lines {
        let [from, to] = ["from_s", "to_s"].map(|name| line[name].as_f64().unwrap());
        // A trial or a run begins anew.
        assert!(from == 0.0 || until == Some(from), "{lines:#?}");
        assert!(to > from, "{line}");
        until = Some(to);
    }
    let sum = lines.iter().map(|line| line["count"].as_u64().unwrap());
    (sum.sum(), report)
}

#[test]
fn frames_and_their_intervals() {
    let group = "-g 239.192.77.52:17552 -i lo --json --every 500ms";
    let recv = start(&format!("frames recv {group} --fail-on none"));
    let send = start(&format!(
        "frames send {group} --size 64x64x1 --fps 50 --count 100"
    ));
    let (sent, send) = intervals(&printed(send), "frames_sent");
    let (received, recv) = intervals(&printed(recv), "frames_received");
    assert_eq!(send["schema"], "towline.frames-send");
    assert_eq!(recv["schema"], "towline.frames-recv");
    assert_eq!(
        (send["frames"].as_u64(), recv["frames"].as_u64()),
        (Some(sent), Some(received))
    );
    check(&send.to_string());
    check(&recv.to_string());
}

#[test]
fn frames_of_two_feeds() {
    let groups = "-g 239.192.77.53:17553 -i lo --also 239.192.77.54@lo --json";
    let recv = start(&format!("frames recv {groups} --fail-on none"));
    let send = start(&format!(
        "frames send {groups} --size 64x64x1 --fps 50 --count 25"
    ));
    let (send, recv) = (printed(send), printed(recv));
    let [send, recv] = [send, recv].map(|text| check_schema(&text).1);
    check_as("frames-send-feeds", &send["feeds"]);
    check_as("frames-recv-feeds", &recv["feeds"]);
    assert_eq!(recv["frames_sent"], send["frames"]);
    assert_eq!(recv["senders"]["found"], 1);
}

#[test]
fn intervals_of_a_load_make_up_its_report() {
    let group = "-g 239.192.77.37:17537 -i lo --json --every 100ms";
    let recv = start(&format!("load recv {group}"));
    let send = start(&format!(
        "load send {group} --receivers 1 --per-second 2000 --count 1000"
    ));
    let (sent, send) = intervals(&printed(send), "messages_sent");
    let (received, recv) = intervals(&printed(recv), "messages_received");
    assert_eq!((sent, received), (1000, 1000));
    assert_eq!(send["schema"], "towline.load-send");
    assert_eq!(recv["schema"], "towline.load-recv");
}

#[test]
fn intervals_are_lines_of_text_without_json() {
    let mut send = towline("load send -g 239.192.77.38:17538 -i lo --count 10 --every 1s");
    let said = send.stderr(Stdio::piped()).output().unwrap().stderr;
    let said = String::from_utf8(said).unwrap();
    let line = said.lines().find(|line| line.contains(" messages sent,"));
    let line = line.unwrap_or_else(|| panic!("{said}"));
    assert!(line.starts_with("0.0-"), "{line}");
    assert!(
        line.contains("239.192.77.38:17538: 10 messages sent, "),
        "{line}"
    );
}

#[test]
fn intervals_of_a_capture_make_up_its_account() {
    let capture = printed(start("capture gen:size=64 --for 2s --every 1s --json"));
    let (captured, report) = intervals(&capture, "packets_captured");
    assert_eq!(report["delivered"], captured);
    assert!(capture.lines().count() > 2, "{capture}");
}

#[test]
fn intervals_of_trials_and_round_trips() {
    let serve = start("udp serve --listen 127.0.0.1:17539 --json");
    let run = "udp run 127.0.0.1:17539 --size 100 --rate 1000 --direction both --time 300ms \
               --every 100ms --json";
    let run: Vec<&str> = run.split_whitespace().collect();
    let udp = printed(start(&run.join(" ")));
    let (sent, report) = intervals(&udp, "datagrams_sent");
    let (received, _) = intervals(&udp, "datagrams_received");
    let flows = &report["rows"][0]["flows"];
    assert_eq!(flows[0]["dispatch"]["sent"], sent, "{udp}");
    assert_eq!(flows[1]["receipt"]["received"], received, "{udp}");
    stop(&serve);
    // What stands before the result is no hindrance to drawing it.
    let kept = env::temp_dir().join(format!("towline-every-{}.json", std::process::id()));
    fs::write(&kept, &udp).unwrap();
    let plotted = printed(start(&format!("udp plot {} --json", kept.display())));
    assert_eq!(json(&plotted), report);
    fs::remove_file(kept).unwrap();

    let place = env::temp_dir().join(format!("towline-every-{}.rtt", std::process::id()));
    let path = place.display();
    let reflect = start("rtt reflect --listen 127.0.0.1:17540 --json");
    let until = Instant::now() + Duration::from_secs(10);
    let rtt = loop {
        let rtt = printed(start(&format!(
            "rtt run 127.0.0.1:17540 --time 1s --rate 100,200 --wait block -o {path} --json \
             --every 200ms"
        )));
        if !rtt.is_empty() {
            break rtt;
        }
        assert!(Instant::now() < until, "no reflector came up");
    };
    let (trips, report) = intervals(&rtt, "round_trips");
    let runs = report["runs"].as_array().unwrap();
    let answered: u64 = runs
        .iter()
        .map(|run| run["counts"]["answered"].as_u64().unwrap())
        .sum();
    assert_eq!(trips, answered, "{rtt}");
    stop(&reflect);
    fs::remove_file(place).unwrap();
}

#[test]
fn connections_and_ways_of_writing() {
    let serve = start("tcp serve --listen 127.0.0.1:17541 --json");
    let writes = "tcp writes 127.0.0.1:17541 --size 64 --mode no-delay --calls 3 --json";
    let until = Instant::now() + Duration::from_secs(20);
    let writes = loop {
        let text = printed(start(writes));
        if !text.is_empty() {
            break text;
        }
        assert!(Instant::now() < until, "the responder does not answer");
        thread::sleep(Duration::from_millis(20));
    };
    check(&writes);
    // Meanwhile calls go on, so that there is something to watch.
    let busy = start("tcp writes 127.0.0.1:17541 --size 64 --calls 200 --mode nagle --quiet");
    let watch = printed(start(
        "tcp watch --port 17541 --every 200ms --for 600ms --json",
    ));
    drop(busy);
    let lines: Vec<&str> = watch.lines().collect();
    assert!(lines.len() > 1, "{watch}");
    check_schema(lines[0]);
    check_schema(lines[lines.len() - 1]);
    stop(&serve);
    check(&printed(serve));
}

/// What is committed of an earlier release is a document of its schema's version, and is read.
#[test]
fn committed_results_are_as_their_schemas_say() {
    let sizes = fs::read_to_string(format!("{BENCH}/raw/udp-sizes.json")).unwrap();
    assert_eq!(check_schema(&sizes).0, "udp");
    let place = env::temp_dir().join(format!("towline-committed-{}.svg", std::process::id()));
    let plotted = printed(start(&format!(
        "rtt plot {BENCH}/raw/rtt-rates.rtt --to {} --json",
        place.display()
    )));
    assert_eq!(check_schema(&plotted).0, "rtt");
    fs::remove_file(place).unwrap();
    let results = fs::read_dir(BENCH)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let results = results.filter(|path| path.extension().is_some_and(|it| it == "json"));
    let checked = results.inspect(|path| {
        let name = check_schema(&fs::read_to_string(path).unwrap()).0;
        assert_eq!(name, "bench", "{}", path.display());
    });
    assert!(checked.count() > 30);
}

const BENCH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/bench");
