//! `towline rtt` as its users meet it: wrong use, and a measurement over the loopback
//! interface with every file that comes of it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]
#![expect(clippy::print_stdout, reason = "a test says why it is skipped")]

use std::{
    fs,
    io::{self, BufRead as _, BufReader},
    net::UdpSocket,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use serde_json::Value;

fn towline(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_towline"));
    command.args(args).env("NO_COLOR", "1").stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> Output {
    towline(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Output and exit code as one text, for snapshots.
fn shown(args: &[&str]) -> String {
    let output = run(args);
    let code = output.status.code().unwrap_or(-1);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    format!("$ towline {}\n{out}{err}exit {code}\n", args.join(" "))
}

/// A reflector on a free port of the loopback interface, ended when dropped.
struct Reflector {
    child: Child,
    target: String,
}

impl Reflector {
    fn start() -> Self {
        Self::start_at("127.0.0.1:0")
    }

    fn start_at(place: &str) -> Self {
        Self::start_over("udp", place)
    }

    fn start_over(transport: &str, place: &str) -> Self {
        let over = format!("--over={transport}");
        let args = ["rtt", "reflect", &over, "--listen", place, "--no-mlock"];
        let mut reflect = towline(&args);
        let piped = reflect.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = lines.find_map(|line| {
            line.unwrap()
                .strip_prefix("reflecting at ")
                .map(str::to_owned)
        });
        let target = line.unwrap().split_once(';').unwrap().0.to_owned();
        Self { child, target }
    }

    /// What it says when it is stopped as a user does.
    fn stop(mut self) -> String {
        let id = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-INT", &id])
                .status()
                .unwrap()
                .success()
        );
        let said = io::read_to_string(self.child.stdout.take().unwrap()).unwrap();
        self.child.wait().unwrap();
        said
    }
}

impl Drop for Reflector {
    fn drop(&mut self) {
        // Both fail only when it is gone already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A directory of this test's own, removed when dropped.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn measure(reflector: &Reflector, out: &str, more: &[&str]) -> Value {
    let mut args = vec![
        "rtt",
        "run",
        &reflector.target,
        "--json",
        "--no-mlock",
        "--out",
        out,
    ];
    args.extend(["--time", "200ms", "--warm-up", "20ms", "--wait", "busy"]);
    args.extend(more);
    let output = run(&args);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn round_trips_over_pgm_need_no_second_host() {
    let place = Place::new("pgm-alone");
    let group = "239.192.74.3@lo:7742";
    let _reflector = Reflector::start_over("pgm", group);
    let result = place.file("run.rtt");
    let mut run = towline(&["rtt", "run", group, "--over=pgm", "--no-mlock", "--json"]);
    run.args([
        "--rate", "100", "--time", "300ms", "--wait", "block", "--out", &result,
    ]);
    let output = run.output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let counts = &report["runs"][0]["counts"];
    assert!(counts["answered"].as_u64() > Some(0), "{counts:#}");
}

#[test]
fn the_mtu_of_the_loopback_interface() {
    let reflector = Reflector::start();
    let output = run(&["mtu", &reflector.target, "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["schema"], "towline.mtu");
    assert_eq!(report["udp_payload_bytes_max"], 65_507, "{report:#}");
    assert_eq!(report["confirmed_by"], "reflector");
}

#[test]
fn delays_of_each_direction_and_never_half_a_round_trip() {
    let reflector = Reflector::start();
    let target = reflector.target.as_str();
    let output = run(&["clock", target, "--count", "20", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let between = &report["between"];
    assert_eq!(report["schema"], "towline.clock");
    assert_eq!(between["is_one_clock"], true, "{report:#}");
    assert_eq!(between["one_way"]["error_ns_max"], 0);
    assert!(between["one_way"]["there"]["p50_ns"].as_i64().unwrap() > 0);
    assert!(report["keepers"].is_array() && report["ptp"].is_array());
    let shown = text(&run(&["clock", target, "--count", "5"]).stdout);
    for line in ["kept by ", "far end ", "round trip ", "there ", "back "] {
        assert!(
            shown.lines().any(|it| it.starts_with(line)),
            "{line}: {shown}"
        );
    }
    assert!(shown.contains(" us +- 0 us ("), "{shown}");
}

/// A signal that comes before the far clock's first answer: the report tells of this host alone.
#[test]
fn an_interrupted_comparison_of_clocks_still_reports_this_host() {
    let reflector = Reflector::start();
    let between = UdpSocket::bind("127.0.0.1:0").unwrap();
    between
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let target = between.local_addr().unwrap().to_string();
    let mut clock = towline(&["clock", &target, "--timeout", "20s", "--json"]);
    let clock = clock.stdout(Stdio::piped()).spawn().unwrap();
    // The greeting passes, and so does its answer; the questions do not.
    let mut room = [0; 2048];
    let (len, client) = between.recv_from(&mut room).unwrap();
    between.send_to(&room[..len], &reflector.target).unwrap();
    let (len, _) = between.recv_from(&mut room).unwrap();
    between.send_to(&room[..len], client).unwrap();
    between.recv_from(&mut room).unwrap();
    let pid = clock.id().to_string();
    let told = Command::new("kill").args(["-INT", &pid]).status();
    assert!(told.unwrap().success());
    let output = clock.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["keepers"].is_array(), "{report:#}");
    assert!(report["between"].is_null(), "{report:#}");
}

#[test]
fn errors_say_what_to_do() {
    let wrong: [&[&str]; 18] = [
        &["rtt", "run"],
        &["rtt", "run", "127.0.0.1", "--rate", "0"],
        &["rtt", "run", "127.0.0.1", "--rate", "20M"],
        &["rtt", "run", "127.0.0.1", "--size", "23"],
        &["rtt", "run", "127.0.0.1", "--size", "65508"],
        &["rtt", "run", "127.0.0.1", "--sched", "rr"],
        &["rtt", "run", "127.0.0.1", "--time", "1ms"],
        &["rtt", "run", "127.0.0.1", "--to", "map.jpeg"],
        &["rtt", "run", "127.0.0.1", "--hops", "--engine", "mmsg"],
        &["rtt", "run", "127.0.0.1", "--hops", "--stamp-every", "0"],
        &["rtt", "run", "127.0.0.1", "--hops", "--over", "tcp"],
        &["rtt", "run", "127.0.0.1", "--stamp-every=9", "--over=tcp"],
        &["rtt", "run", "239.192.0.1", "--over=pgm", "--engine=epoll"],
        &["rtt", "reflect", "--over=tcp", "--engine=epoll"],
        &["udp", "run", "127.0.0.1", "--rate", "0"],
        &["udp", "run", "127.0.0.1", "--rate", "100M"],
        &["rtt", "plot", "no/such.rtt"],
        &["rtt", "plot", "one.rtt", "--diff"],
    ];
    let texts: Vec<String> = wrong.iter().map(|args| shown(args)).collect();
    assert!(
        texts.iter().all(|text| text.ends_with("exit 2\n")),
        "{texts:?}"
    );
    insta::assert_snapshot!("rtt-errors", texts.join("\n"));
}

#[test]
fn a_reflector_that_is_stopped_has_refused_nothing() {
    let (reflector, place) = (Reflector::start(), Place::new("rtt-stop"));
    measure(&reflector, &place.file("once.rtt"), &[]);
    let said = reflector.stop();
    let is_whole = said.contains(" of 1 measurement;") && said.contains(", 0 answers refused");
    assert!(is_whole, "{said}");
}

#[test]
fn a_sweep_gives_figures_and_every_kind_of_file() {
    let (reflector, place) = (Reflector::start(), Place::new("rtt-sweep"));
    let result = place.file("run.rtt");
    let (png, html) = (place.file("map.png"), place.file("map.html"));
    let more = [
        "--rate",
        "500,1k",
        "--to",
        &png,
        "--to",
        &html,
        "--stamp-every",
        "5",
    ];
    let report = measure(&reflector, &result, &more);
    assert_eq!(report["schema"], "towline.rtt");
    for (run, slots) in [(0, 100), (1, 200)] {
        let counts = &report["runs"][run]["counts"];
        let count = |name: &str| counts[name].as_u64().unwrap();
        assert_eq!(count("slots"), slots, "{report:#}");
        assert_eq!(count("sent") + count("missed") + count("refused"), slots);
        assert_eq!(count("answered") + count("lost"), count("sent"));
        assert_eq!(
            report["runs"][run]["rtt_intended"]["count"],
            counts["answered"]
        );
    }
    // The kernel counts stamped messages through the warm-up and all runs.
    for run in 0..2 {
        let stamped = report["runs"][run]["hops"]["messages"].as_u64();
        assert!(stamped.is_some_and(|stamped| stamped > 0), "{report:#}");
    }
    assert_eq!(&fs::read(&png).unwrap()[..8], b"\x89PNG\r\n\x1a\n");
    let page = fs::read_to_string(&html).unwrap();
    assert!(
        page.contains("const maps = [{\"title\":\"500/s"),
        "{}",
        &page[..2_000]
    );
    // Drawn again from the stored file alone, in every format, and as text.
    let files = ["again.svg", "again.hlog", "again.csv", "again.html"].map(|name| place.file(name));
    let mut args = vec!["rtt", "plot", &result, "--map"];
    for file in &files {
        args.extend(["--to", file]);
    }
    let output = run(&args);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(
        shown.contains("RTT intended") && shown.contains("|"),
        "{shown}"
    );
    assert_eq!(fs::read_to_string(&files[3]).unwrap(), page);
    let lines = fs::read_to_string(&files[2]).unwrap().lines().count() as u64;
    let sent = |run: usize| report["runs"][run]["counts"]["sent"].as_u64().unwrap();
    assert_eq!(lines, 1 + sent(0) + sent(1));
    assert!(
        fs::read_to_string(&files[1])
            .unwrap()
            .contains("Tag=1000/s-actual")
    );
}

#[test]
fn the_page_shows_what_lies_under_the_pointer() {
    let browser = ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find(|name| {
            let version = Command::new(name).arg("--version").output();
            version.is_ok_and(|it| it.status.success())
        });
    let Some(browser) = browser else {
        println!("skipped: no chromium to open the page with");
        return;
    };
    let (reflector, place) = (Reflector::start(), Place::new("rtt-page"));
    let page = place.file("map.html");
    measure(
        &reflector,
        &place.file("run.rtt"),
        &["--rate", "1k", "--to", &page],
    );
    // The pointer moves to the fullest cell; the title then tells what the page shows there.
    let moved = fs::read_to_string(&page)
        .unwrap()
        .replace("</body>", POINTER);
    fs::write(&page, moved).unwrap();
    let args = ["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"];
    let mut command = Command::new(browser);
    let output = command
        .args(args)
        .arg(format!("file://{page}"))
        .output()
        .unwrap();
    let dom = text(&output.stdout);
    let title = dom
        .split("<title>")
        .nth(1)
        .unwrap()
        .split("</title>")
        .next()
        .unwrap();
    let found = title.starts_with("block 1000/s at ") && title.ends_with(" messages");
    assert!(found, "{title}\n{}", text(&output.stderr));
    assert!(dom.contains("<image ") && dom.contains("data:image/png;base64,"));
}

/// Moves the pointer over the fullest cell of the first map, which the window is too narrow for.
const POINTER: &str = r#"<script>
const map = maps[0], box = picture.getBoundingClientRect();
const fullest = map.cells.indexOf(Math.max(...map.cells));
const column = Math.floor(fullest / map.rows), row = fullest % map.rows;
const x = map.area[0] + (column + 0.5) * map.area[2] / map.columns;
const y = map.area[1] + map.area[3] * (1 - (row + 0.5) / map.rows);
const drawn = picture.querySelector("svg"), shown = drawn.getBoundingClientRect();
const scale = shown.width / drawn.viewBox.baseVal.width;
picture.dispatchEvent(new MouseEvent("mousemove",
  { clientX: box.left + x * scale, clientY: box.top + y * scale, bubbles: true }));
const fits = scale < 1 && shown.right <= innerWidth;
const told = fits ? "" : "too wide, ";
document.title = told + readout.style.display + " " + readout.textContent.replaceAll("\n", " ");
</script></body>"#;

#[test]
fn classes_take_turns_and_results_are_never_written_over() {
    let (reflector, place) = (Reflector::start(), Place::new("rtt-turns"));
    let result = place.file("run.rtt");
    let more = [
        "--rate",
        "500",
        "--compare-engine",
        "recv,epoll,mmsg,io_uring",
        "--slice",
        "50ms",
    ];
    let report = measure(&reflector, &result, &more);
    // Where the kernel has no io_uring for us, that is said, and it is left out.
    let is_refused = report["remarks"]
        .to_string()
        .contains("io_uring does not work here");
    let engines = if is_refused { 3 } else { 4 };
    let labels: Vec<&str> = (0..engines)
        .map(|run| report["runs"][run]["label"].as_str().unwrap())
        .collect();
    let wanted = ["500/s recv", "500/s epoll", "500/s mmsg", "500/s io_uring"];
    assert_eq!(labels, wanted[..engines]);
    assert!(report["runs"][engines].is_null());
    for run in 0..engines {
        assert_eq!(report["runs"][run]["counts"]["slots"], 100, "{report:#}");
    }
    let again = run(&[
        "rtt",
        "run",
        &reflector.target,
        "--no-mlock",
        "--out",
        &result,
    ]);
    assert_eq!(again.status.code(), Some(2));
    assert!(
        text(&again.stderr).contains("creating the result")
            && text(&again.stderr).contains("with --out"),
        "{}",
        text(&again.stderr)
    );
    // Two files side by side: the second is told against the first.
    let other = place.file("other.rtt");
    measure(
        &reflector,
        &other,
        &["--rate", "500", "--compare-engine", "recv,epoll"],
    );
    let output = run(&["rtt", "plot", &result, &other, "--diff", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["runs"][0]["ratio_to_first"].is_null());
    // Engines of one rate are no sweep: nothing lies beyond a knee.
    assert!(report["runs"][0]["beyond_knee"].is_null());
    assert!(
        report["runs"][engines]["ratio_to_first"][0]
            .as_f64()
            .unwrap()
            > 0.0,
        "{report:#}"
    );
}

#[test]
fn single_runs_are_compared_whatever_their_labels_and_others_are_told_of() {
    let (reflector, place) = (Reflector::start(), Place::new("rtt-labels"));
    let [one, other, both] = ["one.rtt", "other.rtt", "both.rtt"].map(|name| place.file(name));
    for (file, rate) in [(&one, "400"), (&other, "500"), (&both, "300,600")] {
        measure(&reflector, file, &["--rate", rate]);
    }
    let second = |file: &str| -> Vec<Value> {
        let output = run(&["rtt", "plot", &one, file, "--diff", "--json"]);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        report["runs"].as_array().unwrap()[1..].to_vec()
    };
    let single = &second(&other)[0];
    assert!(
        single["ratio_to_first"][0].as_f64() > Some(0.0),
        "{single:#}"
    );
    let several = second(&both);
    assert_eq!(several.len(), 2);
    for run in several {
        assert!(run["ratio_to_first"].is_null(), "{run:#}");
        assert!(
            run["remarks"].to_string().contains("no run called"),
            "{run:#}"
        );
    }
}

/// The capability to change the scheduling class is left out, as it is for most users.
fn without_sched(args: &[&str]) -> Option<Command> {
    let all = ["--bounding-set=-sys_nice", "--inh-caps=-sys_nice"];
    let mut probe = Command::new("setpriv");
    if !probe
        .args(all)
        .arg("true")
        .status()
        .is_ok_and(|it| it.success())
    {
        println!("skipped: no setpriv to leave a capability out with");
        return None;
    }
    let mut command = Command::new("setpriv");
    command.args(all).arg("prlimit").args(["--rtprio=0", "--"]);
    command.arg(env!("CARGO_BIN_EXE_towline")).args(args);
    command.stdin(Stdio::null());
    Some(command)
}

#[test]
fn a_class_that_is_refused_is_neither_measured_nor_named() {
    let (reflector, place) = (Reflector::start(), Place::new("rtt-refused"));
    let (result, picture) = (place.file("run.rtt"), place.file("map.svg"));
    let mut args = vec!["rtt", "run", &reflector.target, "--json", "--no-mlock"];
    args.extend(["--out", &result, "--to", &picture, "--compare-sched"]);
    args.extend(["--time", "100ms", "--warm-up", "0ms", "--rate", "500"]);
    let Some(mut command) = without_sched(&args) else {
        return;
    };
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let runs = report["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 1, "{report:#}");
    assert_eq!(runs[0]["label"], "500/s other");
    assert_eq!(runs[0]["sched"], "other");
    let remarks = report["remarks"].to_string();
    assert!(
        remarks.contains("cannot use the class fifo:50"),
        "{remarks}"
    );
    assert!(
        remarks.contains("1 of 2 variants are left out"),
        "{remarks}"
    );
    assert!(!remarks.contains("real-time threads may run"), "{remarks}");
    assert!(!fs::read_to_string(&picture).unwrap().contains("fifo"));
}

#[test]
fn a_rate_that_nobody_can_keep_or_carry_is_told() {
    let (reflector, place) = (Reflector::start(), Place::new("rtt-rates"));
    let result = place.file("run.rtt");
    let report = measure(&reflector, &result, &["--rate", "500,20k", "--link", "10M"]);
    assert_eq!(report["runs"][0]["remarks"].as_array().unwrap().len(), 0);
    let remarks = report["runs"][1]["remarks"].to_string();
    assert!(remarks.contains("(9615/s)"), "{remarks}");
    let output = run(&["rtt", "plot", &result]);
    assert!(text(&output.stdout).contains("more than the line carries"));
}

#[test]
fn a_picture_that_cannot_be_written_is_told_before_anything_is_measured() {
    let place = Place::new("rtt-no-place");
    let nowhere = place.file("no-such-place/map.svg");
    let result = place.file("run.rtt");
    // Nobody is asked either: no reflector is there to answer.
    let commands: [&[&str]; 3] = [
        &["rtt", "run", "127.0.0.1:9", "--out", &result, "--to"],
        &["udp", "run", "127.0.0.1:9", "--to"],
        &["stats", "gen:", "--plot"],
    ];
    for command in commands {
        let output = run(&[command, &[&nowhere]].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        let expected = format!("error: drawing {nowhere}: No such file or directory");
        assert!(said.starts_with(&expected), "{command:?}: {said}");
        assert!(!Path::new(&result).exists());
    }
    // Where it can be, nothing is left when the measurement fails, and what was there stays.
    let (new, old) = (place.file("new.svg"), place.file("old.svg"));
    fs::write(&old, "kept").unwrap();
    let nobody = ["rtt", "run", "127.0.0.1:9", "--timeout", "50ms", "--out"];
    let output = run(&[&nobody[..], &[&result, "--to", &new, "--to", &old]].concat());
    assert_eq!(output.status.code(), Some(2));
    assert!(!Path::new(&new).exists());
    assert_eq!(fs::read_to_string(&old).unwrap(), "kept");
}

#[test]
fn a_reflector_that_dies_near_the_end_is_told() {
    let (mut reflector, place) = (Reflector::start(), Place::new("rtt-dies-late"));
    let result = place.file("run.rtt");
    let target = reflector.target.clone();
    let mut args = vec!["rtt", "run", &target, "--json", "--no-mlock"];
    args.extend(["--out", &result, "--rate", "1k", "--time", "2s"]);
    args.extend(["--warm-up", "0ms", "--wait", "block"]);
    let mut command = towline(&args);
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut client = piped.spawn().unwrap();
    let mut said = BufReader::new(client.stderr.take().unwrap()).lines();
    said.find(|line| line.as_ref().unwrap().starts_with("1000/s"));
    std::thread::sleep(Duration::from_millis(500));
    reflector.child.kill().unwrap();
    said.for_each(drop);
    let output = client.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let remarks = report["runs"][0]["remarks"].to_string();
    assert!(remarks.contains("answers stopped after "), "{report:#}");
}

#[test]
fn stamps_over_tcp_are_refused_before_anything_is_measured() {
    let (reflector, place) = (Reflector::start(), Place::new("rtt-tcp-hops"));
    let (result, picture) = (place.file("run.rtt"), place.file("hops.svg"));
    let mut args = vec!["rtt", "run", &reflector.target, "--over", "tcp", "--hops"];
    args.extend(["--to", &picture, "--out", &result]);
    let output = run(&args);
    assert_eq!(output.status.code(), Some(2));
    assert!(!Path::new(&picture).exists() && !Path::new(&result).exists());
    // A result without stamps: its figures are told, and no empty picture is left.
    measure(
        &reflector,
        &result,
        &["--rate", "500", "--stamp-every", "0"],
    );
    let output = run(&["rtt", "plot", &result, "--hops", "--to", &picture]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stdout).contains("RTT intended"));
    assert!(text(&output.stderr).contains("no message was stamped"));
    assert!(!Path::new(&picture).exists());
}

#[test]
fn a_disk_that_is_full_leaves_a_report_and_a_file_that_can_be_drawn() {
    let (reflector, place) = (Reflector::start(), Place::new("rtt-full"));
    let result = place.file("run.rtt");
    // No file may grow beyond 300 blocks of 512 bytes; the signal that says so is ignored.
    let limited = "trap '' XFSZ; ulimit -f 300; exec \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", limited, "sh", env!("CARGO_BIN_EXE_towline")]);
    command.args(["rtt", "run", &reflector.target, "--json", "--no-mlock"]);
    command.args(["--out", &result, "--rate", "20k", "--time", "60s"]);
    command.args(["--warm-up", "0ms", "--wait", "block"]);
    let began = std::time::Instant::now();
    let output = command.stdin(Stdio::null()).output().unwrap();
    // It ends when nothing can be written, not when its minute is over.
    assert!(began.elapsed().as_secs() < 50);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("cannot write the result"), "{said}");
    assert!(
        said.contains(&format!("`towline rtt plot {result}` reads it")),
        "{said}"
    );
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let answered = report["runs"][0]["counts"]["answered"].as_u64();
    assert!(answered.is_some_and(|it| it > 1_000), "{report:#}");
    assert_eq!(report["runs"][0]["is_cut"], true);
    assert_eq!(run(&["rtt", "plot", &result]).status.code(), Some(0));
}

#[test]
fn nobody_there_is_told_and_leaves_no_file() {
    let place = Place::new("rtt-nobody");
    let free = UdpSocket::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let result = place.file("run.rtt");
    let output = run(&[
        "rtt",
        "run",
        &free.to_string(),
        "--out",
        &result,
        "--timeout",
        "200ms",
    ]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("start `towline rtt reflect` there"), "{said}");
    assert!(!Path::new(&result).exists());
}

#[test]
fn a_reflector_that_dies_leaves_what_was_measured() {
    let (mut reflector, place) = (Reflector::start(), Place::new("rtt-dies"));
    let result = place.file("run.rtt");
    let mut args = vec![
        "rtt",
        "run",
        reflector.target.as_str(),
        "--json",
        "--no-mlock",
    ];
    args.extend([
        "--out",
        &result,
        "--rate",
        "500",
        "--time",
        "60s",
        "--warm-up",
        "0ms",
    ]);
    args.extend(["--wait", "block", "--timeout", "300ms"]);
    let mut command = towline(&args);
    let client = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while fs::metadata(&result).map_or(0, |it| it.len()) < 300 {
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(300));
    reflector.child.kill().unwrap();
    let output = client.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("what was measured is kept"));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["runs"][0]["is_cut"], true);
    assert!(
        report["runs"][0]["counts"]["answered"].as_u64().unwrap() > 0,
        "{report:#}"
    );
    assert_eq!(run(&["rtt", "plot", &result]).status.code(), Some(0));
}

#[test]
fn a_server_that_is_killed_leaves_the_rows_and_their_picture() {
    let place = Place::new("udp-killed");
    let picture = place.file("sizes.svg");
    let mut server = towline(&["udp", "serve", "--listen", "127.0.0.1:0"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(server.stderr.take().unwrap()).lines();
    let line = said.find_map(|line| line.unwrap().strip_prefix("serving at ").map(str::to_owned));
    let target = line.unwrap().split_once(';').unwrap().0.to_owned();
    let mut args = vec!["udp", "run", &target, "--json", "--to", &picture];
    args.extend(["--rate", "500", "--time", "300ms", "--direction", "there"]);
    let mut client = towline(&args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(client.stderr.take().unwrap()).lines();
    said.find(|line| line.as_ref().unwrap().starts_with("64 B,"));
    server.kill().unwrap();
    server.wait().unwrap();
    said.for_each(drop);
    let output = client.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["rows"][0]["size_bytes"], 64, "{report:#}");
    assert!(report["cut"].as_str().unwrap().contains(&target));
    let drawn = fs::read_to_string(&picture).unwrap();
    assert!(drawn.contains("CUT SHORT"));

    let (kept, again) = (place.file("sizes.json"), place.file("again.svg"));
    fs::write(&kept, &output.stdout).unwrap();
    let plotted = run(&["udp", "plot", &kept, "--json", "--to", &again]);
    assert_eq!(plotted.status.code(), Some(0), "{plotted:?}");
    assert_eq!(plotted.stdout, output.stdout);
    assert_eq!(fs::read_to_string(&again).unwrap(), drawn);
    fs::write(&kept, drawn).unwrap();
    let other = run(&["udp", "plot", &kept]);
    assert_eq!(other.status.code(), Some(2));
    let said = String::from_utf8(other.stderr).unwrap();
    assert!(
        said.contains("not a result of `towline udp run --json`"),
        "{said}"
    );
}

#[test]
fn a_port_that_is_used_says_who_may_have_it() {
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let stream = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let served = stream.local_addr().unwrap().to_string();
    for (args, port) in [
        (["rtt", "reflect", "--listen", &address], &address),
        (["udp", "serve", "--listen", &served], &served),
    ] {
        let output = run(&args);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        let port = port.rsplit(':').next().unwrap();
        assert!(said.contains(&format!("sport = :{port}")), "{said}");
        assert!(said.contains("another program has the port"), "{said}");
    }
}

/// A group and its interface are one word for every instrument, or two that agree.
#[test]
fn a_group_is_reached_by_the_interface_that_is_named() {
    const GROUP: &str = "239.192.77.46@lo:17546";
    let place = Place::new("group");
    let mut reflector = Reflector::start_at(GROUP);
    assert_eq!(reflector.target, "239.192.77.46:17546");
    GROUP.clone_into(&mut reflector.target);
    let report = measure(&reflector, &place.file("one.rtt"), &["--rate", "200"]);
    let counts = &report["runs"][0]["counts"];
    assert!(counts["answered"].as_u64() > Some(0), "{report}");
    let two = ["mtu", "239.192.77.46:17546", "--iface", "lo", "--json"];
    let mtu: Value = serde_json::from_slice(&run(&two).stdout).unwrap();
    assert_eq!(mtu["interface"], "lo", "{mtu}");
    assert_eq!(mtu["receivers"].as_array().unwrap().len(), 1, "{mtu}");
    for (args, cause) in [
        (
            &["rtt", "run", "239.192.77.46@nope"][..],
            "no interface matches nope",
        ),
        (
            &["mtu", "239.192.77.46@lo", "-i", "eth7"],
            "give only one of them",
        ),
        (
            &["reach", "-g", "239.192.77.46@lo", "-i", "eth7"],
            "give only one of them",
        ),
        (
            &["mtu", "127.0.0.1", "--iface", "lo"],
            "127.0.0.1 is a host",
        ),
        (
            &["rtt", "run", "127.0.0.1:abc"],
            "the port is not a number from 1 to 65535",
        ),
        (
            &["udp", "run", "127.0.0.1@lo"],
            "neither side of the @ is a multicast group",
        ),
    ] {
        let refused = run(args);
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(cause), "{args:?}: {said}");
    }
}
